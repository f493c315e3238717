"""How real model servers answer, as data: one line a shape, with the outcome that is right for it.

The shapes were seen on llama.cpp's server, transformers serve, vLLM, Ollama, TGI, LiteLLM's proxy, aimock, OpenRouter,
DeepSeek, Mistral, Gemini's and Azure's compatible endpoints; ``docs/servers.md`` says which of them were run. A row's
bytes are a whole HTTP answer. ``SHAPES`` is run by ``tests/providers/test_server_shapes.py`` on both transports.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import Any

from agentflow import errors
from tests.support.model_server_wire import Dialect

HTTP = b"HTTP/1.1 %d X\r\nx-request-id: req_1\r\n"


@dataclass(frozen=True)
class Good:
    """A complete answer: its text, stop reason, tool calls (name, arguments), thinking, and the code of a Warning."""

    text: str = "hello"
    stop: str = "end"
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    thinking: str = ""
    warning: str = ""


@dataclass(frozen=True)
class Bad:
    """An error: its class, words of its message, its code, the text that had come, and whether it is tried again."""

    kind: type[errors.ProviderError]
    says: str = ""
    code: str = ""
    partial: str = ""
    retried: bool = False


@dataclass(frozen=True)
class Shape:
    """One answer of one server. ``stream``: whether a stream was asked for."""

    name: str
    dialect: Dialect
    answer: bytes
    outcome: Good | Bad
    stream: bool = True


def dump(data: Any) -> bytes:
    """Compact JSON; bytes as they are."""
    return data if isinstance(data, bytes) else json.dumps(data, separators=(",", ":")).encode()


def event(data: Any, name: str = "") -> bytes:
    """One server-sent event."""
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + dump(data) + b"\n\n"


def events(*data: Any) -> bytes:
    """An event stream's body; bytes are taken as they are."""
    return b"".join(each if isinstance(each, bytes) else event(each) for each in data)


def head(status: int, kind: str | None, **headers: str) -> bytes:
    """A response's head, without the blank line."""
    lines = {**({"content-type": kind} if kind else {}), **{key.replace("_", "-"): v for key, v in headers.items()}}
    return HTTP % status + b"".join(f"{name}: {value}\r\n".encode() for name, value in lines.items())


def chunked(body: bytes, kind: str | None = "text/event-stream", end: bytes = b"0\r\n\r\n", **headers: str) -> bytes:
    """An answer in chunks, cut in the middle; ``end`` empty leaves the last chunk out."""
    cuts = [body[: len(body) // 2], body[len(body) // 2 :]]
    pieces = b"".join(f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in cuts if piece)
    return head(200, kind, transfer_encoding="chunked", **headers) + b"\r\n" + pieces + end


def sized(body: bytes, kind: str | None = "application/json", status: int = 200, **headers: str) -> bytes:
    """An answer with its length."""
    return head(status, kind, content_length=str(len(body)), **headers) + b"\r\n" + body


def closed(body: bytes, kind: str | None = "text/event-stream") -> bytes:
    """An answer that only the closing of the connection ends."""
    return head(200, kind, connection="close") + b"\r\n" + body


def stream(*data: Any) -> bytes:
    """A well-framed event stream."""
    return chunked(events(*data))


def plain(data: Any, status: int = 200, **headers: str) -> bytes:
    """A JSON answer."""
    return sized(dump(data), status=status, **headers)


# --- Chat Completions ------------------------------------------------------------------------------------------------

DONE = b"data: [DONE]\n\n"


def c(delta: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    """A chunk."""
    return {"id": "c", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}], **more}


def said(text: Any, finish: str | None = None) -> dict[str, Any]:
    """A chunk with content."""
    return c({"content": text}, finish)


def completion(message: Any, finish: str | None = "stop", **more: Any) -> dict[str, Any]:
    """A plain answer."""
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return {"id": "c", "object": "chat.completion", "model": "m", "choices": [choice], **more}


def call(arguments: Any, index: int | None = None, call_id: str | None = None, name: str | None = "add") -> Any:
    """A tool call, whole or in part; what is None is left out."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {
        key: value for key, value in (("index", index), ("id", call_id), ("function", function)) if value is not None
    }


def calls(*each: Any) -> dict[str, Any]:
    """A chunk with tool calls."""
    return c({"tool_calls": list(each)})


HELLO = said("hello")
STOP = c({}, "stop")
ONE, TWO = ("add", {"a": 1}), ("add", {"a": 2})
CALLED = Good("", "tool_calls", (ONE,))
BOTH = Good("", "tool_calls", (ONE, TWO))
JSON_1, JSON_2 = '{"a":1}', '{"a":2}'
CONTEXT = errors.ContextWindowExceeded


def chat_error(error: Any, *before: Any) -> bytes:
    """A stream that ends in an error event."""
    return stream(*before, {"error": error})


def status(code: int, body: Any, kind: str = "application/json") -> bytes:
    """A failure."""
    return sized(body.encode() if isinstance(body, str) else dump(body), kind, code)


# fmt: off
CHAT: list[Shape] = [Shape(name, "chat", answer, outcome) for name, answer, outcome in [
    # The end of an answer.
    ("llama.cpp stream", stream(c({"role": "assistant", "content": None}), HELLO, STOP, {"choices": [], "usage": {"prompt_tokens": 1}}, DONE), Good()),
    ("transformers serve: no [DONE]", stream(c({"role": "assistant"}), HELLO, STOP), Good()),
    ("no [DONE], with a length", sized(events(HELLO, STOP), "text/event-stream"), Good()),
    ("no [DONE], closed", closed(events(HELLO, STOP)), Bad(errors.IncompleteStream, "[DONE]", partial="hello")),
    ("[DONE], closed", closed(events(HELLO, STOP, DONE)), Good()),
    ("no reason", stream(HELLO, DONE), Bad(errors.IncompleteStream, "finish reason", partial="hello")),
    ("no reason, no [DONE]", stream(HELLO), Bad(errors.IncompleteStream, partial="hello")),
    ("empty reason", stream(said("hello", ""), DONE), Bad(errors.IncompleteStream, partial="hello")),
    ("reason, then cut", chunked(events(HELLO, STOP), end=b""), Bad(errors.ConnectionLost, partial="hello")),
    ("cut inside an event", chunked(events(HELLO) + b'data: {"choi'), Bad(errors.IncompleteStream, partial="hello")),
    ("nothing but [DONE]", stream(DONE), Bad(errors.IncompleteStream, retried=True)),
    ("empty stream", stream(), Bad(errors.IncompleteStream, retried=True)),
    ("empty body, no type", head(200, None, content_length="0") + b"\r\n", Bad(errors.IncompleteStream, retried=True)),
    ("reason with the last text", stream(said("hello", "stop"), DONE), Good()),
    ("no text at all", stream(STOP, DONE), Good("")),
    ("no text for its tokens", stream(c({}, "length"), DONE), Good("", "max_tokens")),
    # Reasons.
    *((f"reason {word}", stream(said("hello", word), DONE), outcome) for word, outcome in [
        ("eos", Good()), ("eos_token", Good()), ("end_turn", Good()), ("STOP", Good()), ("stop_sequence", Good(stop="stop_sequence")),
        ("length", Good(stop="max_tokens")), ("max_tokens", Good(stop="max_tokens")), ("content_filter", Good(stop="refusal")),
        ("error", Bad(errors.ServerError, "error", partial="hello")), ("abort", Bad(errors.ServerError, "abort", partial="hello")),
        ("insufficient_system_resource", Bad(errors.Overloaded, partial="hello")), ("network_error", Bad(errors.ServerError, partial="hello")),
        ("sensitive", Bad(errors.Refused, partial="hello")), ("model_length", Bad(CONTEXT, partial="hello")),
        ("unheard_of", Bad(errors.ProtocolError, "unheard_of", "provider/unknown-stop", "hello")),
    ]),
    ("null text as a reason", stream(said("hello", "null"), DONE), Bad(errors.ProtocolError, "null", "provider/unknown-stop", "hello")),
    # Errors inside the stream.
    ("error beside choices", stream(HELLO, c({"content": ""}, "error", error={"code": 502, "message": "provider gone"})), Bad(errors.ServerError, "provider gone", partial="hello")),
    ("error 429 as a number", chat_error({"code": 429, "message": "slow down"}), Bad(errors.RateLimited, "slow down", retried=True)),
    ("error 429 as text", chat_error({"code": "429", "type": "None", "message": "slow down"}), Bad(errors.RateLimited, "slow down", retried=True)),
    ("error 429 as a kind", chat_error({"type": "rate_limit_error", "message": "slow down"}), Bad(errors.RateLimited, "slow down", retried=True)),
    ("error 401 as a number", chat_error({"code": 401, "message": "no key"}), Bad(errors.AuthenticationFailed, "no key")),
    ("error 400 as a number", chat_error({"code": 400, "message": "no such field", "type": "server_error"}), Bad(errors.BadRequest, "no such field")),
    ("error 400 as a kind", chat_error({"type": "BadRequestError", "message": "no such field", "code": None}), Bad(errors.BadRequest, "no such field")),
    ("error 403", chat_error({"code": 403, "message": "not yours"}), Bad(errors.PermissionDenied)),
    ("error 503", chat_error({"code": 503, "message": "loading"}), Bad(errors.Overloaded, retried=True)),
    ("error with a strange number", chat_error({"code": 7, "message": "odd"}), Bad(errors.ServerError, "odd", retried=True)),
    ("error of Google's", chat_error({"status": "RESOURCE_EXHAUSTED", "message": "quota"}), Bad(errors.RateLimited, "quota", retried=True)),
    ("error after text", chat_error({"code": 429, "message": "slow down"}, HELLO), Bad(errors.RateLimited, partial="hello")),
    ("error as text", chat_error("the model crashed", HELLO), Bad(errors.ServerError, "the model crashed", partial="hello")),
    ("error without words", chat_error({"code": 500, "id": "x7"}), Bad(errors.ServerError, "x7", retried=True)),
    ("older vLLM's error", stream({"object": "error", "message": "bad prompt", "type": "BadRequestError", "code": 400}), Bad(errors.BadRequest, "bad prompt")),
    ("an error event", stream(HELLO, event({"message": "bad luck"}, "error")), Bad(errors.ServerError, "bad luck", partial="hello")),
    ("llama.cpp: context full in the stream", chat_error({"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}), Bad(CONTEXT, "Context size")),
    ("LiteLLM: usage beside an empty delta", stream(c({"role": "assistant"}), HELLO, STOP, {**c({}), "usage": {"completion_tokens": 3, "prompt_tokens": 22}}, DONE), Good()),
    ("null error", stream(c({"content": "hello"}, None, error=None), STOP), Good()),
    ("words that are not JSON", stream(HELLO, b"data: Internal Server Error\n\n"), Bad(errors.ProtocolError, "not valid JSON", partial="hello")),
    # Content and thinking.
    ("content as parts", stream(said([{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]), STOP), Good()),
    ("content as texts", stream(said(["hel", "lo"]), STOP), Good()),
    ("Mistral's thinking", stream(said([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]), HELLO, STOP), Good(thinking="hm")),
    ("content as a number", stream(said(7), STOP), Bad(errors.ProtocolError, code="provider/bad-event")),
    ("reasoning_content", stream(c({"reasoning_content": "hm", "content": None}), HELLO, STOP), Good(thinking="hm")),
    ("reasoning", stream(c({"reasoning": "hm", "content": ""}), HELLO, STOP), Good(thinking="hm")),
    ("message for delta", stream({"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}), Good()),
    ("the whole message again at the end", stream(HELLO, {"choices": [{"delta": {}, "message": {"content": "hello"}, "finish_reason": "stop"}]}), Good()),
    ("the whole message at the end, with more", stream(said("hel"), {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}), Good()),
    ("another message at the end", stream(said("hullo"), {"choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}), Good(warning="provider/text-differs")),
    ("the message in pieces", stream({"choices": [{"message": {"content": "hel"}}]}, {"choices": [{"message": {"content": "lo"}, "finish_reason": "stop"}]}), Good()),
    ("keys that nobody reads", plain(completion({"content": None, "speech": "aGk="}, usage={"completion_tokens": 5})), Good("", warning="provider/unread-answer")),
    ("keys that nobody reads, in a stream", stream(c({"speech": "aG"}), c({"speech": "k="}), {**STOP, "usage": {"completion_tokens": 5}}), Good("", warning="provider/unread-answer")),
    ("another answer beside", stream(HELLO, {"choices": [{"index": 1, "delta": {"content": "other"}}]}, STOP), Good()),
    ("Azure's first chunk", stream({"choices": [], "prompt_filter_results": []}, HELLO, STOP), Good()),
    ("null delta", stream(HELLO, c(None, "stop")), Good()),
    ("usage in each chunk", stream({**HELLO, "usage": {"prompt_tokens": 1}}, {**STOP, "usage": {"completion_tokens": 2.0}}), Good()),
    ("usage is nonsense", stream(HELLO, {**STOP, "usage": {"prompt_tokens": "many", "prompt_tokens_details": 3}}), Good()),
    # Tool calls.
    ("call in pieces", stream(calls(call("", 0, "x")), calls(call('{"a"', 0, name=None)), calls(call(":1}", 0, name=None)), c({}, "tool_calls")), CALLED),
    ("call that finishes with stop", stream(calls(call(JSON_1, 0, "x")), STOP), CALLED),
    ("call with an object", stream(calls(call({"a": 1}, 0, "x")), STOP), CALLED),
    ("call without arguments", stream(calls(call(None, 0, "x")), STOP), Good("", "tool_calls", (("add", {}),))),
    ("call without id", stream(calls(call(JSON_1, 0)), STOP), CALLED),
    ("name comes late", stream(calls(call(None, 0, "x", name=None)), calls(call(JSON_1, 0)), STOP), CALLED),
    ("name with each piece", stream(calls(call('{"a"', 0, "x")), calls(call(":1}", 0)), STOP), CALLED),
    ("id with each piece", stream(calls(call('{"a"', None, "x")), calls(call(":1}", None, "x")), STOP), CALLED),
    ("two calls, ids and no index", stream(calls(call(JSON_1, None, "x"), call(JSON_2, None, "y")), STOP), BOTH),
    ("two calls, no ids and no index", stream(calls(call(JSON_1), call(JSON_2)), STOP), BOTH),
    ("two calls one after the other, no ids and no index", stream(calls(call(JSON_1)), calls(call(JSON_2)), STOP), BOTH),
    ("two calls, constant index and ids", stream(calls(call(JSON_1, 0, "x")), calls(call(JSON_2, 0, "y")), STOP), BOTH),
    ("two calls, constant index and no ids", stream(calls(call(JSON_1, 0)), calls(call(JSON_2, 0)), STOP), BOTH),
    ("two calls, one id", stream(calls(call(JSON_1, 0, "x"), call(JSON_2, 1, "x")), STOP), BOTH),
    ("null calls", stream(c({"content": "hello", "tool_calls": None}), STOP), Good()),
    ("a flood of calls", stream(*(calls(call(JSON_1, n, f"c{n}")) for n in range(300)), STOP), Bad(errors.ProtocolError, "256", "provider/too-many-calls")),
    # What a body says it is, and what it is.
    ("plain JSON", plain(completion({"content": "hello"})), Good()),
    ("plain JSON, called a stream", sized(dump(completion({"content": "hello"})), "text/event-stream"), Good()),
    ("plain JSON, called text", sized(dump(completion({"content": "hello"})), "text/plain"), Good()),
    ("plain JSON, called nothing", sized(dump(completion({"content": "hello"})), None), Good()),
    ("plain JSON after blank lines", sized(b"\n\n\n" + dump(completion({"content": "hello"}))), Good()),
    ("plain JSON with a call", plain(completion({"content": None, "tool_calls": [call({"a": 1})]}, "tool_calls")), CALLED),
    ("plain JSON with an error", plain({"error": {"code": 429, "message": "slow down"}}), Bad(errors.RateLimited, "slow down", retried=True)),
    ("a stream, called JSON", chunked(events(HELLO, STOP), "application/json"), Good()),
    ("a stream, called text", chunked(events(HELLO, STOP), "text/plain; charset=utf-8"), Good()),
    ("a stream, called nothing", chunked(events(HELLO, STOP), None), Good()),
    ("a stream, called bytes", chunked(events(HELLO, STOP), "application/octet-stream"), Good()),
    ("a stream with CRLF", chunked(events(HELLO, STOP).replace(b"\n", b"\r\n")), Good()),
    ("a stream after a BOM", chunked(b"\xef\xbb\xbf" + events(HELLO, STOP)), Good()),
    ("comments first", stream(b": OPENROUTER PROCESSING\n\n", b": OPENROUTER PROCESSING\n\n", HELLO, STOP, DONE), Good()),
    ("blank lines first", stream(b"\n\n", HELLO, STOP, DONE), Good()),
    ("data without a blank", chunked(events(HELLO, STOP, DONE).replace(b"data: ", b"data:")), Good()),
    ("empty data as a ping", stream(b"data:\n\n", HELLO, b"data: \n\n", STOP), Good()),
    ("a page", sized(b"<html>Sign in</html>", "text/html"), Bad(errors.ProtocolError, "text/html", "provider/not-a-model")),
    ("a page, called a stream", sized(b"<!DOCTYPE html>", "text/event-stream"), Bad(errors.ProtocolError, code="provider/not-a-model")),
    ("words", sized(b"upstream connect error", "text/plain"), Bad(errors.ProtocolError, "text/plain", "provider/not-a-model")),
    ("MiniMax's busy", plain({"choices": None, "base_resp": {"status_code": 1002, "status_msg": "rate limit"}}), Bad(errors.RateLimited, "rate limit", retried=True)),
    ("MiniMax's wrong key", plain({"choices": None, "base_resp": {"status_code": 1004, "status_msg": "login fail"}}), Bad(errors.AuthenticationFailed, "login fail")),
    ("MiniMax's failure in a stream", stream({"base_resp": {"status_code": 1013, "status_msg": "inner trouble"}}), Bad(errors.ServerError, "inner trouble", retried=True)),
    ("Gemini's malformed call", plain(completion({"content": None}, "function_call_filter: MALFORMED_FUNCTION_CALL")), Bad(errors.ServerError, retried=True)),
    ("Gemini's safety stop", plain(completion({"content": "hello"}, "SAFETY")), Bad(errors.Refused, partial="hello")),
    ("Gemini's prohibited content", plain(completion({"content": "hello"}, "content_filter: PROHIBITED_CONTENT")), Bad(errors.Refused, partial="hello")),
    ("a JSON list", plain([1, 2]), Bad(errors.ProtocolError)),
    ("JSON null", plain(b"null"), Bad(errors.ProtocolError)),
    ("JSON without choices", plain({"id": "c", "msg": "sold out"}), Bad(errors.IncompleteStream, "sold out", retried=True)),
    ("JSON without a reason", plain(completion({"content": "hello"}, None)), Bad(errors.IncompleteStream, partial="hello", retried=True)),
    ("gzip", sized(gzip.compress(dump(completion({"content": "hello"}))), content_encoding="gzip"), Good()),
    ("gzip stream", chunked(gzip.compress(events(HELLO, STOP)), content_encoding="gzip"), Good()),
    ("gzip cut short", sized(gzip.compress(events(HELLO, STOP))[:-9], "text/event-stream", content_encoding="gzip"), Bad(errors.ProtocolError, code="provider/encoding", partial="hello")),
    ("not gzip at all", sized(events(HELLO, STOP), "text/event-stream", content_encoding="gzip"), Bad(errors.ProtocolError, code="provider/encoding")),
    ("brotli", sized(b"\x0b\x02\x80hello\x03", content_encoding="br"), Bad(errors.ProtocolError, "br", "provider/encoding")),
    # Failure statuses.
    ("400: context, llama.cpp", status(400, {"error": {"code": 400, "message": "the request exceeds the available context size, try increasing it", "type": "exceed_context_size_error", "n_ctx": 256}}), Bad(CONTEXT, "available context size")),
    ("400: context, vLLM", status(400, {"object": "error", "message": "This model's maximum context length is 2048 tokens.", "type": "BadRequestError", "code": 400}), Bad(CONTEXT, "2048")),
    ("400: context, llama-cpp-python", status(400, {"error": {"message": "Requested tokens (5000) exceed context window of 2048", "code": "context_length_exceeded"}}), Bad(CONTEXT, "5000")),
    ("400: context, Ollama", status(400, {"error": "the input length exceeds the context length"}), Bad(CONTEXT, "input length")),
    ("500: context", status(500, {"error": {"code": 500, "message": "context size exceeded", "type": "server_error"}}), Bad(CONTEXT)),
    ("503: loading", status(503, {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}), Bad(errors.Overloaded, "Loading model", retried=True)),
    ("429: a list, Google", status(429, [{"error": {"code": 429, "message": "Quota exceeded", "status": "RESOURCE_EXHAUSTED"}}]), Bad(errors.RateLimited, "Quota exceeded", retried=True)),
    ("404: detail", status(404, {"detail": "Not Found here"}), Bad(errors.BadRequest, "Not Found here")),
    ("422: FastAPI", status(422, {"detail": [{"loc": ["body", "messages"], "msg": "Field required", "type": "missing"}]}), Bad(errors.BadRequest, "body.messages: Field required")),
    ("400: detail with an object", status(400, {"detail": {"error": "no such model"}}), Bad(errors.BadRequest, "no such model")),
    ("404: Ollama", status(404, {"error": "model 'm' not found"}), Bad(errors.BadRequest, "model 'm' not found")),
    ("400: LiteLLM", status(400, {"error": {"message": "litellm.BadRequestError: no", "type": "None", "param": "None", "code": "400"}}), Bad(errors.BadRequest, "litellm.BadRequestError")),
    ("400: message only", status(400, {"message": "wrong tokens"}), Bad(errors.BadRequest, "wrong tokens")),
    ("400: nested message", status(400, {"error": {"message": {"text": "odd", "message": "within"}}}), Bad(errors.BadRequest, "within")),
    ("400: errors", status(400, {"errors": [{"message": "first"}, {"message": "second"}]}), Bad(errors.BadRequest, "first")),
    ("400: problem", status(400, {"type": "about:blank", "title": "Bad", "detail": "too warm", "status": 400}, "application/problem+json"), Bad(errors.BadRequest, "too warm")),
    ("400: no usual place", status(400, {"code": 3, "blame": "you"}), Bad(errors.BadRequest, "blame")),
    ("502: a page", status(502, "<html><h1>502 Bad Gateway</h1></html>", "text/html"), Bad(errors.ServerError, "Bad Gateway", retried=True)),
    ("500: nothing", status(500, ""), Bad(errors.ServerError, "no message", retried=True)),
    ("400: gzip", sized(gzip.compress(dump({"error": {"message": "packed"}})), status=400, content_encoding="gzip"), Bad(errors.BadRequest, "packed")),
    ("402", status(402, {"error": {"message": "no credit"}}), Bad(errors.PermissionDenied, "no credit")),
]]
CHAT_PLAIN: list[Shape] = [Shape(f"plain: {name}", "chat", answer, outcome, stream=False) for name, answer, outcome in [
    ("content as parts", plain(completion({"content": [{"type": "text", "text": "hello"}]})), Good()),
    ("thinking among the parts", plain(completion({"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "hello"}]})), Good(thinking="hm")),
    ("arguments as objects, no ids", plain(completion({"content": None, "tool_calls": [call({"a": 1}), call({"a": 2})]})), BOTH),
    ("arguments as text", plain(completion({"content": "", "tool_calls": [call(JSON_1, None, "x")]}, "tool_calls")), CALLED),
    ("a flood of calls", plain(completion({"content": None, "tool_calls": [call(JSON_1)] * 300})), Bad(errors.ProtocolError, "256", "provider/too-many-calls")),
    ("reason error", plain(completion({"content": "hello"}, "error")), Bad(errors.ServerError, partial="hello", retried=True)),
    ("reason unheard_of", plain(completion({"content": "hello"}, "unheard_of")), Bad(errors.ProtocolError, code="provider/unknown-stop", partial="hello")),
    ("reason eos_token", plain(completion({"content": "hello"}, "eos_token")), Good()),
    ("error beside choices", plain(completion({"content": "hello"}, error={"code": 500, "message": "broke"})), Bad(errors.ServerError, "broke", retried=True)),
    ("a stream", stream(HELLO, STOP), Good()),
    ("closed without a length", closed(dump(completion({"content": "hello"})), "application/json"), Good()),
    ("cut without a length", closed(dump(completion({"content": "hello"}))[:-9], "application/json"), Bad(errors.ProtocolError, "not valid JSON")),
    ("empty", plain(b""), Bad(errors.ProtocolError, "not valid JSON")),
]]
# fmt: on

# --- Anthropic Messages ----------------------------------------------------------------------------------------------

BEGIN = {"type": "message_start", "message": {"id": "m", "model": "m", "usage": {"input_tokens": 1}}}
END = {"type": "message_stop"}


def block(data: dict[str, Any], *deltas: dict[str, Any], index: int | None = 0, stop: bool = True) -> bytes:
    """A content block's events; an index of None is left out."""
    place = {} if index is None else {"index": index}
    start = {"type": "content_block_start", **place, "content_block": data}
    more = [{"type": "content_block_delta", **place, "delta": delta} for delta in deltas]
    return events(start, *more, *([{"type": "content_block_stop", **place}] if stop else []))


def text(said: Any, **more: Any) -> bytes:
    """A text block."""
    return block({"type": "text", "text": ""}, {"type": "text_delta", "text": said}, **more)


def use(arguments: Any, call_id: str | None = "x", **more: Any) -> bytes:
    """A tool call block."""
    data = {"type": "tool_use", "name": "add", "input": {}, **({"id": call_id} if call_id else {})}
    return block(data, {"type": "input_json_delta", "partial_json": arguments}, **more)


def stopped(reason: Any, **usage: Any) -> dict[str, Any]:
    """The event with the stop reason."""
    return {"type": "message_delta", "delta": {"stop_reason": reason}, **({"usage": usage} if usage else {})}


def message(content: Any, reason: Any = "end_turn", **more: Any) -> dict[str, Any]:
    """A plain answer."""
    return {
        "id": "m",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": content,
        "stop_reason": reason,
        **more,
    }


def nameless(*data: Any) -> bytes:
    """Events whose type only the SSE event name tells."""
    return b"".join(event({k: v for k, v in each.items() if k != "type"}, each["type"]) for each in data)


# fmt: off
ANTHROPIC: list[Shape] = [Shape(name, "anthropic", answer, outcome) for name, answer, outcome in [
    ("whole", stream(BEGIN, text("hello"), stopped("end_turn"), END), Good()),
    ("no message_stop", stream(BEGIN, text("hello"), stopped("end_turn", output_tokens=2)), Good()),
    ("no message_stop, closed", closed(events(BEGIN, text("hello"), stopped("end_turn"))), Bad(errors.IncompleteStream, "message_stop", partial="hello")),
    ("message_stop, closed", closed(events(BEGIN, text("hello"), stopped("end_turn"), END)), Good()),
    ("no reason", stream(BEGIN, text("hello"), END), Bad(errors.IncompleteStream, "stop reason", partial="hello")),
    ("null reason", stream(BEGIN, text("hello"), stopped(None), END), Bad(errors.IncompleteStream, partial="hello")),
    ("[DONE] at the end", stream(BEGIN, text("hello"), stopped("end_turn"), DONE), Good()),
    *((f"reason {word}", stream(BEGIN, text("hello"), stopped(word), END), outcome) for word, outcome in [
        ("stop", Good()), ("eos_token", Good()), ("length", Good(stop="max_tokens")), ("stop_sequence", Good(stop="stop_sequence")), ("pause_turn", Good(stop="pause")),
        ("refusal", Good(stop="refusal")), ("model_context_window_exceeded", Good(stop="context_window")),
        ("error", Bad(errors.ProtocolError, "error", "provider/unknown-stop", "hello")), ("unheard_of", Bad(errors.ProtocolError, "unheard_of", "provider/unknown-stop", "hello")),
    ]),
    ("no message_start", stream(text("hello"), stopped("end_turn"), END), Good()),
    ("blocks without index", stream(BEGIN, text("hel", index=None), text("lo", index=None), stopped("end_turn"), END), Good()),
    ("blocks of one index", stream(BEGIN, text("hel"), text("lo"), stopped("end_turn"), END), Good()),
    ("text in the first form", stream(BEGIN, block({"type": "text", "text": "hello"}), stopped("end_turn")), Good()),
    ("text as parts", stream(BEGIN, text([{"type": "text", "text": "hello"}]), stopped("end_turn")), Good()),
    ("call without id", stream(BEGIN, use(JSON_1, None), stopped("tool_use"), END), CALLED),
    ("call with an object", stream(BEGIN, use({"a": 1}), stopped("tool_use"), END), CALLED),
    ("call that ends with end_turn", stream(BEGIN, use(JSON_1), stopped("end_turn"), END), CALLED),
    ("two calls of one index and id", stream(BEGIN, use(JSON_1), use(JSON_2), stopped("tool_use"), END), BOTH),
    ("two calls without index", stream(BEGIN, use(JSON_1, "x", index=None), use(JSON_2, "y", index=None), stopped("tool_use"), END), BOTH),
    ("a flood of calls", stream(BEGIN, *(use(JSON_1, f"c{n}", index=n) for n in range(300)), stopped("tool_use")), Bad(errors.ProtocolError, "256", "provider/too-many-calls")),
    ("delta of no block", stream(BEGIN, {"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta", "text": "x"}}), Bad(errors.ProtocolError, code="provider/bad-event")),
    ("types only as event names", chunked(nameless(BEGIN, {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "hello"}}, stopped("end_turn"), END)), Good()),
    ("ping first", stream({"type": "ping"}, BEGIN, text("hello"), stopped("end_turn"), END), Good()),
    ("usage is null", stream({**BEGIN, "message": {"id": "m", "usage": None}}, text("hello"), {**stopped("end_turn"), "usage": None}, END), Good()),
    ("error overloaded", stream(BEGIN, {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}), Bad(errors.Overloaded, "busy", retried=True)),
    ("error 429", stream(BEGIN, {"type": "error", "error": {"type": "api_error", "code": 429, "message": "slow"}}), Bad(errors.RateLimited, "slow", retried=True)),
    ("error 401", stream({"type": "error", "error": {"type": "authentication_error", "message": "no key"}}), Bad(errors.AuthenticationFailed, "no key")),
    ("error without a type", stream(BEGIN, text("hello", stop=False), {"error": {"message": "gone", "code": 500}}), Bad(errors.ServerError, "gone", partial="hello")),
    ("error that is a text", stream(BEGIN, {"type": "error", "error": "gone"}), Bad(errors.ServerError, "gone", retried=True)),
    ("plain JSON", plain(message([{"type": "text", "text": "hello"}])), Good()),
    ("content as text", plain(message("hello")), Good()),
    ("input as JSON text", plain(message([{"type": "tool_use", "id": "x", "name": "add", "input": JSON_1}], "tool_use")), CALLED),
    ("plain JSON, called a stream", sized(dump(message("hello")), "text/event-stream"), Good()),
    ("plain, unknown reason", plain(message("hello", "unheard_of")), Bad(errors.ProtocolError, code="provider/unknown-stop", partial="hello")),
    ("plain, no reason", plain(message("hello", None)), Bad(errors.IncompleteStream, partial="hello", retried=True)),
    ("plain error", plain({"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}), Bad(errors.BadRequest, "no")),
    ("400: context", status(400, {"type": "error", "error": {"type": "invalid_request_error", "message": "prompt is too long: 9 > 8"}}), Bad(CONTEXT, "9 > 8")),
    ("400: detail", status(400, {"detail": "no such thing"}), Bad(errors.BadRequest, "no such thing")),
    ("429: a list", status(429, [{"error": {"message": "Quota"}}]), Bad(errors.RateLimited, "Quota", retried=True)),
]]
# fmt: on

# --- Responses -------------------------------------------------------------------------------------------------------


def r(kind: str, **more: Any) -> dict[str, Any]:
    """An event."""
    return {"type": f"response.{kind}", **more}


def delta(said: Any, **more: Any) -> dict[str, Any]:
    """A text delta."""
    return r("output_text.delta", delta=said, **more)


def item(said: Any, **more: Any) -> dict[str, Any]:
    """A message item."""
    parts = [{"type": "output_text", "text": said}] if isinstance(said, str) else said
    return {"type": "message", "id": "i", "role": "assistant", "status": "completed", "content": parts, **more}


def fn(arguments: Any, call_id: str | None = "x", item_id: str | None = "f", **more: Any) -> dict[str, Any]:
    """A function call item."""
    return {"type": "function_call", "id": item_id, "call_id": call_id, "name": "add", "arguments": arguments, **more}


def whole(*output: Any, **more: Any) -> dict[str, Any]:
    """A response."""
    return {"id": "r", "object": "response", "model": "m", "status": "completed", "output": list(output), **more}


def done(*output: Any, **more: Any) -> dict[str, Any]:
    """The terminal event."""
    return r("completed", response=whole(*output, **more))


CUT = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}

# fmt: off
RESPONSES: list[Shape] = [Shape(name, "responses", answer, outcome) for name, answer, outcome in [
    ("whole", stream(r("created", response={}), delta("hello"), done(item("hello"))), Good()),
    ("llama.cpp: no indexes", stream(event(r("created", response={"id": "r", "object": "response", "status": "in_progress"}), "response.created"), event(r("output_item.added", item={"content": [], "id": "i", "role": "assistant", "status": "in_progress", "type": "message"}), "response.output_item.added"), event(delta("hello", item_id="i"), "response.output_text.delta"), event(r("output_text.done", item_id="i", text="hello"), "response.output_text.done"), event(r("output_item.done", item=item("hello")), "response.output_item.done"), event({**done(item("hello")), "timings": {"cache_n": 21}}, "response.completed")), Good()),
    ("LiteLLM: created before each delta", stream(r("created", response={}), delta("hel", item_id="i", model="m"), r("created", response={}), r("in_progress", response={}), delta("lo", item_id="i", model="m"), done(item("hello"), model="/models/tiny.gguf")), Good()),
    ("[DONE] after it", stream(delta("hello"), done(item("hello")), DONE), Good()),
    ("closed", closed(events(delta("hello"), done(item("hello")))), Good()),
    ("no terminal event", stream(delta("hello")), Bad(errors.IncompleteStream, partial="hello")),
    ("item incomplete", stream(delta("hello"), done(item("hello", status="incomplete"))), Bad(errors.IncompleteStream, "incomplete", partial="hello")),
    ("call incomplete", stream(done(fn('{"a"', status="incomplete"))), Bad(errors.IncompleteStream, "function_call is incomplete", retried=True)),
    ("cut for its tokens", stream(delta("hello"), r("incomplete", response=whole(item("hello", status="incomplete"), **CUT))), Good(stop="max_tokens")),
    ("filtered", stream(r("incomplete", response=whole(status="incomplete", incomplete_details={"reason": "content_filter"}))), Good("", "refusal")),
    ("incomplete for an unknown reason", stream(delta("hello"), r("incomplete", response=whole(item("hello"), status="incomplete", incomplete_details={"reason": "unheard_of"}))), Bad(errors.ProtocolError, "unheard_of", "provider/unknown-stop", "hello")),
    ("incomplete without a reason", stream(delta("hello"), r("incomplete", response=whole(item("hello"), status="incomplete", incomplete_details=None))), Bad(errors.IncompleteStream, "without a reason", partial="hello")),
    ("no status", stream(delta("hello"), r("completed", response={"output": [item("hello")]})), Bad(errors.IncompleteStream, "status", partial="hello")),
    ("status in_progress", stream(delta("hello"), done(item("hello"), status="in_progress")), Bad(errors.IncompleteStream, "in_progress", partial="hello")),
    ("output empty, text streamed", stream(delta("hel"), delta("lo"), done()), Good()),
    ("output missing", stream(delta("hello"), r("completed", response={"status": "completed"})), Good()),
    ("output null", stream(delta("hello"), done(output=None)), Good()),
    ("output empty, items done", stream(delta("hello"), r("output_item.done", item=item("hello")), done()), Good()),
    ("output empty, call streamed", stream(r("output_item.added", item=fn("")), r("function_call_arguments.delta", item_id="f", delta=JSON_1), done()), CALLED),
    ("output has the text only, call streamed", stream(delta("hello"), r("output_item.added", item=fn("")), r("function_call_arguments.delta", item_id="f", delta=JSON_1), done(item("hello"))), Good("hello", "tool_calls", (ONE,))),
    ("text of the item empty", stream(delta("hello"), done(item(""))), Good()),
    ("commentary, then the answer", stream(r("output_item.added", output_index=0, item=item("", id="a", phase="commentary")), delta("I look.", item_id="a", output_index=0), delta("hello", item_id="b", output_index=1), done(item("I look.", id="a", phase="commentary"), item("hello", id="b", phase="final_answer"))), Good(thinking="I look.")),
    ("commentary and nothing else", stream(done(item("hello", phase="commentary"))), Good()),
    ("one message twice", stream(delta("hello"), done(item("hello"), item("hello"))), Good()),
    ("final text differs", stream(delta("hullo"), done(item("hello"))), Good(warning="provider/text-differs")),
    ("final text goes on", stream(delta("hel"), done(item("hello"))), Good(warning="provider/text-differs")),
    ("nothing streamed", stream(done(item("hello"))), Good()),
    ("content as text", stream(done(item(None, content="hello"))), Good()),
    ("refusal", stream(done(item([{"type": "refusal", "refusal": "no"}]))), Good("no", "refusal")),
    ("reasoning", stream(r("reasoning_text.delta", delta="hm"), done({"type": "reasoning", "id": "q", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}, item("hello"))), Good(thinking="hm")),
    ("call with an object", stream(done(fn({"a": 1}))), CALLED),
    ("call without ids", stream(done(fn(JSON_1, None, None))), CALLED),
    ("call whose arguments come once", stream(r("output_item.added", item=fn("")), r("function_call_arguments.done", item_id="f", arguments=JSON_1), done()), CALLED),
    ("two calls with null ids", stream(r("output_item.added", item=fn("", "x", None)), r("function_call_arguments.delta", item_id=None, delta=JSON_1), r("output_item.added", item=fn("", "y", None)), r("function_call_arguments.delta", item_id=None, delta=JSON_2), done()), BOTH),
    ("a flood of calls", stream(*(r("output_item.added", item=fn(JSON_1, f"c{n}", f"f{n}")) for n in range(300))), Bad(errors.ProtocolError, "256", "provider/too-many-calls")),
    ("types only as event names", chunked(nameless(delta("hello"), done(item("hello")))), Good()),
    ("failed: rate limit", stream(r("failed", response={"status": "failed", "error": {"code": "rate_limit_exceeded", "message": "slow"}})), Bad(errors.RateLimited, "slow", retried=True)),
    ("failed: server", stream(delta("hello"), r("failed", response={"status": "failed", "error": {"code": "server_error", "message": "broke"}})), Bad(errors.ServerError, "broke", partial="hello")),
    ("error 429", stream({"type": "error", "code": 429, "message": "slow"}), Bad(errors.RateLimited, "slow", retried=True)),
    ("error 400 as text", stream({"type": "error", "code": "400", "message": "no such field"}), Bad(errors.BadRequest, "no such field")),
    ("error within", stream({"type": "error", "error": {"code": 401, "message": "no key"}}), Bad(errors.AuthenticationFailed, "no key")),
    ("error without a type", stream({"error": {"code": 500, "message": "Context size has been exceeded."}}), Bad(CONTEXT)),
    ("completed with an error", stream(delta("hello"), done(item("hello"), error={"code": 500, "message": "broke"})), Bad(errors.ServerError, "broke", partial="hello")),
    ("plain JSON", plain(whole(item("hello"))), Good()),
    ("plain, failed", plain(whole(status="failed", error={"code": "server_error", "message": "broke"})), Bad(errors.ServerError, "broke", retried=True)),
    ("plain, cancelled", plain(whole(item("hello"), status="cancelled")), Bad(errors.ServerError, retried=True)),
    ("plain JSON, called a stream", sized(dump(whole(item("hello"))), "text/event-stream"), Good()),
    ("plain, a list", plain([whole()]), Bad(errors.ProtocolError)),
    ("usage is nonsense", stream(done(item("hello"), usage={"input_tokens": None, "output_tokens": "x"})), Good()),
    ("400: llama.cpp's history", status(400, {"error": {"code": 400, "message": "'type' must be message", "type": "invalid_request_error"}}), Bad(errors.BadRequest, "must be message")),
    ("422: FastAPI", status(422, {"detail": [{"loc": ["body", 0], "msg": "odd", "type": "x"}]}), Bad(errors.BadRequest, "body.0: odd")),
]]
# fmt: on

SHAPES: dict[str, Shape] = {
    f"{shape.dialect}: {shape.name}": shape for shape in [*CHAT, *CHAT_PLAIN, *ANTHROPIC, *RESPONSES]
}
"""All shapes by dialect and name."""
