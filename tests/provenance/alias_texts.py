"""Texts that change a list, dict or set because of a secret through one reference, and look at it through another.

Each is one of every way to hold it, to change it, to come to the change, and to look at it::

    python -m tests.provenance.alias_texts --count 20000
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
from pathlib import Path

from tests.provenance.strict_programs import KINDS, SECRETS, Observer, differ

MADE = {"list": "[3, 1, 2]", "dict": "{'a': 1, 'b': 2}", "set": "{3, 1}"}
CHANGES = {
    "list": [
        "{c}.append(1)",
        "{c}.extend([1])",
        "{c}.insert(0, 1)",
        "{c}.pop()",
        "{c}.clear()",
        "{c}.reverse()",
        "{c}.sort()",
        "{c}.sort(key=lambda q: 0 - q)",
        "{c}[0] = 7",
        "{c}[1] += 1",
        "del {c}[0]",
        "{c}.remove(3)",
        "{c}.append(s)",
        "{c}[s] = 1",
        "{c}.insert(s, 1)",
    ],
    "dict": [
        "{c}['z'] = 1",
        "del {c}['a']",
        "{c}.update({{'z': 1}})",
        "{c}.setdefault('z', 1)",
        "{c}.pop('a')",
        "{c}.clear()",
        "{c}['a'] += 1",
        "{c}[s] = 1",
        "{c}.update({{s: 1}})",
        "{c}.pop(s, 0)",
    ],
    "set": [
        "{c}.add(9)",
        "{c}.discard(3)",
        "{c}.clear()",
        "{c}.update([9])",
        "{c}.remove(3)",
        "{c}.add(s)",
        "{c}.discard(s)",
    ],
}
HELD = [
    ("c = MADE\no = c", "DO c", "o"),
    ("c = MADE\nk = [c]", "DO c", "k[0]"),
    ("o = MADE\nk = [o]", "DO k[0]", "o"),
    ("o = MADE\nk = {'x': o}", "DO k['x']", "o"),
    ("o = MADE\nk = (o, 1)", "DO k[0]", "o"),
    ("o = MADE\nk = {'x': [o]}", "DO k['x'][0]", "o"),
    ("o = MADE\nk = [[o], (o,)]", "DO k[1][0]", "k[0][0]"),
    ("o = MADE\ndef change(q):\n    DO q", "change(o)", "o"),
    ("o = MADE\ndef change(q=o):\n    DO q", "change()", "o"),
    ("o = MADE\ndef change():\n    DO o", "change()", "o"),
    ("o = MADE\ndef get():\n    return o", "DO get()", "o"),
    ("o = MADE", "DO (o if n else o)", "o"),
    ("o = MADE", "DO (n and o)", "o"),
    ("o = MADE", "DO (w := o)", "o"),
    ("o = MADE", "for w in [o]:\n    DO w", "o"),
    ("o = MADE", "w, v = o, 1\nDO w", "o"),
    ("o = MADE", "w = o\nDO w", "o"),
    ("o = MADE", "DO {}.setdefault('k', o)", "o"),
    ("o = MADE", "DO [o, 1][0]", "o"),
    ("o = MADE", "[0 for w in [o] if [HE]]", "o"),
    ("o = MADE\nk = [1]\nk.append(o)", "DO k[-1]\nk.pop()", "o"),
    ("o = MADE\nk = [1]", "k[0] = o\nDO k[0]", "o"),
    (
        "def make():\n    o = MADE\n    def change():\n        DO o\n    def show():\n        return o\n    return [change, show]\nm = make()",
        "m[0]()",
        "m[1]()",
    ),
    ("o = MADE\nk = [o]", "o = k[0]\nDO o\no = MADE", "k[0]"),
]
WHY = [
    "if s > 1:\n    DO",
    "if s > 1:\n    0\nelse:\n    DO",
    "if items:\n    DO",
    "k_ = 0\nwhile k_ < s:\n    k_ += 1\n    DO",
    "for i_ in range(s):\n    DO",
    "for i_ in items:\n    DO",
    "try:\n    if s > 1:\n        raise ValueError('x')\n    DO\nexcept Exception:\n    0",
    "try:\n    items[0]\n    DO\nexcept Exception:\n    0",
    "try:\n    [1][s]\nexcept Exception:\n    DO",
    "try:\n    [1][s]\nexcept Exception:\n    0\nelse:\n    DO",
    "try:\n    try:\n        items[0]\n    finally:\n        n\n    DO\nexcept Exception:\n    0",
    "try:\n    try:\n        [1][s]\n        DO\n    except KeyError:\n        0\nexcept Exception:\n    0",
    "def f():\n    if s > 1:\n        return\n    DO\nf()",
    "def f():\n    for i_ in [0, 1, 2]:\n        if i_ == s:\n            return\n        DO\nf()",
    "for i_ in [0, 1, 2, 3]:\n    if i_ == s:\n        break\n    DO",
    "for i_ in [0, 1, 2, 3]:\n    if i_ == s:\n        continue\n    DO",
    "def f():\n    DO\nif s > 1:\n    f()",
    "def f():\n    DO\ns > 1 and f()",
    "def f():\n    DO\nf() if s > 1 else 0",
    "def f():\n    DO\n[f() for x in items]",
    "def f():\n    DO\nlist(map(lambda x: f(), items))",
    "def f():\n    DO\n    return 0\nsorted(items, key=lambda x: f())",
    "def f():\n    DO\nany([s > 1, f()])",
    "def f():\n    items[0]\n    DO\ntry:\n    f()\nexcept Exception:\n    0",
    "def f():\n    DO\n    if s > 1:\n        raise ValueError('x')\ntry:\n    retry(3, f())\nexcept Exception:\n    0",
    "def f():\n    DO\ntry:\n    assert s > 1\n    f()\nexcept Exception:\n    0",
    "DO",
]
LOOKS = [
    "send(len({o}))",
    "send(list({o}))",
    "send(f'{{{o}}}')",
    "send(1) if {o} else 0",
    "for x_ in {o}:\n    send(x_)",
    "send({o} == MADE)",
    "send([*{o}])",
    "send(3 in {o})",
    "send({o})",
    "send(sorted([0, 1], key=lambda q: len({o}) * q))",
    "send([len(x_) for x_ in [{o}]])",
    "send(str({o}))",
    "f_ = len\nsend(f_({o}))",
]


def _block(code: str, indent: int) -> str:
    return "\n".join([" " * indent + line for line in code.split("\n")])


def _put(template: str, word: str, code: str) -> str:
    """``template`` with ``code`` in place of the lines that begin with ``word``."""
    lines: list[str] = []
    for line in template.split("\n"):
        inner = line.lstrip()
        if inner == word:
            lines += _block(code, len(line) - len(inner)).split("\n")
        else:
            lines.append(line)
    return "\n".join(lines)


def text_of(seed: int) -> str:
    """The text with a number."""
    chance = random.Random(seed)
    kind = chance.choice(list(MADE))
    change = chance.choice(CHANGES[kind])

    def changed(code: str) -> str:
        lines: list[str] = []
        for line in code.split("\n"):
            inner = line.lstrip()
            at = " " * (len(line) - len(inner))
            if inner.startswith("DO "):
                line = at + change.format(c=inner[3:])
            elif "HE" in inner:
                line = at + inner.replace("HE", "w.clear()")
            lines.append(line)
        return "\n".join(lines)

    first, do, look = chance.choice(HELD)
    body = _put(chance.choice(WHY), "DO", changed(do))
    if chance.random() < 0.3:
        body = _put(chance.choice(WHY), "DO", body)
    shown = chance.choice(LOOKS).format(o=look)
    text = f"{changed(first)}\n{body}\ntry:\n{_block(shown, 4)}\nexcept Exception:\n    0\nsend('end')"
    if chance.random() < 0.4:
        text = f"def main():\n{_block(text, 4)}"
    elif chance.random() < 0.3:
        text = f"try:\n{_block(text, 4)}\nexcept Exception:\n    0\nsend('last')"
    return text.replace("MADE", MADE[kind])


async def told(observer: Observer, seed: int) -> str | None:
    """The text with a number, if it tells a secret."""
    text = text_of(seed)
    for secrets in (SECRETS, KINDS):
        runs = [await observer.run(text, each) for each in secrets]
        if any([differ(runs[0], each) for each in runs[1:]]):
            return f"--- {seed}\n{text}\n{runs}"
    return None


async def _main(first: int, count: int) -> int:
    leaked = 0
    with tempfile.TemporaryDirectory() as root:
        observer = Observer(Path(root), surface="python")
        async with observer.flow:
            for seed in range(first, first + count):
                tells = await told(observer, seed)
                if tells is not None:
                    leaked += 1
                    print(tells, flush=True)
    print(f"{count} texts, {leaked} tell a secret; {observer.codes}")
    return 1 if leaked else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first text")
    options = parser.parse_args()
    sys.exit(asyncio.run(_main(options.first, options.count)))
