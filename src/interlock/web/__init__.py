"""The pages: the chat, the board of a gateway, the inspector, and the apps of servers."""

from __future__ import annotations
