"""A database, SQLite or PostgreSQL: where it is, its tables, and short transactions in it."""
