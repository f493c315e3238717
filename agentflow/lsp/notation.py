"""The notation of each language of programs in editors: calls, parameters, names. One object for each language."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import NameInfo
from agentflow.core.data.source import Surface
from agentflow.lang.tokens import tokens


@dataclass(slots=True)
class OpenCall:
    """A form open at the cursor.

    ``head`` is its first word, ``start`` the offset of its bracket, ``items`` the number of items begun before the cursor,
    ``arguments`` the first words of those items that are forms.
    """

    bracket: str
    start: int
    head: str | None = None
    items: int = 0
    arguments: list[str] = field(default_factory=list[str])


@frozen
class Cursor:
    """The cursor's surroundings: the open forms, outermost first, the word before it, or a string or comment."""

    calls: list[OpenCall]
    word: str
    word_start: int
    string: int | None = None
    comment: bool = False

    @property
    def is_operator(self) -> bool:
        """Whether the word is the first of a form."""
        return bool(self.calls) and self.calls[-1].items <= (1 if self.word else 0)

    @property
    def naming(self) -> OpenCall | None:
        """The call that may take the word at the cursor as the name of an argument."""
        return self.calls[-2] if self.is_operator and len(self.calls) > 1 else None

    def within(self, index: int) -> str | None:
        """The name of the argument of a call that the cursor is in."""
        return self.calls[index + 1].head if index + 1 < len(self.calls) else None

    def operand(self, call: OpenCall) -> int:
        """The index of the operand of ``call`` at the cursor, from 0; -1 for the head."""
        begun = bool(self.word) or call is not self.calls[-1]
        return call.items - (2 if begun else 1)


def cursor_at(text: str, offset: int) -> Cursor:
    """Describe the surroundings of the character offset ``offset``, within its top-level form."""
    begin = text.rfind("\n(", 0, offset) + 1
    calls: list[OpenCall] = []
    word, word_start = "", offset
    for token in tokens(text[begin:offset]):
        start = begin + token.start
        word, word_start = "", offset
        match token.kind:
            case "space" | "newline" | "prefix" | "skip":
                continue
            case "comment":
                if start + len(token.text) == offset:
                    return Cursor(calls, "", offset, comment=True)
                continue
            case "block":
                continue
            case "broken":
                is_string = token.text.startswith('"')
                return Cursor(calls, "", offset, string=start if is_string else None, comment=not is_string)
            case "close":
                if calls:
                    calls.pop()
                continue
            case _:
                pass
        if calls:
            outer = calls[-1]
            outer.items += 1
            if outer.items == 1 and token.kind == "atom":
                outer.head = token.text
                if len(calls) > 1:
                    calls[-2].arguments.append(token.text)
        if token.kind == "open":
            calls.append(OpenCall(token.text, start))
        elif token.kind in ("atom", "number", "constant"):
            word, word_start = token.text, start
    return Cursor(calls, word, word_start)


_TOKEN = re.compile(
    r"""(?P<comment>\#[^\n]*)
    | (?P<string>(?:[rbfuRBFU]{1,2}(?=['"]))?(?:
        \"\"\"(?:\\.|(?!\"\"\").)*(?P<end1>\"\"\")? | '''(?:\\.|(?!''').)*(?P<end2>''')?
        | "(?:\\.|[^"\\\n])*(?P<end3>"|(?=\n))? | '(?:\\.|[^'\\\n])*(?P<end4>'|(?=\n))?))
    | (?P<name>[^\W\d]\w*(?:\.\w*)*)
    | (?P<number>\.?\d[\w.]*)
    | (?P<open>[(\[{]) | (?P<close>[)\]}]) | (?P<comma>,) | (?P<equals>=(?!=)) | (?P<end>\n)
    | (?P<other>\S)""",
    re.VERBOSE | re.DOTALL,
)
_OPEN_FIELD = re.compile(r"(?:[fF][rR]?|[rR][fF])['\"](?:\{\{|[^{]|\{[^{}]*\})*\{([^{}]*)\Z", re.DOTALL)
"""An f-string up to an unclosed expression in it."""
_STATEMENTS = frozenset(("def", "class"))


@frozen
class PythonCursor(Cursor):
    """The context of the cursor. ``keyword`` is the argument with the value that it is in, by the name in front of ``=``."""

    keyword: str | None = None

    @property
    def is_operator(self) -> bool:
        """Whether a word that begins a call is valid here: anywhere in Python."""
        return True

    @property
    def naming(self) -> OpenCall | None:
        call = self.calls[-1] if self.calls else None
        return call if call is not None and call.head is not None and self.keyword is None else None

    def operand(self, call: OpenCall) -> int:
        """The number of the argument of ``call`` that the cursor is in, from 0."""
        return call.items if call.head is not None else -1

    def within(self, index: int) -> str | None:
        if index == len(self.calls) - 1:
            return self.keyword
        named = self.calls[index].arguments
        return named[-1] if named else None


def python_cursor_at(text: str, offset: int) -> PythonCursor:
    """The context of the cursor before the character at ``offset``."""
    calls: list[OpenCall] = []
    keywords: list[str | None] = [None]
    last: tuple[str, int] | None = None
    before = ""
    for token in _TOKEN.finditer(text, 0, offset):
        kind = token.lastgroup or ""
        previous, last = last, None
        if kind == "comment":
            if token.end() == offset:
                return PythonCursor(calls, "", offset, comment=True)
        elif kind == "string" or (kind.startswith("end") and kind != "end"):
            if token.end() == offset and not any(token[f"end{at}"] for at in range(1, 5)):
                inside = _OPEN_FIELD.match(token[0])
                if inside is not None:
                    begins = token.start() + inside.start(1)
                    inner = python_cursor_at(text[begins:offset], offset - begins)
                    if not inner.comment and inner.string is None:
                        return PythonCursor(inner.calls, inner.word, begins + inner.word_start, keyword=inner.keyword)
                return PythonCursor(calls, "", offset, string=token.start(), keyword=keywords[-1])
        elif kind == "name":
            last = (token[0], token.start())
            if previous is not None:
                before = previous[0]
        elif kind == "open":
            head = previous[0] if previous is not None and token[0] == "(" and before not in _STATEMENTS else None
            calls.append(OpenCall(token[0], token.start(), head))
            keywords.append(None)
        elif kind == "close":
            if calls:
                calls.pop()
                keywords.pop()
        elif kind == "comma" and calls:
            calls[-1].items += 1
            keywords[-1] = None
        elif kind == "equals" and calls and previous is not None:
            calls[-1].arguments.append(previous[0])
            keywords[-1] = previous[0]
        if kind not in ("name",):
            before = ""
    word, start = last if last is not None and last[1] + len(last[0]) == offset else ("", offset)
    return PythonCursor(calls, word, start, keyword=keywords[-1])


@frozen
class Notation:
    """The notation of a language.

    ``fence`` names it in Markdown. ``usage`` shows a call of a task or tool, ``labels`` its parameters one by one, ``argument`` one of
    them; ``shape`` a procedure with parameters and the name of the rest. ``cursor`` returns the context of an offset. ``word`` matches a
    character of a name, ``comments`` the comment lines at the end of a text, which begin with ``comment``. ``constants`` are its named
    literals, ``hidden`` is the reason why a name cannot be renamed if it is used where its meaning is unknown.
    """

    fence: str
    usage: Callable[[str, NameInfo], str]
    labels: Callable[[NameInfo], list[str]]
    argument: Callable[[str, Mapping[str, Any]], str]
    shape: Callable[[str, Sequence[str], str | None], str]
    cursor: Callable[[str, int], Cursor]
    is_name: Callable[[str], bool]
    word: re.Pattern[str]
    comments: re.Pattern[str]
    comment: str
    constants: tuple[str, ...]
    hidden: str


def type_of(schema: Mapping[str, Any]) -> str:
    """The type that a JSON Schema asks for, in one or a few words."""
    if "enum" in schema:
        return "|".join(str(each) for each in schema["enum"])
    kind = schema.get("type")
    if isinstance(kind, str):
        items = schema.get("items")
        if kind == "array" and isinstance(items, Mapping):
            return f"list of {type_of(items)}"  # pyright: ignore[reportUnknownArgumentType]
        return {"array": "list", "object": "dict"}.get(kind, kind)
    return "value"


# -- S-expressions --------------------------------------------------------------------------------------------------

_NAME = re.compile(r"[^\s()\[\]{}\"'`,;|#][^\s()\[\]{}\"'`,;|]*")
_NUMBER = re.compile(r"[+-]?\.?\d")
_CONSTANTS = frozenset({"true", "false", "nil", "none", "."})


def _usage(name: str, info: NameInfo) -> str:
    return " ".join([f"({name}", *_labels(info)]) + ")"


def _labels(info: NameInfo) -> list[str]:
    labels: list[str] = []
    for name, parameter in (info.parameters or {}).items():
        label = _argument(name, parameter.schema)
        labels.append(label if parameter.required else f"[{label}]")
    return labels


def _argument(name: str, schema: Mapping[str, Any]) -> str:
    return f"({name} {type_of(schema)})"


def _shape(name: str, parameters: Sequence[str], rest: str | None) -> str:
    return f"({' '.join([name, *parameters, *(['.', rest] if rest is not None else [])])})"


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and not _NUMBER.match(text) and text not in _CONSTANTS


# -- Python ---------------------------------------------------------------------------------------------------------

_TYPES = MappingProxyType({"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"})


def _python_type(schema: Mapping[str, Any]) -> str:
    """The annotation of a JSON Schema, to the nearest one word; empty if no word fits."""
    if "enum" in schema:
        return f"Literal[{', '.join(map(repr, schema['enum']))}]"
    kind, items = schema.get("type"), schema.get("items")
    if kind == "array":
        inside = _python_type(items) if isinstance(items, Mapping) else ""  # pyright: ignore[reportUnknownArgumentType]
        return f"list[{inside}]" if inside else "list"
    return _TYPES.get(kind, "dict" if kind == "object" else "") if isinstance(kind, str) else ""


def _python_usage(name: str, info: NameInfo) -> str:
    return f"{name}({', '.join(_python_labels(info))})"


def _python_labels(info: NameInfo) -> list[str]:
    return [
        _python_argument(name, each.schema) + ("" if each.required else "=...")
        for name, each in (info.parameters or {}).items()
    ]


def _python_argument(name: str, schema: Mapping[str, Any]) -> str:
    kind = _python_type(schema)
    return f"{name}: {kind}" if kind else name


def _python_shape(name: str, parameters: Sequence[str], rest: str | None) -> str:
    return f"{name}({', '.join(parameters)})"


def _is_python_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text) and not text.startswith("_")


NOTATIONS: Mapping[Surface, Notation] = MappingProxyType(
    {
        "sexp": Notation(
            "lisp",
            _usage,
            _labels,
            _argument,
            _shape,
            cursor_at,
            _is_name,
            re.compile(r"[^\s()\[\]{}\"'`,;]"),
            re.compile(r"(?:^[ \t]*;[^\n]*\n)+\Z", re.MULTILINE),
            ";",
            ("true", "false", "nil", "none"),
            "the expansion of a macro uses '{}'",
        ),
        "python": Notation(
            "python",
            _python_usage,
            _python_labels,
            _python_argument,
            _python_shape,
            python_cursor_at,
            _is_python_name,
            re.compile(r"\w"),
            re.compile(r"(?:^#[^\n]*\n)+\Z", re.MULTILINE),
            "#",
            ("True", "False", "None"),
            "the callee or the position of '{}' cannot be determined",
        ),
    }
)
"""The notation of each language."""
