"""A program text of either surface, made ready for the analysis of its bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import Names
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.lang.allowance import StepAllowance
from agentflow.lang.bounds.analysis import Analysis, analyse_bounds, templates_of
from agentflow.lang.bounds.flow import Flows, flows_of
from agentflow.lang.bounds.interpret import AnalysisInputs, free
from agentflow.lang.diagnosis import analyse
from agentflow.lang.program import as_source, describer
from agentflow.lib.text.stack import collector_paused


@frozen
class Readied:
    """A text that can be followed, with its inputs. ``templates`` are the tasks that it defines, by name;
    ``flows`` is its data flow."""

    templates: Mapping[str, Sequence[Any]]
    follow: Callable[[AnalysisInputs], Analysis]
    flows: Callable[[], Flows]


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
        from agentflow.lang.bounds.python.analysis import analyse_python  # Most processes never see such a text.
        from agentflow.lang.bounds.python.flow import python_flows
        from agentflow.lang.python.compiling import checked

        granted = None if allow is None else frozenset(allow)
        with collector_paused():
            g = checked(source, describer(names, frozenset(env_names)), limits, granted, names)
        return Readied(g.templates, partial(analyse_python, g, spend=spend), partial(python_flows, g))
    analyzer, tree = analyse(source, names=names, limits=limits, allow=allow, env_names=env_names, allowance=allowance)
    return Readied(templates_of(tree), partial(analyse_bounds, analyzer, tree, spend=spend), partial(flows_of, tree))
