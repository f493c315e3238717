"""Keys of a server: the rights and limits of their holders.

The limits of a key apply to all of its runs together: the number at once and per minute, and the tokens and money of its
model calls per day, kept in its purse. The keys file holds digests only, so that reading it does not enable calls.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from agentflow.core.data.allowances import Allowance
from agentflow.core.data.errors import ConfigurationError, PurseEmpty, cut
from agentflow.core.data.frozen import frozen
from agentflow.core.data.limits import Rate
from agentflow.core.events.questions import Question
from agentflow.core.ports.store_ports import PurseStore
from agentflow.lib.text.suggest import did_you_mean
from agentflow.providers.rates import Bucket
from agentflow.run.purses import Purse
from agentflow.serve.error_responses import RequestError

KEY_IN_SCOPE = "agentflow.key"
"""Where the ASGI scope of an admitted request has its :class:`Key`, for handlers that see nothing else of it."""
APPROVAL_TTL = 900.0
"""Seconds that a run waits for an answer before it is denied."""
_DIGEST_END = 16
"""Number of characters of a key's digest that its purse is named by."""
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,99}")
_PREFIX = "af-"


@frozen(kw_only=True)
class KeyRules:
    """The rights and limits of a key; None is unlimited.

    ``digest`` is the digest of the key, ``exports`` are those it may call (None: all), ``programs``: whether it may send
    its own programs; ``fleet``: whether it may watch, answer and cancel all runs, also those of other keys and of workers
    that share the flow's database; ``concurrent`` runs at once, ``runs_per_min``; ``tokens_per_day`` and ``usd_per_day`` of
    all model calls, per day in UTC.
    """

    digest: str
    exports: tuple[str, ...] | None = None
    programs: bool = False
    fleet: bool = False
    concurrent: int | None = None
    runs_per_min: float | None = None
    tokens_per_day: int | None = None
    usd_per_day: float | None = None


class AdmittedRun:
    """An admitted run: ``purse`` pays for it, if its key has limits per day. Free it when the run has ended."""

    def __init__(self, key: Key) -> None:
        self._key: Key | None = key
        self.purse = key.purse
        self.approval_ttl = key.approval_ttl

    def free(self) -> None:
        """Release the admission. Idempotent."""
        if self._key is not None:
            self._key.active -= 1
            self._key = None


class Key:
    """A key in use: ``active`` is the number of its runs. ``rules`` None stands for anybody who can reach a server without keys.

    Questions of its runs stay open for ``approval_ttl`` seconds (None: for as long as the flow's setting says). ``fleet`` says
    for such a server whether it shows all runs of its database.
    """

    def __init__(
        self,
        name: str,
        rules: KeyRules | None = None,
        *,
        approval_ttl: float | None = None,
        fleet: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.name = name
        self._fleet = fleet
        self.rules = rules
        self.active = 0
        self._clock = clock
        self.approval_ttl = approval_ttl
        pace = rules.runs_per_min if rules is not None else None
        self._bucket = None if pace is None else Bucket(Rate(requests_per_min=pace))
        self.purse: Purse | None = None if rules is None else _purse(name, rules, clock)

    def may_call(self, export: str) -> bool:
        """Whether the key may call ``export``."""
        return self.rules is None or self.rules.exports is None or export in self.rules.exports

    @property
    def may_send_programs(self) -> bool:
        """Whether the key may send programs to run."""
        return self.rules is None or self.rules.programs

    def may_answer(self, question: Question) -> bool:
        """Whether the key may answer a question of its own runs: a limit is raised by the host, and by keys of the fleet."""
        return question.reason != "limit" or self.may_see_fleet

    @property
    def may_see_fleet(self) -> bool:
        """Whether the key may watch, answer and cancel runs that it did not begin."""
        return self._fleet if self.rules is None else self.rules.fleet

    @property
    def may_see_host(self) -> bool:
        """Whether the key may see the host: the Python of its workflows, and problems in its settings."""
        return self.may_see_fleet

    async def open(self, store: PurseStore | None) -> None:
        """Keep the spending of the key in ``store`` (None: in memory), where it may have spent before. Raises JournalError."""
        if self.purse is not None and store is not None:
            self.purse.keep_in(store)
            await self.purse.load()

    def wait_for(self, error: BaseException | None) -> float | None:
        """Seconds until the purse that ended a run with ``error`` has a new period; None for any other error."""
        if not isinstance(error, PurseEmpty) or error.ends_at is None:
            return None
        return max(0.0, error.ends_at - self._clock())

    def admit(self) -> AdmittedRun:
        """Count a run that starts now. Raises RequestError (429) if a limit of the key forbids it."""
        rules, now = self.rules, self._clock()
        if rules is not None and rules.concurrent is not None and self.active >= rules.concurrent:
            raise RequestError(
                f"the key '{self.name}' has {self.active} active runs; its limit is {rules.concurrent}",
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
                    f"the key '{self.name}' may start {rules.runs_per_min:g} runs per minute",
                    code="serve/rate",
                    status=429,
                    hint=f"wait {delay:.0f} s",
                    retry_after=delay,
                )
            self._bucket.take(now, 0)
        return self.readmit()

    def readmit(self) -> AdmittedRun:
        """Count a run that an earlier server admitted."""
        self.active += 1
        return AdmittedRun(self)

    def spent_today(self, error: PurseEmpty) -> RequestError:
        """The refusal for a used-up daily limit; it says when the limit is reset."""
        left = self.wait_for(error) or 0.0
        return RequestError(
            error.message,
            code=error.code,
            status=429,
            hint=f"the limit is reset at midnight UTC, in {left / 3600:.1f} h",
            retry_after=left,
        )


def _purse(name: str, rules: KeyRules, clock: Callable[[], float]) -> Purse | None:
    """The purse of a key with limits per day. One with the same name and another digest counts separately, and no run can
    name it: names of purses have no blanks."""
    if rules.tokens_per_day is None and rules.usd_per_day is None:
        return None
    allowance = Allowance(tokens=rules.tokens_per_day, usd=rules.usd_per_day, per="1d")
    return Purse(f"key {name} {rules.digest[-_DIGEST_END:]}", allowance, clock=clock, whose=f"the key '{name}'")


class Keys:
    """The keys of a server."""

    def __init__(self, keys: Iterable[Key]) -> None:
        self._keys = [(bytes.fromhex(_hex(key)), key) for key in keys]

    def find(self, token: str) -> Key | None:
        """The key for ``token``, or None; every digest is compared, so that timing reveals nothing."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        fitting: Key | None = None
        for expected, key in self._keys:
            if hmac.compare_digest(expected, digest):
                fitting = key
        return fitting

    def __iter__(self) -> Any:
        return iter([key for _, key in self._keys])


def _hex(key: Key) -> str:
    assert key.rules is not None
    return key.rules.digest.removeprefix("sha256:")


def digest_of(token: str) -> str:
    """The digest of a key, as stored in the keys file."""
    return f"sha256:{hashlib.sha256(token.encode('utf-8', 'surrogatepass')).hexdigest()}"


def new_key(name: str) -> tuple[str, str]:
    """Create a key; return it, and its table for the keys file. Raises ConfigurationError (``serve/keys``) for an invalid name."""
    if _NAME.fullmatch(name) is None:
        raise _wrong(f"{cut(name, 80)!r} is not a valid name of a key", "letters, digits and . _ @ -, for example ada")
    token = _PREFIX + secrets.token_urlsafe(32)
    return token, f'[keys."{name}"]\ndigest = "{digest_of(token)}"\n'


def read_keys(path: str | Path, *, approval_ttl: float | None = None, clock: Callable[[], float] = time.time) -> Keys:
    """Read the keys of a TOML file: tables ``[keys.NAME]`` with the fields of :class:`KeyRules`.

    ``approval_ttl`` is that of each :class:`Key`, ``clock`` returns unix seconds. Blocking: call it before a server starts.
    Raises ConfigurationError (``serve/keys``).
    """
    try:
        data = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise _wrong(f"the keys cannot be read from {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise _wrong(f"{path} is not valid TOML: {error}") from error
    tables = data.get("keys")
    if not isinstance(tables, dict) or not tables or set(data) != {"keys"}:
        raise _wrong(f"{path} holds no keys", 'write [keys.ada] and below it digest = "sha256:..."')
    rows = cast("dict[str, Any]", tables)
    return Keys([Key(name, _rules(name, row), approval_ttl=approval_ttl, clock=clock) for name, row in rows.items()])


def _rules(name: str, row: object) -> KeyRules:
    where = f"the key '{cut(name, 80)}'"
    if _NAME.fullmatch(name) is None or not isinstance(row, dict):
        raise _wrong(f"{where} is not a named table", "write [keys.ada]; a name has letters, digits and . _ @ -")
    values = dict(cast("dict[str, Any]", row))
    valid = {field.name for field in fields(KeyRules)}
    for unknown in values.keys() - valid:
        hint = did_you_mean(unknown, valid) or f"the fields are {', '.join(sorted(valid))}"
        raise _wrong(f"{where} has no field '{unknown}'", hint)
    digest = values.get("digest")
    if not isinstance(digest, str) or _DIGEST.fullmatch(digest) is None:
        raise _wrong(f"{where} has no digest", "agentflow serve --new-key NAME creates a key and prints its table")
    exports = values.get("exports")
    if exports is not None:
        if not isinstance(exports, list) or not all(isinstance(each, str) for each in cast("list[Any]", exports)):
            raise _wrong(f"{where}: exports must be a list of names", 'for example exports = ["review"]')
        values["exports"] = tuple(cast("list[str]", exports))
    for field in ("programs", "fleet"):
        if not isinstance(values.get(field, False), bool):
            raise _wrong(f"{where}: {field} must be true or false")
    for field, kind in (
        ("concurrent", int),
        ("runs_per_min", int | float),
        ("tokens_per_day", int),
        ("usd_per_day", int | float),
    ):
        value = values.get(field)
        if value is not None and (isinstance(value, bool) or not isinstance(value, kind) or not value > 0):
            raise _wrong(f"{where}: {field} must be a positive number, not {value!r}")
    return KeyRules(**values)


def _wrong(message: str, hint: str | None = None) -> ConfigurationError:
    return ConfigurationError(message, code="serve/keys", hint=hint)
