"""Upper bounds of the effects of a program, from its text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from agentflow.core.data.frozen import frozen
from agentflow.core.data.source import Span
from agentflow.lang import ir
from agentflow.lang.analyzer import Analyzer
from agentflow.lang.bounds.flow import defined_name
from agentflow.lang.bounds.inner import Programs
from agentflow.lang.bounds.interpret import (
    ANYTHING,
    MOST_VISITS,
    AbstractScope,
    Interpreter,
    Spend,
    TooManyVisits,
    free,
)
from agentflow.lang.bounds.loops import Setters
from agentflow.lang.bounds.nodes import HIGHER, OPERATIONS, RULES
from agentflow.lang.bounds.polynomial import UNBOUNDED, ZERO, Bound
from agentflow.lang.bounds.values import Value, constant
from agentflow.lang.checks import children

Weights: TypeAlias = Callable[[str, str, Sequence[Any]], Mapping[str, float] | str]
"""The weights of one effect, by its kind, its name and the templates that the program itself defines under that name.

Kinds are ``task``, ``tool``, ``context``, ``workflow``, ``ask``, ``any``, which is a call of a name that is data, and ``solve``: one model
call of those that a ``solve`` says that it makes at most; and ``history_config`` and ``context``, what a call of a task weighs more that
has settings of that name. The keys
of the answer are the caller's own; a text says why nothing bounds what it does.
"""
Shapes: TypeAlias = Callable[[str, Sequence[Any]], Mapping[str, Any] | None]
"""The JSON Schema that the answers of a task keep to, by its name and the templates that the program gives that name."""


TOO_LONG = "the analysis took too long: the program is too large, or calls itself in too many ways"
"""The reason of a program that was not followed to its end."""


@frozen
class Unbounded:
    """A part of a program whose effects have no upper bound, and the reason."""

    span: Span
    reason: str


@frozen
class Analysis:
    """The most effects of a program. ``counts`` by ``kind:name`` and by the caller's own keys, ``width`` those at once;
    ``changes`` are the variables from outside whose lists, dicts and sets it may change (None: any);
    ``unbounded`` every part without a bound; ``reaches`` the effects, by kind and name; ``by_data`` where data may say
    what is called; ``visits`` are the nodes that were visited."""

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
    analyzer: Analyzer,
    tree: ir.Seq,
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
    """Follow an analysed program. ``bindings`` are values that it is given, ``sources`` names of bindings whose value is
    not known: their sizes are named after them, or after what ``sources`` says of a name, as are those of names that nothing binds
    and that are used as values. Any other variable may be anything.
    ``shapes`` gives the JSON Schema that the answers of a task keep to, ``programs`` analyses programs that it runs, which
    find the templates ``around`` them by name. ``spend`` pays for the nodes that are visited, and may raise."""
    defined: dict[str, int] = {}
    templates: dict[str, list[Any]] = {name: [*each] for name, each in (around or {}).items()}
    top = set(map(id, tree.items))
    setters = Setters()
    nodes = list(_nodes(tree))
    for node in nodes:
        setters.note(node)
        if isinstance(node, ir.DefineGlobal):
            defined[node.name] = defined.get(node.name, 0) + (1 if id(node) in top else 2)
        elif isinstance(node, ir.SetGlobal):
            defined[node.name] = 2
    for name, own in _templates(nodes).items():
        templates.setdefault(name, []).extend(own)
    named = {name: name for name in _unbound_values(nodes)}
    named |= cast("Mapping[str, str]", sources) if isinstance(sources, Mapping) else {name: name for name in sources}
    variables: dict[str, Value] = {
        name: Value(foreign=True, texts=None, origins={source: None}) for name, source in named.items()
    }
    variables |= {name: constant(value) for name, value in (bindings or {}).items()}
    variables = {name: value for name, value in variables.items() if name not in defined}

    def kind(name: str) -> str:
        return "task" if name in templates else analyzer.describe(name).kind

    interpreter = Interpreter(
        lambda kind, name: weights(kind, name, templates.get(name, ())),
        variables,
        kind,
        frozenset(name for name, times in defined.items() if times == 1),
        rules=RULES,
        operations=OPERATIONS,
        higher=HIGHER,
        shape=lambda name: shapes(name, templates.get(name, ())),
        programs=programs,
        setters=setters,
        visits=visits,
        spend=spend,
    )
    reach = interpreter.reach
    try:
        _, cost = interpreter.follow(tree, AbstractScope(None))
        counts = cost.total.counts
    except TooManyVisits:
        span = analyzer.span(tree.at)
        unbounded = [Unbounded(span, TOO_LONG)]
        return Analysis({ANYTHING: UNBOUNDED}, unbounded, frozenset(reach.effects), [], visits)
    unbounded = [Unbounded(analyzer.span(each.at), each.reason) for each in reach.loose]
    by_data = [analyzer.span(node) for node in reach.any_name.values()]
    return Analysis(counts, unbounded, frozenset(reach.effects), by_data, visits - interpreter.visits)


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
    """The unbound names that are used as values, not called."""
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
