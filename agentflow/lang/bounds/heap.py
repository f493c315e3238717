"""Lists, dicts and sets of a text in Python, which may change after they are created.

A *site* is a node of the text, or a value from outside of it, that creates containers. The facts about a new container are
kept only if nothing in the whole text changes a container of its site. For a site that changes, everything ever put in is
joined, and the length is the initial length plus all growth. An analysis is therefore repeated until no site changes that
the previous pass took to be steady: each site that does is noted in ``found``, where the next pass begins.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

from agentflow.core.data.frozen import frozen
from agentflow.lang.bounds.cost import FREE, GROWN, Cost, Effects
from agentflow.lang.bounds.polynomial import UNBOUNDED, ZERO, Bound
from agentflow.lang.bounds.values import DATA, FOREIGN, NEVER, Value

NOWHERE: frozenset[Hashable] = frozenset()
"""The sites of a value other than a container."""
_DEEPEST = 8


@dataclass(slots=True)
class Changes:
    """The changing sites: the values put in and the growth of each; ``all``: any container may change."""

    contents: dict[Hashable, Value] = field(default_factory=dict[Hashable, Value])
    growth: dict[Hashable, Bound] = field(default_factory=dict[Hashable, Bound])
    all: bool = False

    @property
    def given(self) -> frozenset[str] | None:
        """The variables from outside with a container that changes; None for any."""
        if self.all:
            return None
        return frozenset(site.name for site in self.contents if isinstance(site, Given))


@frozen
class Given:
    """The site of the value of a variable from outside."""

    name: str


class Heap:
    """The containers of one pass of the analysis: ``known`` has the findings of earlier passes, ``found`` those of this one."""

    def __init__(self, earlier: Changes) -> None:
        self.known = earlier
        self.found = Changes(all=earlier.all)
        self.lost: set[Hashable] = set()
        self._numbers: dict[Hashable, int] = {}

    def made(self, site: Hashable, value: Value) -> Value:
        """A container of this form, created at ``site``."""
        if self.known.all:
            return FOREIGN
        here = frozenset({site})
        if site not in self.known.contents:
            return value.made_at(here)
        item = self.known.contents[site]
        if value.size != ZERO:
            item = item.join(value.element())
        size, growth = value.length, self.known.growth.get(site, ZERO)
        if size is not None:
            size = None if growth.terms is None else size + growth
        return Value(foreign=value.foreign, size=size, item=item, sites=here)

    def given(self, site: Hashable, value: Value) -> Value:
        """A value from outside: the value and its parts share one site."""
        if self.known.all:
            return FOREIGN
        here = frozenset({site})
        if site in self.known.contents:
            growth, size = self.known.growth.get(site, ZERO), value.length
            size = None if size is None or growth.terms is None else size + growth
            return FOREIGN.but(sites=here, size=size)
        return _at(value, here, 0)

    def keeps(self, value: Value) -> bool:
        """Whether nothing changes the containers that a value may be, so that the length stays the same."""
        return not self.known.all and value.sites is not None and not value.sites & self.known.contents.keys()

    def change(self, value: Value, put: Value = NEVER, more: Bound | None = ZERO) -> Cost:
        """``put`` is added to a container, which grows by ``more`` elements (None: by an unknown number)."""
        if value.never:
            return FREE
        if value.sites is None:
            self.found.all = True
            return FREE
        counts: dict[str, Bound] = {}
        for site in value.sites:
            before = self.found.contents.get(site, NEVER)
            self.found.contents[site] = before if put.never else before.join(_put(put))
            if more != ZERO:
                counts[self._key(site)] = UNBOUNDED if more is None else more
        return Cost({(): Effects(counts)}) if counts else FREE

    def handed(self, value: Value) -> None:
        """A value is passed to code that may change it, and every container in it, in any way."""
        sites = value.all_sites
        if sites is None:
            self.found.all = True
            return
        for site in sites:
            self.found.contents[site] = FOREIGN
            self.lost.add(site)

    def settled(self, counts: Mapping[str, Bound], passes: int) -> bool:
        """Whether this pass found nothing new; if it did, ``known`` is set for the next pass.

        ``counts`` are those of the whole program, ``passes`` the number of earlier passes.
        """
        earlier, latest = self.known, self.found
        if earlier.all:
            return True
        if latest.all or passes >= _LAST:
            self.known = Changes(all=True)
            return False
        grown = {
            site: UNBOUNDED if site in self.lost else counts.get(self._key(site), ZERO) for site in latest.contents
        }
        news = Changes()
        for site, put in latest.contents.items():
            before = earlier.contents.get(site)
            news.contents[site] = put if before is None else before.join(put)
            if before is not None and news.contents[site] != before and passes >= _WIDENED:
                news.contents[site] = FOREIGN if passes > _WIDENED else _spread(news.contents[site])
            growth, was = grown[site], earlier.growth.get(site)
            if (was is not None and was != growth and passes >= _WIDENED) or _symbolic(growth):
                growth = UNBOUNDED
            news.growth[site] = growth if was is None or was.terms is not None else UNBOUNDED
        for site, before in earlier.contents.items():
            news.contents.setdefault(site, before)
            news.growth.setdefault(site, earlier.growth[site])
        if news.contents == earlier.contents and news.growth == earlier.growth:
            return True
        self.known = news
        return False

    def _key(self, site: Hashable) -> str:
        return f"{GROWN}{self._numbers.setdefault(site, len(self._numbers))}"


_WIDENED = 4
"""The pass from which a site that still changes may hold anything."""
_LAST = 12
"""The pass from which any container may change."""


def _symbolic(bound: Bound) -> bool:
    """Whether a bound refers to sizes within a call, which mean nothing outside of it."""
    return any(name.startswith("\0") for name in bound.sizes)


def _at(value: Value, sites: frozenset[Hashable], depth: int) -> Value:
    if depth > _DEEPEST:
        return (FOREIGN if value.holds_procedures else DATA).made_at(sites)
    fields = value.fields
    if value.item is None and fields is None:
        return value.made_at(sites)
    return value.but(
        sites=sites,
        item=None if value.item is None else _at(value.item, sites, depth + 1),
        fields=None if fields is None else {key: _at(each, sites, depth + 1) for key, each in fields.items()},
    )


def _put(value: Value) -> Value:
    """A value put into a changing container, without facts that hold only within the call that put it in."""
    return _spread(value) if _within_call(value, 0) else value.unmarked().but(low=None, high=None, exactly=None)


def _within_call(value: Value, depth: int) -> bool:
    """Whether a value, or a part of it, refers to sizes or parameters of a call."""
    parts = [*(value.fields or {}).values(), *([value.item] if value.item else [])]
    own = bool(value.marks or value.length_of) and depth > 0
    sizes = value.size is not None and _symbolic(value.size)
    return own or sizes or depth > _DEEPEST or any(_within_call(each, depth + 1) for each in parts)


def _spread(value: Value) -> Value:
    """The parts and sites of a value, without its form."""
    within = FOREIGN if value.holds_procedures else DATA
    return value.plain().but(item=within.but(sites=value.all_sites), sites=value.all_sites)


def scalar(value: Value) -> Value:
    """A value other than a container."""
    return value.made_at(NOWHERE)


def size_of_texts(value: Value) -> Bound | None:
    """The length of the longest text that a value may be; None if it may be any text."""
    return None if value.texts is None else Bound.of(max((len(each) for each in value.texts), default=0))
