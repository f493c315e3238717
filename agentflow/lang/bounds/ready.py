"""Analysed programs and texts, made ready for the analysis of their bounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import Names
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.lang.analyzer import Analyzer
from agentflow.lang.bounds.analysis import Analysis, analyse_bounds
from agentflow.lang.bounds.facts import NodeFacts
from agentflow.lang.bounds.flow import Flows, flows_of
from agentflow.lang.bounds.interpret import AnalysisInputs, Spend, free
from agentflow.lang.bounds.nodes import SEXP
from agentflow.lang.ir import Seq
from agentflow.lang.kernel.lower_sexp import SexpLowering
from agentflow.lang.naming import Describe
from agentflow.lib.text.stack import collector_paused


@frozen
class Readied:
    """A text that can be followed, with its inputs. ``templates`` are the tasks that it defines, by name;
    ``flows`` is its data flow."""

    templates: Mapping[str, Sequence[Any]]
    follow: Callable[[AnalysisInputs], Analysis]
    flows: Callable[[], Flows]


def sexp_readied(analyzer: Analyzer, tree: Seq, spend: Spend = free) -> Readied:
    """An analysed program of S-expressions."""
    root = SexpLowering(analyzer.source, False).whole(tree)
    facts = NodeFacts(root, python=False, lasting=SEXP.lasting)

    def kind(name: str) -> str:
        return analyzer.describe(name).kind

    follow = partial(analyse_bounds, root, facts, SEXP, kind, analyzer.span(tree.at), spend=spend)
    return Readied(facts.templates, follow, partial(flows_of, facts, kind))


def python_readied(
    source: Source,
    describe: Describe,
    limits: Limits,
    allow: frozenset[str] | None,
    names: Names | None,
    spend: Spend = free,
) -> Readied:
    """A text in Python, read and checked."""
    from agentflow.lang.bounds.python.code import PYTHON  # Most processes never see such a text.
    from agentflow.lang.bounds.python.flow import about
    from agentflow.lang.python.compiling import checked
    from agentflow.lang.python.names import parameters

    with collector_paused():
        g, root = checked(source, describe, limits, allow, names)
    facts = NodeFacts(root, python=True, lasting=PYTHON.lasting)
    main = g.scopes.function("main")
    facts.used.update(dict.fromkeys(parameters(main.args) if main is not None else ()))
    whole = source.span(0, len(source.text))
    follow = partial(analyse_bounds, root, facts, PYTHON, g.kind, whole, spend=spend)
    return Readied(facts.templates, follow, partial(flows_of, facts, g.kind, partial(about, g.kind)))
