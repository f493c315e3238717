"""Completion: the names that are valid at the cursor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from lsprotocol import types

from agentflow.lang.symbols import Binding
from agentflow.lsp.calls import Cursor, cursor_at
from agentflow.lsp.document import Document
from agentflow.lsp.explain import infos
from agentflow.lsp.vocabulary import Vocabulary, type_of, usage_of

_KIND = types.CompletionItemKind
_BINDINGS = {
    "variable": _KIND.Variable,
    "parameter": _KIND.Variable,
    "procedure": _KIND.Function,
    "task": _KIND.Event,
    "macro": _KIND.Snippet,
}
_CONSTANTS = ("true", "false", "nil", "none")
_OPEN_SLOT = re.compile(r"\{\{\s*([^{}]*)\Z")
_NEAREST, _NEAR, _FILE, _AROUND, _LANGUAGE = "01234"


def completions(document: Document, vocabulary: Vocabulary, offset: int) -> list[types.CompletionItem]:
    """The names valid before the character at ``offset``, innermost scope first; each replaces the word there."""
    cursor = cursor_at(document.text, offset)
    if cursor.comment:
        return []
    if cursor.string is not None:
        return sorted(_slot(document, vocabulary, cursor, offset), key=lambda item: item.sort_text or "")
    end = offset
    while end < len(document.text) and re.match(r"[^\s()\[\]{}\"'`,;]", document.text[end]) and cursor.word:
        end += 1
    items = {item.label: item for item in reversed([*_candidates(document, vocabulary, cursor, offset)])}
    span = document.lines.range(cursor.word_start, end)
    for item in items.values():
        item.text_edit = types.TextEdit(span, item.label)
    return sorted(items.values(), key=lambda item: (item.sort_text or "", item.label))


def _candidates(
    document: Document, vocabulary: Vocabulary, cursor: Cursor, offset: int
) -> Iterator[types.CompletionItem]:
    if cursor.is_operator:
        yield from _arguments(document, vocabulary, cursor)
    for binding in document.visible(offset):
        yield _binding(binding, _NEAR)
    for located in document.symbols.file_level():
        yield _binding(located.what, _FILE)
    for name in vocabulary.around():
        info = vocabulary.info(name)
        if info is not None and name not in vocabulary.words:
            kind = _KIND.Event if info.kind == "task" else _KIND.Method
            yield _item(name, kind, _AROUND, usage_of(name, info), vocabulary.descriptions.get(name))
    for entry in vocabulary.words.values():
        if entry.kind != "form" or cursor.is_operator:
            kind = _KIND.Keyword if entry.kind == "form" else _KIND.Function
            yield _item(entry.name, kind, _LANGUAGE, entry.usage, entry.doc)
    if not cursor.is_operator:
        for name in _CONSTANTS:
            yield _item(name, _KIND.Constant, _LANGUAGE)


def _arguments(document: Document, vocabulary: Vocabulary, cursor: Cursor) -> Iterator[types.CompletionItem]:
    """The parameters of the enclosing task or tool call that it does not have yet."""
    if len(cursor.calls) < 2 or cursor.calls[-2].head is None:
        return
    call = cursor.calls[-2]
    given = set(call.arguments) - {cursor.word}
    for info in infos(document, vocabulary, call.head or ""):
        declared = info.parameters or {}
        for name, parameter in {**info.reserved, **declared}.items():
            if name not in given:
                description = parameter.schema.get("description")
                about = description if isinstance(description, str) else None
                order = _NEAREST if name in declared else _NEAR
                yield _item(name, _KIND.Property, order, type_of(parameter.schema), about)


def _slot(document: Document, vocabulary: Vocabulary, cursor: Cursor, offset: int) -> Iterator[types.CompletionItem]:
    """In ``{{...}}`` of a task's text: the task's parameters, and the tasks that a slot may call."""
    start = cursor.string or 0
    slot = _OPEN_SLOT.search(document.text, start, offset)
    task = next((call for call in cursor.calls if call.head == "defatom"), None)
    if slot is None or task is None:
        return
    word = re.search(r"[^\s.(){},]*\Z", slot[1])
    span = document.lines.range(offset - (len(word[0]) if word is not None else 0), offset)
    names = _declared(document.text, task.start, start)
    tasks = [each.what.name for each in document.symbols.file_level() if each.what.kind == "task"]
    around = [name for name in vocabulary.around() if (info := vocabulary.info(name)) and info.kind == "task"]
    for name, kind in {**dict.fromkeys([*tasks, *around], _KIND.Event), **dict.fromkeys(names, _KIND.Variable)}.items():
        item = _item(name, kind, _NEAREST if name in names else _AROUND)
        item.text_edit = types.TextEdit(span, name)
        yield item


def _declared(text: str, start: int, end: int) -> Iterable[str]:
    """The parameters declared by the clause ``(params ...)`` between two offsets."""
    clause = re.compile(r"\(params\s+((?:\([^()]*\)|[^()])*)\)").search(text, start, end)
    return (
        re.findall(r"\(\s*([^\s()]+)[^()]*\)|([^\s()]+)", clause[1])
        and [first or second for first, second in re.findall(r"\(\s*([^\s()]+)[^()]*\)|([^\s()]+)", clause[1])]
        if clause is not None
        else []
    )


def _binding(binding: Binding, order: str) -> types.CompletionItem:
    shape = None
    if binding.parameters is not None:
        rest = [".", binding.rest] if binding.rest is not None else []
        shape = f"({' '.join([binding.name, *binding.parameters, *rest])})"
    return _item(binding.name, _BINDINGS[binding.kind], order, shape or binding.kind)


def _item(
    name: str, kind: types.CompletionItemKind, order: str, detail: str | None = None, about: str | None = None
) -> types.CompletionItem:
    return types.CompletionItem(
        name, kind=kind, sort_text=f"{order}{name}", filter_text=name, detail=detail, documentation=about
    )
