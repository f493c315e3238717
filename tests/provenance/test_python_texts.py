"""Texts in Python: boxes take the general path, are opened there, and nothing that was read reaches a sink."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from agentflow import AgentflowError, Labelled
from agentflow.lang.builtins import labelled
from agentflow.lang.python.boxed import labelled as of_texts
from agentflow.lang.python.methods import METHOD_ROWS
from agentflow.lang.python.rows import Row
from tests.support.mail import Open

GET = 'page = fetch(url="u")\n'
WAYS: dict[str, str] = {
    "as it is": "to = page",
    "f-string": 'to = f"<{page}>"',
    "f-string with a format": 'to = f"{page:>50}"',
    "repr": "to = repr(page)",
    "concatenation": 'to = page + "!"',
    "in place": 'to = ""\nto += page',
    "percent": 'to = "a" * len(page)',
    "slice": "to = page[3:9]",
    "index": "to = page[0]",
    "method": "to = page.upper()",
    "method that is a value": "to = list(map(str.upper, [page]))[0]",
    "split and unpack": "a, *b = page.split()\nto = b[0]",
    "join": 'to = " ".join(page.split())',
    "join of a list that holds it": 'to = ",".join(["a", page])',
    "replace by it": 'to = "x".replace("x", page)',
    "list": "to = [1, page][1]",
    "tuple": "to = (page, 1)[0]",
    "append": "xs = []\nxs.append(page)\nto = xs[0]",
    "append to an alias": "xs = []\nys = xs\nys.append(page)\nto = xs[0]",
    "extend": "xs = []\nxs.extend(page.split())\nto = xs[0]",
    "in place by a list": "xs = []\nys = xs\nxs += page.split()\nto = ys[0]",
    "insert": "xs = [1]\nxs.insert(0, page)\nto = xs[0]",
    "pop": "xs = [page]\nto = xs.pop()",
    "dict value": 'd = {"a": page}\nto = d["a"]',
    "dict get": 'd = {"a": page}\nto = d.get("a")',
    "dict items": 'd = {"a": page}\nto = [v for k, v in d.items()][0]',
    "dict key": "d = {page: 1}\nto = list(d)[0]",
    "key that was stored": "d = {}\nd[page] = 1\nto = [k for k in d][0]",
    "key of a count": "d = {}\nfor w in page.split():\n    d[w] = d.get(w, 0) + 1\nto = list(d.keys())[0]",
    "key of a comprehension": "d = {w: 1 for w in page.split()}\nto = list(d)[0]",
    "number of keys": 'to = str(len({page: 1, "x": 2}))',
    "number of keys that were stored": 'd = {"x": 1}\nd[page] = 2\nto = str(len(d))',
    "number of keys in a list": 'to = str(len({page: 1, "x": 2}.keys()))',
    "order of values": 'to = str(list({page: "a", "x": "b"}.values())[0])',
    "value of an equal key": 'd = {"x": "a"}\nto = d.setdefault(page, "c")',
    "equality of dicts": 'to = str({page: 1} == {"x": 1})',
    "number of elements": 'to = str(len({page, "x"}))',
    "difference of sets": 'to = str(len({"x", "y"} - {page}))',
    "intersection of sets": 'to = str(len({"x", "y"}.intersection({page})))',
    "inclusion of sets": 'to = str({page}.issubset({"x", "y"}))',
    "update": 'd = {}\nd.update({"a": page})\nto = d["a"]',
    "merged dict": 'd = {**{"a": page}}\nto = d["a"]',
    "dict merged from one with its key": 'd = {**{page: 1}, "x": 2}\nto = str(len(d))',
    "dict merged from what it came in": 'import json\nd = {**json.loads(json.dumps({"a": page})), "x": 2}\nto = str(len(d))',
    "how many are spread": "to = str(len([0, *page.split()]))",
    "how many are spread in a tuple": "to = str(len((0, *page.split())))",
    "how many keys are spread": 'to = str(len([*{page: 1, "x": 2}]))',
    "how many are unpacked": "a, *b = page.split()\nto = str(len(b))",
    "unpacked within": "[[a, *b], c] = [page.split(), 1]\nto = b[0]",
    "dict of pairs": 'd = dict([("a", page)])\nto = d["a"]',
    "setdefault": 'd = {}\nto = d.setdefault("a", page)',
    "set": "to = list({page})[0]",
    "set that grew": "s = set()\ns.add(page)\nto = list(s)[0]",
    "union": "to = list({page} | {page})[0]",
    "comprehension": "to = [w for w in page.split()][0]",
    "loop": "for w in page.split():\n    to = w",
    "sorted": "to = sorted(page.split())[0]",
    "sort": "xs = page.split()\nxs.sort()\nto = xs[0]",
    "sorted by a key": "to = sorted(page.split(), key=len)[0]",
    "max": "to = max(page.split())",
    "max by a key": "to = max(page.split(), key=len)",
    "reversed": "to = list(reversed([page]))[0]",
    "zip": "to = list(zip([page], [1]))[0][0]",
    "enumerate": "to = list(enumerate([page]))[0][1]",
    "sum": "to = str(sum([len(page), 1]))",
    "length": "to = str(len(page))",
    "comparison": 'to = str(page == "x")',
    "membership": 'to = str("x" in page)',
    "negation": "to = str(not page)",
    "identity": "to = str(page is None)",
    "chosen operand": 'to = page or "x"',
    "conditional": 'to = page if 1 else "x"',
    "function": "def f(x):\n    return x\nto = f(page)",
    "default and keyword": "def f(x, y=1):\n    return y\nto = f(1, y=page)",
    "closure": "def f():\n    return page\nto = f()",
    "nonlocal": "def g():\n    x = 1\n    def f():\n        nonlocal x\n        x = page\n    f()\n    return x\nto = g()",
    "lambda": "to = (lambda x: x)(page)",
    "walrus": "(to := page)",
    "error": "try:\n    raise ValueError(page)\nexcept ValueError as e:\n    to = str(e)",
    "error again": "try:\n    try:\n        raise ValueError(page)\n    except ValueError as e:\n        raise e\nexcept ValueError as f:\n    to = f.message",
    "error of a method": "try:\n    [].index(page)\n    to = 1\nexcept ValueError:\n    to = page",
    "assertion": "try:\n    assert False, page\nexcept AssertionError as e:\n    to = str(e)",
    "JSON": "to = json.loads(json.dumps([page]))[0]",
    "record": "class R(BaseModel):\n    to: str\nto = R(to=page).to",
    "pmap": "to = pmap(lambda x: x, [page])[0]",
    "parallel": "to = parallel(page, 1)[0]",
    "race": "to = race(page)",
    "retry": "to = timeout(5, page)",
    "outcome": 'to = outcome(fetch(url="u")).content',
    "spread arguments": 'd = {"url": page}\nto = echo(**{"text": page})',
    "task": 'to = ask(f"Say {page}")',
    "evaluated text": 'to = eval_program("x", bindings={"x": page})',
    "binding": "to = given",
}


@pytest.mark.parametrize("way", WAYS)
async def test_injected_text_reaches_no_recipient(way: str, mail: Open) -> None:
    """Whatever a text does with what it read, the sink refuses it, and nothing is sent."""
    made = await mail(*["eve@example.org"] * 3)

    @made.flow.tool(source="user")
    def echo(text: str) -> str:
        """Repeat a text."""
        return text

    text = f'{GET}{WAYS[way]}\nsend(to=to, body="x")\n'
    with pytest.raises(AgentflowError) as denied:
        await made.flow.run(text, surface="python", bindings={"given": Labelled("eve", "mail")})
    assert denied.value.code == "provenance/denied", denied.value.render()
    assert 'endorse(value, "reason")' in (denied.value.hint or "")
    assert made.sent == []
    sinks = (
        await made.flow.bounds(text, surface="python", bindings={"given": Labelled("eve", "mail")})
    ).authority.sinks
    assert [each.refused for each in sinks if (each.tool, each.argument) == ("send", "to")] != [()], "not foretold"


@pytest.mark.parametrize("argument", ['"xy"', '["x"]', "[]", '""'])
@pytest.mark.parametrize("row", [row for row in METHOD_ROWS if row.keys], ids=lambda row: row.name)
async def test_what_depends_on_keys_says_where_they_came_from(row: Row, argument: str, mail: Open) -> None:
    """Of a dict or set with keys from a page, each method that depends on them says so, however its arguments are written."""
    made = await mail()
    value = '{page: "y"}' if dict in row.kinds else "{page}"
    text = f"{GET}s = {value}.{row.name}({argument if row.positional else ''})\n"
    called = await made.flow.run(f"{text}sources(s if isinstance(s, bool) else len(s))", surface="python")
    assert called.value != []


PLAIN: dict[str, tuple[str, Any]] = {
    "arithmetic": ("[len(page) // 2, -len(page), len(page) ** 2 % 7, len(page) << 1, 3 * page[:2]]", None),
    "truth": ("[bool(page), not page, page is None, page is not None, 'a' not in page]", None),
    "containers": ("[sorted({*page.split()}), {k: len(k) for k in page.split()}, (page,), [page] * 2]", None),
    "methods": ("[page.split(), page.find('e'), [page].count(page), [page].index(page), {'a': page}.pop('a')]", None),
    "filter": ("[list(filter(lambda x: x > len(page) // 2, [0, 1, 100])), list(filter(None, [page, page[:0]]))]", None),
    "builtins": (
        "[max(3, len(page)), min([page, 'a']), list(zip([page], [1])), any([page]), all([]), round(1.5)]",
        None,
    ),
}


@pytest.mark.parametrize("name", PLAIN)
async def test_values_are_those_without_a_policy(name: str, mail: Open) -> None:
    """Boxes change no value."""
    values: list[Any] = []
    for options in ({"policy": None}, {}):
        made = await mail(**options)
        values.append((await made.flow.run(GET + PLAIN[name][0], surface="python")).value)
    assert values[0] == values[1]


TIGHT: dict[str, str] = {
    "texts": 's = ""\nfor i in range(20):\n    s = "a" + str(i + n)\ns',
    "f-strings": 's = ""\nfor i in range(20):\n    s = f"{s[:1]}a{i + n}"\ns',
    "elements": "d = {1: n}\nt = 0\nfor i in range(20):\n    t = t + d[1] + [n][i - i]\nt",
    "comparisons": 'k = 0\nfor i in range(20):\n    if str(i) > "1" and "a" != str(n) and not k is None:\n        k += 1\nk',
    "methods": 'd = {}\nfor i in range(20):\n    d.setdefault("a".upper(), n)\n"A" in d, "B" not in d',
    "numbers": "k = 0\nfor i in range(20):\n    k = 0.5 * i / 3 + i // n % 7 - len([i]) + round(2.5)\nk",
    "slices and fields": 'd = {"a": "bcd"}\nfor i in range(20):\n    k = d.a[1:]\nk',
}
"""Loops that do little but one thing."""


@pytest.mark.parametrize("name", TIGHT)
async def test_no_twin_is_called_for_values_in_no_box(name: str, mail: Open) -> None:
    """What a program costs over values of the user: tests of types in its own code, and no call more than without a policy."""
    made = await mail()
    calls: list[str] = []

    def called(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename in (labelled.__file__, of_texts.__file__):
            calls.append(frame.f_code.co_name)

    boxed = (await made.flow.run(TIGHT[name], surface="python", bindings={"n": Labelled(18, "web")})).value
    sys.setprofile(called)
    try:
        bare = (await made.flow.run(TIGHT[name], surface="python", bindings={"n": 18})).value
    finally:
        sys.setprofile(None)
    assert bare == boxed
    assert len(calls) < 10, calls  # once for what is done once, and not in each of 20 rounds
