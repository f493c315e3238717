"""Keys of a server: who may do what, and how much of it.

A key is a tenant. Its limits bound all of its runs together: how many there are at once and a minute, and what their model
calls use in a day, which is set aside before each call. The file of the keys holds digests, so whoever reads it can call nobody.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from agentflow.core.errors import ConfigurationError, LimitExceeded, cut
from agentflow.core.limits import Limits, Rate
from agentflow.lib.suggest import did_you_mean
from agentflow.providers.rates import Bucket
from agentflow.runtime.reservation import RunPurse
from agentflow.runtime.tenant import Tenant
from agentflow.serve.faults import RequestError

APPROVAL_TTL = 900.0
"""Seconds for which a run waits for an answer before it is denied."""
_DAY_S = 86_400
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")
_PREFIX = "af-"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyRules:
    """What the holder of a key may do; None is unlimited.

    ``digest`` is that of the key, ``exports`` what it may call (None: all), ``programs`` whether it may send programs of its
    own; ``concurrent`` runs at once, ``runs_per_min``, and ``tokens_per_day`` and ``usd_per_day`` of all model calls, the
    days being those of UTC.
    """

    digest: str
    exports: tuple[str, ...] | None = None
    programs: bool = False
    concurrent: int | None = None
    runs_per_min: float | None = None
    tokens_per_day: int | None = None
    usd_per_day: float | None = None


class Admission:
    """A run that a key was admitted with: ``tenant`` is whom it is done for. To be given back when it has ended."""

    def __init__(self, key: Key, tenant: Tenant) -> None:
        self._key: Key | None = key
        self.tenant = tenant

    def free(self) -> None:
        """Give the place back. Later calls do nothing."""
        if self._key is not None:
            self._key.active -= 1
            self._key = None


class Key:
    """A key in use: ``active`` is the number of its runs. ``rules`` None is whoever can reach a server without keys.

    Questions of its runs stay open for ``approval_ttl`` seconds; None is as long as the flow says.
    """

    def __init__(
        self,
        name: str,
        rules: KeyRules | None = None,
        *,
        approval_ttl: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self.rules = rules
        self.active = 0
        self._clock = clock
        self.approval_ttl = approval_ttl
        pace = rules.runs_per_min if rules is not None else None
        self._bucket = None if pace is None else Bucket(Rate(requests_per_min=pace))
        self._day = -1
        self._purse: RunPurse | None = None

    def may_call(self, export: str) -> bool:
        """Whether the key may call an export."""
        return self.rules is None or self.rules.exports is None or export in self.rules.exports

    @property
    def may_send_programs(self) -> bool:
        """Whether the key may have programs of its own run."""
        return self.rules is None or self.rules.programs

    @property
    def day(self) -> int:
        """The day, counted from 1970, in UTC."""
        return int(self._clock() // _DAY_S)

    @property
    def day_left(self) -> float:
        """Seconds until midnight UTC, when what a day may use is counted anew."""
        return _DAY_S - self._clock() % _DAY_S

    @property
    def purse(self) -> RunPurse | None:
        """What the key may still spend today: runs count for the day on which they began."""
        rules = self.rules
        if rules is None or (rules.tokens_per_day is None and rules.usd_per_day is None):
            return None
        day = self.day
        if day != self._day:
            limits = Limits(tokens=rules.tokens_per_day, usd=rules.usd_per_day)
            self._day, self._purse = day, RunPurse(limits, whose=f"the key '{self.name}'")
        return self._purse

    def admit(self) -> Admission:
        """Count a run that begins now. Raises RequestError (429) when a limit of the key forbids it."""
        rules, now = self.rules, self._clock()
        if rules is not None and rules.concurrent is not None and self.active >= rules.concurrent:
            raise RequestError(
                f"the key '{self.name}' has {self.active} runs at work, and may have {rules.concurrent}",
                code="serve/concurrent",
                status=429,
                hint="wait until one of them has ended, or cancel one",
                retry_after=1,
            )
        purse = self.purse
        if purse is not None and (spent := purse.spent_up()) is not None:
            raise self.spent_today(spent)
        if self._bucket is not None:
            if delay := self._bucket.delay(now):
                assert rules is not None
                raise RequestError(
                    f"the key '{self.name}' may begin {rules.runs_per_min:g} runs a minute",
                    code="serve/rate",
                    status=429,
                    hint=f"wait {delay:.0f} s",
                    retry_after=delay,
                )
            self._bucket.take(now, 0)
        return self.readmit()

    def readmit(self) -> Admission:
        """Count a run that was admitted before, by a server that is no more."""
        self.active += 1
        return Admission(self, Tenant(self.purse, self.approval_ttl))

    def spent_today(self, error: LimitExceeded) -> RequestError:
        """The refusal that says when a day's tokens or money are there again."""
        left = self.day_left
        return RequestError(
            error.message,
            code="limits/tenant",
            status=429,
            hint=f"it is counted anew at midnight UTC, in {left / 3600:.1f} h",
            retry_after=left,
        )


class Keys:
    """The keys of a server."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._keys = [(bytes.fromhex(_hex(key)), key) for key in keys]

    def find(self, token: str) -> Key | None:
        """The key that ``token`` is; every digest is compared, whichever fits, so that the time says nothing."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        fitting: Key | None = None
        for known, key in self._keys:
            if hmac.compare_digest(known, digest):
                fitting = key
        return fitting

    def __iter__(self) -> Any:
        return iter([key for _, key in self._keys])


def _hex(key: Key) -> str:
    assert key.rules is not None
    return key.rules.digest.removeprefix("sha256:")


def digest_of(token: str) -> str:
    """The digest of a key, as the file of the keys has it."""
    return f"sha256:{hashlib.sha256(token.encode('utf-8', 'surrogatepass')).hexdigest()}"


def new_key(name: str) -> tuple[str, str]:
    """A new key, and the table for the file of the keys. Raises ConfigurationError (``serve/keys``) for what is no name."""
    if _NAME.fullmatch(name) is None:
        raise _wrong(f"{cut(name, 80)!r} is no name of a key", "letters, digits and . _ @ -, for example ada")
    token = _PREFIX + secrets.token_urlsafe(32)
    return token, f'[keys."{name}"]\ndigest = "{digest_of(token)}"\n'


def read_keys(path: str | Path, *, approval_ttl: float | None = None, clock: Callable[[], float] = time.time) -> Keys:
    """The keys of a TOML file: tables ``[keys.NAME]`` with the fields of :class:`KeyRules`.

    Blocking, for when a server starts. Raises ConfigurationError (``serve/keys``).
    """
    try:
        data = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise _wrong(f"the keys cannot be read from {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise _wrong(f"{path} is no TOML: {error}") from error
    tables = data.get("keys")
    if not isinstance(tables, dict) or not tables or set(data) != {"keys"}:
        raise _wrong(f"{path} holds no keys", 'write [keys.ada] and below it digest = "sha256:..."')
    rows = cast("dict[str, Any]", tables)
    return Keys([Key(name, _rules(name, row), approval_ttl=approval_ttl, clock=clock) for name, row in rows.items()])


def _rules(name: str, row: object) -> KeyRules:
    where = f"the key '{cut(name, 80)}'"
    if _NAME.fullmatch(name) is None or not isinstance(row, dict):
        raise _wrong(f"{where} is no table with a name", "write [keys.ada]; a name has letters, digits and . _ @ -")
    values = dict(cast("dict[str, Any]", row))
    known = {field.name for field in fields(KeyRules)}
    for unknown in values.keys() - known:
        hint = did_you_mean(unknown, known) or f"it has {', '.join(sorted(known))}"
        raise _wrong(f"{where} has no field '{unknown}'", hint)
    digest = values.get("digest")
    if not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None:
        raise _wrong(f"{where} has no digest", "agentflow serve --new-key NAME makes a key and prints its table")
    exports = values.get("exports")
    if exports is not None:
        if not isinstance(exports, list) or not all(isinstance(each, str) for each in cast("list[Any]", exports)):
            raise _wrong(f"{where}: exports are a list of names", 'for example exports = ["review"]')
        values["exports"] = tuple(cast("list[str]", exports))
    if not isinstance(values.get("programs", False), bool):
        raise _wrong(f"{where}: programs is true or false")
    for field, kind in (
        ("concurrent", int),
        ("runs_per_min", int | float),
        ("tokens_per_day", int),
        ("usd_per_day", int | float),
    ):
        value = values.get(field)
        if value is not None and (isinstance(value, bool) or not isinstance(value, kind) or not value > 0):
            raise _wrong(f"{where}: {field} is a positive number, not {value!r}")
    return KeyRules(**values)


def _wrong(message: str, hint: str | None = None) -> ConfigurationError:
    return ConfigurationError(message, code="serve/keys", hint=hint)


__all__ = ["APPROVAL_TTL", "Admission", "Key", "KeyRules", "Keys", "digest_of", "new_key", "read_keys"]
