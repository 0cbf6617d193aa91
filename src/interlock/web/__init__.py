"""The chat for other programs: turns, and three encodings of their events."""

from __future__ import annotations
