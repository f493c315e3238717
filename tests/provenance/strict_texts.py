"""Random texts in Python that test, count, loop and change lists, dicts and sets because of what is secret (for :mod:`tests.provenance.strict_programs`)."""

from __future__ import annotations

import random
from collections.abc import Callable


class TextWriter:
    """Writes one text."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.numbers = ["g0", "g1", "n"]
        self.assigned = ["g0", "g1"]
        self.lists = ["gl", "gm", "items"]
        self.grown = ["gl", "gm"]
        self.dicts = ["gd", "ge"]
        self.sets = ["gs"]
        self.count = 0
        self.in_loop = False
        self.in_function = False

    def program(self) -> str:
        """The text: definitions, statements of which each may be caught, and sends of all variables."""
        head = [
            "g0 = 0",
            "g1 = 5",
            "gl = [1, 2, 3]",
            "gm = gl" if self.random.random() < 0.3 else "gm = []",
            "gd = {'a': 1}",
            "ge = {'k': []}",
            "gs = {1, 2}",
            "def say(x):",
            "    send(x)",
            "    return x",
            "def put(q, v):",
            "    q.append(v)",
            *self.function("f0", 2),
            *self.function("f1", 3),
        ]
        steps: list[str] = []
        for _ in range(self.random.randint(1, 4)):
            body = self.block(self.random.choice([2, 2, 3]))
            steps += self.caught(body) if self.random.random() < 0.6 else body
        if self.random.random() < 0.4:
            steps = ["def main():", *self._in([*steps, *self.shown(), "return 0"])]
            if self.random.random() < 0.5:
                steps[1:1] = ["    global g0, g1"]
                steps[2:2] = ["    gl = [1, 2]", "    gd = {'a': 1}"] if self.random.random() < 0.5 else []
            steps += self.caught(["main()"])
        return "\n".join([*head, *steps, *self.shown(), *self.caught(["send('end')"])]) + "\n"

    def shown(self) -> list[str]:
        """Sends of what may have been changed."""
        names = (
            "g0",
            "g1",
            "gl",
            "len(gm)",
            "gd",
            "len(ge)",
            "len(ge['k'])",
            "list(gs)",
            "f0(1)",
            "1 in gs",
            "p0",
            "gl[0]",
        )
        chosen = self.random.sample(names, 5)
        return [line for each in chosen for line in self.caught([f"send({each})"], quiet=True)]

    def function(self, name: str, depth: int) -> list[str]:
        """A function of a number."""
        outer = (
            list(self.numbers),
            list(self.assigned),
            list(self.lists),
            list(self.grown),
            self.in_loop,
            self.in_function,
        )
        self.in_loop, self.in_function = False, True
        head: list[str] = []
        if self.random.random() < 0.5:
            head.append("global g0, g1, gl")
        else:
            self.assigned = []
        self.numbers, self.assigned = [*self.numbers, "a", "v"], [*self.assigned, "v"]
        if self.random.random() < 0.6:
            self.lists, self.grown = [*self.lists, "xs"], [*self.grown, "xs"]
            head.append("xs = []")
        lines = [f"def {name}(a):", *self._in([*head, "v = 0", *self.block(depth), f"return {self.number(1)}"])]
        self.numbers, self.assigned, self.lists, self.grown, self.in_loop, self.in_function = outer
        return lines

    def caught(self, body: list[str], *, quiet: bool = False) -> list[str]:
        """Statements whose errors are caught."""
        handler = "0" if quiet else self.random.choice(["0", "say(9)", "send(str(e))"])
        return ["try:", *self._in(body), "except Exception as e:", f"    {handler}"]

    def _in(self, lines: list[str]) -> list[str]:
        return [f"    {each}" for each in lines]

    def _fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def _with(self, names: list[str], build: Callable[[], str]) -> str:
        self.numbers += names
        text = build()
        del self.numbers[len(self.numbers) - len(names) :]
        return text

    def pick(self, *choices: Callable[[], str]) -> str:
        return self.random.choice(choices)()

    # -- statements -----------------------------------------------------------------------------------------------

    def block(self, depth: int) -> list[str]:
        """Some statements."""
        return [line for _ in range(self.random.randint(1, 3)) for line in self.step(depth)]

    def _looped(self, depth: int) -> list[str]:
        outer, self.in_loop = self.in_loop, True
        lines = self.block(depth)
        self.in_loop = outer
        return lines

    def step(self, depth: int) -> list[str]:
        """A statement."""
        r, d = self.random, depth - 1
        kind = r.randint(0, 5 if depth <= 0 else 17)
        if kind <= 1:
            return [self.change(max(d, 0))]
        if kind == 2:
            return [f"say({self.number(0)})" if r.random() < 0.5 else f"say({r.randint(0, 9)})"]
        if kind == 3:
            name = r.choice([*(self.assigned or ["g9"]), "p0"])
            return [
                f"{name} {r.choice(['=', '=', '+='])} {self.number(max(d, 0))}"
                if name != "p0"
                else f"p0 = {self.number(0)}"
            ]
        if kind == 4:
            if self.in_loop and r.random() < 0.5:
                return [r.choice(["break", "continue"])]
            if self.in_function and r.random() < 0.5:
                return [f"return {self.number(0)}"]
            return (
                [
                    f"{r.choice(['gl', 'gm'])} = {self.pick(lambda: self.listed(max(d, 0)), lambda: self.chosen(max(d, 0)))}"
                ]
                if not self.in_function
                else [f"g9 = {self.listed(0)}"]
            )
        if kind == 5:
            return [f"{self.pick(lambda: self.number(max(d, 0)), lambda: self.test(max(d, 0)))}"]
        if kind in (6, 7, 8, 9):
            lines = [f"if {self.test(d)}:", *self._in(self.block(d))]
            return [*lines, "else:", *self._in(self.block(d))] if r.random() < 0.5 else lines
        if kind in (10, 11):
            name = self._fresh()
            self.numbers.append(name)
            over = self.pick(
                lambda: self.listed(d), lambda: f"range({self.number(0)})", lambda: r.choice(self.dicts), lambda: "gs"
            )
            lines = [f"for {name} in {over}:", *self._in(self._looped(d))]
            self.numbers.remove(name)
            return [*lines, "else:", *self._in(self.block(0))] if r.random() < 0.2 else lines
        if kind == 12:
            name = self._fresh()
            body = [f"{name} += 1", f"if {name} > 3:", "    break", *self._looped(d)]
            return [f"{name} = 0", f"while {self.test(d)}:", *self._in(body)]
        if kind in (13, 14):
            lines = [
                "try:",
                *self._in(self.block(d)),
                f"except {r.choice(['Exception', 'ValueError', 'IndexError'])}:",
                *self._in(self.block(0)),
            ]
            if r.random() < 0.3:
                lines += ["else:", *self._in(self.block(0))]
            return lines
        if kind == 15:
            outer = (self.in_loop, self.in_function)
            self.in_loop = self.in_function = False
            final = self._in([self.change(0) if r.random() < 0.5 else f"say({self.number(0)})"])
            self.in_loop, self.in_function = outer
            return ["try:", *self._in(self.block(d)), "finally:", *final]
        if kind == 16:
            return (
                [f"if {self.test(d)}:", f"    raise ValueError(str({self.number(0)}))"]
                if r.random() < 0.7
                else [f"assert {self.test(d)}"]
            )
        name = self._fresh()
        inner = f"h{name}"
        outer = (self.in_loop, self.in_function)
        self.in_loop, self.in_function = False, True
        body = self.block(d)
        self.in_loop, self.in_function = outer
        return [
            f"def {inner}():",
            *self._in(["v = 1" if "v" in self.assigned else "0", *body, f"return {self.number(0)}"]),
            f"if {self.test(d)}:",
            f"    {inner}()",
        ]

    def change(self, depth: int) -> str:
        """A change in place."""
        xs, ds, ss = self.random.choice(self.grown), self.random.choice(self.dicts), self.random.choice(self.sets)
        return self.pick(
            lambda: f"{xs}.append({self.number(depth)})",
            lambda: f"{xs}.append({self.number(depth)})",
            lambda: f"{xs}.extend({self.listed(depth)})",
            lambda: f"{xs}.insert({self.number(0)}, {self.number(depth)})",
            lambda: f"{xs}.pop({self.pick(lambda: '', lambda: self.number(0))})",
            lambda: f"{xs}.remove({self.number(depth)})",
            lambda: f"{xs}.{self.random.choice(['clear', 'reverse', 'sort'])}()",
            lambda: f"{xs}.sort(key=lambda q: {self._with(['q'], lambda: self.number(depth))})",
            lambda: f"{xs}[{self.number(0)}] = {self.number(depth)}",
            lambda: f"{xs}[0] += {self.number(depth)}",
            lambda: f"del {xs}[{self.number(0)}]",
            lambda: f"{ds}[{self.key()}] = {self.number(depth)}",
            lambda: f"{ds}.setdefault({self.key()}, []).append({self.number(0)})",
            lambda: f"{ds}.pop({self.key()}, None)",
            lambda: f"{ds}.update({{{self.key()}: {self.number(0)}}})",
            lambda: f"ge['k'].append({self.number(0)})",
            lambda: f"{ds}[{self.key()}] += 1",
            lambda: f"del {ds}[{self.key()}]",
            lambda: f"{ss}.{self.random.choice(['add', 'discard'])}({self.number(0)})",
            lambda: f"{ss}.update({self.listed(0)})",
            lambda: f"{self.random.choice(['ge', 'gd'])}['k'] = {xs}",
            lambda: f"{self.chosen(depth)}.append({self.number(depth)})",
            lambda: f"{self.chosen(depth)}.{self.random.choice(['clear', 'reverse', 'pop', 'sort'])}()",
            lambda: f"put({self.chosen(depth)}, {self.number(0)})",
            lambda: f"({self.random.choice(self.dicts)} if {self.test(depth)} else {ds})['b'] = {self.number(0)}",
        )

    def chosen(self, depth: int) -> str:
        """A list that is one of several."""
        one, other = self.random.choice(self.grown), self.random.choice(self.grown)
        return self.pick(
            lambda: f"({one} if {self.test(depth)} else {other})",
            lambda: f"({one} {self.random.choice(['and', 'or'])} {other})",
            lambda: f"[{one}, {other}][{self.number(0)} % 2]",
            lambda: f"{{0: {one}, 1: {other}}}[{self.number(0)} % 2]",
            lambda: f"max({one}, {other}, key=lambda q: len(q) + {self.number(0)})",
            lambda: f"(lambda q, r: q if {self.test(0)} else r)({one}, {other})",
        )

    # -- expressions ----------------------------------------------------------------------------------------------

    def key(self) -> str:
        """A key of a dict."""
        return self.random.choice(["'a'", "'k'", "'b'", "text", "s", self.number(0)])

    def number(self, depth: int) -> str:
        """Something that gives a number."""
        r, d = self.random, depth - 1
        if depth <= 0:
            return r.choice([*self.numbers, str(r.randint(0, 4)), "s", "s"])
        fresh = self._fresh()
        return self.pick(
            lambda: self.number(0),
            lambda: f"({self.number(d)} {r.choice('+-*')} {self.number(d)})",
            lambda: f"7 // {self.number(0)}",
            lambda: f"({self.number(d)} if {self.test(d)} else {self.number(d)})",
            lambda: f"len({self.listed(d)})",
            lambda: f"{self.listed(d)}[{self.number(0)}]",
            lambda: f"sum({self.listed(d)})",
            lambda: (
                f"{r.choice(['min', 'max'])}({self.listed(d)}, key=lambda {fresh}: {self._with([fresh], lambda: self.number(d))})"
            ),
            lambda: f"{r.choice(['min', 'max'])}({self.listed(d)}, default={self.number(0)})",
            lambda: f"{r.choice(['f0', 'f1'])}({self.number(d)})" if not self.in_function else self.number(d),
            lambda: f"(f0 if {self.test(d)} else f1)({self.number(0)})" if not self.in_function else self.number(0),
            lambda: f"(lambda {fresh}: {self._with([fresh], lambda: self.number(d))})({self.number(d)})",
            lambda: f"{r.choice(self.dicts)}.get({self.key()}, {self.number(0)})",
            lambda: f"len({r.choice([*self.dicts, *self.sets])})",
            lambda: f"len({{{self.number(0)}, {self.number(0)}}})",
            lambda: f"len({{{self.key()}: 1, {self.key()}: 2}})",
            lambda: f"len(sources({self.number(d)}))",
            lambda: f"int({self.test(d)})",
            lambda: f"len(str({self.number(d)}))",
            lambda: f"{self.listed(d)}.index({self.number(0)})",
            lambda: f"parallel({self.plain()}, {self.plain()})[0]",
            lambda: f"say({self.number(d)})",
            lambda: f"({self.number(d)} {r.choice(['and', 'or'])} {self.number(d)})",
            lambda: f"{r.choice(self.grown)}.pop()",
        )

    def plain(self) -> str:
        """A number of which nothing is done: one of several branches is cut short when another fails, and of time nothing is promised."""
        return self.pick(lambda: self.number(0), lambda: f"({self.number(0)} if s > 1 else {self.number(0)})")

    def test(self, depth: int) -> str:
        """Something that is tested."""
        r, d = self.random, depth - 1
        if depth <= 0:
            return self.pick(
                lambda: f"{self.number(0)} > {r.randint(0, 3)}",
                lambda: "s > 1",
                lambda: r.choice(["True", "False", "items", "s", "gl", "gd"]),
            )
        fresh = self._fresh()
        return self.pick(
            lambda: self.test(0),
            lambda: f"{self.number(d)} {r.choice(['<', '>', '==', '<='])} {self.number(d)}",
            lambda: f"0 < {self.number(d)} < {self.number(d)} < 4",
            lambda: f"(not {self.test(d)})",
            lambda: f"({self.test(d)} {r.choice(['and', 'or'])} {self.test(d)})",
            lambda: (
                f"{self.number(d)} {r.choice(['in', 'not in'])} {self.pick(lambda: self.listed(d), lambda: r.choice([*self.dicts, *self.sets]))}"
            ),
            lambda: f"{self.listed(d)} == {self.listed(d)}",
            lambda: (
                f"{r.choice(['any', 'all'])}({self._with([fresh], lambda: self.test(d))} for {fresh} in {self.listed(0)})"
            ),
            lambda: f"{r.choice(['any', 'all'])}({self.listed(d)})",
            lambda: f"isinstance({self.number(d)}, int)",
            lambda: f"text < {r.choice(['text', repr('b')])}",
        )

    def listed(self, depth: int) -> str:
        """Something that gives a list of numbers."""
        r, d = self.random, depth - 1
        if depth <= 0:
            return r.choice([*self.lists, "items", "[1, 2]", "[]"])
        fresh = self._fresh()
        return self.pick(
            lambda: self.listed(0),
            lambda: f"[{self.number(d)}, {self.number(d)}]",
            lambda: f"[*{self.listed(d)}, {self.number(d)}]",
            lambda: f"({self.listed(d)} + {self.listed(d)})",
            lambda: f"({self.listed(d)} if {self.test(d)} else {self.listed(d)})",
            lambda: f"[{self._with([fresh], lambda: self.number(d))} for {fresh} in {self.listed(d)}]",
            lambda: (
                f"[{self._with([fresh], lambda: self.number(0))} for {fresh} in {self.listed(d)} if {self._with([fresh], lambda: self.test(d))}]"
            ),
            lambda: f"list({{{self._with([fresh], lambda: self.number(0))} for {fresh} in {self.listed(d)}}})",
            lambda: (
                f"list({{{self._with([fresh], lambda: self.number(0))}: 1 for {fresh} in {self.listed(d)} if {self._with([fresh], lambda: self.test(0))}}})"
            ),
            lambda: f"list(map(lambda {fresh}: {self._with([fresh], lambda: self.number(d))}, {self.listed(d)}))",
            lambda: f"list(filter(lambda {fresh}: {self._with([fresh], lambda: self.test(d))}, {self.listed(d)}))",
            lambda: f"sorted({self.listed(d)}, key=lambda {fresh}: {self._with([fresh], lambda: self.number(d))})",
            lambda: f"sorted({self.listed(d)})",
            lambda: f"{self.listed(d)}[{self.number(0)}:]",
            lambda: f"list({r.choice([*self.dicts, *self.sets])})",
            lambda: "list(gd.values())",
            lambda: f"pmap(lambda {fresh}: {self._with([fresh], lambda: self.plain())}, {self.listed(d)})",
            lambda: f"list(reversed({self.listed(d)}))",
            lambda: f"list(range({self.number(0)}))",
            lambda: f"{self.listed(d)}.copy()",
        )
