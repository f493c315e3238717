"""Says of files that were read what the index stores of them: many at once, which costs a fraction of one after the other."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from agentflow.lib.text.spaced import spaced, spaced_names
from agentflow.memory.matches import SHOWN_SYMBOLS
from agentflow.memory.rows import NewFile, Words
from agentflow.memory.rules import decode, language
from agentflow.memory.symbols import symbols
from agentflow.memory.walk import StampFields

_UTF8 = ("utf-8", "surrogatepass")


class ReadFile(NamedTuple):
    """A file as it was read: its path, bytes and their digest, what :class:`~agentflow.memory.walk.Stamp` has, and when."""

    path: str
    data: bytes
    digest: bytes
    stamp: StampFields
    read_ns: int


def digest_of(data: bytes) -> bytes:
    """What tells whether a file has changed."""
    return hashlib.blake2b(data, digest_size=16).digest()


def described(root: int, files: Sequence[ReadFile]) -> list[NewFile]:
    """What is stored of ``files`` of ``root`` (its id)."""
    texts = [decode(file.data) for file in files]
    kinds = [language(file.path, text) for file, text in zip(files, texts, strict=True)]
    names = list(map(symbols, texts, kinds))
    words = map(
        Words,
        spaced(
            [file.data if file.data.isascii() else text.encode(*_UTF8) for file, text in zip(files, texts, strict=True)]
        ),
        spaced([file.path.encode(*_UTF8) for file in files]),
        spaced_names(names),
    )
    return [
        NewFile(root, path, *stamp, digest, kind, _lines(text), _shown(own), read_ns, said)
        for (path, _, digest, stamp, read_ns), text, kind, own, said in zip(
            files, texts, kinds, names, words, strict=True
        )
    ]


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def _shown(names: Sequence[str]) -> str:
    return "\n".join([" ".join(name.split()) for name in names[:SHOWN_SYMBOLS]])
