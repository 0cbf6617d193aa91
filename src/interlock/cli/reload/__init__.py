"""`interlock run --reload`: serves a file, and serves it again when it changes."""
