"""Texts in Python that try to hold the event loop or fill the memory: the twins of :mod:`tests.support.loop_cases`."""

from __future__ import annotations

from tests.support.loop_cases import LIST, TEXT, Case

_BIG = f"xs = list(range({LIST - 1}))\n"
_TWO = f"{_BIG}ys = list(range({LIST - 1}))\n"
_DICT = f"xs = list(range({LIST // 2}))\nd = {{x: x for x in xs}}\n"
_TEXT = f"s = 'abcdefgh' * {TEXT // 8 // 2}\n"
_HUGE = "n = 3\nfor i in range(16):\n    n = n * n\n"
_DAG = "def dag(n, x):\n    for i in range(n):\n        x = [x, x]\n    return x\n"
_DEEP = "def deep(n, x):\n    for i in range(n):\n        x = [x]\n    return x\n"
_TASK = "@task\ndef t(x) -> str:\n    '{{x}}'\n"


def _on_lists() -> dict[str, str]:
    """Functions, methods and operators on the largest list."""
    texts = {
        "concatenate": "len(xs + xs[:1])",
        "repeat": "len([0] * 900_000)",
        "slice": "len(xs[::2])",
        "reverse": "xs[::-1][0]",
        "reversed": "reversed(xs)[0]",
        "sort": "sorted(xs[::-1])[0]",
        "sort-by": "sorted(xs[:100_000], key=lambda x: -x)[0]",
        "sort-in-place": "xs.sort(reverse=True)\nxs[0]",
        "sort-texts": "sorted([str(x) for x in xs[:200_000]])[0]",
        "sum": "sum(xs)",
        "sum-lists": "len(sum([[x] for x in xs[:1_000]], []))",
        "min": "min(xs)",
        "max-by": "max(xs[:100_000], key=lambda x: x % 7)",
        "contains": "-1 in xs",
        "contains-often": "[(-1 in xs) for i in range(300)]",
        "contains-lists": "[-1] in [[x] for x in xs[:200_000]]",
        "index": "xs.index(999_998)",
        "count": "xs.count(-1)",
        "count-all": "ys = [1] * 900_000\nys.count(1)",
        "sort-lists": "sorted([[x] for x in xs[:200_000]])[0]",
        "sort-by-texts": "sorted(xs[:200_000], key=str, reverse=True)[0]",
        "count-lists": "[[x] for x in xs[:200_000]].count([-1])",
        "remove": "xs.remove(999_998)",
        "insert-often": "for i in range(300):\n    xs.insert(0, i)",
        "pop-first-often": "for i in range(300):\n    xs.pop(0)",
        "del-first-often": "for i in range(300):\n    del xs[0]",
        "append-many": "ys = []\nfor x in xs:\n    ys.append(x)\nlen(ys)",
        "extend": "xs.extend(xs[:1])",
        "copy": "len(xs.copy())",
        "clear": "xs.clear()",
        "list": "len(list(xs))",
        "tuple": "len(tuple(xs))",
        "set": "len(set(xs))",
        "dict": "len(dict(zip(xs, xs)))",
        "zip": "len(zip(xs, xs))",
        "enumerate": "len(enumerate(xs))",
        "map": "len(map(lambda x: x, xs[:300_000]))",
        "map-str": "len(map(str, xs[:300_000]))",
        "filter": "len(filter(None, xs))",
        "comprehension": "len([x for x in xs])",
        "set-comprehension": "len({x for x in xs})",
        "dict-comprehension": "len({x: x for x in xs})",
        "any": "any(x < 0 for x in xs)",
        "all": "all(xs[1:])",
        "unpack": "a, *b = xs\nlen(b)",
        "star": "len([*xs])",
        "join": "len(','.join([str(x) for x in xs[:200_000]]))",
        "repr": "len(repr(xs))",
        "str": "len(str(xs))",
        "f-string": "len(f'{xs}')",
        "print": "print(xs)",
        "json-dumps": "len(json.dumps(xs))",
        "equal": "ys = xs.copy()\nxs == ys",
        "less": "ys = xs.copy()\nxs < ys",
        "loop": "n = 0\nfor x in xs:\n    n += x\nn",
        "pmap": "len(pmap(lambda x: x, xs[:100_000]))",
        "parallel": "len(parallel(*[x for x in xs[:50_000]]))",
    }
    return {f"list-{name}": _BIG + text for name, text in texts.items()}


def _on_dicts() -> dict[str, str]:
    texts = {
        "copy": "len({**d})",
        "merge": "len(d | d)",
        "update": "e = {-1: 1}\ne.update(d)\nlen(e)",
        "update-pairs": "e = {}\ne |= [(x, x) for x in xs[:200_000]]\nlen(e)",
        "spread": "len({-1: 1, **d})",
        "keys": "len(d.keys())",
        "values": "len(d.values())",
        "items": "len(d.items())",
        "equal": "d == {**d}",
        "equal-lists": "e = {x: [x] for x in xs[:200_000]}\ne == {x: [x] for x in xs[:200_000]}",
        "set-equal": "s = set(d)\ns == set(d)",
        "set-operations": "s = set(d)\nlen((s | s) & (s - {1}))",
        "set-xor": "s = set(d)\nt = s ^ {-1, 1}\nt -= s\nlen(t)",
        "set-methods": "s = set(d)\nlen(s.union(d).intersection(d).difference([1]))",
        "set-update": "s = {-1}\ns.update(d)\ns.issubset(d)",
        "set-of-starred": "len({*d, -1})",
        "set-inclusion": "s = set(d)\ns <= set(d)",
        "counting": "counts = {}\nfor x in xs:\n    counts[x % 7] = counts.get(x % 7, 0) + 1\ncounts",
    }
    return {f"dict-{name}": _DICT + text for name, text in texts.items()}


def _on_text() -> dict[str, str]:
    texts = {
        "concatenate": "len(s + 'x')",
        "repeat": "len(s * 2)",
        "contains": "'hgfedcba' in s",
        "count": "s.count('hg')",
        "find": "s.find('hgfedcba')",
        "replace": "len(s.replace('a', 'b'))",
        "replace-grow": "len(s.replace('a', 'bbbbbbbbbbbb'))",
        "split": "len(s.split('h'))",
        "splitlines": "len(s.splitlines())",
        "strip": "len(s.strip('abcdefgh'))",
        "upper": "len(s.upper())",
        "title": "len(s.title())",
        "slice": "len(s[1:1_000_000])",
        "reverse": "len(s[::-1])",
        "equal": "t = s[:-1] + 'h'\ns == t",
        "less": "t = s[:-1] + 'h'\ns < t",
        "repr": "len(repr([s]))",
        "f-string": "len(f'{s}{s}')",
        "format": "len(f'{s:>9999}')",
        "list": "len(list(s[:900_000]))",
        "comprehension": "len([c for c in s[:900_000]])",
        "join": "len(s[:500_000].join(['a', 'b']))",
        "ljust": "len(s.ljust(7_000_000))",
        "isdigit": "s.isdigit()",
        "print": "for i in range(250):\n    print(s)",
        "json-loads": "len(json.loads('[' + ','.join(['[1]' for i in range(300_000)]) + ']'))",
        "int": "int(s)",
        "member-often": "t = s[:-1] + 'x'\n(s[:-1] + 'y') in [s, t] * 1_000",
        "count-often": "t = s[:-1] + 'x'\n([s, t] * 1_000).count(s[:-1] + 'y')",
        "index-often": "t = s[:-1] + 'x'\n([s] * 1_000 + [t]).index(s[:-1] + 'x')",
        "sort-often": "t = s[:-1] + 'x'\nlen(sorted([s, t] * 1_000, reverse=True))",
        "sort-pairs-often": "t = s[:-1] + 'x'\nlen(sorted([(s, 1), (t, 2)] * 1_000))",
        "max-often": "t = s[:-1] + 'x'\nlen(max([s, t] * 1_000))",
        "key": "{s: 1}[s]",
    }
    return {f"text-{name}": _TEXT + text for name, text in texts.items()}


def _on_numbers() -> dict[str, str]:
    texts = {
        "multiply": "n * n > 0",
        "divide": "n // 7",
        "modulo": "n % (n // 3 + 1)",
        "power": "(n ** 3) > 0",
        "shift": "(n << 100_000) > 0",
        "text": "len(f'{n:x}')",
        "add-often": "t = 0\nfor i in range(2_000):\n    t += n\nt > 0",
        "gather": "len([n + i for i in range(40_000)])",
    }
    return {f"number-{name}": _HUGE + text for name, text in texts.items()}


def _shapes() -> dict[str, str]:
    """Comparison, printing, copying and handing over of wide, deep and shared data."""
    return {
        "equal-shared": _DAG + "dag(60, 1) == dag(60, 1)",
        "repr-shared": _DAG + "repr(dag(60, 1))",
        "json-shared": _DAG + "json.dumps(dag(60, 1))",
        "print-shared": _DAG + "print(dag(60, 1))",
        "context-shared": _DAG + "recall('x', limit=dag(60, 1))",
        "tool-shared": _DAG + "take(value=dag(60, 1))",
        "task-shared": _DAG + _TASK + "outcome(t(x=dag(60, 1)))",
        "solve-shared": _DAG + "solve('g', inputs={'a': dag(60, 1)}, max_rounds=1)",
        "tool-wide": _BIG + "take(value=xs)",
        "tool-result-wide": "len(give(n=200_000))",
        "task-wide": _BIG + _TASK + "outcome(t(x=xs))",
        "eval-wide": _BIG + "eval_program('len(xs)', bindings={'xs': xs})",
        "repr-deep": _DEEP + "repr(deep(900, 1))",
        "equal-deep": _DEEP + "deep(900, 1) == deep(900, 1)",
        "json-too-deep": _DEEP + "json.dumps(deep(100_000, 1))",
        "key-of-parts": "t = (1,)\nfor i in range(60):\n    t = (t, t)\n{t: 1}",
        "error-of-wide": _BIG + "try:\n    raise ValueError(xs)\nexcept ValueError as e:\n    n = len(e.message)\nn",
        "branches-change-wide": _BIG + "rows = {1: xs, 2: list(xs)}\npmap(lambda i: rows.update({i: 2}), [1, 2])",
        "branches-change-own": "rows = [[i] for i in range(200_000)]\n"
        "def f(i):\n    mine = []\n    mine.append(i)\n    return mine\nlen(pmap(f, range(50)))",
        "branches-change": "rows = [[i] for i in range(200_000)]\npmap(lambda i: rows.append(i), [1, 2])",
        "value-of-wide": _BIG + "xs",
        "partial-wide": "[[x for x in range(300_000)] for i in range(9)][10]",
    }


def _programs() -> dict[str, str]:
    """Texts: size, nesting, recursion, and what never ends."""
    return {
        "first-text": "1 + 2",
        "text-wide": "\n".join(f"v{n} = {n} + 1" for n in range(3_000)),
        "text-dense": "[" + ", ".join("(lambda y: y + 1 if 1 > 2 else [y])" for _ in range(1_000)) + "]",
        "text-nested": "(" * 90 + "1" + ")" * 90,
        "recursion": "def f(n):\n    return 0 if n == 0 else 1 + f(n - 1)\nf(4_000)",
        "while": "while True:\n    pass",
        "untrusted-while": "while True:\n    pass",
        "eval-while": "eval_program('while True:\\n    pass', max_steps=300_000)",
        "closures": "len([lambda x: x + i for i in range(200_000)])",
        "nested-pmap": "len(pmap(lambda i: pmap(lambda j: take(value=j), range(60)), range(60)))",
        "sixty-lists": "len([list(range(900_000)) for i in range(60)])",
        "sixty-texts": _TEXT + "len([s + str(i) for i in range(120)])",
    }


PYTHON_CASES: dict[str, Case] = {
    name: Case(
        name,
        text,
        surface="python",
        allow=() if name == "python-untrusted-while" else None,
        cold=name == "python-first-text",
    )
    for name, text in {
        f"python-{key}": text
        for texts in (_on_lists(), _on_dicts(), _on_text(), _on_numbers(), _shapes(), _programs())
        for key, text in texts.items()
    }.items()
}
"""All cases by name."""
