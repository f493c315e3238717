"""An MCP server that answers each method with what it is given, as JSON: ``python listing_server.py '{"tools/list": {...}}'``.

It speaks the revision that is named under ``version``, or 2025-11-25.
"""

from __future__ import annotations

import json
import sys
from typing import Any

ANSWERS: dict[str, Any] = json.loads(sys.argv[1])
VERSION = ANSWERS.pop("version", "2025-11-25")
CAPABILITIES = {"tools": {}, "resources": {}, "prompts": {}}


def result_of(method: str) -> dict[str, Any] | None:
    if method == "initialize" and VERSION < "2026":
        info = {"name": "listing", "version": "1"}
        return {"protocolVersion": VERSION, "capabilities": CAPABILITIES, "serverInfo": info}
    if method == "server/discover" and VERSION >= "2026":
        return {"supportedVersions": [VERSION], "capabilities": CAPABILITIES, "ttlMs": 0, "cacheScope": "private"}
    answer = ANSWERS.get(method)
    if answer is None or VERSION < "2026":
        return answer
    cached = {"ttlMs": 0, "cacheScope": "private"} if method.endswith(("/list", "/read")) else {}
    return {"resultType": "complete", **cached, **answer}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        result = result_of(message["method"])
        answer = {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
