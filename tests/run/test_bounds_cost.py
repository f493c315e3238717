"""Working bounds out is paid for by the run that needs them."""

from __future__ import annotations

import pytest

from agentflow.core.data.errors import LimitExceeded
from agentflow.core.data.source import Source, Surface
from agentflow.lang.allowance import CompilationStopped, StepAllowance
from agentflow.lang.bounds.interpret import MOST_VISITS, AnalysisInputs
from agentflow.lang.bounds.texts import readied
from tests.lang.test_bounds import GIVEN, WEIGHTS, Described

LONG: dict[Surface, str] = {
    "sexp": "(define (r0 xs) (ask (x xs)))"
    + "".join(f"(define (r{n} xs) (if (null? xs) nil (begin (r{n - 1} xs) (r{n} (rest xs)))))" for n in range(1, 12))
    + "(r11 files)",
    "python": "def r0(xs):\n    ask(x=xs)\n"
    + "\n".join(f"def r{n}(xs):\n    if xs:\n        r{n - 1}(xs)\n        r{n}(xs[1:])" for n in range(1, 12))
    + "\nr11(files)",
}


@pytest.mark.parametrize("surface", LONG)
def test_each_visit_takes_a_step_of_what_is_allowed(surface: Surface) -> None:
    """A text made to hold the analysis up spends the steps of its run, and is stopped with them, or when nobody waits for it."""
    source = Source.unnamed(LONG[surface], surface)

    def follow(allowance: StepAllowance) -> None:
        text = readied(source, names=Described(), env_names=GIVEN, allowance=allowance)
        text.follow(AnalysisInputs(WEIGHTS, sources=GIVEN))

    free = StepAllowance()
    follow(free)
    assert 0.8 * MOST_VISITS < free.used <= 1.01 * MOST_VISITS
    few = StepAllowance(2_000)
    with pytest.raises(LimitExceeded, match="2,000 steps"):
        follow(few)
    assert few.used <= 2_000
    stopped = StepAllowance()
    stopped.stop()
    with pytest.raises(CompilationStopped):
        follow(stopped)
