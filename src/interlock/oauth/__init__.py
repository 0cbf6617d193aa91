"""Logging in to protected servers with OAuth."""
