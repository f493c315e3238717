"""Programs that a program runs: saved workflows by name, and constant texts of ``eval-program``.

Each is analysed separately, with sizes named after its parameters. At a call site the sizes of the arguments replace these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from agentflow.core.data.frozen import frozen
from agentflow.core.data.source import Surface
from agentflow.lang.bounds.cost import Cost, Effects
from agentflow.lang.bounds.polynomial import Bound
from agentflow.lang.bounds.values import Value
from agentflow.lang.kernel.nodes import Const, Node, Prim
from agentflow.lang.printer import print_value
from agentflow.lang.support import fresh

PARAMETER = "\1"
"""The prefix of the names of a parameter's sizes, which no task name has."""


@frozen
class Inner:
    """The upper bounds of an inner program. ``reasons`` explain each missing bound; ``visits`` is the cost of its analysis;
    ``changes`` are the parameters with lists, dicts and sets that it may change (None: any)."""

    counts: Mapping[str, Bound]
    reaches: frozenset[tuple[str, str]] = frozenset()
    reasons: Sequence[str] = ()
    by_data: bool = False
    visits: int = 0
    changes: frozenset[str] | None = frozenset()


class Programs(Protocol):
    """Analyses inner programs. A returned text is the reason why it cannot."""

    def workflow(self, name: str, visits: int) -> Inner | str:
        """The saved workflow called ``name``, in at most ``visits`` visits."""
        ...

    def text(
        self,
        text: str,
        allow: frozenset[str],
        parameters: frozenset[str],
        visits: int,
        surface: Surface = "sexp",
    ) -> Inner | str:
        """A program text in ``surface`` that may call ``allow`` only and has ``parameters`` bound."""
        ...


def text_of(node: Node, value: Value) -> str | None:
    """The program text in an operand of ``eval-program``; None unless it is a constant."""
    if isinstance(node, Prim) and node.function is fresh:
        node = node.args[0]
    if isinstance(node, Const):
        constant: Any = node.value
        return constant if isinstance(constant, str) else print_value(constant)
    texts = value.texts
    return next(iter(texts)) if texts is not None and len(texts) == 1 and _only_text(value) else None


def _only_text(value: Value) -> bool:
    plain = value.size is None and value.item is None and value.fields is None and value.high is None
    return plain and not (value.procedures or value.foreign)


def cost_of(inner: Inner, arguments: Mapping[str, Value]) -> Cost | str:
    """The cost of a call with these arguments; a text names the unknown size."""
    names = frozenset[str]().union(*(bound.sizes for bound in inner.counts.values()))
    sizes: dict[str, Bound] = {}
    for name in names:
        if name.startswith(f"len({PARAMETER}"):
            path = name.removeprefix(f"len({PARAMETER}").removesuffix(")")
            size = _size(arguments, path)
            if size is None or size.terms is None:
                return path
            sizes[name] = size
    return Cost({(): Effects({key: bound.replaced(sizes) for key, bound in inner.counts.items()})})


def _size(arguments: Mapping[str, Value], path: str) -> Bound | None:
    parameter, *keys = path.split(".")
    value = arguments.get(parameter)
    for key in keys:
        if value is None or any("." in name for name in value.fields or ()):
            return None  # ambiguous: a path cannot show keys that contain points
        value = value.element() if key == "*" else value.part(key)
    return None if value is None else value.length
