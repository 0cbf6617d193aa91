"""Explanations of calls: whether a call would be made, and why."""
