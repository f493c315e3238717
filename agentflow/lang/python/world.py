"""The forms with effects outside of the program: people, time, files, models, other workflows."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from agentflow.core.data.known_names import ASK, DEFINE, ENDORSE, PUBLISH, SIGNAL, NameInfo
from agentflow.core.events.effects import CallTool, CallWorkflow, Draw, GetContext, LogMessage
from agentflow.lang.code_writer import LOAD
from agentflow.lang.literals import mismatch
from agentflow.lang.python.declarations import answer_schema, define_at_start
from agentflow.lang.python.emitter import Emitter
from agentflow.lang.python.forms import form, keywords_of, misused
from agentflow.lang.python.requests import (
    asked,
    below,
    endorsed,
    program_text,
    published,
    signal,
    sources_of,
    unwrapped,
    waiting,
)
from agentflow.lang.python.support import (
    arguments_of,
    context_paths,
    data_of,
    data_of_dict,
    log_text,
    outcome_of,
    outcome_of_dict,
    task_procedure,
)
from agentflow.lang.python.takes import literal
from agentflow.lib.text.suggest import did_you_mean


def call_task(g: Emitter, node: ast.Call, name: str, function: Any = data_of) -> ast.expr:
    """A call of a task or tool: its data or text, or with ``outcome_of`` its result."""
    own = name in g.own_tasks or g.info(name).untrusted
    if not g.granted(name, node.func, own=own):
        return g.const(None)
    g.meanings[node] = ("effect", name)
    args, names, spread = _named(g, node, name)
    constant = g.packed_constant(("names", names), lambda: names)
    arguments = [g.name("rt"), g.name("d"), g.env(), g.const(name), constant, g.tuple_of(args), g.span_constant(node)]
    if spread:
        every = g.ours(arguments_of, constant, g.tuple_of(args), *spread)
        arguments = [*arguments[:4], *arguments[6:], g.long(every) if g.labelled else every]
        return g.await_(g.ours(_SPREAD[function], *arguments))
    return g.await_(g.ours(function, *arguments))


def _named(g: Emitter, node: ast.Call, name: str) -> tuple[list[ast.expr], tuple[str, ...], list[ast.expr]]:
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
    spread: list[ast.expr] = []
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


def _check_literal(g: Emitter, title: str, info: NameInfo, name: str, node: ast.expr) -> None:
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


_SPREAD: dict[Any, Any] = {data_of: data_of_dict, outcome_of: outcome_of_dict}
"""A callable to call with the arguments in a dict."""


def task_value(g: Emitter, node: ast.Name, name: str) -> ast.expr:
    """A task or tool as a value: a procedure of its parameters in order."""
    info: NameInfo = g.info(name)
    g.meanings[node] = ("effect", name)
    if not g.granted(name, node, own=name in g.own_tasks or info.untrusted):
        return g.const(None)
    names = (
        tuple(each for each, about in (info.parameters or {}).items() if about.required)
        or tuple(info.parameters or ())[:1]
    )
    constant = g.packed_constant(("names", names), lambda: names)
    return g.ours(task_procedure, g.name("rt"), g.env(), g.const(name), constant, g.span_constant(node))


def record(g: Emitter, node: ast.Call, name: str) -> ast.expr:
    """``Review(worst="...", grade="low")``: a dict with the fields of the class, in order."""
    fields: dict[str, ast.expr | None] = g.records[name]
    g.meanings[node] = ("record", name)
    values = dict(zip(fields, node.args, strict=False))
    values.update({each.arg: each.value for each in node.keywords if each.arg is not None})
    if any(each.arg is None for each in node.keywords):
        g.refuse(node, f"'**' in {name}(...)", "a record is a dict: {**d} has the fields of d")
        return g.const(None)
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
        return g.const(None)
    entries = [(each, values.get(each) or default) for each, default in fields.items()]
    keys: list[ast.expr | None] = [g.const(each) for each, _ in entries]
    return ast.Dict(keys, [g.value(value) for _, value in entries if value is not None], **g.loc)


def _perform(g: Emitter, node: ast.Call, effect: ast.expr) -> ast.expr:
    return g.await_(g.call(g.rt("perform"), [effect, g.span_constant(node)]))


def _and_none(g: Emitter, done: ast.expr) -> ast.expr:
    """None, after an effect."""
    return ast.Subscript(g.tuple_of([g.const(None), done]), g.const(0), LOAD, **g.loc)


@form("outcome(review(path))")
def outcome(g: Emitter, node: ast.Call) -> ast.expr:
    """The result of a task, tool or workflow (``.status``, ``.content``), which is not raised when it failed."""
    inner = node.args[0] if len(node.args) == 1 and not node.keywords else None
    if isinstance(inner, ast.Await):
        inner = inner.value
    if isinstance(inner, ast.Call) and is_workflow_call(inner) and g.scope.find("call_workflow") is None:
        g.meanings[inner] = ("form", "call_workflow")
        with g.at(inner):
            return _result_of_workflow(g, inner)
    name = _task_name(g, inner.func) if isinstance(inner, ast.Call) else None
    if name is None or not isinstance(inner, ast.Call):
        g.wrong(node, "form/arity", "outcome takes a call of a task, tool or workflow", "write outcome(review(path))")
        return g.const(None)
    with g.at(inner):
        return call_task(g, inner, name, outcome_of)


def is_workflow_call(node: ast.Call) -> bool:
    """Whether a call is written ``call_workflow(...)``."""
    return isinstance(node.func, ast.Name) and node.func.id == "call_workflow"


def _task_name(g: Emitter, function: ast.expr) -> str | None:
    if isinstance(function, ast.Name):
        name = g.callable_name(function.id) if g.scope.find(function.id) is None else None
    elif isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        name = f"{function.value.id}:{function.attr}"
    else:
        name = None
    return name if name is not None and g.kind(name) in ("task", "tool") else None


@form("print(a, b, ...)", asks="log-message")
def print_(g: Emitter, node: ast.Call) -> ast.expr:
    """Writes a message of the run's log."""
    options = {each.arg: each.value for each in node.keywords}
    if not {"sep", "end", "flush"}.issuperset(map(str, options)):
        g.wrong(node, "form/arity", "print takes values, and sep=", "it writes a message of the run's log, to no file")
        return g.const(None)
    args = g.value(ast.List(node.args, LOAD, **g.loc))
    separator = g.value(options["sep"]) if "sep" in options else g.const(" ")
    message = g.await_(g.ours(log_text, g.name("rt"), separator, args))
    return _and_none(g, _perform(g, node, g.call(g.const_param(LogMessage, "LogMessage"), [message])))


# -- models -------------------------------------------------------------------------------------------------------


@form("ask(prompt, output=str)")
def ask(g: Emitter, node: ast.Call) -> ast.expr:
    """Asks the model once; ``output`` is the type of the answer."""
    options = keywords_of(g, node, 1, 1, "output")
    if options is None:
        return g.const(None)
    if g.allow is not None and DEFINE not in g.allow:
        hint = "call the tasks it was granted, or grant it 'defatom'"
        g.wrong(node.func, "name/not-granted", "this program may not ask the model", hint)
        return g.const(None)
    output = answer_schema(g, options["output"]) if "output" in options else None
    fields: dict[str, Any] = {
        "type": "atomic",
        "params": {"prompt": {}},
        "instructions": "{{prompt}}",
        "tools": [],
        **({"output_format": output} if output else {}),
    }
    name = define_at_start(g, node, fields)
    g.meanings[node] = ("effect", name)
    names = g.packed_constant(("names", ("prompt",)), lambda: ("prompt",))
    prompt = g.tuple_of([g.value(node.args[0])])
    first = [g.name("rt"), g.name("d"), g.env(), g.const(name)]
    return g.await_(g.ours(data_of, *first, names, prompt, g.span_constant(node)))


@form('solve(goal, allow=["review"], max_rounds=3, max_model_calls=20, inputs={}, explore=False)', asks="solve")
def solve(g: Emitter, node: ast.Call) -> ast.expr:
    """Lets a model write a program for the goal, checks it and runs it. It may call only the allowed names."""
    options = keywords_of(g, node, 1, 1, "allow", "max_rounds", "max_model_calls", "inputs", "explore")
    if options is None or not g.granted("solve", node.func):
        return g.const(None)
    allow = _allowed(g, options)
    goal = g.value(node.args[0])
    return g.operation_at("solve", node, allow, _options(g, options), g.env(), goal, *map(g.value, options.values()))


@form("eval_program(text, bindings={}, allow=[], max_steps=1000)", takes="s")
def eval_program(g: Emitter, node: ast.Call) -> ast.expr:
    """Checks and runs a text in Python, which may call only the allowed names; returns its value."""
    options = keywords_of(g, node, 1, 1, "bindings", "allow", "max_steps")
    if options is None:
        return g.const(None)
    allow = _allowed(g, options)
    text = g.ours(program_text, g.value(node.args[0]))
    values = [g.value(each) for each in options.values()]
    return g.operation_at("eval-program", node, allow, _options(g, options), g.env(), text, *values)


def _allowed(g: Emitter, options: dict[str, ast.expr]) -> ast.expr:
    """The names that the argument ``allow`` lists, as a constant; it is taken out of ``given``."""
    allow = options.pop("allow", None)
    names = () if allow is None else _texts(allow)
    if names is None:
        assert allow is not None
        g.wrong(allow, "form/clause", "'allow' is a list of names", 'write allow=["review"]')
        names = ()
    return g.packed_constant(("names", names), lambda: names)


def _options(g: Emitter, keywords: dict[str, ast.expr]) -> ast.expr:
    options = tuple(each.replace("_", "-") for each in keywords)
    return g.packed_constant(("names", options), lambda: options)


def _texts(node: ast.expr) -> tuple[str, ...] | None:
    if not isinstance(node, ast.List | ast.Tuple):
        return None
    texts = [each.value for each in node.elts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return tuple(texts) if len(texts) == len(node.elts) else None


@form("director_evaluator_loop(max_iterations, first, director, executor, evaluator, controller)")
def director_loop(g: Emitter, node: ast.Call) -> ast.expr:
    """Plans, executes, evaluates and decides, for at most a number of rounds: ``controller`` returns ("continue", next) or ("stop", value)."""
    names = tuple(DIRECTOR)
    options = keywords_of(g, node, 0, len(names), *names)
    if options is None:
        return g.const(None)
    values = {**dict(zip(names, node.args, strict=False)), **options}
    if len(values) != len(names) or len(node.args) + len(options) != len(names):
        return misused(g, node)
    clauses = tuple(DIRECTOR[each] for each in values)
    constant = g.packed_constant(("names", clauses), lambda: clauses)
    return g.operation_at("director-loop", node, constant, *map(g.value, values.values()))


DIRECTOR = {
    "max_iterations": "max-iterations",
    "first": "initial-director-input",
    **{each: each for each in ("director", "executor", "evaluator", "controller")},
}
"""The parameters of a director loop, and the clauses that they are."""


# -- other workflows, files, notes --------------------------------------------------------------------------------


@form('call_workflow("name", parameter=value)')
def call_workflow(g: Emitter, node: ast.Call) -> ast.expr:
    """The value of a saved workflow; a failed one raises."""
    return g.ours(unwrapped, _result_of_workflow(g, node))


def _result_of_workflow(g: Emitter, node: ast.Call) -> ast.expr:
    first = node.args[0] if len(node.args) == 1 else None
    if not isinstance(first, ast.Constant) or not isinstance(first.value, str):
        return misused(g, node)
    if not g.granted(first.value, first):
        return g.const(None)
    return _perform(
        g, node, g.call(g.const_param(CallWorkflow, "CallWorkflow"), [g.const(first.value), _dict(g, node)])
    )


@form('get_context("what matters")')
def get_context(g: Emitter, node: ast.Call) -> ast.expr:
    """The paths of the files that a question is about, best first."""
    if g.allow is not None and not g.allow.intersection(("get_context", "system:get_context")):
        g.granted("get_context", node.func)
        return g.const(None)
    if len(node.args) > 1 or (node.args and any(each.arg == "query" for each in node.keywords)):
        return misused(g, node)
    query = ast.keyword("query", node.args[0]) if node.args else None
    whole = ast.Call(node.func, [], [*([query] if query else []), *node.keywords], **g.loc)
    effect = g.call(g.const_param(GetContext, "GetContext"), [_dict(g, whole)])
    return g.ours(context_paths, _perform(g, node, effect))


def _dict(g: Emitter, node: ast.Call) -> ast.expr:
    """The keywords of a call as a dict."""
    keys: list[ast.expr | None] = []
    values: list[ast.expr] = []
    for each in node.keywords:
        if each.arg is None:
            g.refuse(each.value, "'**' in this call", "name the arguments")
            continue
        keys.append(g.const(each.arg))
        values.append(g.value(each.value))
    return ast.Dict(keys, values, **g.loc)


@form('remember(text, key="name")', takes="s")
def remember(g: Emitter, node: ast.Call) -> ast.expr:
    """Keeps a text for later runs, replacing any text under the same key; returns the note's id."""
    return _note(g, node, "remember", "text", "key")


@form("recall(question, limit=5)", takes="s")
def recall(g: Emitter, node: ast.Call) -> ast.expr:
    """The remembered texts relevant to a question, best first; the latest ones if the question is empty."""
    return _note(g, node, "recall", "query", "limit")


def _note(g: Emitter, node: ast.Call, tool: str, first: str, option: str) -> ast.expr:
    """A call of a notes tool in a flow without notes."""
    options = keywords_of(g, node, 1, 1, option)
    if options is None or not g.granted(tool, node.func):
        return g.const(None)
    g.meanings[node] = ("effect", tool)
    values = [g.value(node.args[0]), *map(g.value, options.values())]
    arguments = ast.Dict([g.const(first), *map(g.const, options)], values, **g.loc)
    effect = g.call(g.const_param(CallTool, "CallTool"), [g.const(tool), arguments])
    return g.ours(unwrapped, _perform(g, node, effect))


# -- people, time, chance -----------------------------------------------------------------------------------------


@form("ask_human(question, output=str)", takes="s", asks=ASK)
def ask_human(g: Emitter, node: ast.Call) -> ast.expr:
    """Asks a person and returns the answer, of the type ``output``; a waiting durable run takes no memory."""
    return _from_outside(g, node, ASK, asked)


@form("wait_for_signal(name, output=str)", takes="s", asks=SIGNAL)
def wait_for_signal(g: Emitter, node: ast.Call) -> ast.expr:
    """Waits for the next signal of this name and returns its value, of the type ``output``; one sent before is received at once."""
    return _from_outside(g, node, SIGNAL, signal)


def _from_outside(g: Emitter, node: ast.Call, grant: str, effect: Callable[..., Any]) -> ast.expr:
    """The code of a form that waits for data of a type; ``effect`` takes its first argument and the schema."""
    options = keywords_of(g, node, 1, 2, "output")
    if options is None or not g.granted(grant, node.func):
        return g.const(None)
    output = node.args[1] if len(node.args) > 1 else options.get("output")
    if output is not None and len(node.args) + len(options) > 2:
        return misused(g, node)
    schema = None if output is None else answer_schema(g, output, text=True)
    constant = g.const(None)
    if schema is not None:
        held = schema["schema"]
        constant = g.packed_constant(("schema", len(g.packed)), lambda: held)
    return _perform(g, node, g.ours(effect, g.value(node.args[0]), constant))


@form("publish_state(key, value)", takes="s.", asks=PUBLISH)
def publish_state(g: Emitter, node: ast.Call) -> ast.expr:
    """Sets a key of the state of the run, which the host and its pages show; the value is data, and the last one counts."""
    if keywords_of(g, node, 2, 2) is None or not g.granted(PUBLISH, node.func):
        return g.const(None)
    return _and_none(g, _perform(g, node, g.ours(published, *map(g.value, node.args))))


@form('endorse(value, "reason")')
def endorse(g: Emitter, node: ast.Call) -> ast.expr:
    """The value without its sources, as if the user had entered it: the approver takes responsibility."""
    if keywords_of(g, node, 2, 2) is None or not g.granted(ENDORSE, node.func):
        return g.const(None)
    value, reason = map(g.value, node.args)
    return g.await_(g.ours(endorsed, g.name("rt"), value, reason, g.span_constant(node)))


@form("sources(value)")
def sources(g: Emitter, node: ast.Call) -> ast.expr:
    """The sources of a value, as a list of texts; empty for values from the program and its user."""
    if keywords_of(g, node, 1, 1) is None:
        return g.const(None)
    return g.long(g.ours(sources_of, g.name("rt"), g.value(node.args[0])))


@form("sleep(seconds)", "asyncio.sleep", "time.sleep", takes="x")
def sleep(g: Emitter, node: ast.Call) -> ast.expr:
    """Waits for a number of seconds; a durable run with nothing else to do takes no memory meanwhile."""
    if keywords_of(g, node, 1, 1) is None:
        return g.const(None)
    return _and_none(g, _perform(g, node, g.ours(waiting, g.value(node.args[0]))))


def _draw(g: Emitter, node: ast.Call, source: str, *more: ast.expr) -> ast.expr:
    return _perform(g, node, g.call(g.const_param(Draw, "Draw"), [g.const(source), *more]))


@form("now()", "time.time", gives=float)
def now(g: Emitter, node: ast.Call) -> ast.expr:
    """The time, in seconds since 1970 began (UTC)."""
    return g.const(None) if keywords_of(g, node, 0, 0) is None else _draw(g, node, "now")


@form("random.random()", gives=float)
@form("random()", takes="i")
def random(g: Emitter, node: ast.Call) -> ast.expr:
    """A random float from 0 up to 1; ``random(n)`` is an integer from 0 up to n, without n."""
    if keywords_of(g, node, 0, 1) is None:
        return g.const(None)
    return _draw(g, node, "random", *([g.ours(below, g.value(node.args[0]))] if node.args else []))


@form("uuid()", "uuid.uuid4", gives=str)
def uuid(g: Emitter, node: ast.Call) -> ast.expr:
    """A unique name: a random UUID as text."""
    return g.const(None) if keywords_of(g, node, 0, 0) is None else _draw(g, node, "uuid")
