"""Whatever in a text in Python goes over what came from elsewhere, or adds it to what others know, takes its sources along, too."""

from __future__ import annotations

from typing import Any

import pytest

from agentflow import AgentflowError, Labelled
from tests.support.mail import Open

VALUES: dict[str, Any] = {
    "a text": Labelled("eve", "web"),
    "a list": Labelled(["eve", "eva"], "web"),
    "a dict": Labelled({"eve": "x", "eva": "y"}, "web"),
    "a list of what came from there": [Labelled("eve", "web"), Labelled("eva", "web")],
    "many": Labelled(["eve"] * 3_000, "web"),
    "a long text": Labelled("eve" * 2_000, "web"),
}
"""What texts are given as ``given``; ``show`` sends."""
WAYS: dict[str, str] = {
    "for": "for c in given:\n    show(c)",
    "comprehension": "[show(c) for c in given]",
    "generator": "any(show(c) for c in given)",
    "map": "map(lambda c: show(c), given)",
    "map over several": "map(lambda a, c: show(c), [1], given)",
    "filter": "filter(lambda c: show(c), given)",
    "key of sorted": "sorted(given, key=lambda c: show(c))",
    "key of max": "max(given, key=lambda c: show(c))",
    "key of sort": "xs = list(given)\nxs.sort(key=lambda c: show(c))",
    "key of sort, of a list by itself": "xs = [*given]\nxs.sort(key=lambda c: show(c))",
    "pmap": "pmap(lambda c: show(c), list(given))",
    "zip": "for c, d in zip(given, given):\n    show(c)",
    "enumerate": "for i, c in enumerate(given):\n    show(c)",
    "reversed": "for c in reversed(list(given)):\n    show(c)",
    "unpacked": "first, *others = given\nshow(first)",
    "spread in a list": "show([*given][0])",
    "spread in a set": "show(list({*given})[0])",
    "extend": "xs = []\nys = xs\nxs.extend(given)\nshow(ys[0])",
    "extend as a function": "xs = []\nmap(list.extend, [xs], [given])\nshow(xs[0])",
    "in place": "xs = []\nys = xs\nxs += given\nshow(ys[0])",
    "in place of an element": "ys = []\nd = {'a': ys}\nd['a'] += given\nshow(ys[0])",
    "append for each": "xs = []\nys = xs\nfor c in given:\n    xs.append(c)\nshow(ys[0])",
    "update of a set": "xs = set()\nys = xs\nxs.update(given)\nshow(list(ys)[0])",
    "union in place": "xs = set()\nys = xs\nxs |= set(given)\nshow(list(ys)[0])",
    "keys that are stored": "d = {}\ne = d\nfor c in given:\n    d[c] = 1\nshow(list(e)[0])",
    "pairs of an update": "d = {}\ne = d\nd.update([(c, 1) for c in given])\nshow(list(e)[0])",
    "pairs that are texts": "d = {}\ne = d\nd.update([c[:2] for c in map(lambda c: c + c, given)])\nshow(list(e)[0])",
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("way", WAYS)
async def test_what_is_gone_over_says_where_it_came_from(way: str, kind: str, mail: Open) -> None:
    """No element that is found, and none that was added to a container, goes to a sink without the sources of the whole."""
    made = await mail()
    text = f"def show(c):\n    send(to=str(c), body='x')\n    return True\n{WAYS[way]}"
    with pytest.raises(AgentflowError) as denied:
        await made.flow.run(text, surface="python", bindings={"given": VALUES[kind]})
    assert denied.value.code == "provenance/denied" and made.sent == [], denied.value.render()


@pytest.mark.parametrize("way", WAYS)
async def test_it_would_be_sent_otherwise(way: str, mail: Open) -> None:
    """What the user says goes the same ways, and is sent."""
    made = await mail()
    text = f"def show(c):\n    send(to=str(c), body='x')\n    return True\n{WAYS[way]}"
    await made.flow.run(text, surface="python", bindings={"given": ["eve", "eva"]})
    assert made.sent
