"""Reads spans and program calls from Python tracebacks: where an error happened and through which calls it passed.

Nothing is recorded while a program runs without errors. Every generated function has a :class:`CodeInfo` among its
constants; when an error passes a boundary, its traceback is read once.
"""

from __future__ import annotations

import linecache
import weakref
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from itertools import islice
from types import CodeType, FrameType, MappingProxyType, TracebackType
from typing import Any

from agentflow.core.data.errors import AgentflowError, SexpEvaluationError, UnboundSymbolError, cut
from agentflow.core.data.frozen import frozen, slotted
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Source, Span
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.closure import LambdaInfo
from agentflow.lang.environment import unbound
from agentflow.lang.reader import read_datum_nodes
from agentflow.lang.syntax import Form, Name, Node, head_name
from agentflow.lib.text.late_pattern import late_pattern

Position = tuple[int, int, int, int]
_LONG_LINE = 2_000


class Positions:
    """Converts positions of one source. Python counts columns in UTF-8 bytes, sources in characters.

    On non-ASCII lines longer than 2,000 characters, columns stay in characters, so that no text makes the conversion
    quadratic.
    """

    __slots__ = ("_ascii", "_starts", "source")

    def __init__(self, source: Source) -> None:
        self.source = source
        self._ascii = source.text.isascii()
        self._starts = source.line_starts

    def of(self, start: int, end: int) -> Position:
        """Line, column, end line and end column as in Python's ``ast``: lines from 1, columns from 0."""
        starts = self._starts
        line = bisect_right(starts, start)
        last = line if line == len(starts) or end < starts[line] else bisect_right(starts, end)
        column, last_column = start - starts[line - 1], end - starts[last - 1]
        if self._ascii:
            return line, column, last, last_column
        return line, self._bytes(line, column), last, self._bytes(last, last_column)

    def _bytes(self, line: int, column: int) -> int:
        text = self.source.line(line)
        if len(text) > _LONG_LINE:
            return column
        return len(text[:column].encode("utf-8", "surrogatepass"))

    def _offset(self, line: int, column: int) -> int:
        starts = self.source.line_starts
        if not 1 <= line <= len(starts):
            return 0
        if not self._ascii:
            text = self.source.line(line)
            if len(text) <= _LONG_LINE:
                before = text.encode("utf-8", "surrogatepass")[:column]
                column = sum([each & 0xC0 != 0x80 for each in before])  # the first byte of each character
        return min(starts[line - 1] + column, len(self.source.text))

    def span(self, position: tuple[int | None, int | None, int | None, int | None]) -> Span | None:
        """The span of a code position; None if Python was configured not to keep positions."""
        line, end_line, column, end_column = position
        if line is None:
            return None
        if column is None or end_line is None or end_column is None:
            start = self._offset(line, 0)
            return Span(self.source, start, start + len(self.source.line(line)))
        return Span(self.source, self._offset(line, column), self._offset(end_line, end_column))


SHOWS_SEXP = late_pattern(r"(?:^|[\s:'])\((?:['( ]|[\w*-]+[ )])|to-json|number->string|of a form")
"""Matches a hint written for S-expressions."""
PYTHON_HINTS: Mapping[str, str] = MappingProxyType(
    {
        "arity/closure": "give it as many arguments as it has parameters",
        "bounds/over-budget": "work on fewer elements, repeat less, or give tasks no tools: @task(tools=[])",
        "branches/cancelled": "cancel the whole run instead, or handle the error in the program: try: ... except TaskError: ...",
        "call/not-callable": "call a function, a task or a tool",
        "call/positional": "write name(parameter=value)",
        "dict/key": "keys are texts, integers of at most 60 bits, floats up to 2**53, True, False, None, and tuples of them",
        "director/decision": 'give ("continue", next) or ("stop", value)',
        "director/phase": "give a function: director=plan",
        "json/unrepresentable": "give json.dumps data, without functions, and numbers that are finite",
        "provenance/denied": 'take it from the user; or endorse(value, "reason"), if this program was granted it',
        "provenance/readers": 'leave it out; or endorse(value, "reason"), if this program was granted it',
        "provenance/write": "change it in any case: x = new if test else x",
        "name/not-value": "call it: name(parameter=value)",
        "task/invalid-output": "look at outcome(name(...)).content for the model's words, or ask for a simpler format",
        "tasks/bad-argument": 'for example name(files=["a.py", "b.py"]) or name(inputs={"name": value})',
        "tasks/missing-parameter": "pass it by name: name(parameter=value)",
    }
)
"""Hints for Python texts, by code, where the original hint shows S-expressions."""


def fit_result(result: TaskResult) -> TaskResult:
    """A FAILED result as a text in Python is given it: the hint in its notes is in Python."""
    error = result.notes.error
    hint = None if error is None else error.details.get("hint")
    if error is None or not isinstance(hint, str) or SHOWS_SEXP.search(hint) is None:
        return result
    details = {name: value for name, value in error.details.items() if name != "hint"}
    fitting = PYTHON_HINTS.get(str(details.get("code")))
    return result.with_notes(error=replace(error, details={**details, "hint": fitting} if fitting else details))


def fit_hint(error: AgentflowError) -> None:
    """Give an error in a Python text a hint in Python."""
    if error.hint is None or error.span is None or error.span.source.surface != "python":
        return
    if SHOWS_SEXP.search(error.hint) is not None:
        error.hint = PYTHON_HINTS.get(error.code)


LONGEST_CALL = 2_000
"""Maximum length of a call's text that is read again, in characters."""


def span_of_position(span: Span, procedure: str, position: int) -> Span:
    """The operand at ``position`` (from 1) of the call of a primitive at ``span``; ``span`` itself when another call is."""
    call = _call(span)
    head = head_name(call) if call is not None else None
    primitive = PRIMITIVES.get(head) if head is not None else None
    if call is None or primitive is None or procedure not in (head, primitive.canonical):
        return span
    return _within(span, call.items[position]) if 0 < position < len(call.items) else span


def span_of_name(span: Span, names: list[str]) -> Span:
    """The first argument ``(name expr)`` of the call at ``span`` that has one of the names; ``span`` itself without one."""
    call = _call(span)
    for item in call.items[1:] if call is not None else ():
        if isinstance(item, Form) and len(item.items) == 2:
            first = item.items[0]
            if (first.name if isinstance(first, Name) else getattr(first, "value", None)) in names:
                return _within(span, item)
    return span


def _call(span: Span) -> Form | None:
    if span.end - span.start > LONGEST_CALL:
        return None
    try:
        nodes = read_datum_nodes(Source(span.source.name, span.text))
    except AgentflowError:
        return None
    return nodes[0] if len(nodes) == 1 and isinstance(nodes[0], Form) else None


def _within(span: Span, node: Node) -> Span:
    return Span(span.source, span.start + node.start, span.start + node.end)


_QUOTED = late_pattern(r"'([^']+)'")
_MAX_WALK = 2_000


@frozen(eq=False)
class CodeInfo:
    """Links generated code to its program.

    ``positions`` converts positions; ``names`` maps Python names to the program's, ``cells`` those of environment
    variables; ``lambdas`` describes the functions. ``spans`` caches the spans of instructions, since finding one takes
    a walk over its whole function.
    """

    positions: Positions
    names: dict[str, str]
    cells: dict[str, str]
    lambdas: dict[str, LambdaInfo]
    spans: dict[tuple[int, int], Span | None] = field(default_factory=dict[tuple[int, int], "Span | None"])


@slotted
class _Seen:
    """The state of reading an error's traceback: the last entry read, the name of the outermost function, and spans.

    A deep recursion passes the same few instructions a million times; ``spans`` caches their spans.
    """

    upto: TracebackType | None = None
    open_name: str | None = None
    spans: dict[tuple[int, int], Span | None] = field(default_factory=dict[tuple[int, int], "Span | None"])
    codes: list[CodeType] = field(default_factory=list[CodeType])

    def span_at(self, code: CodeType, lasti: int) -> Span | None:
        """The span of an instruction."""
        key = (id(code), lasti)
        if key not in self.spans:
            self.codes.append(code)
            self.spans[key] = span_of_instruction(code, lasti)
        return self.spans[key]


def stamp(code: CodeType, info: CodeInfo, pieces: Mapping[str, CodeType]) -> CodeType:
    """A copy of ``code``, and of all functions within it, that contains ``info``.

    ``pieces`` is the code of functions that were compiled separately, by name: it replaces the stubs.
    """
    done: dict[int, CodeType] = {}
    order: list[CodeType] = []
    pending = [code]
    while pending:
        at = pending.pop()
        order.append(at)
        pending.extend(pieces.get(each.co_name, each) for each in at.co_consts if isinstance(each, CodeType))
    for at in reversed(order):
        constants = tuple(
            done[id(pieces.get(each.co_name, each))] if isinstance(each, CodeType) else each for each in at.co_consts
        )
        done[id(at)] = at.replace(co_consts=(*constants, info))
    return done[id(code)]


def info_of(code: CodeType) -> CodeInfo | None:
    """The CodeInfo of generated code; None for other code."""
    constants = code.co_consts
    last: Any = constants[-1] if constants else None
    return last if isinstance(last, CodeInfo) else None


def captured_by(code: Any) -> Iterator[tuple[CodeInfo, str, Any]]:
    """The values that the code of a procedure captured, by their Python names; those not bound yet are left out."""
    info = info_of(code.__code__)
    if info is None:
        return
    for py, cell in zip(code.__code__.co_freevars, code.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:
            continue
        yield info, py, value


def span_of_instruction(code: CodeType, lasti: int) -> Span | None:
    """The span of an instruction of generated code."""
    info = info_of(code)
    if info is None or lasti < 0:
        return None
    # All code with this info is created together and lives as long, so an id belongs to one code object only.
    key = (id(code), lasti)
    if key not in info.spans:
        positions: Iterable[Any] = code.co_positions()
        position: Any = next(islice(iter(positions), lasti // 2, None), None)
        info.spans[key] = info.positions.span(position) if position is not None else None
    return info.spans[key]


def span_of_frame(frame: FrameType) -> Span | None:
    """The span that a frame works at: that of an instruction of generated code, or the variable ``program_span`` of a function that
    carries out a node."""
    code = frame.f_code
    if "program_span" in code.co_freevars or "program_span" in code.co_varnames:
        return frame.f_locals.get("program_span")
    return span_of_instruction(code, frame.f_lasti)


def annotate(error: BaseException) -> AgentflowError:
    """``error`` with its span and the program calls it passed through, read from its traceback.

    An exception that Python raised in generated code (a variable read too early) becomes an error of the language, and
    so does any exception of a host object. A later call, after the error has propagated, adds the new calls.
    """
    result = _convert(error)
    progress = getattr(result, "_seen", None)
    if not isinstance(progress, _Seen):
        progress = _Seen()
        result._seen = progress  # type: ignore[attr-defined]
    tb = error.__traceback__
    frames: list[tuple[str, Span | None]] = []
    first = tb
    count = 0
    while tb is not None and tb is not progress.upto and count < _MAX_WALK:
        code = tb.tb_frame.f_code
        info = info_of(code)
        if info is not None:
            frames.append((info.names.get(code.co_name, ""), progress.span_at(code, tb.tb_lasti)))
        tb = tb.tb_next
        count += 1
    progress.upto = first
    before: tuple[str, Span | None] | None = None
    for name, span in reversed(frames):
        if progress.open_name is None:
            result.at(_narrowed(result, span))
        elif progress.open_name and (progress.open_name, span) != before:
            before = (progress.open_name, span)
            result.add_frame(progress.open_name, span)
        # A nested Python function without a name of its own belongs to the function around it.
        progress.open_name = name or ""
    fit_hint(result)
    return result


def _narrowed(error: AgentflowError, span: Span | None) -> Span | None:
    """The argument that an error is about, in the call at ``span``."""
    position = error.details.get("argument")
    if error.span is not None or span is None or error.code != "type/argument" or not isinstance(position, int):
        return span
    return span_of_position(span, error.details["procedure"], position)


def _convert(error: BaseException) -> AgentflowError:
    if isinstance(error, AgentflowError):
        return error
    converted: AgentflowError
    if isinstance(error, NameError):
        converted = _uninitialised(error)
    else:
        converted = SexpEvaluationError(
            cut(f"a value of the host raised {type(error).__name__}: {error}", 1_000), code="host/raised"
        )
    converted.__cause__ = error
    return converted


def _uninitialised(error: NameError) -> UnboundSymbolError:
    match = _QUOTED.search(str(error))
    py = error.name or (match[1] if match else "")
    tb = error.__traceback__
    name = py
    while tb is not None:
        info = info_of(tb.tb_frame.f_code)
        if info is not None:
            name = info.names.get(py, name)
        tb = tb.tb_next
    return too_early(name)


def too_early(name: str) -> UnboundSymbolError:
    """The error for reading a variable of a body before its definition."""
    return unbound(
        name,
        f"'{name}' is read before it has a value",
        "move its define up, or the use of it into a procedure that is called later",
        "binding/uninitialised",
    )


def show_lines(program: object, *, filename: str, text: str) -> None:
    """Let tracebacks, debuggers and profilers show the program's own lines, for as long as the program lives."""
    lines = text.splitlines(keepends=True)
    linecache.cache[filename] = (len(text), None, lines, filename)
    weakref.finalize(program, _forget_lines, filename, lines)


def _forget_lines(filename: str, lines: list[str]) -> None:
    entry = linecache.cache.get(filename)
    if entry is not None and len(entry) > 2 and entry[2] is lines:
        linecache.cache.pop(filename, None)
