"""Made-up texts in Python with many effects, for what is said of texts before they run."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.support.bounds_programs import LISTS, TOOLS


def effectful_text(rng: random.Random) -> str:
    """A text that calls tools in loops, recursions and functions that it passes around, changes what it made, and mostly ends."""
    author = _Author(rng)
    lines: list[str] = []
    for _ in range(rng.choice([0, 1, 1, 2])):
        lines += author.definition(rng.choice([1, 1, 2]))
    statements = author.statements(rng.randrange(1, 5), rng.choice([1, 1, 1, 2, 2, 3]), loop=False, inside=False)
    return "\n".join([*lines, *statements, author.expression(2)])


def _indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines or ["pass"]]


class _Author:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.numbers: list[str] = []
        self.lists: list[str] = [*LISTS]
        self.made: list[str] = []
        self.functions: list[str] = []
        self.dicts: list[str] = []
        self.stores: list[str] = []
        self.count = 0

    def name(self, stem: str) -> str:
        self.count += 1
        return f"{stem}{self.count}"

    def pick(self, choices: list[Callable[[], str]]) -> str:
        return self.rng.choice(choices)()

    # -- expressions ----------------------------------------------------------------------------------------------

    def effect(self, depth: int) -> str:
        tool = self.rng.choice(TOOLS)
        if self.rng.random() < 0.15:
            return f"len(outcome({tool}(x={self.number(0)})).content)"
        return f"{tool}(x={self.number(0) if depth <= 0 else self.expression(depth - 1)})"

    def outcome(self) -> str:
        """What a result says, which may have failed."""
        rng, called = self.rng, f"outcome({self.rng.choice(TOOLS)}(x={self.number(0)}))"
        if rng.random() < 0.3:
            return f"list({called}.content)"
        other = f"outcome({rng.choice(TOOLS)}(x=0))" if rng.random() < 0.3 else called
        return f"(({called} if {self.number(0)} else {other}).parsed_content or [])"

    def number(self, depth: int) -> str:
        if depth <= 0 or self.rng.random() < 0.3:
            return self.rng.choice([*self.numbers, str(self.rng.randrange(4))])
        choices: list[Callable[[], str]] = [
            lambda: f"{self.number(depth - 1)} {self.rng.choice('+-*')} {self.number(depth - 1)}",
            lambda: f"len({self.listed(depth - 1)})",
            lambda: f"min({self.number(depth - 1)}, {self.rng.randrange(1, 5)})",
            lambda: f"max({self.number(depth - 1)}, {self.number(depth - 1)})",
            lambda: f"({self.number(depth - 1)} if {self.test(depth - 1)} else {self.number(depth - 1)})",
            lambda: f"{self.number(depth - 1)} // 2",
            lambda: f"{self.number(depth - 1)} / 2" if self.rng.random() < 0.3 else f"round({self.number(0)} / 2)",
            lambda: f"-(-{self.number(depth - 1)} // {self.rng.choice('23')})",
            lambda: f"sum({self.listed(depth - 1)})",
        ]
        return f"({self.pick(choices)})"

    def listed(self, depth: int) -> str:
        if depth <= 0 or self.rng.random() < 0.3:
            return self.rng.choice([*self.lists, "[1, 2]", "[]", f"list(range({self.number(0)}))"])
        choices: list[Callable[[], str]] = [
            lambda: f"{self.listed(depth - 1)} + {self.listed(depth - 1)}",
            lambda: f"{self.listed(depth - 1)}[{self.rng.choice(['1:', ':2', ':-1', '1:3', '::2', ':'])}]",
            lambda: f"sorted({self.listed(depth - 1)})",
            lambda: f"[{self.element(depth - 1)}, *{self.listed(depth - 1)}]",
            lambda: self.comprehension(depth - 1),
            lambda: f"list(map({self.function(depth - 1)}, {self.listed(depth - 1)}))",
            lambda: f"list(filter({self.function(depth - 1)}, {self.listed(depth - 1)}))",
            lambda: f"pmap({self.function(depth - 1)}, {self.listed(depth - 1)}, limit={self.rng.randrange(1, 4)})",
            lambda: f"parallel({self.element(depth - 1)}, {self.element(depth - 1)})",
            lambda: self.gathered(depth - 1),
            lambda: self.effect(depth - 1),
            lambda: self.outcome(),
            lambda: f"list(reversed({self.listed(depth - 1)}))",
            lambda: f"[e for e in {{**{self.mapping(depth - 1)}}}.values()]",
            lambda: f"list(zip({self.listed(depth - 1)}, {self.listed(depth - 1)}))",
            lambda: f"({self.listed(depth - 1)} * {self.rng.randrange(3)})",
        ]
        return f"({self.pick(choices)})"

    def mapping(self, depth: int) -> str:
        if depth <= 0 or (self.dicts and self.rng.random() < 0.5):
            return self.rng.choice([*self.dicts, '{"a": 1}'])
        return f'{{"a": {self.element(depth - 1)}, "b": {self.element(depth - 1)}}}'

    def element(self, depth: int) -> str:
        return self.pick([lambda: self.number(depth), lambda: self.effect(depth), lambda: self.number(depth)])

    def comprehension(self, depth: int) -> str:
        name, source = self.name("c"), self.listed(depth)
        self.numbers.append(name)
        ifs = f" if {self.test(depth - 1)}" if self.rng.random() < 0.3 else ""
        text = f"[{self.element(depth)} for {name} in {source}{ifs}]"
        self.numbers.remove(name)
        return text

    def gathered(self, depth: int) -> str:
        name, source = self.name("c"), self.listed(depth)
        self.numbers.append(name)
        text = f"parallel(*[{self.element(depth)} for {name} in {source}])"
        self.numbers.remove(name)
        return text

    def function(self, depth: int) -> str:
        if depth <= 0 or (self.functions and self.rng.random() < 0.6):
            return self.rng.choice([*self.functions, *TOOLS])
        name = self.name("l")
        self.numbers.append(name)
        text = f"(lambda {name}: {self.expression(depth - 1)})"
        self.numbers.remove(name)
        return text

    def called(self, depth: int) -> str:
        """A function to be called with a number: of a tool, whose parameter has a name, one that is a value."""
        name = self.function(depth)
        return f"[{name}][0]" if name in TOOLS else name

    def test(self, depth: int) -> str:
        choices: list[Callable[[], str]] = [
            lambda: f"{self.number(depth - 1)} {self.rng.choice(['<', '>', '==', '!=', '<=', '>='])} {self.number(0)}",
            lambda: f"{self.listed(depth - 1)}",
            lambda: f"not {self.number(depth - 1)}",
            lambda: f"({self.number(0)} < 2 and {self.effect(0)})",
            lambda: f"({self.effect(0)} or {self.number(0)})",
        ]
        return self.pick(choices)

    def expression(self, depth: int) -> str:
        choices: list[Callable[[], str]] = [
            lambda: self.effect(depth - 1),
            lambda: self.number(depth),
            lambda: self.listed(depth),
            lambda: f"{self.called(depth - 1)}({self.number(depth - 1)})",
            lambda: f"({self.expression(depth - 1)} if {self.test(depth - 1)} else {self.expression(depth - 1)})",
            lambda: f"retry({self.rng.randrange(1, 3)}, {self.effect(depth - 1)})",
            lambda: f"retry({self.number(1)}, [{self.effect(0)}, {self.effect(0)}, [][1]])",
            lambda: f"timeout(5, {self.effect(depth - 1)})",
            lambda: f"race({self.effect(0)}, {self.effect(0)})",
            lambda: f"{self.mapping(depth - 1)}.get('{self.rng.choice('az')}', {self.function(0)})",
            lambda: f"[{self.function(0)}, {self.function(0)}][{self.rng.randrange(-2, 2)}]({self.number(0)})",
            lambda: f"(({self.function(0)},) if {self.test(0)} else (1, {self.function(0)}))[-1]({self.number(0)})",
            lambda: self.program() if self.rng.random() < 0.5 else self.effect(0),
            lambda: (
                f"eval_program('lambda v: ta(x=v)', allow=['ta'])({self.number(0)})"
                if self.rng.random() < 0.1
                else self.effect(0)
            ),
            lambda: f"(lambda h: lambda z: h(z))({self.function(depth - 1)})({self.number(0)})",
            lambda: f"[h({self.number(0)}) for h in {self.rng.choice(self.stores or ['[]'])}]",
            lambda: f"(w := {self.effect(0)})",
            lambda: f"{{'f': {self.function(depth - 1)}}}['f']({self.number(0)})",
        ]
        return self.pick(choices) if depth > 0 else self.element(0)

    def program(self) -> str:
        """A program in the program, which is given a list and may change it."""
        rng, inner = self.rng, _Author(self.rng)
        inner.lists = ["ws"]
        lines = inner.statements(rng.randrange(1, 3), 1, loop=False, inside=False)
        if rng.random() < 0.3:
            lines.append("ws.append(1)")
        text = "\n".join([*lines, inner.expression(1)])
        return f"eval_program({text!r}, bindings={{'ws': {self.listed(1)}}}, allow=['ta', 'tb'])"

    # -- statements -----------------------------------------------------------------------------------------------

    def statements(self, count: int, depth: int, *, loop: bool, inside: bool) -> list[str]:
        lines: list[str] = []
        for _ in range(count):
            lines += self.statement(depth, loop=loop, inside=inside)
        return lines

    def statement(self, depth: int, *, loop: bool, inside: bool) -> list[str]:
        rng = self.rng
        kinds = ["assign", "list", "grow", "change", "call", "again", "dict", "store"]
        if depth > 0:
            kinds += ["if", "for", "while", "try", "function", "for", "while", "drain", "caught"]
            kinds += ["rebound"] if rng.random() < 0.2 else []
        if loop:
            kinds += ["leave"]
        if inside:
            kinds += ["return"]
        kind = rng.choice(kinds)
        if kind == "assign":
            text = self.expression(2) if rng.random() < 0.3 else self.number(2)
            name = rng.choice([*self.numbers, self.name("n")]) if rng.random() < 0.4 else self.name("n")
            if name.startswith("n") and name not in self.numbers:
                self.numbers.append(name)
            return [f"{name} = {text}"]
        if kind == "list":
            name, text = self.name("v"), self.listed(2)
            self.lists.append(name)
            self.made.append(name)
            return [f"{name} = {text}"]
        if kind == "dict":
            name, text = self.name("d"), self.mapping(2)
            self.dicts.append(name)
            return [f"{name} = {text}"]
        if kind == "again":
            name = rng.choice([*self.numbers, self.name("n")])
            new = [] if name in self.numbers else [f"{name} = 0"]
            if new:
                self.numbers.append(name)
            return [*new, f"{name} {rng.choice(['+=', '-='])} {rng.randrange(1, 3)}"]
        if kind == "store":
            return self.store()
        if kind == "grow":
            return [self.growth()]
        if kind == "change":
            return [self.change()]
        if kind == "call":
            return [self.expression(2)]
        if kind == "leave":
            return [f"if {self.test(1)}:", f"    {rng.choice(['break', 'continue'])}"]
        if kind == "return":
            return [f"if {self.test(1)}:", f"    return {self.expression(1)}"]
        return self.compound(kind, depth, loop=loop, inside=inside)

    def growth(self) -> str:
        name = self.rng.choice(self.made or ["[1]"])
        choices: list[Callable[[], str]] = [
            lambda: f"{name}.append({self.element(1)})",
            lambda: f"{name}.extend({self.listed(1)})",
            lambda: f"{name}.insert(0, {self.number(0)})",
        ]
        if name in self.made:
            choices.append(lambda: f"{name} += {self.listed(1)}")
        return self.pick(choices)

    def store(self) -> list[str]:
        """A list of functions, or another one that it is given."""
        if not self.stores or self.rng.random() < 0.4:
            self.stores.append(self.name("hs"))
            return [f"{self.stores[-1]} = [{self.function(1)}]"]
        name = self.rng.choice(self.stores)
        return [self.rng.choice([f"{name}.append({self.function(1)})", f"{name}[-1]({self.number(0)})"])]

    def change(self) -> str:
        name = self.rng.choice(self.made or ["[1]"])
        key = self.rng.choice(['"a"', '"b"', '"k"'])
        target = self.rng.choice(self.dicts or ['{"a": 1}'])
        choices: list[Callable[[], str]] = [
            lambda: f"{name}.sort()",
            lambda: f"{name}.clear()",
            lambda: f"{target}[{key}] = {self.rng.choice([self.element(1), self.function(0), self.listed(1)])}",
            lambda: f"{target}.setdefault({key}, []).append({self.number(0)})",
            lambda: f"{target}.update({self.mapping(1)})",
            lambda: f"{target}.pop({key}, None)",
        ]
        return self.pick(choices)

    def compound(self, kind: str, depth: int, *, loop: bool, inside: bool) -> list[str]:
        rng = self.rng
        if kind == "if":
            then = self.block(depth, loop=loop, inside=inside)
            other = ["else:", *self.block(depth, loop=loop, inside=inside)] if rng.random() < 0.5 else []
            return [f"if {self.test(2)}:", *then, *other]
        if kind == "for":
            name, source = self.name("n"), self.listed(2) if rng.random() < 0.6 else f"range({self.number(1)})"
            self.numbers.append(name)
            other = ["else:", *self.block(depth, loop=False, inside=inside)] if rng.random() < 0.2 else []
            return [f"for {name} in {source}:", *self.block(depth, loop=True, inside=inside), *other]
        if kind == "while":
            return self.counter(depth, inside=inside)
        if kind == "caught":
            raised = rng.choice(["raise ValueError('no')", "[][1]", "1 // 0"])
            body = ["try:", *self.block(depth, loop=loop, inside=inside), f"    {raised}"]
            handler = ["except (ValueError, TaskError) as e:", *self.block(depth, loop=loop, inside=inside)]
            return [*body, *handler, f"    {self.rng.choice(TOOLS)}(x=len(e.message))"]
        if kind == "rebound":
            return self.rebound(depth)
        if kind == "drain":
            name = self.name("v")
            lines = [f"{name} = list({self.listed(1)})", f"while {name}:"]
            self.lists.append(name)
            return [*lines, f"    {self.name('n')} = {name}.pop()", *self.block(depth, loop=True, inside=inside)]
        if kind == "try":
            final = ["finally:", *self.block(depth, loop=False, inside=False)] if rng.random() < 0.3 else []
            wrong = rng.choice([f"[][{rng.randrange(2)}]", "1 // 0", self.expression(1)])
            caught = ["except Exception as e:", *self.block(depth, loop=loop, inside=inside)]
            other = ["else:", *self.block(depth, loop=loop, inside=inside)] if rng.random() < 0.3 else []
            body = self.block(depth, loop=loop, inside=inside)
            return ["try:", *body, f"    {wrong}", *caught, *other, *final]
        return self.definition(depth - 1)

    def rebound(self, depth: int) -> list[str]:
        """A function in a variable that another function assigns."""
        outer, change, held = self.name("o"), self.name("s"), self.name("g")
        self.functions.append(held)
        body = self.statements(2, depth - 1, loop=False, inside=True)
        self.functions.remove(held)
        lines = [
            f"{held} = {self.function(1)}",
            f"def {change}():",
            f"    nonlocal {held}",
            f"    {held} = {self.function(1)}",
            *body,
            f"{change}()",
            f"return {held}({self.number(0)})",
        ]
        return [f"def {outer}():", *_indented(lines), f"{outer}()"]

    def block(self, depth: int, *, loop: bool, inside: bool) -> list[str]:
        return _indented(self.statements(self.rng.randrange(1, 3), depth - 1, loop=loop, inside=inside))

    def counter(self, depth: int, *, inside: bool) -> list[str]:
        rng, name = self.rng, self.name("i")
        up = rng.random() < 0.6
        start = rng.choice(["0", "1", self.number(0)]) if up else self.number(1)
        step = rng.randrange(1, 3)
        test = f"{name} < {self.number(1)}" if up else f"{name} > {rng.randrange(2)}"
        change = f"    {name} {'+' if up else '-'}= {step}"
        body = self.block(depth, loop=True, inside=inside)
        if rng.random() < 0.25:
            test, body = "True", [f"    if not {test}:", "        break", *body]
        lines = [change, *body] if rng.random() < 0.5 else [*body, change]
        return [f"{name} = {start}", f"while {test}:", *lines]

    def definition(self, depth: int = 2) -> list[str]:
        kind = self.rng.choice(["plain", "plain", "list", "number", "halves", "merge", "sort"])
        name, parameter = self.name("f"), self.name("n")
        outer = [*self.numbers], [*self.lists], [*self.made], [*self.dicts], [*self.stores]
        functions = [*self.functions]
        if kind == "list":
            lines = self.along(name, parameter, depth)
        elif kind == "number":
            lines = self.down(name, parameter, depth)
        elif kind == "merge":
            lines = self.merge(name, parameter)
        elif kind == "sort":
            lines = self.sort(name, parameter)
        elif kind == "halves":
            lines = [
                f"def {name}({parameter}):",
                f"    if {self.rng.choice([f'{parameter} < 1', f'not {parameter} > 0'])}:",
                "        return 0",
                f"    {self.effect(0)}",
                f"    return {name}({parameter} // 2)",
            ]
        else:
            more = f", k={self.number(0)}" if self.rng.random() < 0.2 and not self.numbers else ""
            self.numbers.append(parameter)
            body = self.statements(self.rng.randrange(1, 4), depth, loop=False, inside=True)
            lines = [f"def {name}({parameter}{more}):", *_indented([*body, f"return {self.expression(2)}"])]
        self.numbers, self.lists, self.made, self.dicts, self.stores = outer
        self.functions = functions
        if kind not in ("list", "merge", "sort"):
            self.functions.append(name)
        else:
            wrapped, called = self.name("w"), f"{name}({self.listed(1)})"
            value = f"[{self.effect(0)} for each in {called}]" if kind == "sort" else called
            lines += [f"def {wrapped}({parameter}):", f"    return {value}"]
            self.functions.append(wrapped)
        return lines

    def along(self, name: str, parameter: str, depth: int) -> list[str]:
        """A function that goes along a list, mostly well."""
        self.lists.append(parameter)
        test = self.rng.choice([f"not {parameter}", f"len({parameter}) == 0", f"len({parameter}) < 1"])
        rest = self.rng.choice([f"{parameter}[1:]", f"{parameter}[1:]", f"{parameter}[:-1]", parameter])
        body = self.statements(self.rng.randrange(1, 3), depth - 1, loop=False, inside=True)
        last = self.rng.choice(
            [f"return {name}({rest})", f"return [{self.element(1)}, *{name}({rest})]", f"{name}({rest})"]
        )
        return [f"def {name}({parameter}):", *_indented([f"if {test}:", "    return []", *body, last])]

    def merge(self, name: str, parameter: str) -> list[str]:
        """A function that calls itself with both halves of a list, or what it takes for them."""
        rng = self.rng
        test = rng.choice([f"len({parameter}) < 2", f"not {parameter}", f"len({parameter}) <= 1"])
        half = rng.choice([f"len({parameter}) // 2", f"(len({parameter}) + 1) // 2", "1"])
        first, rest = rng.choice([(":h", "h:"), (":h", ":h"), ("h:", "h:"), (":h", "h + 1:")])
        parts = [f"{name}({parameter}[{first}])", f"{name}({parameter}[{rest}])"]
        together = rng.choice(["parallel({}, {})", "[*{}, *{}]", "({} + {})[:2]", "[{}, {}]"]).format(*parts)
        lines = [f"if {test}:", f"    return [{self.effect(0)}]", f"h = {half}", self.effect(0), f"return {together}"]
        return [f"def {name}({parameter}):", *_indented(lines)]

    def sort(self, name: str, parameter: str) -> list[str]:
        """A function that merges two lists, mostly well, and one that sorts with it."""
        rng, merge = self.rng, self.name("m")
        first = rng.choice(["a[0]"] * 3 + ["1", "a[-1]"])
        longer = rng.choice([f"[{first}, *{merge}(a[1:], b)]", f"[{first}] + {merge}(a[1:], b)"])
        other = rng.choice(
            [f"[b[0], *{merge}(a, b[1:])]"] * 4
            + [f"{merge}(a, b[1:])", f"[1, *{merge}(a, b)]", f"[1, 2, *{merge}(a, b[1:])]", f"a + {merge}(a, b[1:])"]
            + [f"sorted([*{merge}(a[1:], b[1:]), *b[:1], *a[:1]])", f"[b[0], *{merge}(b[1:], a)]"]
        )
        ends = rng.choice(
            [["if not a:", "    return b", "if not b:", "    return a"]] * 3
            + [
                ["if not a or not b:", "    return a + b"],
                ["if len(a) == 0:", "    return b"],
                ["if not b:", "    return a"],
            ]
        )
        change = rng.choice([[]] * 6 + [["b.append(1)"], ["a = a[:-1]"], ["b = [*b]"]])
        test = rng.choice([self.test(1), self.effect(0)])
        lines = [*ends, *change, f"if {test}:", f"    return {longer}", f"return {other}"]
        half = rng.choice([f"len({parameter}) // 2", f"(len({parameter}) + 1) // 2", "1"])
        left, right = rng.choice([(":h", "h:")] * 3 + [("h:", ":h"), ("h:", "h:")])
        both = f"{merge}({name}({parameter}[{left}]), {name}({parameter}[{right}]))"
        end = rng.choice([parameter, parameter, "[1]", f"[*{parameter}]"])
        less = rng.choice([f"len({parameter}) < 2", f"len({parameter}) <= 1", f"not {parameter}"])
        sort = [f"if {less}:", f"    return {end}", f"h = {half}", f"return {both}"]
        return [f"def {merge}(a, b):", *_indented(lines), f"def {name}({parameter}):", *_indented(sort)]

    def down(self, name: str, parameter: str, depth: int) -> list[str]:
        """A function that counts down, mostly to its end."""
        self.numbers.append(parameter)
        test = self.rng.choice([f"{parameter} <= 0", f"{parameter} < 1", f"{parameter} == 0", f"not {parameter}"])
        body = self.statements(self.rng.randrange(1, 3), depth - 1, loop=False, inside=True)
        again = f"{name}({parameter} - {self.rng.randrange(1, 3)})"
        last = self.rng.choice([f"return {again}", f"return {self.number(0)} + {again}", f"parallel({again}, {again})"])
        return [f"def {name}({parameter}):", *_indented([f"if {test}:", f"    return {self.element(0)}", *body, last])]
