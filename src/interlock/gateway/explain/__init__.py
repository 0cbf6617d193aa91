"""Whether a call would be made, and why."""
