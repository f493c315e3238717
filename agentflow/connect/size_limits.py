"""Limits on the messages of a server."""

from __future__ import annotations

from agentflow.lib.schema.json_types import has_too_many_values

MAX_MESSAGE = 8_000_000
"""Bytes of one message."""
MAX_PARTS = 5_000
"""Objects in one message, apart from data and schemas: tools, contents, questions. The SDK parses all of them at once."""
MAX_TOOLS = 1_000
"""Tools of one server, over all pages."""
MAX_PAGES = 100
"""Pages of one list."""
MAX_SPEC = 262_144
"""Characters of a tool's schemas, as JSON."""
MAX_DESCRIPTION = 4_000
"""Characters of a description."""
MAX_LIST = 8_000_000
"""Characters of one list as JSON, over all pages."""
MAX_NAMES = 10_000
"""Distinct tool names that one server may use while a flow is open."""
MAX_ASKED = 100
"""Unanswered requests of a server; further ones are dropped."""
MAX_ROUNDS = 10
"""Times that one call may ask for more input."""
MAX_SIGN_INS = 3
"""Times that one request may want its user to sign in."""
MAX_SAMPLES = 10
"""Times that one call may ask the model."""
MAX_SAMPLE_TOKENS = 8_192
"""Tokens in one answer of the model to a server."""
MAX_SAMPLE_TEXT = 400_000
"""Characters of one request to the model, as JSON."""
MAX_LOGS = 200
"""Log lines per call."""


def is_too_large(data: bytes | bytearray) -> bool:
    """Whether a message, or its beginning, exceeds the limits on size and number of values."""
    return len(data) > MAX_MESSAGE or has_too_many_values(data)
