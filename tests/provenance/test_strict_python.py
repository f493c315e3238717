"""A strict policy and texts in Python: what a test depended on counts for what is done, given and changed because of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, AgentflowError, Labelled, Limits, Provenance, ScriptedProvider, Sink
from agentflow.core.data.errors import ChangeRefused
from agentflow.core.data.source import Source
from agentflow.core.data.values import OrderedSet
from agentflow.lang.python.builtins import BUILTINS
from agentflow.lang.python.methods import METHODS
from agentflow.tasks.workflows import Workflow
from tests.provenance.alias_texts import told
from tests.provenance.strict_programs import KINDS, SECRETS, Observer, differ, leaks
from tests.provenance.test_durable import gone_on, interrupted

FLOWS: dict[str, str] = {
    "if": "if s > 1:\n    send(1)\nelse:\n    send(2)",
    "an arm that is not there": "if s > 1:\n    send(1)",
    "elif": "if s > 5:\n    send(1)\nelif s > 1:\n    send(2)\nelse:\n    send(3)",
    "what if gives": "if s > 1:\n    x = 1\nelse:\n    x = 2\nsend(x)",
    "truth of a list": "if items:\n    send(1)",
    "truth of a text": "if text:\n    send(1)",
    "conditional": "send(1 if s > 1 else 2)",
    "a conditional that does something": "send(1) if s > 1 else 0",
    "and": "s > 1 and send(1)",
    "or": "s > 1 or send(1)",
    "the value of and": "send(s > 1 and 7)",
    "the value of or": "send(s > 1 or 7)",
    "a chain": "send(0 < s < 3 < 5)",
    "a chain that is cut": "def one():\n    send(1)\n    return 1\n0 < s < one()",
    "while": "i = 0\nwhile i < s:\n    send(1)\n    i += 1",
    "after while": "i = 0\nwhile i < s:\n    i += 1\nsend(i)",
    "while else": "while False:\n    0\nelse:\n    1\nwhile s > 9:\n    break\nelse:\n    send(s > 1)",
    "for": "for x in items:\n    send(1)",
    "for over a range": "for i in range(s):\n    send(1)",
    "for over a text": "for c in text:\n    send(1)",
    "how many rounds": "n = 0\nfor x in items:\n    n += 1\nsend(n)",
    "the last of a loop": "x = 0\nfor i in range(s):\n    x = 1\nsend(x)",
    "the variable of a loop": "i = 9\nfor i in range(s):\n    0\nsend(i)",
    "break": "for i in [0, 1, 2, 3]:\n    if i == s:\n        break\n    send(1)",
    "rounds until break": "n = 0\nfor i in [0, 1, 2, 3]:\n    if i == s:\n        break\n    n += 1\nsend(n)",
    "else of a loop that breaks": "for i in [0, 1]:\n    if i == s:\n        break\nelse:\n    send(1)",
    "continue": "for i in [0, 1, 2, 3]:\n    if i == s:\n        continue\n    send(i)",
    "what continue leaves out": "n = 0\nfor i in [0, 1, 2, 3]:\n    if i < s:\n        continue\n    n += 1\nsend(n)",
    "break in a while": "n = 0\nwhile True:\n    if n >= s:\n        break\n    n += 1\nsend(n)",
    "break of an inner loop": "for j in [1, 2]:\n    for i in [0, 1, 2]:\n        if i == s:\n            break\n        send(i)",
    "return": "def f():\n    if s > 1:\n        return 1\n    return 2\nsend(f())",
    "what return leaves out": "def f():\n    if s > 1:\n        return\n    send(1)\nf()",
    "return in a loop": "def f():\n    for i in [0, 1, 2, 3]:\n        if i == s:\n            return i\n        send(1)\nf()",
    "a global that return leaves out": "x = 0\ndef f():\n    global x\n    if s > 1:\n        return\n    x = 1\nf()\nsend(x)",
    "a nonlocal that return leaves out": (
        "def g():\n    x = 0\n    def f():\n        nonlocal x\n        if s > 1:\n            return\n        x = 1\n    f()\n    return x\nsend(g())"
    ),
    "return within try": "def f():\n    try:\n        if s > 1:\n            return 1\n    except ValueError:\n        0\n    return 2\nsend(f())",
    "recursion": "def f(i):\n    return 1 + f(i + 1) if i < s else 0\nsend(f(0))",
    "comprehension over a list": "[send(1) for x in items]",
    "a filter of a comprehension": "send([x for x in [0, 1, 2, 3, 4] if x > s])",
    "how many a filter leaves": "send(len([x for x in [0, 1, 2, 3, 4] if x > s]))",
    "done for those that a filter leaves": "[send(1) for x in [0, 1, 2, 3, 4] if x > s]",
    "inner loop of a comprehension": "send(len([1 for a in [1, 2] for x in items]))",
    "any of a comprehension": "send(any([x > s for x in [1, 2]]))",
    "what any leaves out": "def one(x):\n    send(x)\n    return x >= s\nany(one(x) for x in [0, 1, 2])",
    "set comprehension": "send(len({1 if x > s else 0 for x in [0, 1, 2, 3]}))",
    "dict comprehension": "send(len({(x if x > s else 0): 1 for x in [0, 1, 2, 3]}))",
    "map": "list(map(lambda x: send(1), items))",
    "how many of map": "send(len(list(map(lambda x: 1, items))))",
    "filter": "send(list(filter(lambda x: x > s, [0, 1, 2, 3, 4])))",
    "how many of filter": "send(len(list(filter(lambda x: x > s, [0, 1, 2, 3, 4]))))",
    "sort by a key": "xs = [1, 2, 3]\nxs.sort(key=lambda x: x if s > 1 else -x)\nsend(xs[0])",
    "sort in an arm": "xs = [2, 1]\nif s > 1:\n    xs.sort()\nsend(xs[0])",
    "whether so many can be unpacked": "try:\n    a, b = items\n    send(1)\nexcept ValueError:\n    send(2)",
    "rounds over keys that are spread": "n = 0\nfor k in {**{s: 1}, 0: 2}:\n    n += 1\nsend(n)",
    "the order of keys": "d = {}\nif s > 1:\n    d['a'] = 1\nd['b'] = 2\nd['a'] = 3\nsend(list(d))",
    "a key by get": "d = {'a': 1}\nif s > 1:\n    d['b'] = 1\nsend(d.get('b'))",
    "append in an arm": "xs = []\nif s > 1:\n    xs.append(1)\nsend(len(xs))",
    "append in an arm, seen by another name": "xs = []\nys = xs\nif s > 1:\n    xs.append(1)\nsend(len(ys))",
    "append in an arm of a function": "def f():\n    xs = []\n    if s > 1:\n        xs.append(1)\n    return xs\nsend(len(f()))",
    "append to a parameter in an arm": "def f(xs):\n    if s > 1:\n        xs.append(1)\nys = []\nf(ys)\nsend(len(ys))",
    "append to a global in an arm": "xs = []\ndef f():\n    if s > 1:\n        xs.append(1)\nf()\nsend(len(xs))",
    "append for each": "xs = []\nfor x in items:\n    xs.append(0)\nsend(len(xs))",
    "append in a conditional": "xs = []\nxs.append(1) if s > 1 else 0\nsend(len(xs))",
    "append in a comprehension": "xs = []\n[xs.append(1) for x in items]\nsend(len(xs))",
    "append to a list in a dict": "d = {'a': []}\nif s > 1:\n    d['a'].append(1)\nsend(len(d['a']))",
    "a list that one of two is": "xs = [1]\nys = xs if s > 1 else [2]\nys.append(3)\nsend(len(xs))",
    "a list by an index": "xs = [1]\nzs = [2]\nys = [xs, zs][s > 1]\nys.append(3)\nsend(len(xs))",
    "a list by a key": "xs = [1]\nzs = [2]\n{0: xs, 3: zs, 2: zs}[s].append(3)\nsend(len(xs))",
    "an element of a list by an index": "x = [[1], [2], [3], [4]]\nx[s].append(5)\nsend(len(x[0]))",
    "a list that and gives": "xs = [1]\nzs = [2]\n(s > 1 and xs or zs).append(3)\nsend(len(xs))",
    "a list that max gives": "xs = [1]\nzs = [2]\nmax(xs, zs, key=lambda q: q[0] * (s - 1)).append(3)\nsend(len(xs))",
    "a list that a function gives": "xs = [1]\ndef f():\n    return xs if s > 1 else [2]\nf().append(3)\nsend(len(xs))",
    "a list that a function is given": "xs = [1]\ndef f(q):\n    q.append(3)\nf(xs if s > 1 else [2])\nsend(len(xs))",
    "an element stored in one of two": "xs = [1]\nzs = [2]\nys = [xs, zs][s > 1]\nys[0] = 3\nsend(xs[0])",
    "one of two in place": "xs = [1]\nzs = [2]\nys = [xs, zs][s > 1]\nys += [3]\nsend(len(xs))",
    "an element deleted of one of two": "xs = [1]\nzs = [2]\nys = [xs, zs][s > 1]\ndel ys[0]\nsend(len(xs))",
    "one of two sorted": "xs = [2, 1]\nzs = [2]\nys = [xs, zs][s > 1]\nys.sort()\nsend(xs[0])",
    "a key of one of two": "xs = {}\nzs = {}\nys = [xs, zs][s > 1]\nys['a'] = 3\nsend(len(xs))",
    "an element of one of two sets": "xs = {1}\nzs = {2}\nys = [xs, zs][s > 1]\nys.add(3)\nsend(len(xs))",
    "one of two sets in place": "xs = {1}\nzs = {2}\nys = [xs, zs][s > 1]\nys |= {3}\nsend(len(xs))",
    "append to a list in a list, seen by its name": "xs = []\nd = [xs]\nif s > 1:\n    d[0].append(1)\nsend(len(xs))",
    "groups": "d = {}\nfor x in items:\n    d.setdefault(x, []).append(1)\nsend(len(d))",
    "in place": "xs = [1]\nif s > 1:\n    xs += [2]\nsend(len(xs))",
    "clear": "xs = [1]\nif s > 1:\n    xs.clear()\nsend(len(xs))",
    "an element in an arm": "xs = [1]\nif s > 1:\n    xs[0] = 2\nsend(xs[0])",
    "an element counted in an arm": "d = {'n': 0}\nfor x in items:\n    d['n'] += 1\nsend(d['n'])",
    "del in an arm": "d = {'a': 1}\nif s > 1:\n    del d['a']\nsend(len(d))",
    "a variable in an arm": "x = 0\nif s > 1:\n    x = 1\nsend(x)",
    "a variable in the other arm": "x = 0\ny = 1\nif s > 1:\n    x = 1\nif x == 0:\n    y = 0\nsend(y)",
    "a variable that only one arm binds": "if s > 1:\n    x = 1\ntry:\n    x\n    send(1)\nexcept NameError:\n    send(2)",
    "a local that only one arm binds": "def f():\n    if s > 1:\n        x = 1\n    try:\n        x\n        return 1\n    except NameError:\n        return 2\nsend(f())",
    "del of a variable": "x = 1\nif s > 1:\n    del x\ntry:\n    x\n    send(1)\nexcept NameError:\n    send(2)",
    "del of a local": "def f():\n    x = 1\n    if s > 1:\n        del x\n    try:\n        x\n        return 1\n    except NameError:\n        return 2\nsend(f())",
    "a function that only one arm defines": "if s > 1:\n    def f():\n        return 1\nelse:\n    def f():\n        return 2\nsend(f())",
    "a local of a function": "def f():\n    x = 0\n    if s > 1:\n        x = 1\n    return x\nsend(f())",
    "a captured local": "def f():\n    x = 0\n    if s > 1:\n        x = 1\n    return lambda: x\nsend(f()())",
    "a parameter": "def f(x):\n    if s > 1:\n        x = 1\n    return x\nsend(f(0))",
    "a global in a function called in an arm": "x = 0\ndef f():\n    global x\n    x = 1\nif s > 1:\n    f()\nsend(x)",
    "a nonlocal in a function called in an arm": (
        "def g():\n    x = 0\n    def f():\n        nonlocal x\n        x = 1\n    if s > 1:\n        f()\n    return x\nsend(g())"
    ),
    "a walrus in an arm": "x = 0\ns > 1 and (x := 1)\nsend(x)",
    "a walrus of a local in an arm": "def f():\n    x = 0\n    s > 1 and (x := 1)\n    return x\nsend(f())",
    "names taken apart in an arm": "a, b = 1, 2\nif s > 1:\n    a, b = b, a\nsend(a)",
    "the operator": "(send if s > 1 else len)([1])",
    "a function that is chosen": "f = (lambda: send(1)) if s > 1 else (lambda: 2)\nf()",
    "a name as function": "f = send if s > 1 else len\nf([1])",
    "a call that may fail": "try:\n    items[0]\n    send(1)\nexcept IndexError:\n    0",
    "the handler": "try:\n    items[0]\nexcept IndexError:\n    send(1)",
    "else of try": "try:\n    items[0]\nexcept IndexError:\n    0\nelse:\n    send(1)",
    "what try gives": "try:\n    items[0]\n    x = 1\nexcept IndexError:\n    x = 2\nsend(x)",
    "a variable after a call that may fail": "x = 0\ntry:\n    items[0]\n    x = 1\nexcept IndexError:\n    0\nsend(x)",
    "a local after a call that may fail": "def f():\n    x = 0\n    try:\n        items[0]\n        x = 1\n    except IndexError:\n        0\n    return x\nsend(f())",
    "a list after a call that may fail": "xs = []\ntry:\n    items[0]\n    xs.append(1)\nexcept IndexError:\n    0\nsend(len(xs))",
    "a list that the handler changes": "xs = []\ntry:\n    xs.append(items[0])\nexcept IndexError:\n    0\nsend(len(xs))",
    "an alias after a call that may fail": "xs = []\nys = 0\ntry:\n    items[0]\n    xs.append(1)\nexcept IndexError:\n    ys = xs\nsend(len(xs))",
    "taking apart": "try:\n    a, b = items\n    send(1)\nexcept ValueError:\n    send(2)",
    "a key that is not there": "d = {0: 1}\ntry:\n    d[s]\n    send(1)\nexcept KeyError:\n    0",
    "a division": "try:\n    1 // s\n    send(1)\nexcept ZeroDivisionError:\n    0",
    "a number of a text": "try:\n    int(text + '1')\n    send(1)\nexcept ValueError:\n    0",
    "a type": "try:\n    [1, 'a'][s > 1] + 1\n    send(1)\nexcept TypeError:\n    0",
    "a comparison of types": "try:\n    sorted([1, s if s > 1 else 'a'])\n    send(1)\nexcept TypeError:\n    0",
    "a conversion by a function": "try:\n    list(map(int, ['1', str(items)[1:2]]))\n    send(1)\nexcept ValueError:\n    0",
    "a method as a function": "try:\n    list(map(list.index, [[0]], [s]))\n    send(1)\nexcept ValueError:\n    0",
    "JSON": "try:\n    json.loads(text or '1')\n    send(1)\nexcept ValueError:\n    0",
    "an error in an arm": "try:\n    if s > 1:\n        raise ValueError('x')\n    send(1)\nexcept ValueError:\n    0",
    "an error in a function in an arm": "def f():\n    if s > 1:\n        raise ValueError('x')\ntry:\n    f()\n    send(1)\nexcept ValueError:\n    0",
    "an assertion": "try:\n    assert s > 1\n    send(1)\nexcept AssertionError:\n    0",
    "which error": "try:\n    if s > 1:\n        raise ValueError('x')\n    [][0]\nexcept ValueError:\n    send(1)\nexcept IndexError:\n    send(2)",
    "what an error is": "try:\n    if s > 1:\n        raise ValueError('x')\n    [][0]\nexcept Exception as e:\n    send(e.code)",
    "what is refused": "try:\n    if s > 1:\n        send(0)\n    send(1)\nexcept Exception:\n    0",
    "finally": "try:\n    try:\n        items[0]\n    finally:\n        send(1)\nexcept IndexError:\n    0",
    "finally after a store": "xs = [1]\ntry:\n    xs[s] = 2\n    send(2)\nfinally:\n    send(0)",
    "finally after a key is deleted": "d = {0: 1}\ntry:\n    del d[s]\n    send(2)\nfinally:\n    send(0)",
    "finally after an index": "xs = [1]\ntry:\n    xs[s]\n    send(2)\nfinally:\n    send(0)",
    "a variable in finally": "x = 0\ntry:\n    try:\n        items[0]\n        x = 1\n    finally:\n        0\nexcept IndexError:\n    0\nsend(x)",
    "pmap": "pmap(lambda x: send(1), items)",
    "how many of pmap": "send(len(pmap(lambda x: 1, items)))",
    "an arm in pmap": "send(pmap(lambda x: 1 if x > s else 0, [1, 2, 3]))",
    "parallel": "send(parallel(1 if s > 1 else 2, 3))",
    "an arm in parallel": "parallel(send(1) if s > 1 else 0, 3)",
    "parallel for each": "parallel(*[send(1) for x in items])",
    "a branch that fails": "def f():\n    if s > 1:\n        raise ValueError('x')\n    return 1\ntry:\n    r = parallel(f(), 2)\nexcept ValueError:\n    r = 0\nsend(r)",
    "race": "def f():\n    if s > 1:\n        raise ValueError('x')\n    return 1\ndef g():\n    sleep(0.05)\n    return 2\nsend(race(f(), g()))",
    "retry": "def f():\n    send(1)\n    if s > 1:\n        raise ValueError('x')\ntry:\n    retry(1, f())\nexcept Exception:\n    0\nsend('end')",
    "tries of retry": "try:\n    retry(s, send(1))\nexcept Exception:\n    0",
    "timeout": "try:\n    timeout(s - 1, send(1))\nexcept Exception:\n    0\nsend('end')",
    "director": (
        "send(director_evaluator_loop(4, 0, lambda a, i: i, lambda p, i: p, lambda r, p, i: r,"
        " lambda b, p, r, i: ('stop', r) if i > s else ('continue', 0)))"
    ),
    "eval_program": "if s > 1:\n    eval_program('send(1)', allow=['send'])",
    "an arm in eval_program": "send(eval_program('1 if k > 1 else 2', bindings={'k': s}))",
    "an error in eval_program": "try:\n    eval_program('assert k > 1', bindings={'k': s})\n    send(1)\nexcept AssertionError:\n    0",
    "what sources says": "send(len(sources(other if s > 1 else 1)))",
    "an endorsement in an arm": "send(endorse(1, 'r') if s > 1 else 2)",
    "spread arguments": "d = {'to': 1} if s > 1 else {'to': 2}\nsend(**d)",
    "a default": "def f(x=1):\n    return x\nsend(f(2) if s > 1 else f())",
    "print": "x = print(1) if s > 1 else 2\nsend(x)",
    "an f-string": "send(f'{1 if s > 1 else 2}')",
    "in two steps": "x = 0\nfor i in [1, 2]:\n    if x:\n        send(1)\n    if s > 1:\n        x = 1",
    "a list that is new in each round": "r = []\nfor i in [1, 2]:\n    xs = []\n    for x in items:\n        xs.append(x)\n    r.append(xs)\nsend(len(r[0]))",
    "a closure that changes a list": "def f():\n    xs = []\n    def g():\n        if s > 1:\n            xs.append(1)\n    g()\n    return len(xs)\nsend(f())",
    "a list that is passed on": "def g(xs):\n    xs.append(1)\n    return xs\ndef f():\n    xs = []\n    if s > 1:\n        xs = g(xs)\n    return len(xs)\nsend(f())",
    "a list of lists": "xs = [[], []]\nfor x in items:\n    xs[0].append(x)\nsend(len(xs[0]))",
}
"""How the choice by a secret could show, other than by time: a text each. ``s``, ``items`` and ``text`` are secret."""
SAME = {
    "while else",
    "retry",
    "finally",
    "a name as function",
    "the operator",
    "a variable in finally",
}
"""Those that are refused otherwise, or show nothing without a strict policy either."""
GOES_ON: dict[str, str] = {
    "after an arm": "x = 1 if s > 1 else 2\nsend('a')",
    "after an if": "if s > 1:\n    x = 1\nelse:\n    x = 2\nsend('a')",
    "after a function": "def f(n):\n    if s > n:\n        return 1\n    return 2\nf(0)\nsend('a')",
    "after try": "try:\n    items[0]\nexcept IndexError:\n    0\nsend('a')",
    "after try in a function": "def f():\n    try:\n        return items[0]\n    except IndexError:\n        return 0\nf()\nsend('a')",
    "after loops": "for x in items:\n    0\nwhile 9 < s:\n    0\nsend('a')",
    "after break": "for x in [1, 2, 3]:\n    if x == s:\n        break\nsend('a')",
    "after continue": "for x in [1, 2, 3]:\n    if x == s:\n        continue\nsend('a')",
    "after a comprehension": "xs = [x for x in [1, 2] if x > s]\nsend('a')",
    "for each of the user's": "for u in ['a']:\n    if s > 1:\n        x = 1\n    send(u)",
    "a list filtered by the user": "for u in [u for u in ['a', 'b'] if u == 'a']:\n    send(u)",
    "beside": "parallel(1 if s > 1 else 2, send('a'))",
    "a list that grows in arms": "xs = []\nfor x in items:\n    if x > s:\n        xs.append(x)\nsend('a')",
    "a local list that grows in arms": "def f():\n    xs = []\n    for x in items:\n        if x > s:\n            xs.append(x)\n    return xs\nf()\nsend('a')",
    "groups": "d = {}\nfor x in items:\n    d.setdefault(x, []).append(x)\nfor x in items:\n    d[x].append(1)\nsend('a')",
    "what builtins give, by another name": "ys = sorted(items)\nzs = ys\nzs.append(1)\nsend('a')",
    "what methods give, changed by a function": "def f(q):\n    q.append('x')\nws = text.split('b')\nf(ws)\nsend('a')",
    "a comprehension, changed by a function": "def f(q):\n    q.append(1)\nys = [x for x in items]\nf(ys)\nsend('a')",
    "a dict comprehension, by another name": "d = {x: 1 for x in items}\ne = d\ne['b'] = 1\nsend('a')",
    "keys that are secret, by another name": "d = {s: 1}\ne = d\ne['b'] = 1\nsend('a')",
    "a list made in an arm, by another name": "ys = [1] if s > 1 else [2]\nzs = ys\nzs.append(3)\nsend('a')",
    "lists in a list": "rows = [list(items), [1]]\nfor r in rows:\n    r.append(1)\nsend('a')",
    "a copy of what the host gave": "ys = list(items)\nzs = ys\nzs.append(1)\nsend('a')",
    "a map, changed by a function": "def f(q):\n    q.append(1)\nys = list(map(lambda x: x + 1, items))\nf(ys)\nsend('a')",
    "a filter, changed by a function": "def f(q):\n    q.append(1)\nys = list(filter(lambda x: x > 1, items))\nf(ys)\nsend('a')",
    "counts": "d = {}\nfor x in items:\n    d[x] = d.get(x, 0) + 1\nsend('a')",
    "counts in place": "d = {'n': 0}\nfor x in items:\n    d['n'] += x\nsend('a')",
    "a set that grows": "seen = set()\nfor x in items:\n    if x in seen:\n        continue\n    seen.add(x)\nsend('a')",
    "keys that are secret": "d = {}\nfor x in [s, 1, s]:\n    d[x] = 1\nsend('a')",
    "what fails is noted": "done = []\nfor u in [0, 1, 2]:\n    try:\n        done.append(items[u])\n    except IndexError:\n        done.append(None)\nsend('a')",
    "what fails is noted by a function": (
        "def f():\n    done = []\n    for u in [0, 1, 2]:\n        try:\n            done.append(items[u])\n        except IndexError:\n            done.append(None)\n    return done\nf()\nsend('a')"
    ),
    "an early return": "def f():\n    if not items:\n        return []\n    out = []\n    for x in items:\n        out.append(x)\n    return out\nf()\nsend('a')",
    "work in an arm": "def f():\n    xs = []\n    n = 0\n    while n < 5:\n        n += 1\n        xs.append(n)\n    return xs\nif s > -5:\n    ys = f()\n    ys.append(1)\nsend('a')",
    "a new list": "xs = []\nfor x in items:\n    xs = [*xs, x]\nsend('a')",
    "what the test allows": "if s > -5:\n    note(to='x')\nsend('a')",
    "an endorsed test": "if endorse(s > -5, 'asked'):\n    send('a')",
    "a test of the user's": "if 2 > 1:\n    send('a')",
    "main": "def main():\n    total = 0\n    for x in items:\n        total += x\n    send('a')\n    return total",
}
"""What a strict policy lets through: each of these sends one thing."""


@pytest.fixture
async def observer(tmp_path: Path) -> Any:
    """Sees what texts send under a strict policy."""
    watching = Observer(tmp_path, surface="python")
    async with watching.flow:
        yield watching


@pytest.mark.parametrize("name", FLOWS)
async def test_nothing_sent_tells_a_secret(name: str, observer: Observer) -> None:
    """Whatever way the choice takes to what is sent, runs that differ in the secret send the same, or are ended."""
    text = f"other = note(to=1)\n{FLOWS[name]}\n"
    runs = [await observer.run(text, each) for each in SECRETS]
    assert not any([differ(runs[0], each) for each in runs[1:]]), runs
    assert not [code for code in observer.codes if code.startswith(("syntax/", "host/", "internal/"))], observer.codes
    inside = "\n".join([f"    {line}" for line in text.splitlines()])
    names = "    global x\n" if "global" in FLOWS[name] else ""
    shown = f"def show(x):\n    try:\n        send(x)\n    except Exception:\n        0\n{text.replace('send', 'show')}\nsend('end')\n"
    runs = [await observer.run(shown, each) for each in SECRETS]
    assert not any([differ(runs[0], each) for each in runs[1:]]), runs
    for caught in (
        f"try:\n{inside}\nexcept Exception:\n    0\nsend('end')\n",
        f"def whole():\n{names}{inside}\ntry:\n    whole()\nexcept Exception:\n    0\nsend('end')\n",
    ):
        runs = [await observer.run(caught, each) for each in SECRETS]
        assert not any([differ(runs[0], each) for each in runs[1:]]), runs
        assert {end for end, _ in runs} == {"ended"} or observer.codes["provenance/write"] > 0, (runs, observer.codes)


@pytest.mark.parametrize("name", [each for each in FLOWS if each not in SAME])
async def test_it_would_be_told_otherwise(name: str, tmp_path: Path) -> None:
    """The same texts tell it without ``strict``, so that the test above is one."""
    watching = Observer(tmp_path, strict=False, surface="python")
    async with watching.flow:
        runs = [await watching.run(f"other = note(to=1)\n{FLOWS[name]}\n", each) for each in SECRETS]
    assert len({repr(seen) for _, seen in runs}) > 1 or any([end == "failed" for end, _ in runs]), runs


@pytest.mark.parametrize("name", GOES_ON)
async def test_what_does_not_depend_on_it_is_done(name: str, observer: Observer) -> None:
    """A choice counts for its arms, and for nothing that is done in any case."""
    for secret in SECRETS:
        assert await observer.run(GOES_ON[name], secret) == ("ended", ["a"]), observer.codes


ENDORSED = {
    "what was endorsed before it is changed": "xs = [1, 2] if s > -5 else []\nys = endorse(xs, 'ok')\nif s > 1:\n    xs.append(1)\nsend(len(ys))",
    "a list in what was endorsed": "xs = ([[1], {2}],) if s > -5 else 0\nys = endorse(xs, 'ok')\nif s > 1:\n    xs[0][0].append(1)\n    xs[0][1].add(3)\nsend(len(ys[0][0]) + len(ys[0][1]))",
    "a change of one of two that was endorsed": "xs = [[1], [2], [3], [4]]\nys = endorse(xs[s], 'ok')\nys.append(5)\nsend(len(xs[0]))",
}


@pytest.mark.parametrize("name", ENDORSED)
async def test_what_is_endorsed_is_a_copy(name: str, observer: Observer) -> None:
    """Nobody answers for what is done later to what was endorsed, nor does that say which of several it was."""
    runs = [await observer.run(ENDORSED[name], each) for each in SECRETS]
    assert {end for end, _ in runs} == {"ended"}, observer.codes
    assert not any([differ(runs[0], each) for each in runs[1:]]), runs


async def test_what_a_tool_gave_is_changed_like_any_list(tmp_path: Path) -> None:
    """Lists and dicts of an effect, those within too, are in no hands but the text's: whatever refers to them says where they came from."""

    async def fetch() -> dict[str, Any]:
        """Fetch something."""
        return {"rows": [[1], [2]], "total": 2}

    text = "page = fetch()\nother = page\nother['n'] = 1\nfor row in page['rows']:\n    row.append(3)\ndef f(q):\n    q.append([4])\nf(page['rows'])\npage"
    policy = Provenance(sources={"fetch": "web"}, strict=True)
    async with AgentFlow(provider=ScriptedProvider(), root=tmp_path, tools=[fetch], provenance=policy) as flow:
        result = await flow.run(text, surface="python")
    assert result.value == {"rows": [[1, 3], [2, 3], [4]], "total": 2, "n": 1}
    assert result.sources == {"web"}


SYNTAX = (
    "{0}()", "gl[0](1)", "f'{{{0}:d}}'", "1 < {0} < 3", "gl *= {0}", "gl[0] = {0}[0]", "gl.sort(key=lambda q: -{0})",
    "gl.sort(key=lambda q: {{{0}: q}})", "sorted(gl, key=lambda q: {0} + 1)", "max(gl, key=lambda q: q < {0})", "assert {0}", "raise {0}",
    "x = 1 if {0} else 2", "while {0}: break", "{0} and gl.pop()", "{0} or gl.pop()", "pmap(lambda q: q, {0})", "pmap(lambda q: {0} + q, gl)",
    "pmap(lambda q: q, gl, limit={0})", "pmap({0}, gl)", "parallel(*[q for q in {0}])", "parallel({0} + 1, 2)", "race({0} + 1, 2)", "retry({0}, 1)",
    "retry(2, {0} + 1)", "timeout({0}, 1)", "timeout(30, {0} + 1)", "sleep({0} and 0)", "eval_program({0})", "eval_program('q', bindings={0})",
    "note(**{0})", "note({0})", "outcome(note({0} + 1))", "print({0})",
)  # fmt: skip
"""What a text may do with a secret that is no row (those are in ``test_rows_followed.py``)."""


@pytest.mark.parametrize("syntax", SYNTAX)
async def test_no_syntax_tells_a_secret(syntax: str, observer: Observer) -> None:
    """Neither whether it fails, nor with what error, nor what it leaves is told, here or where a function around it is called."""
    rest = [
        "try:",
        "    send(gl)",
        "except Exception:",
        "    0",
        "try:",
        "    send(gd)",
        "except Exception:",
        "    0",
        "send('end')",
    ]
    for secret in ("s", "items", "text"):
        done = syntax.format(secret)
        here = [
            "gl = [1, 2]",
            "gd = {'a': 1}",
            "try:",
            f"    {done}",
            "    send('done')",
            "except Exception as e:",
            "    send(str(e))",
        ]
        inner = ["gl = [1, 2]", "gd = {'a': 1}", "def f():", "    global gl", f"    {done}", "    send('done')"]
        around = [*inner, "try:", "    f()", "except Exception:", "    0"]
        quietly = [each for each in here if "'done'" not in each]
        for text in ["\n".join([*each, *rest]) for each in (here, quietly, around)]:
            observer.flow.compile(text, surface="python", bindings=SECRET | {"text": "", "n": 1})
            for secrets in (SECRETS, KINDS):
                runs = [await observer.run(text, each) for each in secrets]
                assert not any([differ(runs[0], each) for each in runs[1:]]), (done, runs)


async def test_random_texts_tell_no_secret(observer: Observer) -> None:
    """Neither do texts that are put together at random (by hand: ``python -m tests.provenance.strict_programs --surface python --count 20000``)."""
    for seed in range(15):
        assert await leaks(observer, seed) is None


SECRET = {"s": Labelled(2, "web"), "items": Labelled([1, 2], "web")}


@pytest.fixture
async def flow(tmp_path: Path) -> Any:
    """A flow with a strict policy that allows everything."""
    async with AgentFlow(provider=ScriptedProvider(), root=tmp_path, provenance=Provenance(strict=True)) as opened:
        yield opened


@pytest.mark.parametrize(
    "program",
    [
        "o = [1]\nif s > 1:\n    (o if s else o).append(1)",
        "o = [1]\ndef get():\n    return o\nif s > 1:\n    get().append(1)",
        "o = {}\n(o if s > 1 else {})['a'] = 1",
    ],
)
async def test_a_change_that_others_would_not_tell_is_refused(program: str, flow: AgentFlow) -> None:
    """A container that no variable leads to with certainty would not say why it was changed: that ends the run, whatever catches errors there."""
    caught = "try:\n" + "\n".join([f"    {line}" for line in program.splitlines()]) + "\nexcept Exception:\n    0"
    for text in (program, caught):
        with pytest.raises(ChangeRefused) as raised:
            await flow.run(text, surface="python", bindings=SECRET)
        error = raised.value
        assert (error.code, error.details["sources"], error.sources) == ("provenance/write", ["web"], {"web"})
        assert error.hint is not None and error.span is not None


@pytest.mark.parametrize(
    ("program", "look"),
    [
        ("xs = []\nys = xs\nif s > 1:\n    xs.append(1)", "len(ys)"),
        ("d = {'a': 1}\ne = [d]\nif s > 1:\n    del d['a']", "len(e[0])"),
        ("d = {'a': 1}\ne = d\nd[s] = 1", "len(e)"),
        ("def f(x):\n    x.add(s)\ny = {0}\nz = y\nf(y)", "len(z)"),
        ("xs = [[] for x in range(50_000)]\nys = xs[49_999]\nif s > 1:\n    xs[49_999].append(1)", "len(ys)"),
        ("xs = [[] for x in range(50_000)]\nys = xs[7]\nif s > 1:\n    xs[49_999].append(1)", "len(ys)"),
        ("xs = [1]\nn = 0\nfor x in xs:\n    n += 1\n    if s > 1 and n < 3:\n        xs.append(1)", "n"),
    ],
)
async def test_a_change_is_told_by_all_that_refers_to_it(program: str, look: str, flow: AgentFlow) -> None:
    """A container says itself why it was changed, whatever refers to it, and also if it was not."""
    for bound in (1, 5):
        result = await flow.run(
            f"{program.replace('s > 1', f's > {bound}')}\n{look}", surface="python", bindings=SECRET
        )
        assert result.sources == {"web"}


async def test_texts_with_aliases_tell_no_secret(observer: Observer) -> None:
    """Whichever way a container is held, changed, and looked at (by hand: ``python -m tests.provenance.alias_texts --count 20000``)."""
    for number in range(60):
        assert await told(observer, number) is None


AS_VALUES: dict[str, tuple[str, Any]] = {
    "int": ("3", int),
    "str": ("'b,a'", str),
    "list": ("[[1, 2], [0, 4]]", list),
    "dict": ("{'b': 1, 'a': 2}", dict),
    "set": ("{2, 1}", OrderedSet),
}


@pytest.mark.parametrize("operand", AS_VALUES)
async def test_a_function_as_a_value_tells_what_its_call_tells(operand: str, flow: AgentFlow) -> None:
    """``f = len`` and ``f = list.append`` do with values in boxes what ``len(x)`` and ``x.append(y)`` do."""
    calls = [(name, f"{name}(x)") for name in BUILTINS if "." not in name and name not in ("print", "input")]
    shown, kind = AS_VALUES[operand]
    calls += [(f"{operand}.{method}", f"x.{method}()") for method in METHODS.get(kind, {})]
    first = f"x = {shown}\nx = x if s > 1 else 0\ny = x\n"
    for value, call in calls:
        outcomes: list[Any] = []
        for text in (f"{first}[{call}, y]", f"{first}f = {value}\n[f(x), y]"):
            try:
                result = await flow.run(text, surface="python", bindings=SECRET)
            except AgentflowError as error:
                outcomes.append(("failed", error.sources))
            else:
                outcomes.append((result.value, result.sources))
        failed = [outcome[0] == "failed" for outcome in outcomes]
        assert failed == [failed[0]] * 2, (value, outcomes)
        assert outcomes[0] == outcomes[1] or failed[0], (value, outcomes)


async def test_a_variable_that_its_absence_would_not_tell_is_refused(flow: AgentFlow) -> None:
    """A global that a function called in an arm assigns is refused, with a hint in Python."""
    text = "x = 0\ndef f():\n    global x\n    x = 1\nif s > 1:\n    f()"
    with pytest.raises(AgentflowError) as raised:
        await flow.run(text, surface="python", bindings=SECRET)
    assert (raised.value.code, raised.value.hint) == (
        "provenance/write",
        "assign x in both branches: its own value where it does not change",
    )


async def test_the_value_of_a_run_says_what_was_tested(flow: AgentFlow) -> None:
    """``result.sources`` are those of the tests that chose the value, too."""
    result = await flow.run("if s > 1:\n    x = 1\nelse:\n    x = 2\nx", surface="python", bindings=SECRET)
    assert (result.value, result.sources) == (1, {"web"})
    result = await flow.run(
        "def main():\n    if s > 1:\n        return 1\n    return 2", surface="python", bindings=SECRET
    )
    assert (result.value, result.sources) == (1, {"web"})


async def test_an_arm_goes_on_in_a_saved_workflow(observer: Observer) -> None:
    """A saved workflow called in an arm does what it does because of the test."""
    await observer.flow.workflows.save(Workflow(name="mailing", program="(send (to 1))", params={}))
    text = "try:\n    if s > 1:\n        call_workflow('mailing')\nexcept Exception:\n    0\nsend('end')"
    assert [(await observer.run(text, each))[1] for each in SECRETS] == [["end"]] * 3


@pytest.mark.parametrize(
    ("maker", "maker_surface", "caller", "caller_surface"),
    [
        ("lambda x: 1 if x > 1 else 2", "python", "(f s)", "sexp"),
        ("lambda x: 1 if x > 1 else 2", "python", "(first (map f (list s)))", "sexp"),
        ("(lambda (x) (if (> x 1) 1 2))", "sexp", "f(s)", "python"),
        ("(lambda (x) (if (> x 1) 1 2))", "sexp", "list(map(f, [s]))[0]", "python"),
    ],
)
async def test_procedures_cross_the_surfaces(
    maker: str, maker_surface: Any, caller: str, caller_surface: Any, flow: AgentFlow
) -> None:
    """A procedure says what it tested to programs in the other surface, too."""
    procedure = (await flow.run(maker, surface=maker_surface)).value
    result = await flow.run(caller, surface=caller_surface, bindings={**SECRET, "f": procedure})
    assert (result.value, result.sources) == (1, {"web"})


async def test_procedures_of_flows_that_follow_data_only_are_refused(flow: AgentFlow, tmp_path: Path) -> None:
    """A text's procedure that was compiled to follow data only does not tell what it tests."""
    async with AgentFlow(provider=ScriptedProvider(), root=tmp_path, provenance=Provenance()) as other:
        procedure = (await other.run("lambda x: 1 if x > 1 else 2", surface="python")).value
    for call, surface in (("f(s)", "python"), ("(f s)", "sexp")):
        with pytest.raises(AgentflowError) as raised:
            await flow.run(call, surface=surface, bindings={**SECRET, "f": procedure})  # type: ignore[arg-type]
        assert raised.value.code == "provenance/not-followed"


async def test_models_write_texts_under_a_strict_policy(tmp_path: Path) -> None:
    """What a model writes in Python is followed as strictly as what its user wrote."""
    sent: list[Any] = []

    async def send(to: Any) -> str:
        """Send something."""
        sent.append(to)
        return "sent"

    model = ScriptedProvider(["if s > 1:\n    send('eve')\nelse:\n    send('bob')"] * 3)
    policy = Provenance(rules=(Sink("send", "*", allow=("user",)),), strict=True)
    async with AgentFlow(provider=model, root=tmp_path, tools=[send], surface="python", provenance=policy) as flow:
        text = 'solve("Tell them", allow=["send"], max_rounds=1, inputs={"s": s})'
        result = await flow.run(text, surface="python", bindings=SECRET)
    assert result.value.failed and "provenance/denied" in result.value.content and result.sources == {"web"}
    assert sent == []


async def test_a_durable_run_goes_on_strictly(tmp_path: Path) -> None:
    """A run that goes on in another process is followed as strictly as it was."""
    policy = Provenance(rules=(Sink("send", allow=("user",)),), sources={"fetch": "web"}, strict=True)
    text = 'page = fetch("x")\nhold()\nif "eve" in page:\n    send(to="bob", body="x")'
    await interrupted(tmp_path, Source("w.py", text, "python"), policy=policy)  # type: ignore[arg-type]
    mails, error = await gone_on(tmp_path, policy=policy)
    assert (mails.sent, error.code) == ([], "provenance/denied")


async def test_long_work_is_noted_no_longer_than_it_is_there(flow: AgentFlow) -> None:
    """Containers made in arms are forgotten when nothing refers to them any more."""
    text = "n = 0\nif s > 1:\n    while n < 5000:\n        xs = [n]\n        n += 1\nn"
    assert (await flow.run(text, surface="python", bindings=SECRET)).value == 5000


async def test_comprehensions_with_many_keys_are_dicts_and_sets(flow: AgentFlow) -> None:
    """Whether a dict or set of a comprehension is large makes no difference, under a strict policy either."""
    text = "d = {x: 1 for x in range(5_000)}\ns = {x for x in range(5_000)}\n[len(d), len(s), d == {**d}, s == set(s)]"
    assert (await flow.run(text, surface="python")).value == [5_000, 5_000, True, True]


async def test_stores_by_an_index_from_elsewhere_cost_alike(tmp_path: Path) -> None:
    """What refers to the list says already where the index came from, so that no store goes over all elements: 4,000 fit into steps for some each."""
    text = "xs = [0] * 4_000\nfor i in range(4_000):\n    xs[s] = i\nlen(xs)"
    async with AgentFlow(
        provider=ScriptedProvider(), root=tmp_path, provenance=Provenance(strict=True), limits=Limits(steps=50_000)
    ) as flow:
        result = await flow.run(text, surface="python", bindings={"s": Labelled(3, "web")})
    assert (result.value, result.sources) == (4_000, {"web"})


TOLD = {
    "that a sort did not fail": "x = [s, 1]\ntry:\n    x.sort()\n    send('done')\nexcept Exception:\n    0\nsend('end')",
    "the sources of a list that was changed in an arm": (
        "xs = [1]\nk = [xs]\nif items:\n    xs.append(text)\ntry:\n    send(sources(k[0]))\nexcept Exception:\n    0\nsend('end')"
    ),
}
"""What was told once: that nothing failed, and what ``sources`` says."""


@pytest.mark.parametrize("name", TOLD)
async def test_what_was_told_once_is_told_no_more(name: str, observer: Observer) -> None:
    """What is sent after a call that may fail, and what ``sources`` gives, depend on all that was looked at."""
    for secrets in (SECRETS, KINDS):
        runs = [await observer.run(TOLD[name], each) for each in secrets]
        assert not any([differ(runs[0], each) for each in runs[1:]]), runs
