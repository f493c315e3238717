"""Upper bounds of the effects of a text in Python."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

from agentflow.lang.bounds.analysis import TOO_LONG, Analysis, Shapes, Unbounded, Weights
from agentflow.lang.bounds.cost import FREE, GROWN
from agentflow.lang.bounds.inner import Programs
from agentflow.lang.bounds.interpret import ANYTHING, MOST_VISITS, Spend, TooManyVisits, free
from agentflow.lang.bounds.polynomial import UNBOUNDED, Bound
from agentflow.lang.bounds.python.calls import FORMS, FUNCTIONS, METHOD_RULES, call
from agentflow.lang.bounds.python.expressions import EXPRESSIONS
from agentflow.lang.bounds.python.facts import Text
from agentflow.lang.bounds.python.heap import Changes, Heap
from agentflow.lang.bounds.python.interpret import Block, Python, Rules
from agentflow.lang.bounds.python.statements import STATEMENTS, block
from agentflow.lang.bounds.scopes import AbstractScope
from agentflow.lang.bounds.values import NEVER, Value, constant
from agentflow.lang.python.emitter import Emitter

RULES = Rules(
    MappingProxyType({**EXPRESSIONS, ast.Call: call, Block: cast(Any, block)}),
    STATEMENTS,
    FORMS,
    FUNCTIONS,
    METHOD_RULES,
)
"""How each kind of node is followed."""


def analyse_python(
    g: Emitter,
    weights: Weights,
    *,
    bindings: Mapping[str, Any] | None = None,
    sources: Iterable[str] | Mapping[str, str] = (),
    shapes: Shapes = lambda name, templates: None,
    programs: Programs | None = None,
    around: Mapping[str, Sequence[Any]] | None = None,
    visits: int = MOST_VISITS,
    spend: Spend = free,
) -> Analysis:
    """Follow a text whose code was written by ``g``. Parameters as for :func:`~agentflow.lang.bounds.analysis.analyse_bounds`."""
    text = Text(g)
    templates = {name: [*each] for name, each in (around or {}).items()}
    for name, own in g.templates.items():
        templates.setdefault(name, []).extend(own)

    def kind(name: str) -> str:
        return "task" if name in templates else g.kind(name)

    variables = _variables(text, kind, bindings or {}, sources)
    heap, left, passes = Heap(Changes()), visits, 0
    outermost = AbstractScope(
        None
    )  # of all passes: functions that one finds in a list are those that the next one makes
    while True:
        pass_ = Python(
            text,
            RULES,
            heap,
            lambda kind, name: weights(kind, name, templates.get(name, ())),
            variables,
            kind,
            shape=lambda name: shapes(name, templates.get(name, ())),
            programs=programs,
            visits=left,
            spend=spend,
        )
        try:
            counts = _whole(pass_, outermost)
        except TooManyVisits:
            unbounded = [Unbounded(g.source.span(0, len(g.source.text)), TOO_LONG)]
            return Analysis({ANYTHING: UNBOUNDED}, unbounded, frozenset(pass_.reach.effects), [], visits)
        left = pass_.visits
        if heap.settled(counts, passes):
            break
        heap, passes = Heap(heap.known), passes + 1
    reach = pass_.reach
    unbounded = [Unbounded(g.span_at(cast(ast.AST, each.at)), each.reason) for each in reach.loose]
    by_data = [g.span_at(cast(ast.AST, node)) for node in reach.any_name.values()]
    said = {key: bound for key, bound in counts.items() if not key.startswith(GROWN)}
    return Analysis(said, unbounded, frozenset(reach.effects), by_data, visits - left, heap.known.given)


def _variables(
    text: Text, kind: Callable[[str], str], bindings: Mapping[str, Any], sources: Iterable[str] | Mapping[str, str]
) -> dict[str, Value]:
    """The abstract values of the variables from outside."""
    named = {name: name for name in text.used if kind(name) in ("unknown", "variable")}
    main = text.g.scopes.function("main")
    named |= {var.name: var.name for var in text.parameters[main]} if main is not None else {}
    named |= cast("Mapping[str, str]", sources) if isinstance(sources, Mapping) else {name: name for name in sources}
    variables = {name: Value(foreign=True, texts=None, origins={source: None}) for name, source in named.items()}
    return variables | {name: constant(value) for name, value in bindings.items()}


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
