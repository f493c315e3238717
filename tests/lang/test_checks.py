"""What is certain to fail is found before anything runs, and nothing else is."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentflow import AgentFlow, ScriptedProvider, SexpEnvironment, SexpEvaluationError
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.source import Source
from agentflow.lang.diagnosis import check_program, diagnose
from tests.support.fake_run import FakeFlow
from tests.support.manual import Block, blocks

ROOT = Path(__file__).resolve().parents[2]
MANUAL = [block for page in sorted((ROOT / "tests/spec").glob("*.md")) for block in blocks(page)]
EXAMPLES = sorted((ROOT / "examples").glob("*.sexp"))


def tools() -> FakeFlow:
    """A flow with a task and some tools."""
    return FakeFlow(
        tasks={"ask": lambda q, tone="": q},
        tools={"act": lambda x: x, "open": lambda **rest: 1},
    )


CERTAIN = [
    ("(car 1 2)", "arity/primitive"),
    ("(define (f x) x) (f 1 2)", "arity/closure"),
    ("(define (g) (f)) (define (f x) x)", "arity/closure"),
    ("(let ((f (lambda (x . rest) x))) (f))", "arity/closure"),
    ("(let loop ((i 0)) (+ 1 (loop)))", "arity/closure"),
    ("((lambda (x) x))", "arity/closure"),
    ("(ask (q 1) (tome 2))", "call/unknown-parameter"),
    ("(ask (tone 1))", "call/missing-parameter"),
    ("(act)", "call/missing-parameter"),
    ("(lambda () (act (y 1) (x 2)))", "call/unknown-parameter"),
    ("(if 0 (act))", "call/missing-parameter"),
    ("(parallel 1 (car))", "arity/primitive"),
    ("(eval-program '(+ 1 1) (bindings (dict 1 2 3 4)) (max-steps (car)))", "arity/primitive"),
]


@pytest.mark.parametrize(("text", "code"), CERTAIN)
async def test_certain_failures_are_refused_before_the_first_effect(text: str, code: str) -> None:
    """Under ``allow`` and in eval-program; a host's own run keeps the meaning of the language and gets that far."""
    flow = tools()
    assert [each.code for each in check_program(text, names=flow.performer)] == [code]
    with pytest.raises(SexpEvaluationError) as caught:
        await flow(f"(act (x 1)) {text}", allow=["act", "ask"])
    assert caught.value.code == code and flow.performer.effects == []
    flow = tools()
    flow.env.define("text", f"(act (x 1)) {text}")
    with pytest.raises(SexpEvaluationError) as caught:
        await flow("(eval-program text (allow act ask))")
    assert caught.value.code == code and flow.performer.effects == []


@pytest.mark.parametrize("text", ["(+ 1 nothing)", "(set! nothing 1)", "(lambda () nothing)", "(map nothing '(1))"])
async def test_unbound_names_are_refused_where_all_names_are_known(text: str) -> None:
    """An untrusted program finds what it was given and nothing else."""
    flow = tools()
    with pytest.raises(SexpEvaluationError) as caught:
        await flow(f"(act (x 1)) {text}", allow=["act"])
    assert caught.value.code == "name/unbound" and flow.performer.effects == []
    assert check_program(text) == []


async def test_a_hosts_run_keeps_the_languages_meaning() -> None:
    """An error that is reached can be caught, and one that is not reached is none."""
    flow = tools()
    assert await flow("(begin (act (x 1)) (try (car 1 2) (catch (e) (get-field e 'code))))") == "arity/primitive"
    assert await flow("(if true 1 (car 1 2))") == 1
    assert await flow("(list (act (x 1)) (try (nothing) (catch (e) 2)))")


async def test_what_is_caught_is_a_warning(tmp_path: Path) -> None:
    """Below a ``try`` with a ``catch``, or in a ``race``, the program goes on: it is told, and not refused."""
    for text in ("(try (car 1 2) (catch (e) 0))", "(race (car 1 2) 0)"):
        assert [each.severity for each in diagnose(text)] == ["warning"]
        assert await tools()(text, allow=[]) == 0
    assert [each.severity for each in diagnose("(try 1 (catch (e) (car)))")] == ["error"]


SOUND = [
    "(define (f x) x) (set! f (lambda () 1)) (f)",
    "(define (f x) x) (define (f x y) x) (f 1 2)",
    "(let ((f (lambda (x) x))) (set! f (lambda () 1)) (f))",
    "(define (f car) (car 1 2 3))",
    "(define (f) (g)) (define (g) 1) (f)",
    '(ask (q "x") (tone nil))',
    "(open (anything 1))",
    "(define (act) 1) (act)",
    "(let ((act (lambda (a b) a))) (act 1 2))",
    "'(car 1 2)",
    "(case 1 ((car 1 2) 3))",
    "(define (f . rest) rest) (f) (f 1 2 3)",
    "(defmacro twice (x) `(+ ,x ,x)) (twice 3)",
]


@pytest.mark.parametrize("text", SOUND)
def test_nothing_sound_is_refused(text: str) -> None:
    """Shadowing, redefinition, ``set!``, later definitions, macros and open parameters are not mistakes."""
    assert check_program(text, names=tools().performer, allow=["ask", "act", "open"]) == []


def test_what_the_environment_binds_is_bound() -> None:
    """Bindings are names like any other."""
    assert [each.code for each in check_program("(f x)", allow=[], env_names=["f"])] == ["name/unbound"]
    assert check_program("(f x)", allow=[], env_names=["f", "x"]) == []


@pytest.mark.parametrize("block", MANUAL, ids=str)
async def test_programs_of_the_manual_that_succeed_are_sound(block: Block, tmp_path: Path) -> None:
    """No program whose outcome is a value has a certain failure, but where it shows what a failed call gives."""
    from tests.spec.test_manual import add_up, broken, shout

    wrong: list[str] = []
    async with AgentFlow(provider=ScriptedProvider([]), root=tmp_path, tools=[shout, add_up, broken]) as flow:
        for expected in block.expectations:
            if expected.kind == "=>":
                found = check_program(Source(block.page, expected.program), names=flow.engine.names())
                wrong += [f"{block.page}.md:{expected.line}: {each.render()}" for each in found]
    deliberate = block.page == "12-tasks-and-tools" and "(status r)" in block.text
    assert bool(wrong) == deliberate, "\n".join(wrong)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_examples_are_sound(path: Path, tmp_path: Path) -> None:
    """Neither a failure nor a doubt, with all that a flow brings."""
    names = AgentFlow(root=tmp_path).engine.names()
    assert diagnose(Source(path.name, path.read_text("utf-8")), names=names) == []


async def test_a_written_program_is_refused_before_it_runs(tmp_path: Path) -> None:
    """A model's program with a late mistake runs its tools once: in the round in which it is right."""
    ran: list[int] = []

    async def act(x: int) -> int:
        """Note that it ran."""
        ran.append(x)
        return x

    replies = ["(begin (act (x 1)) (car 1 2))", "(begin (act (x 2)) (car '(7)))"]
    async with AgentFlow(provider=ScriptedProvider(replies), root=tmp_path, tools=[act]) as flow:
        result = (await flow.run('(solve "go" (allow act))')).value
        assert result.parsed_content == 7 and ran == [2]
        with pytest.raises(AgentflowError):
            await flow.run("(begin (act (x 1)) (car 1 2))", allow=["act"], env=SexpEnvironment())
    assert ran == [2]


FROM_MODEL = [
    '((content (ask (q "which?"))))',
    '((string->symbol (content (ask (q "which?")))) (x 1))',
    '(let ((name (content (ask (q "which?"))))) (name (x 1)))',
    '(let* ((r (ask (q "which?"))) (name (if r (content r) "act"))) (name (x 1)))',
    '(define name (content (ask (q "which?")))) (define (go) (name (x 1))) (go)',
    '(define name "act") (set! name (content (ask (q "which?")))) (name (x 1))',
    '(map (lambda (name) (name (x 1))) (string-split (content (ask (q "which?"))) ","))',
    '(pmap (lambda (name) (name (x 1))) (parse-json (content (ask (q "which?")))))',
    '((lambda (name) (name (x 1))) (content (ask (q "which?"))))',
    '(apply (content (ask (q "which?"))) (list))',
    '((value-of (solve "a procedure" (allow act))) 1)',
]
CHOSEN = [
    '(let ((name (content (ask (q "which?"))))) (case name (("act") (act (x name))) (else 0)))',
    "((lambda (f) (f (x 1))) 'act)",
    '(define (f x) x) (f (content (ask (q "which?"))))',
    '(map (lambda (x) (act (x x))) (string-split (content (ask (q "which?"))) ","))',
    '((if (equal? (content (ask (q "which?"))) "yes") + -) 1 2)',
]


@pytest.mark.parametrize("text", [*FROM_MODEL, *CHOSEN])
def test_a_host_program_is_warned_of_calling_what_a_model_named(text: str) -> None:
    """A warning, no failure; none where a program with grants does it, whose authority the names cannot exceed."""
    names = tools().performer
    codes = [each.error.code for each in diagnose(text, names=names) if each.severity == "warning"]
    assert codes == (["name/from-model"] if text in FROM_MODEL else [])
    assert not check_program(text, names=names)
    allowed = diagnose(text, names=names, allow=["act", "ask", "solve"])
    assert "name/from-model" not in [each.error.code for each in allowed]
