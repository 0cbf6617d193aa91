"""What is measured: one file a group, each with `rows`."""
