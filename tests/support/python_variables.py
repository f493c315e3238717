"""Made-up texts about what variables hold: functions whose variables change their types, or never do, for the comparison with CPython."""

from __future__ import annotations

import random

_VALUES = ("0", "1", "'s'", "[]", "[1]", "{}", "{'k': 1}", "None", "True", "2.5", "len(xs)", "len('ab')", "(1, 2)")
_ITEMS = ("a", "c", "(a, b)", "f'{a}{c}'")
_NAMES = ("a", "b", "c", "xs")


class VariablesAuthor:
    """Writes functions of four variables and a parameter, which most often keep their types, and sometimes do not."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.depth = 0
        self.kept = self.random.random() < 0.7

    def text(self) -> str:
        """A whole text: three functions, and their values or errors."""
        functions = [self._function(f"f{at}") for at in range(3)]
        calls = "".join(
            f"for p in {arguments}:\n    try:\n        out.append(f{at}(p))\n    except Exception as e:\n        out.append('error')\n"
            for at, arguments in enumerate(["[0, 3, 'x', None]", "[1, [2], 2.5]", "[5, {'k': 2}, True]"])
        )
        shadow = self.random.choice(["", "", "", "def len(x):\n    return 'long'\n", "range = lambda *n: ['r', 's']\n"])
        return f"{shadow}{''.join(functions)}out = []\n{calls}out\n"

    def _function(self, name: str) -> str:
        chosen = self.random.choice(["p", "p", "p, q=2", "p, *, q=3"])
        first = "".join(f"    {each} = {self._first(each)}\n" for each in _NAMES if self.random.random() < 0.9)
        inner = ""
        if self.random.random() < 0.3:
            target = self.random.choice(_NAMES)
            inner = f"    def g():\n        nonlocal {target}\n        {target} = {self._value()}\n        return 1\n"
            inner = inner if f"    {target} =" in first else ""
        body = "".join(self._statement("    ", bool(inner)) for _ in range(self.random.randrange(2, 6)))
        return f"def {name}({chosen}):\n{first}{inner}{body}    return [a, b, c, xs, p, f'{{a}} {{xs}} {{p}} {{b}}']\n"

    def _first(self, name: str) -> str:
        return {"a": "0", "b": "1", "c": "'s'", "xs": "[]"}[name] if self.kept else self._value()

    def _value(self) -> str:
        roll = self.random.random()
        if roll < 0.3:
            return self.random.choice((*_NAMES, "p"))
        if roll < 0.6:
            left, right = (self.random.choice(("a", "b", "p", "1", "i", "len(xs)")) for _ in range(2))
            return f"{left} {self.random.choice(['+', '-', '//', '%', '<', '==', '>='])} {right}"
        if roll < 0.7:
            return f"({self.random.choice(('a', 'b'))} if {self._test()} else {self.random.choice(('1', 'b', 'c'))})"
        if roll < 0.75:
            return f"({self.random.choice(_NAMES)} := {self.random.choice(_VALUES)})"
        if roll < 0.8:
            return "[a + j for j in range(3)]"
        return self.random.choice(_VALUES)

    def _test(self) -> str:
        return self.random.choice(("a < b", "a < 3", "p == 3", "xs", "len(xs) > 1", "c", "a % 2 == 0", "p < 2"))

    def _statement(self, indent: str, inner: bool) -> str:
        self.depth += 1
        try:
            return self._one(indent, inner)
        finally:
            self.depth -= 1

    def _one(self, indent: str, inner: bool) -> str:
        roll = self.random.randrange(13 if self.depth < 3 else 8)
        number = self.random.choice(("a", "b"))
        if roll < 2:
            value = f"{number} + {self.random.choice(('1', 'a', 'b', 'len(xs)'))}" if self.kept else self._value()
            return f"{indent}{number} = {value}\n"
        if roll == 2:
            value = self.random.choice(("1", "b", "len(xs)")) if self.kept else self._value()
            return f"{indent}{number} {self.random.choice(['+', '-', '//', '%'])}= {value}\n"
        if roll < 5:
            return f"{indent}xs.append({self.random.choice(_ITEMS)})\n"
        if roll == 5:
            return f"{indent}c = f'{{{number}}}{{c}}'[:9]\n" if self.kept else f"{indent}c = {self._value()}\n"
        if roll == 6:
            return f"{indent}g()\n" if inner else f"{indent}{self.random.choice(_NAMES)} = {self._value()}\n"
        if roll == 7:
            rare = self.random.choice(("del a", "xs = []", "xs = [b]", "p = 1", "a, b = b, a", "xs += [a]", "pass"))
            return f"{indent}{rare}\n"
        body = "".join(self._statement(indent + "    ", inner) for _ in range(self.random.randrange(1, 4)))
        if roll < 10:
            over = self.random.choice(("range(3)", "range(b % 4)", "range(1, 4)", "xs[:3]", "'ab'", "range(7)"))
            return f"{indent}for {self.random.choice(('i', 'i', 'a', 'b'))} in {over}:\n{body}"
        if roll == 10:
            return f"{indent}if {self._test()}:\n{body}"
        if roll == 11:
            return f"{indent}try:\n{body}{indent}except (ValueError, TypeError) as e:\n{indent}    xs = [1]\n"
        return f"{indent}while len(xs) < 4 and {self._test()}:\n{indent}    xs.append(1)\n{body}"
