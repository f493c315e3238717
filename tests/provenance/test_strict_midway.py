"""A strict policy and tests that look at a secret and fail before they are decided: what their arms would have written says so, too.

The error is caught outside of the function that tests. So a run in which the test failed goes on, and what an arm writes in another run has to say
the same in both.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentflow.lang.kernel.facts import CHANGING
from tests.provenance.strict_programs import SECRETS, Observer, differ

TESTS: dict[str, str] = {
    "a chain": "0 < s < nothing",
    "a chain that fails late": "0 < s < 3 < nothing",
    "and": "(s > 1 and nothing)",
    "or": "(s > 1 or nothing)",
    "not": "not [1][s]",
    "an index": "[1, 2][s]",
    "a comparison of types": "[1, 'a', 2, 'b'][s] > 0",
    "a conditional": "(nothing if s > 1 else 1)",
    "a comprehension": "[nothing for x in items]",
    "a filter of a comprehension": "[1 for x in [1] if [1][s]]",
    "what a comprehension goes over": "[1 for x in [1] for y in [items, 1, 1, 2][s]]",
    "any": "any(nothing for x in items)",
    "all": "all([1][s] for x in [1])",
    "min": "min([1, 2], key=lambda x: [1][s])",
    "sorted": "sorted([1, 2], key=lambda x: [1][s])",
    "sorted of types": "sorted([1, [2, 'a', 'b', 3][s]])",
    "an f-string": "f'{[1][s]}'",
    "a method": "[0, 1].index(s)",
    "a key": "{0: 1}[s]",
    "a call": "check()",
    "a number of a text": "int(text + '1')",
    "what is unpacked": "len([*[items, 1, 1, 2][s]])",
}
"""Expressions that look at a secret, and of three secrets fail for one or two."""

SHAPES: dict[str, str] = {
    "if": "    if {test}:\n        {write}",
    "else": "    if {test}:\n        0\n    else:\n        {write}",
    "elif": "    if False:\n        0\n    elif {test}:\n        {write}\n    else:\n        {write}",
    "while": "    while {test}:\n        {write}\n        break",
    "for": "    for i in [{test}]:\n        {write}",
    "for over what it gives": "    for i in ([1] if {test} else [1, 2]):\n        {write}",
    "an early return": "    if {test}:\n        return\n    {write}",
    "after assert": "    assert {test}\n    {write}",
    "after it": "    {test}\n    {write}",
}
"""How a function tests it and writes something."""

WRITES: dict[str, tuple[str, str, str]] = {
    "a global": ("    global g", "g = 7", "g"),
    "a global that is deleted": ("    global g", "del g", "g"),
    "a list": ("", "xs.append(7)", "len(xs)"),
    "a list in a dict": ("", "d['a'].append(7)", "len(d['a'])"),
    "the elements of a list": ("", "xs[0] = 7", "xs[0]"),
    "the elements of a list in a dict": ("", "d['a'][0] = 7", "d['a'][0]"),
    "an element in place": ("", "xs[0] += 7", "xs[0]"),
    "a dict": ("", "d['b'] = 7", "len(d)"),
    "a value in a dict": ("", "d['a'] = 7", "d['a']"),
    "a key that is deleted": ("", "del d['a']", "len(d)"),
    "an element that is deleted": ("", "del xs[0]", "len(xs)"),
    "a list in place": ("    global xs", "xs += [7]", "len(xs)"),
    "a set in place": ("    global ss", "ss |= {7}", "len(ss)"),
    "a dict in place": ("    global d", "d |= {'b': 7}", "len(d)"),
    "a set less some": ("    global ss", "ss -= {5}", "len(ss)"),
    "a set and others": ("    global ss", "ss &= {7}", "len(ss)"),
    "a set or others": ("    global ss", "ss ^= {5}", "len(ss)"),
    "insert": ("", "xs.insert(0, 7)", "len(xs)"),
    "pop": ("", "xs.pop()", "len(xs)"),
    "extend": ("", "xs.extend([7])", "len(xs)"),
    "clear": ("", "xs.clear()", "len(xs)"),
    "reverse": ("", "xs.reverse()", "xs[0]"),
    "sort": ("", "xs.sort(key=lambda x: -x)", "xs[0]"),
    "remove": ("", "xs.remove(5)", "len(xs)"),
    "update": ("", "d.update({'b': 7})", "len(d)"),
    "setdefault": ("", "d.setdefault('b', 7)", "len(d)"),
    "setdefault of a list": ("", "d.setdefault('a', []).append(7)", "len(d['a'])"),
    "add": ("", "ss.add(7)", "len(ss)"),
    "discard": ("", "ss.discard(5)", "len(ss)"),
}
"""What a function declares, how it writes something that others see, and how it is seen."""

EXPRESSIONS: dict[str, str] = {
    "a conditional": "({write} if {test} else 0)",
    "and": "({test}) and {write}",
    "or": "(not ({test})) or {write}",
    "a chain": "0 < 1 < len([{test}]) < {write}",
    "a filter": "[{write} for i in [1] if {test}]",
    "a comprehension": "[{write} for i in ([1] if {test} else [1, 2])]",
    "any": "any({write} for i in [1] if {test})",
    "map": "list(map(lambda i: {write}, [1] if {test} else [1, 2]))",
    "a lambda": "(lambda: {write} if {test} else 0)()",
    "parallel": "parallel({write} if {test} else 0, 1)",
}
"""The same as expressions."""

HEAD = "g = 5\nxs = [5, 6]\nd = {'a': [5]}\nss = {5}\ndef check():\n    if s > 1:\n        raise ValueError('x')\n    return s\n"


def program(body: str, declares: str, shown: str) -> str:
    """A text that calls a function with this body, catches its error, and shows what it has written."""
    lines = [each for each in (declares, body) if each]
    called = "try:\n    f()\nexcept Exception:\n    0\n"
    return (
        f"{HEAD}def f():\n"
        + "\n".join(lines)
        + f"\n{called}try:\n    send({shown})\nexcept Exception:\n    send('unbound')\nsend('end')"
    )


def programs(test: str) -> dict[str, str]:
    """Texts in which a test is used in each way."""
    texts: dict[str, str] = {}
    for shape, code in SHAPES.items():
        for kind in ("a global", "a list"):
            declares, write, shown = WRITES[kind]
            texts[f"{shape}, {kind}"] = program(code.format(test=test, write=write), declares, shown)
    for shape, code in EXPRESSIONS.items():
        texts[shape] = program(f"    {code.format(test=test, write='xs.append(7)')}", "", "len(xs)")
    return texts


@pytest.fixture
async def observer(tmp_path: Path) -> Any:
    """Sees what texts send under a strict policy."""
    watching = Observer(tmp_path, surface="python")
    async with watching.flow:
        yield watching


async def tells(observer: Observer, text: str) -> Any:
    """The runs of a text that shows what is secret."""
    runs = [await observer.run(text, each) for each in SECRETS]
    assert not [code for code in observer.codes if code.startswith(("syntax/", "host/", "internal/"))], observer.codes
    return runs if any([differ(runs[0], each) for each in runs[1:]]) else None


ORDINARY = ("else, a global", "if, a list", "a conditional", "a filter")


@pytest.mark.parametrize("name", TESTS)
async def test_a_test_that_fails_midway_tells_nothing(name: str, observer: Observer) -> None:
    """What an arm would have written says on what it depends that the test was not decided."""
    texts = programs(TESTS[name])
    for title in ORDINARY:
        assert await tells(observer, texts[title]) is None, texts[title]


@pytest.mark.slow
@pytest.mark.parametrize("name", TESTS)
async def test_it_tells_nothing_wherever_it_stands(name: str, observer: Observer) -> None:
    """Whatever the form is that tests, and of whatever kind it is that an arm writes and others see."""
    for title, text in programs(TESTS[name]).items():
        assert await tells(observer, text) is None, (title, text)
    for declares, write, shown in WRITES.values():
        for shape in ("else", "an early return"):
            text = program(SHAPES[shape].format(test=TESTS[name], write=write), declares, shown)
            assert await tells(observer, text) is None, text


@pytest.mark.parametrize("shape", SHAPES)
async def test_it_holds_in_every_form(shape: str, observer: Observer) -> None:
    """Whatever the form is that tests."""
    for kind in ("a global", "the elements of a list"):
        declares, write, shown = WRITES[kind]
        text = program(SHAPES[shape].format(test=TESTS["a chain"], write=write), declares, shown)
        assert await tells(observer, text) is None, text


@pytest.mark.parametrize("kind", WRITES)
async def test_it_holds_for_whatever_is_written(kind: str, observer: Observer) -> None:
    """Of whatever kind it is that an arm writes, and others see."""
    declares, write, shown = WRITES[kind]
    for shape in ("else", "after it"):
        text = program(SHAPES[shape].format(test=TESTS["a chain"], write=write), declares, shown)
        assert await tells(observer, text) is None, text


def inner(write: str, shown: str) -> str:
    """A text whose function within a function writes what the outer one has."""
    body = "    x = 5\n    xs = [5]\n    def f():\n        nonlocal x\n        if 0 < s < nothing:\n            0\n        else:\n"
    caught = "    try:\n        f()\n    except Exception:\n        0\n"
    return f"def outer():\n{body}            {write}\n{caught}    return [x, xs]\nr = outer()\ntry:\n    send({shown})\nexcept Exception:\n    0\nsend('end')"


def outliving(write: str, see: str, then: str) -> str:
    """A text in which what a function leaves is seen by a function written in it, which outlives it."""
    body = f"    global h\n    x = 5\n    xs = [5]\n    def see():\n        return {see}\n    h = see\n    {then}"
    return f"def h():\n    return 1\ndef f():\n{body.format(write=write)}\ntry:\n    f()\nexcept Exception:\n    0\ntry:\n    send(h())\nexcept Exception:\n    0\nsend('end')"


@pytest.mark.parametrize(
    "text",
    [
        inner("x = 7", "r[0]"),
        inner("xs.append(7)", "len(r[1])"),
        outliving("x = 7", "x", "if 0 < s < nothing:\n        0\n    else:\n        {write}"),
        outliving("x = 7", "x", "[1][s]\n    {write}"),
        outliving("xs.append(7)", "len(xs)", "if 0 < s < nothing:\n        0\n    else:\n        {write}"),
        outliving("xs.append(7)", "len(xs)", "[1][s]\n    {write}"),
        outliving("(x := 7)", "x", "[1][s]\n    {write}"),
    ],
)
async def test_variables_of_functions_are_seen_by_others_too(text: str, observer: Observer) -> None:
    """So is a variable of a function around, and one that a function which outlives its own reads."""
    assert await tells(observer, text) is None


@pytest.mark.parametrize("name", TESTS)
async def test_tests_tell_it_otherwise(name: str, tmp_path: Path) -> None:
    """The same tests tell it without ``strict``, so that those above are some."""
    watching = Observer(tmp_path, strict=False, surface="python")
    async with watching.flow:
        assert any([await tells(watching, programs(TESTS[name])[title]) for title in ORDINARY])


def test_every_way_to_change_a_container_is_written() -> None:
    """The methods and statements that change containers are all among the writes."""
    written = " ".join([write for _, write, _ in WRITES.values()])
    for each in CHANGING:
        assert {"[]=": "] = ", "del": "del ", "+=": " += "}.get(
            each, f" {each} " if "=" in each else f".{each}("
        ) in written, each


@pytest.mark.parametrize("kind", WRITES)
async def test_writes_tell_it_otherwise(kind: str, tmp_path: Path) -> None:
    """So do the writes."""
    declares, write, shown = WRITES[kind]
    watching = Observer(tmp_path, strict=False, surface="python")
    async with watching.flow:
        assert await tells(watching, program(SHAPES["after it"].format(test="[1][s]", write=write), declares, shown))


GOES_ON = {
    "a list that grows": "found = []\ndef scan():\n    for x in items:\n        if x > s:\n            found.append(x)\n",
    "a count": "n = 0\ndef scan():\n    global n\n    for x in items:\n        if x > s:\n            n += 1\n",
    "a dict that grows": "d = {}\ndef scan():\n    for x in items:\n        if x > s:\n            d[x] = 1\n",
    "an own list": "def scan():\n    xs = []\n    xs.append([1, 2, 3, 4][s])\n    return xs\n",
    "an own list after another try": (
        "def scan():\n    xs = []\n    for i in [0, 1]:\n        try:\n            items[i]\n        except IndexError:\n            0\n"
        "        xs.append(i)\n    return xs\n"
    ),
    "a variable that a function reads": "def scan():\n    n = 0\n    def more():\n        return n + 1\n    n = 1\n    return [more(), [1, 2, 3, 4][s]]\n",
}


@pytest.mark.parametrize("name", GOES_ON)
async def test_what_a_function_gathers_may_be_tried(name: str, observer: Observer) -> None:
    """A function may note outside of itself what it tested, within somebody's ``try``; the rest goes on as before."""
    for secret in SECRETS:
        text = f"{GOES_ON[name]}try:\n    scan()\nexcept Exception:\n    0\nsend('a')"
        assert await observer.run(text, secret) == ("ended", ["a"]), observer.codes


LISP = {
    "and": "(if (and (> s 1) (first (list))) 0 {write})",
    "a comparison": "(if (> (quotient 4 s) 1) 0 {write})",
    "a conditional": "(if (if (> s 1) (first (list)) true) {write} 0)",
    "cond": "(cond ((nth (list 1 2) s) {write}) (else {write}))",
    "case": "(case (nth (list 1 2) s) ((1) {write}) (else 0))",
    "while": "(while (> (quotient 4 s) 1) {write} (error 1))",
    "loop": "(loop (nth (list 1 2) s) {write})",
    "for-each": "(for-each (lambda (x) {write}) (nth (list (list 1 2)) s))",
    "for-each over what is none": "(for-each (lambda (x) {write}) (if (> s 1) 1 (list 1)))",
    "map": "(map (lambda (x) {write}) (nth (list (list 1 2)) s))",
    "filter": "(filter (lambda (x) (> (quotient 4 s) x)) (begin {write} (list 1)))",
    "do": "(do ((i 0 (+ i 1))) ((> i (quotient 4 s)) 0) {write})",
    "a named let": "(let go ((i 0)) (if (> i (quotient 4 s)) 0 (begin {write} (go (+ i 1)))))",
    "types": '(if (> (if (> s 1) "a" 1) 0) {write} 0)',
    "after it": "(begin (nth (list 1 2) s) {write})",
}


@pytest.mark.parametrize("name", LISP)
async def test_the_same_in_s_expressions(name: str, tmp_path: Path) -> None:
    """Nor does a program in S-expressions tell it: by a variable of the program, or of a procedure around."""
    watching = Observer(tmp_path)
    tail = '(try (f) (catch (e) 0)) (try (send (to {shown})) (catch (e) 0)) (send (to "end"))'
    own = LISP[name].format(write="(set! g 7)")
    async with watching.flow:
        for text in (
            f"(define g 5) (define (f) {own}) {tail.format(shown='g')}",
            f"(define h (let ((g 5)) (list (lambda () {own}) (lambda () g)))) (define (f) ((first h))) {tail.format(shown='((nth h 1))')}",
            f"(define h 1) (define (f) (let ((g 5)) (set! h (lambda () g)) {own})) {tail.format(shown='(h)')}",
        ):
            assert await tells(watching, text) is None, text
