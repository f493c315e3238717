"""A strict policy: what a test depended on counts for what is done, given and changed because of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, AgentflowError, Labelled, Provenance, ScriptedProvider, Sink
from agentflow.core.data.errors import ConfigurationError
from agentflow.tasks.workflows import Workflow
from tests.provenance.strict_programs import SECRETS, Observer, differ, leaks
from tests.provenance.test_durable import gone_on, interrupted

FLOWS = {
    "if": "(if (> s 1) (send (to 1)) (send (to 2)))",
    "an arm that is not there": "(if (> s 1) (send (to 1)))",
    "the value of if": "(send (to (if (> s 1) 1 2)))",
    "cond": "(cond ((> s 2) (send (to 1))) ((> s 1) (send (to 2))) (else (send (to 3))))",
    "cond =>": "(cond ((member 5 items) => (lambda (x) (send (to 1)))) (else (send (to 2))))",
    "case": "(case s ((0) (send (to 1))) (else (send (to 2))))",
    "when": "(when (> s 1) (send (to 1)))",
    "unless": "(unless (> s 1) (send (to 1)))",
    "and": "(and (> s 1) (send (to 1)))",
    "or": "(or (> s 1) (send (to 1)))",
    "the value of and": "(send (to (and (> s 1) 7)))",
    "the value of or": "(send (to (or (> s 1) 7)))",
    "not": "(send (to (not (> s 1))))",
    "while": "(define i 0) (while (< i s) (send (to 1)) (set! i (+ i 1)))",
    "after while": "(define i 0) (while (< i s) (set! i (+ i 1))) (send (to i))",
    "do": "(do ((i 0 (+ i 1))) ((= i s) 0) (send (to i)))",
    "loop": "(loop s (send (to 1)))",
    "the value of loop": "(send (to (length (loop-values))))",
    "the value of the last round": "(send (to (loop s 7)))",
    "a variable defined in an arm": "(define (f) (if (> s 1) (define x 1)) (try (begin x 7) (catch (e) 0))) (send (to (f)))",
    "named let": "(let go ((i 0)) (if (< i s) (begin (send (to i)) (go (+ i 1))) 0))",
    "rounds of a named let": "(send (to (let go ((i 0) (n 0)) (if (< i s) (go (+ i 1) (+ n 1)) n))))",
    "recursion": "(define (f i) (if (< i s) (+ 1 (f (+ i 1))) 0)) (send (to (f 0)))",
    "map over a list": "(map (lambda (x) (send (to 1))) items)",
    "how many of map": "(send (to (length (map (lambda (x) 1) items))))",
    "for-each": "(for-each (lambda (x) (send (to 1))) items)",
    "filter by a test": "(send (to (filter (lambda (x) (> x s)) (list 0 1 2 3 4))))",
    "how many of filter": "(send (to (length (filter (lambda (x) (> x s)) (list 0 1 2 3 4)))))",
    "reduce": "(send (to (reduce (lambda (n x) (+ n 1)) 0 items)))",
    "reduce with a test": "(send (to (reduce (lambda (n x) (if (> x s) x n)) 0 (list 1 2 3))))",
    "sort by a comparison": "(send (to (sort (list 1 2 3) (lambda (a b) (if (> s 1) (< a b) (> a b))))))",
    "pmap": "(pmap (lambda (x) (send (to 1))) items)",
    "an arm in pmap": "(send (to (pmap (lambda (x) (if (> x s) 1 0)) (list 1 2 3))))",
    "parallel": "(send (to (parallel (if (> s 1) 1 2) 3)))",
    "an arm in parallel": "(parallel (if (> s 1) (send (to 1))) 3)",
    "the operator": "((if (> s 1) (lambda () (send (to 1))) (lambda () 2)))",
    "a name as operator": "((if (> s 1) 'send 'length) (to (list 1)))",
    "apply": "(apply (if (> s 1) + *) (list 2 3)) (send (to (apply (if (> s 1) + *) (list 2 3))))",
    "member": "(send (to (if (member 5 items) 1 2)))",
    "a key": '(define d (if (> s 1) (dict "a" 1) (dict))) (send (to (length (keys d))))',
    "set! in an arm": "(define x 0) (if (> s 1) (set! x 1)) (send (to x))",
    "set! in the other arm": "(define x 0) (define y 1) (if (> s 1) (set! x 1)) (if (= x 0) (set! y 0)) (send (to y))",
    "set! of a local": "(define (f) (let ((x 0)) (if (> s 1) (set! x 1)) x)) (send (to (f)))",
    "set! of a captured local": "(define (f) (let ((x 0)) (if (> s 1) (set! x 1)) (lambda () x))) (send (to ((f))))",
    "set! of a parameter": "(define (f x) (if (> s 1) (set! x 1)) x) (send (to (f 0)))",
    "set! in a procedure called in an arm": "(define x 0) (define (f) (set! x 1)) (if (> s 1) (f)) (send (to x))",
    "set! in a loop": "(define n 0) (let go ((i 0)) (set! n (+ n 1)) (if (< i s) (go (+ i 1)) 0)) (send (to n))",
    "set! for each": "(define n 0) (for-each (lambda (x) (set! n (+ n 1))) items) (send (to n))",
    "set! in rounds": "(define n 0) (loop s (set! n (+ n 1))) (send (to n))",
    "define in an arm": "(if (> s 1) (define x 1)) (send (to (try x (catch (e) 0))))",
    "define in an arm of a body": "(define (f) (if (> s 1) (define x 1)) (try x (catch (e) 0))) (send (to (f)))",
    "a task defined in an arm": (
        '(if (> s 1) (defatom t (params) (instructions "x"))) (send (to (try (begin (t) 1) (catch (e) 0))))'
    ),
    "a call that may fail": "(try (begin (first items) (send (to 1))) (catch (e) 0))",
    "the handler": "(try (first items) (catch (e) (send (to 1))))",
    "the value of try": "(send (to (try (begin (first items) 1) (catch (e) 2))))",
    "set! after a call that may fail": (
        "(define x 0) (try (begin (first items) (set! x 1)) (catch (e) 0)) (send (to x))"
    ),
    "set! after a call that may fail, of a local": (
        "(define (f) (let ((x 0)) (try (begin (first items) (set! x 1)) (catch (e) 0)) x)) (send (to (f)))"
    ),
    "an error in an arm": '(try (begin (if (> s 1) (error "x")) (send (to 1))) (catch (e) 0))',
    "an error in a procedure in an arm": (
        '(define (f) (if (> s 1) (error "x"))) (try (begin (f) (send (to 1))) (catch (e) 0))'
    ),
    "raise": "(try (begin (if (> s 1) (raise 1)) (send (to 1))) (catch (e) 0))",
    "what is refused": "(try (begin (if (> s 1) (send (to 0))) (send (to 1))) (catch (e) 0))",
    "what an error is": "(send (to (try (if (> s 1) (error \"a\") (first '())) (catch (e) (get-field e 'code)))))",
    "guard": "(guard (e ((list? e) 0) (else (send (to 1)))) (first items))",
    "finally": "(try (try (first items) (finally (send (to 1)))) (catch (e) 0))",
    "dynamic-wind": (
        "(define x 0) (guard (e (else 0)) (dynamic-wind (lambda () 0) (lambda () (first items) (set! x 1)) (lambda () 0)))"
        " (send (to x))"
    ),
    "retry": "(define n 0) (try (retry (+ s 1) (begin (send (to 1)) (raise (failing-task)))) (catch (e) 0))",
    "tries of retry": "(try (retry s (send (to 1))) (catch (e) 0))",
    "timeout": '(try (timeout (- s 1) (send (to 1))) (catch (e) 0)) (send (to "end"))',
    "director": (
        "(send (to (director-evaluator-loop (max-iterations 4) (initial-director-input 0) (director (lambda (a i) i))"
        " (executor (lambda (p i) p)) (evaluator (lambda (r p i) r))"
        " (controller (lambda (b p r i) (if (> i s) (list 'stop r) (list 'continue 0)))))))"
    ),
    "rounds of a director": (
        "(director-evaluator-loop (max-iterations s) (initial-director-input 0) (director (lambda (a i) (send (to i))))"
        " (executor (lambda (p i) p)) (evaluator (lambda (r p i) r)) (controller (lambda (b p r i) (list 'continue 0))))"
    ),
    "eval-program": "(if (> s 1) (eval-program '(send (to 1)) (allow send)))",
    "an arm in eval-program": ('(send (to (eval-program \'(if (> k 1) 1 2) (bindings (dict "k" s)))))'),
    "an error in eval-program": (
        '(try (begin (eval-program \'(if (> k 1) (error "x")) (bindings (dict "k" s))) (send (to 1))) (catch (e) 0))'
    ),
    "names that are made": "(if (> s 1) (gensym)) (send (to (symbol->string (gensym))))",
    "what sources says": "(send (to (length (sources (if (> s 1) other 1)))))",
    "an endorsement in an arm": '(send (to (if (> s 1) (endorse 1 "r") 2)))',
    "a branch that fails": '(define r (try (parallel (if (> s 1) (error "x") 1) 2) (catch (e) 0))) (send (to (length (list r r)))) (send (to r))',
    "race": '(send (to (race (if (> s 1) (error "x") 1) (begin (sleep 0.05) 2))))',
}
"""How the choice by a secret could show, other than by time: a program each. ``s``, ``items`` and ``text`` are secret."""
SAME = {"the value of loop", "retry", "apply", "finally", "a task defined in an arm"}
"""Those that are refused otherwise, or show nothing without a strict policy either."""
GOES_ON = {
    "a choice of many clauses": f'(define (f x) (cond {" ".join([f"((= x {n}) {n})" for n in range(700)])})) (f 3) (send (to "a"))',
    "after an arm": '(define x (if (> s 1) 1 2)) (send (to "a"))',
    "after a procedure": '(define (f n) (if (> s n) 1 2)) (f 0) (send (to "a"))',
    "after try": '(try (first items) (catch (e) 0)) (send (to "a"))',
    "after a loop": '(loop s 1) (while (< 9 s) 0) (send (to "a"))',
    "for each of the user's": '(for-each (lambda (u) (if (> s 1) 1) (send (to u))) (list "a"))',
    "a list filtered by the user": '(for-each (lambda (u) (send (to u))) (filter (lambda (u) (string=? u "a")) (list "a" "b")))',
    "beside": '(parallel (if (> s 1) 1 2) (send (to "a")))',
    "a test of the user's": '(if (> 2 1) (send (to "a")))',
    "a variable changed in any case": '(define x 0) (set! x (if (> s 1) 1 x)) (send (to "a"))',
    "a count of its own": (
        '(define (f) (let ((n 0)) (for-each (lambda (x) (set! n (+ n x))) (list 1 2)) n)) (if (> s 1) (f)) (send (to "a"))'
    ),
    "an endorsed test": '(if (endorse (> s -5) "asked") (send (to "a")))',
    "in a long program": "(if (> s 1) 1 2)\n" * 40
    + "\n".join([f"(define (g{i} x) (if (> x {i}) (+ x {i}) (* x {i} (- x {i}))))" for i in range(150)])
    + "\n(if (> s 1) 1 2)" * 40
    + '(send (to "a"))',
    "what the test allows": '(if (> s -5) (note (to "x"))) (send (to "a"))',
}
"""What a strict policy lets through: each of these sends one thing."""


@pytest.fixture
async def observer(tmp_path: Path) -> Any:
    """Sees what programs send under a strict policy."""
    watching = Observer(tmp_path)
    async with watching.flow:
        yield watching


@pytest.mark.parametrize("name", FLOWS)
async def test_nothing_sent_tells_a_secret(name: str, observer: Observer) -> None:
    """Whatever way the choice takes to what is sent, runs that differ in the secret send the same, or are ended."""
    text = f"(define other (note (to 1)))\n(define (loop-values) (list s))\n{FLOWS[name]}"
    runs = [await observer.run(text, each) for each in SECRETS]
    assert not any([differ(runs[0], each) for each in runs[1:]]), runs
    each_caught = "(define (show x) (try (send (to x)) (catch (e) 0)))\n(define (itself x) x)"
    runs = [
        await observer.run(f"{each_caught}\n{text.replace('(send (to ', '(show (itself ')}\n(show 0)", each)
        for each in SECRETS
    ]
    assert not any([differ(runs[0], each) for each in runs[1:]]), runs
    caught = f'(define other (note (to 1)))\n(define (loop-values) (list s))\n(try (begin {FLOWS[name]}) (catch (e) 0))\n(send (to "end"))'
    runs = [await observer.run(caught, each) for each in SECRETS]
    assert runs[0][1] == runs[1][1] == runs[2][1], runs
    assert runs[0][1][-1:] == ["end"] or "define" in FLOWS[name], runs


@pytest.mark.parametrize("name", [each for each in FLOWS if each not in SAME])
async def test_it_would_be_told_otherwise(name: str, tmp_path: Path) -> None:
    """The same programs tell it without ``strict``, so that the test above is one."""
    watching = Observer(tmp_path, strict=False)
    text = f"(define other (note (to 1)))\n(define (loop-values) (list s))\n{FLOWS[name]}"
    async with watching.flow:
        runs = [await watching.run(text, each) for each in SECRETS]
    assert len({repr(seen) for _, seen in runs}) > 1 or any([end == "failed" for end, _ in runs]), runs


@pytest.mark.parametrize("name", GOES_ON)
async def test_what_does_not_depend_on_it_is_done(name: str, observer: Observer) -> None:
    """A choice counts for its arms, and for nothing that is done in any case."""
    for secret in SECRETS:
        assert await observer.run(GOES_ON[name], secret) == ("ended", ["a"])


async def test_random_programs_tell_no_secret(observer: Observer) -> None:
    """Neither do programs that are put together at random (by hand: ``python -m tests.provenance.strict_programs --count 20000``)."""
    for seed in range(20):
        assert await leaks(observer, seed) is None


SECRET = {"s": Labelled(2, "web"), "items": Labelled([1, 2], "web")}


@pytest.fixture
def model() -> ScriptedProvider:
    """A model that says yes."""
    return ScriptedProvider(["yes"] * 20)


@pytest.fixture
async def flow(model: ScriptedProvider, tmp_path: Path) -> Any:
    """A flow with a strict policy that allows everything."""
    async with AgentFlow(provider=model, root=tmp_path, provenance=Provenance(strict=True)) as opened:
        yield opened


@pytest.mark.parametrize(
    "program",
    [
        "(define x 0) (define (f) (set! x 1)) (if (> s 1) (f)) x",
        '(if (> s 1) (defatom t (params) (instructions "x"))) 0',
        "(define (g) (let ((x 0)) (try (begin (first items) (let ((f (lambda () (set! x 1)))) (f))) (catch (e) (raise e))))) (g)",
    ],
)
async def test_a_change_that_its_absence_would_not_tell_is_refused(program: str, flow: AgentFlow) -> None:
    """What an arm changes that is not written in it is refused, with what to write instead: the error says what it depends on."""
    with pytest.raises(AgentflowError) as raised:
        await flow.run(program, bindings=SECRET)
    error = raised.value
    assert (error.code, error.details["sources"], error.sources) == ("provenance/write", ["web"], {"web"})
    assert error.hint is not None and error.span is not None


async def test_what_would_be_refused_is_told_by_explain(tmp_path: Path) -> None:
    """A policy that only explains warns of it, and does it."""
    policy = Provenance(strict=True, explain=True)
    async with AgentFlow(provider=ScriptedProvider(), root=tmp_path, provenance=policy) as flow:
        async with flow.stream("(define x 0) (define (f) (set! x 1)) (if (> s 1) (f)) x", bindings=SECRET) as run:
            codes = [getattr(event, "code", None) async for event in run]
        assert "provenance/write" in codes and (await run.result()).value == 1


async def test_the_value_of_a_run_says_what_was_tested(flow: AgentFlow) -> None:
    """``result.sources`` are those of the tests that chose the value, too."""
    result = await flow.run("(if (> s 1) 1 2)", bindings=SECRET)
    assert (result.value, result.sources) == (1, {"web"})


async def test_tasks_in_arms_leave_no_trace(flow: AgentFlow, model: ScriptedProvider) -> None:
    """What a task in an arm said is in no history afterwards: whether it was asked would show there."""
    task = '(defatom t (params) (instructions "Say yes.")) (if (> s 1) (t)) (t)'
    result = await flow.run(task, bindings=SECRET)
    assert result.sources == frozenset()
    assert [len(request.messages) for request in model.requests] == [1, 1]


async def test_an_arm_goes_on_in_a_saved_workflow(observer: Observer) -> None:
    """A saved workflow called in an arm does what it does because of the test."""
    await observer.flow.workflows.save(Workflow(name="mailing", program="(send (to 1))", params={}))
    text = '(try (if (> s 1) (call-workflow "mailing")) (catch (e) 0)) (send (to "end"))'
    assert [(await observer.run(text, each))[1] for each in SECRETS] == [["end"]] * 3


async def test_what_the_host_calls_back_says_what_it_tested(flow: AgentFlow) -> None:
    """A procedure that code of the host calls gives what it tested along, too."""

    async def twice(f: Any) -> Any:
        return [await flow.call(f), 1]

    program = "(twice (lambda () (if (> s 1) 1 2)))"
    result = await flow.run(program, bindings={**SECRET, "twice": twice})
    assert (result.value, result.sources) == ([1, 1], {"web"})


async def test_a_durable_run_goes_on_strictly(tmp_path: Path) -> None:
    """A run that goes on in another process is followed as strictly as it was."""
    policy = Provenance(rules=[Sink("send", allow=["user"])], sources={"fetch": "web"}, strict=True)
    program = '(define page (value-of (fetch (url "x")))) (hold) (if (string-contains? page "eve") (send (to "bob") (body "x")))'
    await interrupted(tmp_path, program, policy=policy)
    mails, error = await gone_on(tmp_path, policy=policy)
    assert (mails.sent, error.code) == ([], "provenance/denied")


@pytest.mark.parametrize("call", ["(f s)", "(define (g h) (h s)) (g f)", "(map f (list s))"])
async def test_procedures_of_other_flows_are_refused(call: str, flow: AgentFlow, tmp_path: Path) -> None:
    """A procedure that was compiled to follow data only does not tell what it tests, however it is called."""
    async with AgentFlow(provider=ScriptedProvider(), root=tmp_path, provenance=Provenance()) as other:
        procedure = (await other.run("(lambda (x) (if (> x 1) 1 2))")).value
    with pytest.raises(AgentflowError) as raised:
        await flow.run(call, bindings={**SECRET, "f": procedure})
    assert raised.value.code == "provenance/not-followed"


def test_a_policy_file_may_be_strict(tmp_path: Path) -> None:
    """``strict = true`` in a file is the same; settings can only switch it on."""
    assert Provenance.from_table({"strict": True}).following == "strict"
    assert Provenance(strict=True).narrowed(Provenance.from_table({"strict": False})).following == "strict"
    assert Provenance().narrowed(Provenance.from_table({"strict": True})).following == "strict"
    assert Provenance().following is True
    with pytest.raises(ConfigurationError, match="strict is true or false"):
        Provenance.from_table({"strict": "yes"})


@pytest.mark.parametrize(
    ("form", "value"), [("(pmap :on workers (lambda (x) x) (list 1))", [1]), ("(parallel :on workers 1 2)", [1, 2])]
)
async def test_workers_do_nothing_whose_errors_may_be_caught(form: str, value: list[int], flow: AgentFlow) -> None:
    """They do not tell what they looked at, so that nobody may go on after their errors; where nobody does, they work."""
    caught = await flow.run(f"(try {form} (catch (e) (get-field e 'code)))")
    assert caught.value == "provenance/workers"
    assert (await flow.run(form)).value == value


async def test_a_race_of_workers_goes_on_after_errors(flow: AgentFlow) -> None:
    """So that under a strict policy there is none; one whose branches are here says what they looked at."""
    with pytest.raises(AgentflowError) as caught:
        await flow.run("(race :on workers 1 2)")
    assert caught.value.code == "provenance/workers" and caught.value.span is not None
    assert (await flow.run("(race 1 2)")).value in (1, 2)
