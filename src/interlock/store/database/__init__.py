"""The database, SQLite or PostgreSQL: its location, its tables, and short transactions."""
