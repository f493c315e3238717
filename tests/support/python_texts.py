"""Made-up texts in the subset of Python for the comparison with CPython, and one call that runs a text."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.lang.environment import NamesInForce, SexpEnvironment
from agentflow.lang.program import compile_program
from agentflow.run.engine import run_program
from agentflow.run.strand.budget import Budget
from tests.support.fakes import FakeRun
from tests.support.world import World

LIMITS = Limits(steps=300_000, integer_bits=50_000, string=200_000, collection=50_000)


async def run_text(
    text: str,
    env: SexpEnvironment | None = None,
    *,
    world: World | None = None,
    allow: Iterable[str] | None = None,
    limits: Limits = LIMITS,
) -> Any:
    """The value of a Python text. Raises what it raises."""
    world, env = world or World(), env or SexpEnvironment()
    granted = None if allow is None else frozenset(allow)
    names = NamesInForce(world, env, env)
    program = compile_program(Source("text.py", text, "python"), names=names, limits=limits, allow=granted)
    call = FakeRun(limits=limits, watched=False).call(grants=granted)
    return await run_program(program, env, performer=world, call=call, budget=Budget(limits))


LEAVES = {
    "int": ["0", "1", "(-3)", "(7)", "(12)", "2.5", "True"],
    "str": ["''", "'s'", "'a b'", "'b,a'", "'Xy'"],
    "list": ["[]", "[1, 2]", "[3, 1, 2]", "['b', 'a']", "[[1], 'x']", "(1, 2)"],
    "dict": ["{}", "{'k': 1}", "{'k': 2, 'a b': [1]}", "{1: 'x'}"],
    "bool": ["True", "False", "None"],
}
KINDS = ["int", "int", "str", "list", "list", "dict", "bool"]
Names = dict[str, str]


class Author:
    """Writes texts that end: functions over numbers, texts, lists and dicts, with loops, errors and closures.

    Most values are of the kind that is wanted where they stand; about one in thirty is not.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.names = 0

    def text(self) -> str:
        """A text whose value is ``main()``."""
        names = {"a": "int", "b": "list", "c": "str", "d": "dict"}
        head = [f"    {name} = {self.value({}, 2, kind)}" for name, kind in names.items()]
        body = "\n".join([*head, self.block(names, 3, 1)])
        return f"def main():\n{body}\n    return [a, b, c, d]\nmain()\n"

    def block(self, names: Names, depth: int, indent: int, *, loop: bool = False) -> str:
        return "\n".join([self.statement(names, depth, indent, loop) for _ in range(self.random.randint(1, 4))])

    def statement(self, names: Names, depth: int, indent: int, loop: bool) -> str:
        pad, pick = "    " * indent, self.random.choice
        name = pick([each for each, kind in names.items() if kind != "loop"])

        def sub(*, looping: bool = loop, **more: str) -> str:
            return self.block({**names, **more}, depth - 1, indent + 1, loop=looping)

        def of(kind: str, deep: int = 2) -> str:
            return self.value(names, deep, kind)

        kinds = ["assign", "assign", "augment", "unpack", "append", "store", "print"]
        if depth > 0:
            kinds += ["if", "for", "while", "try", "try", "finally", "def", "def"]
        if loop:
            kinds += ["leave"]
        self.names += 1
        match pick(kinds):
            case "assign":
                return f"{pad}{name} = {of(names[name], 3)}"
            case "augment":
                signs = {"int": ["+=", "-=", "*=", "//=", "%="], "str": ["+=", "*="], "list": ["+="], "dict": ["|="]}
                sign = pick(signs.get(names[name], ["|="]))
                return f"{pad}{name} {sign} {of('int' if sign == '*=' else names[name])}"
            case "unpack":
                return f"{pad}{pick(['a, *b', '*b, a', 'a, (c, *b)', 'c, a'])} = {pick([of('list'), '[1, [2, 3, 4]]', '(1, 2)'])}"
            case "append":
                return (
                    f"{pad}b.{pick(['append', 'extend', 'insert', 'remove'])}({pick([of('int'), of('list'), '0, 1'])})"
                )
            case "store":
                return f"{pad}{pick(['d', 'd', 'b'])}[{pick([of('str'), of('int')])}] = {of(pick(KINDS))}"
            case "print":
                return f"{pad}print({of(pick(KINDS))})"
            case "if":
                return f"{pad}if {of('bool')}:\n{sub()}\n{pad}else:\n{sub()}"
            case "for":
                source = pick([f"range({self.random.randint(0, 4)})", of("list"), of("str"), of("dict")])
                return f"{pad}for i in list({source})[:4]:\n{sub(i='int', looping=True)}"
            case "while":
                count = f"n{self.names}"
                head = f"{pad}{count} = 0\n{pad}while {count} < {self.random.randint(0, 3)}:\n{pad}    {count} += 1\n"
                return f"{head}{sub(looping=True)}\n{pad}else:\n{sub(looping=False)}"
            case "try":
                caught = pick(
                    ["Exception", "TypeError", "(ValueError, IndexError)", "LookupError", "ZeroDivisionError"]
                )
                raised = pick(
                    ["pass", "pass", "raise ValueError('v')", "b[9]", "1 // 0", "d['no']", f"assert {of('bool')}, 'no'"]
                )
                return f"{pad}try:\n{sub()}\n{pad}    {raised}\n{pad}except {caught}:\n{sub()}\n{pad}else:\n{sub()}"
            case "finally":
                return f"{pad}try:\n{sub()}\n{pad}finally:\n{pad}    {name} = {of(names[name])}"
            case "def":
                function, default = f"f{self.names}", pick(["1", "[]", "None"])
                inner: Names = {"x": "int", "y": "list", "a": "int", "b": "list"}
                lines = [
                    f"{pad}def {function}(x, y={default}):",
                    f"{pad}    nonlocal a",
                    f"{pad}    a = {self.value(inner, 2, 'int')}",
                    f"{pad}    return {self.value(inner, 2, 'list')}",
                    f"{pad}b = {function}({of('int')}{pick(['', ', [1]', ', y=[2]'])})",
                ]
                return "\n".join(lines)
            case _:
                return f"{pad}if {of('bool')}:\n{pad}    {pick(['break', 'continue'])}"

    def value(self, names: Names, depth: int, kind: str) -> str:
        """An expression, mostly of this kind."""
        pick = self.random.choice
        if self.random.random() < 0.03:
            kind = pick(KINDS)
        if depth <= 0 or self.random.random() < 0.15:
            own = [each for each, other in names.items() if other == kind]
            return pick([*LEAVES[kind], *own, *own])

        def of(kind: str, **more: str) -> str:
            return self.value({**names, **more}, depth - 1, kind)

        any_kind = pick(KINDS)
        common = [
            lambda: f"({of(kind)} if {of('bool')} else {of(kind)})",
            lambda: f"({of(kind)} {pick(['and', 'or'])} {of(kind)})",
            lambda: f"(lambda q: {of(kind, q=any_kind)})({of(any_kind)})",
        ]
        special = {
            "int": [
                lambda: f"({of('int')} {pick(['+', '-', '*', '//', '%', '/'])} {of('int')})",
                lambda: f"{of('int')} ** {pick(['0', '2', '-1'])}",
                lambda: f"len({of(pick(['list', 'str', 'dict']))})",
                lambda: f"{pick(['sum', 'max', 'min'])}([{of('int')}, {of('int')}])",
                lambda: f"{pick(['abs', 'int', 'round', 'float'])}({of('int')})",
                lambda: f"{of('list')}[{pick(['0', '-1', '1'])}]",
                lambda: f"{of('str')}.{pick(['find', 'count', 'index'])}('a')",
                lambda: f"sum(z for z in [{of('int')}, 2] if {of('bool', z='int')})",
                lambda: f"{of('dict')}.get({of('str')}, {of('int')})",
                lambda: f"-{of('int')}",
            ],
            "str": [
                lambda: f"({of('str')} + {of('str')})",
                lambda: f"str({of(any_kind)})",
                lambda: f"repr({of(any_kind)})",
                lambda: f'f"{{{pick(list(names) or ["1"])}}}-{{{pick(["1", "2.5", "7"])}:>5}}"',
                lambda: (
                    f"{of('str')}.{pick(['upper()', 'strip()', 'title()', 'zfill(3)', 'replace(chr(97), chr(98))', 'ljust(4)'])}"
                ),
                lambda: f"{of('str')}[{pick(['1:', ':2', '::-1'])}]",
                lambda: f"{pick(['chr(44)', 'str()'])}.join({of('str')}.split())",
            ],
            "list": [
                lambda: f"[{of(any_kind)}, *{of('list')}]",
                lambda: f"[{of(any_kind, z='int')} for z in {of('list')} if {of('bool', z='int')}]",
                lambda: f"{pick(['sorted', 'list', 'tuple'])}({of('list')})",
                lambda: f"{of('list')}[{pick(['1:', ':2', '::-1', '-1:'])}]",
                lambda: f"list({of('dict')}.{pick(['items', 'keys', 'values'])}())",
                lambda: f"sorted({of('list')}, key=lambda k: {of('int', k='int')}, reverse={of('bool')})",
                lambda: f"list(zip({of('list')}, {of('str')}))",
                lambda: f"list(map({pick(['str', 'len', 'bool', 'repr'])}, {of('list')}))",
                lambda: f"{of('str')}.split({pick(['', 'chr(44)'])})",
                lambda: f"({of('list')} * {pick(['0', '1', '2'])})",
            ],
            "dict": [
                lambda: f"{{'k': {of(any_kind)}, {of('str')}: {of(any_kind)}}}",
                lambda: f"{{**{of('dict')}, 'm': {of('int')}}}",
                lambda: f"{{z: {of(any_kind, z='str')} for z in {of('str')}}}",
                lambda: f"dict(zip({of('str')}, {of('list')}))",
                lambda: f"({of('dict')} | {of('dict')})",
            ],
            "bool": [
                lambda: f"({of(any_kind)} {pick(['==', '!='])} {of(any_kind)})",
                lambda: f"({of('int')} {pick(['<', '<=', '>', '>='])} {of('int')})",
                lambda: f"({of('int')} in {of('list')})",
                lambda: f"(not {of(any_kind)})",
                lambda: f"{pick(['any', 'all'])}({of('bool', z='int')} for z in {of('list')})",
                lambda: f"({of('str')} not in {of('dict')})",
                lambda: f"({of('int')} < {of('int')} <= {of('int')})",
                lambda: f"isinstance({of(any_kind)}, {pick(['int', 'str', '(list, dict)'])})",
            ],
        }
        return pick([*common, *special[kind], *special[kind]])()
