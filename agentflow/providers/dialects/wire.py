"""JSON from and to a server, tool names on the wire, and estimates of size."""

from __future__ import annotations

import hashlib
import io
import re
from contextlib import suppress
from typing import Any, cast

import jiter
from pydantic_core import to_json

from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.json_text import encoded, written
from agentflow.core.data.messages import ModelRequest, Notice, ToolCallPart, are_long
from agentflow.core.data.provider_errors import ProtocolError
from agentflow.core.data.values import is_long
from agentflow.core.data.walk import LONG_TEXT, Work, in_slices
from agentflow.lib.schema.json_types import MAX_JSON_VALUES, has_too_many_values
from agentflow.providers.dialects.halves import whole, whole_json
from agentflow.providers.dialects.request_history import fitted, is_fit, made_id
from agentflow.providers.dialects.traits import UNKNOWN, Traits


def parse_json(data: bytes, what: str = "an event") -> Any:
    """The value of a JSON text from the network.

    Raises ProtocolError for anything but JSON in UTF-8, for data nested too deeply or with more than
    :data:`~agentflow.lib.schema.json_types.MAX_JSON_VALUES` values.
    """
    if len(data) > MAX_JSON_VALUES and has_too_many_values(data):  # few texts are long enough to be counted
        raise ProtocolError(
            f"the server sent {what} with more than {MAX_JSON_VALUES:,} JSON values", code="provider/too-large"
        )
    try:
        return jiter.from_json(data)
    except ValueError as error:
        excerpt = data[:80].decode("utf-8", "backslashreplace")
        raise ProtocolError(
            f"the server sent {what} that is not valid JSON ({error}): {excerpt!r}", code="provider/bad-json"
        ) from None


def parse_whole(data: bytes) -> Any:
    """The value of a whole answer, halves of characters in it replaced. Raises as :func:`parse_json`."""
    try:
        return parse_json(data, "an answer")
    except ProtocolError:
        if (mended := whole_json(data)) is None:
            raise
        return parse_json(mended, "an answer")


def dump_json(data: Any) -> bytes:
    """A request body as bytes; text that UTF-8 cannot write has U+FFFD in its place. Raises ConfigurationError for a value
    without a JSON form."""
    try:
        return to_json(data)
    except (ValueError, TypeError) as error:
        if "surrogates" in str(error):
            return to_json(whole(data))
        raise ConfigurationError(
            f"the request cannot be written as JSON: {error}",
            code="provider/request-not-json",
            hint="tool schemas and native settings must be plain JSON data",
        ) from None


async def body_of(request: ModelRequest, data: Any) -> bytes:
    """The body of ``request`` as bytes; a long one is encoded in slices of the loop. Raises as :func:`dump_json`."""
    if len(request.system) > LONG_TEXT or are_long([part for message in request.messages for part in message.parts]):
        with suppress(ValueError, TypeError):  # data other than plain JSON is written or refused below
            return await in_slices(_body(data))
    return dump_json(data)


def _body(data: Any) -> Work[bytes]:
    buffer = io.BytesIO()  # grows in place, and its content is handed over without a copy

    def take(piece: str) -> None:
        buffer.write(piece.encode())

    yield from written(data, take, compact=True)
    return buffer.getvalue()


def record(value: Any) -> dict[str, Any]:
    """``value`` if it is a JSON object, else an empty one."""
    return cast(dict[str, Any], value) if isinstance(value, dict) else {}


def records(value: Any) -> list[dict[str, Any]]:
    """``value`` if it is a JSON array, else an empty one."""
    return cast(list[dict[str, Any]], value) if isinstance(value, list) else []


def string(value: Any) -> str:
    """``value`` if it is a JSON string, else an empty one."""
    return value if isinstance(value, str) else ""


class Wire:
    """One request on the wire: the ``traits`` of the requested server, the ``issuer`` of its answers, its ``messages``
    as that server takes them (see :mod:`agentflow.providers.dialects.request_history`; ``plain`` if they are mere texts), the names and
    arguments of its tool calls.

    Maps tool names to names that providers accept (``[A-Za-z0-9_-]``, at most 64 characters), and back, and keeps long
    arguments written as text beforehand. Other characters (``system:read_files``) are replaced; names that would collide get a digest. The mapping depends
    only on the names, so that prompt caches stay valid between calls.
    """

    __slots__ = (
        "_asked",
        "_back",
        "_made",
        "_texts",
        "_to_wire",
        "_tools",
        "forms",
        "in_prompt",
        "issuer",
        "messages",
        "notices",
        "plain",
        "traits",
    )
    _FIT = re.compile(r"[A-Za-z0-9_-]{1,64}").fullmatch

    def __init__(
        self,
        request: ModelRequest,
        traits: Traits = UNKNOWN,
        issuer: str = "",
        forms: dict[Any, Any] | None = None,
        *,
        in_prompt: bool = False,
    ) -> None:
        self.traits = traits
        self.issuer = issuer
        self.forms: dict[Any, Any] = {} if forms is None else forms
        """The forms of schemas that the adapter has sent before; see :mod:`agentflow.providers.dialects.schema_translation`."""
        messages = self._asked = request.messages
        self.plain = is_fit(messages, issuer)
        self.messages = messages if self.plain else fitted(messages, traits, issuer)
        self._made: set[str] = set()
        self.in_prompt = in_prompt
        """Whether the prompt says the schema of the answer already."""
        self.notices: list[Notice] = []
        """Remarks on the request, for the caller."""
        self._to_wire: dict[str, str] = {}
        self._back: dict[str, str] = {}
        self._texts: dict[int, str] = {}
        self._tools = request.tools
        names = [tool.name for tool in request.tools]
        taken = {name for name in names if self._FIT(name)}
        for name in names:
            if name not in taken:
                self._add(name, taken)

    def _add(self, name: str, taken: set[str]) -> str:
        wire = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "_"
        if wire in taken or wire in self._back:
            wire = f"{wire[:55]}_{hashlib.blake2b(name.encode('utf-8', 'surrogatepass'), digest_size=4).hexdigest()}"
        self._to_wire[name] = wire
        self._back[wire] = name
        return wire

    def to_wire(self, name: str) -> str:
        """The name of the tool on the wire."""
        mapped = self._to_wire.get(name)
        if mapped is not None or self._FIT(name):
            return mapped or name
        return self._add(name, set())

    @property
    def searched(self) -> frozenset[str]:
        """The names of the tools, if the server searches deferred ones; none in any other request."""
        if not self.traits.tool_search or not any([tool.deferred for tool in self._tools]):
            return frozenset()
        return frozenset([self.to_wire(tool.name) for tool in self._tools])

    def new_id(self) -> str:
        """An id for a tool call without one from its server, unique in the conversation."""
        call_id = made_id(self._asked, self._made)
        self._made.add(call_id)
        return call_id

    def write(self) -> Work[None]:
        """Write the long arguments of the tool calls in the history, in slices, for dialects that send them as text."""
        for message in self.messages:
            for part in message.parts:
                if isinstance(part, ToolCallPart) and is_long(part.arguments):
                    with suppress(ValueError, TypeError):  # data other than plain JSON is written or refused later
                        self._texts[id(part)] = yield from encoded(part.arguments, compact=True)

    def arguments(self, call: ToolCallPart) -> str:
        """The arguments of a tool call as JSON text. Raises ConfigurationError for a value without a JSON form."""
        return self._texts.get(id(call)) or dump_json(call.arguments).decode()

    def back(self, wire: str) -> str:
        """The tool's own name."""
        return self._back.get(wire, wire) if self._back else wire


def unsupported(dialect: str, what: str, instead: str) -> ConfigurationError:
    """The error for a part that a dialect cannot express."""
    return ConfigurationError(f"{dialect} does not take {what}", code="provider/unsupported-part", hint=instead)


def estimate_tokens(request: ModelRequest) -> int:
    """Estimated input tokens: one per four bytes of the request's JSON, 1,000 per image or document."""
    size, count = len(request.system), 3
    for tool in request.tools:
        size += len(dump_json(tool.input_schema)) + len(tool.description)
    for message in request.messages:
        count += 4
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                size += len(part.name) + len(dump_json(part.arguments))
            elif hasattr(part, "text"):
                size += len(part.text.encode("utf-8", "surrogatepass"))  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]
            elif hasattr(part, "media_type"):
                count += 1_000
    return count + size // 4
