"""Forms that define and run tasks, workflows and the director-evaluator loop."""

from __future__ import annotations

from agentflow.lang import ir
from agentflow.lang.analyzer import Analyzer, Scope, Tail
from agentflow.lang.forms.definition import USAGE, check_name, prepare, read_definition
from agentflow.lang.forms.failure import clause
from agentflow.lang.forms.form import form, operands
from agentflow.lang.ir import IR
from agentflow.lang.syntax import Atom, Form, Name, Node, head_name
from agentflow.lib.text.suggest import did_you_mean

_SOLVE = "(solve goal (allow name ...) (max-rounds n) (max-model-calls n) (inputs dict) (explore true))"


@form("defatom", usage=USAGE, scoping=True, body=1)
def defatom(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Defines an atomic task: parameters, instructions with {{parameter}} slots, and options; returns its name.

    Options are subtype, description, model, system, output_format, history_config, context, settings, file_paths, priority, reuse, version,
    max-turns, max-output-tokens and tools. A text is a string, or a form that returns one when the definition is
    reached. The task belongs to the environment of the program: its closures, the programs that it starts and later
    programs in the same environment find it; other runs do not. A second definition replaces it.
    """
    parts = operands(a, node, 2, None, USAGE)
    name = parts[0]
    if type(name) is not Name:
        raise a.error(name, "defatom/name", "the name of a task is a symbol", f"write {USAGE}")
    if not a.may_define:
        hint = "call the tasks it was granted, or grant it 'defatom'"
        raise a.error(node, "name/not-granted", "this program may not define tasks", hint)
    check_name(a, name)
    definition = read_definition(a, node, name, parts[1:], scope)
    a.own.add(name.name)
    a.defined_task(name, node, definition.options)
    template = prepare(a, definition)
    computed = tuple((key, span) for key, span, _ in definition.computed)
    values = [value for _, _, value in definition.computed]
    return ir.RuntimeCall(node, "define-task", [ir.CurrentEnvironment(node), *values], [template, computed])


_PHASES = ("director", "executor", "evaluator", "controller")
_LOOP = (
    "(director-evaluator-loop (max-iterations n) (initial-director-input e) "
    "(director f) (executor f) (evaluator f) (controller f))"
)


@form("director-evaluator-loop", usage=_LOOP, body=0)
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
            raise a.error(each, "form/clause", "this is not a clause of 'director-evaluator-loop'", hint)
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
    a.mentioned(name)
    pairs = a.named_arguments(parts[1:], "call-workflow")
    return ir.EffectCall(node, "workflow", text, [p for p, _ in pairs], [a.expr(v, scope) for _, v in pairs])


@form("solve", usage=_SOLVE, body=1)
def solve(a: Analyzer, node: Form, scope: Scope, tail: Tail) -> IR:
    """Lets a model write a program for the goal, checks it and runs it. It may call only the allowed names.

    With `explore` it first runs with simulated calls, and its possible errors are returned to the model.
    `max-model-calls` bounds the model calls of writing and running it together.
    """
    parts = operands(a, node, 1, None, _SOLVE)
    goal = a.expr(parts[0], scope)
    allow, options, values = clauses(
        a, parts[1:], ("max-rounds", "max-model-calls", "inputs", "explore"), scope, "solve", _SOLVE
    )
    if a.allow is not None:
        a.granted("solve", node)
    return ir.RuntimeCall(node, "solve", [ir.CurrentEnvironment(node), goal, *values], [tuple(allow), tuple(options)])


def clauses(
    a: Analyzer, nodes: list[Node], keys: tuple[str, ...], scope: Scope, who: str, usage: str
) -> tuple[list[str], list[str], list[IR]]:
    """The names that the clause ``allow`` lists, and of the clauses ``(key form)`` those there are, with their forms."""
    allow, rest = _names(a, nodes, "allow", who)
    options: list[str] = []
    values: list[IR] = []
    for key in keys:
        one = clause(a, rest, key, who)
        if one is not None:
            if len(one.items) != 2:
                raise a.error(one, "form/clause", f"'{key}' takes one form", f"write ({key} form)")
            options.append(key)
            values.append(a.expr(one.items[1], scope))
            rest = [each for each in rest if each is not one]
    if rest:
        raise a.error(rest[0], "form/clause", f"this is not a clause of '{who}'", f"write {usage}")
    return allow, options, values


def _names(a: Analyzer, nodes: list[Node], name: str, who: str) -> tuple[list[str], list[Node]]:
    """The names in the clause ``(name n ...)``, if there is one, and the other nodes."""
    listing = clause(a, nodes, name, who)
    if listing is None:
        return [], nodes
    names: list[str] = []
    for each in listing.items[1:]:
        value = each.name if type(each) is Name else each.value if type(each) is Atom else None
        if not isinstance(value, str):
            raise a.error(each, "form/clause", f"'{name}' lists names", f"write ({name} name ...)")
        a.mentioned(each)
        names.append(value)
    return names, [node for node in nodes if node is not listing]
