"""``agentflow fmt``: formats program text in the usual Lisp style; keeps every token and comment.

The author's line breaks stay. The formatter sets indentation and spaces, gathers closing parentheses, keeps at most one
blank line, and breaks lists that exceed the width. Formatting is idempotent.

Indentation: the body of a special form by two columns; the arguments of a call under its first argument, or by two
columns if none is on the operator's line; the elements of a list of data under its first element.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agentflow.core.data.errors import LimitExceeded, SexpSyntaxError
from agentflow.core.data.source import Source
from agentflow.lang.forms import FORMS
from agentflow.lang.tokens import CLOSERS, Token, tokens

WIDTH = 100
"""Maximum width of a line in columns, where possible."""
MAX_NESTING = 200


@dataclass(slots=True)
class _Node:
    """A datum or comment, with the line breaks and prefixes before it. ``children`` is None except for lists."""

    text: str
    comment: bool = False
    trailing: bool = False
    breaks: int = 0
    prefix: str = ""
    children: list[_Node] | None = None
    closer: str = ""
    flat: int | None = field(default=None)


def format_text(text: str, *, name: str = "<string>", width: int = WIDTH) -> str:
    """Format ``text``; the result ends in one line end.

    ``name`` is the file's name in messages, ``width`` the desired maximum width. Raises SexpSyntaxError if parentheses
    or quotes do not match, LimitExceeded past 200 levels of nesting.
    """
    root = _parse(Source(name, text))
    _measure(root)
    writer = _FormWriter(width)
    assert root.children is not None
    for index, node in enumerate(root.children):
        if index:
            if node.trailing:
                writer.put("  ")
            else:
                writer.line(0, blank=node.breaks > 1)
        writer.node(node, 0)
    return writer.finish()


def _parse(source: Source) -> _Node:
    root = _Node("", children=[])
    stack: list[tuple[_Node, Token | None]] = [(root, None)]
    breaks = 0
    prefix = ""
    for token in tokens(source.text):
        if token.kind == "newline":
            breaks += 1
            continue
        if token.kind == "space":
            continue
        children = stack[-1][0].children
        assert children is not None
        if token.kind in ("prefix", "skip"):
            prefix += token.text
            if len(prefix) > 2 * MAX_NESTING:
                raise _too_deep(source, token)
            continue
        if token.kind == "close":
            _close(source, stack, token, prefix)
            breaks = 0
            continue
        if token.kind == "broken":
            raise _error(source, token, "this string or comment never ends")
        is_comment = token.kind in ("comment", "block")
        if is_comment and prefix:
            raise _error(source, token, "a comment stands between a quote and its datum", "move the comment up")
        node = _Node(token.text.rstrip() if token.kind == "comment" else token.text, comment=token.kind == "comment")
        node.trailing = node.comment and breaks == 0 and bool(children or len(stack) > 1)
        if prefix.endswith(",") and token.text.startswith("@"):
            prefix += " "  # `, @x` quotes the name @x; without the space it would splice x
        node.breaks, node.prefix = breaks, prefix
        breaks, prefix = 0, ""
        children.append(node)
        if token.kind == "open":
            if len(stack) > MAX_NESTING:
                raise _too_deep(source, token)
            node.children, node.closer = [], CLOSERS[token.text]
            stack.append((node, token))
    if len(stack) > 1:
        opener = stack[-1][1]
        assert opener is not None
        raise _error(source, opener, f"this {opener.text} is never closed")
    if prefix:
        raise _error(source, Token("prefix", prefix, len(source.text) - 1), "nothing follows the quote")
    return root


def _close(source: Source, stack: list[tuple[_Node, Token | None]], token: Token, prefix: str) -> None:
    node, opener = stack[-1]
    if opener is None:
        raise _error(source, token, f"this {token.text} closes nothing")
    if node.closer != token.text:
        line, column = source.position(opener.start)
        raise _error(
            source, token, f"expected {node.closer} to close the {opener.text} of line {line}, column {column}"
        )
    if prefix:
        raise _error(source, token, "nothing follows the quote")
    stack.pop()


def _error(source: Source, token: Token, message: str, hint: str | None = None) -> SexpSyntaxError:
    span = source.span(token.start, token.start + max(1, min(len(token.text), 40)))
    return SexpSyntaxError(message, code="syntax/format", span=span, hint=hint)


def _too_deep(source: Source, token: Token) -> LimitExceeded:
    return LimitExceeded(
        f"the text is nested deeper than {MAX_NESTING} levels",
        limit="nesting",
        allowed=MAX_NESTING,
        span=source.span(token.start, token.start + 1),
        hint="name the inner parts with define",
    )


def _measure(root: _Node) -> None:
    """Set ``flat``, the width on one line, of every node that the author wrote on one line."""
    order: list[_Node] = []
    pending = [root]
    while pending:
        node = pending.pop()
        order.append(node)
        pending.extend(node.children or ())
    for node in reversed(order):
        if node.children is None:
            fits = not node.comment and "\n" not in node.text
            node.flat = len(node.prefix) + len(node.text) if fits else None
            continue
        inner = [child.flat for child in node.children]
        if any(width is None for width in inner) or any(child.breaks for child in node.children):
            node.flat = None
        else:
            spaces = max(0, len(inner) - 1)
            node.flat = len(node.prefix) + 2 + spaces + sum(width or 0 for width in inner)


class _FormWriter:
    """Builds the text and keeps track of the column."""

    def __init__(self, width: int) -> None:
        self._width = width
        self._out: list[str] = []
        self._column = 0

    def put(self, text: str) -> None:
        """Append ``text``."""
        self._out.append(text)
        at = text.rfind("\n")
        self._column = self._column + len(text) if at < 0 else len(text) - at - 1

    def line(self, indent: int, *, blank: bool = False) -> None:
        """Start a new line at column ``indent``; with ``blank``, after an empty one."""
        self._out.append("\n\n" if blank else "\n")
        self._out.append(" " * indent)
        self._column = indent

    def finish(self) -> str:
        """The text, without trailing spaces and ending in one line end."""
        text = "".join(self._out).strip("\n")
        return text + "\n" if text else ""

    def node(self, node: _Node, closers: int) -> None:
        """Write ``node``; ``closers`` closing parentheses will follow it on its last line."""
        children = node.children
        if children is None:
            self.put(node.prefix + node.text)
            return
        self.put(node.prefix + node.text)
        broken = set[int]()
        if node.flat is not None and self._column - 1 + node.flat - len(node.prefix) + closers > self._width:
            broken = _break_points(node)
        start = self._column
        indents = self._indents(node, start, broken)
        last = len(children) - 1
        for index, child in enumerate(children):
            if child.trailing:
                self.put("  " if index else " ")
            elif (index or children[0].comment) and (child.breaks or index in broken or children[index - 1].comment):
                self.line(indents[index], blank=child.breaks > 1 and index > 0)
            elif index:
                self.put(" ")
            self.node(child, closers + 1 if index == last else 0)
        if children and children[-1].comment:
            self.line(indents[-1])
        self.put(node.closer)

    def _indents(self, node: _Node, start: int, broken: set[int]) -> list[int]:
        """The column of each child if it starts a line; ``start`` is the column after the opening parenthesis."""
        children = node.children or []
        head = _head(node)
        data = [i for i, child in enumerate(children) if not child.comment]
        if head is None:
            return [start] * len(children)
        base = start - 1
        before = _distinguished(head, node)
        beside = len(data) > 1 and data[1] == 1 and not children[1].breaks and 1 not in broken
        if before is not None:
            body_from = data[before + 1] if len(data) > before + 1 else len(children)
            return [base + (2 if i >= body_from or before == 0 else 4) for i in range(len(children))]
        column = start + len(head) + 1 if beside else base + 2
        return [column] * len(children)


def _head(node: _Node) -> str | None:
    """The operator, if the list looks like a call."""
    if node.text != "(" and node.text != "[":
        return None
    if node.prefix and node.prefix[-1] in "'`":
        return None
    first = node.children[0] if node.children else None
    if first is None or first.children is not None or first.prefix or first.comment or first.text[0] in '"#0123456789':
        return None
    return first.text


def _distinguished(head: str, node: _Node) -> int | None:
    """Number of arguments before the body of a special form; None for a call."""
    before = FORMS[head].body if head in FORMS else None
    if head == "let" and node.children is not None:
        named = [child for child in node.children if not child.comment]
        if len(named) > 1 and named[1].children is None:
            return 2
    return before


def _break_points(node: _Node) -> set[int]:
    """Indexes of the children that start a line, for a list that exceeds the width."""
    children = node.children or []
    if node.text == "{":
        return set(range(2, len(children), 2))
    head = _head(node)
    if head is None:
        return set(range(1, len(children)))
    before = _distinguished(head, node)
    if before is not None:
        return set(range(before + 1, len(children)))
    return set(range(1 if len(head) > 20 else 2, len(children)))
