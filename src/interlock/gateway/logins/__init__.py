"""Logins of users to servers and to the pages, and their credentials."""
