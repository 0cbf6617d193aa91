"""Checks of a gateway's deployment, for `interlock doctor --deployment`. They change nothing."""
