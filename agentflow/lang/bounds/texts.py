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
from agentflow.lang.analyzer import Analyzer
from agentflow.lang.bounds.analysis import Analysis, analyse_bounds
from agentflow.lang.bounds.facts import Facts
from agentflow.lang.bounds.flow import Flows, flows_of
from agentflow.lang.bounds.interpret import AnalysisInputs, Spend, free
from agentflow.lang.bounds.nodes import SEXP
from agentflow.lang.diagnosis import analyse
from agentflow.lang.ir import Seq
from agentflow.lang.kernel.lower_sexp import SexpLowering
from agentflow.lang.program import Describe, as_source, describer
from agentflow.lang.stack import collector_paused


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
        granted = None if allow is None else frozenset(allow)
        return python_readied(source, describer(names, frozenset(env_names)), limits, granted, names, spend)
    analyzer, tree = analyse(source, names=names, limits=limits, allow=allow, env_names=env_names, allowance=allowance)
    return sexp_readied(analyzer, tree, spend)


def sexp_readied(analyzer: Analyzer, tree: Seq, spend: Spend = free) -> Readied:
    """An analysed program of S-expressions."""
    root = SexpLowering(analyzer.source, False).whole(tree)
    facts = Facts(root, python=False, lasting=SEXP.lasting)

    def kind(name: str) -> str:
        return analyzer.describe(name).kind

    follow = partial(analyse_bounds, root, facts, SEXP, kind, analyzer.span(tree.at), spend=spend)
    return Readied(facts.templates(), follow, partial(flows_of, facts, kind))


def python_readied(
    source: Source,
    describe: Describe,
    limits: Limits,
    allow: frozenset[str] | None,
    names: Names | None,
    spend: Spend = free,
) -> Readied:
    """A text in Python, read and checked."""
    from agentflow.lang.bounds.python.code import PYTHON, inputs_of  # Most processes never see such a text.
    from agentflow.lang.bounds.python.flow import about
    from agentflow.lang.python.compiling import checked

    with collector_paused():
        g, root = checked(source, describe, limits, allow, names)
    facts = Facts(root, python=True, lasting=PYTHON.lasting)
    facts.used.update(dict.fromkeys(inputs_of(facts.nodes)))
    whole = source.span(0, len(source.text))
    follow = partial(analyse_bounds, root, facts, PYTHON, g.kind, whole, spend=spend)
    return Readied(facts.templates(), follow, partial(flows_of, facts, g.kind, partial(about, g.kind)))
