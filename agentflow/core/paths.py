"""The parts of a branch path: ``0/4.2/~1f0c9a7e.0`` is the second branch of the fifth effect, in it an effect by content.

What starts in a known order is numbered. What host code starts is named by its content, and what it gave a label by
that label, so that neither depends on the order in which concurrent code gets to run.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any
from urllib.parse import quote

from agentflow.core.values import plain

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def content_mark(kind: str, content: tuple[Any, ...]) -> str:
    """``~`` and eight hex digits of what an effect is: equal for equal kind and content, in every process."""
    try:
        text = json.dumps(plain(content), sort_keys=True)
    except (ValueError, TypeError, RecursionError):
        text = _shown(content)
    data = f"{kind} {_ADDRESS.sub('', text)}".encode("utf-8", "surrogatepass")
    return "~" + hashlib.blake2b(data, digest_size=4).hexdigest()


def _shown(content: object) -> str:
    """What can be said of content that is no data: objects by their kind, without where they lie in memory."""
    try:
        return repr(content)
    except RecursionError:
        return type(content).__name__


def label_mark(label: str) -> str:
    """``@`` and a label, in which nothing can be mistaken for a part of a path."""
    return "@" + quote(label, safe="", errors="surrogatepass")


def branch_prefix(path: str) -> str:
    """What the paths of a form's branches begin with, for the form's own path; their index follows."""
    above, _, last = path.rpartition("/")
    return f"{path}." if last.startswith("~") else f"{above}/{last.partition('.')[0]}."
