"""Completion: the valid names at the cursor."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from lsprotocol import types

from agentflow.lang.symbols import Binding
from agentflow.lsp.document import Document
from agentflow.lsp.explain import infos
from agentflow.lsp.notation import Cursor, type_of
from agentflow.lsp.vocabulary import Vocabulary

_KIND = types.CompletionItemKind
_BINDINGS = {
    "variable": _KIND.Variable,
    "parameter": _KIND.Variable,
    "procedure": _KIND.Function,
    "class": _KIND.Class,
    "field": _KIND.Field,
    "task": _KIND.Event,
    "macro": _KIND.Snippet,
}
_OPEN_SLOT = re.compile(r"\{\{\s*([^{}]*)\Z")
_HEAD = re.compile(r"^@task\b[^\n]*\n(?:async\s+)?def\s+\w+\(([^)]*)\)[^\n]*:\s*\Z", re.MULTILINE)
"""A task of a Python text, up to its prompt."""
_NEAREST, _NEAR, _FILE, _AROUND, _LANGUAGE = "01234"


def completions(document: Document, vocabulary: Vocabulary, offset: int) -> list[types.CompletionItem]:
    """The names valid before the character at ``offset``, innermost scope first; each replaces the word there."""
    cursor = document.notation.cursor(document.text, offset)
    if cursor.comment or not document.is_program:
        return []
    if cursor.string is not None and _lists_names(document, cursor):
        return _listed(document, vocabulary, cursor, offset)
    if cursor.string is not None:
        return sorted(_slot(document, vocabulary, cursor, offset), key=lambda item: item.sort_text or "")
    end = offset
    while end < len(document.text) and document.notation.word.match(document.text[end]) and cursor.word:
        end += 1
    start = cursor.word_start
    items = {item.label: item for item in reversed([*_candidates(document, vocabulary, cursor, offset)])}
    if document.surface == "python" and "." in cursor.word:
        base = cursor.word.rpartition(".")[0]
        start += len(base) + 1
        items = _members(document, vocabulary, base, items)
    elif document.surface == "python" and document.text[start - 1 : start] == ".":
        items = _members(document, vocabulary, None, items)
    elif document.surface == "sexp" and document.text[start - 1 : start] == "." and not cursor.word:
        items = {}
    span = document.lines.range(start, end)
    for item in items.values():
        item.text_edit = types.TextEdit(span, item.label)
    return sorted(items.values(), key=lambda item: (item.sort_text or "", item.label))


def _members(
    document: Document, vocabulary: Vocabulary, base: str | None, items: dict[str, types.CompletionItem]
) -> dict[str, types.CompletionItem]:
    """Completions after ``base.``: the rest of names that begin so; else fields of the text's classes, and the methods of values.

    Without ``base`` another expression precedes the point.
    """
    members = {
        label.removeprefix(f"{base}."): _item(
            label.removeprefix(f"{base}."),
            item.kind if isinstance(item.kind, _KIND) else _KIND.Function,
            _NEAREST,
            item.detail,
            _text_of(item),
        )
        for label, item in items.items()
        if base is not None and label.startswith(f"{base}.")
    }
    if members:
        return members
    methods = {
        name: _item(name, _KIND.Method, _NEAR, ", ".join(each.kind for each in entries), entries[0].doc)
        for name, entries in sorted(vocabulary.methods.items())
    }
    fields = [each for _, part in document.symbols.parts for each in part.bindings if each.kind == "field"]
    return {**methods, **{each.name: _binding(document, each, _NEAREST) for each in fields}}


def _text_of(item: types.CompletionItem) -> str | None:
    return item.documentation if isinstance(item.documentation, str) else None


def _candidates(
    document: Document, vocabulary: Vocabulary, cursor: Cursor, offset: int
) -> Iterator[types.CompletionItem]:
    if cursor.is_operator:
        yield from _arguments(document, vocabulary, cursor)
    for binding in document.visible(offset):
        yield _binding(document, binding, _NEAR)
    for located in document.symbols.file_level():
        yield _binding(document, located.what, _FILE)
    for name in vocabulary.around():
        info = vocabulary.info(name)
        if info is not None and name not in vocabulary.words:
            kind = _KIND.Event if info.kind == "task" else _KIND.Method
            yield _item(name, kind, _AROUND, document.notation.usage(name, info), vocabulary.description(name))
    for entry in vocabulary.words.values():
        if entry.kind != "form" or cursor.is_operator:
            kind = _KIND.Keyword if entry.kind == "form" else _KIND.Function
            yield _item(entry.name, kind, _LANGUAGE, entry.usage, entry.doc)
    if not cursor.is_operator or document.surface == "python":
        for name in document.notation.constants:
            yield _item(name, _KIND.Constant, _LANGUAGE)


def _arguments(document: Document, vocabulary: Vocabulary, cursor: Cursor) -> Iterator[types.CompletionItem]:
    """The parameters of the enclosing task or tool call that it does not have yet."""
    call = cursor.naming
    if call is None or call.head is None:
        return
    used = set(call.arguments) - {cursor.word}
    if document.surface == "python":
        for name in _keywords(document, vocabulary, call.head):
            if name not in used:
                yield _item(f"{name}=", _KIND.Property, _NEAREST, f"argument of {call.head}")
    for info in infos(document, vocabulary, call.head or ""):
        declared = info.parameters or {}
        for name, parameter in {**info.reserved, **declared}.items():
            if name not in used:
                description = parameter.schema.get("description")
                about = description if isinstance(description, str) else None
                order = _NEAREST if name in declared else _NEAR
                written = f"{name}=" if document.surface == "python" else name
                yield _item(written, _KIND.Property, order, type_of(parameter.schema), about)


def _keywords(document: Document, vocabulary: Vocabulary, head: str) -> Iterable[str]:
    """The arguments by name of a function or class of the text, else of a word of the language."""
    for each in document.symbols.file_level():
        if each.what.name == head:
            return () if each.what.kind == "task" else each.what.parameters or ()
    entry = vocabulary.words.get(head)
    return re.findall(r"(\w+)=", entry.usage) if entry is not None else ()


def _lists_names(document: Document, cursor: Cursor) -> bool:
    """Whether the cursor is in a text of ``tools=[...]`` or ``allow=[...]``."""
    if document.surface != "python" or len(cursor.calls) < 2:
        return False
    return cursor.calls[-2].arguments[-1:] in (["tools"], ["allow"])


def _listed(document: Document, vocabulary: Vocabulary, cursor: Cursor, offset: int) -> list[types.CompletionItem]:
    """The names of tasks and tools, as a list of texts names them."""
    own = [each.what.name for each in document.symbols.file_level() if each.what.kind == "task"]
    around = sorted(vocabulary.names.known_names()) if vocabulary.names is not None else ()
    word = re.search(r"[\w:-]*\Z", document.text[cursor.string or 0 : offset])
    span = document.lines.range(offset - (len(word[0]) if word is not None else 0), offset)
    items = [_item(name, _KIND.Event, _NEAREST) for name in own]
    items += [_item(name, _KIND.Method, _AROUND, None, vocabulary.description(name)) for name in around]
    for item in items:
        item.text_edit = types.TextEdit(span, item.label)
    return items


def _slot(document: Document, vocabulary: Vocabulary, cursor: Cursor, offset: int) -> Iterator[types.CompletionItem]:
    """In ``{{...}}`` of a task's text: the task's parameters, and the tasks that a slot may call."""
    start = cursor.string or 0
    slot = _OPEN_SLOT.search(document.text, start, offset)
    names = _parameters(document, cursor, start)
    if slot is None or names is None:
        return
    word = re.search(r"[^\s.(){},]*\Z", slot[1])
    span = document.lines.range(offset - (len(word[0]) if word is not None else 0), offset)
    tasks = [each.what.name for each in document.symbols.file_level() if each.what.kind == "task"]
    around = [name for name in vocabulary.around() if (info := vocabulary.info(name)) and info.kind == "task"]
    for name, kind in {**dict.fromkeys([*tasks, *around], _KIND.Event), **dict.fromkeys(names, _KIND.Variable)}.items():
        item = _item(name, kind, _NEAREST if name in names else _AROUND)
        item.text_edit = types.TextEdit(span, name)
        yield item


def _parameters(document: Document, cursor: Cursor, start: int) -> Iterable[str] | None:
    """The parameters of the task with the text around the cursor, which begins at ``start``; None outside of a task's text."""
    if document.surface == "python":
        header = _HEAD.search(document.text, 0, start)
        return None if header is None else re.findall(r"(\w+)\s*(?::[^,]*)?(?:,|\Z)", header[1])
    task = next((call for call in cursor.calls if call.head == "defatom"), None)
    return None if task is None else _declared(document.text, task.start, start)


def _declared(text: str, start: int, end: int) -> Iterable[str]:
    """The parameters declared by the clause ``(params ...)`` between two offsets."""
    clause = re.compile(r"\(params\s+((?:\([^()]*\)|[^()])*)\)").search(text, start, end)
    return (
        re.findall(r"\(\s*([^\s()]+)[^()]*\)|([^\s()]+)", clause[1])
        and [first or second for first, second in re.findall(r"\(\s*([^\s()]+)[^()]*\)|([^\s()]+)", clause[1])]
        if clause is not None
        else []
    )


def _binding(document: Document, binding: Binding, order: str) -> types.CompletionItem:
    shape = None
    if binding.parameters is not None:
        shape = document.notation.shape(binding.name, binding.parameters, binding.rest)
    return _item(binding.name, _BINDINGS[binding.kind], order, shape or binding.kind)


def _item(
    name: str, kind: types.CompletionItemKind, order: str, detail: str | None = None, about: str | None = None
) -> types.CompletionItem:
    return types.CompletionItem(
        name, kind=kind, sort_text=f"{order}{name}", filter_text=name, detail=detail, documentation=about
    )
