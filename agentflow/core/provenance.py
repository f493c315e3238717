"""The policy of a flow: which sources may reach which arguments of tools, tasks and host functions.

A source is a word: ``tool:fetch`` (the default of a tool), ``web`` (``@tool(source="web")``), ``file:docs/a.md``, ``mail``
(:class:`Labelled`). What the program's text and ``bindings=`` say is the user's, has no source, and may go anywhere.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, cast

from agentflow.core.errors import ConfigurationError, clip
from agentflow.core.frozen import frozen
from agentflow.core.labels import NO_SOURCES, Sources
from agentflow.core.reading import Reading

USER = "user"
"""The source of what the program and its bindings say: the absence of any other."""
Default: TypeAlias = Literal["allow", "deny"]
_HINT = 'write [[sink]], tool = "send", argument = "to", allow = ["user"]; default = "allow" or "deny"; [sources], lookup = "directory"'


class Labelled:
    """A value with the sources it came from, for ``bindings=``, and as the result of tools and host functions.

    ``sources`` is one source or several; ``"user"`` is none. A tool or function that gives one says itself where its result came from:
    neither its declared ``source`` nor the sources of its arguments are added.
    """

    __slots__ = ("sources", "value")

    def __init__(self, value: Any, sources: str | Iterable[str]) -> None:
        self.value = value
        self.sources: Sources = frozenset([sources] if isinstance(sources, str) else sources) - {USER}

    def __repr__(self) -> str:
        return f"Labelled({self.value!r}, {sorted(self.sources)!r})"


def unlabelled(value: Any, reading: Reading | None) -> Any:
    """What code of the host gave, as it is; ``reading`` is told where it came from if it says so."""
    if type(value) is not Labelled:
        return value
    if reading is not None:
        reading.say(value.sources, alone=True)
    return value.value


@dataclass(frozen=True, slots=True)
class Sink:
    """A rule: what may reach an argument of what acts on the world.

    ``tool`` is the name of a tool, a task or a host function, or a pattern (``mail:*``); ``argument`` the name of an argument, or ``"*"``
    for each that no other rule names. ``allow`` are the sources that may reach it, or patterns of them (``file:docs/*``); what the user
    says always may. Raises ConfigurationError (``provenance/policy``) where these are not texts.
    """

    tool: str
    argument: str = "*"
    allow: tuple[str, ...] = (USER,)

    def __init__(self, tool: str, argument: str = "*", allow: Iterable[str] = (USER,)) -> None:
        allowed = (allow,) if isinstance(allow, str) else tuple(allow)
        if not all(isinstance(each, str) and each for each in cast("tuple[object, ...]", (tool, argument, *allowed))):
            raise ConfigurationError(
                f"a sink has the names of a tool and an argument, and sources; not {clip(repr((tool, argument, allowed)), 100)}",
                code="provenance/policy",
                hint='write Sink("send", "to", allow=["user", "directory"])',
            )
        object.__setattr__(self, "tool", tool)
        object.__setattr__(self, "argument", argument)
        object.__setattr__(self, "allow", allowed)

    def refused(self, sources: Sources) -> Sources:
        """Those of ``sources`` that may not reach the argument."""
        return frozenset([each for each in sources if not any([fnmatchcase(each, rule) for rule in self.allow])])


_NOTHING_BUT_USER = Sink("*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Which sources may reach which arguments: the policy of ``AgentFlow(provenance=...)``. With one, values know where they came from.

    ``rules`` say it for arguments; of several for one argument all must allow. A rule for an argument replaces what the tool itself
    declares of it (``@tool(sinks={"to": "user"})``). ``default`` says it of arguments of tools that neither names: ``"allow"`` any source,
    or ``"deny"`` all but the user. ``sources`` renames what tools give, by name or pattern: ``{"lookup_contact": "directory"}``.
    With ``explain`` nothing is denied: what would have been is a warning, ``provenance/denied``.

    ``narrowed_by`` are policies that must allow too, such as that of a directory's settings. Raises ConfigurationError
    (``provenance/policy``) for a default that is neither.
    """

    rules: tuple[Sink, ...] = ()
    default: Default = "allow"
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    explain: bool = False
    narrowed_by: tuple[Provenance, ...] = ()

    def __post_init__(self) -> None:
        if self.default not in ("allow", "deny"):
            raise ConfigurationError(
                f"the default of a policy is allow or deny, not {clip(repr(self.default), 80)}",
                code="provenance/policy",
                hint=_HINT,
            )
        object.__setattr__(self, "rules", tuple(self.rules))
        object.__setattr__(self, "sources", MappingProxyType(dict(self.sources)))

    @classmethod
    def from_table(cls, table: Mapping[str, Any], where: str = "the policy") -> Provenance:
        """A policy from the table of a TOML file: ``default``, tables ``[[sink]]``, and ``[sources]``.

        Raises ConfigurationError (``provenance/policy``), which names ``where`` and the key.
        """
        unknown = [key for key in table if key not in ("default", "sink", "sources")]
        sinks: Any = table.get("sink", [])
        renamed: Any = table.get("sources", {})
        if unknown:
            raise _malformed(where, f"there is no key '{clip(unknown[0], 60)}'")
        if not isinstance(sinks, list) or not all([isinstance(each, Mapping) for each in cast("list[Any]", sinks)]):
            raise _malformed(where, "sink is a list of tables")
        if not isinstance(renamed, Mapping) or not all(
            [isinstance(each, str) for each in cast("Mapping[str, Any]", renamed).values()]
        ):
            raise _malformed(where, "sources is a table of texts")
        rules: list[Sink] = []
        for each in cast("list[Mapping[str, Any]]", sinks):
            wrong = [key for key in each if key not in ("tool", "argument", "allow")]
            if wrong or "tool" not in each:
                raise _malformed(
                    where, f"a sink has no key '{clip(wrong[0], 60)}'" if wrong else "a sink names its tool"
                )
            rules.append(Sink(**each))
        return cls(rules=tuple(rules), default=table.get("default", "allow"), sources=cast("Any", renamed))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Provenance:
        """The policy of a TOML file (see :meth:`from_table`). Raises ConfigurationError (``provenance/policy``), which names the file."""
        try:
            table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigurationError(
                f"the policy {path} cannot be read: {error}", code="provenance/policy", hint=_HINT
            ) from error
        return cls.from_table(table, str(path))

    def narrowed(self, other: Provenance) -> Provenance:
        """A policy that allows what this one and ``other`` allow."""
        return replace(self, narrowed_by=(*self.narrowed_by, other))

    def source_of(self, tool: str, declared: str) -> str:
        """The source of what a tool gives: as the policy says, else as it declares, else ``tool:NAME``."""
        for pattern, source in self.sources.items():
            if fnmatchcase(tool, pattern):
                return source
        return declared or f"tool:{tool}"

    def refused(self, name: str, argument: str, sources: Sources, declared: Mapping[str, str] | None) -> Sources:
        """Those of ``sources`` that may not reach ``argument`` of ``name``.

        ``declared`` is what the tool itself says of its arguments; None for what is no tool, which the default does not bind.
        """
        if not sources:
            return NO_SOURCES
        refused: Sources = NO_SOURCES
        for rule in self._rules(name, argument, declared):
            refused |= rule.refused(sources)
        for other in self.narrowed_by:
            refused |= other.refused(name, argument, sources, declared)
        return refused

    def sinks(
        self, name: str, arguments: Iterable[str], declared: Mapping[str, str] | None
    ) -> dict[str, tuple[str, ...]]:
        """The arguments of ``name`` that are not open to every source, with the sources that may reach each."""
        limited: dict[str, tuple[str, ...]] = {}
        for argument in arguments:
            rules = self._rules(name, argument, declared)
            for other in self.narrowed_by:
                rules += other._rules(name, argument, declared)
            if rules:
                allowed = frozenset(rules[0].allow).intersection(*[rule.allow for rule in rules]) - {USER}
                limited[argument] = (USER, *sorted(allowed))
        return limited

    def _rules(self, name: str, argument: str, declared: Mapping[str, str] | None) -> list[Sink]:
        """The rules for an argument; of the tool's own declaration and the default, the first that there is."""
        ours = [rule for rule in self.rules if rule.tool == name or fnmatchcase(name, rule.tool)]
        exact = [rule for rule in ours if rule.argument == argument]
        rules = exact or [rule for rule in ours if rule.argument == "*"]
        if rules:
            return rules
        if declared is not None and argument in declared:
            return [Sink(name, argument, declared[argument].replace(",", " ").split())]
        return [_NOTHING_BUT_USER] if declared is not None and self.default == "deny" else []


def narrowing(table: Mapping[str, Any]) -> Provenance | None:
    """The policy of the table ``provenance`` of settings, which can only narrow another one; None for an empty table.

    Raises ConfigurationError (``provenance/policy``).
    """
    if "sources" in table:
        raise _malformed(
            "provenance", "settings do not say what tools give: sources is for a policy file, or for the code"
        )
    return Provenance.from_table(table, "provenance") if table else None


def _malformed(where: str, message: str) -> ConfigurationError:
    return ConfigurationError(f"{where}: {message}", code="provenance/policy", hint=_HINT)


@frozen
class Denial:
    """What a policy denied, or with ``explain`` would have: ``argument`` of ``name`` depends on ``sources``, of which ``refused`` may not reach it."""

    name: str
    argument: str
    sources: Sources
    refused: Sources
