"""The forms with effects outside of the program: people, time, files, models, other workflows."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from agentflow.core.data.known_names import ASK, DEFINE, ENDORSE, PUBLISH, SIGNAL, NameInfo
from agentflow.core.data.source import Span
from agentflow.core.events.effects import CallTool, CallWorkflow, Draw, GetContext, LogMessage
from agentflow.lang.abi import Operation
from agentflow.lang.kernel.inline import as_dict
from agentflow.lang.kernel.lowered_functions import endorsed, itself, log_text
from agentflow.lang.kernel.nodes import Const, Env, Node, Op, Perform, Prim, Seq
from agentflow.lang.kernel.text_nodes import Effect
from agentflow.lang.literals import mismatch
from agentflow.lang.python.declarations import answer_schema, define_at_start
from agentflow.lang.python.forms import form, keywords_of, misused
from agentflow.lang.python.lowering import Lowering
from agentflow.lang.python.requests import (
    asked,
    below,
    program_text,
    published,
    signal,
    sources_of,
    unwrapped,
    waiting,
)
from agentflow.lang.python.support import context_paths, task_procedure
from agentflow.lang.python.takes import literal
from agentflow.lib.text.suggest import did_you_mean


def call_task(g: Lowering, node: ast.Call, name: str, gives: Literal["data", "outcome"] = "data") -> Node:
    """A call of a task or tool: its data or text, or its ``outcome``."""
    own = name in g.own_tasks or g.info(name).untrusted
    if not g.granted(name, node.func, own=own):
        return g.refused()
    args, names, spread = _named(g, node, name)
    return Effect(g.span_at(node), name, names, args, spread, gives)


def _named(g: Lowering, node: ast.Call, name: str) -> tuple[list[Node], tuple[str, ...], list[Node]]:
    """The arguments of a call by name, in the order of the text; and the dicts behind ``**``."""
    info, title = g.info(name), ast.unparse(node.func)
    declared = list(info.parameters or ())
    if any(isinstance(each, ast.Starred) for each in node.args):
        g.refuse(node, "'*' in a call of a task", "name the arguments, or give **d")
        return [], (), []
    if len(node.args) > len(declared):
        hint = (
            f"it takes {', '.join(declared) or 'no parameters'}" if info.parameters is not None else f"{title}(x=...)"
        )
        g.wrong(node, "call/positional", f"'{title}' is given {len(node.args)} arguments by position", hint)
        return [], (), []
    args = [g.value(each) for each in node.args]
    names = declared[: len(node.args)]
    for each, value in zip(names, node.args, strict=True):
        _check_literal(g, title, info, each, value)
    spread: list[Node] = []
    for each in node.keywords:
        if each.arg is None:
            spread.append(g.value(each.value))
            continue
        if each.arg in names:
            g.wrong(each, "call/duplicate", f"'{title}' is given '{each.arg}' twice")
        elif info.parameters is not None and info.parameter(each.arg) is None and not info.open:
            hint = did_you_mean(each.arg, [*declared, *info.reserved]) or f"it takes {', '.join(declared)}"
            g.wrong(each, "call/unknown-parameter", f"'{title}' has no parameter '{each.arg}'", hint)
        _check_literal(g, title, info, each.arg, each.value)
        names.append(each.arg)
        args.append(g.value(each.value))
    if info.parameters is not None and not spread and "inputs" not in names:
        missing = [each for each, about in info.parameters.items() if about.required and each not in names]
        if missing:
            shown = ", ".join(f"'{each}'" for each in missing)
            hint = f"write {title}({', '.join(f'{each}=...' for each in declared)})"
            g.wrong(node, "call/missing-parameter", f"the call of '{title}' misses {shown}", hint)
    return args, tuple(names), spread


def _check_literal(g: Lowering, title: str, info: NameInfo, name: str, node: ast.expr) -> None:
    """Note a literal that the schema of a parameter certainly rejects."""
    parameter = info.parameter(name) if g.seeks_failures and info.parameters is not None else None
    if parameter is None:
        return
    value = literal(node)
    if value is None and not parameter.required:  # None means the default
        return
    problem = mismatch(value, parameter.schema, lenient=info.lenient)
    if problem is not None:
        code = "call/unknown-key" if problem.key else "call/argument"
        g.fails(node, code, f"'{name}' of '{title}': {problem.text}", problem.hint)


def task_value(g: Lowering, node: ast.Name, name: str) -> Node:
    """A task or tool as a value: a procedure of its parameters in order."""
    info: NameInfo = g.info(name)
    if not g.granted(name, node, own=name in g.own_tasks or info.untrusted):
        return g.refused()
    names = (
        tuple(each for each, about in (info.parameters or {}).items() if about.required)
        or tuple(info.parameters or ())[:1]
    )
    at = g.span_at(node)
    args: list[Node] = [Env(None), Const(None, name), Const(None, names), Const(None, at)]
    return Prim(at, task_procedure, args, takes_rt=True)


def record(g: Lowering, node: ast.Call, name: str) -> Node:
    """``Review(worst="...", grade="low")``: a dict with the fields of the class, in order."""
    fields: dict[str, ast.expr | None] = g.records[name]
    values = dict(zip(fields, node.args, strict=False))
    values.update({each.arg: each.value for each in node.keywords if each.arg is not None})
    if any(each.arg is None for each in node.keywords):
        g.refuse(node, f"'**' in {name}(...)", "a record is a dict: {**d} has the fields of d")
        return g.refused()
    unknown = [each for each in values if each not in fields]
    missing = [each for each, default in fields.items() if default is None and each not in values]
    if unknown or missing or len(node.args) > len(fields) or len(values) != len(node.args) + len(node.keywords):
        what = (
            f"has no field '{unknown[0]}'"
            if unknown
            else f"misses {', '.join(missing)}"
            if missing
            else "has too many values"
        )
        hint = did_you_mean(unknown[0], fields) if unknown else None
        g.wrong(node, "call/argument", f"{name}(...) {what}", hint or f"its fields are {', '.join(fields)}")
        return g.refused()
    entries = [(each, values.get(each) or default) for each, default in fields.items()]
    values_in_order = [g.value(value) for _, value in entries if value is not None]
    return Prim(g.span_at(node), partial(as_dict, tuple(fields)), values_in_order)


def _and_none(at: Span, done: Node) -> Node:
    """None, after an effect."""
    return Seq(at, [done, Const(None, None)])


@form("outcome(review(path))")
def outcome(g: Lowering, node: ast.Call) -> Node:
    """The result of a task, tool or workflow (``.status``, ``.content``), which is not raised when it failed."""
    inner = node.args[0] if len(node.args) == 1 and not node.keywords else None
    if isinstance(inner, ast.Await):
        inner = inner.value
    if isinstance(inner, ast.Call) and is_workflow_call(inner) and g.scope.find("call_workflow") is None:
        return _result_of_workflow(g, inner)
    name = _task_name(g, inner.func) if isinstance(inner, ast.Call) else None
    if name is None or not isinstance(inner, ast.Call):
        g.wrong(node, "form/arity", "outcome takes a call of a task, tool or workflow", "write outcome(review(path))")
        return g.refused()
    return call_task(g, inner, name, "outcome")


def is_workflow_call(node: ast.Call) -> bool:
    """Whether a call is written ``call_workflow(...)``."""
    return isinstance(node.func, ast.Name) and node.func.id == "call_workflow"


def _task_name(g: Lowering, function: ast.expr) -> str | None:
    if isinstance(function, ast.Name):
        name = g.callable_name(function.id) if g.scope.find(function.id) is None else None
    elif isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        name = f"{function.value.id}:{function.attr}"
    else:
        name = None
    return name if name is not None and g.kind(name) in ("task", "tool") else None


@form("print(a, b, ...)", asks="log-message")
def print_(g: Lowering, node: ast.Call) -> Node:
    """Writes a message of the run's log."""
    options = {each.arg: each.value for each in node.keywords}
    if not {"sep", "end", "flush"}.issuperset(map(str, options)):
        g.wrong(node, "form/arity", "print takes values, and sep=", "it writes a message of the run's log, to no file")
        return g.refused()
    at = g.span_at(node)
    items = g.value(ast.copy_location(ast.List(node.args, ast.Load()), node))
    separator = g.value(options["sep"]) if "sep" in options else Const(None, " ")
    return _and_none(at, Perform(at, message_effect, [Prim(at, log_text, [separator, items], waits=0)]))


def message_effect(env: Any, text: Any) -> LogMessage:
    """The effect of ``print(...)``."""
    return LogMessage(text)


# -- models -------------------------------------------------------------------------------------------------------


@form("ask(prompt, output=str)")
def ask(g: Lowering, node: ast.Call) -> Node:
    """Asks the model once; ``output`` is the type of the answer."""
    options = keywords_of(g, node, 1, 1, "output")
    if options is None:
        return g.refused()
    if g.allow is not None and DEFINE not in g.allow:
        hint = "call the tasks it was granted, or grant it 'defatom'"
        g.wrong(node.func, "name/not-granted", "this program may not ask the model", hint)
        return g.refused()
    output = answer_schema(g, options["output"]) if "output" in options else None
    fields: dict[str, Any] = {
        "type": "atomic",
        "params": {"prompt": {}},
        "instructions": "{{prompt}}",
        "tools": [],
        **({"output_format": output} if output else {}),
    }
    name = define_at_start(g, node, fields)
    return Effect(g.span_at(node), name, ("prompt",), [g.value(node.args[0])])


@form('solve(goal, allow=["review"], max_rounds=3, max_model_calls=20, inputs={}, explore=False)', asks="solve")
def solve(g: Lowering, node: ast.Call) -> Node:
    """Lets a model write a program for the goal, checks it and runs it. It may call only the allowed names."""
    options = keywords_of(g, node, 1, 1, "allow", "max_rounds", "max_model_calls", "inputs", "explore")
    if options is None or not g.granted("solve", node.func):
        return g.refused()
    return _inner_program(g, node, "solve", options, g.value(node.args[0]))


@form("eval_program(text, bindings={}, allow=[], max_steps=1000)", takes="s")
def eval_program(g: Lowering, node: ast.Call) -> Node:
    """Checks and runs a text in Python, which may call only the allowed names; returns its value."""
    options = keywords_of(g, node, 1, 1, "bindings", "allow", "max_steps")
    if options is None:
        return g.refused()
    text = Prim(g.span_at(node), program_text, [g.value(node.args[0])])
    return _inner_program(g, node, "eval-program", options, text)


def _inner_program(
    g: Lowering, node: ast.Call, operation: Operation, options: dict[str, ast.expr], first: Node
) -> Node:
    allow = _allowed(g, options)
    names = tuple([each.replace("_", "-") for each in options])
    return Op(g.span_at(node), operation, [allow, names], [Env(None), first, *g.values(list(options.values()))])


def _allowed(g: Lowering, options: dict[str, ast.expr]) -> tuple[str, ...]:
    """The names that the argument ``allow`` lists; it is taken out of ``options``."""
    allow = options.pop("allow", None)
    names = () if allow is None else _texts(allow)
    if names is None:
        assert allow is not None
        g.wrong(allow, "form/clause", "'allow' is a list of names", 'write allow=["review"]')
        names = ()
    return names


def _texts(node: ast.expr) -> tuple[str, ...] | None:
    if not isinstance(node, ast.List | ast.Tuple):
        return None
    texts = [each.value for each in node.elts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return tuple(texts) if len(texts) == len(node.elts) else None


@form("director_evaluator_loop(max_iterations, first, director, executor, evaluator, controller)")
def director_loop(g: Lowering, node: ast.Call) -> Node:
    """Plans, executes, evaluates and decides, for at most a number of rounds: ``controller`` returns ("continue", next) or ("stop", value)."""
    names = tuple(DIRECTOR)
    options = keywords_of(g, node, 0, len(names), *names)
    if options is None:
        return g.refused()
    values = {**dict(zip(names, node.args, strict=False)), **options}
    if len(values) != len(names) or len(node.args) + len(options) != len(names):
        return misused(g, node)
    clauses = tuple([DIRECTOR[each] for each in values])
    return Op(g.span_at(node), "director-loop", [clauses], g.values(list(values.values())))


DIRECTOR = {
    "max_iterations": "max-iterations",
    "first": "initial-director-input",
    **{each: each for each in ("director", "executor", "evaluator", "controller")},
}
"""The parameters of a director loop, and the clauses that they are."""


# -- other workflows, files, notes --------------------------------------------------------------------------------


@form('call_workflow("name", parameter=value)')
def call_workflow(g: Lowering, node: ast.Call) -> Node:
    """The value of a saved workflow; a failed one raises."""
    return Prim(g.span_at(node), unwrapped, [_result_of_workflow(g, node)])


def _result_of_workflow(g: Lowering, node: ast.Call) -> Node:
    first = node.args[0] if len(node.args) == 1 else None
    if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
        return misused(g, node)
    if not g.granted(first.value, first):
        return g.refused()
    names, values = _by_name(g, node)
    return Perform(g.span_at(node), partial(workflow_effect, first.value, names), values)


def workflow_effect(name: str, names: tuple[str, ...], env: Any, *values: Any) -> CallWorkflow:
    """The effect of ``call_workflow(...)``."""
    return CallWorkflow(name, dict(zip(names, values, strict=True)))


@form('get_context("what matters")')
def get_context(g: Lowering, node: ast.Call) -> Node:
    """The paths of the files that a question is about, best first."""
    if g.allow is not None and not g.allow.intersection(("get_context", "system:get_context")):
        g.granted("get_context", node.func)
        return g.refused()
    if len(node.args) > 1 or (node.args and any(each.arg == "query" for each in node.keywords)):
        return misused(g, node)
    query = g.values(node.args)
    names, values = _by_name(g, node)
    names = ("query", *names) if query else names
    at = g.span_at(node)
    return Prim(at, context_paths, [Perform(at, partial(question_effect, names), [*query, *values])])


def question_effect(names: tuple[str, ...], env: Any, *values: Any) -> GetContext:
    """The effect of ``get_context(...)``."""
    return GetContext(dict(zip(names, values, strict=True)))


def _by_name(g: Lowering, node: ast.Call) -> tuple[tuple[str, ...], list[Node]]:
    """The keywords of a call, and their values."""
    names: list[str] = []
    values: list[Node] = []
    for each in node.keywords:
        if each.arg is None:
            g.refuse(each.value, "'**' in this call", "name the arguments")
            continue
        names.append(each.arg)
        values.append(g.value(each.value))
    return tuple(names), values


@form('remember(text, key="name")', takes="s")
def remember(g: Lowering, node: ast.Call) -> Node:
    """Keeps a text for later runs, replacing any text under the same key; returns the note's id."""
    return _note(g, node, "remember", "text", "key")


@form("recall(question, limit=5)", takes="s")
def recall(g: Lowering, node: ast.Call) -> Node:
    """The remembered texts relevant to a question, best first; the latest ones if the question is empty."""
    return _note(g, node, "recall", "query", "limit")


def _note(g: Lowering, node: ast.Call, tool: str, first: str, option: str) -> Node:
    """A call of a notes tool in a flow without notes."""
    options = keywords_of(g, node, 1, 1, option)
    if options is None or not g.granted(tool, node.func):
        return g.refused()
    at, values = g.span_at(node), [g.value(node.args[0]), *g.values(list(options.values()))]
    return Prim(at, unwrapped, [Perform(at, partial(tool_effect, tool, (first, *options)), values)])


def tool_effect(name: str, names: tuple[str, ...], env: Any, *values: Any) -> CallTool:
    """A call of a tool of the notes."""
    return CallTool(name, dict(zip(names, values, strict=True)))


# -- people, time, chance -----------------------------------------------------------------------------------------


@form("ask_human(question, output=str)", takes="s", asks=ASK)
def ask_human(g: Lowering, node: ast.Call) -> Node:
    """Asks a person and returns the answer, of the type ``output``; a waiting durable run takes no memory."""
    return _from_outside(g, node, ASK, asked)


@form("wait_for_signal(name, output=str)", takes="s", asks=SIGNAL)
def wait_for_signal(g: Lowering, node: ast.Call) -> Node:
    """Waits for the next signal of this name and returns its value, of the type ``output``; one sent before is received at once."""
    return _from_outside(g, node, SIGNAL, signal)


def _from_outside(g: Lowering, node: ast.Call, grant: str, effect: Callable[..., Any]) -> Node:
    """The code of a form that waits for data of a type; ``effect`` takes its first argument and the schema."""
    options = keywords_of(g, node, 1, 2, "output")
    if options is None or not g.granted(grant, node.func):
        return g.refused()
    output = node.args[1] if len(node.args) > 1 else options.get("output")
    if output is not None and len(node.args) + len(options) > 2:
        return misused(g, node)
    schema = None if output is None else answer_schema(g, output, text=True)
    at, constant = g.span_at(node), Const(None, None if schema is None else schema["schema"])
    return Perform(at, itself, [Prim(at, effect, [g.value(node.args[0]), constant])])


@form("publish_state(key, value)", takes="s.", asks=PUBLISH)
def publish_state(g: Lowering, node: ast.Call) -> Node:
    """Sets a key of the state of the run, which the host and its pages show; the value is data, and the last one counts."""
    if keywords_of(g, node, 2, 2) is None or not g.granted(PUBLISH, node.func):
        return g.refused()
    at = g.span_at(node)
    return _and_none(at, Perform(at, itself, [Prim(at, published, g.values(node.args))]))


@form('endorse(value, "reason")')
def endorse(g: Lowering, node: ast.Call) -> Node:
    """The value without its sources, as if the user had entered it: the approver takes responsibility."""
    if keywords_of(g, node, 2, 2) is None or not g.granted(ENDORSE, node.func):
        return g.refused()
    at = g.span_at(node)
    return Prim(at, endorsed, [*g.values(node.args), Const(None, at)], waits=0)


@form("sources(value)")
def sources(g: Lowering, node: ast.Call) -> Node:
    """The sources of a value, as a list of texts; empty for values from the program and its user."""
    if keywords_of(g, node, 1, 1) is None:
        return g.refused()
    return Prim(g.span_at(node), sources_of, g.values(node.args), takes_rt=True)


@form("sleep(seconds)", "asyncio.sleep", "time.sleep", takes="x")
def sleep(g: Lowering, node: ast.Call) -> Node:
    """Waits for a number of seconds; a durable run with nothing else to do takes no memory meanwhile."""
    if keywords_of(g, node, 1, 1) is None:
        return g.refused()
    at = g.span_at(node)
    return _and_none(at, Perform(at, itself, [Prim(at, waiting, g.values(node.args))]))


def _drawn(g: Lowering, node: ast.Call, source: Literal["now", "random", "uuid"], *args: Node) -> Node:
    return Perform(g.span_at(node), partial(drawn_effect, source), list(args))


def drawn_effect(source: Literal["now", "random", "uuid"], env: Any, *args: Any) -> Draw:
    """The effect of ``now()``, ``random()`` and ``uuid()``."""
    return Draw(source, *args)


@form("now()", "time.time", gives=float)
def now(g: Lowering, node: ast.Call) -> Node:
    """The time, in seconds since 1970 began (UTC)."""
    return g.refused() if keywords_of(g, node, 0, 0) is None else _drawn(g, node, "now")


@form("random.random()", gives=float)
@form("random()", takes="i")
def random(g: Lowering, node: ast.Call) -> Node:
    """A random float from 0 up to 1; ``random(n)`` is an integer from 0 up to n, without n."""
    if keywords_of(g, node, 0, 1) is None:
        return g.refused()
    return _drawn(g, node, "random", *[Prim(g.span_at(node), below, [each]) for each in g.values(node.args)])


@form("uuid()", "uuid.uuid4", gives=str)
def uuid(g: Lowering, node: ast.Call) -> Node:
    """A unique name: a random UUID as text."""
    return g.refused() if keywords_of(g, node, 0, 0) is None else _drawn(g, node, "uuid")
