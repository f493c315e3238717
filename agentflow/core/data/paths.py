"""Branch paths: ``0/4.2/~1f0c9a7e.0`` is an effect, named by its content, in the third branch of the fifth effect.

Effects that start in a known order are numbered. Effects of host code are named by their content, or by the label the
code gave them, so that no name depends on the order in which concurrent code runs.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any
from urllib.parse import quote

from agentflow.core.data.values import plain
from agentflow.core.data.walk import LEAVES, keyed, sizes
from agentflow.core.data.work import finish

_MAX_TEXT = 1_000_000
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def content_mark(kind: str, content: tuple[Any, ...]) -> str:
    """``~`` and eight hex digits that identify an effect: equal for equal kind and content, in every process."""
    try:
        text = _canonical(plain(content))
    except (ValueError, TypeError, RecursionError):
        text = _shown(content)
    data = f"{kind} {_ADDRESS.sub('', text)}".encode("utf-8", "surrogatepass")
    return "~" + hashlib.blake2b(data, digest_size=4).hexdigest()


def _canonical(data: list[Any]) -> str:
    """Equal texts for equal JSON data. Of data whose text is long, a digest: its shared parts are read once."""
    measured = finish(sizes(data))
    if measured[id(data)][0] <= _MAX_TEXT:
        return json.dumps(data, sort_keys=True)
    digests: dict[int, str] = {}

    def named(item: Any) -> Any:
        return item if type(item) in LEAVES else digests[id(item)]

    for key, (_, _, item) in measured.items():
        entries: Any = {k: named(v) for k, v in item.items()} if keyed(item) else [named(each) for each in item]
        text = json.dumps(entries, sort_keys=True)
        digests[key] = "#" + hashlib.blake2b(text.encode("ascii"), digest_size=16).hexdigest()
    return digests[id(data)]


def _shown(content: object) -> str:
    """A stable text for content that is not data: objects by their type, without memory addresses."""
    try:
        return repr(content)
    except RecursionError:
        return type(content).__name__


def label_mark(label: str) -> str:
    """``@`` and a label, escaped so that nothing in it looks like a part of a path."""
    return "@" + quote(label, safe="", errors="surrogatepass")


def branch_prefix(path: str) -> str:
    """The prefix of the paths of a form's branches, from the form's own path; a branch adds its index."""
    above, _, last = path.rpartition("/")
    return f"{path}." if last.startswith("~") else f"{above}/{last.partition('.')[0]}."
