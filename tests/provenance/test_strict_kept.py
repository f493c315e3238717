"""A strict policy, and what the runtime keeps between two places of a program or two runs: caught errors, results that are reused, environments,
procedures that leave and come back, branches. Whether an arm was done shows in none of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, Labelled, ScriptedProvider
from agentflow.core.data.errors import SexpEvaluationError, UnboundSymbolError, copied_error
from agentflow.core.data.source import Surface
from agentflow.lang.closure import Closure
from agentflow.lang.environment import SexpEnvironment, unbound
from agentflow.lang.portable import dump_closure, load_closure
from tests.provenance.strict_programs import SECRETS, Observer, Writer, differ
from tests.provenance.test_durable import Gate

SHOWN = '(try (send (to r)) (catch (e) 0)) (send (to "end"))'
SHOWN_IN_PYTHON = "try:\n    send(r)\nexcept Exception:\n    0\nsend('end')"


async def runs_of(root: Path, text: str, *, surface: Surface = "sexp", **options: Any) -> list[tuple[str, list[Any]]]:
    """What can be seen of a program with each of the secrets, in flows of their own; ``bindings`` makes more of them of a flow."""
    bindings = options.pop("bindings", lambda flow: {})
    runs: list[tuple[str, list[Any]]] = []
    for at, secret in enumerate(SECRETS):
        (own := root / str(at)).mkdir(exist_ok=True)
        where = {"durable": f"sqlite:///{own}/runs.db"} if options.get("durable") else {}
        watching = Observer(own, surface=surface, **{**options, **where})
        async with watching.flow:
            runs.append(await watching.run(text, secret, **bindings(watching.flow)))
        assert not [code for code in watching.codes if code.startswith(("syntax/", "host/", "internal/"))], (
            watching.codes
        )
    return runs


def tell(runs: list[tuple[str, list[Any]]]) -> bool:
    """Whether runs can be told apart."""
    return any([differ(runs[0], each) for each in runs[1:]])


# -- errors -------------------------------------------------------------------------------------------------------

RAISED = {
    "in a timeout": "(timeout 5 (if (> s 1) (raise e0)))",
    "in a race": "(race (if (> s 1) (raise e0) 1))",
    "in a branch": "(parallel (if (> s 1) (raise e0) 1) 2)",
    "in a program": '(eval-program (quote (raise k)) (bindings (if (> s 1) (dict "k" e0) (dict "k" 1))))',
    "chosen": "(raise (if (> s 1) e0 1))",
    "an element": "(raise (nth (list 1 1 e0 e0) s))",
    "in a phase": (
        "(director-evaluator-loop (max-iterations 3) (initial-director-input 0) (director (lambda (a i) i))"
        " (executor (lambda (p i) (if (> s 1) (raise e0)))) (evaluator (lambda (r p i) r)) (controller (lambda (b p r i) (list 'stop r))))"
    ),
    "of a result": "(timeout 5 (if (> s 1) (value-of result)))",
}
"""Ways to raise an error of everybody because of a secret."""
AGAIN = {
    "that it is caught": "(try (raise e0) (catch (e) 5))",
    "its details": "(try (raise e0) (catch (e) (get-field e 'details)))",
    "that its result fails": "(try (value-of result) (catch (e) 5))",
    "the details of its result": "(try (value-of result) (catch (e) (get-field e 'details)))",
}
"""What is seen of the same error, raised by somebody else."""
FAILED = "(define result (t)) (define e0 (try (value-of result) (catch (e) e)))"


@pytest.mark.parametrize("way", RAISED)
async def test_an_error_that_is_raised_again_says_nothing_of_the_last_time(way: str, tmp_path: Path) -> None:
    """What an error came to depend on when it was raised in an arm is not there when it is raised elsewhere."""
    head = f'(defatom t (params) (instructions "x")) {FAILED} (try {RAISED[way]} (catch (e) 0))'
    for at, (what, again) in enumerate(AGAIN.items()):
        (root := tmp_path / str(at)).mkdir()
        runs = await runs_of(root, f"{head} (define r {again}) {SHOWN}")
        assert not tell(runs) and len(runs[0][1]) == 2, (what, runs)


def test_a_copied_error_is_the_same_to_its_reader() -> None:
    """A copy has all that the error has; what the copy gets on its way, the error does not."""
    error = SexpEvaluationError("x", code="a/b", hint="h", details={"a": 1})
    error.value, error.sources, error.__cause__ = [1], frozenset({"web"}), ValueError("y")
    error.add_note("n")
    name = copied_error(unbound("y", "x", "h", "name/unbound"))
    assert (type(name), name.name) == (UnboundSymbolError, "y")
    copy = copied_error(error)
    assert type(copy) is SexpEvaluationError and copy.value is error.value and copy.args == error.args
    assert (copy.render(), copy.cause_text, copy.sources) == (error.render(), error.cause_text, error.sources)
    before = error.render(), dict(error.details), error.sources
    copy.add_frame("f", None)
    copy.add_note("m")
    copy.details["b"] = 2
    copy.sources = frozenset()
    assert (error.render(), error.details, error.sources) == before


# -- results that are reused --------------------------------------------------------------------------------------

REUSED = {
    "a call in an arm": ("(if (> s 1) (t (x 1)))", "(t (x 1))"),
    "a call by a value": ("(t (x (if (> s 1) 1 2)))", "(t (x 1))"),
    "a call in a branch": ("(parallel (if (> s 1) (t (x 1))) 2)", "(t (x 1))"),
    "a tool in an arm": ("(if (> s 1) (look (x 1)))", "(look (x 1))"),
}


async def look(x: int) -> str:
    """Look it up."""
    return "found"


@pytest.mark.parametrize("way", REUSED)
async def test_a_result_to_reuse_does_not_tell_that_it_is_there(way: str, tmp_path: Path) -> None:
    """Equal calls share a result only if they depend on the same; those that do not depend on the secret still do."""
    before, again = REUSED[way]
    asked: list[int] = []

    def answer(request: Any) -> str:
        asked.append(1)
        return "an answer"

    def looking(flow: AgentFlow) -> dict[str, Any]:
        flow.tool(reuse="1d", source="user")(look)
        return {}

    task = '(defatom t (params (x)) (instructions "Do {{x}}") (reuse "1d"))'
    text = f"{task} {before} (define r (value-of {again})) (set! r (value-of {again})) {SHOWN}"
    runs = await runs_of(tmp_path, text, durable=True, provider=ScriptedProvider(answer), bindings=looking)
    assert not tell(runs) and len(runs[0][1]) == 2, runs
    assert len(asked) <= 2 * len(SECRETS)


# -- names --------------------------------------------------------------------------------------------------------

NAMED = {
    "a variable": "(define r (eval-program '(try name (catch (e) 5)) (bindings NAMES)))",
    "a variable by another effect": "(define r 0) (eval-program '(try (begin name (send (to 1))) (catch (e) 5)) (bindings NAMES) (allow send))",
    "an operator": "(define r (eval-program '(try (name) (catch (e) 5)) (bindings NAMES)))",
    "a function of the language": "(define r (eval-program '(name) (bindings NAMES)))".replace("name", "list"),
    "whether it runs": "(define r (try (begin (eval-program '(name) (bindings NAMES)) 1) (catch (e) 2)))",
}
NAMES = {
    "a dict": '(if (> s 1) (dict "name" list "list" length) (dict "x" 1))',
    "pairs": '(if (> s 1) (list (list "name" list) (list "list" length)) (list (list "x" 1)))',
    "a key": '(dict (if (> s 1) "name" "x") list)',
    "a key of pairs": '(list (list (if (> s 1) "name" "x") list))',
}


@pytest.mark.parametrize("names", NAMES)
@pytest.mark.parametrize("way", NAMED)
async def test_a_program_depends_on_which_names_it_has(way: str, names: str, tmp_path: Path) -> None:
    """Whether a name of a program is bound, or means a function of the language, depends on its bindings."""
    runs = await runs_of(tmp_path, f"{NAMED[way].replace('NAMES', NAMES[names])} {SHOWN}")
    assert not tell(runs), runs


BEFORE = {
    "bound in an arm": "if s > 1:\n    {name} = lambda x: 3",
    "unbound in an arm": "{name} = lambda x: 3\nif s > 1:\n    del {name}",
}
LATER: dict[str, tuple[str, Surface, str]] = {
    "a variable": ("thing", "python", "try:\n    thing\n    send(1)\nexcept Exception:\n    0\nsend('end')"),
    "a variable in S-expressions": (
        "thing",
        "sexp",
        '(try (begin thing (send (to 1))) (catch (e) 0)) (send (to "end"))',
    ),
    "an operator": ("thing", "sexp", '(try (begin (thing 1) (send (to 1))) (catch (e) 0)) (send (to "end"))'),
    "a builtin": ("abs", "python", "try:\n    send(abs(-7))\nexcept Exception:\n    0\nsend('end')"),
    "a primitive": ("abs", "sexp", '(try (send (to (abs -7))) (catch (e) 0)) (send (to "end"))'),
    "a tool": ("note", "python", "try:\n    send(note(-7))\nexcept Exception:\n    0\nsend('end')"),
}


@pytest.mark.parametrize("way", LATER)
@pytest.mark.parametrize("before", BEFORE)
async def test_a_later_run_does_not_tell_whether_a_name_is_bound(before: str, way: str, tmp_path: Path) -> None:
    """In the environment of the earlier run, in one within it, and with bindings of its own: whatever the name means without the variable."""
    name, surface, text = LATER[way]
    for within in ("itself", "inside", "bindings"):
        runs: list[tuple[str, list[Any]]] = []
        for secret in SECRETS:
            watching, env = Observer(tmp_path, surface="python"), SexpEnvironment()
            async with watching.flow as flow:
                assert await watching.run(BEFORE[before].format(name=name), secret, env=env) == ("ended", [])
                here = env.extend() if within == "inside" else env
                bindings = {"k": 1} if within == "bindings" else None
                runs.append(await watching.watched(flow.run(text, surface=surface, env=here, bindings=bindings)))
        assert not tell(runs) and runs[0][1] == ["end"], (within, runs)


# -- procedures that leave and come back --------------------------------------------------------------------------

LEAVES = {
    "a global that was deleted": "x = 5\nif s > 1:\n    del x\ndef f():\n    {read}\nr = leave(f)()",
    "a global that was bound": "if s > 1:\n    x = 5\ndef f():\n    {read}\nr = leave(f)()",
    "a variable of a function": "def o():\n    if s > 1:\n        x = 5\n    def f():\n        {read}\n    return f\nr = leave(o())()",
    "one that was deleted": "def o():\n    x = 5\n    if s > 1:\n        del x\n    def f():\n        {read}\n    return f\nr = leave(o())()",
    "of a function in a function": (
        "def o():\n    if s > 1:\n        x = 5\n    def g():\n        {read}\n    def f():\n        return g()\n    return f\nr = leave(o())()"
    ),
    "its value": "x = 5\nif s > 1:\n    x = 6\ndef f():\n    return x\nr = leave(f)()",
    "a list": "x = []\nif s > 1:\n    x.append(1)\ndef f():\n    return len(x)\nr = leave(f)()",
    "a list in a list": "x = []\ny = [x]\nif s > 1:\n    x.append(1)\ndef f():\n    return len(y[0])\nr = leave(f)()",
    "a procedure that was chosen": "f = (lambda: 1) if s > 1 else (lambda: 2)\nr = leave(f)()",
}
READ = "try:\n{at}    x\n{at}except Exception:\n{at}    return 0\n{at}return 1"


@pytest.mark.parametrize("way", LEAVES)
async def test_a_procedure_that_was_dumped_says_why_it_is_so(way: str, tmp_path: Path) -> None:
    """The text of a procedure has with it what the values of its variables depend on, and whether they have any."""

    def leaving(flow: AgentFlow) -> dict[str, Any]:
        async def leave(procedure: Any) -> Closure:
            return load_closure(dump_closure(procedure), names=flow.engine.names(), labelled="strict")

        return {"leave": leave}

    text = LEAVES[way]
    line = next((each for each in text.split("\n") if "{read}" in each), "")
    text = text.format(read=READ.format(at=" " * (len(line) - len(line.lstrip()))))
    runs = await runs_of(tmp_path, f"{text}\n{SHOWN_IN_PYTHON}", surface="python", bindings=leaving)
    assert [each for _, each in runs] == [["end"]] * 3, runs


async def test_what_a_procedure_captured_under_another_policy_came_from_nobody_knows_where(tmp_path: Path) -> None:
    """A policy that is not strict does not follow tests: what a procedure of such a flow captured may depend on any of them."""
    texts = "x = 1 if s > 1 else 2\ndef f():\n    return x\nreturn f"
    async with Observer(tmp_path, strict=False, surface="python").flow as ordinary:
        value = (await ordinary.run(texts, surface="python", bindings={"s": Labelled(2, "web")})).value
    dump = dump_closure(value)
    for labelled, expected in (("strict", {"unknown"}), (True, set[str]())):
        policy = Observer(tmp_path, strict=labelled == "strict", surface="python")
        async with policy.flow as flow:
            f = load_closure(dump, names=flow.engine.names(), labelled=labelled)
            assert (await flow.run("f()", surface="python", bindings={"f": f})).sources == expected


# -- branches on workers ------------------------------------------------------------------------------------------

ON_WORKERS: dict[str, tuple[Surface, str]] = {
    "a return in an arm": (
        "python",
        "def f(x):\n    if s > 1:\n        return 1\n    return 2\nr = pmap(f, [1, 2], on='workers')",
    ),
    "the value of an arm": ("python", "r = pmap(lambda x: 1 if s > 1 else 2, [1, 2], on='workers')"),
    "a call that returns in an arm": (
        "python",
        "def f():\n    if s > 1:\n        return 1\n    return 2\nr = parallel(lambda: f(), lambda: 1, on='workers')",
    ),
    "how many there are": ("python", "r = len(pmap(lambda x: x, items, on='workers'))"),
    "in S-expressions": ("sexp", "(define (f) (if (> s 1) 1 2)) (define r (parallel :on workers (f) 3))"),
    "a procedure of S-expressions": ("sexp", "(define r (pmap :on workers (lambda (x) (if (> x s) 1 2)) (list 1 2)))"),
}


@pytest.mark.parametrize("way", ON_WORKERS)
async def test_branches_for_workers_that_run_here_say_what_they_tested(way: str, tmp_path: Path) -> None:
    """A run without workers does their branches itself, and their values say what they depend on as those of other branches do."""
    surface, text = ON_WORKERS[way]
    runs = await runs_of(tmp_path, f"{text}\n{SHOWN_IN_PYTHON if surface == 'python' else SHOWN}", surface=surface)
    assert [each for _, each in runs] == [["end"]] * 3, runs


# -- runs that go on elsewhere ------------------------------------------------------------------------------------


class Stopping(Writer):
    """Writes programs with effects at which they can be left."""

    def step(self, depth: int) -> str:
        """Something that is done; now and then it waits."""
        return "(hold)" if not self.quiet and self.random.random() < 0.15 else super().step(depth)


async def resumed(root: Path, text: str, secret: tuple[Any, Any, Any]) -> tuple[str, list[Any]]:
    """What can be seen of a run that is left at its first ``(hold)`` and goes on in another flow."""
    seen: list[Any] = []
    end = "left"
    for passes in (False, True):
        watching, gate = Observer(root, durable=f"sqlite:///{root}/runs.db"), Gate()
        async with watching.flow as flow:
            gate.add_to(flow)
            if passes:
                gate.release.set()
                run = await flow.resume("r")
            else:
                run = await flow.start(text, watching.bindings(secret), run_id="r")
            ended, left = (
                asyncio.ensure_future(watching.watched(run.result())),
                asyncio.ensure_future(gate.reached.wait()),
            )
            await asyncio.wait([ended] if passes else [ended, left], return_when=asyncio.FIRST_COMPLETED)
            left.cancel()
            end = ended.result()[0] if ended.done() else end
        await ended
        seen += watching.seen
        if end != "left":
            break
    return end, seen


async def test_a_run_that_goes_on_elsewhere_tells_nothing(tmp_path: Path) -> None:
    """Random programs that are left at an effect: what they go on with depends on the same as if they had not been."""
    went_on = 0
    for seed in range(12):
        text = Stopping(seed).program()
        runs: list[tuple[str, list[Any]]] = []
        for at, secret in enumerate(SECRETS):
            (root := tmp_path / f"{seed}.{at}").mkdir()
            runs.append(await resumed(root, text, secret))
        went_on += any([end == "ended" for end, _ in runs]) and "(hold)" in text
        assert not tell(runs), (seed, text, runs)
    assert went_on > 2
