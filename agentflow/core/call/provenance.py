"""The policy of a flow: which sources may reach which arguments of tools, tasks and host functions.

A source is a word: ``tool:fetch`` (the default of a tool), ``web`` (``@tool(source="web")``), ``file:docs/a.md``, ``mail``
(:class:`Labelled`). The program's text and ``bindings=`` come from the user: they have no source and may go anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from fnmatch import fnmatchcase
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, cast

from agentflow.core.call.reading import (
    SEEN_BY_PEOPLE,
    Reading,
    allowed_readers,
    check_readers,
    is_restriction,
    kept_from,
    only_for,
    readers_of,
)
from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.labels import NO_SOURCES, Following, Sources, box, stripped
from agentflow.core.data.walk import ELEMENTS_PER_STEP, LEAVES, Work, copied, finish, slices

USER = "user"
"""The source of the program and its bindings: the absence of any other."""
Default: TypeAlias = Literal["allow", "deny"]
ENUM = 64
"""The number of values that ``capacity="enum"`` means: those of a choice from a list."""
_HINT = 'write [[sink]], tool = "send", argument = "to", allow = ["user"]; default = "allow" or "deny"; [sources], lookup = "directory"'


class Labelled:
    """A value with the sources it came from, for ``bindings=``, and as the result of tools and host functions.

    ``sources`` is one source or several; ``"user"`` is none. A tool or function that returns one states the sources of its
    result: neither its declared ``source`` nor the sources of its arguments are added. ``readers`` are the only readers who
    may see it (see :class:`Sink`), by name or pattern; None: anyone. Raises ConfigurationError (``provenance/policy``) for
    invalid names of readers.
    """

    __slots__ = ("sources", "value")

    def __init__(
        self, value: Any, sources: str | Iterable[str] = USER, *, readers: Iterable[str] | None = None
    ) -> None:
        self.value = value
        self.sources: Sources = frozenset([sources] if isinstance(sources, str) else sources) - {USER}
        if readers is not None:
            self.sources |= {_only_for([readers] if isinstance(readers, str) else readers)}

    def __repr__(self) -> str:
        return f"Labelled({self.value!r}, {sorted(self.sources)!r})"


def taken_in(value: Any) -> Work[Any]:
    """A value of the host as a program has it: each :class:`Labelled` in it, in boxes."""
    if type(value) is Labelled:
        return box((yield from taken_in(value.value)), value.sources)
    if type(value) in LEAVES or not (yield from _holds_labelled(value)):
        return value
    return (yield from copied(value, _boxed))[0]


def left_open(value: Any) -> Work[Any]:
    """The same for a flow without a policy: the value itself."""
    taken = yield from taken_in(value)
    return taken if taken is value else (yield from stripped(taken))[0]


def _boxed(value: Any) -> Any:
    kind = cast("type[Any]", type(value))
    if kind is Labelled:
        return box(finish(taken_in(value.value)), value.sources)
    return value.copy() if kind is dict or kind is list else value


def _holds_labelled(value: Any) -> Work[bool]:
    seen: set[int] = set()
    pending = [value]
    while pending:
        item = pending.pop()
        if type(item) is Labelled:
            return True
        if id(item) in seen or type(item) not in (list, dict):
            continue
        seen.add(id(item))
        for part in slices(list(cast("dict[Any, Any]", item).values()) if type(item) is dict else item):
            yield len(part) // ELEMENTS_PER_STEP
            if not LEAVES.issuperset(map(type, part)):
                pending += part
    return False


def declared_sources(who: str) -> list[str]:
    """The sources that a tool's own declaration allows, separated by spaces or commas: ``"user directory"``."""
    return who.replace(",", " ").split()


def unlabelled(value: Any, reading: Reading | None) -> Any:
    """A result of host code, unwrapped; ``reading`` learns its sources if the result states them."""
    if type(value) is not Labelled:
        return value
    if reading is not None:
        reading.say(value.sources, alone=True)
    return value.value


# People are readers: data may be shown only to those who may see it (decision 46)
@frozen
class Sink:
    """A rule: the sources that may reach an argument of a callable with side effects.

    ``tool`` is the name of a tool, a task or a host function, or a pattern (``mail:*``); ``argument`` the name of an
    argument, or ``"*"`` for each argument without its own rule. ``allow`` are the sources that may reach it, or patterns of
    them (``file:docs/*``); the user always may. ``readers`` are the people or systems that will see the argument,
    ``readers_in`` the argument of the same call that names them (``"to"``); with either of these, ``allow`` defaults to any
    source. Raises ConfigurationError (``provenance/policy``) where these are not texts.
    """

    tool: str
    argument: str = "*"
    allow: tuple[str, ...] = (USER,)
    readers: tuple[str, ...] = ()
    readers_in: str = ""

    def __init__(
        self,
        tool: str,
        argument: str = "*",
        allow: Iterable[str] | None = None,
        *,
        readers: Iterable[str] = (),
        readers_in: str = "",
    ) -> None:
        if allow is None:
            allow = ("*",) if readers or readers_in else (USER,)
        allowed = (allow,) if isinstance(allow, str) else tuple(allow)
        seen_by = (readers,) if isinstance(readers, str) else tuple(readers)
        texts = cast("tuple[object, ...]", (tool, argument, *allowed, *seen_by))
        if not all(isinstance(each, str) and each for each in texts) or not isinstance(cast(object, readers_in), str):
            raise ConfigurationError(
                f"a sink has the names of a tool and an argument, sources, and readers; not {clip(repr(texts), 100)}",
                code="provenance/policy",
                hint='write Sink("send", "to", allow=["user", "directory"])',
            )
        try:
            check_readers(seen_by)
        except ValueError as error:
            raise ConfigurationError(str(error), code="provenance/policy", hint=_HINT) from None
        object.__setattr__(self, "tool", tool)
        object.__setattr__(self, "argument", argument)
        object.__setattr__(self, "allow", allowed)
        object.__setattr__(self, "readers", seen_by)
        object.__setattr__(self, "readers_in", readers_in)

    @property
    def is_for_readers(self) -> bool:
        """Whether the rule only names the readers of an argument, without restricting its sources."""
        return bool(self.readers or self.readers_in) and self.allow == ("*",)

    def refused(self, sources: Sources) -> Sources:
        """Those of ``sources`` that may not reach the argument."""
        return frozenset(
            [
                each
                for each in sources
                if not (is_restriction(each) or any([fnmatchcase(each, rule) for rule in self.allow]))
            ]
        )


_NOTHING_BUT_USER = Sink("*")


@frozen(kw_only=True)
class Provenance:
    """Which sources may reach which arguments: the policy of ``AgentFlow(provenance=...)``. With a policy, values carry
    their sources.

    ``rules`` hold for arguments; if several name one argument, all must allow. A rule for an argument replaces the tool's
    own declaration (``@tool(sinks={"to": "user"})``). ``default`` holds for tool arguments that neither names: ``"allow"``
    any source, or ``"deny"`` all but the user. ``sources`` renames the sources of tool results, by name or pattern:
    ``{"lookup_contact": "directory"}``. ``readers`` restricts who may see data of a source, by name or pattern:
    ``{"file:hr/*": ["*@hr.example", "payroll"]}``. A rule says who sees an argument (``Sink("send", readers_in="to")``);
    without one it is the tool itself, by its name, and for questions and messages ``ask-human`` and ``log-message``.
    Models, host functions and the result of the run may see everything unless a rule names their readers. ``capacity`` is
    the largest number of values that the schema of a task's answer may allow for the answer to have no sources, since it
    carries hardly any information: a number, or ``"enum"`` for 64; None, the default, for never. With ``strict``, the
    sources of a condition count for everything done or returned because of it: branches, loop rounds, the elements a filter
    keeps, the code after a call that may have failed. With ``explain`` nothing is denied: a denial becomes a warning,
    ``provenance/denied``.

    ``narrowed_by`` are further policies that must allow, for example the policy in a directory's settings. Raises
    ConfigurationError (``provenance/policy``) for any other default.
    """

    rules: Sequence[Sink] = ()
    default: Default = "allow"
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    explain: bool = False
    readers: Mapping[str, Sequence[str]] = field(default_factory=dict[str, Sequence[str]])
    capacity: int | Literal["enum"] | None = None
    strict: bool = False
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
        listed = {key: (each,) if isinstance(each, str) else tuple(each) for key, each in self.readers.items()}
        for each in listed.values():
            _only_for(each)
        object.__setattr__(self, "readers", MappingProxyType(listed))
        number = cast(object, ENUM if self.capacity == "enum" else self.capacity)
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
            raise ConfigurationError(
                f"capacity is a number of values, or enum, not {clip(repr(self.capacity), 80)}",
                code="provenance/policy",
                hint='capacity = "enum", or capacity = 16',
            )
        object.__setattr__(self, "capacity", number)

    @classmethod
    def from_table(cls, table: Mapping[str, Any], where: str = "the policy") -> Provenance:
        """A policy from the table of a TOML file: ``default``, ``capacity``, ``strict``, tables ``[[sink]]``, ``[sources]`` and ``[readers]``.

        Raises ConfigurationError (``provenance/policy``), which names ``where`` and the key.
        """
        unknown = [key for key in table if key not in ("default", "capacity", "sink", "sources", "readers", "strict")]
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
        if not isinstance(table.get("strict", False), bool):
            raise _malformed(where, "strict is true or false")
        readers: Any = table.get("readers", {})
        if not isinstance(readers, Mapping) or not all([_is_texts(each) for each in cast("Any", readers).values()]):
            raise _malformed(where, "readers is a table of lists of texts")
        rules: list[Sink] = []
        for each in cast("list[Mapping[str, Any]]", sinks):
            wrong = [key for key in each if key not in Sink.__match_args__]
            if wrong or "tool" not in each:
                raise _malformed(
                    where, f"a sink has no key '{clip(wrong[0], 60)}'" if wrong else "a sink names its tool"
                )
            rules.append(Sink(**each))
        return cls(
            rules=tuple(rules),
            default=table.get("default", "allow"),
            sources=cast("Any", renamed),
            readers=cast("Any", readers),
            capacity=table.get("capacity"),
            strict=table.get("strict", False),
        )

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Provenance:
        """The policy of a TOML file (see :meth:`from_table`). Raises ConfigurationError (``provenance/policy``), which names the file."""
        import tomllib

        try:
            table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise ConfigurationError(
                f"the policy {path} cannot be read: {error}", code="provenance/policy", hint=_HINT
            ) from error
        return cls.from_table(table, str(path))

    def narrowed(self, other: Provenance) -> Provenance:
        """A policy that allows the flows that both this one and ``other`` allow."""
        return replace(self, narrowed_by=(*self.narrowed_by, other))

    def source_of(self, tool: str, declared: str) -> str:
        """The source of a tool's result: from the policy, else from the tool's declaration, else ``tool:NAME``."""
        for pattern, source in self.sources.items():
            if fnmatchcase(tool, pattern):
                return source
        return declared or f"tool:{tool}"

    def refused(self, name: str, argument: str, sources: Sources, declared: Mapping[str, str] | None) -> Sources:
        """Those of ``sources`` that may not reach ``argument`` of ``name``.

        ``declared`` is the tool's own declaration for its arguments; None for a callable other than a tool: the default
        does not apply to it.
        """
        if not sources:
            return NO_SOURCES
        refused: Sources = NO_SOURCES
        for rule in self._rules(name, argument, declared):
            refused |= rule.refused(sources)
        for other in self.narrowed_by:
            refused |= other.refused(name, argument, sources, declared)
        return refused

    def hidden(
        self, name: str, argument: str, sources: Sources, arguments: Mapping[str, Any], *, tool: bool
    ) -> dict[str, list[str]]:
        """Those of ``sources`` that some reader of ``argument`` in a call of ``name`` may not see, each with those readers.

        Without a rule, a ``tool``, a question or a message is read under its own name; anything else has no readers.
        """
        policies = (self, *self.narrowed_by)
        lists = {
            each: [allowed for one in policies for allowed in allowed_readers(each, one.readers)] for each in sources
        }
        if not any(lists.values()):
            return {}
        said = [readers_of(one.rules, name, argument, arguments) for one in policies]
        readers = list(said[0] if said[0] is not None else (name,) if tool or name in SEEN_BY_PEOPLE else ())
        readers += [each for further in said[1:] for each in further or ()]
        kept = {source: kept_from(readers, allowed) for source, allowed in lists.items() if allowed}
        return {source: those for source, those in kept.items() if those}

    def restrictions(self, sources: Sources) -> Sources:
        """The readers of data from ``sources``, as sources that only carry readers."""
        lists = [allowed_readers(each, one.readers) for each in sources for one in (self, *self.narrowed_by)]
        return frozenset([only_for(allowed) for each in lists for allowed in each])

    @property
    def following(self) -> Following:
        """How programs are followed: strictly, if one of the policies in force says so."""
        return "strict" if any([one.strict for one in (self, *self.narrowed_by)]) else True

    @property
    def most_values(self) -> int:
        """The capacity as a number, the least of the policies that say one."""
        if self.capacity is None:
            return 0
        return min([cast(int, one.capacity) for one in (self, *self.narrowed_by) if one.capacity is not None])

    def sinks(
        self, name: str, arguments: Iterable[str], declared: Mapping[str, str] | None
    ) -> dict[str, tuple[str, ...]]:
        """The arguments of ``name`` closed to some source, with the sources that may reach each."""
        limited: dict[str, tuple[str, ...]] = {}
        for argument in arguments:
            rules = self._rules(name, argument, declared)
            for other in self.narrowed_by:
                rules += other._rules(name, argument, declared)
            if rules:
                allowed = frozenset(rules[0].allow).intersection(*[rule.allow for rule in rules]) - {USER}
                limited[argument] = (USER, *sorted(allowed))
        return limited

    def named_arguments(self, name: str) -> set[str]:
        """The arguments of ``name`` that rules name."""
        policies = (self, *self.narrowed_by)
        rules = [rule for one in policies for rule in one.rules if fnmatchcase(name, rule.tool)]
        return {rule.argument for rule in rules if rule.argument != "*"}

    def _rules(self, name: str, argument: str, declared: Mapping[str, str] | None) -> list[Sink]:
        """The rules for an argument; of the tool's own declaration and the default, the first that there is."""
        ours = [
            rule
            for rule in self.rules
            if not rule.is_for_readers and (rule.tool == name or fnmatchcase(name, rule.tool))
        ]
        exact = [rule for rule in ours if rule.argument == argument]
        rules = exact or [rule for rule in ours if rule.argument == "*"]
        if rules:
            return rules
        if declared is not None and argument in declared:
            return [Sink(name, argument, declared_sources(declared[argument]))]
        return [_NOTHING_BUT_USER] if declared is not None and self.default == "deny" else []


class PolicyInForce:
    """The policy of a flow's later runs, which you may set on an existing flow: checks, runs and forecasts all read it here."""

    __slots__ = ("following", "policy")

    def __init__(self, policy: Provenance | None = None) -> None:
        self.put(policy)

    def put(self, policy: Provenance | None) -> None:
        """Have later runs judged by ``policy``, and their values followed as it says."""
        self.policy = policy
        self.following: Following = False if policy is None else policy.following


def narrowing(table: Mapping[str, Any]) -> Provenance | None:
    """The policy of the table ``provenance`` of settings, which can only narrow another one; None for an empty table.

    Raises ConfigurationError (``provenance/policy``).
    """
    if "sources" in table:
        raise _malformed(
            "provenance", "settings cannot set the sources of tools: put sources into a policy file, or into the code"
        )
    return Provenance.from_table(table, "provenance") if table else None


def _only_for(readers: Iterable[str]) -> str:
    try:
        return only_for(readers)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(str(error), code="provenance/policy", hint=_HINT) from None


def _is_texts(value: object) -> bool:
    return isinstance(value, list) and all([isinstance(each, str) for each in cast("list[object]", value)])


def _malformed(where: str, message: str) -> ConfigurationError:
    return ConfigurationError(f"{where}: {message}", code="provenance/policy", hint=_HINT)


@frozen
class Denial:
    """A denial, or with ``explain`` a denial that would have happened: ``argument`` of ``name`` depends on ``sources``;
    those in ``refused`` may not reach it, or ``readers`` may not see them."""

    name: str
    argument: str
    sources: Sources
    refused: Sources
    readers: tuple[str, ...] = ()
