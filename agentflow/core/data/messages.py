"""Messages to and from models, independent of any dialect.

Plain slotted dataclasses: a tool loop builds and walks thousands of these per second. Each part may carry ``native``, the
verbatim JSON of the dialect it came from, so that thinking signatures, encrypted reasoning and server-tool blocks are
replayed exactly to the same dialect and degraded by a stated rule to another. In JSON a part has its ``type`` as a further
field; :mod:`agentflow.core.data.message_json` reads it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any, ClassVar, Literal, TypeAlias, cast

from agentflow.core.data.frozen import frozen, slotted
from agentflow.core.data.values import rough_size
from agentflow.core.data.walk import LONG_TEXT

Role: TypeAlias = Literal["user", "assistant"]
StopReason: TypeAlias = Literal[
    "end", "tool_calls", "max_tokens", "stop_sequence", "refusal", "pause", "context_window"
]
Effort: TypeAlias = Literal["none", "low", "medium", "high", "max"]
"""How hard a model is asked to think before it answers."""
Batching: TypeAlias = bool | str
"""``batch=``: whether model calls are made in batches, or within which time, such as ``"2h"``."""
PromptCache: TypeAlias = Literal["5m", "1h", False]
"""The time that a provider is asked to cache the beginning of a prompt, so that the next call reads it for less."""


@frozen
class Native:
    """Verbatim JSON of one dialect (``anthropic.messages``, ``openai.responses``, ``openai.chat``).

    ``issuer`` is the server that it came from, and that alone may be sent it again: adapter, address and organisation.
    """

    dialect: str
    data: Any
    issuer: str = ""


@frozen
class Citation:
    """A source that a model cites: its ``title``, its ``url`` or ``path``, and the quoted text."""

    title: str = ""
    url: str | None = None
    path: str | None = None
    quote: str = ""


@frozen
class TextPart:
    """Text; ``cache`` asks the provider to cache the prompt up to and including this part, where it can.

    ``"auto"`` does so in requests that ask for it by ``prompt_cache``. ``citations`` are the sources of a model's text, where its dialect names them.
    """

    type: ClassVar[str] = "text"

    text: str
    cache: bool | Literal["auto"] = False
    native: Native | None = None
    citations: tuple[Citation, ...] = ()


@frozen
class ImagePart:
    """An image: base64 ``data`` with its ``media_type``, or a ``url``."""

    type: ClassVar[str] = "image"

    media_type: str = "image/png"
    data: str | None = None
    url: str | None = None


@frozen
class DocumentPart:
    """A document (PDF or text): base64 ``data`` with its ``media_type`` and file ``name``, or a ``url``."""

    type: ClassVar[str] = "document"

    media_type: str = "application/pdf"
    data: str | None = None
    url: str | None = None
    name: str = "document"


@frozen
class AudioPart:
    """Sound: base64 ``data`` with its ``media_type`` (``audio/wav``, ``audio/mpeg``), or a ``url``."""

    type: ClassVar[str] = "audio"

    media_type: str = "audio/wav"
    data: str | None = None
    url: str | None = None


ContentPart: TypeAlias = TextPart | ImagePart | DocumentPart | AudioPart
"""The parts that a tool may return to a model."""


@frozen
class ThinkingPart:
    """A model's visible thinking; ``native`` carries its signature or encrypted content for verbatim replay."""

    type: ClassVar[str] = "thinking"

    text: str
    native: Native | None = None


@frozen
class ToolCallPart:
    """A model's request to call a tool. ``arguments`` is the parsed object.

    ``invalid`` says why the argument text is not a JSON object; ``arguments`` is then empty, and the call must not run: its
    result reports the mistake to the model.
    """

    type: ClassVar[str] = "tool_call"

    id: str
    name: str
    arguments: dict[str, Any]
    native: Native | None = None
    invalid: str = ""


@frozen
class ToolResultPart:
    """The answer to the tool call ``call_id``.

    The model reads ``parts`` if its dialect allows more than text in such an answer; otherwise, and without parts, it reads
    ``text``.
    """

    type: ClassVar[str] = "tool_result"

    call_id: str
    name: str
    text: str
    is_error: bool = False
    parts: tuple[ContentPart, ...] = ()


@frozen
class OtherPart:
    """A block that only its own dialect understands (server tools, redacted thinking); other dialects drop it."""

    type: ClassVar[str] = "other"

    native: Native


Part: TypeAlias = (
    TextPart | ImagePart | DocumentPart | AudioPart | ThinkingPart | ToolCallPart | ToolResultPart | OtherPart
)


WRITTEN = (TextPart, ThinkingPart)
"""The parts with text written by a model; for ``isinstance``, where a union of types would be built at each call."""


@frozen
class Message:
    """A message of one side of a conversation.

    ``sources`` of the last message of an exchange are those of all read in it, in a flow with a policy; ``agent`` is
    the name of the task that gave it.
    """

    role: Role
    parts: tuple[Part, ...]
    sources: frozenset[str] = field(default=frozenset(), repr=False)
    agent: str = field(default="", repr=False, compare=False)

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def interrupted(self) -> bool:
        """Whether this is the beginning of an answer that was stopped; see :attr:`agentflow.Session.keep_partial`."""
        last = self.parts[-1] if self.role == "assistant" and self.parts else None
        return isinstance(last, TextPart) and last.text == INTERRUPTED


def text_of_parts(parts: Iterable[ContentPart]) -> str:
    """Parts as text, for a reader that takes text only: texts unchanged, a line in brackets for each other part."""
    return "\n".join(
        part.text
        if isinstance(part, TextPart)
        else f"[{part.type}: {part.url or (part.name if isinstance(part, DocumentPart) else part.media_type)}]"
        for part in parts
    )


INTERRUPTED = "\n\n[interrupted]"
"""The text of the last part of an answer that was stopped; the part is separate, so that the text before it is the shown one."""


def user(text: str) -> Message:
    """A user message of one text part."""
    return Message("user", (TextPart(text),))


@frozen
class ToolSpec:
    """The description of a tool for a model: name, description and the JSON Schema of its arguments object.

    ``deferred``: the model is not shown it before the provider's own search has found it.
    """

    name: str
    description: str
    input_schema: dict[str, Any]
    strict: bool = False
    deferred: bool = False


CAP_SETTINGS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""Native request fields, of any dialect, that say how long an answer may be."""


def thinking_tokens(settings: Mapping[str, Any]) -> int:
    """The thinking budget in native ``settings``, in tokens, which an answer may use in addition to its text; 0 for none."""
    thinking = settings.get("thinking")
    if not isinstance(thinking, dict):
        return 0
    fields = cast("dict[str, object]", thinking)
    budget = fields.get("budget_tokens")
    return budget if fields.get("type") == "enabled" and isinstance(budget, int) and budget > 0 else 0


@frozen
class ModelRequest:
    """One model call.

    ``model`` is the bare model name in the adapter's dialect. ``tool_choice`` is ``auto``, ``none``, ``required`` or a
    tool's name. ``output_schema`` is a JSON Schema the answer must meet. ``settings`` are native request fields of the
    dialect, merged over ours, but none makes an answer longer than ``max_output_tokens``. ``stream``
    false: there are no observers of the progress, so the adapter may make a plain call. ``timeout_s`` bounds the whole
    call, retries included. ``idempotency_key`` goes to providers that accept one. Where calls wait, the highest
    ``priority`` goes first; ``input_tokens`` is the estimated size of the request (0: not estimated). ``prompt_cache`` asks
    the provider to cache the input for five minutes or an hour, False not to cache it, None leaves that to the provider;
    requests with the same ``cache_key`` share a prefix. ``effort`` is how hard the model should think; ``provider_tools``
    are tools that the provider itself runs, in its own form, offered in addition to ``tools``.
    """

    messages: tuple[Message, ...]
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    model: str = ""
    output_schema: dict[str, Any] | None = None
    tool_choice: str = "auto"
    max_output_tokens: int | None = None
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    stream: bool = True
    timeout_s: float | None = None
    idempotency_key: str | None = None
    priority: int = 0
    input_tokens: int = 0
    prompt_cache: PromptCache | None = None
    cache_key: str = ""
    effort: Effort | None = None
    provider_tools: tuple[dict[str, Any], ...] = ()


@frozen
class Usage:
    """Tokens, normalised: ``input_tokens`` is everything the model read, cache reads and writes included.

    ``requests`` counts model calls; ``estimated_tokens`` are those of input and output that no provider has counted,
    because their call was cancelled or broke; ``cache_write_1h_tokens`` are those of the cache writes kept for an
    hour. Add two with ``+``.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    requests: int = 0
    estimated_tokens: int = 0
    cache_write_1h_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.requests + other.requests,
            self.estimated_tokens + other.estimated_tokens,
            self.cache_write_1h_tokens + other.cache_write_1h_tokens,
        )

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens


@frozen
class ModelResponse:
    """A complete answer: one that ended with a terminal event and a finish reason."""

    parts: tuple[Part, ...]
    stop_reason: StopReason
    usage: Usage = Usage()
    model: str = ""
    request_id: str | None = None
    provider: str = ""
    cost_usd: float | None = None
    unknown_events: int = 0
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def text(self) -> str:
        """The text parts, joined."""
        parts = self.parts
        if len(parts) == 1:
            only = parts[0]
            return only.text if isinstance(only, TextPart) else ""
        return "".join([part.text for part in parts if isinstance(part, TextPart)])

    @property
    def tool_calls(self) -> tuple[ToolCallPart, ...]:
        """The tool calls, in order."""
        return (
            tuple([part for part in self.parts if isinstance(part, ToolCallPart)])
            if ToolCallPart in map(type, self.parts)
            else ()
        )

    @classmethod
    def of_text(cls, text: str) -> ModelResponse:
        """An answer that no model gave, which costs nothing."""
        return cls((TextPart(text),), "end", cost_usd=0.0)

    def with_text(self, text: str) -> ModelResponse:
        """The answer with this text in place of its own; its other parts stay."""
        others = [part for part in self.parts if not isinstance(part, TextPart)]
        return replace(self, parts=(TextPart(text), *others) if text else tuple(others))

    def message(self) -> Message:
        """The answer as a message for the history."""
        return Message("assistant", self.parts)


@frozen
class Attempt:
    """One attempt of a model call. ``outcome`` is None while it runs; ``retry_in_s`` is set if another follows.

    After a fallback, ``model`` differs from the request's. ``server`` is the host of the request, with its port unless it
    is the default; empty without a network request.
    """

    number: int
    provider: str
    model: str
    outcome: Literal["ok", "failed"] | None = None
    error: BaseException | None = None
    retry_in_s: float | None = None
    status: int | None = None
    request_id: str | None = None
    server: str = ""


@frozen
class Notice:
    """A remark of an adapter in addition to the answer: a Warning event with ``code``, a debug Log line without one."""

    message: str
    code: str = ""
    details: dict[str, Any] = field(default_factory=dict[str, Any])


@frozen
class Waiting:
    """A call waits before it is sent: for its ``rate``, at the adapter's ``gate`` or for its ``batch``; ``over`` says that it has waited."""

    reason: Literal["rate", "gate", "batch"]
    over: bool = False


@slotted
class ModelDelta:
    """One step of a streamed model call. Exactly one thing is set:

    ``text``; ``thinking``; ``tool_name`` with ``tool_call_id`` (a tool call begins); ``arguments`` with
    ``tool_call_id`` (more of its argument text); ``attempt`` (a try began or ended); ``wait`` (waiting began or ended); ``notice``; ``response`` (the last
    delta of every complete stream: the whole answer). Not frozen: one is built per chunk, and freezing it would cost more
    than reading the chunk's JSON.
    """

    text: str = ""
    thinking: str = ""
    tool_call_id: str = ""
    tool_name: str = ""
    arguments: str = ""
    attempt: Attempt | None = None
    response: ModelResponse | None = None
    notice: Notice | None = None
    wait: Waiting | None = None


@frozen
class ModelProfile:
    """The properties of a model. ``context_window`` and ``max_output_tokens`` are tokens, None where unknown.

    ``object_output`` says that an output schema must describe an object; ``wall_s`` how many seconds a call may take (None:
    any). ``takes_effort`` says that the model is known to follow the requested thinking effort. ``route`` is the dialect as it
    precedes a model's name (``openai-chat``), the key of prices and rates; empty for the provider's name.
    ``thinking_tokens`` is the thinking budget of every call, in addition to its answer. ``searches_tools``: the provider itself finds
    deferred tools.
    """

    provider: str
    model: str
    dialect: str
    context_window: int | None = None
    max_output_tokens: int | None = None
    native_json_schema: bool = False
    counts_tokens: bool = False
    object_output: bool = False
    wall_s: float | None = None
    route: str = ""
    takes_effort: bool = False
    thinking_tokens: int = 0
    searches_tools: bool = False


def are_long(parts: Iterable[Part]) -> bool:
    """Whether parts of messages are so long together that they are searched, recorded and sent in slices."""
    size = 0
    for part in parts:
        kind: type[Part] = part.__class__
        if kind is TextPart or kind is ToolResultPart or kind is ThinkingPart:
            size += len(cast(TextPart, part).text)
        else:
            size += rough_size(part.arguments if isinstance(part, ToolCallPart) else part, LONG_TEXT)
    return size > LONG_TEXT
