"""Made-up texts that aim at what code takes for certain of variables: recursion, rebinding from inside and outside, ways through ``finally``."""

from __future__ import annotations

import random
from collections.abc import Callable

NAMES = ("a", "b", "n", "xs", "d", "s")
_START = {"a": "0", "b": "1", "n": "3", "xs": "[1, 2]", "d": "{'k': 1}", "s": "'t'"}
_OTHER = ("True", "None", "2.5", "'u'", "[]", "[3, 'v']", "{}", "{'k': 'w'}", "(1, 2)", "-1", "10 ** 90", "(2 ** 300)")


class KindsAuthor:
    """Writes functions that call themselves, each other and inner ones, over six variables that start as integers, a list, a dict and a text.

    ``kept`` texts give variables mostly values of the type they have, so that much is certain and little is not.
    """

    def __init__(self, seed: int) -> None:
        self.random = random.Random(f"kinds {seed}")
        self.kept = self.random.random() < 0.75
        self.count = 0
        self.inner: list[str] = []
        self.depth = 0

    def text(self) -> str:
        """A whole text: functions, globals that they change, and the values or errors of their calls."""
        functions = [self._recursive(), *(self._function(f"f{at}") for at in range(2)), self._generic()]
        self.random.shuffle(functions)
        tries = [f"lambda: {each}" for each in self._calls()]
        last = self.random.choice(("", "", "r = lambda n, m=0: 'other'\n", "def len(x):\n    return 'l'\n"))
        return (
            "G = 0\nH = []\nleft = 40\n"
            "def spend():\n    global left\n    left -= 1\n    return left > 0\n"
            f"{''.join(functions)}{last}out = []\n"
            f"for call in [{', '.join(tries)}]:\n"
            "    left = 40\n"
            "    try:\n        out.append(call())\n    except Exception as e:\n        out.append('error')\n"
            "[out, G, H]\n"
        )

    def _calls(self) -> list[str]:
        arguments = ("0", "4", "7", "True", "2.5", "'q'", "None", "-3", "2 ** 70", "[1]")
        pick = self.random.choice
        recursive = [
            f"r({pick(arguments)}{pick(['', f', {pick(arguments)}', f', m={pick(arguments)}'])})" for _ in range(5)
        ]
        return [*recursive, *(f"f{at}({pick(arguments)})" for at in (0, 0, 1, 1)), f"g({pick(arguments)})"]

    def _recursive(self) -> str:
        """A small function that calls itself: code is written twice for it."""
        pick = self.random.choice
        steps = ("n - 1", "n - 2", "n // 2", "n - m", "n - 1.0", "n - True", "m - 1", "'x'", "k", "n % 3 - 1", "k - 1")
        again = f"r({pick(steps)}{pick(['', ', m', ', m + 1', ', k', ', m=n', ', n * m % 97', ', None'])})"
        other = f"r({pick(steps)}, {pick(['m', 'k', 'n', 's', '1'])})"
        first = pick(
            ("k = n - 1", "k = n + m", "k = m", "k = 0", "k = n * n % 97", "k = [n]", "k = n - 1 if n > 2 else m")
        )
        lines = [first]
        for _ in range(self.random.randrange(3)):
            lines.append(
                pick(
                    (
                        "for i in range(2):\n        k += i",
                        "while k > 5 and spend():\n        k -= 2",
                        "m = k",
                        "n = n - 1",
                        "s = f'{n}{k}'",
                        "k = n < m",
                        "k += n",
                        "if m:\n        k = m - n",
                        "m += 1",
                        "global r\n    if n == 3:\n        r = lambda n, m=0: n",
                        "del k\n    k = 2",
                        "xs = [n]\n    xs.append(k)\n    k = xs[0]",
                        "k = len(H)\n    H.append(n)",
                    )
                )
            )
        if any("global r" in each for each in lines[1:]):  # first in its function, as Python wants it
            lines = [lines[0], *(each for each in lines[1:] if "global r" not in each)]
            lines = ["global r", *lines, "if n == 3:\n        r = lambda n, m=0: n"]
        value = pick(("n", "k", "m", "n + m", "s", "n * 2", "[n]", "None", "n - m + k"))
        result = pick(
            (
                f"{again} + {other}",
                f"{again} + 1",
                f"{again} - {other} * 2",
                f"1 + {again}",
                f"[{again}]",
                f"{again} if n > m else {other}",
                f"f'{{{again}}}!'",
                f"{again} < {other}",
                f"({again}, n)",
            )
        )
        test = pick(("n < 1", "n < 2", "n <= m", "not n > 0", "n == 0 or n < 0", "n < 1 or not spend()"))
        body = "".join(f"    {each}\n" for each in lines)
        head = pick(("n, m=0", "n, m=1", "n, m=None", "n, m=True"))
        return (
            f"def r({head}):\n    s = 'z'\n{body}    if not spend():\n        return 0\n"
            f"    if {test}:\n        return {value}\n    return {result}\n"
        ).replace("    s = 'z'\n    global r\n", "    global r\n    s = 'z'\n")

    def _function(self, name: str) -> str:
        self.inner = []
        start = "".join(
            f"    {each} = {_START[each] if self.kept or self.random.random() < 0.5 else self._value(each)}\n"
            for each in NAMES
            if self.random.random() < 0.95
        )
        inner = "".join(self._inner(start) for _ in range(self.random.randrange(3)))
        globals_ = self.random.choice(("", "    global G\n", "    global G, H\n"))
        body = "".join(self._statement("    ") for _ in range(self.random.randrange(3, 7)))
        return f"def {name}(p, q=2):\n{globals_}{start}{inner}{body}    return [a, b, n, xs, d, s, p, q]\n"

    def _inner(self, start: str) -> str:
        pick = self.random.choice
        target = pick(NAMES)
        if f"    {target} =" not in start:
            return ""
        name = f"i{len(self.inner)}"
        self.inner.append(name)
        value = self._value(target) if self.kept and self.random.random() < 0.5 else self._any()
        shapes = (
            f"    def {name}():\n        nonlocal {target}\n        {target} = {value}\n        return {target}\n",
            f"    def {name}():\n        {target} = {value}\n        return {target}\n",
            f"    def {name}(z={pick(('0', '[]', 'None'))}):\n        for {target} in range(2):\n            z = {target}\n        return z\n",
            f"    {name} = lambda: [{target}, {pick(NAMES)}]\n",
            f"    def {name}():\n        nonlocal {target}\n        def deep():\n            nonlocal {target}\n            {target} = {value}\n        deep()\n        return {target}\n",
        )
        return pick(shapes)

    def _generic(self) -> str:
        """A function of globals, which those that it calls change."""
        pick = self.random.choice
        body = pick(
            (
                "    for i in range(3):\n        G = G + i\n        f0(i)\n    return G + 1",
                "    G = 5\n    f1(p)\n    return [G < 6, G]",
                "    H.append(p)\n    x = len(H)\n    f0(x)\n    return x + len(H)",
                "    total = 0\n    for i in range(4):\n        total += i\n        i = p\n        total = total + i\n    return total",
                "    return f'{G} {p} {r(3)}'",
            )
        )
        return f"def g(p):\n    global G, H\n{body}\n"

    # -- statements ------------------------------------------------------------------------------------------------

    def _statement(self, pad: str, loop: bool = False) -> str:
        self.depth += 1
        try:
            return self._one(pad, loop)
        finally:
            self.depth -= 1

    def _block(self, pad: str, loop: bool = False) -> str:
        return "".join(self._statement(pad + "    ", loop) for _ in range(self.random.randrange(1, 4)))

    def _one(self, pad: str, loop: bool) -> str:
        pick = self.random.choice
        name = pick(NAMES)
        simple: list[Callable[[], str]] = [
            lambda: f"{pad}{name} = {self._value(name)}\n",
            lambda: f"{pad}{name} = {self._value(name)}\n",
            lambda: f"{pad}{pick(('a', 'b', 'n'))} {pick(('+', '-', '*', '//', '%'))}= {self._value('a')}\n",
            lambda: f"{pad}xs.append({self._any()})\n",
            lambda: f"{pad}d[{pick((chr(39) + 'k' + chr(39), 's', 'len(xs)'))}] = {self._any()}\n",
            lambda: f"{pad}s = f'{{{pick(NAMES)}}}{{{pick(('a', 'n', 'len(s)'))}}}'[:30]\n",
            lambda: (
                f"{pad}{pick(('a, b = b, a', 'a, *xs = xs', '*xs, b = xs', 'a, (b, n) = 1, (2, 3)', 'a = b = n', 'n, s = s, n', 'xs, d = d, xs'))}\n"
            ),
            lambda: (
                f"{pad}{pick(('del ' + name, 'p = ' + self._any(), 'q = ' + name, 'xs += [a]', 'xs = xs[:4] * 2', 's = s[:9] + s', 'd |= d'))}\n"
            ),
            lambda: f"{pad}{pick(self.inner)}()\n" if self.inner else f"{pad}pass\n",
            lambda: (
                f"{pad}b = [{pick(('a', 'n', 'z', 'z + a'))} for z in {pick(('range(3)', 'xs', 's', 'd'))} if {self._test()}]\n"
            ),
            lambda: f"{pad}n = ({pick(('a', 'b'))} := {self._value('a')})\n",
            lambda: f"{pad}a = [a for a in range(3)][-1]\n",
            lambda: f"{pad}xs = [y for x in range(3) for y in [x, {pick(('a', 'x'))}]]\n",
            lambda: f"{pad}b: int = {self._value('b')}\n",
        ]
        if loop:
            simple.append(lambda: f"{pad}if {self._test()}:\n{pad}    {pick(('break', 'continue'))}\n")
        if not self.kept:
            simple.append(lambda: f"{pad}{name} = {self._any()}\n")
        if self.depth > 3:
            return pick(simple)()
        target = pick(("i", "i", "a", "b", "n", "xs", "(a, b)"))
        over = pick(
            (
                "range(3)",
                "range(a)",
                "range(1, b)",
                "xs[:3]",
                "'ab'",
                "range(n % 5)",
                "d",
                "[1, 2]",
                "[(1, 2)]",
                "list(d.items())",
            )
        )
        deep: list[Callable[[], str]] = [
            lambda: (
                f"{pad}for {target} in {over}:\n{self._block(pad, True)}{pick(('', f'{pad}else:{chr(10)}{self._block(pad)}'))}"
            ),
            lambda: f"{pad}while spend() and {self._test()}:\n{self._block(pad, True)}",
            lambda: f"{pad}if {self._test()}:\n{self._block(pad, loop)}{pad}else:\n{self._block(pad, loop)}",
            lambda: (
                f"{pad}try:\n{self._block(pad, loop)}{pad}except {pick(('TypeError', 'Exception', '(ValueError, LookupError)'))}{pick(('', ' as e'))}:\n{self._block(pad, loop)}"
            ),
            lambda: f"{pad}try:\n{self._block(pad, loop)}{pad}finally:\n{self._block(pad)}",
            lambda: (
                f"{pad}try:\n{self._block(pad, loop)}{pad}    xs[{pick(('0', '9', '-1'))}]\n{pad}except IndexError:\n{self._block(pad, loop)}{pad}finally:\n{pad}    {name} = {self._value(name)}\n"
            ),
        ]
        return pick([*simple, *deep, *deep])()

    # -- expressions -----------------------------------------------------------------------------------------------

    def _value(self, name: str) -> str:
        """Mostly a value of the type that the variable begins with."""
        pick = self.random.choice
        if self.random.random() < (0.06 if self.kept else 0.4):
            return self._any()
        if name == "xs":
            return pick(("[a]", "[]", "[a, *xs]", "[z for z in range(3)]", "xs", "[n, b]", "[x for x in xs if x]"))
        if name == "d":
            return pick(("{}", "{'k': a}", "{'k': s, 'm': n}", "d", "{s: n}", "{z: a for z in range(2)}"))
        if name == "s":
            return pick(("'t'", "f'{a}'", "f'{s}{n}'[:20]", "s", "'x' if a else s", "f'{xs}'[:20]"))
        one, two = pick(("a", "b", "n", "len(xs)", "1", "2", "len(s)", "q", "7")), pick(("a", "b", "n", "1", "p", "3"))
        if self.random.random() < 0.15:
            return pick(
                ("d['k']", "xs[0]", "xs[-1]", "d.get('k', 0)", "d.get(s)", "r(2)", "len(d)", "G", "10 ** 40", "-a")
            )
        if self.random.random() < 0.1:
            return f"({one} if {self._test()} else {two})"
        return f"{one} {pick(('+', '-', '*', '//', '%', '+', '-'))} {two}"

    def _any(self) -> str:
        return self.random.choice(
            (*_OTHER, *NAMES, "p", "a == b", "a < n", "not a", "a and b", "xs or d", "len(xs) > 1")
        )

    def _test(self) -> str:
        return self.random.choice(
            (
                "a < b",
                "a < 3",
                "xs",
                "n % 2 == 0",
                "p == 3",
                "s",
                "len(xs) < 4",
                "a == n",
                "0 <= a < 5",
                "b in xs",
                "d.get('k')",
            )
        )
