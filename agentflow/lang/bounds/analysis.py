"""Upper bounds of the effects of a program, from its nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from agentflow.core.data.frozen import frozen
from agentflow.core.data.source import Span
from agentflow.lang.bounds import control
from agentflow.lang.bounds import nodes as nodes_with_values
from agentflow.lang.bounds.cost import GROWN
from agentflow.lang.bounds.facts import NodeFacts
from agentflow.lang.bounds.heap import Changes, Heap
from agentflow.lang.bounds.interpret import ANYTHING, AnalysisInputs, Interpreter, Spend, TooManyVisits, free
from agentflow.lang.bounds.polynomial import UNBOUNDED, ZERO, Bound
from agentflow.lang.bounds.tables import Tables
from agentflow.lang.bounds.values import AbstractScope
from agentflow.lang.kernel.nodes import Node

RULES = (control, nodes_with_values)
"""The modules that follow nodes; importing them declares their rules."""
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


def analyse_bounds(
    root: Node,
    facts: NodeFacts,
    tables: Tables,
    kind: Callable[[str], str],
    whole: Span,
    inputs: AnalysisInputs,
    spend: Spend = free,
) -> Analysis:
    """Follow the nodes of a program, until no list changes that was taken to stay the same.

    ``kind`` gives the kind of a free name, ``whole`` is the span of the program. ``spend`` pays for the visited nodes, and may raise.
    """
    templates = inputs.templates(facts.templates)
    used = [name for name in facts.used if name not in templates and kind(name) in ("unknown", "variable")]
    variables = inputs.variables(used)
    heap, left, passes = Heap(Changes()), inputs.visits, 0
    outermost = AbstractScope(
        None
    )  # shared by all passes, which so recognise the functions that earlier ones put into lists
    while True:
        one = Interpreter(facts, tables, heap, replace(inputs, visits=left), templates, variables, kind, spend)
        counts: Mapping[str, Bound] | None = None
        with suppress(TooManyVisits):
            one.begin(outermost)
            counts = one.told((), root, outermost).whole().total.counts
        left = one.visits
        if counts is None or heap.settled(counts, passes):
            break
        heap, passes = Heap(heap.known), passes + 1
    reaches = frozenset(one.reach.effects)
    if counts is None:
        return Analysis({ANYTHING: UNBOUNDED}, [Unbounded(whole, TOO_LONG)], reaches, [], inputs.visits)
    counts = {key: bound for key, bound in counts.items() if not key.startswith(GROWN)}
    unbounded = [Unbounded(each.at or whole, each.reason) for each in one.reach.loose]
    by_data = [each or whole for each in one.reach.any_name]
    return Analysis(counts, unbounded, reaches, by_data, inputs.visits - left, heap.known.given)
