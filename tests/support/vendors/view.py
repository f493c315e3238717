"""A request as the rules see it: its steps in any dialect, and what the vendor has issued before."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from tests.support.vendors.table import Vendor


@dataclass(frozen=True)
class Step:
    """One thing that was said: ``where`` it stands in the body, in message or item ``at``.

    ``kind`` is ``text``, ``media``, ``thinking``, ``call`` or ``result``; ``data`` is the block or item itself.
    """

    kind: Literal["text", "media", "thinking", "call", "result"]
    role: str
    where: str
    at: int
    data: dict[str, Any]
    id: str = ""
    name: str = ""
    text: str = ""


@dataclass
class Issued:
    """An answer as it was given: its blocks, items or message, in their order, and the ids of its calls."""

    content: list[dict[str, Any]]
    calls: list[str]


@dataclass
class Memory:
    """What a vendor has issued so far; all of it belongs to one account."""

    number: int = 0
    answers: list[Issued] = field(default_factory=list[Issued])
    sealed: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    """Signatures and encrypted contents, with the block that each belongs to."""

    def answer_of(self, call_id: str) -> Issued | None:
        """The answer that a call was part of."""
        return next((each for each in self.answers if call_id in each.calls), None)


@dataclass
class Asked:
    """A request as it arrived; ``meant`` is the JSON that the model is about to answer with, if it is any."""

    vendor: Vendor
    path: str
    headers: dict[str, str]
    raw: bytes
    memory: Memory = field(default_factory=Memory)
    meant: Any = None

    @cached_property
    def body(self) -> dict[str, Any]:
        """Its JSON body, lone halves of characters included."""
        return json.loads(self.raw.decode("utf-8", "surrogateescape") or "{}")

    @property
    def streams(self) -> bool:
        """Whether a stream was asked for."""
        return bool(self.body.get("stream")) or self.path.endswith("-stream")

    @cached_property
    def messages(self) -> list[dict[str, Any]]:
        """The messages, or the items of a Responses request."""
        return self.body.get("input" if self.vendor.dialect == "responses" else "messages") or []

    @cached_property
    def steps(self) -> list[Step]:
        """All that was said, in order."""
        read = {"chat": _chat, "responses": _responses, "anthropic": _anthropic}[self.vendor.dialect]
        return [step for at, message in enumerate(self.messages) for step in read(at, message)]

    @cached_property
    def turn(self) -> int:
        """The message with which the latest turn begins: the last that a user wrote, results of tools aside."""
        own = [step.at for step in self.steps if step.role == "user" and step.kind in ("text", "media")]
        results = {step.at for step in self.steps if step.kind == "result"}
        return max([at for at in own if at not in results], default=0)

    @cached_property
    def tools(self) -> list[tuple[str, dict[str, Any]]]:
        """The tools for the model, each with its place; those that the vendor runs itself are left out."""
        found: list[tuple[str, dict[str, Any]]] = []
        for at, tool in enumerate(self.body.get("tools") or ()):
            if self.vendor.dialect == "chat" and tool.get("type") == "function":
                found.append((f"tools[{at}].function", tool["function"]))
            elif self.vendor.dialect == "responses" and tool.get("type") == "function":
                found.append((f"tools[{at}]", tool))
            elif self.vendor.dialect == "anthropic" and tool.get("type", "custom") == "custom":
                found.append((f"tools.{at}.custom", tool))
        return found

    def schema_of(self, tool: dict[str, Any]) -> Any:
        """The schema of a tool's arguments."""
        return tool.get("input_schema" if self.vendor.dialect == "anthropic" else "parameters")

    @cached_property
    def output(self) -> dict[str, Any] | None:
        """What is asked of the form of the answer: ``schema`` and ``strict``; None if no schema is sent."""
        if self.vendor.dialect == "anthropic":
            form = (self.body.get("output_config") or {}).get("format")
            return {"schema": form["schema"], "strict": True} if form else None
        if self.vendor.dialect == "responses":
            form = (self.body.get("text") or {}).get("format") or {}
            return form if form.get("type") == "json_schema" else None
        form = self.body.get("response_format") or {}
        return form.get("json_schema") if form.get("type") == "json_schema" else None


def _chat(at: int, message: dict[str, Any]) -> Iterator[Step]:
    where, role = f"messages[{at}]", message.get("role", "")
    for key in ("reasoning_content", "reasoning", "reasoning_details"):
        if message.get(key) is not None:
            yield Step("thinking", role, f"{where}.{key}", at, message, text=str(message[key]))
    content = message.get("content")
    if role == "tool":
        yield Step("result", role, where, at, message, id=message.get("tool_call_id", ""), text=str(content))
    elif isinstance(content, str):
        yield Step("text", role, f"{where}.content", at, message, text=content)
    elif content:
        for index, part in enumerate(content):
            kind = "text" if part.get("type") == "text" else "media"
            yield Step(kind, role, f"{where}.content[{index}]", at, part, text=part.get("text", ""))
    for index, call in enumerate(message.get("tool_calls") or ()):
        function = call.get("function") or {}
        yield Step("call", role, f"{where}.tool_calls[{index}]", at, call, call.get("id", ""), function.get("name", ""), function.get("arguments", ""))  # fmt: skip


def _responses(at: int, item: dict[str, Any]) -> Iterator[Step]:
    where, role = f"input[{at}]", item.get("role", "assistant")
    kind = item.get("type", "message")
    if kind == "function_call":
        yield Step(
            "call", role, where, at, item, item.get("call_id", ""), item.get("name", ""), item.get("arguments", "")
        )
    elif kind == "function_call_output":
        yield Step("result", "tool", where, at, item, id=item.get("call_id", ""), text=str(item.get("output")))
    elif kind == "reasoning":
        yield Step("thinking", role, where, at, item)
    elif kind == "message":
        content = item.get("content")
        parts = [{"type": "input_text", "text": content}] if isinstance(content, str) else content or []
        for index, part in enumerate(parts):
            kind = "text" if part.get("type") in ("input_text", "output_text", "refusal") else "media"
            text = part.get("text") or part.get("refusal") or ""
            yield Step(kind, role, f"{where}.content[{index}]", at, part, text=text)


def _anthropic(at: int, message: dict[str, Any]) -> Iterator[Step]:
    where, role = f"messages.{at}", message.get("role", "")
    content = message.get("content")
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    for index, block in enumerate(blocks):
        place = f"{where}.content.{index}"
        match block.get("type"):
            case "tool_use":
                text = json.dumps(block.get("input"))
                yield Step("call", role, place, at, block, block.get("id", ""), block.get("name", ""), text)
            case "tool_result":
                yield Step("result", role, place, at, block, id=block.get("tool_use_id", ""))
            case "thinking" | "redacted_thinking":
                yield Step("thinking", role, place, at, block, text=block.get("thinking", ""))
            case "text":
                yield Step("text", role, place, at, block, text=block.get("text", ""))
            case _:
                yield Step("media", role, place, at, block)
