"""Reads Python text: its size, forbidden content, Python's own syntax errors, and nesting."""

from __future__ import annotations

import ast
import re
from typing import Any, cast

from agentflow.core.data.errors import LimitExceeded, SexpSyntaxError
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source, Span
from agentflow.lang.trace import Positions
from agentflow.lib.text.python_trees import holding, parsed
from agentflow.lib.text.stack import on_fresh_stack

_TOKEN = re.compile(
    r"""
    (?P<skipped> \#[^\n]* | \b(?:from|global|import|nonlocal)\b (?: [^\n\\(] | \\.? | \([^)]*+\)? )*+ )
  | (?P<text> (?:\b(?i:[bfru]{1,2}))?
        (?: \"\"\" (?: [^"\\]++ | \\. | "(?!"") )*+ \"\"\" | ''' (?: [^'\\]++ | \\. | '(?!'') )*+ '''
          | " (?: [^"\\\n]++ | \\. )*+ " | ' (?: [^'\\\n]++ | \\. )*+ ' ) )
  | (?P<silent> \b(?:and|as|async|class|def|elif|else|except|finally|for|if|in|is|not|or|try|while|with)\b )
  | (?P<node> [^\W\d]\w* | \d (?: [eE][+-] | [\w.] )*+ | [\[{] | \.\.\. | (?<=[,(\[=:]) \(\) )
    """,
    re.VERBOSE | re.DOTALL,
)
"""Token pattern: comments and the like, strings, keywords without a node, and tokens that become nodes: names, numbers, list and dict brackets."""
_SHORTEST = 2
"""The least number of characters of a node, including the separator before the next."""


def check_words(source: Source, limits: Limits) -> None:
    """Refuse a text with more nodes in its names, literals, lists and dicts alone than a program may have. Raises LimitExceeded."""
    text = source.text
    if len(text) <= _SHORTEST * limits.nodes:
        return
    count, text_ended = 0, -1
    for token in _TOKEN.finditer(text):
        start, end = token.span()
        kind = token.lastgroup
        if kind == "text" or kind == "skipped":
            # Adjacent strings are one.
            beside = text_ended >= 0 and not text[text_ended:start].strip(" \t\r\n\\")
            count += kind == "text" and not beside
            text_ended = end if kind == "text" or beside else -1
        else:
            count += kind == "node"
        if count > limits.nodes:
            raise too_many_nodes(limits, count, source.span(start, end))


def too_many_nodes(limits: Limits, count: int, span: Span | None) -> LimitExceeded:
    """The error of a text with more nodes than ``limits`` allow."""
    return LimitExceeded(
        f"the program has more than {limits.nodes:,} nodes: names, literals and operations",
        limit="nodes",
        allowed=limits.nodes,
        used=count,
        span=span,
        hint="give it data by bindings or as a string, or raise Limits(nodes=...)",
    )


LONGEST_TEXT = 200_000
"""Maximum number of bytes of a text: Python's parser works on the whole of it at once."""
_MISPLACED = re.compile(r"\x00|\x0c|\r(?!\n)")
_STRING = re.compile(
    r"""#[^\n]*|(?i:(?P<prefix>\b(?:[rbuf]|br|rb|fr|rf))?)(?P<quote>\'\'\'|\"\"\"|\'|\")(?P<text>(?:\\.|(?!(?P=quote)).)*?)(?P=quote)""",
    re.DOTALL,
)
"""A comment, or a string literal."""
_NO_ESCAPE = re.compile(r"""\\(?:[^\n\r\\'"abfnrtvxNuU0-7]|[4-7][0-7]{2})""")
_RUN_TOGETHER = re.compile(
    r"(?<![\w.])(?>0[xX][\da-fA-F_]+|0[oObB][\d_]+|\d[\d_]*\.?[\d_]*(?:[eE][+-]?\d+)?[jJ]?)(?=[^\W\d_])"
)
"""A number without a space before the word after it."""
_MARKS = (ast.expr_context, ast.operator, ast.cmpop, ast.boolop, ast.unaryop)
_NO_NODES = frozenset(
    (
        str,
        int,
        float,
        complex,
        bool,
        bytes,
        type(None),
        type(...),
        *(kind for each in _MARKS for kind in each.__subclasses__()),
    )
)
"""Types of parts of nodes that do not count as nodes: constants, and the marks of operators and of assignments."""
_PLAIN = frozenset(
    ("id", "ctx", "op", "ops", "attr", "arg", "kind", "type_comment", "conversion", "level", "module", "simple")
)
"""Fields that never hold such a node."""
_HOLDING = holding(_PLAIN, (ast.Constant,))
"""The fields of each kind of node that may hold one: most nodes are names and constants, which have none."""
_SEXP = re.compile(r"\s*(;|\((define|let|defatom|list|parallel|pmap|bind|progn|begin|lambda|if)\b)")


def read_python(source: Source, limits: Limits) -> ast.Module:
    """The syntax tree of a text. Raises SexpSyntaxError (``syntax/python``) and LimitExceeded."""
    text = source.text
    _check_text(source, limits)
    _check_literals(source)
    check_words(source, limits)
    try:
        tree = on_fresh_stack(lambda: parsed(text, "<text>"))
    except SyntaxError as error:
        raise _syntax_error(source, error) from None
    except (MemoryError, RecursionError):
        raise _too_deep(source, limits.nesting // 2, Span(source, 0, min(1, len(text)))) from None
    except ValueError as error:
        raise SexpSyntaxError(
            f"this is not valid Python: {error}", code="syntax/python", span=source.span(0, 1)
        ) from None
    tree = _as_workflow(tree)
    _check_size(source, tree, limits)
    return tree


def _as_workflow(tree: ast.Module) -> ast.Module:
    """A text without the idioms of scripts.

    ``asyncio.run(f())`` is ``f()``; and a ``main`` is called by agentflow, not by ``if __name__ == "__main__"``.
    """
    has_main = any(
        isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and each.name == "main" for each in tree.body
    )
    body = [each for each in tree.body if not (has_main and _is_script_only(each))]
    for each in body:
        if isinstance(each, ast.Expr | ast.Assign | ast.Return) and _is_asyncio_run(each.value):
            each.value = each.value.args[0]  # type: ignore[union-attr]
    tree.body = body
    return tree


def _is_asyncio_run(node: ast.expr | None) -> bool:
    function = node.func if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords else None
    base = function.value if isinstance(function, ast.Attribute) and function.attr == "run" else None
    return isinstance(base, ast.Name) and base.id == "asyncio"


def _is_script_only(node: ast.stmt) -> bool:
    """Whether a statement is ``if __name__ == "__main__":``."""
    test = node.test if isinstance(node, ast.If) and not node.orelse else None
    if not isinstance(test, ast.Compare) or len(test.comparators) > 1:
        return False
    parts = [test.left, test.comparators[0]]
    names = [each.id for each in parts if isinstance(each, ast.Name)]
    return names == ["__name__"] and any(isinstance(each, ast.Constant) and each.value == "__main__" for each in parts)


def children(node: ast.AST) -> list[Any]:
    """The nodes directly below one, in order, without the marks of operators; for a parsed tree that never changes."""
    held = vars(node)
    kept: list[Any] | None = held.get("_children")
    if kept is not None:
        return kept
    nodes: list[Any] = []
    for name in _HOLDING[type(node)]:
        part: Any = held.get(name)
        if type(part) is list:
            nodes += [each for each in cast("list[Any]", part) if type(each) not in _NO_NODES] if part else ()
        elif type(part) not in _NO_NODES:
            nodes.append(part)
    node._children = nodes  # type: ignore[attr-defined]
    return nodes


def fields_of(text: str, at: ast.AST) -> dict[str, ast.expr | None]:
    """The fields of a class that an earlier text declared, with their defaults, as if written in place of a node of this one."""
    definition = cast("ast.ClassDef", parsed(text).body[0])
    for each in ast.walk(definition):
        ast.copy_location(each, at)
    fields = [each for each in definition.body if isinstance(each, ast.AnnAssign)]
    return {cast("ast.Name", each.target).id: each.value for each in fields}


def _check_text(source: Source, limits: Limits) -> None:
    text = source.text
    allowed = min(limits.source_bytes, LONGEST_TEXT)
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > allowed:
        raise LimitExceeded(
            f"the program text has {size:,} bytes; at most {allowed:,} are allowed",
            limit="source_bytes",
            used=size,
            allowed=allowed,
            hint="give it data by bindings",
        )
    misplaced = _MISPLACED.search(text)
    if misplaced is not None:
        raise SexpSyntaxError(
            f"the character U+{ord(misplaced[0]):04X} stands in the text",
            code="syntax/character",
            span=source.span(misplaced.start(), misplaced.end()),
            hint="lines end in a line feed; other control characters are written as escapes in a string",
        )


def _check_literals(source: Source) -> None:
    """Refuse code that Python's parser warns about: warnings go to standard error, and can be silenced for whole processes only."""
    text, start = source.text, 0
    if "\\" not in text and _RUN_TOGETHER.search(text) is None:
        return
    for literal in [*_STRING.finditer(text), None]:
        end = len(text) if literal is None else literal.start()
        number = _RUN_TOGETHER.search(text, start, end)
        if number is not None:
            raise _warned(source, number, "a number and a word run together", "write a space between them")
        if literal is None:
            return
        start = literal.end()
        escape = None
        if literal["quote"] and "r" not in (literal["prefix"] or "").lower() and "\\" in literal["text"]:
            escape = _escape_that_is_none(text, literal.start("text"), literal.end("text"))
        if escape is not None:
            raise _warned(
                source, escape, f"{escape[0]!r:.20} is not an escape", "write \\\\ for a backslash, or r'...'"
            )


def _escape_that_is_none(text: str, start: int, end: int) -> re.Match[str] | None:
    at = text.find("\\", start, end)
    while at >= 0:
        wrong = _NO_ESCAPE.match(text, at, end)
        if wrong is not None:
            return wrong
        at = text.find("\\", at + 2, end)
    return None


def _warned(source: Source, match: re.Match[str], what: str, hint: str) -> SexpSyntaxError:
    return SexpSyntaxError(
        f"this is not valid Python: {what}",
        code="syntax/python",
        span=source.span(match.start(), match.end()),
        hint=hint,
    )


def _syntax_error(source: Source, error: SyntaxError) -> SexpSyntaxError:
    """Python's own words, at Python's own position."""
    line, column = error.lineno or 1, max((error.offset or 1) - 1, 0)
    starts = source.line_starts
    start = min(starts[min(line, len(starts)) - 1] + column, len(source.text))
    hint = 'this looks like an S-expression: run it without surface="python"' if _SEXP.match(source.text) else None
    return SexpSyntaxError(
        f"this is not valid Python: {error.msg}", code="syntax/python", span=source.span(start, start + 1), hint=hint
    )


def _check_size(source: Source, tree: ast.Module, limits: Limits) -> None:
    """Refuse too many nodes and too deep nesting, without recursion: level by level."""
    positions = Positions(source)
    deepest, count, depth = limits.nesting // 2, 0, 0
    level: list[ast.AST] = [tree]
    while level:
        level = [child for node in level if _HOLDING[type(node)] for child in children(node)]
        count += len(level)
        if count > limits.nodes:
            raise too_many_nodes(limits, count, span_of(positions, level[-1]))
        depth += 1
        if depth > deepest and level:
            raise _too_deep(source, deepest, span_of(positions, level[0]))


def _too_deep(source: Source, allowed: int, span: Span | None) -> LimitExceeded:
    return LimitExceeded(
        f"the text is nested deeper than {allowed} levels",
        limit="nesting",
        allowed=allowed,
        span=span or source.span(0, 1),
        hint="give parts of it names",
    )


def span_of(positions: Positions, node: ast.AST) -> Span | None:
    """The span of a node; None for one without a position."""
    line: int | None = getattr(node, "lineno", None)
    if line is None:
        return None
    located: ast.expr = node  # type: ignore[assignment]
    return positions.span((located.lineno, located.end_lineno, located.col_offset, located.end_col_offset))
