"""The audit trail in the database: writing, signing, reading, verification and counts."""
