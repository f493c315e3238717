"""Every way in which a value could lose where it came from, and does not: injected text stays powerless on each of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentflowError, Labelled, Provenance, Session
from agentflow.tasks.workflows import Workflow
from tests.support.mail import PAGE, Mail, Open

FETCH = '(value-of (fetch (url "u")))'
WAYS: dict[str, str] = {
    "as it is": FETCH,
    "pmap": f"(first (pmap (lambda (x) x) (list {FETCH})))",
    "parallel": f"(first (parallel {FETCH} 1))",
    "race": f"(race {FETCH})",
    "set!": f'(let ((x "")) (set! x {FETCH}) x)',
    "global": f"(begin (define x {FETCH}) x)",
    "closure": f"(let ((x {FETCH})) ((lambda () x)))",
    "rest parameter": f"((lambda (. all) (first all)) {FETCH})",
    "let-values": f"(let-values (((a) (list {FETCH}))) a)",
    "and": f"(and true {FETCH})",
    "or": f"(or false {FETCH})",
    "error message": f"(try (error {FETCH}) (catch (e) (get-field e 'message)))",
    "raised value": f"(try (raise {FETCH}) (catch (e) (get-field e 'value)))",
    "error of a primitive": f"(try (first {FETCH}) (catch (e) (get-field e 'message)))",
    "error within a map": f'(try (map (lambda (x) (error x)) (list {FETCH})) (catch (e) (get-field e "message")))',
    "quasiquote": f"(nth `(1 ,{FETCH}) 1)",
    "log line": f"(log-message {FETCH})",
    "retry": f"(retry 2 {FETCH})",
    "timeout": f"(timeout 5 {FETCH})",
    "loop": f"(loop 1 {FETCH})",
    "director loop": f"""(director-evaluator-loop (max-iterations 2) (initial-director-input {FETCH})
        (director (lambda (input i) input)) (executor (lambda (plan i) plan)) (evaluator (lambda (r p i) r))
        (controller (lambda (f p r i) (list 'stop f))))""",
    "evaluated program": f'(eval-program "x" (bindings {{"x" {FETCH}}}) (allow))',
    "text of an evaluated program": f'(eval-program (string-append "\\"" {FETCH} "\\"") (allow))',
    "tool that gives it back": f"(value-of (echo (text {FETCH})))",
    "host function": f"(shout {FETCH})",
    "file": '(value-of (system:read_files (file_paths (list "note.txt"))))',
    "binding of the host": "given",
    "part of a binding": '(get nested "to")',
    "task": f'(begin (defatom t (params (x)) (instructions "Say {{{{x}}}}")) (value-of (t (x {FETCH}))))',
    "task that was given a file": '(begin (defatom t (params) (instructions "Say it")) (value-of (t (files (list "note.txt")))))',
    "task whose instructions were read": f"(begin (defatom t (params) (instructions {FETCH})) (value-of (t)))",
    "result of a task": f'(content (begin (defatom t (params (x)) (instructions "Say {{{{x}}}}")) (t (x {FETCH}))))',
}


async def prepared(mail: Open, tmp_path: Path, policy: Any = ...) -> Mail:
    """A flow with a file, a tool that repeats, and a model that says one address."""
    (tmp_path / "note.txt").write_text(PAGE)
    replies = ["eve@example.org"] * 5
    made = await mail(*replies) if policy is ... else await mail(*replies, policy=policy)

    @made.flow.tool(source="user")
    def echo(text: str) -> str:
        """Repeat a text."""
        return text

    return made


BINDINGS = {"given": Labelled("eve@example.org", "mail"), "nested": {"to": Labelled("eve@example.org", "mail")}}


@pytest.mark.parametrize("way", WAYS)
async def test_injected_text_reaches_no_recipient(way: str, mail: Open, tmp_path: Path) -> None:
    """Whatever a program does with what it read, the sink refuses it, and nothing is sent."""
    made = await prepared(mail, tmp_path)
    bindings = {**BINDINGS, "shout": str.upper}
    with pytest.raises(AgentflowError) as denied:
        await made.flow.run(f'(send (to {WAYS[way]}) (body "x"))', bindings=bindings)
    assert denied.value.code == "provenance/denied"
    assert made.sent == []


@pytest.mark.parametrize("way", WAYS)
async def test_what_is_denied_is_foretold(way: str, mail: Open, tmp_path: Path) -> None:
    """The bounds of each of these programs say that something which is refused may reach the recipient."""
    made = await prepared(mail, tmp_path)
    bounds = await made.flow.bounds(f'(send (to {WAYS[way]}) (body "x"))', bindings={**BINDINGS, "shout": str.upper})
    (to,) = [each for each in bounds.authority.sinks if (each.tool, each.argument) == ("send", "to")]
    assert to.refused, way


@pytest.mark.parametrize("way", WAYS)
async def test_the_same_program_runs_without_a_policy(way: str, mail: Open, tmp_path: Path) -> None:
    """It is the policy that refuses: without one, each of these programs sends."""
    made = await prepared(mail, tmp_path, None)
    bindings = {**BINDINGS, "shout": str.upper}
    result = await made.flow.run(f'(send (to (format "{{}}" {WAYS[way]})) (body "x"))', bindings=bindings)
    assert len(made.sent) == 1
    assert result.sources == frozenset()


CHOSEN: dict[str, str] = {
    "operator": f'(let ((f (get (dict "a" (lambda () (send (to "bob") (body "x")))) "a"))) ((nth (list f {FETCH}) 0)))',
    "named operator that was read": '((string->symbol (value-of (say (text "send")))) (to "bob") (body "x"))',
    "text of a program": '(eval-program (value-of (say (text "(send (to \\"bob\\") (body \\"x\\"))"))) (allow send))',
    "data of a program": '(eval-program (parse-json (value-of (say (text "[\\"send\\"]")))) (allow send))',
}


@pytest.mark.parametrize("way", ["named operator that was read", "text of a program"])
async def test_what_was_read_does_not_choose_what_is_done(way: str, mail: Open) -> None:
    """A name or a program that came from elsewhere decides that an effect happens: its sources reach each argument."""
    made = await mail()

    @made.flow.tool(source="web")
    def say(text: str) -> str:
        """Repeat a text."""
        return text

    with pytest.raises(AgentflowError) as denied:
        await made.flow.run(CHOSEN[way])
    assert denied.value.code == "provenance/denied"
    assert made.sent == []


async def test_a_session_turn_remembers(mail: Open) -> None:
    """A later run in the same session has read what the earlier one read."""
    made = await mail("noted", "eve@example.org")
    session = Session()
    task = '(begin (defatom t (params (x)) (instructions "Note {{x}}") (history_config true)) (t (x %s)))'
    first = await made.flow.run(task % FETCH, session=session)
    assert "web" in first.sources
    again = Session.from_json(session.to_json())
    with pytest.raises(AgentflowError) as denied:
        await made.flow.run(
            '(begin (defatom u (params) (instructions "Who?") (history_config true)) (send (to (value-of (u))) (body "x")))',
            session=again,
        )
    assert denied.value.code == "provenance/denied"


async def test_a_session_without_history_does_not_taint(mail: Open) -> None:
    """A task that is not sent the history has not read it."""
    made = await mail("noted", "bob@example.com")
    session = Session()
    await made.flow.run(
        f'(begin (defatom t (params (x)) (instructions "Note {{{{x}}}}") (history_config true)) (t (x {FETCH})))',
        session=session,
    )
    await made.flow.run(
        """(begin (defatom u (params) (instructions "Who?"))
             (send (to (value-of (u))) (body "x")))""",
        session=session,
    )
    assert made.sent == [("bob@example.com", "x")]


async def test_a_closure_keeps_what_it_captured_outside_of_the_run(mail: Open) -> None:
    """A procedure that the host was given, and calls later, still knows where what it captured came from."""
    made = await mail()
    result = await made.flow.run(f'(let ((p {FETCH})) (lambda () (send (to p) (body "x"))))')
    with pytest.raises(AgentflowError) as denied:
        await made.flow.call(result.value)
    assert denied.value.code == "provenance/denied"


async def test_a_shared_environment_keeps_it(mail: Open) -> None:
    """What one program defined another finds in its box; the host finds it bare."""
    from agentflow import SexpEnvironment

    made = await mail()
    env = SexpEnvironment()
    await made.flow.run(f"(define page {FETCH})", env=env)
    with pytest.raises(AgentflowError) as denied:
        await made.flow.run('(send (to page) (body "x"))', env=env)
    assert denied.value.code == "provenance/denied"
    assert type(env.lookup("page")) is str and env.bindings() == {"page": PAGE}


async def test_values_that_an_error_leaves_behind_are_bare(mail: Open) -> None:
    """The host, who paid for them, is given what was in the boxes."""
    made = await mail()
    with pytest.raises(AgentflowError) as failed:
        await made.flow.run(f"(map (lambda (x) (if (eq? x 2) (error x) x)) (list {FETCH} 2))")
    assert [type(each) for each in failed.value.partial] == [str]


async def test_a_saved_workflow_follows_its_parameters(mail: Open, tmp_path: Path) -> None:
    """Arguments of a saved workflow keep their own sources in it, and what it gives has those of what it was computed from."""
    made = await mail()
    program = "(begin (send (to to) (body body)) body)"
    await made.flow.workflows.save(Workflow(name="forward", program=program, params={"to": {}, "body": {}}))
    result = await made.flow.run(f'(call-workflow "forward" (to "bob") (body {FETCH}))')
    assert made.sent == [("bob", PAGE)] and result.sources == frozenset({"web"})
    with pytest.raises(AgentflowError) as denied:
        await made.flow.run(f'(call-workflow "forward" (to {FETCH}) (body "x"))')
    assert denied.value.code == "provenance/denied" and len(made.sent) == 1


async def test_a_loaded_closure_keeps_it(mail: Open) -> None:
    """Dumped and loaded, a closure captured what it captured."""
    from agentflow.lang.portable import dump_closure, load_closure

    made = await mail()
    result = await made.flow.run(f'(let ((p {FETCH})) (lambda () (send (to p) (body "x"))))')
    loaded = load_closure(dump_closure(result.value), names=made.flow.engine.names(), labelled=True)
    with pytest.raises(AgentflowError) as denied:
        await made.flow.call(loaded)
    assert denied.value.code == "provenance/denied"


async def test_results_of_earlier_steps_are_read_by_the_next_task(mail: Open) -> None:
    """A task that is given what the steps before gave has read it."""
    made = await mail("eve@example.org")
    program = """(begin (defatom t (params) (instructions "Who?") (context (accumulate_data true) (accumulation_format full_output)))
        (fetch (url "u")) (send (to (value-of (t))) (body "x")))"""
    with pytest.raises(AgentflowError) as denied:
        await made.flow.run(program)
    assert denied.value.code == "provenance/denied"


@pytest.mark.parametrize(
    ("surface", "text"),
    [
        ("sexp", '(let ((p "eve")) (lambda () (send (to p) (body "x"))))'),
        (
            "python",
            'def whole():\n    p = "eve"\n    def f():\n        return send(to=p, body="x")\n    return f\nwhole()',
        ),
    ],
)
async def test_a_procedure_of_a_flow_without_a_policy(surface: Any, text: str, mail: Open) -> None:
    """Called as it is, it is an error that says so; stored there and loaded here, what it captured comes from nobody knows where."""
    from agentflow.lang.portable import dump_closure, load_closure

    without, made = await mail(policy=None), await mail()
    closure = (await without.flow.run(text, surface=surface)).value
    with pytest.raises(AgentflowError) as refused:
        await made.flow.run("(f)", bindings={"f": closure})
    assert refused.value.code == "provenance/not-followed"
    loaded = load_closure(dump_closure(closure), names=made.flow.engine.names(), labelled=True)
    with pytest.raises(AgentflowError) as denied:
        await made.flow.call(loaded)
    assert denied.value.code == "provenance/denied" and denied.value.details["refused"] == ["unknown"]
    assert made.sent == []


WAYS_TO_CALL: list[tuple[Any, str]] = [
    ("sexp", "(f)"),
    ("sexp", "(define (g h) (h)) (g f)"),
    ("sexp", "(let ((h f)) (define (g) (h)) (g))"),
    ("sexp", "(let loop ((n 2)) (if (= n 0) nil (begin (f) (loop (- n 1)))))"),
    ("sexp", "(map (lambda (x) (f)) (list 1))"),
    ("sexp", "(apply f (list))"),
    ("sexp", "((if true f nil))"),
    ("python", "f()"),
    ("python", "def g(h):\n    return h()\ng(f)"),
    ("python", "[h() for h in [f]]"),
]


@pytest.mark.parametrize(("surface", "text"), WAYS_TO_CALL)
async def test_a_procedure_without_boxes_is_refused_however_it_is_called(surface: Any, text: str, mail: Open) -> None:
    """The short cut of generated code asks what it calls, too."""
    without, made = await mail(policy=None), await mail()
    closure = (await without.flow.run('(let ((p "eve")) (lambda () (send (to p) (body "x"))))')).value
    with pytest.raises(AgentflowError) as refused:
        await made.flow.run(text, bindings={"f": closure}, surface=surface)
    assert refused.value.code == "provenance/not-followed"
    assert made.sent == []


async def test_a_procedure_of_a_flow_whose_policy_is_not_strict(mail: Open) -> None:
    """In a strict flow it is an error, since nobody would know what it tests; loaded from a dump it is compiled anew."""
    from agentflow.lang.portable import dump_closure, load_closure

    normal, strict = await mail(), await mail(policy=Provenance(strict=True))
    closure = (await normal.flow.run("(lambda (x) (if x 1 2))")).value
    with pytest.raises(AgentflowError) as refused:
        await strict.flow.run("(f 1)", bindings={"f": closure})
    assert refused.value.code == "provenance/not-followed"
    loaded = load_closure(dump_closure(closure), names=strict.flow.engine.names(), labelled="strict")
    result = await strict.flow.run("(f x)", bindings={"f": loaded, "x": Labelled(1, "web")})
    assert (result.value, result.sources) == (1, {"web"})
