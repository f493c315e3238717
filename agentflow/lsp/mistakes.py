"""Mistakes as diagnostics, and the fixes that their hints suggest."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType

from lsprotocol import types

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.source import Surface
from agentflow.lang.diagnosis import Diagnostic
from agentflow.lsp.document import Document

SOURCE = "agentflow"
_MEANT = re.compile(r"did you mean '([^']+)'\?")
_WRITE = re.compile(r"write ([^\s()]+)$")
_MISSING = re.compile(r"add the missing '(.)'$")
_WORDS: Mapping[Surface, re.Pattern[str]] = MappingProxyType(
    {"sexp": re.compile(r"[^\s()\[\]{}\"'`,;]+"), "python": re.compile(r"[^\W\d]\w*(?:\.\w+)*")}
)


def diagnostics(document: Document) -> list[types.Diagnostic]:
    """The findings of ``agentflow check`` for the text; the hint is the last line of each message."""
    return [_diagnostic(document, each) for each in document.survey.diagnostics]


def _diagnostic(document: Document, diagnostic: Diagnostic) -> types.Diagnostic:
    error = diagnostic.error
    start, end = (error.span.start, error.span.end) if error.span is not None else (0, 0)
    return types.Diagnostic(
        range=document.lines.range(start, end),
        message=f"{error.message}\nhint: {error.hint}" if error.hint else error.message,
        severity=types.DiagnosticSeverity.Error if diagnostic.severity == "error" else types.DiagnosticSeverity.Warning,
        code=error.code,
        source=SOURCE,
        data=error.to_dict(),
    )


def fixes(document: Document, uri: str, span: tuple[int, int]) -> Iterator[types.CodeAction]:
    """A fix for each mistake in ``span`` with a hint that gives a replacement."""
    for diagnostic in document.survey.diagnostics:
        at = diagnostic.error.span
        if at is None or at.start > span[1] or at.end < span[0]:
            continue
        edit = _edit(document, diagnostic.error)
        if edit is not None:
            title, start, end, text = edit
            change = types.TextEdit(document.lines.range(start, end), text)
            yield types.CodeAction(
                title,
                kind=types.CodeActionKind.QuickFix,
                diagnostics=[_diagnostic(document, diagnostic)],
                edit=types.WorkspaceEdit(changes={uri: [change]}),
                is_preferred=True,
            )


def _edit(document: Document, error: AgentflowError) -> tuple[str, int, int, str] | None:
    """The title of a fix, the start and end of the text to replace, and the replacement; None: the hint suggests none."""
    if error.span is None or error.hint is None:
        return None
    text, start, end = document.text, error.span.start, error.span.end
    missing = _MISSING.search(error.hint)
    if missing is not None and error.code == "syntax/unclosed":
        last = len(text.rstrip())
        return f"Add the missing {missing[1]}", last, last, missing[1]
    if error.code == "syntax/unexpected-close" and error.hint.startswith("remove it"):
        return f"Remove {text[start:end]}", start, end, ""
    meant = _MEANT.search(error.hint) or _WRITE.search(error.hint)
    if meant is None:
        return None
    wrong = _wrong_name(_WORDS[document.surface], text, start, end, error.message)
    return (f"Write {meant[1]}", *wrong, meant[1]) if wrong is not None else None


def _wrong_name(names: re.Pattern[str], text: str, start: int, end: int, message: str) -> tuple[int, int] | None:
    """The span of the wrong name: the whole span, or the first name in it that the message quotes."""
    quoted = set(re.findall(r"'([^']+)'", message))
    for name in names.finditer(text, start, end):
        if name[0] in quoted or name.span() == (start, end):
            return name.span()
    return None
