"""Procedures that cross from one authority to another: none ever has more than its author, or than its caller.

A matrix made from tables: who wrote the procedure, who calls it, how it is called, how it got there. The procedure tries
every tool there is, by name as data, which is what compiling cannot judge. What ran is compared exactly: a tool that both
may call has to run, so that no case passes because nothing happened. Afterwards the caller tries every tool as well: its
own authority is in force again, however the call ended.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, CallContext, ScriptedProvider
from agentflow.core.data.errors import AgentflowError
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.portable import dump_closure, load_closure
from agentflow.tasks.workflows import Workflow, make_workflow

TOOLS = ("alpha", "beta", "gamma", "delta")
AUTHORS: Mapping[str, frozenset[str] | None] = {
    "host": None,
    "a": frozenset({"alpha", "gamma"}),
    "b": frozenset({"beta", "gamma"}),
    "none": frozenset(),
}
PAIRS = [
    ("a", "host"),
    ("host", "a"),
    ("a", "b"),
    ("b", "a"),
    ("none", "host"),
    ("host", "none"),
    ("a", "a"),
    ("host", "host"),
]


def within(*authors: str) -> set[str]:
    """The tools that all of ``authors`` may call."""
    names = set(TOOLS)
    for author in authors:
        names &= AUTHORS[author] if AUTHORS[author] is not None else names
    return names


def attempt(tag: str) -> str:
    """A form that tries every tool, by name as data, and gives 1."""
    names = " ".join(f'"{name}"' for name in TOOLS)
    return f'(begin (for-each (lambda (n) (try (n (tag "{tag}")) (catch (e) 0))) (list {names})) 1)'


PROBE = f"(lambda (. more) {attempt('crossed')})"


class Ground:
    """A flow whose tools only note that they ran; what model and saved workflows say is set by each case."""

    def __init__(self, root: Path) -> None:
        self.ran: list[tuple[str, str]] = []
        self.asked: list[str] = []
        self.replies: list[Any] = []
        (root / "workflows").mkdir()
        self.flow = AgentFlow(
            provider=ScriptedProvider(lambda request: self.replies.pop(0)), root=root, workflows=root / "workflows"
        )
        for name in TOOLS:
            self.flow.tool(self._noting(name))

        async def call_back(f: Any, ctx: CallContext) -> Any:
            """Call a procedure from a tool."""
            return await ctx.call(f, 1, 2)

        async def call_later(f: Any) -> Any:
            """Call a procedure through the flow."""
            return await self.flow.call(f, 1, 2)

        async def run_with(f: Any) -> Any:
            """Run a program that calls a procedure."""
            return (await self.flow.run("(f 1 2)", bindings={"f": f})).value

        self.callers = {"call_back": call_back, "call_later": call_later, "run_with": run_with}
        for function in self.callers.values():
            self.flow.tool(function)

    def _noting(self, name: str) -> Any:
        async def note(tag: str = "") -> str:
            """Note that this ran."""
            self.ran.append((name, tag))
            return name

        note.__name__ = name
        return note

    def tools_run(self, tag: str) -> set[str]:
        """The tools that ran with this tag."""
        return {name for name, marked in self.ran if marked == tag}

    def allow(self, author: str) -> list[str] | None:
        """What ``author`` is granted: its tools, and the tools that call back, which are not authority of their own."""
        granted = AUTHORS[author]
        return None if granted is None else [*sorted(granted), *self.callers]

    async def procedure(self, author: str, text: str = PROBE, env: SexpEnvironment | None = None) -> Any:
        """The value of a program of ``author``."""
        return (await self.flow.run(text, allow=self.allow(author), env=env)).value

    async def run(self, caller: str, text: str, **options: Any) -> Any:
        """Run a program of ``caller`` that then tries every tool itself."""
        program = f"{text} {attempt('after')}"
        return (await self.flow.run(program, allow=self.allow(caller), **options)).value


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    made = Ground(tmp_path)
    async with made.flow:
        yield made


PHASES = {
    "director": "(lambda (x i) x)",
    "executor": "(lambda (x i) x)",
    "evaluator": "(lambda (r p i) r)",
    "controller": "(lambda (f p r i) (list 'stop r))",
}


def director(phase: str) -> str:
    """A loop of which ``p`` is in one phase; as controller it gives no decision, which is caught."""
    clauses = " ".join(f"({name} {'p' if name == phase else code})" for name, code in PHASES.items())
    return f"(try (director-evaluator-loop (max-iterations 1) (initial-director-input 0) {clauses}) (catch (e) 0))"


WAYS = {
    "call": "(p 1 2)",
    "no_arguments": "(p)",
    "pairs": "(p (list 1) (list 2))",
    "operator": "((car (list p)) 1 2)",
    "operator_of_if": "((if true p list) 1)",
    "lambda": "((lambda (f) (f 1)) p)",
    "tail": "((lambda () (p 1)))",
    "tail_of_many": "(define (go n) (if (= n 0) (p 1) (go (- n 1)))) (go 500)",
    "mutual_tail": "(define (f n) (if (= n 0) (p) (g (- n 1)))) (define (g n) (f n)) (f 300)",
    "let": "(let ((f p)) (f 1))",
    "named_let": "(let loop ((n 2)) (if (= n 0) (p) (loop (- n 1))))",
    "set": "(define f list) (set! f p) (f 1)",
    "redefined": "(define (f . x) 0) (define (g) (f 1)) (set! f p) (g)",
    "captured": "(define (keep f) (lambda () (f 1))) ((keep p))",
    "in_data": '((car (get-field (dict "k" (list p)) "k")) 1)',
    "deep": "(define (down n) (if (= n 0) (p 1) (+ 1 (down (- n 1))))) (down 700)",
    "apply": "(apply p (list 1 2))",
    "apply_apply": "(apply apply (list p (list 1)))",
    "map": "(map p (list 1 2))",
    "map_of_two": "(map p (list 1 2) (list 3 4))",
    "for_each": "(for-each p (list 1 2))",
    "filter": "(filter p (list 1 2))",
    "reduce": "(reduce p 0 (list 1 2))",
    "reduce_without_start": "(reduce p (list 1 2 3))",
    "sort": "(sort (list 3 1 2) p)",
    "cond": "(cond ((p 1) => p) (else 0))",
    "while": "(define n 0) (while (and (< n 1) (p)) (set! n (+ n 1)))",
    "when": "(when (p) (unless (not (p)) 1))",
    "case": "(case (p) ((1) (p)) (else 0))",
    "bind": "(bind f p) (f)",
    "letrec": "(letrec ((f (lambda () (g))) (g p)) (f))",
    "quasiquote": "`(1 ,(p) ,@(list (p)))",
    "macro": "(defmacro m (f) `(,f 1)) (m p)",
    "do": "(do ((i 0 (+ i (p)))) ((= i 2) (p)) (p))",
    "loop": "(loop 2 (p))",
    "and_or": "(and (p) (or (p)))",
    "pmap": "(pmap p (list 1 2))",
    "pmap_narrow": "(pmap p (list 1 2 3) 1)",
    "parallel": "(parallel (p) (p))",
    "parallel_deep": "(parallel (parallel (p) 1) 2)",
    "race": "(race (p) (p))",
    "retry": "(retry 2 (p))",
    "timeout": "(timeout 30 (p))",
    "try": "(try (p) (catch (e) 0))",
    "catch": "(try (raise 1) (catch (e) (p e)))",
    "finally": "(try 1 (finally (p)))",
    "finally_of_error": "(try (try (raise 1) (finally (p))) (catch (e) 0))",
    "raised": "(try (raise p) (catch (e) ((get-field e 'value) 1)))",
    "eval_program": '(eval-program \'(p 1) (bindings (dict "p" p)) (allow alpha beta gamma delta))',
    "eval_text": '(eval-program "(map p (list 1))" (bindings (dict "p" p)) (allow alpha beta gamma delta))',
    "tool": "(call_back (f p))",
    "tool_of_flow": "(call_later (f p))",
    "tool_of_run": "(run_with (f p))",
    "tool_of_closure": "(call_back (f (lambda (x y) (p x y))))",
    "host_callable": "(through p)",
    **{f"phase_{name}": director(name) for name in PHASES},
}
"""How a procedure ``p`` is called."""


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("author", "caller"), PAIRS, ids=[f"{a}-to-{b}" for a, b in PAIRS])
async def test_a_call_has_the_authority_that_author_and_caller_share(
    author: str, caller: str, way: str, ground: Ground
) -> None:
    """However a procedure is called: the tools that both its author and its caller may call run, and no others."""

    async def through(f: Any) -> Any:
        return await ground.flow.call(f, 1)

    p = await ground.procedure(author)
    bindings = {"p": p, "through": through}
    await ground.run(caller, WAYS[way], bindings=bindings)
    assert ground.tools_run("crossed") == within(author, caller)
    assert ground.tools_run("after") == within(caller)


LEAVING = {
    "error": ("(lambda () {} (raise 1))", "(try (p) (catch (e) 0))"),
    "error_in_map": ("(lambda (x) {} (raise 1))", "(try (map p (list 1)) (catch (e) 0))"),
    "error_in_a_branch": ("(lambda () {} (raise 1))", "(try (parallel (p) 1) (catch (e) 0))"),
    "error_past_a_finally": ("(lambda () (try {} (raise 1) (finally 2)))", "(try (p) (catch (e) 0))"),
    "error_deep": (
        "(define (d n) (if (= n 0) (begin {} (raise 1)) (+ 1 (d (- n 1))))) (lambda () (d 400))",
        "(try (p) (catch (e) 0))",
    ),
    "tail_call_of_the_callers": ("(lambda (f) {} (f 1))", "(p (lambda (x) x))"),
    "raced": ("(lambda () {} (done) (while true 1))", "(race (p) (settled))"),
    "raced_deep": (
        "(define (d n) (if (= n 0) (begin {} (done) (while true 1)) (+ 1 (d (- n 1))))) (lambda () (d 400))",
        "(race (p) (settled))",
    ),
    "timed_out": ("(lambda () {} (while true (range 63)))", "(try (timeout 0.3 (p)) (catch (e) 0))"),
}
"""A procedure that ends in another way than with a value, and a call of it."""


@pytest.mark.parametrize("way", LEAVING)
@pytest.mark.parametrize(("author", "caller"), PAIRS[:3], ids=[f"{a}-to-{b}" for a, b in PAIRS[:3]])
async def test_the_callers_authority_is_in_force_again(author: str, caller: str, way: str, ground: Ground) -> None:
    """An error, a time-out, a lost race: what the caller does next, it does with its own authority, no more and no less."""
    text, program = LEAVING[way]
    over = asyncio.Event()
    env = SexpEnvironment({"done": over.set, "settled": over.wait})
    p = await ground.procedure(author, text.format(attempt("crossed")), env)
    await ground.run(caller, program, bindings={"p": p, "settled": over.wait})
    assert ground.tools_run("crossed") == within(author, caller)
    assert ground.tools_run("after") == within(caller)


# -- how a procedure gets there -------------------------------------------------------------------------------------------


def clause(author: str) -> str:
    """The clause of a form that grants what ``author`` is granted."""
    granted = AUTHORS[author]
    return f"(allow {' '.join(sorted(TOOLS if granted is None else granted))})"


def quoted(text: str) -> str:
    """A program text as a literal of the language."""
    return json.dumps(text)


async def by_environment(ground: Ground, author: str) -> tuple[str, dict[str, Any]]:
    env = SexpEnvironment()
    await ground.procedure(author, f"(define (p . more) {attempt('crossed')})", env)
    return "(p)", {"env": env}


async def by_replacing(ground: Ground, author: str) -> tuple[str, dict[str, Any]]:
    env = SexpEnvironment()
    await ground.flow.run("(define (p . more) 0) (define (use) (p 1))", env=env)
    await ground.procedure(author, f"(define (p . more) {attempt('crossed')})", env)
    return "(use)", {"env": env}


async def by_setting(ground: Ground, author: str) -> tuple[str, dict[str, Any]]:
    env = SexpEnvironment()
    await ground.flow.run("(define (p . more) 0) (define (use) (p 1))", env=env)
    await ground.procedure(author, f"(set! p {PROBE})", env)
    return "(use)", {"env": env}


async def by_dump(ground: Ground, author: str) -> tuple[str, dict[str, Any]]:
    data = json.loads(json.dumps(dump_closure(await ground.procedure(author))))
    return "(p)", {"bindings": {"p": load_closure(data, names=ground.flow.engine.names())}}


async def by_dump_of_another(ground: Ground, author: str) -> tuple[str, dict[str, Any]]:
    env = SexpEnvironment({"f": await ground.procedure(author)})
    outer = (await ground.flow.run("(lambda () (f 1))", env=env)).value
    data = json.loads(json.dumps(dump_closure(outer)))
    return "(p)", {"bindings": {"p": load_closure(data, names=ground.flow.engine.names())}}


async def by_dump_of_helpers(ground: Ground, author: str) -> tuple[str, dict[str, Any]]:
    text = f"(let () (define (help) {attempt('crossed')}) (lambda () (list (help) 1)))"
    data = json.loads(json.dumps(dump_closure(await ground.procedure(author, text))))
    return "(p)", {"bindings": {"p": load_closure(data, names=ground.flow.engine.names())}}


async def by_loading_with_grants(ground: Ground, author: str) -> tuple[str, dict[str, Any]]:
    data = dump_closure(await ground.procedure("host"))
    return "(p)", {"bindings": {"p": load_closure(data, grants=AUTHORS[author])}}


async def by_version_1(ground: Ground, author: str) -> tuple[str, dict[str, Any]]:
    data = dump_closure(await ground.procedure("host"))
    entries = [{key: each[key] for key in ("name", "source", "text", "bindings")} for each in data["closures"]]
    old = {"v": 1, "root": 0, "closures": [{**each, "tasks": {}} for each in entries]}
    granted = AUTHORS[author]
    return "(p)", {"bindings": {"p": load_closure(old, grants=TOOLS if granted is None else granted)}}


async def by_factory(ground: Ground, author: str) -> tuple[str, dict[str, Any]]:
    """The host's procedure, created where ``author`` called: what was in force there is what it has."""
    env = SexpEnvironment({"make": await ground.procedure("host", f"(lambda () {PROBE})")})
    return "(p)", {"bindings": {"p": await ground.procedure(author, "(make)", env)}}


async def by_giving(ground: Ground, author: str) -> tuple[str, dict[str, Any]]:
    return "((p))", {"bindings": {"p": await ground.procedure(author, f"(lambda () {PROBE})")}}


async def by_branch(ground: Ground, author: str) -> tuple[str, dict[str, Any]]:
    text = f"(car (pmap (lambda (x) {PROBE}) (list 1 2)))"
    return "(p)", {"bindings": {"p": await ground.procedure(author, text)}}


async def by_hop(ground: Ground, author: str) -> tuple[str, dict[str, Any]]:
    text = f"(define (down n) (if (= n 0) {PROBE} (car (list (down (- n 1)))))) (down 500)"
    return "(p)", {"bindings": {"p": await ground.procedure(author, text)}}


async def by_cleanup(ground: Ground, author: str) -> tuple[str, dict[str, Any]]:
    text = f"(define q 0) (try (raise 1) (catch (e) (try (raise 2) (catch (e) 0) (finally (set! q {PROBE}))))) q"
    return "(p)", {"bindings": {"p": await ground.procedure(author, text)}}


async def by_eval(ground: Ground, author: str) -> tuple[str, dict[str, Any]]:
    return f"((eval-program {quoted(PROBE)} {clause(author)}))", {}


async def by_solve(ground: Ground, author: str) -> tuple[str, dict[str, Any]]:
    ground.replies.append(f"```lisp\n{PROBE}\n```")
    env = SexpEnvironment()
    await ground.flow.run(f'(define p (value-of (solve "a procedure" {clause(author)})))', env=env)
    return "(p)", {"env": env}


async def by_workflow(ground: Ground, author: str) -> tuple[str, dict[str, Any]]:
    granted = AUTHORS[author]
    fields = {"name": "made", "program": PROBE, "allow": None if granted is None else sorted(granted)}
    await ground.flow.workflows.save(make_workflow(fields))
    env = SexpEnvironment()
    await ground.flow.run("(define p (value-of (call-workflow made)))", env=env)
    return "(p)", {"env": env}


async def by_saved_plan(ground: Ground, author: str) -> tuple[str, dict[str, Any]]:
    """A plan that was saved without a word about grants."""
    ground.replies.append(f"```lisp\n{PROBE}\n```")
    plan = (await ground.flow.run(f'(solve "a procedure" {clause(author)})')).value
    await ground.flow.workflows.save(Workflow.from_result(plan, "plan"))
    env = SexpEnvironment()
    await ground.flow.run("(define p (value-of (call-workflow plan)))", env=env)
    return "(p)", {"env": env}


async def by_tool(ground: Ground, author: str) -> tuple[str, dict[str, Any]]:
    p = await ground.procedure(author)

    async def hand_over() -> Any:
        """Give a procedure."""
        return p

    ground.flow.tool(hand_over)
    env = SexpEnvironment()
    await ground.flow.run("(define p (value-of (hand_over)))", env=env)
    return "(p)", {"env": env}


TRANSPORTS = {
    function.__name__: function
    for function in (
        by_environment,
        by_replacing,
        by_setting,
        by_dump,
        by_dump_of_another,
        by_dump_of_helpers,
        by_loading_with_grants,
        by_version_1,
        by_factory,
        by_giving,
        by_branch,
        by_hop,
        by_cleanup,
        by_eval,
        by_solve,
        by_workflow,
        by_saved_plan,
        by_tool,
    )
}


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize(("author", "caller"), PAIRS, ids=[f"{a}-to-{b}" for a, b in PAIRS])
async def test_authority_travels_with_the_procedure(author: str, caller: str, transport: str, ground: Ground) -> None:
    """However a procedure got there: what it may do is what its author and its caller may both do."""
    program, options = await TRANSPORTS[transport](ground, author)
    await ground.run(caller, program, **options)
    assert ground.tools_run("crossed") == within(author, caller)
    assert ground.tools_run("after") == within(caller)


# -- approvals and refusals -----------------------------------------------------------------------------------------------

WRITE = '(system:write_file (file_path "made.txt") (content "x"))'
REACHING = {
    "called": "(p)",
    "mapped": "(map p (list 1))",
    "in_a_branch": "(parallel (p) 1)",
    "from_a_tool": "(call_back (f p))",
    "through_the_flow": "(call_later (f p))",
    "in_a_run_of_its_own": "(run_with (f p))",
    "tail": "((lambda () (p)))",
    "deep": "(let go ((n 300)) (if (= n 0) (p) (car (list (go (- n 1))))))",
    "by_model": "(value-of (boss))",
}


@pytest.mark.parametrize("answer", [None, False, True])
@pytest.mark.parametrize("way", REACHING)
async def test_an_untrusted_procedure_asks_wherever_it_is_called(
    way: str, answer: bool | None, ground: Ground, tmp_path: Path
) -> None:
    """What asks in its author's run asks when the host calls it: nobody to ask, and a refusal, mean no."""
    asked: list[str] = []

    def approve(request: Any) -> bool:
        asked.append(request.tool)
        return bool(answer)

    text = f"(lambda (. more) (value-of {WRITE}))"
    granted = ["system:write_file", "defatom", *(["boss"] if way == "by_model" else [])]
    if way == "by_model":
        arguments = {"file_path": "made.txt", "content": "x"}
        ground.replies += [{"tool_calls": [{"name": "system:write_file", "arguments": arguments}]}, "done"]
        text = '(defatom boss (params) (instructions "Lead.") (tools "system:write_file")) (lambda (. more) (value-of (boss)))'
    p = (await ground.flow.run(text, allow=granted)).value
    program = f"(try {REACHING[way] if way != 'by_model' else '(p)'} (catch (e) 0))"
    await ground.flow.run(program, bindings={"p": p}, **({} if answer is None else {"approve": approve}))
    assert (tmp_path / "made.txt").exists() is (answer is True)
    assert asked == ([] if answer is None else ["system:write_file"])


async def test_the_host_is_not_asked(ground: Ground, tmp_path: Path) -> None:
    """The same action in the host's own procedure needs no approval, unless an untrusted program calls it."""
    p = (await ground.flow.run(f"(lambda () {WRITE})")).value
    await ground.flow.run("(p)", bindings={"p": p})
    assert (tmp_path / "made.txt").exists()
    (tmp_path / "made.txt").unlink()
    await ground.flow.run("(p)", bindings={"p": p}, allow=["system:write_file"])
    assert not (tmp_path / "made.txt").exists()


DIRECT = {
    "tool": ("(alpha)", "alpha"),
    "task": ("(plain)", "plain"),
    "solve": ('(solve "x" (allow alpha))', "solve"),
    "workflow": ("(call-workflow saved)", "saved"),
    "context": ('(get_context (query "x"))', "get_context"),
    "defatom": ('(defatom t (params) (instructions "x"))', "defatom"),
}


@pytest.mark.parametrize("kind", DIRECT)
async def test_what_lacks_its_grant_is_refused_before_it_starts(kind: str, ground: Ground) -> None:
    """A procedure of the host, called within grants, gets a FAILED result or an error, and a Warning says so."""
    form, name = DIRECT[kind]
    ground.flow.task_system.register_template({"name": "plain", "subtype": "plain", "params": "", "instructions": "x"})
    await ground.flow.workflows.save(make_workflow({"name": "saved", "program": "1"}))
    p = (await ground.flow.run(f"(lambda () (value-of {form}))")).value
    events: list[Any] = []
    ground.flow.subscribe(events.append)
    with pytest.raises(AgentflowError) as caught:
        await ground.flow.run("(p)", bindings={"p": p}, allow=[])
    assert caught.value.code == "name/not-granted" and name in caught.value.message
    started = {type(event).__name__ for event in events if type(event).__name__.endswith("Started")}
    assert started == {"RunStarted"}
    warned = [event.details["name"] for event in events if type(event).__name__ == "Warning"]
    assert warned == ([] if kind == "defatom" else [name])


@pytest.mark.parametrize(("author", "caller"), [("a", "host"), ("a", "b"), ("none", "host")])
async def test_a_task_has_its_authors_tools(author: str, caller: str, ground: Ground) -> None:
    """The model of a task that an untrusted program left in a shared environment may call what both may, and no more."""
    env = SexpEnvironment()
    tools = " ".join(sorted(AUTHORS[author] or ()))
    definition = f'(defatom boss (params) (instructions "Lead.") (tools {tools}))'
    granted, callers = AUTHORS[author], AUTHORS[caller]
    await ground.flow.run(definition, env=env, allow=["defatom", *sorted(granted or ())])
    calls = [{"name": name, "arguments": {"tag": "crossed"}} for name in TOOLS]
    ground.replies += [{"tool_calls": calls}, "done"]
    await ground.flow.run("(boss)", env=env, allow=None if callers is None else ["boss", *sorted(callers)])
    assert ground.tools_run("crossed") == within(author, caller)
