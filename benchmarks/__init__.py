"""Us beside the peers, and beside the least that can be done. See README.md."""
