"""Chats in the browser: turns, the socket, the JSON routes, and encodings for other clients."""
