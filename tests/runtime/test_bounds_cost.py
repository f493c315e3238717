"""Working bounds out is paid for by the run that needs them."""

from __future__ import annotations

import pytest

from agentflow.core.errors import LimitExceeded
from agentflow.core.source import Source, Surface
from agentflow.lang.allowance import Allowance, CompilationStopped
from agentflow.lang.bounds.texts import readied
from tests.lang.test_bounds import GIVEN, WEIGHTS, Described

LONG: dict[Surface, str] = {
    "sexp": "".join(f"(define (f{n} x) (list (f{n + 1} x) (f{n + 1} x)))" for n in range(30))
    + "(define (f30 x) (ask (x x))) (f0 1)",
    "python": "\n".join(f"def f{n}(x):\n    return [f{n + 1}(x), f{n + 1}(x)]" for n in range(30))
    + "\ndef f30(x):\n    return ask(x=x)\nf0(1)",
}


@pytest.mark.parametrize("surface", LONG)
def test_each_visit_takes_a_step_of_what_is_allowed(surface: Surface) -> None:
    """A text made to hold the analysis up spends the steps of its run, and is stopped with them, or when nobody waits for it."""
    source = Source.unnamed(LONG[surface], surface)

    def follow(allowance: Allowance) -> None:
        text = readied(source, names=Described(), env_names=GIVEN, allowance=allowance)
        text.follow(WEIGHTS, sources=GIVEN)

    free = Allowance()
    follow(free)
    assert 50_000 < free.used <= 60_500
    few = Allowance(2_000)
    with pytest.raises(LimitExceeded, match="2,000 steps"):
        follow(few)
    assert few.used <= 2_000
    stopped = Allowance()
    stopped.stop()
    with pytest.raises(CompilationStopped):
        follow(stopped)
