"""Upper bounds of the effects of a program, from its text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from agentflow.core.data.frozen import frozen
from agentflow.core.data.source import Span
from agentflow.lang import ir
from agentflow.lang.analyzer import Analyzer
from agentflow.lang.bounds.flow import defined_name
from agentflow.lang.bounds.guards import Setters
from agentflow.lang.bounds.interpret import (
    ANYTHING,
    AbstractScope,
    AnalysisInputs,
    Interpreter,
    Spend,
    TooManyVisits,
    free,
)
from agentflow.lang.bounds.nodes import HIGHER, OPERATIONS, RULES
from agentflow.lang.bounds.polynomial import UNBOUNDED, ZERO, Bound
from agentflow.lang.checks import children

TOO_LONG = "the analysis took too long: the program is too large, or calls itself in too many ways"
"""The reason for a program that was not followed to its end."""


@frozen
class Unbounded:
    """A part of a program with effects that have no upper bound, and the reason."""

    span: Span
    reason: str


@frozen
class Analysis:
    """The most effects of a program. ``counts`` by ``kind:name`` and by the caller's own keys, ``width`` those at once;
    ``changes`` are the variables from outside with lists, dicts and sets that it may change (None: any);
    ``unbounded`` every part without a bound; ``reaches`` the effects, by kind and name; ``by_data`` the calls with a callee
    that data may choose; ``visits`` is the number of visited nodes."""

    counts: Mapping[str, Bound]
    unbounded: Sequence[Unbounded]
    reaches: frozenset[tuple[str, str]]
    by_data: Sequence[Span]
    visits: int = 0
    changes: frozenset[str] | None = frozenset()

    def bound(self, key: str) -> Bound:
        """The upper bound of a key."""
        return UNBOUNDED if ANYTHING in self.counts else self.counts.get(key, ZERO)


def analysis_from(
    pass_: Interpreter,
    counts: Mapping[str, Bound] | None,
    inputs: AnalysisInputs,
    whole: Span,
    span: Callable[[Any], Span],
    changes: frozenset[str] | None = frozenset(),
) -> Analysis:
    """The findings of a pass over a text; ``counts`` is None if it was not followed to its end, ``whole`` is the span of the whole text."""
    reaches = frozenset(pass_.reach.effects)
    if counts is None:
        return Analysis({ANYTHING: UNBOUNDED}, [Unbounded(whole, TOO_LONG)], reaches, [], inputs.visits)
    unbounded = [Unbounded(span(each.at), each.reason) for each in pass_.reach.loose]
    by_data = [span(node) for node in pass_.reach.any_name.values()]
    return Analysis(counts, unbounded, reaches, by_data, inputs.visits - pass_.visits, changes)


def analyse_bounds(analyzer: Analyzer, tree: ir.Seq, inputs: AnalysisInputs, spend: Spend = free) -> Analysis:
    """Follow an analysed program. ``spend`` pays for the visited nodes, and may raise."""
    defined: dict[str, int] = {}
    top = set(map(id, tree.items))
    setters = Setters()
    nodes = list(_nodes(tree))
    for node in nodes:
        setters.note(node)
        if isinstance(node, ir.DefineGlobal):
            defined[node.name] = defined.get(node.name, 0) + (1 if id(node) in top else 2)
        elif isinstance(node, ir.SetGlobal):
            defined[node.name] = 2
    variables = inputs.variables(_unbound_values(nodes))
    interpreter = Interpreter(
        inputs,
        inputs.templates(_templates(nodes)),
        {name: value for name, value in variables.items() if name not in defined},
        lambda name: analyzer.describe(name).kind,
        frozenset(name for name, times in defined.items() if times == 1),
        rules=RULES,
        operations=OPERATIONS,
        higher=HIGHER,
        setters=setters,
        spend=spend,
    )
    counts: Mapping[str, Bound] | None = None
    with suppress(TooManyVisits):
        counts = interpreter.follow(tree, AbstractScope(None))[1].total.counts
    return analysis_from(interpreter, counts, inputs, analyzer.span(tree.at), analyzer.span)


def templates_of(tree: ir.IR) -> dict[str, list[Any]]:
    """The templates that a program defines, by name."""
    return _templates(_nodes(tree))


def _templates(nodes: Iterable[Any]) -> dict[str, list[Any]]:
    templates: dict[str, list[Any]] = {}
    for node in nodes:
        if isinstance(node, ir.RuntimeCall) and node.op == "define-task":
            templates.setdefault(defined_name(node), []).append(node.constants[0])
    return templates


def _unbound_values(nodes: Iterable[Any]) -> set[str]:
    """The unbound names used as values, not called."""
    called: set[int] = set()
    names: dict[int, str] = {}
    for node in nodes:
        if isinstance(node, ir.Unknown):
            names[id(node)] = node.name
        elif isinstance(node, ir.Call | ir.Link):
            called.add(id(node.operator))
    return {name for each, name in names.items() if each not in called}


def _nodes(tree: ir.IR) -> Iterator[Any]:
    pending: list[Any] = [tree]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(children(node))
