"""Conversations in the database: messages, calls, files, search and transcripts."""
