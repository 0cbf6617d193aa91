"""One program a contestant and side: `NAME_server.py` and `NAME_client.py`."""
