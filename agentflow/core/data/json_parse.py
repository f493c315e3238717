"""Reads JSON of any size in parts: a parser in C cannot be interrupted, so it is given a large text piece by piece."""

from __future__ import annotations

import re
from typing import Any, cast

from agentflow.core.data.walk import PART, Work

MAX_DEPTH = 200
"""Maximum nesting, which is that of the parser for small texts."""
AT_ONCE = 64_000
"""Characters parsed in one part."""
_STRUCTURE = re.compile(r'["\[\]{},]')
_POSITION = re.compile(r" at line (\d+) column (\d+)$")
_CLOSERS = {"]": list, "}": dict}


class TooNested(ValueError):
    """The text is nested deeper than :data:`MAX_DEPTH` levels."""


def parsed(text: str) -> Work[Any]:
    """The value of a JSON text; of duplicate keys the last wins. Raises ValueError with reason and position; TooNested.

    A part costs no steps: the cost of the whole is charged before, by its commas and brackets.
    """
    if len(text) <= AT_ONCE or text.lstrip()[:1] not in ("[", "{"):
        return _at_once(text, text, 0)
    return (yield from _JsonReader(text).read())


class _Open:
    """A container read in parts: its elements so far, and the position of the next ones in the text."""

    __slots__ = ("begin", "holds_last", "key", "needs_element", "value")

    def __init__(self, value: list[Any] | dict[str, Any], begin: int, key: str | None) -> None:
        self.value = value
        self.begin = begin
        self.key = key
        self.needs_element = False
        self.holds_last = False
        """The last element was itself read in parts: a comma or the end follows."""


class _JsonReader:
    """Goes over the brackets, commas and strings of a text, and has complete elements parsed some thousand at a time.

    ``_inner`` are the containers within the current one still to be parsed with it: where each opens, and
    where the element begins that it is or belongs to. One that grows too large becomes the current one. ``_elements``
    says for the current container and each within it where its present element begins.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        start = len(text) - len(text.lstrip())
        self._open = [_Open([] if text[start] == "[" else {}, start + 1, None)]
        self._inner: list[tuple[int, int]] = []
        self._elements = [start + 1]
        self._at = start + 1

    def read(self) -> Work[Any]:
        seen = 0
        text = self._text
        search = _STRUCTURE.search
        while True:
            match = search(text, self._at)
            if match is None:
                raise self._error("EOF while parsing", len(text))
            at = match.start()
            self._at = at + 1
            mark = text[at]
            if mark == '"':
                yield from self._skip_string()
            elif mark == ",":
                if self._inner:
                    self._elements[-1] = at + 1
                else:
                    self._comma(at)
            elif mark in "[{":
                self._inner.append((at, self._elements[-1]))
                self._elements.append(at + 1)
                if len(self._open) + len(self._inner) > MAX_DEPTH:
                    raise TooNested("recursion limit exceeded")
            elif self._inner:
                self._inner.pop()
                self._elements.pop()
            else:
                done = self._close(at)
                if done is not None:
                    return done.value
            while self._inner and at - self._open[-1].begin > AT_ONCE:
                self._descend()
                yield 0
            seen += 1
            if not seen % PART:
                yield 0

    def _skip_string(self) -> Work[None]:
        text, at = self._text, self._at
        seen = 0
        while True:
            end = text.find('"', at)
            if end < 0:
                raise self._error("EOF while parsing a string", len(text))
            back = end - 1
            while text[back] == "\\":
                back -= 1
            if (end - back) % 2:
                self._at = end + 1
                return
            at = end + 1
            seen += 1
            if not seen % PART:
                yield 0

    def _comma(self, at: int) -> None:
        current = self._open[-1]
        if current.holds_last:
            self._expect_blank(current.begin, at, "expected `,` or the end")
            current.holds_last = False
        elif at - current.begin < AT_ONCE:
            self._elements[-1] = at + 1
            return
        else:
            self._take(current, at)
        current.begin = self._elements[-1] = at + 1
        current.needs_element = True

    def _close(self, at: int) -> _Open | None:
        """End the current container; gives it when it was the whole text."""
        current = self._open.pop()
        if type(current.value) is not _CLOSERS[self._text[at]]:
            raise self._error("expected another bracket", at)
        if current.holds_last or (not current.needs_element and not self._text[current.begin : at].strip()):
            self._expect_blank(current.begin, at, "expected `,` or the end")
        else:
            self._take(current, at)
        self._elements = [at + 1]
        if not self._open:
            self._expect_blank(at + 1, len(self._text), "trailing characters")
            return current
        outer = self._open[-1]
        if current.key is not None:
            cast(dict[str, Any], outer.value)[current.key] = current.value
        else:
            cast(list[Any], outer.value).append(current.value)
        outer.begin = at + 1
        outer.holds_last = True
        outer.needs_element = False
        return None

    def _descend(self) -> None:
        """Let the outermost inner container be the current one, after the elements before it."""
        current = self._open[-1]
        at, element = self._inner.pop(0)
        if current.holds_last:
            raise self._error("expected `,` or the end", current.begin)
        if element > current.begin:
            self._take(current, element - 1)
        key: str | None = None
        if isinstance(current.value, dict):
            keyed = _at_once("{" + self._text[element:at] + "null}", self._text, element - 1)
            if len(keyed) != 1:
                raise self._error("key must be a string", element)
            key = next(iter(keyed))
        else:
            self._expect_blank(element, at, "expected value")
        self._elements.pop(0)
        self._open.append(_Open([] if self._text[at] == "[" else {}, at + 1, key))

    def _take(self, current: _Open, end: int) -> None:
        """Parse the elements up to ``end``, at least one."""
        piece = self._text[current.begin : end]
        if not piece.strip():
            raise self._error("expected value", end)
        if isinstance(current.value, dict):
            current.value.update(_at_once("{" + piece + "}", self._text, current.begin - 1))
        else:
            current.value += _at_once("[" + piece + "]", self._text, current.begin - 1)
        current.needs_element = False

    def _expect_blank(self, start: int, end: int, otherwise: str) -> None:
        if self._text[start:end].strip(" \t\r\n"):
            raise self._error(otherwise, start)

    def _error(self, what: str, at: int) -> ValueError:
        return ValueError(f"{what}{_position(self._text, at)}")


def _at_once(piece: str, text: str, offset: int) -> Any:
    """The value of ``piece``, which begins at ``offset`` of ``text``. Raises ValueError with a position in ``text``."""
    import jiter

    try:
        return jiter.from_json(piece.encode(), allow_inf_nan=False, cache_mode="none")
    except UnicodeEncodeError:
        raise
    except ValueError as error:
        said = str(error)
        if "recursion limit" in said:
            raise TooNested(said) from None
        match = _POSITION.search(said)
        if match is None or piece is text:
            raise
        lines = piece.split("\n", int(match[1]))[: int(match[1])]
        at = offset + sum(len(line) + 1 for line in lines[:-1]) + int(match[2]) - 1
        raise ValueError(said[: match.start()] + _position(text, at)) from None


def _position(text: str, at: int) -> str:
    return f" at line {text.count(chr(10), 0, at) + 1} column {at - text.rfind(chr(10), 0, at)}"
