"""Definitions and uses of names, the outline of a text, and renaming."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lsprotocol import types

from agentflow.lang.symbols import Binding, Located, Occurrence
from agentflow.lsp.document import Document

_SYMBOLS = {
    "variable": types.SymbolKind.Variable,
    "parameter": types.SymbolKind.Variable,
    "procedure": types.SymbolKind.Function,
    "class": types.SymbolKind.Class,
    "field": types.SymbolKind.Field,
    "task": types.SymbolKind.Event,
    "macro": types.SymbolKind.Operator,
}
_NAME = re.compile(r"[^\s()\[\]{}\"'`,;|#][^\s()\[\]{}\"'`,;|]*")


class CannotRename(ValueError):
    """A name cannot be renamed; the message gives the reason."""


def definitions(document: Document, offset: int) -> list[types.Range]:
    """The ranges where the name at ``offset`` is bound."""
    name = document.name_at(offset)
    if name is None:
        return []
    spans = [document.span_now(each) for each in document.symbols.bindings_of(name)]
    return [document.lines.range(*span) for span in spans if span is not None]


def references(document: Document, offset: int, *, declaration: bool = True) -> list[types.Range]:
    """The uses of the binding named at ``offset``, with its definition unless ``declaration`` is false."""
    return [
        document.lines.range(*span)
        for each, span in _uses(document, offset)
        if declaration or each.what.role != "binding"
    ]


def highlights(document: Document, offset: int) -> list[types.DocumentHighlight]:
    """The uses of the binding named at ``offset``, each marked as a read or a write."""
    kinds = {"binding": types.DocumentHighlightKind.Write, "write": types.DocumentHighlightKind.Write}
    return [
        types.DocumentHighlight(
            document.lines.range(*span), kinds.get(each.what.role, types.DocumentHighlightKind.Read)
        )
        for each, span in _uses(document, offset)
    ]


def _uses(document: Document, offset: int) -> Iterator[tuple[Located[Occurrence], tuple[int, int]]]:
    name = document.name_at(offset)
    for each in document.symbols.occurrences_of(name) if name is not None else ():
        span = document.span_now(each)
        if span is not None:
            yield each, span


# -- renaming -------------------------------------------------------------------------------------------------------


def renamable(document: Document, offset: int) -> types.Range:
    """The range of the name at ``offset``. Raises CannotRename."""
    return document.lines.range(*_renamable(document, offset)[1])


def rename(document: Document, offset: int, new: str) -> list[types.TextEdit]:
    """The edits that rename the binding at ``offset`` to ``new``. Raises CannotRename."""
    name, _ = _renamable(document, offset)
    if not document.notation.is_name(new):
        raise CannotRename(f"'{new}' is not a name")
    uses = list(_uses(document, offset))
    old = name.what.name
    _check_clash(document, name, [each for each, _ in uses], new)
    quoted = [each for each in document.symbols if each.what.role == "data" and each.what.name == old]
    if quoted and any(each.what.kind in ("task", "macro") for each in document.symbols.bindings_of(name)):
        line = document.lines.position(quoted[0].start).line + 1
        raise CannotRename(f"'{old}' is a name in quoted data on line {line}, which may be called at run time")
    return [types.TextEdit(document.lines.range(*span), new) for _, span in uses]


def _renamable(document: Document, offset: int) -> tuple[Located[Occurrence], tuple[int, int]]:
    if not document.is_current:
        raise CannotRename("the text cannot be read: fix its syntax error first")
    name = document.symbols.at(offset)
    if name is None:
        raise CannotRename("there is no name here")
    bindings = document.symbols.bindings_of(name)
    if not bindings:
        raise CannotRename(f"this text does not define '{name.what.name}'")
    extent = bindings[0].what.extent
    for base, part in document.symbols.parts:
        if extent is not None and part is not bindings[0].part:
            continue
        for start, end in part.opaque:
            if _contains(document.text[base + start : base + end], name.what.name):
                line = document.lines.position(base + start).line + 1
                raise CannotRename(
                    f"the macro on line {line} uses '{name.what.name}', and its expansion may use it in any way"
                )
        if name.what.name in part.hidden:
            raise CannotRename(document.notation.hidden.format(name.what.name))
    return name, (name.start, name.end)


def _check_clash(document: Document, name: Located[Occurrence], uses: list[Located[Occurrence]], new: str) -> None:
    """Raise CannotRename if ``new`` would be captured by another binding, or would capture uses of one."""
    symbols = document.symbols
    bindings = [each.what for each in symbols.bindings_of(name)]
    extents = [each.extent for each in bindings]
    for each in symbols:
        if each.what.name != new or each.what.role in ("data", "argument"):
            continue
        inside = None in extents or any(
            extent[0] <= each.start - name.offset < extent[1] for extent in extents if extent is not None
        )
        if inside:
            line = document.lines.position(each.start).line + 1
            raise CannotRename(f"'{new}' means something already on line {line}")
    for use in uses:
        if any(binding.name == new for binding in symbols.visible(use.start)):
            line = document.lines.position(use.start).line + 1
            raise CannotRename(f"'{new}' is another variable on line {line}")


def _contains(text: str, name: str) -> bool:
    return any(word[0] == name for word in _NAME.finditer(text))


# -- outline ----------------------------------------------------------------------------------------------------------


def outline(document: Document) -> list[types.DocumentSymbol]:
    """The top-level definitions of the text, with the nested procedures and the parameters of procedures and tasks."""
    symbols: list[types.DocumentSymbol] = []
    for located in document.symbols.file_level():
        symbol = _symbol(document, located)
        if symbol is None:
            continue
        symbol.children = [
            child
            for each in located.part.bindings
            if _is_listed(each, located.what)
            and (child := _symbol(document, Located(each, located.offset, located.part))) is not None
        ]
        symbols.append(symbol)
    return symbols


def _is_listed(binding: Binding, outer: Binding) -> bool:
    within = outer.form[0] <= binding.start < outer.form[1] and binding is not outer and binding.extent is not None
    return within and (binding.kind == "procedure" or binding.owner is not None)


def _symbol(document: Document, located: Located[Binding]) -> types.DocumentSymbol | None:
    binding, span = located.what, document.span_now(located)
    start = document.shift.new(located.offset + binding.form[0])
    end = document.shift.new(located.offset + binding.form[1])
    if span is None or start is None or end is None or not start <= span[0] <= span[1] <= end:
        return None
    detail = " ".join(binding.parameters) if binding.parameters else None
    return types.DocumentSymbol(
        binding.name,
        _SYMBOLS[binding.kind],
        document.lines.range(start, end),
        document.lines.range(*span),
        detail=detail,
    )
