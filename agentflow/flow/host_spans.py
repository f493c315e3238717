"""The spans, in the host's Python files, of the calls that its workflows make."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from inspect import CO_OPTIMIZED
from types import CodeType, FrameType
from typing import Any

from agentflow.core.data.source import NO_LINES, HostSource, Lines, Source, Span

_OURS = ("agentflow.", "asyncio.")
_MOST = 20_000
"""Maximum number of calls with a cached span: more than a program has, unless it keeps creating functions."""


class HostSpans:
    """The spans of calls, each looked up once, and the files they lie in."""

    def __init__(self) -> None:
        self._spans: dict[tuple[int, int], tuple[CodeType, Span]] = {}
        self._sources: dict[CodeType, HostSource] = {}
        self._files: dict[str, Source] = {}

    def here(self, above: int = 1) -> Span | None:
        """The span of the nearest call in host code up the stack; None if the event loop comes first.

        ``above`` is the number of the package's own functions between the host's call and this one.
        """
        frame: FrameType | None = sys._getframe(above + 1)  # pyright: ignore[reportPrivateUsage]
        cached = self._spans.get((id(frame.f_code), frame.f_lasti))
        if cached is not None:
            return cached[1]
        while frame is not None:
            cached = self._spans.get((id(frame.f_code), frame.f_lasti))
            if cached is not None:
                return cached[1]
            module = frame.f_globals.get("__name__", "")
            if not module.startswith(_OURS):
                return self._span(frame)
            if module.startswith("asyncio."):
                return None
            frame = frame.f_back
        return None

    def _span(self, frame: FrameType) -> Span:
        code, at = frame.f_code, frame.f_lasti
        if len(self._spans) >= _MOST:
            self._spans.clear()
        position = next((each for index, each in enumerate(code.co_positions()) if index == at // 2), (None,) * 4)
        span = self._located(self.source(code, frame.f_globals), frame.f_lineno, position)
        self._spans[id(code), at] = (code, span)  # the code is held, so that nothing else gets its id
        return span

    def source(self, code: CodeType, scope: dict[str, Any]) -> HostSource:
        """The Python file of ``code`` in its present state; with empty text for code without a file, as typed at a
        prompt.

        ``scope`` are the globals of its module.
        """
        source = self._sources.get(code)
        if source is None:
            if len(self._sources) >= _MOST:
                self._sources.clear()
            path = code.co_filename
            file = self._files.get(path)
            if file is None:
                file = self._files[path] = Source(path, "".join(linecache.getlines(path, scope)))
            name = _name(path, str(scope.get("__name__", "")))
            source = self._sources[code] = HostSource(name, file.text, file=file, lines=_lines(code))
        return source

    def _located(self, source: HostSource, line: int, position: tuple[int | None, ...]) -> Span:
        first, last, start, end = position
        starts = source.line_starts
        if first is None or last is None or start is None or end is None or last > len(starts):
            if line > len(starts):
                file = Source(source.file.name, "\n" * (line - 1))  # no text, but the line number is right
                source = HostSource(source.name, file.text, file=file, lines=NO_LINES)
            return source.span(source.line_starts[line - 1], source.line_starts[line - 1])
        return source.span(_offset(source, first, start), _offset(source, last, end))


def _name(path: str, module: str) -> str:
    """The name of a file without directories; that of its module, if that lies in a package or is one."""
    name = path.replace("\\", "/").rpartition("/")[2]
    package, _, last = module.rpartition(".")
    stem = name.removesuffix(".py")
    return module if (package and stem == last) or (module and stem == "__init__") else name


def _lines(code: CodeType) -> Lines:
    """The lines of a function; none for the code of a module or class, and for a lambda, which stands among other code."""
    if not code.co_flags & CO_OPTIMIZED or code.co_name.startswith("<"):
        return NO_LINES
    last = code.co_firstlineno
    for each in _nested(code):
        last = max([last, *[end for _, end, _, _ in each.co_positions() if end is not None]])
    return code.co_firstlineno, last


def _nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield from _nested(each)


def _offset(source: Source, line: int, column: int) -> int:
    """The character at a column, which Python counts in bytes."""
    text = source.line(line)
    return source.line_starts[line - 1] + (
        column if text.isascii() else len(text.encode("utf-8")[:column].decode("utf-8", "ignore"))
    )
