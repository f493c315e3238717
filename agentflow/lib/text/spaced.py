"""Text for a full-text index that splits at all but letters and digits: in it, the parts of names in camel case are words.

Works on many texts at once by operations on bytes, which costs a fraction of turning every word into terms, and for small
texts a fraction of one after the other. The parts are those of :mod:`agentflow.lib.text.tokens`, but for digits: they belong to
the part before them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate, count

from agentflow.lib.text.tokens import repeated

_LETTERS = b"abcdefghijklmnopqrstuvwxyz"
_BETWEEN = b"\xff"
"""Stands between texts: no text in UTF-8 holds it."""
_CASES = bytes(
    97 if code in _LETTERS
    else 65 if code in _LETTERS.upper()
    else 48 if code in b"0123456789" or 128 <= code != _BETWEEN[0]
    else 32
    for code in range(256)
)  # fmt: skip
"""Small letters as ``a``, capitals as ``A``, digits and characters beyond ASCII as ``0``, everything else as blanks."""
_NO_CAPITALS = _CASES.replace(b"0", b"a")
"""The same with digits and characters beyond ASCII as ``a`` too."""
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+")
_CJK_FIRST = tuple(bytes([code]) for code in range(0xE3, 0xEE))
"""First bytes in UTF-8 of characters that :data:`_CJK` matches."""
_UTF8 = ("utf-8", "surrogatepass")


def spaced(texts: Sequence[bytes]) -> list[bytes]:
    """Each text (in UTF-8) with blanks between the parts of its names in camel case (``getName``, ``HTTPServer``).

    Runs of scripts without spaces become overlapping pairs of characters.
    """
    if not texts:
        return []
    data = _BETWEEN.join(texts)
    if not data.isascii() and any(first in data for first in _CJK_FIRST):
        data = _BETWEEN.join([text if text.isascii() else _paired(text) for text in texts])
    cuts = _cuts(data)
    if cuts:
        data = b" ".join([data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)])
    return data.split(_BETWEEN)


def spaced_names(names: Iterable[Sequence[str]]) -> list[str]:
    """For each file, the words of its ``names`` (a name or a heading), those that stand often less often, and compounds as
    one word too. No name holds a newline.

    A word is there once, and once more for each doubling; in order are only the words of no compound.
    """
    text = "\n".join(map(" ".join, names)).replace("\0", " ")
    parts = spaced([text.encode(*_UTF8)])[0].decode(*_UTF8).replace("_", " ").lower()
    wholes = text.replace("_", "").lower()
    return list(map(_counted, parts.split("\n"), wholes.split("\n")))


def _counted(parts: str, wholes: str) -> str:
    """The words ``parts``, counted, and those of ``wholes`` that are not among them."""
    if not parts:
        return ""
    words = parts.split()
    compounds = dict.fromkeys(wholes.split())
    once = dict.fromkeys(words)
    if len(once) == len(words):
        said = [*words, *(compound for compound in compounds if compound not in once)]
        return " ".join(said)
    counts = Counter(words)
    return repeated((f"{word} ", times) for word, times in counts.items()) + " ".join(
        [compound for compound in compounds if compound not in counts]
    )


def _paired(text: bytes) -> bytes:
    return _CJK.sub(_pairs, text.decode(*_UTF8)).encode(*_UTF8)


def _cuts(data: bytes) -> list[int]:
    """Where a part begins within a word: ``getName`` before ``N``, ``HTTP2Server`` and ``HTTPServer`` before ``S``."""
    cuts = _ends(data.translate(_NO_CAPITALS), b"aA") + _ends(data.translate(_CASES), b"AAa")
    cuts.sort()
    return cuts


def _ends(cases: bytes, pattern: bytes) -> list[int]:
    """Where the second letter of each occurrence of ``pattern`` stands."""
    pieces = cases.split(pattern)
    ends = [ended + before for ended, before in zip(accumulate(map(len, pieces)), count(1, len(pattern)), strict=False)]
    ends.pop()
    return ends


def _pairs(match: re.Match[str]) -> str:
    """A run of a script without spaces as overlapping pairs of characters."""
    run = match.group()
    return f" {' '.join(run[at : at + 2] for at in range(len(run) - 1)) or run} "
