"""JSON responses: encoded in slices of the loop, and valid for any computed value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from agentflow.core.data.json_text import encoded
from agentflow.core.data.walk import in_slices


async def json_bytes(data: Any) -> bytes:
    """JSON data as UTF-8. Lone surrogates become escapes; NaN and infinities become their names as strings."""
    try:
        text = await in_slices(encoded(data, finite=True))
    except ValueError:
        named = json.loads(await in_slices(encoded(data)), parse_constant=str)
        text = await in_slices(encoded(named))
    return text.encode("utf-8", "backslashreplace")


async def json_response(data: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A response with JSON data."""
    return Response(await json_bytes(data), status, headers, "application/json")
