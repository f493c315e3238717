"""Made-up texts in Python that compute, and whether what is said of each of their values covers what it is when they run.

    python -m tests.support.bounds_values --count 100000

Functions, methods, operators, changes of containers, unpacking, loops: each statement of a text takes values of all kinds. A
text is made from its number, so a failure is repeated with ``--first N --count 1``.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import collections
import random
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.core.data.values import OrderedSet
from agentflow.lang.bounds.containers import at_key, element_of, is_number
from agentflow.lang.bounds.facts import NodeFacts
from agentflow.lang.bounds.heap import NOWHERE, Changes, Heap, scalar
from agentflow.lang.bounds.interpret import MOST_VISITS, AnalysisInputs, Interpreter, free
from agentflow.lang.bounds.python.code import PYTHON
from agentflow.lang.bounds.tables import Tables
from agentflow.lang.bounds.values import AbstractScope, Value, constant
from agentflow.lang.program import describer
from agentflow.lang.python.builtins import BUILTINS
from agentflow.lang.python.compiling import checked
from agentflow.lang.python.methods import METHODS
from agentflow.lang.python.rows import Row
from tests.support.world import World

LIMITS = Limits(steps=20_000, wall_s=5.0, collection=2_000, string=5_000)
POOL = (
    *("0", "1", "3", "-2", "2.5", "True", "None"),
    *("''", "'a'", "'b,c'", "'12'", "' x '"),
    *("[]", "[1, 2, 3]", "[[1, 2], [3, 4]]", "['a', 'b']", "[2, 'x', None]", "list(range(14))", "[('k', 1)]"),
    *("()", "(1, 'a')", "((1, 2), (3, 4))", "set()", "{1, 2}", "{'a', 'b'}"),
    *("{}", "{'a': 1}", "{'b': [1]}", "{1: 2, 2: 3}", "{'a': {'b': 2}}", "{'c': 1, **{'d': []}}"),
    *("(lambda x: x)", "len", "str", "[len, str]", "{'f': len}", "(lambda x: [x, 1])"),
    *("R(1)", "R([], b='z')", "json.loads('[1, {\"a\": [2]}]')", "{'1': 5, '0': 'zero'}"),
)
"""What values begin as."""
RECORD = "class R:\n    a: int\n    b: str = 'b'\n"
_BINARY = ("+", "-", "*", "/", "//", "%", "**", "|", "&", "^")
_COMPARED = ("<", "<=", "==", "!=", ">", ">=", "in", "not in", "is")


def statements_of(rng: random.Random) -> list[str]:
    """The statements of a text."""
    names = [f"x{number}" for number in range(3)]
    values = [rng.choice(POOL) for _ in names]
    author = _Author(rng, names, {name: _kind(value) for name, value in zip(names, values, strict=True)})
    statements = [RECORD, *(f"{name} = {value}" for name, value in zip(names, values, strict=True))]
    statements += ["\n".join(author.statement()) for _ in range(rng.randrange(2, 8))]
    return statements


def text_of(statements: list[str]) -> str:
    """The text of statements, which gives a list of its variables."""
    bound = dict.fromkeys(
        each.id
        for node in ast.parse("\n".join(statements)).body
        if not isinstance(node, ast.FunctionDef)
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store) and each.id.startswith("x")
    )
    return "\n".join([*statements, f"[{', '.join(bound)}]"])


def _kind(text: str) -> type[Any]:
    """The type of a value of the pool, as far as its first characters say."""
    if text.startswith(("R(", "{")):
        return OrderedSet if text in ("{1, 2}", "{'a', 'b'}") else dict
    kinds = {"(": tuple, "s": OrderedSet, "'": str, "[": list, "l": list, "j": list}
    return object if "lambda" in text or text in ("len", "str") else kinds.get(text[0], float)


class _Author:
    def __init__(self, rng: random.Random, names: list[str], kinds: dict[str, type[Any]]) -> None:
        self.rng = rng
        self.names = names
        self.kinds = kinds

    def of_kind(self, kind: type[Any]) -> str:
        """A variable that begins as a value of a type, or such a value."""
        known = [name for name in self.names if self.kinds.get(name) is kind]
        return (
            self.rng.choice(known) if known else f"({self.rng.choice([each for each in POOL if _kind(each) is kind])})"
        )

    def any(self) -> str:
        return self.rng.choice(self.names) if self.rng.random() < 0.8 else f"({self.rng.choice(POOL)})"

    def new(self, text: str) -> list[str]:
        if self.rng.random() < 0.25:
            return [f"{self.rng.choice(self.names)} = {text}"]
        self.names.append(f"x{len(self.names)}")
        return [f"{self.names[-1]} = {text}"]

    def arguments(self, entry: Row) -> str:
        most = entry.positional if entry.positional >= 0 else entry.least + 2
        count = self.rng.randint(entry.least, max(most, entry.least))
        return ", ".join(self.any() for _ in range(count))

    def statement(self) -> list[str]:
        rng = self.rng
        choices: list[Callable[[], list[str]]] = [
            lambda: self.new(self.expression()),
            lambda: self.new(self.expression()),
            lambda: self.new(self.expression()),
            lambda: [self.method()],
            lambda: [self.method()],
            lambda: [f"{rng.choice(self.names)} {rng.choice(_BINARY)}= {self.any()}"],
            lambda: [f"{rng.choice(self.names)}[{self.index()}] = {self.any()}"],
            lambda: [f"{rng.choice(self.names)}[{self.index()}] {rng.choice(_BINARY)}= {self.any()}"],
            lambda: [f"del {rng.choice(self.names)}[{self.index()}]"],
            self.unpacking,
            self.loop,
            self.choice,
            self.function,
        ]
        return rng.choice(choices)()

    def index(self) -> str:
        return self.rng.choice(["0", "1", "-1", "'a'", "'b'", "'1'", self.any()])

    def expression(self) -> str:
        rng = self.rng
        choices: list[Callable[[], str]] = [
            self.call,
            self.call,
            self.call,
            self.method,
            self.method,
            lambda: f"{self.any()} {rng.choice(_BINARY)} {self.any()}",
            lambda: f"{self.any()} {rng.choice(_COMPARED)} {self.any()}",
            lambda: f"{rng.choice(['-', 'not ', '+', '~'])}{self.any()}",
            lambda: f"{self.any()} {rng.choice(['and', 'or'])} {self.any()}",
            lambda: f"{self.any()}[{self.index()}]",
            lambda: f"{self.any()}[{rng.choice(['1:', ':1', ':-1', '::2', '1:3', '-2:', '::-1', ':', ':9'])}]",
            lambda: f"{self.any()}.{rng.choice('ab')}",
            lambda: f"({self.any()} if {self.any()} else {self.any()})",
            lambda: f"[{self.any()}, *{self.any()}]",
            lambda: f"({self.any()}, {self.any()})",
            lambda: f"{{{self.any()}, *{self.any()}}}",
            lambda: f"{{'a': {self.any()}, {self.index()}: {self.any()}, **{self.any()}}}",
            lambda: f"{{'a': {self.any()}, 'z': {self.any()}}}",
            lambda: f"[{rng.choice(['e', '(e, 1)', 'len(e)', self.any()])} for e in {self.any()}]",
            lambda: f"[e for e in {self.any()} for f in {self.any()} if {rng.choice(['e', 'f', self.any()])}]",
            lambda: f"{{e: {self.any()} for e in {self.any()}}}",
            lambda: f"{{e for e in {self.any()}}}",
            lambda: f"f'{{{rng.choice(self.names)}}}-'",
            lambda: f"{self.any()}({self.any()})",
            lambda: f"({rng.choice(self.names)} := {self.any()})",
        ]
        return rng.choice(choices)()

    def call(self) -> str:
        rng = self.rng
        name = rng.choice([*BUILTINS, "isinstance"])
        if name == "isinstance":
            return f"isinstance({self.any()}, {rng.choice(['int', 'str', '(list, dict)'])})"
        key = rng.choice(["len", "str", "(lambda e: e)", "(lambda e: 0)", "None"])
        special: Mapping[str, str] = {
            "sorted": f"sorted({self.any()}, key={key})",
            "min": f"min({self.any()}, key={key}, default={self.any()})",
            "max": f"max({self.any()}, default={self.any()})",
            "enumerate": f"enumerate({self.any()}, start=2)",
            "sum": f"sum({self.any()}, {self.any()})",
            "map": f"list(map({key}, {self.any()}))",
            "filter": f"list(filter({key}, {self.any()}))",
        }
        if name in special and rng.random() < 0.6:
            return special[name]
        called = f"{name}({self.arguments(BUILTINS[name])})"
        return f"list({called})" if name in ("map", "zip", "reversed", "enumerate") and rng.random() < 0.5 else called

    def method(self) -> str:
        kind = self.rng.choice([list, dict, OrderedSet, str, tuple])
        if self.rng.random() < 0.05:
            return f"{self.of_kind(list)}.sort()"
        name, entry = self.rng.choice([*METHODS[kind].items()])
        receiver = self.of_kind(kind) if self.rng.random() < 0.8 else self.rng.choice(self.names)
        given = self.arguments(entry)
        if given and kind is not str and self.rng.random() < 0.4:
            given = self.of_kind(kind) if name in ("update", "extend", "union", "difference") else given
        return f"{receiver}.{name}({given})"

    def unpacking(self) -> list[str]:
        one, other = f"x{len(self.names)}", f"x{len(self.names) + 1}"
        self.names += [one, other]
        star = self.rng.choice(["", "*"])
        return [f"{one}, {star}{other} = {self.any()}"]

    def loop(self) -> list[str]:
        self.names.append(f"x{len(self.names)}")
        name = self.names[-1]
        head = self.rng.choice(
            [f"for {name} in {self.rng.choice(self.names[:-1])}:", f"while len(str({name})) < 4:"],
        )
        body = self.inner(f"{name} = {self.rng.choice([f'str({name}) + str(1)', f'[{name}]', f'({name}, 1)'])}")
        return [f"{name} = {self.any() if self.rng.random() < 0.7 else 0}", head, *body]

    def inner(self, *last: str) -> list[str]:
        made = [*self.names]
        lines = [line for _ in range(self.rng.randrange(1, 3)) for line in self.statement()]
        new = [name for name in self.names if name not in made]
        self.names[:] = made
        return [f"    {line}" for line in [*lines, *last]] if not new or last else [f"    {line}" for line in lines]

    def choice(self) -> list[str]:
        first = [f"if {self.any()}:", *self.inner()]
        kind = self.rng.randrange(3)
        if kind == 0:
            return first
        if kind == 1:
            return [*first, "else:", *self.inner()]
        return ["try:", *self.inner(), "except Exception as e:", *self.inner()]

    def function(self) -> list[str]:
        name = f"f{len(self.names)}"
        kept, self.names = self.names, [*self.names, "p", "q"]
        body = self.rng.choice(
            [self.method(), f"p[{self.index()}] = q", f"p.append({self.any()})", f"q = {self.any()}"]
        )
        result, default = self.expression(), self.rng.choice(["[]", "1", "{}", "'a'"])
        self.names = kept
        lines = [f"def {name}(p, q={default}):", f"    {body}", f"    return {result}"]
        return [*lines, *self.new(f"{name}({self.any()}{self.rng.choice([', ' + self.any(), ''])})")]


def said_of(text: str, tables: Tables = PYTHON) -> tuple[Interpreter, Value] | None:
    """What is said, by these tables, of the last expression of a text; None if it is refused. Raises TooLong."""
    world = World({})
    try:
        g, root = checked(Source.unnamed(text, "python"), describer(world), LIMITS, None, world)
    except AgentflowError:
        return None
    facts = NodeFacts(root, python=True, lasting=tables.lasting)
    heap, left, passes = Heap(Changes()), MOST_VISITS, 0
    while True:
        inputs = AnalysisInputs(lambda kind, name, templates: {}, visits=left)
        i = Interpreter(facts, tables, heap, inputs, {}, {}, g.kind, free)
        outermost = AbstractScope(None)
        i.begin(outermost)
        way = i.told((), root, outermost)
        if heap.settled(way.whole().total.counts, passes):
            return i, way.value
        heap, left, passes = Heap(heap.known), i.visits, passes + 1


def uncovered(i: Interpreter, said: Value, value: Any, depth: int = 0) -> str | None:
    """How a value is not among what is said of it; None if it is."""
    if said.never:
        return f"{value!r} is not a value at all"
    if depth > 4:
        return None
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        return _number(said, value)
    if isinstance(value, str):
        known = said.texts is None or value in said.texts
        return _elements(i, said, value, value[:1], depth) if known else f"{value!r} is none of {said.texts}"
    if callable(value) or not isinstance(value, list | tuple | dict | OrderedSet):
        return None if said.procedures or said.foreign else f"{value!r} is a procedure"
    if said.sites == NOWHERE or is_number(said):
        return f"{value!r} is a container"
    if isinstance(value, dict):
        pairs = _some([*value.items()])
        return (
            _elements(i, said, value, [key for key, _ in pairs], depth)
            or _keys(i, said, pairs, depth)
            or _values(i, said, pairs, depth)
        )
    listed = value.plain() if hasattr(value, "plain") else [*value]
    if isinstance(value, OrderedSet):
        return _elements(i, said, value, _some(listed), depth)
    pairs = _some([*enumerate(listed), *enumerate(listed, -len(listed))])
    return _elements(i, said, value, _some(listed), depth) or _keys(i, said, pairs, depth)


def _some(parts: list[Any]) -> list[Any]:
    return parts if len(parts) <= 8 else [*parts[:4], *parts[-4:]]


def _number(said: Value, value: float) -> str | None:
    if said.low is not None and value < said.low:
        return f"{value!r} is below {said.low}"
    high = None if said.high is None else said.high.number
    if high is not None and value > max(high, 0):
        return f"{value!r} is above {high}"
    if said.whole and not isinstance(value, int):
        return f"{value!r} is not whole"
    return f"{value!r} is not {said.exactly}" if said.exactly is not None and said.exactly != value else None


def _elements(i: Interpreter, said: Value, value: Any, elements: Iterable[Any], depth: int) -> str | None:
    most = i.iterations(said)
    if most is not None and most.number is not None and len(value) > most.number:
        return f"{value!r} has more than {most} elements"
    item = element_of(said)
    found = [uncovered(i, item, each, depth + 1) for each in elements]
    return next((f"element of {value!r}: {each}" for each in found if each is not None), None)


def _keys(i: Interpreter, said: Value, pairs: list[tuple[Any, Any]], depth: int) -> str | None:
    for key, each in pairs:
        for exact in (scalar(constant(key)), scalar(Value(texts=None))):
            problem = None if isinstance(key, tuple) else uncovered(i, at_key(said, exact), each, depth + 1)
            if problem is not None:
                return f"at {key!r}: {problem}"
    return None


def _values(i: Interpreter, said: Value, pairs: list[tuple[Any, Any]], depth: int) -> str | None:
    found = [(key, uncovered(i, said.element(), each, depth + 1)) for key, each in pairs]
    return next((f"value of {key!r}: {each}" for key, each in found if each is not None), None)


async def check(number: int, rules: Tables = PYTHON) -> tuple[str, str | None]:
    """``covered``, ``raised`` or ``refused``, and what is wrong with a text."""
    statements = statements_of(random.Random(number))
    while True:
        text = text_of(statements)
        try:
            value = await World({}).run(Source.unnamed(text, "python"), limits=LIMITS)
            break
        except AgentflowError as error:
            at = _statement_at(statements, error)
            if at is None:
                return "raised", None
            del statements[at]
    found = said_of(text, rules)
    if found is None:
        return "refused", None
    problem = uncovered(*found, value)
    return "covered" if problem is None else "wrong", None if problem is None else f"#{number}: {problem}\n{text}"


def _statement_at(statements: list[str], error: AgentflowError) -> int | None:
    """The statement in which an error happened; None for the last expression, or if it has no place."""
    line = error.span.line if error.span is not None else 0
    spans = [frame.span.line for frame in error.frames if frame.span is not None]
    for each in (line, *spans):
        end = 0
        for at, statement in enumerate(statements):
            end += statement.count("\n") + 1
            if end >= each > 0 and at > 3 and not statement.startswith("def "):
                return at
            if end >= each:
                break
    return None


async def _main(first: int, count: int) -> int:
    outcomes: collections.Counter[str] = collections.Counter()
    wrong = 0
    for number in range(first, first + count):
        outcome, problem = await check(number)
        outcomes[outcome] += 1
        if problem is not None:
            wrong += 1
            print(problem)
            if wrong >= 10:
                break
    print(dict(outcomes))
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=2_000)
    options = parser.parse_args()
    sys.exit(asyncio.run(_main(options.first, options.count)))


__all__ = ["check", "said_of", "statements_of", "text_of", "uncovered"]
