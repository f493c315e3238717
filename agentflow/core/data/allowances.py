"""The allowances of purses, and their balances."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from fnmatch import fnmatchcase
from math import isfinite
from typing import Any, cast

from agentflow.core.data.durations import seconds_of
from agentflow.core.data.errors import ConfigurationError, clip, cut
from agentflow.core.data.frozen import frozen
from agentflow.core.data.limits import NANO

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,199}")
_PATTERN = re.compile(r"[A-Za-z0-9*?._:@+-]{1,200}")


@frozen(kw_only=True)
class Allowance:
    """The limits of a purse in each of its periods: ``Allowance(usd=5, per="1d")``.

    Raises ConfigurationError (``config/purse``) without any limit, and for an invalid limit or period.
    """

    usd: float | None = None
    """US dollars, or None for no limit; models without a price are not called then."""
    tokens: int | None = None
    """Input and output tokens, or None for no limit."""
    model_calls: int | None = None
    """Model calls, or None for no limit."""
    per: str | None = None
    """The length of a period: ``1h``, ``1d``, ``30d``. Periods are counted from the beginning of 1970 in UTC, so that those of
    one day begin at midnight. None: there is one period, without an end."""

    def __post_init__(self) -> None:
        for name, example in (("usd", 5), ("tokens", 100_000), ("model_calls", 20)):
            value: object = getattr(self, name)
            if value is not None and not _is_limit(value, whole=name != "usd"):
                kind = "a number" if name == "usd" else "a whole number"
                raise _wrong(
                    f"Allowance({name}={clip(repr(value), 80)}): the limit is {kind} that is not negative, or None",
                    f"for example Allowance({name}={example}, per='1d')",
                )
        if self.usd is None and self.tokens is None and self.model_calls is None:
            raise _wrong(
                "an Allowance without usd=, tokens= or model_calls= limits nothing",
                "for example Allowance(usd=5, per='1d')",
            )
        if self.per is not None:
            self.seconds  # noqa: B018 - raises for an invalid length of time

    @property
    def seconds(self) -> float | None:
        """The length of a period in seconds; None if there is one period only."""
        per = cast(object, self.per)
        if per is None:
            return None
        try:
            return seconds_of(per) if isinstance(per, str) else _no_length(per)
        except ValueError as error:
            raise _wrong(f"Allowance(per={clip(repr(per), 80)}): {error}", "for example per='1d', or '12h'") from None

    def starts(self, now: float) -> float:
        """The beginning of the period of the unix time ``now``, in unix seconds."""
        seconds = self.seconds
        return 0.0 if seconds is None else now // seconds * seconds

    def ends(self, now: float) -> float | None:
        """The end of the period of the unix time ``now``, in unix seconds; None if it never ends."""
        seconds = self.seconds
        return None if seconds is None else (now // seconds + 1.0) * seconds


def _is_limit(value: object, *, whole: bool) -> bool:
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        return False
    return isfinite(value) and value >= 0


def _no_length(per: object) -> float:
    raise ValueError(f"{type(per).__name__} is not a duration")


@frozen(kw_only=True)
class Spending:
    """An amount of model calls with their cost: ``usd`` dollars, ``tokens``, ``model_calls``."""

    usd: float = 0.0
    tokens: int = 0
    model_calls: int = 0

    def __bool__(self) -> bool:
        return bool(self.usd or self.tokens or self.model_calls)

    def __add__(self, other: Spending) -> Spending:
        return Spending(
            usd=(round(self.usd * NANO) + round(other.usd * NANO)) / NANO,
            tokens=self.tokens + other.tokens,
            model_calls=self.model_calls + other.model_calls,
        )

    def __sub__(self, other: Spending) -> Spending:
        return self + Spending(usd=-other.usd, tokens=-other.tokens, model_calls=-other.model_calls)


@frozen(kw_only=True)
class PurseBalance:
    """A purse in its present period: its ``name`` and ``allowance``, the amounts ``spent`` and ``reserved``.

    ``reserved`` is set aside for calls in progress, which usually cost less; in a database it includes the reservations of
    other processes. Those of a process that died count as spent. ``ends_at`` is when the period ends, in unix seconds;
    None: never.
    """

    name: str
    allowance: Allowance
    spent: Spending
    reserved: Spending
    ends_at: float | None = None

    @property
    def usd_left(self) -> float | None:
        """US dollars neither spent nor reserved; None without a limit."""
        if self.allowance.usd is None:
            return None
        return max(0.0, (Spending(usd=self.allowance.usd) - self.spent - self.reserved).usd)

    @property
    def tokens_left(self) -> int | None:
        """Tokens neither spent nor reserved; None without a limit."""
        limit = self.allowance.tokens
        return None if limit is None else max(0, limit - self.spent.tokens - self.reserved.tokens)

    @property
    def model_calls_left(self) -> int | None:
        """Model calls neither made nor in progress; None without a limit."""
        limit = self.allowance.model_calls
        return None if limit is None else max(0, limit - self.spent.model_calls - self.reserved.model_calls)


@frozen(kw_only=True)
class PurseGrant:
    """A loan to a process from a purse: ``granted``, less than the request if no more is left.

    ``spent`` is the spending of all other leases in the period, with all that ended and those of processes that died. With
    ``later`` nothing is granted, but other processes will return some.
    """

    granted: Spending
    spent: Spending
    later: bool = False


@frozen(kw_only=True)
class PurseUse:
    """The use of the purse ``name`` in the period from ``starts`` to ``ends`` (None: without an end): ``spent``, as in :class:`PurseGrant`, and
    the amount that living processes have ``leased``; this one leases ``mine`` of it."""

    name: str
    starts: float
    ends: float | None
    spent: Spending
    leased: Spending
    mine: Spending


class AllowanceTable:
    """Allowances by the name of a purse or a pattern of names; the most specific one counts.

    Raises ConfigurationError (``config/purse``) for an invalid name, and for a value other than an Allowance.
    """

    def __init__(self, table: object) -> None:
        if not isinstance(table, Mapping):
            raise _wrong(
                f"Purses({cut(repr(table), 80)}): allowances are a dict of names or patterns",
                "for example Purses({'user-*': Allowance(usd=5, per='1d')})",
            )
        self._rows: dict[str, Allowance] = {}
        for name, allowance in cast("Mapping[object, object]", table).items():
            self.put(name, allowance)

    def put(self, pattern: object, allowance: object) -> None:
        """Add an allowance, or replace that of the same pattern."""
        if not isinstance(pattern, str) or not _PATTERN.fullmatch(pattern):
            raise _wrong(
                f"{cut(repr(pattern), 120)} names no purse: names and patterns have letters, digits and . _ : @ + - * ?",
                "for example 'user-*', or '*' for every purse",
            )
        if not isinstance(allowance, Allowance):
            raise _wrong(
                f"the allowance of '{cut(pattern, 80)}' is {cut(repr(allowance), 80)}, which is not an Allowance",
                f"for example {{{pattern!r}: Allowance(usd=5, per='1d')}}",
            )
        self._rows[pattern] = allowance

    def of(self, name: str) -> Allowance | None:
        """The allowance of a purse: that of its own name, else that of the matching pattern with the most literal text."""
        own = self._rows.get(name)
        if own is not None:
            return own
        fitting = [pattern for pattern in self._rows if fnmatchcase(name, pattern)]
        return self._rows[max(fitting, key=_literal)] if fitting else None

    @property
    def patterns(self) -> list[str]:
        """The names and patterns, in the order they were added."""
        return list(self._rows)


def read_allowances(table: Mapping[str, Any]) -> dict[str, Allowance]:
    """Allowances from a table of names or patterns, each with a table of the fields of an Allowance.

    Raises ConfigurationError (``config/purse``) for an unknown field, and as :class:`AllowanceTable`.
    """
    names = [field.name for field in fields(Allowance)]
    allowances: dict[str, Allowance] = {}
    for pattern, row in table.items():
        shown = f"the allowance of '{cut(pattern, 80)}'"
        if not isinstance(row, Mapping):
            raise _wrong(f"{shown} is not a table", 'for example "user-*" = { usd = 5, per = "1d" }')
        stated = cast("Mapping[str, Any]", row)
        wrong = next((name for name in stated if name not in names), None)
        if wrong is not None:
            raise _wrong(f"{shown} has no '{cut(wrong, 80)}'", f"an allowance has {', '.join(names)}")
        allowances[pattern] = Allowance(**stated)
    AllowanceTable(allowances)
    return allowances


def _literal(pattern: str) -> int:
    return len(pattern) - pattern.count("*") - pattern.count("?")


def check_purse_name(name: object) -> str:
    """``name`` if it can be that of a purse. Raises ConfigurationError (``config/purse``)."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _wrong(
            f"purse={clip(repr(name), 120)}: the name of a purse is 1 to 200 letters, digits and . _ : @ + -",
            "for example purse='user-42'",
        )
    return name


def _wrong(message: str, hint: str) -> ConfigurationError:
    return ConfigurationError(message, code="config/purse", hint=hint)
