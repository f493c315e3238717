"""Upper bounds of the effects of a text in Python."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

from agentflow.lang.bounds.analysis import Analysis, analysis_from
from agentflow.lang.bounds.cost import FREE, GROWN
from agentflow.lang.bounds.interpret import AnalysisInputs, Spend, TooManyVisits, free
from agentflow.lang.bounds.polynomial import Bound
from agentflow.lang.bounds.python.calls import FORMS, FUNCTIONS, METHOD_RULES, call
from agentflow.lang.bounds.python.expressions import EXPRESSIONS
from agentflow.lang.bounds.python.facts import Text
from agentflow.lang.bounds.python.heap import Changes, Heap
from agentflow.lang.bounds.python.interpret import Block, Python, Rules
from agentflow.lang.bounds.python.statements import STATEMENTS, block
from agentflow.lang.bounds.values import NEVER, AbstractScope
from agentflow.lang.python.lowering import Lowering

RULES = Rules(
    MappingProxyType({**EXPRESSIONS, ast.Call: call, Block: cast(Any, block)}),
    STATEMENTS,
    FORMS,
    FUNCTIONS,
    METHOD_RULES,
)
"""The rules that follow each kind of node."""


def analyse_python(g: Lowering, inputs: AnalysisInputs, spend: Spend = free) -> Analysis:
    """Follow a text that ``g`` compiled. Parameters as for :func:`~agentflow.lang.bounds.analysis.analyse_bounds`."""
    text, templates = Text(g), inputs.templates(g.templates)
    main = g.scopes.function("main")
    used = [name for name in text.used if name not in templates and g.kind(name) in ("unknown", "variable")]
    used += [var.name for var in text.parameters[main]] if main is not None else []
    variables = inputs.variables(used)
    heap, left, passes = Heap(Changes()), inputs.visits, 0
    outermost = AbstractScope(
        None
    )  # shared by all passes, so that a pass recognises the functions that an earlier one put into lists
    while True:
        pass_ = Python(text, RULES, heap, replace(inputs, visits=left), templates, variables, g.kind, spend)
        counts: Mapping[str, Bound] | None = None
        with suppress(TooManyVisits):
            counts = _whole(pass_, outermost)
        left = pass_.visits
        if counts is None or heap.settled(counts, passes):
            break
        heap, passes = Heap(heap.known), passes + 1
    if counts is not None:
        counts = {key: bound for key, bound in counts.items() if not key.startswith(GROWN)}
    return analysis_from(
        pass_, counts, inputs, g.source.span(0, len(g.source.text)), cast(Any, g.span_at), heap.known.given
    )


def _whole(i: Python, outermost: AbstractScope) -> Mapping[str, Bound]:
    """The upper bounds of the whole text, by key: its statements, then ``main`` if it ends without a value."""
    text = i.text
    outermost.put_back({})
    tree = text.g.tree
    for var in text.own[tree]:
        outermost.bind(var, i.read_global(var.name) if i.knows(var.name) else NEVER)
    flow = i.block(tree.body, outermost)
    cost = flow.whole()
    main, last = text.g.scopes.function("main"), tree.body[-1] if tree.body else None
    if main is not None and flow.falls is not None and not isinstance(last, ast.Expr | ast.Return):
        signature = text.signature(text.code(main))
        arguments = [i.read_global(name) for name in signature.names]
        _, called = i.call(outermost.value(text.module["main"]), arguments, i.at(main))
        cost = cost.otherwise(flow.falls.then(called))
    return (cost or FREE).total.counts
