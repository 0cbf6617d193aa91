"""The SQLite or PostgreSQL database: its location, its tables, and short transactions."""
