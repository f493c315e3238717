"""The calls around the cursor of a Python text, as far as they are written."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agentflow.lsp.calls import Cursor, OpenCall

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
"""An f-string up to an expression in it that is not closed."""
_STATEMENTS = frozenset(("def", "class"))


@dataclass(frozen=True, slots=True)
class PythonCursor(Cursor):
    """What the cursor is in. ``keyword`` is the argument whose value it is in, by the name in front of ``=``."""

    keyword: str | None = None

    @property
    def is_operator(self) -> bool:
        """Whether a word that begins a call may stand here: anywhere in Python."""
        return True

    @property
    def naming(self) -> OpenCall | None:
        """The call of which the cursor may name an argument."""
        call = self.calls[-1] if self.calls else None
        return call if call is not None and call.head is not None and self.keyword is None else None

    def operand(self, call: OpenCall) -> int:
        """The number of the argument of ``call`` that the cursor is in, from 0."""
        return call.items if call.head is not None else -1

    def within(self, index: int) -> str | None:
        """The name of the argument of a call that the cursor is in, if it is given by name."""
        if index == len(self.calls) - 1:
            return self.keyword
        named = self.calls[index].arguments
        return named[-1] if named else None


def python_cursor_at(text: str, offset: int) -> PythonCursor:
    """What the cursor before the character at ``offset`` is in."""
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
