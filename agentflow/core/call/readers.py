"""Confidentiality: who may see what came from a source, and who sees what reaches an argument.

Who may see a single value (``Labelled(value, readers=["hr"])``) stands among its sources, as ``readers:hr``: so it goes wherever the value goes, and
what was made of two such values has both, and may be seen by those only whom both allow.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Protocol, cast

_PREFIX = "readers:"
_APART = re.compile(r"""[\s,;|<>()"'\x00-\x1f]""")
"""What keeps several names in one text apart, or an address from the name that is shown for it."""


class Discloses(Protocol):
    """A rule: who sees what reaches an argument of a tool, by name, and named by which other argument of the call."""

    @property
    def tool(self) -> str: ...
    @property
    def argument(self) -> str: ...
    @property
    def readers(self) -> tuple[str, ...]: ...
    @property
    def readers_in(self) -> str: ...


def only_for(readers: Iterable[str]) -> str:
    """The source of a value that these alone may see. Raises ValueError for a name that is none."""
    names = sorted(set(readers))
    check_readers(names)
    return _PREFIX + ",".join(names)


def check_readers(names: Iterable[str]) -> None:
    """Raise ValueError for a name or pattern that is empty or holds what keeps several names apart."""
    for each in names:
        if not each or _APART.search(each):
            raise ValueError(
                f"readers are names, or patterns of them, without blanks, commas, semicolons, bars, brackets and quotes; not {each!r}"
            )


def is_restriction(source: str) -> bool:
    """Whether a source says who may see a value, and not where it came from."""
    return source.startswith(_PREFIX)


def allowed_readers(source: str, declared: Mapping[str, Sequence[str]]) -> list[Sequence[str]]:
    """The lists of patterns of those who may see what came from ``source``; all lists hold. None at all: anybody may."""
    lists = [allowed for pattern, allowed in declared.items() if fnmatchcase(source, pattern)]
    return [*lists, source.removeprefix(_PREFIX).split(",")] if is_restriction(source) else lists


def readers_of(
    rules: Iterable[Discloses], name: str, argument: str, arguments: Mapping[str, Any]
) -> tuple[str, ...] | None:
    """Who sees what reaches ``argument`` of a call of ``name`` with these ``arguments``; None if no rule says.

    Of the rules for the argument by name and those for every argument, the former count.
    """
    ours = [rule for rule in rules if (rule.readers or rule.readers_in) and fnmatchcase(name, rule.tool)]
    chosen = [rule for rule in ours if rule.argument == argument] or [rule for rule in ours if rule.argument == "*"]
    if not chosen:
        return None
    readers: list[str] = []
    for rule in chosen:
        readers += rule.readers
        if rule.readers_in:
            readers += _texts(arguments.get(rule.readers_in)) or [name]
    return tuple(dict.fromkeys(readers))


def kept_from(readers: Iterable[str], lists: Iterable[Sequence[str]]) -> list[str]:
    """Those of ``readers`` whom one of the lists does not allow."""
    lists = list(lists)
    return [each for each in readers if not all([_is_allowed(each, allowed) for allowed in lists])]


def _is_allowed(reader: str, allowed: Sequence[str]) -> bool:
    """Whether the patterns allow a reader, or each of several who are named in one text: ``"ann@hr.example, bob@hr.example"``.

    No part of a pattern stands for what keeps names apart: ``*@hr.example`` is no leave for ``"eve@evil.example, ann@hr.example"``.
    """
    several = [each for each in _APART.split(reader) if each]
    return bool(several) and all([any([fnmatchcase(each, pattern) for pattern in allowed]) for each in several])


def _texts(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, dict):
        entries = cast("dict[Any, Any]", value)
        return _texts([*entries, *entries.values()])
    if isinstance(value, list | tuple):
        return [text for each in cast("list[Any]", value) for text in _texts(each)]
    return [value if isinstance(value, str) else str(value)]
