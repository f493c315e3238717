"""A program text of either surface, made ready for the analysis of its bounds."""

from __future__ import annotations

from collections.abc import Iterable

from agentflow.core.data.known_names import Names
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.lang.allowance import StepAllowance
from agentflow.lang.bounds.interpret import free
from agentflow.lang.bounds.ready import Readied, python_readied, sexp_readied
from agentflow.lang.diagnosis import analyse
from agentflow.lang.program import as_source, describer


def readied(
    source: Source | str,
    *,
    names: Names | None = None,
    limits: Limits | None = None,
    allow: Iterable[str] | None = None,
    env_names: Iterable[str] = (),
    allowance: StepAllowance | None = None,
) -> Readied:
    """Read and check a text; ``allowance`` pays for macros, and then for each followed node. Parameters as for :func:`~agentflow.lang.program.compile_program`.

    Raises SexpSyntaxError, SexpEvaluationError (the first of several) and LimitExceeded.
    """
    source, limits = as_source(source), limits or Limits()
    spend = free if allowance is None else allowance.take
    if source.surface == "python":
        granted = None if allow is None else frozenset(allow)
        return python_readied(source, describer(names, frozenset(env_names)), limits, granted, names, spend)
    analyzer, tree = analyse(source, names=names, limits=limits, allow=allow, env_names=env_names, allowance=allowance)
    return sexp_readied(analyzer, tree, spend)
