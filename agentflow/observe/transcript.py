"""A run as a text to read from top to bottom: prompts and answers, calls and results, questions and their answers, with who gave them.

One fold of the events, :func:`passages`, for the terminal and for Markdown. Branches follow one another, each whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from agentflow.core.data.errors import clip
from agentflow.core.data.frozen import frozen
from agentflow.observe.run_view import message_of

MAX_TEXT = 4_000
"""Maximum characters shown of one text; the middle of a longer one is left out."""
_SILENT = frozenset({"attempt", "permit", "rate", "gate", "budget"})
"""Kinds of steps and waits of the machine alone: a reader of the conversation misses nothing."""
_SAID = frozenset({"log", "warning", "policy_denied"})


@frozen
class ReadStep:
    """A step of a run, as a reader sees it.

    ``heading`` names it, ``depth`` is its depth below the run, ``at`` its begin in seconds after that of the run; ``seconds``
    (None: it is unfinished), ``tokens`` (input, output; None: it called no model itself) and ``cost_usd`` are its own;
    ``outcome`` is ``ok``, ``failed``, ``waiting``, ``cancelled`` or ``running``; ``texts`` are the messages, each with its
    speaker or label.
    """

    kind: str
    heading: str
    depth: int
    at: float
    seconds: float | None
    outcome: str
    tokens: tuple[int, int] | None
    cost_usd: float | None
    texts: tuple[tuple[str, str], ...]


@dataclass
class _TreeStep:
    start: Mapping[str, Any]
    at: float
    end: Mapping[str, Any] | None = None
    children: list[_TreeStep | tuple[str, str, float]] = field(
        default_factory=list["_TreeStep | tuple[str, str, float]"]
    )

    @property
    def kind(self) -> str:
        return str(self.start["type"]).removesuffix("_started")


def passages(events: Iterable[Mapping[str, Any]], answers: Mapping[str, Any] | None = None) -> list[ReadStep]:
    """The steps of a run, in reading order.

    ``answers`` are those of people, by the paths of their questions: events do not have them.
    """
    writer = _StepReader(answers or {})
    for root in _tree(events):
        writer.write(root, 0)
    return writer.written


def _tree(events: Iterable[Mapping[str, Any]]) -> list[_TreeStep]:
    """The steps of a run by the step around them. A slice that resumes the run adds the new ones."""
    roots: list[_TreeStep] = []
    nodes: dict[tuple[int, int], _TreeStep] = {}
    seen: set[tuple[str, str]] = set()
    began: float | None = None
    for event in events:
        kind, part = str(event.get("type")), int(event.get("slice") or 1)
        time = float(event.get("time") or 0.0)
        began = time if began is None else began
        around = nodes.get((part, event.get("parent") or 0))
        into = roots if around is None else around.children
        if kind.endswith("_started"):
            node = nodes[part, event.get("seq", 0)] = _TreeStep(event, time - began)
            seen.add((node.kind, str(event.get("path"))))
            cast("list[Any]", into).append(node)
        elif kind.endswith("_finished"):
            ended = nodes.get((part, event.get("started", 0)))
            if ended is not None:
                ended.end = event
        elif around is not None and kind in _SAID:
            around.children.append((kind, str(event.get("message") or ""), time - began))
        elif around is not None and kind == "effect_replayed":
            name, where = str(event.get("name") or ""), str(event.get("path"))
            replayed = str(event.get("kind"))
            if (replayed, where) not in seen and replayed in ("task", "tool", "context"):
                around.children.append(("from records", f"{replayed} {name}".rstrip(), time - began))
    return roots


class _StepReader:
    """Writes passages, without repeating earlier text."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.written: list[ReadStep] = []
        self._answers = answers
        self._systems: set[str] = set()

    def write(self, node: _TreeStep, depth: int) -> None:
        kind, deeper = node.kind, depth
        if kind not in _SILENT and node.start.get("reason") not in _SILENT and not _is_empty(node):
            heading, texts = self._told(node)
            if kind != "run" or texts:
                self.written.append(_passage(node, heading, depth, texts))
                deeper = depth + 1
        said: list[Mapping[str, Any]] = []
        for child in node.children:
            if isinstance(child, tuple):
                label, text, at = child
                label = label.replace("policy_denied", "denied")
                self.written.append(ReadStep("note", label, deeper, at, 0.0, "ok", None, None, (("", text),)))
            elif child.kind == "model":
                self._model(child, deeper, said)
                request: Mapping[str, Any] = child.start.get("request") or {}
                said = list(request.get("messages") or ())
            else:
                self.write(child, deeper)

    def _told(self, node: _TreeStep) -> tuple[str, list[tuple[str, str]]]:
        """The heading and the texts of a step other than a model call."""
        start, end = node.start, node.end or {}
        failed = message_of(end)
        request: Mapping[str, Any] = start.get("request") or {}
        result: Mapping[str, Any] = end.get("result") or {}
        match node.kind:
            case "run":
                return str(start.get("name") or "run"), [("error", failed)] if failed else []
            case "branch":
                return f"{start.get('form')} [{start.get('index')}]", []
            case "task" | "subtask":
                inputs: Mapping[str, Any] = request.get("inputs") or {}
                name = start.get("name") or request.get("name") or request.get("subtype") or "subtask"
                heading = f"{node.kind} {name}({', '.join(f'{key}={_short(value)}' for key, value in inputs.items())})"
                content = str(result.get("content") or "")
                models = [each for each in node.children if isinstance(each, _TreeStep) and each.kind == "model"]
                answered = bool(models) and _text(_response(models[-1])) == content
                return heading, [("failed", failed)] if failed else [] if answered or not content else [
                    ("result", content)
                ]
            case "tool":
                texts = [("arguments", _data(start.get("arguments")))]
                content = result.get("content")
                return f"tool {start.get('name')}", [
                    *texts,
                    ("failed", failed) if failed else ("result", str(content or "")),
                ]
            case "context":
                asked: Mapping[str, Any] = start.get("input") or {}
                files = "\n".join(str(each) for each in end.get("paths") or ())
                return "context", [("question", str(asked.get("text") or "")), ("files", files)]
            case "wait":
                reason, path = str(start.get("reason")), str(start.get("path"))
                texts = [("question", str(start["question"]))] if start.get("question") else []
                if path in self._answers:
                    texts.append(("answer", _data(self._answers[path])))
                waits = {"timer": "for time", "approval": "for an approval", "signal": "for a signal"}
                return f"waits {waits.get(reason, 'for an answer')}", texts
            case kind:
                return f"{kind} {start.get('name') or ''}".rstrip(), [("failed", failed)] if failed else []

    def _model(self, node: _TreeStep, depth: int, said: list[Mapping[str, Any]]) -> None:
        """A model call: of its messages those that the call before it in the same task did not have."""
        start, end = node.start, node.end or {}
        request: Mapping[str, Any] = start.get("request") or {}
        messages: list[Mapping[str, Any]] = list(request.get("messages") or ())
        same = 0
        while same < min(len(said), len(messages)) and said[same] == messages[same]:
            same += 1
        texts: list[tuple[str, str]] = []
        system = str(request.get("system") or "")
        if system and not same:
            texts.append(("system", "as before" if system in self._systems else system))
            self._systems.add(system)
        texts += [
            (str(each.get("role")), _text(each.get("parts")))
            for each in messages[same:]
            if not (same and _is_known(each))
        ]
        answer, failed = _text(_response(node)), message_of(end)
        if answer:
            texts.append(("answer", answer))
        if failed:
            texts.append(("failed", failed))
        turn = int(start.get("turn") or 1)
        name = end.get("model") or start.get("model") or ""
        heading = " ".join(["model", *([str(name)] if name else []), *([f"turn {turn}"] if turn > 1 else [])])
        self.written.append(_passage(node, heading, depth, [each for each in texts if each[1]]))
        for child in node.children:
            if isinstance(child, _TreeStep):
                self.write(child, depth + 1)


def _is_empty(node: _TreeStep) -> bool:
    """Whether a branch only repeats, in a later slice, answers from records."""
    return node.kind == "branch" and not node.children and int(node.start.get("slice") or 1) > 1


def _is_known(message: Mapping[str, Any]) -> bool:
    """Whether a message of a later turn was shown by its own step: the model's answer, or results of tools."""
    parts: list[Mapping[str, Any]] = list(message.get("parts") or ())
    return message.get("role") == "assistant" or (
        bool(parts) and all(each.get("type") == "tool_result" for each in parts)
    )


def _passage(node: _TreeStep, heading: str, depth: int, texts: list[tuple[str, str]]) -> ReadStep:
    end = node.end
    usage: Mapping[str, Any] | None = None if end is None or node.kind != "model" else end.get("usage")
    return ReadStep(
        kind=node.kind,
        heading=heading,
        depth=depth,
        at=node.at,
        seconds=None if end is None else float(end.get("duration_s") or 0.0),
        outcome=_OUTCOMES.get(str((end or {}).get("outcome")), "failed") if end is not None else "running",
        tokens=None if usage is None else (usage.get("input_tokens", 0), usage.get("output_tokens", 0)),
        cost_usd=None if end is None or node.kind != "model" else end.get("cost_usd"),
        texts=tuple([(label, clip(text, MAX_TEXT)) for label, text in texts]),
    )


_OUTCOMES = {"ok": "ok", "suspended": "waiting", "cancelled": "cancelled"}


def _response(node: _TreeStep) -> Any:
    response: Mapping[str, Any] = (node.end or {}).get("response") or {}
    return response.get("parts")


def _text(parts: Any) -> str:
    """The parts of a message as text."""
    return "\n".join([each for each in _parts(parts) if each])


def _parts(parts: Any) -> Iterator[str]:
    for part in cast("list[Mapping[str, Any]]", parts or ()):
        match part.get("type"):
            case "text":
                yield str(part.get("text") or "")
            case "tool_call":
                yield f"calls {part.get('name')} {_data(part.get('arguments'))}"
            case "tool_result":
                yield f"{part.get('name')}: {part.get('text')}"
            case "thinking":
                yield f"(thinks) {part.get('text') or ''}"
            case kind:
                yield f"[{kind}]"


def _data(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _short(value: Any) -> str:
    return clip(json.dumps(value, ensure_ascii=False, default=str), 80)
