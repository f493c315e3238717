"""Reads text to syntax with one regular expression and one explicit stack, without recursion."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn, cast

from agentflow.core.data.errors import LimitExceeded, SexpSyntaxError, cut
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.lang.syntax import Atom, DictForm, Form, Name, Node, head_name
from agentflow.lib.text.late_pattern import late_pattern
from agentflow.lib.text.stack import collector_paused

DATA_PER_NODE = 5
"""Number of nodes of quoted data that count as one node of code."""


def check_nodes(source: Source, parts: Iterable[tuple[Sequence[Node], bool]], limit: int, dropped: int) -> None:
    """Refuse a text with too many nodes: forms, names and literals. ``dropped`` forms were read but discarded.

    ``parts`` are nodes in the order of the text, each with whether it is data. Raises LimitExceeded (``limits/nodes``)
    at the first node past ``limit``.
    """
    allowed = limit * DATA_PER_NODE
    total = dropped
    for nodes, data in parts:
        pending = [(iter(nodes), data)]
        while pending:
            rest, data = pending[-1]
            weight = 1 if data else DATA_PER_NODE
            for at in rest:
                total += weight
                if total > allowed:
                    raise _too_many(source, at.start, at.end, limit)
                if type(at) is not Atom and type(at) is not Name:
                    pending.append((iter(cast(Form, at).items), data or head_name(at) == "quote"))
                    break
            else:
                pending.pop()
    if total > allowed:
        raise _too_many(source, 0, 1, limit)


def _too_many(source: Source, start: int, end: int, limit: int) -> LimitExceeded:
    return LimitExceeded(
        f"the program has more than {limit:,} nodes: forms, names and literals",
        limit="nodes",
        allowed=limit,
        used=limit + 1,
        span=source.span(start, end),
        hint=f"give it data by bindings or as a string, quote it ({DATA_PER_NODE} nodes of quoted data count as one), "
        "call other programs, or raise Limits(nodes=...)",
    )


_TOKEN = late_pattern(
    r"""(?:
      [()\[\]{}]
    | [^\s()\[\]{}"'`,;\#|][^\s()\[\]{}"'`,;|]*
    | "[^"\\]*(?:\\.[^"\\]*)*+"
    | ;[^\n]*
    | ,@
    | \#(?:;|\|(?:(?:[^|\#]|\|(?!\#)|\#(?!\|))*+\|\#)?|[^\s()\[\]{}"'`,;|]*)
    | .
    )\s*""",
    re.VERBOSE | re.DOTALL,
)
_BLANK = late_pattern(r"\s*")
_OPEN, _CLOSE, _STRING, _PREFIXES, _LINE, _HASH, _ODD = range(1, 8)
_FIRST = {
    "(": _OPEN, "[": _OPEN, "{": _OPEN, ")": _CLOSE, "]": _CLOSE, "}": _CLOSE, '"': _STRING,
    "'": _PREFIXES, "`": _PREFIXES, ",": _PREFIXES, ";": _LINE, "#": _HASH, "|": _ODD,
}  # fmt: skip
_CHUNK = 1 << 16
_LEAST_CHUNK = 256
_QUIET = 20_000
_BYTE_ORDER_MARK = "\ufeff"
_UNPRINTABLE = late_pattern(r"[\x00-\x1f\ufeff]")

_FLOAT = late_pattern(r"[+-]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][+-]?[0-9]+)?\Z")
_INTEGER = late_pattern(r"[+-]?[0-9]+\Z")
_NUMBERISH = late_pattern(r"[+-]?\.?[0-9]")
_COMMENT_EDGE = late_pattern(r"\|\#|\#\|")
_ESCAPE = late_pattern(r"\\(?:u([0-9a-fA-F]{4})(?:\\u([dD][c-fC-F][0-9a-fA-F]{2}))?|(.))", re.DOTALL)
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_QUOTES = {"'": "quote", "`": "quasiquote", ",": "unquote", ",@": "unquote-splicing"}
_PAIRS = {"(": ")", "[": "]", "{": "}"}
_WORDS = {
    "true": True,
    "false": False,
    "none": None,
    "+inf.0": float("inf"),
    "-inf.0": float("-inf"),
    "+nan.0": float("nan"),
    "-nan.0": float("nan"),
}
_MAX_DIGITS = 4_300

_LIST, _DICT, _PREFIX, _DROPPED = range(4)


class OpenConstruct:
    """An open construct: a list, a dict, a quote prefix or a ``#;``."""

    __slots__ = ("items", "kind", "start", "text")

    def __init__(self, kind: int, items: list[Node], start: int, text: str) -> None:
        self.kind = kind
        self.items = items
        self.start = start
        self.text = text


class Incomplete(SexpSyntaxError):
    """The text ends inside a construct; more text could complete it, so an interactive prompt waits for it."""


def read(source: Source | str, *, limits: Limits | None = None) -> list[Node]:
    """The top-level forms of ``source``, in order.

    Raises SexpSyntaxError with line, column and the expected token (``syntax/...``), also for an empty text, and
    LimitExceeded if the text is longer than ``limits.source_bytes``, nested deeper than ``limits.nesting``, or has more
    than ``limits.nodes`` nodes.
    """
    if isinstance(source, str):
        source = Source("<string>", source)
    forms = _Reader(source, limits or Limits()).read()
    if not forms:
        raise Incomplete(
            "there is no program in this text",
            code="syntax/empty",
            span=source.span(0, 0),
            hint="a program is one or more forms, for example (+ 1 2)",
        )
    return forms


def read_datum_nodes(source: Source, *, limits: Limits | None = None) -> list[Node]:
    """Like :func:`read`, but an empty text gives an empty list."""
    return _Reader(source, limits or Limits()).read()


class _Reader:
    def __init__(self, source: Source, limits: Limits) -> None:
        self.source = source
        self.text = source.text
        self.limits = limits
        self.top: list[Node] = []
        self.stack: list[OpenConstruct] = []
        self.names: set[str] = set()
        self.numbers: dict[str, Any] = {}
        self.dropped = 0
        if len(self.text) > limits.source_bytes:
            raise LimitExceeded(
                f"the program text has {len(self.text)} characters; at most {limits.source_bytes} are read",
                limit="source_bytes",
                allowed=limits.source_bytes,
                used=len(self.text),
                span=source.span(0, 1),
            )

    def read(self) -> list[Node]:
        """All forms."""
        if len(self.text) < _QUIET:
            return self._read()
        with collector_paused():
            return self._read()

    def _read(self) -> list[Node]:
        """Scan the text chunk by chunk.

        The last token of a chunk may be cut off, so it is scanned again with the next chunk. A string longer than a
        chunk enlarges the chunks; a nested comment is skipped.
        """
        text = self.text
        size = len(text)
        count = 0
        # A token makes at most two nodes, so a text of few tokens need not be counted.
        enough = self.limits.nodes // 2
        head = 1 if text.startswith(_BYTE_ORDER_MARK) else 0
        at = size - len(text[head:].lstrip())
        chunk = _CHUNK
        while at < size:
            limit = min(size, at + chunk)
            tokens: list[str] = _TOKEN.findall(text, at, limit)
            if limit < size:
                last = tokens.pop()
                if not tokens:
                    chunk *= 2
                    continue
                del last
            count += len(tokens)
            if count > enough:
                self._check_nodes()
                enough = count * 4 // 3
            chunk = min(max(chunk * 2, _LEAST_CHUNK), max(chunk, _CHUNK))
            at, least = self._take(tokens, at, limit)
            chunk = least or chunk
        if count > self.limits.nodes // 2:
            self._check_nodes()
        if self.stack:
            self._unclosed(self.stack[-1])
        return self.top

    def _take(self, tokens: list[str], at: int, limit: int) -> tuple[int, int]:
        """Build the nodes of ``tokens``, which lie in the text from ``at`` to ``limit``.

        ``items`` are the elements of the innermost open construct. Returns the offset to continue at, and the size of the next
        chunk unless the caller may choose it.
        """
        stack, names, numbers = self.stack, self.names, self.numbers
        items = stack[-1].items if stack else self.top
        prefixed = bool(stack) and stack[-1].kind >= _PREFIX
        for token in tokens:
            start = at
            at += len(token)
            kind = _FIRST.get(token[0])
            node: Node
            if kind is None:
                word = token.rstrip()
                end = start + len(word)
                if word in names:
                    node = Name(word, start, end)
                elif word in numbers:
                    node = Atom(numbers[word], start, end)
                else:
                    node = self._new_word(word, start, end)
            elif kind == _OPEN:
                items = self._open(_DICT if token[0] == "{" else _LIST, start, token[0])
                prefixed = False
                continue
            elif kind == _CLOSE:
                node = self._close(token[0], start)
                items = stack[-1].items if stack else self.top
                prefixed = bool(stack) and stack[-1].kind >= _PREFIX
            elif kind == _STRING:
                whole = token.rstrip()
                if len(whole) == 1 and limit < len(self.text):
                    return start, (limit - start) * 4
                node = self._string(whole, start)
            elif kind == _LINE:
                continue
            else:
                word = token.rstrip()
                if kind == _PREFIXES or word == "#;":
                    items = self._open(_DROPPED if word == "#;" else _PREFIX, start, word)
                    prefixed = True
                    continue
                if word.startswith("#|"):
                    if len(word) > 2:
                        continue
                    return self._block_comment(start), _LEAST_CHUNK
                node = self._other(word, start, start + len(word))
            items.append(node)
            if prefixed:
                items = self._end_prefixes(node)
                prefixed = bool(stack) and stack[-1].kind >= _PREFIX
        return at, 0

    def _open(self, kind: int, start: int, text: str) -> list[Node]:
        """Open a construct, and return the list for its elements."""
        if len(self.stack) >= self.limits.nesting:
            self._too_deep(start)
        items: list[Node] = []
        self.stack.append(OpenConstruct(kind, items, start, text))
        return items

    def _end_prefixes(self, node: Node) -> list[Node]:
        """End the prefixes that ``node`` completes, and return the elements of the construct around them."""
        stack = self.stack
        while True:
            frame = stack.pop()
            items = stack[-1].items if stack else self.top
            if frame.kind == _DROPPED:
                self.dropped += 1
                return items
            name = Name(_QUOTES[frame.text], frame.start, frame.start + len(frame.text))
            node = Form([name, node], frame.start, node.end)
            items.append(node)
            if not stack or stack[-1].kind < _PREFIX:
                return items

    def _check_nodes(self) -> None:
        """Refuse a text beyond the size limit before the rest is read."""
        data = False
        parts: list[tuple[list[Node], bool]] = [(self.top, False)]
        for frame in self.stack:
            items = frame.items
            first = items[0] if items else None
            data = data or frame.text in ("'", "#;") or (type(first) is Name and first.name == "quote")
            parts.append((items, data))
        check_nodes(self.source, parts, self.limits.nodes, self.dropped)

    def _close(self, bracket: str, start: int) -> Node:
        """The form that ``bracket`` closes."""
        frame = self.stack[-1] if self.stack else None
        if frame is None or frame.kind >= _PREFIX or _PAIRS[frame.text] != bracket:
            self._bad_close(bracket, start)
        self.stack.pop()
        if frame.kind == _LIST:
            return Form(frame.items, frame.start, start + 1)
        return self._dict(frame, start + 1)

    def _string(self, whole: str, start: int) -> Node:
        if len(whole) == 1:
            raise Incomplete(
                "this string is not closed: expected '\"' before the end of the text",
                code="syntax/unclosed-string",
                span=self.source.span(start, start + 1),
                hint='end the string with ", and write a quote inside it as \\"',
            )
        body = whole[1:-1]
        end = start + len(whole)
        return Atom(body if "\\" not in body else self._unescape(body, start + 1), start, end)

    def _new_word(self, word: str, start: int, end: int) -> Node:
        """The node of a word that was not read before."""
        node = self._word(word, start, end)
        if type(node) is Name:
            self.names.add(word)
        elif type(node) is Atom:
            self.numbers[word] = node.value
        return node

    def _word(self, word: str, start: int, end: int) -> Node:
        first = word[0]
        if first in "0123456789+-." or word in _WORDS:
            if word in _WORDS:
                return Atom(_WORDS[word], start, end)
            if _INTEGER.match(word):
                return Atom(self._integer(word, start, end), start, end)
            if _NUMBERISH.match(word):
                if not _FLOAT.match(word):
                    raise SexpSyntaxError(
                        f"'{cut(word, 60)}' is neither a number nor a name: names do not begin with a digit",
                        code="syntax/number",
                        span=self.source.span(start, end),
                        hint="put spaces around the number, or begin the name with a letter",
                    )
                value = float(word) if len(word) <= _MAX_DIGITS else float("inf")
                if value in (float("inf"), float("-inf")):
                    raise SexpSyntaxError(
                        "this number does not fit into a float",
                        code="syntax/number",
                        span=self.source.span(start, end),
                        hint="write +inf.0 for infinity",
                    )
                return Atom(value, start, end)
        odd = _UNPRINTABLE.search(word)
        if odd is not None:
            raise SexpSyntaxError(
                f"the character U+{ord(odd[0]):04X} is in a name, where it is invisible",
                code="syntax/character",
                span=self.source.span(start + odd.start(), start + odd.end()),
                hint="remove it, or write it as an escape in a string",
            )
        return Form([], start, end) if word == "nil" else Name(word, start, end)

    def _integer(self, digits: str, start: int, end: int) -> int:
        if len(digits) > _MAX_DIGITS:
            raise SexpSyntaxError(
                f"this integer has {len(digits)} digits; at most {_MAX_DIGITS} are read",
                code="syntax/number",
                span=self.source.span(start, end),
                hint="compute large numbers instead of writing them out",
            )
        return int(digits)

    def _other(self, token: str, start: int, end: int) -> Node:
        if token == "#t" or token == "#f":
            return Atom(token == "#t", start, end)
        hints = {
            "|": "names in bars are not supported; use a name without spaces",
            "#": "'#' begins #t, #f, #; or #| ... |#",
        }
        raise SexpSyntaxError(
            f"unexpected '{cut(token, 40)}': expected a form",
            code="syntax/unexpected",
            span=self.source.span(start, end),
            hint=hints.get(token[0]),
        )

    def _unescape(self, body: str, start: int) -> str:
        def replace(match: re.Match[str]) -> str:
            unit, low, letter = match.groups()
            if unit is not None:
                if low is None:
                    return chr(int(unit, 16))
                high = int(unit, 16)
                if 0xD800 <= high < 0xDC00:
                    return chr(0x10000 + ((high - 0xD800) << 10) + (int(low, 16) - 0xDC00))
                return chr(high) + chr(int(low, 16))
            plain = _ESCAPES.get(letter)
            if plain is None:
                at = start + match.start()
                raise SexpSyntaxError(
                    "a \\u escape has four hexadecimal digits" if letter == "u" else f"unknown escape '\\{letter}'",
                    code="syntax/escape",
                    span=self.source.span(at, at + 2),
                    hint='strings have the JSON escapes \\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX',
                )
            return plain

        return _ESCAPE.sub(replace, body)

    def _block_comment(self, start: int) -> int:
        depth = 1
        for edge in _COMMENT_EDGE.finditer(self.text, start + 2):
            depth += 1 if edge[0] == "#|" else -1
            if not depth:
                blank = _BLANK.match(self.text, edge.end())
                return blank.end() if blank is not None else edge.end()
        raise Incomplete(
            "this block comment is not closed: expected '|#' before the end of the text",
            code="syntax/unclosed-comment",
            span=self.source.span(start, start + 2),
            hint="end it with |#; block comments nest, so each #| needs its own |#",
        )

    def _dict(self, frame: OpenConstruct, end: int) -> Node:
        items = frame.items
        if len(items) % 2:
            raise SexpSyntaxError(
                "a dict literal needs a value for every key",
                code="syntax/dict",
                span=self.source.span(items[-1].start, items[-1].end),
                hint='write {"key" value ...}',
            )
        for key in items[::2]:
            if type(key) is not Name and type(key) is not Atom:
                raise SexpSyntaxError(
                    "a dict literal's key is a string, number or name",
                    code="syntax/dict",
                    span=self.source.span(key.start, key.end),
                    hint="(dict key value ...) computes its keys",
                )
        keys = [key.name if type(key) is Name else cast(Atom, key).value for key in items[::2]]
        if len(set(keys)) < len(keys):
            again = next(index for index, key in enumerate(keys) if key in keys[:index])
            raise SexpSyntaxError(
                "a dict literal has this key twice",
                code="syntax/duplicate-key",
                span=self.source.span(items[2 * again].start, items[2 * again].end),
                hint="give each key once; a name and a string are the same key",
            )
        return DictForm(items, frame.start, end)

    def _bad_close(self, bracket: str, start: int) -> NoReturn:
        stack = self.stack
        span = self.source.span(start, start + 1)
        if not stack:
            raise SexpSyntaxError(
                f"unexpected '{bracket}': nothing is open here",
                code="syntax/unexpected-close",
                span=span,
                hint="remove it, or open a form before it",
            )
        frame = stack[-1]
        line, column = self.source.position(frame.start)
        if frame.kind >= _PREFIX:
            raise SexpSyntaxError(
                f"expected a form after {frame.text!r} at line {line}, column {column}, found '{bracket}'",
                code="syntax/unexpected-close",
                span=span,
                hint=f"write the form that {frame.text} applies to",
            )
        raise SexpSyntaxError(
            f"expected '{_PAIRS[frame.text]}' to close the '{frame.text}' opened at line {line}, column {column}, "
            f"found '{bracket}'",
            code="syntax/mismatched",
            span=span,
            hint="( closes with ), [ with ] and { with }",
        )

    def _unclosed(self, frame: OpenConstruct) -> NoReturn:
        line, column = self.source.position(frame.start)
        end = len(self.text)
        end_line, end_column = self.source.position(end)
        if frame.kind >= _PREFIX:
            raise Incomplete(
                f"expected a form after {frame.text!r} at line {line}, column {column}, found the end of the text",
                code="syntax/unclosed",
                span=self.source.span(frame.start, frame.start + len(frame.text)),
                hint=f"write the form that {frame.text} applies to",
            )
        raise Incomplete(
            f"expected '{_PAIRS[frame.text]}' at line {end_line}, column {end_column}, found the end of the text: "
            f"the '{frame.text}' opened at line {line}, column {column} is not closed",
            code="syntax/unclosed",
            span=self.source.span(frame.start, frame.start + 1),
            hint=f"add the missing '{_PAIRS[frame.text]}'",
            details={"opened": {"line": line, "column": column}, "end": {"line": end_line, "column": end_column}},
        )

    def _too_deep(self, start: int) -> NoReturn:
        raise LimitExceeded(
            f"the text is nested deeper than {self.limits.nesting} levels",
            limit="nesting",
            allowed=self.limits.nesting,
            used=self.limits.nesting + 1,
            span=self.source.span(start, start + 1),
            hint="define parts of it by name, or raise Limits(nesting=...)",
        )
