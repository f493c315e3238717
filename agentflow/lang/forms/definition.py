"""The parts of a task definition: its options read into the fields of a template, with mistakes underlined."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, cast

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.known_names import Template
from agentflow.core.data.source import Span
from agentflow.core.data.values import Symbol, name_of, pairs_to_dict
from agentflow.lang.analyzer import EFFECT_NAMES, Analyzer
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.ir import IR
from agentflow.lang.naming import Scope
from agentflow.lang.syntax import Atom, DictForm, Form, Name, Node, datum, head_name
from agentflow.lib.option_table import options_of
from agentflow.lib.text.slots import SLOT, not_filled, not_used, single_braces, unused
from agentflow.lib.text.suggest import did_you_mean

USAGE = '(defatom name (params (p type) ...) (instructions "...") (description "...") ...)'
TEXTS = ("subtype", "description", "model", "system", "instructions", "reuse", "version", "prompt_cache", "effort")
"""Options with one text as their value."""
_PAIRS = ("output_format", "history_config", "context", "settings")
_COUNTS = {"max-turns": "max_turns", "max-output-tokens": "max_output_tokens"}
"""Options with a positive integer as their value, and the fields of the template."""
_OPTIONS = ("params", "instructions", "output_format", *[each.atom or each.name for each in options_of("atom")])
_SPELLED = {spelled: name for name in _OPTIONS for spelled in (name, name.replace("-", "_"), name.replace("_", "-"))}
"""Options by their spellings: hyphens and underscores are the same."""
_GUARDED = {"file_paths": "system:read_files", "priority": "", "settings": "", "provider_tools": ""}
"""Options an untrusted program needs a grant for; none allows native request fields and a provider's tools, which no grant
covers, nor a higher priority."""
_FIELDS = {"context": "context_management"}
"""Options with another name for their template field."""
IDENTIFIER = re.compile(r"[^\s.(){}]+")
_UNKNOWN_TEXT = "text"
"""Replaces a text computed at run time while the rest of a definition is checked."""


@dataclass
class AtomDefinition:
    """A ``defatom`` being read: ``fields`` of the template, ``options`` the form of each, ``computed`` the evaluated ones."""

    node: Form
    name: Name
    fields: dict[str, Any]
    options: dict[str, Form] = field(default_factory=dict[str, Form])
    computed: list[tuple[str, Span, IR]] = field(default_factory=list[tuple[str, Span, IR]])


def read_definition(a: Analyzer, node: Form, name: Name, options: Sequence[Node], scope: Scope) -> AtomDefinition:
    """The definition of ``name`` by ``options``. Raises SexpEvaluationError for a malformed one."""
    definition = AtomDefinition(node, name, {"name": name.name, "type": "atomic", "params": {}, "stateless": True})
    for option in options:
        written = head_name(option)
        if written is None or not isinstance(option, Form):
            raise a.error(option, "defatom/option", "an option of 'defatom' is a list", f"write {USAGE}")
        key = _SPELLED.get(written)
        if key is None:
            from agentflow.lib.option_hints import hint_for

            raise a.error(option, "defatom/option", f"'defatom' has no option '{written}'", hint_for(written, "atom"))
        if key in definition.options:
            raise a.error(option, "form/duplicate", f"'defatom' is given '{key}' twice", "give it once")
        if key in _GUARDED and a.allow is not None and _GUARDED[key] not in a.allow:
            raise a.error(
                option,
                "name/not-granted",
                f"this program may not give its tasks '{key}'",
                f"leave it out, or grant the program '{_GUARDED[key]}'" if _GUARDED[key] else "leave it out",
            )
        definition.options[key] = option
        _read_option(a, definition, key, option, scope)
    if "instructions" not in definition.options:
        raise a.error(node, "defatom/instructions", f"task '{name.name}' has no instructions", f"write {USAGE}")
    said = definition.fields.get("instructions")
    if isinstance(said, str) and not said.strip():
        at = definition.options["instructions"]
        raise a.error(at, "defatom/instructions", f"the instructions of task '{name.name}' are empty", f"write {USAGE}")
    if "params" not in definition.options:
        hint = "write (params name ...), or (params) for a task that takes none"
        raise a.error(node, "defatom/params", f"task '{name.name}' declares no parameters", hint)
    _check_slots(a, definition)
    _check_used(a, definition)
    return definition


def check_name(a: Analyzer, name: Name) -> None:
    """Refuse a name under which no program could call the task: a call of it would be a call of something else."""
    text = name.name
    if text in a.forms:
        what = "a special form"
    elif text in a.macros:
        what = "a macro of this program"
    elif text in PRIMITIVES or text in EFFECT_NAMES:
        what = "a primitive"
    elif a.kind(text) == "variable":
        what = "a variable"
    else:
        return
    raise a.error(
        name, "defatom/name", f"a task called '{text}' could never be called: it is {what}", "give it another name"
    )


def prepare(a: Analyzer, definition: AtomDefinition) -> Template | dict[str, Any]:
    """The template of a definition, or its fields without a template port or before a part is computed.

    Raises SexpEvaluationError at the faulty part.
    """
    if a.port is None:
        return definition.fields
    fields = dict(definition.fields)
    for key, _, _ in definition.computed:
        fields[key] = [] if key == "file_paths" else _UNKNOWN_TEXT
    try:
        template = a.port.prepare(fields)
    except AgentflowError as error:
        _underline(a, definition, error)
    _check_functions(a, definition, template.functions)
    a.own_infos.setdefault(definition.name.name, []).append(template.info)
    return definition.fields if definition.computed else template


def _read_option(a: Analyzer, definition: AtomDefinition, key: str, option: Form, scope: Scope) -> None:
    fields, items = definition.fields, option.items[1:]
    if key == "params":
        fields["params"] = _params(a, items)
    elif key == "tools":
        names = [name_of(each) for each in _listed(items)]
        if None in names:
            raise a.error(option, "defatom/option", f"'{key}' lists names", f"write ({key} name ...)")
        fields[key] = names
    elif key == "provider_tools":
        tools = [pairs_to_dict(_unquoted(each)) for each in items]
        if None in tools:
            hint = 'write (provider_tools {"type" "web_search"})'
            raise a.error(option, "defatom/option", f"'{key}' lists tables", hint)
        fields[key] = [_plain(each) for each in tools]
    elif key == "file_paths":
        paths = [name_of(each) for each in _listed(items)] if all(map(_is_literal, items)) else [None]
        if None not in paths:
            fields[key] = paths
        else:
            definition.computed += [(key, a.span(each), a.expr(each, scope)) for each in items]
    elif key == "priority":
        value = datum(items[0]) if len(items) == 1 and type(items[0]) is Atom else None
        if type(value) is not int:
            raise a.error(option, "defatom/option", f"'{key}' is a whole number", f"write ({key} 10)")
        fields[key] = value
    elif key in _COUNTS:
        fields[_COUNTS[key]] = _read_count(a, key, option)
    elif key in TEXTS:
        if len(items) != 1:
            raise a.error(option, "defatom/option", f"'{key}' is one text", f'write ({key} "...")')
        text = name_of(_unquoted(items[0])) if _is_literal(items[0]) else None
        if text is not None:
            fields[key] = text
        elif type(items[0]) is Atom:
            raise a.error(items[0], "defatom/option", f"'{key}' is a text", f'write ({key} "...")')
        else:
            definition.computed.append((key, a.span(items[0]), a.expr(items[0], scope)))
    else:
        fields[_FIELDS.get(key, key)] = _read_pairs(a, key, option)


def _read_count(a: Analyzer, key: str, option: Form) -> int:
    """A positive integer; an untrusted program may not have its tasks take more turns than the run allows any task."""
    items = option.items[1:]
    value = datum(items[0]) if len(items) == 1 and type(items[0]) is Atom else None
    if type(value) is not int or value < 1:
        raise a.error(option, "defatom/option", f"'{key}' is a positive whole number", f"write ({key} 4)")
    if key == "max-turns" and a.allow is not None and value > a.limits.turns:
        allowed = a.limits.turns
        raise a.error(option, "defatom/option", f"a task may take {allowed} turns here", f"write ({key} {allowed})")
    return value


def _read_pairs(a: Analyzer, key: str, option: Form) -> Any:
    values: list[Any] = [_unquoted(each) for each in option.items[1:]]
    value: Any = cast(Any, values[0] if len(values) == 1 and not _is_pair(values[0]) else values)
    if key == "history_config" and type(value) is bool:
        return value
    if key == "output_format" and len(values) == 1 and type(value) not in (list, dict):
        value = [["type", value]]
    pairs = pairs_to_dict(value)
    if pairs is None:
        raise a.error(
            option, "defatom/option", f"'{key}' is a list of (name value) pairs", f"write ({key} (name value))"
        )
    return _plain(pairs)


def _is_literal(node: Node) -> bool:
    """Whether a text is written out; a name or a call is evaluated when the definition is reached."""
    return type(node) is Atom or head_name(node) == "quote"


def _listed(nodes: Sequence[Node]) -> list[Any]:
    """The elements of ``(option x ...)`` or ``(option '(x ...))``."""
    values = [_unquoted(each) for each in nodes]
    return cast("list[Any]", values[0]) if len(values) == 1 and isinstance(values[0], list) else values


def _is_pair(value: Any) -> bool:
    pair = cast("list[Any]", value) if isinstance(value, list) else []
    return len(pair) == 2 and not isinstance(pair[0], list)


def _plain(value: Any) -> Any:
    if isinstance(value, Symbol):
        return value.name
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in cast("dict[Any, Any]", value).items()}
    return [_plain(each) for each in cast("list[Any]", value)] if isinstance(value, list) else value


def _unquoted(node: Node) -> Any:
    if isinstance(node, Form) and len(node.items) == 2 and head_name(node) == "quote":
        node = node.items[1]
    return datum(node)


def _params(a: Analyzer, nodes: Sequence[Node]) -> dict[str, Any]:
    params: dict[str, Any] = {}
    for node in nodes:
        parts = node.items if type(node) is Form else [node]
        name = parts[0] if parts else None
        kind = parts[1] if len(parts) == 2 else None
        if type(name) is not Name or len(parts) > 2 or (kind is not None and type(kind) is Form):
            raise a.error(
                node, "defatom/params", "a parameter is (name) or (name type)", "write (params (p string) ...)"
            )
        if name.name in params:
            raise a.error(node, "form/duplicate", f"the parameter '{name.name}' is named twice", "give it once")
        params[name.name] = {"type": str(datum(kind))} if kind is not None else {}
    return params


# -- faults -------------------------------------------------------------------------------------------------------


def _check_slots(a: Analyzer, definition: AtomDefinition) -> None:
    """Check that every ``{{x}}`` of instructions and system prompt is a parameter; function calls are checked elsewhere."""
    params = definition.fields["params"]
    for key in ("instructions", "system"):
        for slot in SLOT.finditer(definition.fields.get(key, "")):
            if "(" in slot[1]:
                continue
            first = IDENTIFIER.match(slot[1])
            name = first[0] if first else slot[1]
            if name not in params:
                raise a.error(
                    _within(a, definition.options[key], slot.start(), slot.end()),
                    "defatom/place",
                    f"{{{{{slot[1]}}}}} in the {key} is not a parameter of '{definition.name.name}'",
                    did_you_mean(name, params) or f"declare it: (params ({name} string))",
                )


def _check_used(a: Analyzer, definition: AtomDefinition) -> None:
    """Refuse ``{x}`` for a parameter, and doubt one that no text uses; texts computed at run time may use any."""
    fields, task = definition.fields, definition.name.name
    prompt = fields.get("instructions")
    if definition.computed or prompt is None:
        return
    texts = [fields.get("system", ""), fields.get("description", ""), prompt, *fields.get("file_paths", ())]
    looks_up = "context" in definition.options or fields.get("subtype") == "subtask"
    for name in unused(fields["params"], texts):
        single = single_braces(name, prompt)
        if single is not None:
            at = _within(a, definition.options["instructions"], single.start(), single.end())
            raise a.error(at, "defatom/place", *not_filled(task, name))
        if not looks_up:  # a lookup reads the arguments
            a.doubts.append(a.error(definition.options["params"], "defatom/instructions", *not_used(task, name)))


def _check_functions(a: Analyzer, definition: AtomDefinition, functions: Sequence[str]) -> None:
    """Check that every ``{{f(x)}}`` calls a task, other than the one being defined."""
    own = definition.name.name
    for name in functions:
        if name == own:
            problem, hint = (
                "calls itself, and would never end",
                "templates have no conditionals: let the program repeat it",
            )
        elif name in a.own or a.kind(name) == "task":
            continue
        else:
            problem = f"calls '{name}', and no task is called that"
            hint = did_you_mean(name, [*a.own, *(a.port.known_names() if a.port is not None else ())])
        raise a.error(_call_in(a, definition, name), "defatom/function", f"a text of '{own}' {problem}", hint)


def _call_in(a: Analyzer, definition: AtomDefinition, name: str) -> Node:
    """The slot that calls ``name``."""
    call = re.compile(r"\{\{[^{}]*?(?<![\w:-])" + re.escape(name) + r"\s*\([^{}]*(\}\})?")
    for key, option in definition.options.items():
        match = call.search(definition.fields.get(key, "")) if key in TEXTS else None
        if match is not None:
            return _within(a, option, match.start(), match.end())
    return definition.node


def _underline(a: Analyzer, definition: AtomDefinition, error: AgentflowError) -> NoReturn:
    """Raise the mistakes in the fields at the part of the definition that causes them."""
    path = [str(each) for each in error.details.get("field", ())]
    option = definition.options.get(
        next((key for key, name in _FIELDS.items() if path[:1] == [name]), *path[:1] or [""])
    )
    at: Node = option or definition.node
    if option is not None and path[0] in TEXTS and error.span is not None:
        at = _within(a, option, error.span.start, error.span.end)
    elif option is not None:
        for name in path[1:]:
            at = _entry(at, name)
    raise a.error(at, "defatom/invalid", f"defatom: {error.message}", error.hint) from error


def _entry(node: Node, name: str) -> Node:
    """The entry called ``name`` inside ``node``, of a list of pairs or a dict; ``node`` itself when there is none."""
    pending = list(node.items[1:]) if isinstance(node, Form) else [node]
    while pending:
        each = pending.pop(0)
        if isinstance(each, DictForm):
            for key, value in zip(each.items[::2], each.items[1::2], strict=True):
                if str(datum(key)) == name:
                    return value
        elif str(datum(each.items[0] if isinstance(each, Form) and each.items else each)) == name:
            return each
        pending += each.items if isinstance(each, Form | DictForm) else []
    return node


def _within(a: Analyzer, option: Form, start: int, end: int) -> Node:
    """The characters ``start`` to ``end`` of the text of an option; all of it where escapes make offsets differ."""
    text = option.items[-1]
    inside = text.start + 1
    if a.source.text[inside : text.end - 1] != datum(text):
        return text
    return Atom(None, inside + start, inside + end)
