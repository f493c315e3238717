"""The sources a call has read so far, in a flow with a policy: a task, a tool or a host function."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Protocol, cast

from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.known_names import ASK, PUBLISH, SIGNAL, Definitions
from agentflow.core.data.labels import NO_SOURCES, Following, Sources, joined
from agentflow.core.data.source import Span

_PREFIX = "readers:"
_APART = re.compile(r"""[\s,;|<>()"'\x00-\x1f]""")
"""Separators between several names in one text, or between an address and its display name."""


class Discloses(Protocol):
    """A rule: who sees an argument of a tool, by name, or named by another argument of the call."""

    @property
    def tool(self) -> str: ...
    @property
    def argument(self) -> str: ...
    @property
    def readers(self) -> tuple[str, ...]: ...
    @property
    def readers_in(self) -> str: ...


def only_for(readers: Iterable[str]) -> str:
    """The source of a value that these alone may see. Raises ValueError for an invalid name."""
    names = sorted(set(readers))
    check_readers(names)
    return _PREFIX + ",".join(names)


def check_readers(names: Iterable[str]) -> None:
    """Raise ValueError for an empty name or pattern, or one that contains a separator of names."""
    for each in names:
        if not each or _APART.search(each):
            raise ValueError(
                f"readers are names, or patterns of them, without blanks, commas, semicolons, bars, brackets and quotes; not {each!r}"
            )


def is_restriction(source: str) -> bool:
    """Whether a source says who may see a value, and not where it came from."""
    return source.startswith(_PREFIX)


def allowed_readers(source: str, declared: Mapping[str, Sequence[str]]) -> list[Sequence[str]]:
    """The lists of patterns for readers of data from ``source``; all lists apply. An empty result: anyone may read it."""
    lists = [allowed for pattern, allowed in declared.items() if fnmatchcase(source, pattern)]
    return [*lists, source.removeprefix(_PREFIX).split(",")] if is_restriction(source) else lists


def readers_of(
    rules: Iterable[Discloses], name: str, argument: str, arguments: Mapping[str, Any]
) -> tuple[str, ...] | None:
    """The readers of ``argument`` in a call of ``name`` with these ``arguments``; None without a rule.

    Rules that name the argument win over rules for every argument.
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
    """Those of ``readers`` that one of the lists does not allow."""
    lists = list(lists)
    return [each for each in readers if not all([_is_allowed(each, allowed) for allowed in lists])]


def _is_allowed(reader: str, allowed: Sequence[str]) -> bool:
    """Whether the patterns allow a reader, or each of several who are named in one text: ``"ann@hr.example,
    bob@hr.example"``.

    No part of a pattern matches a separator: ``*@hr.example`` does not allow ``"eve@evil.example, ann@hr.example"``.
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


ASKED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        ASK: ("question", "schema"),
        "log-message": ("text",),
        "solve": ("goal", "inputs"),
        SIGNAL: ("name", "schema"),
        PUBLISH: ("key", "value"),
    }
)
"""Effects with arguments that programs do not name, and their names in rules. They are read before the effect is
requested, so each depends on all."""
SEEN_BY_PEOPLE = frozenset({ASK, "log-message", SIGNAL, PUBLISH})
"""Those of them that people are shown: questions, messages of programs, the signals that a run waits for, and its state."""


class Guard(Protocol):
    """The policy of a run, and its recorded flows."""

    @property
    def following(self) -> Following:
        """How programs of the run are followed."""
        ...

    @property
    def containers(self) -> object:
        """The sources of containers of the host that runs of the flow changed, under a strict policy."""
        ...

    @property
    def explains(self) -> bool:
        """Whether violations of the policy are reported but carried out."""
        ...

    @property
    def in_arm(self) -> bool:
        """Whether the call is in an arm, and its test depends on sources, under a strict policy: it takes no text or signal that was
        sent to the run, since a later call would show which are left."""
        ...

    def for_arm(self) -> Guard:
        """This guard for effects in such an arm, and for all that they do."""
        ...

    def judge(
        self,
        name: str,
        labels: Mapping[str, Sources],
        around: Sources,
        span: Span | None,
        call: object,
        *,
        tool: bool,
        arguments: Mapping[str, Any],
    ) -> AgentflowError | None:
        """The error of an effect with arguments that depend on sources refused there; None if it is allowed.

        ``labels`` are the sources of each argument, ``around`` those of the whole effect; a ``tool`` is also bound by its
        own declaration. ``arguments`` are the values by name, for rules that depend on them. A denial is recorded, and
        reported at ``call``.
        """
        ...

    def small(
        self, task: str, defined: Definitions | None, value: object, sources: Sources
    ) -> tuple[Any, Sources] | None:
        """The result of a task, if its schema allows so few values that it has no sources, reduced to its value, and the
        sources it keeps: those with restricted readers. None for any other result."""
        ...

    def source_of(self, tool: str, call: object = None) -> Sources:
        """The sources of the results of a tool, unless they state their own; ``call`` is that of the model that calls it."""
        ...

    def of_files(self, paths: Iterable[str]) -> Sources:
        """The sources of the contents of files: ``file:PATH`` for the target of a path, relative to a root if it is beneath
        one, and the sources of the values a run wrote there."""
        ...

    def writing(self, path: str, sources: Sources) -> AbstractAsyncContextManager[None]:
        """A block that writes a file from ``sources``; the file keeps them."""
        ...

    def written_from(self, task: str, defined: Definitions | None) -> Sources:
        """The sources of the texts that a program built for a task; ``defined`` are the tasks defined by programs."""
        ...

    def note(
        self, name: str, labels: Mapping[str, Sources], around: Sources, value: Sources, span: Span | None
    ) -> None:
        """Record a finished effect: the sources of its arguments, and those of its ``value``."""
        ...


class Reading:
    """The sources one call has read: ``sources`` grow, and everything done within the call depends on them.

    ``inputs`` are the sources of each variable of a program that the call runs. ``default`` are the sources of the call's
    own result unless it states them (:meth:`say`). ``labels`` are the sources of each argument and ``around`` those of the
    whole call; without labels everything depends on ``around``. ``endorsed`` are the values, as text, that host code within
    the call vouches for.
    """

    __slots__ = ("_alone", "_said", "around", "default", "endorsed", "guard", "inputs", "labels", "sources")

    def __init__(
        self,
        guard: Guard,
        sources: Sources = NO_SOURCES,
        *,
        default: Sources = NO_SOURCES,
        inputs: Mapping[str, Sources] | None = None,
        labels: Mapping[str, Sources] | None = None,
        around: Sources | None = None,
    ) -> None:
        self.guard = guard
        self.sources = sources
        self.labels = labels or {}
        self.around = sources if around is None else around
        self.default = default
        self.inputs = inputs
        self.endorsed = NO_SOURCES
        self._said: Sources | None = None
        self._alone: Sources | None = None

    def add(self, sources: Sources) -> None:
        """Something from these sources was read."""
        if not sources <= self.sources:
            self.sources = joined(self.sources, sources)

    def check(self, name: str, span: Span | None, call: object) -> None:
        """Raise the policy's error if the sources read here may not reach one of :data:`ASKED`, which host code asks for."""
        labels = dict.fromkeys(ASKED[name], NO_SOURCES)
        error = self.guard.judge(name, labels, self.sources, span, call, tool=False, arguments={})
        if error is not None:
            raise error

    def fork(self, sources: Sources, default: Sources = NO_SOURCES) -> Reading:
        """The reading of a separately tracked part of the call, which starts with ``sources``."""
        return Reading(self.guard, sources, default=default)

    def say(self, sources: Sources, *, alone: bool = False) -> None:
        """The result comes from ``sources``, and not from :attr:`default`; ``alone``: and from nothing that was read, either."""
        if alone:
            self._alone = sources
        else:
            self._said = sources if self._said is None else joined(self._said, sources)

    def given(self) -> Sources:
        """The sources of the result."""
        if self._alone is not None:
            return self._alone
        return joined(self.sources, self.default if self._said is None else self._said)


def following(reading: Reading | None) -> Following:
    """How programs are followed in a call that has this reading."""
    return False if reading is None else reading.guard.following


def files_read(reading: Reading | None, paths: Iterable[str]) -> None:
    """Note that a call has read the contents of files, in a flow with a policy."""
    if reading is not None:
        reading.add(reading.guard.of_files(paths))


def written_from(reading: Reading | None, path: str) -> AbstractAsyncContextManager[None]:
    """A block for a call that writes a file; in a flow with a policy the file keeps the sources of the call."""
    return nullcontext() if reading is None else reading.guard.writing(path, reading.sources)


def found_in(reading: Reading | None, paths: Iterable[str]) -> dict[str, Sources]:
    """The fields for the end of a lookup about the files it found, in a flow with a policy."""
    return {} if reading is None else {"sources": reading.guard.of_files(paths)}
