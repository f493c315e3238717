"""The forms open at the cursor, read from incomplete text: a form that is being typed seldom parses."""

from __future__ import annotations

from dataclasses import dataclass, field

from agentflow.core.data.frozen import frozen
from agentflow.lang.tokens import tokens


@dataclass(slots=True)
class OpenCall:
    """A form that is open at the cursor.

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
        """The call of which the cursor may name an argument."""
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
