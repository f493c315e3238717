"""Semantic tokens: the meanings of names, which a grammar cannot determine."""

from __future__ import annotations

from lsprotocol import types

from agentflow.lang.symbols import Binding, Kind, Occurrence
from agentflow.lsp.document import Document

LEGEND = types.SemanticTokensLegend(
    ["keyword", "macro", "function", "event", "method", "parameter", "variable", "property"],
    ["declaration", "defaultLibrary", "modification"],
)
_TYPES = {name: index for index, name in enumerate(LEGEND.token_types)}
_DECLARATION, _LIBRARY, _MODIFICATION = 1, 2, 4
_KINDS: dict[Kind, tuple[str, int]] = {
    "form": ("keyword", 0),
    "macro": ("macro", 0),
    "primitive": ("function", _LIBRARY),
    "context": ("function", _LIBRARY),
    "task": ("event", 0),
    "tool": ("method", 0),
    "argument": ("property", 0),
    "method": ("method", _LIBRARY),
    "host": ("variable", 0),
    "local": ("variable", 0),
    "global": ("variable", 0),
}


def tokens(document: Document, span: tuple[int, int] | None = None) -> list[int]:
    """The tokens of the text, or of the part in ``span``, in the protocol's numeric encoding."""
    procedures = {each.what.name for each in document.symbols.file_level() if each.what.kind in ("procedure", "class")}
    data: list[int] = []
    line = column = 0
    symbols, lines, current = document.symbols, document.lines, document.is_current
    occurrences = iter(symbols) if span is None or not current else symbols.within(*span)
    for located in occurrences:
        kind = _kind(located.what, procedures)
        now = (located.start, located.end) if current else document.span_now(located)
        if kind is None or now is None or (span is not None and not (span[0] <= now[0] < span[1])):
            continue
        start = lines.position(now[0])
        same = start.line == line
        data += (start.line - line, start.character - column if same else start.character, lines.width(*now), *kind)
        line, column = start.line, start.character
    return data


def _kind(occurrence: Occurrence, procedures: set[str]) -> tuple[int, int] | None:
    """Type and modifiers of an occurrence; None for data and for names with an unknown meaning."""
    kind = _KINDS.get(occurrence.kind)
    if kind is None:
        return None
    name, modifiers = kind
    binding: Binding | None = occurrence.binding
    if binding is not None:
        name = {"parameter": "parameter", "procedure": "function", "field": "property"}.get(binding.kind, name)
    elif occurrence.kind == "global" and occurrence.name in procedures:
        name = "function"
    if occurrence.role == "binding":
        modifiers |= _DECLARATION
    elif occurrence.role == "write":
        modifiers |= _MODIFICATION
    return _TYPES[name], modifiers
