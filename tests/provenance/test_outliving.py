"""What outlives a run of a strict policy: whatever reads it later still depends on the tests because of which it was changed."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from agentflow import AgentFlow, Labelled, Provenance, ScriptedProvider, SexpEnvironment
from agentflow.lang.kernel.container_labels import ContainerLabels
from agentflow.lang.portable import dump_closure, load_closure

SECRET = {"s": Labelled(2, "secret")}


def flow_with() -> AgentFlow:
    return AgentFlow(provider=ScriptedProvider([]), provenance=Provenance(strict=True))


CHANGES = {
    "a list by another name": ("xs = [0]\nys = xs\nif s > 1:\n    xs.append(1)", "len(ys)"),
    "a list in a list": ("xs = [0]\nys = [xs]\nif s > 1:\n    xs.append(1)", "len(ys[0])"),
    "a dict in a tuple": ("d = {}\nys = (d, 1)\nif s > 1:\n    d['a'] = 1", "len(ys[0])"),
    "a set": ("xs = {0}\nys = xs\nif s > 1:\n    xs.add(1)", "1 in ys"),
    "a list of a function's": (
        "def make():\n    xs = [0]\n    def more():\n        xs.append(1)\n    def count():\n        return len(xs)\n"
        "    if s > 1:\n        xs.append(1)\n    return count\ncount = make()",
        "count()",
    ),
    "what is put in later": ("xs = []\nif s > 1:\n    xs.append(1)\nys = {}\nys['k'] = xs", "len(ys['k'])"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_what_stays_in_an_environment_says_why_it_was_changed(change: str) -> None:
    """A later program in the environment reads it under the name that the test did not mention."""
    first, then = CHANGES[change]
    env = SexpEnvironment()
    async with flow_with() as flow:
        await flow.run(first, surface="python", bindings=SECRET, env=env)
        assert (await flow.run(then, surface="python", env=env)).sources == {"secret"}


@pytest.mark.parametrize("surface", ["python", "sexp"])
async def test_the_absence_of_a_variable_says_why(surface: Any) -> None:
    """A definition in an arm is seen by a later program, and so is that it did not happen."""
    define = {"python": "if s > {}:\n    x = 1\n0", "sexp": "(if (> s {}) (define x 1)) 0"}[surface]
    look = {"python": "try:\n    x\n    r = 1\nexcept Exception:\n    r = 2\nr", "sexp": "(try x (catch (e) 2))"}[
        surface
    ]
    async with flow_with() as flow:
        for bound in (1, 5):
            env = SexpEnvironment()
            await flow.run(define.format(bound), surface=surface, bindings=SECRET, env=env)
            assert (await flow.run(look, surface=surface, env=env)).sources == {"secret"}


async def test_a_list_of_the_host_that_two_runs_get() -> None:
    """The host's own list, which one run changed because of a secret, depends on it in the next run of the flow."""
    shared: list[int] = [0]
    async with flow_with() as flow:
        await flow.run("if s > 1:\n    xs.append(1)", surface="python", bindings={**SECRET, "xs": shared})
        assert shared == [0, 1]
        assert (await flow.run("len(ys)", surface="python", bindings={"ys": shared})).sources == {"secret"}


GIVEN = CHANGES["a list of a function's"][0]


async def test_a_procedure_that_the_host_gives_to_another_run() -> None:
    """The variables that it captured depend on what they did when it was made."""
    async with flow_with() as flow:
        count = (await flow.run(f"{GIVEN}\ncount", surface="python", bindings=SECRET)).value
        assert (await flow.run("f()", surface="python", bindings={"f": count})).sources == {"secret"}


async def test_a_dumped_procedure() -> None:
    """A dump has the containers that the procedure captured in boxes with what they depend on."""
    async with flow_with() as flow:
        count = (await flow.run(f"{GIVEN}\ncount", surface="python", bindings=SECRET)).value
        loaded = load_closure(dump_closure(count), names=flow.engine.names(), labelled="strict")
        assert (await flow.run("f()", surface="python", bindings={"f": loaded})).sources == {"secret"}


async def test_nothing_is_kept_of_a_run_that_is_over() -> None:
    """What is known of its containers ends with them, also of those that hold each other."""
    text = "rows = []\nfor i in range(9):\n    if s > 1:\n        rows.append(rows)\nlambda: rows"
    async with flow_with() as flow:
        for _ in range(2):
            closure = (await flow.run(text, surface="python", bindings=SECRET)).value
            tables = tables_of_containers()
            del closure
            assert tables_of_containers() == tables - 1


def tables_of_containers() -> int:
    gc.collect()
    return sum([type(each) is ContainerLabels for each in gc.get_objects()])
