"""The server `crm` of tests/docs/gateway_page.py, on stdio: finds and refunds orders of no shop.

python -I -S crm.py
"""

from __future__ import annotations

import json
import sys
from typing import Any

SCHEMA = {
    "type": "object",
    "properties": {"order": {"type": "string"}, "amount": {"type": "integer"}},
    "additionalProperties": False,
}
TOOLS = [
    {"name": "find", "inputSchema": SCHEMA},
    {"name": "refund", "description": "Refund an order.", "inputSchema": SCHEMA},
]
RESULTS: dict[str, dict[str, Any]] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "crm", "version": "1.0"},
    },
    "tools/list": {"tools": TOOLS},
    "tools/call": {"content": [{"type": "text", "text": "done"}]},
    "ping": {},
}

for line in sys.stdin.buffer:
    message = json.loads(line)
    if "id" in message:
        reply = {"jsonrpc": "2.0", "id": message["id"]}
        if message["method"] in RESULTS:
            reply["result"] = RESULTS[message["method"]]
        else:
            reply["error"] = {"code": -32601, "message": f"no method {message['method']}"}
        print(json.dumps(reply), flush=True)
