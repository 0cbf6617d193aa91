"""A whole "gateway" member, and short forms of its parts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from interlock import config
from interlock.config import Config
from interlock.errors import ConfigError

WHOLE = b"""{
  "mcpServers": {
    "time":    {"command": "mcp-server-time", "tools": {"risk": {"read": ["*"]}}},
    "crm":     {"command": "crm"},
    "notes":   {"type": "python", "object": "company.notes:server", "timeout": 20},
    "github":  {"url": "https://api.github.example/mcp", "sharing": "per_user", "auth": "oauth",
                "tools": {"deny": ["delete_*"], "risk": {"read": ["get_*"], "write": ["get_x"]},
                          "override": {"search_code": {"description": "Search our code."}}},
                "limits": {"concurrent": 32, "queue": 128, "rate": "50/s"},
                "results": {"max": 32768}, "asks": ["sampling"], "required": true}
  },
  "gateway": {
    "listen": "127.0.0.1:8080", "publicUrl": "https://tools.example.com/mcp",
    "hosts": ["tools.example.com"], "sse": false, "proxies": ["10.0.0.0/8", "::1"],
    "cors": ["https://app.example.com/", "*"], "headers": ["X-Tenant"],
    "database": "postgresql://gateway:canary-d4@db/gateway",
    "views":  {"support": {"servers": ["crm", "time"], "tools": {"deny": ["crm:refund"]},
                           "names": "plain"}},
    "auth":   {"issuers": [{"issuer": "https://id.example.com",
                            "audience": "https://tools.example.com/mcp",
                            "jwksUrl": "https://id.example.com/jwks", "groups": "groups",
                            "scopes": {"leads": ["mcp:*", "admin:approve"]},
                            "clientId": "gateway", "clientSecret": "canary-s3"}]},
    "groups": {"support": ["user:anna", "https://id.example.com#4711"], "leads": ["user:berta"]},
    "policy": {"readOnly": false, "rules": [  // any order
      {"id": "everybody-reads", "effect": "allow", "who": ["*"], "tools": ["*:*"], "risk": "read"},
      {"id": "refunds", "effect": "ask", "who": ["group:support"], "tools": ["crm:refund"],
       "arguments": {"amount": {"exclusiveMinimum": 50}}, "view": "support",
       "claims": {"country": {"const": "de"}},
       "approvers": ["group:leads"], "expires": "15m", "record": "full"}]},
    "limits":  {"perKey": {"rate": "20/s", "burst": 60, "concurrent": 8, "perDay": 20000},
                "tools": {"crm:refund": "5/min"}, "concurrent": 256, "queue": 0},
    "results": {"max": 1024, "tools": {"crm:list_*": 4096}, "views": {"support": 512},
                "perUser": 2048, "total": 4096},
    "keep":    {"audit": "90d", "approvals": "7d", "conversations": "365d", "files": "1d",
                "results": "2h", "sessions": "12h"},
    "approvals": {"expires": "5m", "wait": 10}, "drain": {"delay": "5s", "calls": 10},
    "lock": {"mode": "strict", "file": "lock.json"},
    "audit":   {"mode": "lenient", "reads": "before", "arguments": "none",
                "copy": "audit.jsonl"},
    "plugins": {"folder": "plugins", "server": "crm"}, "admin": {"listen": "[::1]:0"},
    "chat":    {"models": ["local"], "limits": {"turns": 1, "messages": "9/h", "turn": "1m"},
                "quotas": {"conversations": {"perUser": 5, "total": 6}, "files": {"total": 7}}},
    "instructions": "servers"
  }
}
"""


def gateway(section: dict[str, Any] | None = None, **servers: Any) -> Config:
    servers = servers or {"crm": {"command": "crm"}}
    return config.loads(json.dumps({"mcpServers": servers, "gateway": section or {}}).encode())


def rule(**members: Any) -> dict[str, Any]:
    """A rule with other members; None leaves one out."""
    whole = {"id": "r", "effect": "allow", "who": ["*"], "tools": ["*:*"]} | members
    return {
        "policy": {
            "rules": [{key: value for key, value in whole.items() if value is not None}],
        }
    }


def issuer(**members: Any) -> dict[str, Any]:
    whole = {
        "issuer": "https://id.example",
        "audience": "https://tools.example",
        "jwksUrl": "https://id.example/keys",
    } | members
    issuer = {key: value for key, value in whole.items() if value is not None}
    return {"auth": {"issuers": [issuer]}}


def check_refusal(section: Any, place: str, problem: str) -> None:
    """Check that a member `gateway` is refused, with line, place and reason."""
    text = json.dumps({"mcpServers": {"crm": {"command": "crm"}}, "gateway": section}, indent=1)
    with pytest.raises(ConfigError) as caught:
        config.loads(text.encode(), Path("gateway.json"))

    found = re.fullmatch(r"gateway\.json, line (\d+): (\S+) (.*)", str(caught.value))
    assert found, str(caught.value)
    assert found[2] == f"gateway.{place}".removesuffix(".")
    assert problem in found[3]
    member = re.findall(r"[^\]\[.']+", found[2])[-1]
    line = text.splitlines()[int(found[1]) - 1]
    assert member.isdigit() or f'"{member}"' in line
