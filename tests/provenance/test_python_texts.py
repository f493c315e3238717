"""Texts in Python: boxes take the general path, are opened there, and nothing that was read reaches a sink."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from agentflow import AgentflowError, Labelled
from agentflow.lang.builtins import labelled
from agentflow.lang.python.boxed import labelled as of_texts
from tests.support.mail import Open

GET = 'page = fetch(url="u")\n'
WAYS: dict[str, str] = {
    "as it is": "to = page",
    "method that is a value": "to = list(map(str.upper, [page]))[0]",
    "split and unpack": "a, *b = page.split()\nto = b[0]",
    "append to an alias": "xs = []\nys = xs\nys.append(page)\nto = xs[0]",
    "in place by a list": "xs = []\nys = xs\nxs += page.split()\nto = ys[0]",
    "key of a count": "d = {}\nfor w in page.split():\n    d[w] = d.get(w, 0) + 1\nto = list(d.keys())[0]",
    "dict merged from what it came in": 'import json\nd = {**json.loads(json.dumps({"a": page})), "x": 2}\nto = str(len(d))',
    "loop": "for w in page.split():\n    to = w",
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
