"""Calls of every row of both surfaces, with a secret at each place of each argument.

A place is an argument as a whole, an element, a key, a value, or a part of one of these. The calls are found by trying: values of the types that the
row takes, at every position and by every keyword. So a new row is called without a word here; what texts do without naming a function (operators,
displays, stores) has a line in :data:`SYNTAX`.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# Tests of exact types make list[Unknown] of Any.
from __future__ import annotations

import itertools
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from agentflow import AgentFlow, SexpEnvironment
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.known_names import GUARDED
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Surface
from agentflow.core.data.values import OrderedSet, Symbol
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.literals import TYPES, letter_at
from agentflow.lang.python.builtins import BUILTINS, SORT
from agentflow.lang.python.methods import METHODS
from agentflow.lang.python.rows import Row


@dataclass(frozen=True)
class Procedure:
    """A procedure, and another one that it is chosen from, in both surfaces; ``tests``: what it gives depends on its argument by a test only."""

    python: str
    sexp: str
    tests: bool = False


DONE, OTHER, FAILED = (
    TaskResult.complete("yes"),
    TaskResult.complete("no, later"),
    TaskResult.failure("execution_halted", "no"),
)
PROCEDURES = (
    Procedure("lambda q, w=0: q", "(lambda (q . more) q)"),
    Procedure("lambda q=1, w=1: 5", "(lambda (. all) (length all))"),
    Procedure("lambda q, w: q - w", "(lambda (q w) (- q w))"),
    Procedure("lambda q, w=0: q == 1", "(lambda (q . more) (eq? q 1))", tests=True),
    Procedure("lambda q, w: q < w", "(lambda (q w) (< q w))", tests=True),
)
POOL: tuple[Any, ...] = (
    *(
        2,
        0,
        2.5,
        "b,a",
        "b",
        "2",
        "{}",
        "{}{}",
        '{"x": [1]}',
        [3, 1, 2],
        ["b", "a"],
        [[1, 2], [0, 4]],
        [("a", 1), ("b", 2)],
        [],
    ),
    *((3, 1), ("b", "c"), {"b": 1, "a": [2]}, {1: "x", 2: "y"}, OrderedSet([2, 1]), OrderedSet(["b"]), None, True),
    *(Symbol("b"), DONE, *PROCEDURES),
)
"""The values that are tried as arguments."""
KINDS: dict[type[Any], tuple[Any, ...]] = {
    int: (0, 1, 3, -1, "a", [1], None),
    bool: (False, True, 2, "a"),
    float: (0, 1.5, 3, "a"),
    str: ("", "a", "b", "b,b", 1, [1]),
    list: ([], [1], [5, 7], ["b"], "ab", {"a": 1}, 1),
    tuple: ((1,), (5, 7), ("b",), "b", [1], 1),
    dict: ({}, {"z": 1}, {"a": 2, "b": 1}, {1: "z"}, [1], 1),
    OrderedSet: (OrderedSet(), OrderedSet([5]), OrderedSet([9, 8, 2]), [1], 1),
    type(None): (1, "a", [2]),
    Symbol: (Symbol("c"), "b"),
    TaskResult: (OTHER, FAILED, 1),
    Procedure: (0, 1),
}
"""For a value of each type, what is in its place in other runs: others of its type first, then some that may not fit."""
Path = tuple[Any, ...]


@dataclass(frozen=True)
class Operation:
    """A way to call a row: ``template`` has a place for each operand, of a type by the letters of :mod:`agentflow.lang.literals`."""

    title: str
    surface: Surface
    template: str
    letters: str
    kind: type[Any] | None = None
    """The exact type of the first operand, for methods."""
    by_keyword: bool = False
    """Whether it gives an argument by its name."""
    first: int = 0
    """The first operand that no other call of the row has."""

    @property
    def is_statement(self) -> bool:
        return self.template.startswith("!")

    @property
    def tests(self) -> bool:
        """Whether it chooses by a test."""
        return self.title in TESTING

    @property
    def changes(self) -> bool:
        """Whether it may change its first operand."""
        if self.is_statement:
            return self.title.removeprefix("syntax ") in CHANGING
        return self.kind is not None and METHOD_CHANGES[self.kind].get(self.title.rpartition(".")[2]) is not None

    def code(self) -> str:
        """The call on the variables ``a0``, ``a1``, ..., with its value as ``out``."""
        call = self.template.lstrip("!").format(*[f"a{at}" for at in range(len(self.letters))])
        if self.surface == "sexp":
            return f"(set! out {call})"
        return call if self.is_statement else f"out = {call}"

    def fits(self, at: int, value: Any) -> bool:
        """Whether a value may be the operand at a position."""
        if at == 0 and self.kind is not None:
            return type(value) is self.kind
        if type(value) in (Symbol, TaskResult) and self.surface == "python":
            return False
        letter = self.letters[at]
        if isinstance(value, Procedure):
            return letter in "pPo"
        return type(value) in TYPES[letter] or (letter == "r" and type(value) is TaskResult)


TESTING = {"function filter", "primitive filter", "syntax truth", "syntax any_of", "syntax iterated"}
"""What chooses or counts by a test, which is followed only under a strict policy."""
CHANGING = {"store", "store in place", "remove", "add_to", "subtract_from", "bitwise_to"}
"""The statements that change their first operand."""
METHOD_CHANGES = {
    kind: {name: row.changes for name, row in {**methods, **({"sort": SORT} if kind is list else {})}.items()}
    for kind, methods in METHODS.items()
}

# -- the ways to call each row ------------------------------------------------------------------------------------

LEFT_OUT = frozenset({"gensym", "now", "random", "uuid", "sleep", "endorse", "sources", "log-message", *GUARDED})
"""Primitives whose value is another one each time, that do effects, or that are about labels themselves."""
_MOST = 3


def _counts(least: int, most: int) -> range:
    return range(max(least, 0), (_MOST if most < 0 else min(most, _MOST)) + 1)


def _calls(title: str, head: str, row: Row, kind: type[Any] | None = None) -> Iterator[Operation]:
    """The calls of a function or a method: by position with each number of arguments, and by each keyword."""
    first = 0 if kind is None else 1
    own = "." * first

    def letter(at: int) -> str:
        return letter_at(row.takes, at) if row.takes and (row.positional < 0 or at < row.positional) else "."

    def call(count: int, names: tuple[str, ...] = (), new: int = 0) -> Operation:
        several = count == 1 and row.alone is not None
        letters = [row.alone if several and row.alone else letter(at) for at in range(count)]
        positional = [f"{{{first + at}}}" for at in range(count)]
        named = [f"{name}={{{first + count + at}}}" for at, name in enumerate(names)]
        for name in names:
            at = row.names.index(name)
            letters.append(
                "P" if name == "key" and row.is_async else letter(at) if at < max(row.positional, 0) else "."
            )
        return Operation(
            title,
            "python",
            f"{head}({', '.join([*positional, *named])})",
            own + "".join(letters),
            kind,
            bool(names),
            new,
        )

    new = 0
    for count in _counts(row.least, row.positional):
        if first + count:
            yield call(count, new=new)
            new = first + count
    base = row.least if row.positional >= 0 else 1
    for name in row.names[row.least :] if row.positional >= 0 else row.names:
        if not (row.is_async and row.name in ("map", "filter")):
            yield call(base, (name,), first + base)
    if row.positional > 0 and row.least:
        yield call(0, row.names[: row.least], first)


SYNTAX: dict[str, list[tuple[str, str]]] = {
    "add": [("{0} + {1}", "..")],
    "subtract": [("{0} - {1}", "..")],
    "multiply": [("{0} * {1}", "..")],
    "divide": [("{0} / {1}", "nn")],
    "floor_divide": [("{0} // {1}", "nn")],
    "modulo": [("{0} % {1}", "nn")],
    "power": [("{0} ** {1}", "nn")],
    "shift": [("{0} << {1}", "ii"), ("{0} >> {1}", "ii")],
    "bitwise": [("{0} & {1}", ".."), ("{0} | {1}", ".."), ("{0} ^ {1}", "..")],
    "negative": [("-{0}", "n")],
    "positive": [("+{0}", "n")],
    "inverted": [("~{0}", "i")],
    "negated": [("not {0}", ".")],
    "truth": [("{0} and 5", "."), ("{0} or 5", ".")],
    "eq": [("{0} == {1}", "..")],
    "ne": [("{0} != {1}", "..")],
    "ordered": [("{0} < {1}", ".."), ("{0} >= {1}", "..")],
    "contains": [("{0} in {1}", ".c"), ("{0} not in {1}", ".c")],
    "is_": [("{0} is None", "."), ("{0} is not {1}", "..")],
    "is_instance": [("isinstance({0}, str)", ".")],
    "element": [("{0}[{1}]", ".."), ("{0}[0]", "."), ("{0}['b']", "d")],
    "part": [("{0}[{1}:]", ".i"), ("{0}[:{1}]", ".i"), ("{0}[{1}:{2}]", "lii"), ("{0}[::{1}]", "li")],
    "member": [("{0}.a", "d"), ("{0}.b", "d")],
    "text": [("f'{{{0}}}'", "."), ("f'<{{{0}}}{{{1}!r}}>'", "..")],
    "formatted": [("f'{{{0}:>4}}'", "v"), ("f'{{{0}:{{{1}}}}}'", "vi")],
    "gathered": [("[{0}, 5]", "."), ("[*{0}, 5]", "c"), ("[0, *{0}, {1}]", "c.")],
    "as_tuple": [("({0}, 5)", "."), ("(*{0}, 5)", "c")],
    "as_set": [("{{{0}, 1, 'b'}}", "k"), ("{{*{0}, 1, 'b'}}", "c")],
    "entries": [("{{{0}: {1}, 'b': 2}}", "k."), ("{{**{0}, 'b': 2}}", "d")],
    "spread_dict": [("{{'b': 2, **{0}}}", "d"), ("{{**{0}}}", "d")],
    "unpacked": [
        ("!out, *rest = {0}", "c"),
        ("!first, *out = {0}", "c"),
        ("!*out, last = {0}", "c"),
        ("![out, more], *rest = {0}", "c"),
    ],
    "iterated": [
        ("[q for q in {0}]", "c"),
        ("{{q: 5 for q in {0}}}", "c"),
        ("{{q for q in {0}}}", "c"),
        ("[[q, w] for q in {0} for w in {1}]", "cc"),
        ("!for out in {0}:\n    0", "c"),
        ("!out = [0]\nfor q in {0}:\n    out.append(q)", "c"),
    ],
    "any_of": [("any(q for q in {0})", "c"), ("all(q for q in {0})", "c")],
    "store": [
        ("!{0}[{1}] = {2}", "dk."),
        ("!{0}[{1}] = {2}", "li."),
        ("!{0}['b'] = {1}", "d."),
        ("!{0}[0] = {1}", "l."),
    ],
    "store in place": [("!{0}[{1}] += {2}", "lin"), ("!{0}['b'] += {1}", "dn")],
    "remove": [("!del {0}[{1}]", "lI"), ("!del {0}[{1}]", "dk"), ("!del {0}['b']", "d")],
    "add_to": [("!{0} += {1}", ".."), ("!{0}[0] += {1}", "lc")],
    "subtract_from": [("!{0} -= {1}", "..")],
    "bitwise_to": [("!{0} |= {1}", ".."), ("!{0} &= {1}", ".."), ("!{0} ^= {1}", "..")],
    "raised": [("!try:\n    raise ValueError({0})\nexcept ValueError as e:\n    out = [str(e), e.message]", "s")],
    "call": [("(lambda q, w=1: [q, w])({0})", "."), ("(lambda q, *, w=1: [q, w])({0}, w={1})", "..")],
}
"""What Python texts do without naming a function, by the function that carries it out: a form, ``!`` before a statement, with the types of its operands."""


def operations() -> dict[str, list[Operation]]:
    """The ways to call each row, by the title of the row."""
    ways: dict[str, list[Operation]] = {}
    for name, row in BUILTINS.items():
        ways[f"function {name}"] = list(_calls(f"function {name}", name, row))
    for kind, methods in METHODS.items():
        for name, row in {**methods, **({"sort": SORT} if kind is list else {})}.items():
            title = f"method {kind.__name__}.{name}"
            ways[title] = list(_calls(title, f"{{0}}.{name}", row, kind))
    for name, forms in SYNTAX.items():
        ways[f"syntax {name}"] = [Operation(f"syntax {name}", "python", form, letters) for form, letters in forms]
    for name, each in PRIMITIVES.items():
        if name == each.canonical and name not in LEFT_OUT:
            most = -1 if each.arity[1] is None else each.arity[1]
            ways[f"primitive {name}"] = [
                Operation(
                    f"primitive {name}",
                    "sexp",
                    "(" + " ".join([name, *[f"{{{at}}}" for at in range(count)]]) + ")",
                    "".join([letter_at(each.takes, at) if each.takes else "." for at in range(count)]),
                    first=0 if count <= max(each.arity[0], 1) else count - 1,
                )
                for count in _counts(each.arity[0], most)
                if count
            ]
    return ways


OPERATIONS = operations()


# -- finding calls ------------------------------------------------------------------------------------------------


def sort_of(value: Any) -> Any:
    """What distinguishes operands: their type, and whether they hold containers."""
    if isinstance(value, Procedure):
        return value
    if isinstance(value, list | tuple):
        return type(value), isinstance(value[0], list | tuple) if value else None
    return int if isinstance(value, bool | float) else type(value)


async def procedures_of(flow: AgentFlow, surface: Surface) -> dict[Procedure, Any]:
    """The procedures of the pool in a flow."""
    return {
        each: (await flow.run(each.python if surface == "python" else each.sexp, surface=surface)).value
        for each in PROCEDURES
    }


_LEAST_WITH_DEFAULT = 3
_AS_MANY = 400
"""The most combinations of operands that are tried."""


async def calls_of(flow: AgentFlow, operation: Operation) -> list[tuple[tuple[Any, ...], list[int]]]:
    """Operands with which a call succeeds: some of each sort at each position. And the positions at which a sort is new."""
    pools = [[each for each in POOL if operation.fits(at, each)] for at in range(len(operation.letters))]
    called = any(isinstance(each, Procedure) for pool in pools for each in pool)
    made = await procedures_of(flow, operation.surface) if called else {}
    text = operation.code() if operation.surface == "python" else f"(define out 0) {operation.code()}"
    chosen: list[tuple[tuple[Any, ...], list[int]]] = []
    covered: set[Any] = set()
    combinations = list(itertools.product(*pools))
    for operands in combinations[:: max(len(combinations) // _AS_MANY, 1)]:
        sorts = {(at, sort_of(each)) for at, each in enumerate(operands)}
        if sorts <= covered and len(operands) < _LEAST_WITH_DEFAULT:
            continue
        bound = {
            f"a{at}": made[each] if isinstance(each, Procedure) else deepcopy(each) for at, each in enumerate(operands)
        }
        env = SexpEnvironment(bound)
        try:
            await flow.run(text, surface=operation.surface, env=env)
        except AgentflowError:
            continue
        cell = env.find("out")
        sorts |= {(at, sort_of(each), cell is not None and cell.v == each) for at, each in enumerate(operands[2:], 2)}
        if not sorts <= covered:
            new = range(len(operands)) if operation.kind is OrderedSet else {at for at, *_ in sorts - covered}
            chosen.append((operands, sorted({at for at in new if at >= operation.first})))
            covered |= sorts
    return chosen


# -- places -------------------------------------------------------------------------------------------------------


def places(value: Any, surface: Surface, depth: int = 2) -> Iterator[tuple[Path, Any]]:
    """The places in a value, with what is there. A dict of S-expressions has no labels on its keys: it has them itself."""
    yield (), value
    if not depth or not isinstance(value, list | tuple | OrderedSet | dict) or not len(value):
        return
    if isinstance(value, dict):
        key, part = list(value.items())[-1]
        if surface == "python":
            yield ("key",), key
        inner: list[tuple[Any, Any]] = [("value", part)]
    elif isinstance(value, OrderedSet):
        inner = [("key", list(value)[-1])] if surface == "python" else []
    else:
        inner = [(at, value[at]) for at in sorted({0, len(value) - 1})]
    for at, part in inner:
        for path, found in places(part, surface, depth - 1):
            yield (at, *path), found


def others(value: Any, path: Path, operands: tuple[Any, ...]) -> list[Any]:
    """What is at a place in the runs: the value itself, others, and what other operands have."""
    if isinstance(value, Procedure):
        return [0, 1]
    beside = [each for each in operands if isinstance(each, int | str | float)]
    beside += [
        each for operand in operands if isinstance(operand, list | tuple | OrderedSet | dict) for each in operand
    ]
    listed: list[Any] = []
    for each in (value, *KINDS[type(value)], *beside[:4]):
        fits = "key" not in path or isinstance(each, int | str | float | tuple | None)
        if fits and not any(type(each) is type(other) and each == other for other in listed):
            listed.append(each)
    return listed


def planted(value: Any, path: Path, secret: Any) -> Any:
    """A value with another at a place."""
    if not path:
        return secret
    if isinstance(value, dict):
        last = list(value)[-1]
        if path[0] == "key":
            return {**{key: each for key, each in value.items() if key is not last}, secret: value[last]}
        return {**value, last: planted(value[last], path[1:], secret)}
    at = len(value) - 1 if path[0] == "key" else path[0]
    parts = [planted(each, path[1:], secret) if index == at else each for index, each in enumerate(value)]
    return type(value)(parts)


def written(value: Any, path: Path | None = None) -> str:
    """A value as the text of a program in Python, with ``s`` at a place."""
    if isinstance(value, Procedure):
        return f"({value.python})" if path is None else f"[({value.python}), ({PROCEDURES[0].python})][s]"
    if path == ():
        return "s"
    at = None if path is None else len(value) - 1 if path[0] in ("key", "value") else path[0]
    inner = path[1:] if path else None
    if isinstance(value, dict):
        entries: list[str] = []
        for index, (key, each) in enumerate(value.items()):
            shown = "s" if index == at and path and path[0] == "key" else repr(key)
            entries.append(f"{shown}: {written(each, inner if index == at and path and path[0] == 'value' else None)}")
        return "{" + ", ".join(entries) + "}"
    if not isinstance(value, list | tuple | OrderedSet):
        return repr(value)
    parts = [written(each, inner if index == at else None) for index, each in enumerate(value)]
    if isinstance(value, tuple):
        return f"({', '.join(parts)},)"
    return f"[{', '.join(parts)}]" if isinstance(value, list) else "{" + ", ".join(parts) + "}"
