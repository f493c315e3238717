"""Template texts, parsed once: ``{{x}}``, ``{{x.y}}``, ``{{f(a, b="x")}}``; ``\\{{`` is two plain braces.

Rendering is one pass over the parsed pieces: substituted text is never scanned again, so a value that contains
``{{...}}`` stays text. Field access reads dict keys, list indices and *declared* fields of models; nothing else of a
Python object can be reached.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, TypeAlias, cast

from pydantic import BaseModel

from agentflow.core.data.errors import DataError, TaskError, cut
from agentflow.core.data.models import MappingModel
from agentflow.core.data.requests import FunctionCallNode
from agentflow.core.data.results import TaskResult
from agentflow.core.data.shared_list import HELD
from agentflow.core.data.source import Source, Span
from agentflow.core.data.values import as_text, json_work
from agentflow.core.data.work import in_slices
from agentflow.lib.text.suggest import did_you_mean
from agentflow.tasks.at_once import at_once

MAX_NESTING = 16
"""Maximum nesting of function calls within one ``{{...}}``."""

FunctionCaller: TypeAlias = Callable[[FunctionCallNode], Awaitable[str]]
"""Runs a function call whose arguments are evaluated, and returns the text to insert."""


@dataclass(frozen=True, slots=True)
class Slot:
    """``{{name.field...}}``. ``literal`` is its text if there is no such variable (function arguments)."""

    name: str
    fields: tuple[str, ...]
    span: Span
    literal: str | None = None


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal argument of a function call."""

    value: Any


@dataclass(frozen=True, slots=True)
class Call:
    """``{{name(argument ...)}}``."""

    name: str
    arguments: tuple[Argument, ...]
    named: tuple[tuple[str, Argument], ...]
    span: Span


Argument: TypeAlias = "Slot | Constant | Call"


@dataclass(frozen=True, slots=True)
class CompiledText:
    """A parsed template text. ``variables`` are the names its slots need, ``functions`` those it calls, each as often as
    it does."""

    pieces: tuple[str | Slot | Call, ...]
    variables: tuple[str, ...]
    functions: tuple[str, ...]

    def render(self, values: Mapping[str, Any]) -> str:
        """Fill every slot; function calls are left out. Raises TaskError."""
        out: list[str] = []
        for piece in self.pieces:
            if isinstance(piece, str):
                out.append(piece)
                continue
            if isinstance(piece, Call):
                continue
            slot = piece
            value = values.get(slot.name) if not slot.fields else None
            out.append(value if type(value) is str else text_of(read_slot(slot, values)))
        return "".join(out)

    async def render_with(self, values: Mapping[str, Any], call: FunctionCaller | None) -> str:
        """Fill every slot, with large data in slices, and call every function, several side by side. Raises TaskError."""
        if HELD.isdisjoint(map(type, values.values())) and not self.functions:
            return self.render(values)
        calls = [piece for piece in self.pieces if isinstance(piece, Call)]
        called = iter([] if call is None else await _run_calls(calls, values, call))
        out: list[str] = []
        for piece in self.pieces:
            if isinstance(piece, str):
                out.append(piece)
            elif isinstance(piece, Slot):
                value = read_slot(piece, values)
                out.append(await _data_text(value) if type(value) in HELD else text_of(value))
            elif call is not None:
                out.append(next(called))
        return "".join(out)


async def _run_calls(pieces: Sequence[Call], values: Mapping[str, Any], call: FunctionCaller) -> list[str]:
    """What the calls give, in order. Several run side by side, each at a call of its own."""
    apart: Callable[[int], Iterator[FunctionCaller]] | None = getattr(call, "apart", None)
    callers = repeat(call) if apart is None else apart(len(pieces))
    return await at_once([_run_call(piece, values, next(callers)) for piece in pieces])


async def _run_call(piece: Call, values: Mapping[str, Any], call: FunctionCaller) -> str:
    places = [*piece.arguments, *[argument for _, argument in piece.named]]
    called = iter(await _run_calls([each for each in places if isinstance(each, Call)], values, call))
    filled = [next(called) if isinstance(each, Call) else _argument(each, values) for each in places]
    arguments, rest = filled[: len(piece.arguments)], filled[len(piece.arguments) :]
    named = {name: value for (name, _), value in zip(piece.named, rest, strict=True)}
    return await call(FunctionCallNode(template_name=piece.name, arguments=arguments, named_arguments=named))


def _argument(argument: Slot | Constant, values: Mapping[str, Any]) -> Any:
    if isinstance(argument, Constant):
        return argument.value
    if argument.literal is not None and argument.name not in values:
        return argument.literal
    return read_slot(argument, values)


def text_of(value: object) -> str:
    """``value`` as text inside a prompt: the content of a TaskResult, text unchanged, other data as JSON."""
    if isinstance(value, TaskResult):
        return value.content
    try:
        return as_text(value)
    except ValueError as error:
        raise _unprintable(error) from None


async def _data_text(value: object) -> str:
    """The same for lists and dicts, in slices."""
    try:
        return await in_slices(json_work(value))
    except ValueError as error:
        raise _unprintable(error) from None


def _unprintable(error: ValueError) -> TaskError:
    return TaskError(
        f"a value cannot be put into a prompt: {error}",
        reason="input_validation_failure",
        code="tasks/unprintable",
    )


def read_slot(slot: Slot, values: Mapping[str, Any]) -> Any:
    """The value of a slot. Raises TaskError that names the missing parameter or field."""
    if slot.name not in values:
        raise _invalid(
            f"parameter '{slot.name}' has no value", "tasks/missing-parameter", did_you_mean(slot.name, values)
        )
    value = values[slot.name]
    path = slot.name
    for field in slot.fields:
        exists, inner = _field(value, field)
        if not exists:
            fields = _fields(value)
            raise _invalid(
                f"parameter '{path}' has no field '{field}'",
                "tasks/missing-field",
                did_you_mean(field, fields) or (f"it has {', '.join(fields[:12])}" if fields else None),
            )
        value, path = inner, f"{path}.{field}"
    return value


def _invalid(message: str, code: str, hint: str | None) -> TaskError:
    return TaskError(message, reason="input_validation_failure", code=code, hint=hint)


def _field(value: object, name: str) -> tuple[bool, Any]:
    if isinstance(value, Mapping):
        mapping = cast(Mapping[object, Any], value)
        return (True, mapping[name]) if name in mapping else (False, None)
    if isinstance(value, MappingModel):
        return (True, value[name]) if name in value else (False, None)
    if name in _fields(value):
        return True, getattr(value, name)
    if name.isdecimal() and isinstance(value, list | tuple):
        items = cast(list[Any], value)
        index = int(name[:9])
        return (True, items[index]) if index < len(items) else (False, None)
    return False, None


def _fields(value: object) -> list[str]:
    if isinstance(value, Mapping):
        return [str(key) for key in cast(Mapping[object, Any], value)]
    if isinstance(value, BaseModel):
        return list(type(value).model_fields)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [field.name for field in dataclasses.fields(value) if not field.name.startswith("_")]
    if isinstance(value, tuple):
        return [name for name in getattr(type(cast(object, value)), "_fields", ()) if not name.startswith("_")]
    return []


_OPEN = re.compile(r"\\\{\{|\{\{")
_NAME = re.compile(r"[^\W\d][\w-]*(?::[\w-]+)*", re.UNICODE)
_FIELD = re.compile(r"[^\W_][\w-]*", re.UNICODE)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w.])")
_DOUBLE = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SINGLE = re.compile(r"'(?:[^'\\]|\\.)*'", re.DOTALL)
_QUOTED = re.compile(r'\\.|"', re.DOTALL)
_WORDS: Mapping[str, Any] = {"true": True, "false": False, "null": None}


def parse_text(text: str, name: str = "<template>") -> CompiledText:
    """Parse a template text. ``name`` is its name in errors.

    Raises DataError (``tasks/template-syntax``) with the position of an invalid ``{{``.
    """
    source = Source(name, text)
    pieces: list[str | Slot | Call] = []
    at = 0
    while (match := _OPEN.search(text, at)) is not None:
        if match.start() > at:
            pieces.append(text[at : match.start()])
        if match.group() != "{{":
            pieces.append("{{")
            at = match.end()
            continue
        piece, at = _Parser(source, match.end(), match.start()).slot()
        pieces.append(piece)
    if at < len(text):
        pieces.append(text[at:])
    variables: dict[str, None] = {}
    functions: list[str] = []
    for piece in pieces:
        if isinstance(piece, Slot):
            variables[piece.name] = None
        elif isinstance(piece, Call):
            _collect(piece, functions)
    return CompiledText(tuple(pieces), tuple(variables), tuple(functions))


def _collect(call: Call, functions: list[str]) -> None:
    functions.append(call.name)
    for argument in (*call.arguments, *(value for _, value in call.named)):
        if isinstance(argument, Call):
            _collect(argument, functions)


class _Parser:
    """Parses one ``{{...}}``, starting after its opening braces."""

    def __init__(self, source: Source, at: int, start: int) -> None:
        self.source = source
        self.text = source.text
        self.at = at
        self.start = start

    def fail(self, message: str) -> DataError:
        return DataError(
            f"in a template: {message}",
            code="tasks/template-syntax",
            span=self.source.span(self.start, min(len(self.text), self.at + 1)),
            hint='write {{name}}, {{name.field}} or {{function(argument, key="text")}}; \\{{ gives plain braces',
        )

    def skip(self) -> None:
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def take(self, token: str) -> bool:
        self.skip()
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def match(self, pattern: re.Pattern[str]) -> str | None:
        match = pattern.match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        return match.group()

    def slot(self) -> tuple[Slot | Call, int]:
        self.skip()
        name = self.match(_NAME)
        if name is None:
            raise self.fail("'{{' is followed by no name")
        slot = self.rest(name, 0)
        if not self.take("}}"):
            raise self.fail(f"'{{{{{name}' is not closed by '}}}}'")
        return slot, self.at

    def rest(self, name: str, depth: int, *, argument: bool = False) -> Slot | Call:
        if self.take("("):
            return self.call(name, depth)
        fields: list[str] = []
        while self.text.startswith(".", self.at):
            self.at += 1
            field = self.match(_FIELD)
            if field is None:
                raise self.fail(f"'.' after '{name}' is followed by no field name (names never begin with '_')")
            fields.append(field)
        literal = ".".join([name, *fields]) if argument else None
        return Slot(name, tuple(fields), self.source.span(self.start, self.at), literal)

    def call(self, name: str, depth: int) -> Call:
        if depth >= MAX_NESTING:
            raise self.fail(f"function calls are nested deeper than {MAX_NESTING}")
        arguments: list[Argument] = []
        named: list[tuple[str, Argument]] = []
        if not self.take(")"):
            while True:
                key, value = self.argument(depth)
                if key is None:
                    if named:
                        raise self.fail(f"in the call of '{name}', an unnamed argument follows a named one")
                    arguments.append(value)
                elif any(key == other for other, _ in named):
                    raise self.fail(f"in the call of '{name}', argument '{key}' is given twice")
                else:
                    named.append((key, value))
                if self.take(")"):
                    break
                if not self.take(","):
                    raise self.fail(f"in the call of '{name}', ',' or ')' is wanted")
        return Call(name, tuple(arguments), tuple(named), self.source.span(self.start, self.at))

    def argument(self, depth: int) -> tuple[str | None, Argument]:
        self.skip()
        name = self.match(_NAME)
        if name is None:
            return None, self.constant()
        if self.take("="):
            self.skip()
            inner = self.match(_NAME)
            return name, self.constant() if inner is None else self.word(inner, depth)
        return None, self.word(name, depth)

    def word(self, name: str, depth: int) -> Argument:
        if name in _WORDS:
            return Constant(_WORDS[name])
        return self.rest(name, depth + 1, argument=True)

    def constant(self) -> Constant:
        for pattern in (_DOUBLE, _SINGLE):
            text = self.match(pattern)
            if text is not None:
                body = text if text[0] == '"' else f'"{_QUOTED.sub(_requote, text[1:-1])}"'
                try:
                    return Constant(json.loads(body, strict=False))
                except ValueError:
                    raise self.fail(f"{cut(text, 40)} is no valid string (escapes are JSON's)") from None
        number = self.match(_NUMBER)
        if number is None:
            raise self.fail("an argument is wanted: a name, a number, true, false, null or a quoted text")
        return Constant(float(number) if set(number) & set(".eE") else int(number[:300]))


def _requote(match: re.Match[str]) -> str:
    text = match.group()
    if text == "\\'":
        return "'"
    return '\\"' if text == '"' else text
