"""What is said of texts in Python before they run is never less than what they do."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.limits import Limits
from agentflow.core.data.source import Source
from agentflow.lang.bounds.analysis import Analysis, analyse_bounds
from agentflow.lang.bounds.cost import FREE
from agentflow.lang.bounds.facts import NodeFacts
from agentflow.lang.bounds.interpret import AnalysisInputs
from agentflow.lang.bounds.polynomial import UNBOUNDED, Bound
from agentflow.lang.bounds.python.code import PYTHON
from agentflow.lang.bounds.tables import NONE, VALUES, WAYS
from agentflow.lang.bounds.texts import readied
from agentflow.lang.kernel import nodes, text_nodes
from agentflow.lang.program import describer
from agentflow.lang.python.builtins import BUILTINS
from agentflow.lang.python.compiling import checked
from agentflow.lang.python.methods import ALL_METHODS
from tests.lang.bounds_fuzz import check
from tests.lang.test_bounds import GIVEN, WEIGHTS, Described
from tests.spec_python.test_python_manual import PAGES
from tests.support import bounds_values as values
from tests.support.python_manual import python_blocks


def said(text: str, **bindings: Any) -> Analysis:
    """The analysis of a text in a world of three tasks and a tool."""
    source = Source.unnamed(text.strip("\n"), "python")
    return readied(source, names=Described(), env_names=GIVEN).follow(AnalysisInputs(WEIGHTS, bindings or {}, GIVEN))


HALVES = (
    "def halves(xs):\n    if len(xs) < 2:\n        return ask(x=xs)\n    h = {half}\n"
    "    return grade(x=[halves(xs[:h]), halves(xs[h:])])\n"
)
EXACT = [
    ("ask(x=1)", "1"),
    ("[ask(x=f) for f in files]", "len(files)"),
    ("[ask(x=f) for f in files for g in other if grade(x=g)]", "2*len(files)*len(other)"),
    ("pmap(lambda f: ask(x=f), files, limit=4)", "len(files)"),
    ("parallel(*[ask(x=f) for f in files])", "len(files)"),
    ("race(ask(x=1), timeout(3, grade(x=2)))", "2"),
    ("retry(3, ask(x=1))", "3"),
    ("ask(x=1) if look(x=1) else [ask(x=1), ask(x=2)]", "2"),
    ("for s in plan(x=1).steps:\n    ask(x=s)", "1 + len(plan.steps)"),
    ("for i, f in enumerate(sorted(files)):\n    ask(x=f)", "len(files)"),
    ("for f, g in zip(files, [1, 2]):\n    ask(x=f)", "2"),
    ("for c in 'abc':\n    ask(x=c)", "3"),
    ("for k in {'a': 1, 'b': 2}:\n    ask(x=k)", "2"),
    ("i = 0\nwhile i < 7:\n    ask(x=i)\n    i += 1", "7"),
    ("i = 9\nwhile i > 0:\n    i = i - 2\n    ask(x=i)", "5"),
    ("i = 0\nwhile i < len(files):\n    ask(x=i)\n    i += 1", "len(files)"),
    ("n = 0\nwhile True:\n    n += 1\n    ask(x=n)\n    if n >= 3:\n        break", "4"),
    ("todo = list(files)\nwhile todo:\n    ask(x=todo.pop())", "len(files)"),
    ("todo = [1, 2]\nwhile todo:\n    f = todo.pop(0)\n    ask(x=f)", "2"),
    ("def go(n):\n    if n == 0:\n        return 0\n    ask(x=n)\n    return go(n - 1)\ngo(5)", "5"),
    ("def go(xs):\n    if not xs:\n        return []\n    return [ask(x=xs[0]), *go(xs[1:])]\ngo(files)", "len(files)"),
    ("def go(xs):\n    if len(xs) > 0:\n        ask(x=1)\n        go(xs[:-1])\ngo(files)", "len(files)"),
    ("def half(n):\n    if n > 0:\n        ask(x=n)\n        half(n // 2)\nhalf(9)", "4"),
    (
        "def half(xs):\n    if not xs:\n        return 0\n    ask(x=1)\n    return half(xs[:len(xs) // 2])\nhalf(files)",
        "len(files)",
    ),
    (HALVES.format(half="len(xs) // 2") + "halves(files)", "1 + 4*len(files)"),
    (HALVES.format(half="(len(xs) + 1) // 2") + "halves(files)", "1 + 4*len(files)"),
    (HALVES.format(half="len(xs) // 2") + "halves([1, 2, 3, 4])", "7"),
    (
        "def merge(a, b):\n    if not a:\n        return b\n    if not b:\n        return a\n    if ask(x=a):\n"
        "        return [a[0], *merge(a[1:], b)]\n    return [b[0], *merge(a, b[1:])]\nmerge(files, other)",
        "len(files) + len(other)",
    ),
    ("def c(f, g):\n    return lambda x: f(g(x))\nc(lambda x: ask(x=x), grade)(1)", "2"),
    ("h = {'a': ask, 'b': lambda x: 1}\nh['a'](1)", "1"),
    ("for f, n in [(ask, 1), (grade, 2)]:\n    f(n)", "2"),
    ("try:\n    ask(x=1)\nexcept ValueError as e:\n    ask(x=2)\nfinally:\n    ask(x=3)", "3"),
    ("for f in files:\n    if ask(x=f):\n        break\nelse:\n    grade(x=1)", "1 + len(files)"),
    (
        "def first(xs):\n    for x in xs:\n        if ask(x=x):\n            return x\n    return grade(x=1)\nfirst(files)",
        "1 + len(files)",
    ),
    ("found = []\nfor f in files:\n    found.append(ask(x=f))\nfor r in found:\n    grade(x=r)", "2*len(files)"),
    ("found = []\nfor f in files:\n    found += [f, f]\n[ask(x=r) for r in found]", "2*len(files)"),
    ("seen = set()\nfor f in files:\n    seen.add(f)\nfor s in seen:\n    ask(x=s)", "len(files)"),
    ("by = {}\nfor f in files:\n    by[f] = 1\nfor k, v in by.items():\n    ask(x=k)", "len(files)"),
    ("rows = [{'a': f} for f in files]\nfor row in rows:\n    row['b'] = ask(x=row['a'])", "len(files)"),
    ("def main(files):\n    return pmap(ask, files)", "len(files)"),
    ("def f(x, n=2):\n    for _ in range(n):\n        ask(x=x)\nf(1)\nf(1, n=3)\nf(x=1)", "7"),
    ("class Pair:\n    a: str\n    b: int = 3\np = Pair(a='x')\nfor _ in range(p.b):\n    ask(x=p.a)", "3"),
    ("outcome(ask(x=1)).status", "1"),
    ("ask(**{'x': 1})", "1"),
    (
        "director_evaluator_loop(3, 1, lambda i, n: plan(x=i), lambda p, n: ask(x=p), lambda r, p, n: grade(x=r), lambda j, p, r, n: ('stop', r))",
        "9",
    ),
    ("sorted(files, key=lambda f: ask(x=f))", "len(files)"),
    ("max(files, key=lambda f: ask(x=f))", "len(files)"),
    ("list(map(lambda f: ask(x=f), files))", "len(files)"),
    ("any(ask(x=f) for f in files)", "len(files)"),
    (
        "fs = []\nfor f in files:\n    fs.append(lambda: ask(x=1))\nfs.append(lambda: 1)\nfor f in fs:\n    f()",
        "1 + len(files)",
    ),
    ("fs = {}\nfor k in ['a', 'b']:\n    fs[k] = lambda v: ask(x=v)\nfs['a'](1)", "1"),
    (
        "fs = [lambda: 1]\ndef run():\n    for f in fs:\n        f()\nk = [1, 2]\nfs.append(lambda: [ask(x=v) for v in k])\nrun()",
        "4",
    ),
    ("f = ask if n else look\nfor r in f(x=1):\n    ask(x=r)", "1 + len(ask) + len(look)"),
    ("for f in [ask, plan]:\n    [ask(x=r) for r in f(x=1)]", "2 + 2*len(ask) + 2*len(plan)"),
    ("r = ask(x=1) if n else plan(x=1)\nfor s in r.steps:\n    ask(x=s)", "1 + len(ask.steps) + len(plan.steps)"),
    (
        "r = outcome(ask(x=1)) if n else outcome(plan(x=1))\nfor s in (r.parsed_content or []):\n    ask(x=s)",
        "1 + len(ask) + len(plan)",
    ),
    (
        "r = outcome(ask(x=1)) if n else outcome(plan(x=1))\nfor c in r.content:\n    ask(x=c)",
        "1 + len(outcome(ask).content) + len(outcome(plan).content)",
    ),
    ("def walk(t):\n    for c in t.children:\n        ask(x=c)\n        walk(c)\nwalk(n)", "no bound"),
    ("def spin(n):\n    return spin(n)\n1", "0"),
    ("while True:\n    pass", "0"),
    ("eval_program('ask(x=1)', allow=['ask'])", "no bound"),
]


@pytest.mark.parametrize(("text", "bound"), EXACT)
def test_task_shaped_texts_are_bounded_exactly(text: str, bound: str) -> None:
    """Loops, recursion, comprehensions, functions as values and lists that grow have the bound that one would write down."""
    assert str(said(text).bound("calls")) == bound


MERGE = """
def merge(a, b):
    if not a:
        return b
    if not b:
        return a
    if ask(x=a):
        return [a[0], *merge(a[1:], b)]
    return [b[0]] + merge(a, b[1:])
"""
MERGE_SORT = f"""{MERGE}
def sort(l):
    if len(l) < 2:
        return l
    h = len(l) // 2
    return merge(sort(l[:h]), sort(l[h:]))
"""
SORTED = "for each in sort(files):\n    grade(x=each)"


def test_a_merge_sort_that_asks_at_each_comparison_is_bounded() -> None:
    """Merging has as many rounds as both lists have elements, and gives no more of them; neither does what sorts with it."""
    merged = said(f"{MERGE}for each in merge(files, other):\n    grade(x=each)")
    assert str(merged.bound("task:grade")) == "len(files) + len(other)"
    sorts = said(MERGE_SORT + SORTED)
    assert (str(sorts.bound("task:grade")), str(sorts.bound("task:ask"))) == (
        "len(files)",
        "3*len(files) + 2*len(files)^2",
    )
    assert said(MERGE_SORT + SORTED, files=[1, 2, 3, 4]).bound("task:grade") == Bound.of(4)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("merge(a[1:], b)", "merge(a, b)"),
        ("[b[0]] + merge(a, b[1:])", "[1, 2, *merge(a, b[1:])]"),
        ("[b[0]] + merge(a, b[1:])", "a + merge(a, b[1:])"),
        ("return b\n", "return b + b\n"),
        ("return b\n", "return [1, 2, 3]\n"),
        ("    if ask", "    a.append(1)\n    if ask"),
        ("    if ask", "    a = [1, *a]\n    if ask"),
        (
            "    if not a:\n        return b\n    if not b:\n        return a\n    if ask(x=a):\n        return [a[0]",
            "    if ask(x=a):\n        return [1",
        ),
        ("sort(l[h:]))", "l)"),
        ("sort(l[h:]))", "[1, *sort(l[h:])])"),
        ("for each in sort", "merge = lambda a, b: a + b + b\nfor each in sort"),
    ],
)
def test_what_only_looks_like_a_merge_sort_is_not_taken_for_one(before: str, after: str) -> None:
    """Of what gives more elements than it was given, or may, the length is not said to be that of the list."""
    text = (MERGE_SORT + SORTED).replace(before, after)
    assert text != MERGE_SORT + SORTED
    assert str(said(text).bound("task:grade")) != "len(files)"


UNSEEN = [
    ("f(1)", "a binding that is a function"),
    ("files[0](1)", "a function in a binding"),
    ("list(map(f, [1]))", "a binding given to map"),
    ("sorted([2, 1], key=f)", "a key"),
    ("pmap(f, [1, 2])", "a callback of pmap"),
    ("try:\n    look(x=1)\nexcept Exception as e:\n    g = e.error\n    g(1)", "a value of a caught error"),
    ("eval_program('1')(1)", "a value of eval_program"),
    ("solve('write', max_model_calls=2)(1)", "a value of solve"),
    ("call_workflow('other')(1)", "a value of a workflow"),
    ("look(x=1)(1)", "a value of a tool"),
    ("d = {}\nd['k'] = f\nd['k'](1)", "a function stored in a dict"),
    ("d = {}\nd.update({'k': f})\nd['k'](1)", "a function in a dict that was updated"),
    ("d = {}\nd.setdefault('k', f)(1)", "a default that was set"),
    ("xs = []\nxs.append(f)\nxs[0](1)", "a function appended"),
    ("xs = []\nys = xs\nys.append(f)\nxs[0](1)", "a function appended by another name"),
    ("xs = [[]]\nfor x in xs:\n    x.append(f)\nxs[0][0](1)", "a function appended to an element"),
    ("def put(xs):\n    xs.append(f)\na = []\nput(a)\na[0](1)", "a function appended by a function"),
    ("xs = []\nxs.extend([f])\nxs.pop()(1)", "a function taken out"),
    ("xs = []\nxs += [f]\nxs[0](1)", "a function added in place"),
    ("xs = []\nxs.insert(0, f)\nfor g in xs:\n    g(1)", "a function inserted"),
    ("s = {'a': [1]}\ns['a'].append(f)\ns['a'][-1](1)", "a function in a list in a dict"),
    ("g = lambda x: 1\ndef change():\n    global g\n    g = f\nchange()\ng(1)", "a global that a function assigns"),
    (
        "def outer():\n    g = lambda x: 1\n    def inner():\n        nonlocal g\n        g = f\n    inner()\n    return g(1)\nouter()",
        "nonlocal",
    ),
    ("g = lambda x: 1\nfor i in [1, 2]:\n    g(1)\n    g = f", "a variable that a loop assigns after it was called"),
    (
        "g = lambda x: 1\ntry:\n    g = f\n    look(x=1)\nexcept Exception:\n    g(1)",
        "a variable assigned before an error",
    ),
    ("a, *b = [1, f]\nb[0](1)", "a starred target"),
    ("[g(1) for g in [f]]", "a variable of a comprehension"),
    ("(lambda g=1: g)(f)(1)", "a default that is replaced"),
    ("{**{'k': f}}['k'](1)", "a dict spread into another"),
    ("[*[f]][0](1)", "a list spread into another"),
    ("([1] + [f])[1](1)", "a sum of lists"),
    ("[f][::1][0](1)", "a slice"),
    ("{'k': f}.get('z', f)(1)", "a default of get"),
    ("list({'k': f}.values())[0](1)", "the values of a dict"),
    ("list({'k': f}.items())[0][1](1)", "the items of a dict"),
    ("list(enumerate([f]))[0][1](1)", "enumerate"),
    ("list(zip([f]))[0][0](1)", "zip"),
    ("list(reversed(sorted([f], key=len)))[0](1)", "reversed"),
    ("max([f], key=len)(1)", "max"),
    ("([1, f] if look(x=1) else [1, 2, 3])[-1](1)", "the last element of a list of either length"),
    ("dict([('k', f)])['k'](1)", "dict of pairs"),
    ("parallel(f, 1)[0](1)", "a value of a branch"),
    ("retry(2, f(1))", "a call that is tried again"),
    ("timeout(2, lambda: f(1))", "a thunk"),
    ("(f or ask)(1)", "a choice"),
    ("(x := f)(1)", "an assignment in an expression"),
    ("class R:\n    g: dict\nr = R(g=f)\nh = r.g\nh(1)", "a field"),
    ("math.prod([], [f])[0](1)", "the start of a product"),
]


@pytest.mark.parametrize(("text", "way"), UNSEEN)
def test_a_function_from_elsewhere_has_no_bound(text: str, way: str) -> None:
    """Whatever way a function comes in by that is not of the text, changed containers included: a call of it has no bound."""
    analysis = said(text)
    assert analysis.bound("calls") == UNBOUNDED, way
    assert analysis.unbounded
    assert all(each.span.end > each.span.start for each in analysis.unbounded)


ENDLESS = [
    "while look(x=1):\n    ask(x=1)",
    "while True:\n    ask(x=1)",
    "i = 0\nwhile i < 4:\n    ask(x=1)\n    if look(x=1):\n        continue\n    i += 1",
    "i = 0\nwhile i < 4:\n    ask(x=1)\n    i += 1\n    i = 0",
    "i = 0\nwhile i < 4:\n    ask(x=1)\n    i -= 1",
    "i, n = 0, 4\nwhile i < n:\n    ask(x=1)\n    i += 1\n    n += 1",
    "i = 0\nwhile i != 5:\n    ask(x=1)\n    i += 2",
    "i = 0\nwhile i < 4:\n    try:\n        look(x=1)\n        i += 1\n    except Exception:\n        ask(x=1)",
    "xs = [1]\nfor x in xs:\n    ask(x=x)\n    xs.append(x)",
    "xs = [1]\nys = xs\nfor x in xs:\n    ask(x=x)\n    ys.append(x)",
    "xs = [1]\nwhile xs:\n    ask(x=xs.pop())\n    xs.append(1)",
    "xs = [1]\nwhile xs:\n    ask(x=xs.pop())\n    xs = [1]",
    "d = {'a': 1}\nwhile d:\n    ask(x=d.pop('a', None))",
    "xs = [1]\ndef more():\n    xs.append(1)\ni = 0\nwhile i < len(xs):\n    ask(x=1)\n    more()\n    i += 1",
    "def go(x):\n    ask(x=1)\n    return go(x)\ngo(1)",
    "def go(xs):\n    ask(x=1)\n    return go([*xs, 1])\ngo(files)",
    "def go(xs):\n    ask(x=1)\n    return go(xs[1:])\ngo(files)",
    "def go(xs):\n    if len(xs) != 3:\n        ask(x=1)\n        return go(xs[:-1])\ngo(files)",
    "def go(xs, ys):\n    if xs:\n        ask(x=1)\n        return go(xs[1:], ys) if ask(x=2) else go(xs, ys[1:])\ngo(files, other)",
    HALVES.format(half="len(xs) // 3") + "halves(files)",
    HALVES.format(half="len(xs) // 2 - 1") + "halves(files)",
    HALVES.replace("    return grade", "    xs.append(1)\n    return grade").format(half="len(xs) // 2")
    + "halves(files)",
    HALVES.replace("    return grade", "    xs = [*xs, 1]\n    return grade").format(half="len(xs) // 2")
    + "halves(files)",
    "def go(n):\n    if n == 0:\n        return 0\n    ask(x=1)\n    return go(n - 1)\ngo(2.5)",
    "def go(xs):\n    if not xs:\n        return 0\n    xs.append(1)\n    ask(x=1)\n    return go(xs[1:])\ngo([1])",
    "for _ in range(look(x=1)):\n    ask(x=1)",
    "n = 1\ndef grow():\n    global n\n    n += 1\nfor _ in range(n):\n    ask(x=1)",
    "xs = [1]\nsolve('grow', inputs={'xs': xs}, max_model_calls=1)\nfor x in xs:\n    ask(x=x)",
    "for line in look(x=1).split():\n    ask(x=line)",
]


@pytest.mark.parametrize("text", ENDLESS)
def test_what_may_go_on_for_ever_has_no_bound(text: str) -> None:
    """Loops without a counter, lists that grow while they are gone over, recursion without a measure: none is bounded."""
    analysis = said(text)
    assert analysis.bound("calls") == UNBOUNDED
    assert analysis.unbounded


def test_everything_that_can_be_written_is_followed() -> None:
    """Each kind of node has a rule of the analysis, and each function and method of Python."""
    within = {nodes.Node, nodes.EitherPair, nodes.EitherLink, text_nodes.Yield}
    kinds = {each for room in (nodes, text_nodes) for each in vars(room).values() if _is_node(each)} - within
    assert kinds == {*VALUES, *WAYS}
    assert set(PYTHON.functions) == {*BUILTINS, "isinstance"}
    assert set(PYTHON.methods) == set(ALL_METHODS)


def test_every_function_that_a_text_becomes_is_followed() -> None:
    """No function that the nodes of a text call is unknown to the bounds: neither in the manual nor in random texts."""
    texts = [each.program for page in PAGES for block in python_blocks(page) for each in block.expectations]
    texts += [values.text_of(values.statements_of(random.Random(number))) for number in range(300)]
    followed = 0
    for text in texts:
        with suppress(AgentflowError):
            found = readied(Source.unnamed(text, "python"), names=Described()).follow(AnalysisInputs(WEIGHTS))
            assert "nothing is known of this call" not in {each.reason for each in found.unbounded}, text
            followed += 1
    assert followed > 300


def _is_node(each: object) -> bool:
    return isinstance(each, type) and issubclass(each, nodes.Node)


def test_a_function_that_no_table_knows_has_no_bound() -> None:
    """Code of a new function may do anything until a table says what it does."""
    g, root = checked(
        Source.unnamed("x = 1 + 2\nask(x=x)", "python"), describer(Described()), Limits(), None, Described()
    )
    facts, inputs = NodeFacts(root, python=True), AnalysisInputs(WEIGHTS)
    of = [
        analyse_bounds(root, facts, each, g.kind, root.items[-1].at, inputs)
        for each in (PYTHON, replace(PYTHON, coded={}))
    ]
    assert [str(each.bound("calls")) for each in of] == ["1", "no bound"]
    assert "nothing is known of this call" in {each.reason for each in of[1].unbounded}


def test_width_is_what_runs_at_once() -> None:
    """Branches side by side add up, one after the other they do not, and a limit of pmap holds."""
    widths = {
        "[ask(x=1), ask(x=2)]": "1",
        "parallel(ask(x=1), [ask(x=2), ask(x=3)])": "2",
        "pmap(lambda f: parallel(ask(x=1), ask(x=f)), files, limit=4)": "8",
        "pmap(ask, files)": "len(files)",
        "parallel(*[ask(x=f) for f in files])": "len(files)",
    }
    assert {text: str(said(text).bound("width")) for text in widths} == widths


def test_bindings_that_are_there_are_looked_at() -> None:
    """The length of a list among the bindings is a number, unless the text makes it longer by data."""
    assert str(said("[ask(x=f) for f in files]", files=["a", "b"]).bound("calls")) == "2"
    grown = "def main(files):\n    files.append('c')\n    return [ask(x=f) for f in files]"
    assert str(said(grown, files=["a", "b"]).bound("calls")) == "3"


def test_a_hostile_text_ends_the_analysis() -> None:
    """A text that would be followed for ever is given up, and says so."""
    levels = "\n".join(f"def g{i}(x):\n    return [g{i + 1}(x), g{i + 1}(x), g{i + 1}(x)]" for i in range(60))
    analysis = said(f"{levels}\ndef g60(x):\n    return ask(x=x)\ng0(1)")
    assert analysis.bound("calls") == UNBOUNDED
    assert "took too long" in analysis.unbounded[0].reason


async def test_what_is_said_of_values_covers_them() -> None:
    """Whatever functions, methods, operators and changes of containers a text puts together: its values are among what is said of them."""
    outcomes = [await values.check(number) for number in range(50)]
    assert not [problem for _, problem in outcomes if problem is not None]
    assert sum(outcome == "covered" for outcome, _ in outcomes) > 25


@pytest.mark.slow
async def test_what_is_said_of_many_values_covers_them() -> None:
    """The same of five hundred others."""
    for number in range(1_000_000, 1_000_500):
        _, problem = await values.check(number)
        assert problem is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["append", "values"])
async def test_a_rule_that_says_too_little_is_found(name: str) -> None:
    """The test of values finds a method of which it is said that it gives, and changes, nothing."""
    says_nothing = replace(PYTHON, methods={**PYTHON.methods, name: lambda i, node, values, named: (NONE, FREE)})
    for number in range(3_000):  # most texts call few methods, and which they call changes with the rows
        if (await values.check(number, says_nothing))[1] is not None:
            return
    pytest.fail(f"3,000 texts did not find that {name} gives something")


@pytest.mark.parametrize("first", [0, 200])
async def test_made_up_texts_do_no_more_than_was_said(first: int) -> None:
    """Of random texts with effects, loops, recursion, changed lists and errors: none does more than its bound."""
    wrong = [problem for number in range(first, first + 60) if (problem := (await check(number, "python"))[1])]
    assert wrong == []
