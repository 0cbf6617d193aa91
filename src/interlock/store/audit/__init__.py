"""The audit trail in the database: written, signed, read, verified and counted."""
