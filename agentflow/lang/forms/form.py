"""Declaration of special forms, and the checks of their syntax that all of them share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import Any

from agentflow.lang.analyzer import Analyzer, FormFunction, SpecialForm
from agentflow.lang.syntax import Form, Name, Node

_MARK = "__forms__"


def form(name: str, *, usage: str, **columns: Any) -> Callable[[FormFunction], FormFunction]:
    """Declare that the decorated function analyses the form ``name``; its docstring is the form's documentation. The columns are those of
    :class:`~agentflow.lang.analyzer.SpecialForm`."""

    def mark(function: FormFunction) -> FormFunction:
        group = function.__module__.rpartition(".")[2]
        declared = SpecialForm(name, function, usage, inspect.getdoc(function) or "", group, **columns)
        setattr(function, _MARK, [*getattr(function, _MARK, []), declared])
        return function

    return mark


def collect(modules: Iterable[ModuleType]) -> Mapping[str, SpecialForm]:
    """The forms declared in ``modules``, sorted by name. Raises TypeError for a duplicate name."""
    forms: dict[str, SpecialForm] = {}
    for module in modules:
        for value in vars(module).values():
            if getattr(value, "__module__", None) != module.__name__:
                continue
            for each in getattr(value, _MARK, ()):
                if each.name in forms:
                    raise TypeError(f"two forms are called {each.name}")
                forms[each.name] = each
    return MappingProxyType(dict(sorted(forms.items())))


def operands(a: Analyzer, node: Form, least: int, most: int | None, usage: str) -> list[Node]:
    """The operands of a form. Raises SexpEvaluationError (``form/arity``) if their number is wrong."""
    items = node.items[1:]
    if len(items) < least or (most is not None and len(items) > most):
        name = head(node)
        expected = f"{least}" if most == least else f"at least {least}" if most is None else f"{least} to {most}"
        raise a.error(
            node,
            "form/arity",
            f"'{name}' takes {expected} operand{'' if expected == '1' else 's'}, and was given {len(items)}",
            f"write {usage}",
        )
    return items


def head(node: Form) -> str:
    """The name at the head of a form."""
    first = node.items[0]
    return first.name if type(first) is Name else "?"


def bindings(a: Analyzer, node: Node, who: str) -> list[tuple[Name, Node]]:
    """``((name expr) ...)`` as pairs. Raises SexpEvaluationError (``form/bindings``)."""
    usage = f"write ({who} ((name value) ...) body ...)"
    if type(node) is not Form:
        raise a.error(node, "form/bindings", f"the bindings of '{who}' are a list of (name value) pairs", usage)
    pairs: list[tuple[Name, Node]] = []
    for item in node.items:
        if type(item) is not Form or len(item.items) != 2:
            raise a.error(item, "form/bindings", f"a binding of '{who}' is a (name value) pair", usage)
        name, value = item.items
        if type(name) is not Name:
            raise a.error(name, "form/bindings", f"what '{who}' binds is a name", usage)
        pairs.append((name, value))
    return pairs


def distinct(a: Analyzer, names: Sequence[Name], who: str) -> None:
    """Raise SexpEvaluationError (``form/duplicate``) if a name occurs twice."""
    seen: set[str] = set()
    for name in names:
        if name.name in seen:
            raise a.error(name, "form/duplicate", f"'{who}' binds '{name.name}' twice", "give each name once")
        seen.add(name.name)
