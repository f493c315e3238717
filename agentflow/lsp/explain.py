"""Hover and signature help: the meaning of a name, and the parameters of the call around the cursor."""

from __future__ import annotations

import re

from lsprotocol import types

from agentflow.core.data.known_names import NameInfo, ParameterInfo
from agentflow.lang.reference import Entry
from agentflow.lang.symbols import Binding, Located, Occurrence
from agentflow.lsp.document import Document
from agentflow.lsp.notation import type_of
from agentflow.lsp.vocabulary import Vocabulary

_ITEM = re.compile(r"\[\(?[^\[\]]*\]|\([^()]*(?:\([^()]*\)[^()]*)*\)|[^\s()\[\]]+")


def hover(document: Document, vocabulary: Vocabulary, offset: int) -> types.Hover | None:
    """Describe the name at ``offset``: its usage and documentation, or its definition."""
    name = document.name_at(offset)
    span = document.span_now(name) if name is not None else None
    if name is None or span is None:
        return None
    text = _about(document, vocabulary, name)
    if text is None:
        return None
    # plain text: as Markdown, a foreign description could load a picture or offer a link that runs a command
    foreign = any(map(vocabulary.is_foreign, (name.what.name, name.what.owner or "")))
    kind = types.MarkupKind.PlainText if foreign else types.MarkupKind.Markdown
    return types.Hover(types.MarkupContent(kind, text), document.lines.range(*span))


def _about(document: Document, vocabulary: Vocabulary, name: Located[Occurrence]) -> str | None:
    what, notation = name.what, document.notation
    bindings = document.symbols.bindings_of(name)
    if what.role == "argument" and (not bindings or bindings[0].what.kind != "field"):
        return _argument(document, vocabulary, what)
    if what.kind == "method":
        return "\n\n---\n\n".join(_entry(document, each) for each in vocabulary.methods.get(what.name, ())) or None
    if bindings:
        return "\n\n---\n\n".join(_binding(document, each) for each in bindings)
    entry = vocabulary.words.get(what.name)
    if entry is not None and what.kind in ("form", "primitive", "context", "data"):
        return _entry(document, entry)
    info = vocabulary.info(what.name)
    if info is not None:
        return "\n\n".join(
            [
                f"```{notation.fence}\n{notation.usage(what.name, info)}\n```\n{info.kind}",
                *([description] if (description := vocabulary.description(what.name)) else []),
                *_parameters(info),
            ]
        )
    if what.kind == "host":
        return f"```{notation.fence}\n{what.name}\n```\na variable bound by the host"
    return None


def _entry(document: Document, entry: Entry) -> str:
    """A word of the language."""
    form = "form" if document.surface == "python" else "special form"
    kind = {"form": form, "effect": "context"}.get(entry.kind, entry.kind)
    return f"```{document.notation.fence}\n{entry.usage}\n```\n{kind}\n\n{entry.doc}"


def _argument(document: Document, vocabulary: Vocabulary, what: Occurrence) -> str | None:
    for info in infos(document, vocabulary, what.owner or ""):
        parameter = info.parameter(what.name)
        if parameter is not None:
            shown = document.notation.argument(what.name, parameter.schema)
            return f"```{document.notation.fence}\n{shown}\n```\nargument of {what.owner}{_told(parameter)}"
    entry = vocabulary.words.get(what.owner or "")
    return None if entry is None else f"```{document.notation.fence}\n{entry.usage}\n```\nargument of {what.owner}"


def _binding(document: Document, binding: Located[Binding]) -> str:
    what = binding.what
    kind = "function" if what.kind == "procedure" and document.surface == "python" else what.kind
    kind = f"{kind} of {what.owner}" if what.owner is not None else kind
    shown = _declared(document, binding) if what.kind == "field" else _shape(document, what)
    parts = [f"```{document.notation.fence}\n{shown}\n```\n{kind}"]
    comment = _comment(document, binding)
    return "\n\n".join([*parts, comment] if comment else parts)


def _shape(document: Document, binding: Binding) -> str:
    if binding.kind == "task":
        for info in document.tasks.get(binding.name, ()):
            return document.notation.usage(binding.name, info)
    if binding.parameters is None:
        return binding.name
    return document.notation.shape(binding.name, binding.parameters, binding.rest)


def _declared(document: Document, binding: Located[Binding]) -> str:
    """A field as its class declares it."""
    start, end = (document.shift.new(binding.offset + each) for each in binding.what.form)
    return binding.what.name if start is None or end is None else document.text[start:end]


def _comment(document: Document, binding: Located[Binding]) -> str:
    """The comment lines directly above a top-level definition."""
    if binding.what.extent is not None:
        return ""
    start = document.shift.new(binding.offset + binding.what.form[0])
    lines = document.notation.comments.search(document.text, 0, start) if start is not None else None
    return (
        "\n".join(line.strip().lstrip(document.notation.comment).strip() for line in lines[0].splitlines())
        if lines
        else ""
    )


def _parameters(info: NameInfo) -> list[str]:
    told = [
        f"- `{name}` {type_of(each.schema)}{'' if each.required else ', may be left out'}{_told(each)}"
        for name, each in (info.parameters or {}).items()
    ]
    return ["\n".join(told)] if told else []


def _told(parameter: ParameterInfo) -> str:
    description = parameter.schema.get("description")
    return f": {description}" if isinstance(description, str) else ""


def infos(document: Document, vocabulary: Vocabulary, name: str) -> list[NameInfo]:
    """The signatures of a task or tool: those defined in the text, else the one in ``vocabulary``."""
    own = document.tasks.get(name)
    info = vocabulary.info(name)
    return own if own else [info] if info is not None else []


def signature(document: Document, vocabulary: Vocabulary, offset: int) -> types.SignatureHelp | None:
    """The signature of the innermost enclosing call that has one, with the parameter at the cursor."""
    cursor = document.notation.cursor(document.text, offset)
    if cursor.comment or not document.is_program:
        return None
    for index in range(len(cursor.calls) - 1, -1, -1):
        call = cursor.calls[index]
        operand = cursor.operand(call)
        if call.head is None or operand < 0:
            continue
        within = cursor.within(index)
        help_ = _signature(document, vocabulary, call.head, (operand, within), offset)
        if help_ is not None:
            return help_
    return None


def _signature(
    document: Document, vocabulary: Vocabulary, name: str, at: tuple[int, str | None], offset: int
) -> types.SignatureHelp | None:
    operand, within = at
    local = next((each for each in document.visible(offset) if each.name == name), None)
    bindings = (
        [local]
        if local is not None
        else [
            each.what
            for each in document.symbols.file_level()
            if each.what.name == name and each.what.kind in ("procedure", "class")
        ]
    )
    if bindings:
        signatures = [
            (_shape(document, each), [*(each.parameters or ()), *([each.rest] if each.rest is not None else [])], "")
            for each in bindings
            if each.parameters is not None
        ]
        index = next((names.index(within) for _, names, _ in signatures if within in names), operand)
        return _help(signatures, index if document.surface == "python" else operand) if signatures else None
    named = infos(document, vocabulary, name)
    if named:
        names = [list(each.parameters or ()) for each in named]
        active = names[0].index(within) if within in names[0] else -1
        if active < 0 and document.surface == "python" and within is None:
            active = operand if operand < len(names[0]) else -1
        about, notation = vocabulary.description(name) or "", document.notation
        return _help([(notation.usage(name, each), notation.labels(each), about) for each in named], active)
    entry = vocabulary.words.get(name)
    if entry is None:
        return None
    if document.surface == "python":
        return _help([(entry.usage, entry.usage.partition("(")[2].removesuffix(")").split(", "), entry.doc)], operand)
    operands = _ITEM.findall(entry.usage.partition(" ")[2].split(")  ")[0].removesuffix(")"))
    active = min(operand, len(operands) - 1)
    if "..." in operands[: active + 1]:
        active = operands.index("...") - 1
    return _help([(entry.usage, operands, entry.doc)], active)


def _help(signatures: list[tuple[str, list[str], str]], active: int) -> types.SignatureHelp:
    return types.SignatureHelp(
        [
            types.SignatureInformation(
                label,
                documentation=about or None,
                parameters=[types.ParameterInformation(each) for each in parameters],
            )
            for label, parameters, about in signatures
        ],
        active_signature=0,
        active_parameter=active if active >= 0 else None,
    )
