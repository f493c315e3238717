"""Forms that define and run tasks, workflows and the director-evaluator loop."""

from __future__ import annotations

import re
from typing import Any, cast

from agentflow.core.errors import AgentflowError
from agentflow.core.names import Template
from agentflow.core.values import Symbol, name_of, pairs_to_dict
from agentflow.lang import ir
from agentflow.lang.analyzer import Analyzer, Scope, Tail
from agentflow.lang.forms.failure import clause
from agentflow.lang.forms.form import form, operands
from agentflow.lang.ir import IR
from agentflow.lang.syntax import Atom, Form, Name, Node, datum, head_name
from agentflow.lib.suggest import did_you_mean

_PLACE = re.compile(r"\{\{\s*([^{}]*?)\s*\}\}")
_IDENTIFIER = re.compile(r"[^\s.(){}]+")
_TEXT = ("subtype", "description", "model", "system")
_PAIRS = ("output_format", "history_config", "context", "settings")
_OPTIONS = ("params", "instructions", *_TEXT, *_PAIRS, "file_paths", "tools")
_GUARDED = {"file_paths": "system:read_files", "settings": ""}
"""Options an untrusted program needs a grant for; none allows native request fields, which may hold a provider's tools."""
_DEFATOM = '(defatom name (params (p type) ...) (instructions "...") (description "...") ...)'


@form("defatom", usage=_DEFATOM, scoping=True)
def defatom(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Defines an atomic task: parameters, instructions with {{parameter}} slots, and options; returns its name.

    Options are subtype, description, model, system, output_format, history_config, context, settings, file_paths and
    tools. The task belongs to the environment the program runs in: its closures, the programs it starts and later
    programs in the same environment find it; other runs do not. Defining it again replaces it.
    """
    parts = operands(a, node, 2, None, _DEFATOM)
    name = parts[0]
    if type(name) is not Name:
        raise a.error(name, "defatom/name", "the name of a task is a symbol", f"write {_DEFATOM}")
    if not a.may_define:
        hint = "call the tasks it was granted, or grant it 'defatom'"
        raise a.error(node, "name/not-granted", "this program may not define tasks", hint)
    fields: dict[str, Any] = {"name": name.name, "type": "atomic", "params": {}}
    names: set[str] = set()
    for option in parts[1:]:
        key = head_name(option)
        if key is None or not isinstance(option, Form):
            raise a.error(option, "defatom/option", "an option of 'defatom' is a list", f"write {_DEFATOM}")
        if key not in _OPTIONS:
            hint = did_you_mean(key, _OPTIONS) or f"the options are {', '.join(_OPTIONS)}"
            raise a.error(option, "defatom/option", f"'defatom' has no option '{key}'", hint)
        if key in names:
            raise a.error(option, "form/duplicate", f"'defatom' is given '{key}' twice", "give it once")
        if key in _GUARDED and a.allow is not None and _GUARDED[key] not in a.allow:
            raise a.error(
                option,
                "name/not-granted",
                f"this program may not give its tasks '{key}'",
                f"leave it out, or grant the program '{_GUARDED[key]}'" if _GUARDED[key] else "leave it out",
            )
        names.add(key)
        _option(a, fields, key, option)
    if "instructions" not in names:
        raise a.error(node, "defatom/instructions", f"task '{name.name}' has no instructions", f"write {_DEFATOM}")
    _check_places(a, node, fields)
    a.own.add(name.name)
    template = _prepared(a, node, fields)
    if not isinstance(template, dict):
        a.own_infos.setdefault(name.name, []).append(template.info)
    return ir.RuntimeCall(node, "define-task", [ir.Environment(node)], [template])


def _prepared(a: Analyzer, node: Form, fields: dict[str, Any]) -> Template | dict[str, Any]:
    """The template of a definition, or its fields where nothing is there to make one."""
    if a.port is None:
        return fields
    try:
        return a.port.prepare(fields)
    except AgentflowError as error:
        raise a.error(node, "defatom/invalid", f"defatom: {error.message}", error.hint) from error


def _option(a: Analyzer, fields: dict[str, Any], key: str, option: Form) -> None:
    if key == "params":
        fields["params"] = _params(a, option.items[1:])
        return
    if key in ("file_paths", "tools"):
        values = [_unquoted(each) for each in option.items[1:]]
        if len(values) == 1 and isinstance(values[0], list):
            values = cast("list[Any]", values[0])
        names = [name_of(each) for each in values]
        if None in names:
            raise a.error(option, "defatom/option", f"'{key}' lists names", f'write ({key} "..." ...)')
        fields[key] = names
        return
    if key in _TEXT or key == "instructions":
        value = _unquoted(option.items[1]) if len(option.items) == 2 else None
        text = name_of(value)
        if text is None:
            raise a.error(option, "defatom/option", f"'{key}' is one string", f'write ({key} "...")')
        fields[key] = text
        return
    values: list[Any] = [_unquoted(each) for each in option.items[1:]]
    value: Any = cast(Any, values[0] if len(values) == 1 and not _is_pair(values[0]) else values)
    if key == "output_format" and len(values) == 1 and type(value) not in (list, dict):
        value = [["type", value]]
    pairs = pairs_to_dict(value)
    if pairs is None:
        raise a.error(
            option, "defatom/option", f"'{key}' is a list of (name value) pairs", f"write ({key} (name value))"
        )
    fields["context_management" if key == "context" else key] = _plain(pairs)


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


def _params(a: Analyzer, nodes: list[Node]) -> dict[str, Any]:
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


def _check_places(a: Analyzer, node: Form, fields: dict[str, Any]) -> None:
    """Check that every ``{{x}}`` of instructions and system prompt is a parameter; function calls are checked elsewhere."""
    params = fields["params"]
    for key in ("instructions", "system"):
        for slot in _PLACE.findall(fields.get(key, "")):
            if "(" in slot:
                continue
            first = _IDENTIFIER.match(slot)
            name = first[0] if first else slot
            if name not in params:
                where = next((i for i in node.items[2:] if head_name(i) == key), node)
                raise a.error(
                    where,
                    "defatom/place",
                    f"{{{{{slot}}}}} in the {key} is no parameter of '{fields['name']}'",
                    did_you_mean(name, params) or f"declare it: (params ({name} string))",
                )


_PHASES = ("director", "executor", "evaluator", "controller")
_LOOP = (
    "(director-evaluator-loop (max-iterations n) (initial-director-input e) "
    "(director f) (executor f) (evaluator f) (controller f))"
)


@form("director-evaluator-loop", usage=_LOOP)
def director_evaluator_loop(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Plans, executes, evaluates and decides, at most max-iterations times; iterations count from 1.

    director(input, i) returns a plan; executor(plan, i) a result; evaluator(result, plan, i) feedback; and
    controller(feedback, plan, result, i) either (list 'continue next-input) or (list 'stop value). After the maximum
    the last execution result is returned. Inside the phases *loop-config* holds the two settings.
    """
    names = ("max-iterations", "initial-director-input", *_PHASES)
    clauses = node.items[1:]
    for each in clauses:
        name = head_name(each)
        if name not in names:
            hint = did_you_mean(name or "", names) or f"write {_LOOP}"
            raise a.error(each, "form/clause", "this is no clause of 'director-evaluator-loop'", hint)
    args: list[tuple[int, str, IR]] = []
    for name in names:
        part = clause(a, clauses, name, "director-evaluator-loop")
        if part is None:
            raise a.error(node, "form/clause", f"'director-evaluator-loop' has no '{name}' clause", f"write {_LOOP}")
        if len(part.items) != 2:
            raise a.error(part, "form/clause", f"'{name}' takes one form", f"write ({name} form)")
        args.append((part.start, name, a.expr(part.items[1], scope)))
    args.sort(key=lambda each: each[0])
    return ir.RuntimeCall(node, "director-loop", [each[2] for each in args], [tuple(each[1] for each in args)])


@form("call-workflow", usage="(call-workflow name (parameter value) ...)")
def call_workflow(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Runs a saved workflow with these bindings, within this run; returns its value."""
    parts = operands(a, node, 1, None, "(call-workflow name (parameter value) ...)")
    name = parts[0]
    text = name.name if type(name) is Name else name.value if type(name) is Atom else None
    if not isinstance(text, str):
        raise a.error(name, "form/clause", "the name of a workflow is a symbol or string", "write (call-workflow name)")
    a.granted(text, name)
    pairs = a.named_arguments(parts[1:], "call-workflow")
    return ir.EffectCall(node, "workflow", text, [p for p, _ in pairs], [a.expr(v, scope) for _, v in pairs])


@form("solve", usage="(solve goal (allow name ...) (max-rounds n) (inputs dict))")
def solve(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Lets a model write a program for the goal, checks it and runs it. It may call only the allowed names."""
    parts = operands(a, node, 1, None, "(solve goal (allow name ...) (max-rounds n))")
    allow, rest = names_clause(a, parts[1:], "allow", "solve")
    values: list[IR] = [a.expr(parts[0], scope)]
    options: list[str] = []
    for key in ("max-rounds", "inputs"):
        one = clause(a, rest, key, "solve")
        if one is not None:
            if len(one.items) != 2:
                raise a.error(one, "form/clause", f"'{key}' takes one form", f"write ({key} form)")
            options.append(key)
            values.append(a.expr(one.items[1], scope))
            rest = [each for each in rest if each is not one]
    if rest:
        raise a.error(rest[0], "form/clause", "this is no clause of 'solve'", "it has allow, max-rounds and inputs")
    if a.allow is not None:
        a.granted("solve", node)
    return ir.RuntimeCall(node, "solve", [ir.Environment(node), *values], [tuple(allow), tuple(options)])


def names_clause(a: Analyzer, nodes: list[Node], name: str, who: str) -> tuple[list[str], list[Node]]:
    """The names in the clause ``(name n ...)``, if there is one, and the other nodes."""
    listing = clause(a, nodes, name, who)
    if listing is None:
        return [], nodes
    names: list[str] = []
    for each in listing.items[1:]:
        value = each.name if type(each) is Name else each.value if type(each) is Atom else None
        if not isinstance(value, str):
            raise a.error(each, "form/clause", f"'{name}' lists names", f"write ({name} name ...)")
        names.append(value)
    return names, [node for node in nodes if node is not listing]
