"""Conversations in the database, with their messages, calls, files, search and transcripts."""
