"""Secrets: a type never printed, and redaction of texts that leave the process.

:class:`Secret` wraps a value that must not be printed. A :class:`Redactor` knows the secrets in use and the formats of
keys (:mod:`agentflow.lib.redact`); texts of events, logs, exceptions and journal records go through it, structured
data through :mod:`agentflow.lib.redacted_copy`.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from string import ascii_letters, digits
from typing import Any, NoReturn
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from agentflow.core.data.walk import CHARACTERS_PER_STEP, LONG_TEXT, Work
from agentflow.lib.text.late_pattern import late_pattern

MIN_SECRET = 6
"""Length of the shortest secret searched for: a shorter one would redact ordinary words."""
MIN_NAMED = 8
"""Minimum length of a value that counts as a secret because of its variable's name."""

_TOKEN_CHARACTERS = f"{ascii_letters}{digits}_-."
_CUT_KEY = 8
"""Minimum number of characters after its prefix for the rest of a cut key to count as one."""

_SECRET_WORDS = frozenset({
    "apikey", "auth", "cred", "creds", "credential", "credentials", "dsn", "jwt", "key", "keys", "pass", "passphrase",
    "passwd", "password", "pat", "pwd", "secret", "secrets", "token", "tokens",
})  # fmt: skip
"""Words that mark a variable as secret, anywhere in its name."""
_PLAIN_WORDS = frozenset({"dir", "directory", "file", "id", "name", "path", "sock", "type"})
"""Last words of a name that mark it as harmless: the variable only refers to a secret."""
_WORKING_DIRECTORY = "PWD"
"""The shell's own variable; redacting its value would hide the path of every file below it."""
_NAME_WORDS = late_pattern(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_USER_INFO = late_pattern(r"[A-Za-z][A-Za-z0-9+.\-]*://(?P<user>[^/@\s:]*)(?::(?P<password>[^/\s]*))?@")
_TOKEN = r"[A-Za-z0-9_\-]"
# the prefix of a key, and the pattern of the whole key; a stream holds text back from such a prefix on
_KEYS: tuple[tuple[str, str], ...] = (
    ("sk-", rf"sk-(?:[a-z]{{2,12}}[0-9]{{0,2}}-)?{_TOKEN}{{16,}}"),
    ("sk_", rf"sk_(?:live|test)_{_TOKEN}{{16,}}"),
    ("rk_", rf"rk_(?:live|test)_{_TOKEN}{{16,}}"),
    ("AKIA", r"AKIA[0-9A-Z]{16}"),
    ("ASIA", r"ASIA[0-9A-Z]{16}"),
    ("AIza", rf"AIza{_TOKEN}{{30,}}"),
    *((f"gh{kind}_", rf"gh{kind}_[A-Za-z0-9]{{30,}}") for kind in "pousr"),
    ("github_pat_", rf"github_pat_{_TOKEN}{{20,}}"),
    ("glpat-", rf"glpat-{_TOKEN}{{16,}}"),
    ("xox", rf"xox[abeoprs]-{_TOKEN}{{10,}}"),
    ("hf_", r"hf_[A-Za-z0-9]{30,}"),
    ("npm_", r"npm_[A-Za-z0-9]{30,}"),
    ("pypi-", rf"pypi-{_TOKEN}{{30,}}"),
    ("AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[A-Z0-9]{50,}"),
    ("ATATT3", rf"ATATT3{_TOKEN}{{30,}}"),
    ("NRAK-", r"NRAK-[A-Z0-9]{20,}"),
    ("PMAK-", rf"PMAK-{_TOKEN}{{30,}}"),
    ("SG.", rf"SG\.{_TOKEN}{{16,}}\.{_TOKEN}{{16,}}"),
    ("dapi", r"dapi[0-9a-f]{32}"),
    ("dckr_pat_", rf"dckr_pat_{_TOKEN}{{20,}}"),
    ("dop_v1_", r"dop_v1_[0-9a-f]{40,}"),
    ("figd_", rf"figd_{_TOKEN}{{20,}}"),
    ("fw_", r"fw_[A-Za-z0-9]{20,}"),
    ("gsk_", r"gsk_[A-Za-z0-9]{30,}"),
    ("hvs.", rf"hvs\.{_TOKEN}{{20,}}"),
    ("jina_", rf"jina_{_TOKEN}{{30,}}"),
    ("lin_api_", r"lin_api_[A-Za-z0-9]{30,}"),
    ("lsv2_", rf"lsv2_[a-z]{{2}}_{_TOKEN}{{30,}}"),
    ("ntn_", r"ntn_[A-Za-z0-9]{30,}"),
    ("pcsk_", rf"pcsk_{_TOKEN}{{30,}}"),
    ("pplx-", r"pplx-[A-Za-z0-9]{30,}"),
    ("r8_", r"r8_[A-Za-z0-9]{30,}"),
    ("sbp_", r"sbp_[0-9a-f]{30,}"),
    ("shpat_", r"shpat_[0-9a-fA-F]{30,}"),
    ("tvly-", rf"tvly-{_TOKEN}{{20,}}"),
    ("whsec_", r"whsec_[A-Za-z0-9+/=]{20,}"),
    ("xai-", r"xai-[A-Za-z0-9]{40,}"),
    ("xapp-", rf"xapp-{_TOKEN}{{20,}}"),
    ("ya29.", rf"ya29\.{_TOKEN}{{30,}}"),
    ("eyJ", rf"eyJ{_TOKEN}{{8,}}\.{_TOKEN}{{8,}}\.{_TOKEN}{{8,}}"),
)
_SCHEMES = ("Bearer ", "bearer ", "BEARER ", "Basic ", "basic ", "BASIC ")
_BEARER = rf"(?P<scheme>{'|'.join(_SCHEMES)})[A-Za-z0-9_\-.~+/]{{16,}}={{0,2}}"
_PEM_BEGIN = "-----BEGIN "
PEM_END_BEGIN = "-----END "
_PEM_END = rf"{PEM_END_BEGIN}[A-Z0-9 ]{{0,40}}PRIVATE KEY-----"
_PEM_HEAD = rf"{_PEM_BEGIN}[A-Z0-9 ]{{0,40}}PRIVATE KEY-----"
_TOKEN_RUN = late_pattern(rf"{_TOKEN}+")
_PEM = rf"{_PEM_HEAD}[\s\S]*?(?:{_PEM_END}|\Z)"
_ENCODED_BEGINNINGS = ("sk-ant-", "sk-proj-", "sk-svcacct-", "github_pat_", "-----BEGIN ")


def _cores(raw: bytes) -> list[str]:
    """The characters that any base64 encoding of data containing ``raw`` must contain, one text per alignment."""
    cores: list[str] = []
    for offset in range(3):
        encoded = base64.b64encode(bytes(offset) + raw).rstrip(b"=").decode()
        first = (offset * 8 + 5) // 6
        whole = (offset + len(raw)) * 8 // 6
        cores.append(encoded[first:whole])
    return cores


def _both_alphabets(texts: Iterable[str]) -> list[str]:
    return [form for text in texts for form in (text, text.replace("+", "-").replace("/", "_"))]


def _forms_of(secret: str) -> list[str]:
    """The texts to search for, with and without the white space around a secret; none for one that is too short."""
    return [form for part in (secret, secret.strip()) if len(part) >= MIN_SECRET for form in forms_of(part)]


def forms_of(secret: str) -> tuple[str, ...]:
    """The texts to search for: ``secret`` itself and its encodings, longest first."""
    raw = secret.encode("utf-8", "surrogatepass")
    escaped = json.dumps(secret)[1:-1]
    forms = [
        secret,
        escaped,
        json.dumps(secret, ensure_ascii=False)[1:-1],
        json.dumps(escaped)[1:-1],
        repr(secret)[1:-1],
    ]
    forms += [
        quote(secret, safe="", errors="replace"),
        quote(secret, errors="replace"),
        quote_plus(secret, errors="replace"),
    ]
    forms += [raw.hex(), raw.hex().upper()]
    forms += [core for core in _both_alphabets(_cores(raw)) if len(core) >= MIN_SECRET]
    return tuple(sorted(dict.fromkeys(forms), key=len, reverse=True))


class Beginnings:
    """Finds the position where the end of a text may be the beginning of a known form; ``longest`` is the longest
    form."""

    __slots__ = ("_candidates", "_first", "_second", "longest")

    def __init__(self, forms: Iterable[str]) -> None:
        self._first: set[str] = set()
        self._second: dict[str, list[str]] = {}
        self.longest = 0
        for form in forms:
            self._first.add(form[0])
            self._second.setdefault(form[:2], []).append(form)
            self.longest = max(self.longest, len(form))
        self._candidates = re.compile("|".join(map(re.escape, self._second)) or r"(?!)")

    def find(self, text: str) -> int:
        """The first index where ``text`` becomes an incomplete form; its length if there is none."""
        end = len(text)
        candidate = self._candidates.search(text, max(0, end - self.longest + 1))
        while candidate is not None:
            index = candidate.start()
            for form in self._second[candidate.group()]:
                if len(form) > end - index and form.startswith(text[index:]):
                    return index
            candidate = self._candidates.search(text, index + 1)
        return end - 1 if end and text[-1] in self._first else end


def secrets_of(name: str, value: str) -> list[str]:
    """The secrets in an environment variable."""
    if len(value) < MIN_NAMED or name == _WORKING_DIRECTORY:
        return []
    if _USER_INFO.match(value) is not None:
        return [value, *passwords_in(value)]
    words = [word.lower() for word in _NAME_WORDS.findall(name)]
    return [value] if _SECRET_WORDS.intersection(words) and words[-1] not in _PLAIN_WORDS else []


def passwords_in(address: str) -> list[str]:
    """The passwords in an address, before its host or in its query, each in its written and its sent form."""
    query = address.partition("?")[2].partition("#")[0]
    written = [login.group("password") or ""] if (login := _USER_INFO.match(address)) is not None else []
    written += [value for name, _, value in (each.partition("=") for each in query.split("&")) if "password" in name]
    return [each for text in written for each in {text, unquote(text), unquote_plus(text)} if len(each) >= MIN_SECRET]


def _any_of(texts: Iterable[str]) -> str:
    """A pattern of any of ``texts``, branching letter by letter: a search does not try all of them at every position."""
    rests: dict[str, list[str]] = {}
    for text in texts:
        rests.setdefault(text[:1], []).append(text[1:])
    if "" in rests:
        return ""
    ways = [re.escape(first) + _any_of(rest) for first, rest in sorted(rests.items())]
    return ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"


Continuation = Callable[[str, str], bool]
"""``(last characters held back, piece)``: whether the piece only continues the text held back."""


def _token_goes_on(tail: str, text: str) -> bool:
    return _TOKEN_RUN.fullmatch(text) is not None


def _pem_goes_on(tail: str, text: str) -> bool:
    return PEM_END_BEGIN not in tail + text


class KeyPatterns:
    """The patterns of keys: ``hint`` a cheap first test, ``whole`` keys, ``begun`` possible beginnings of one.

    ``longest_prefix`` is the length of the longest prefix of a key.
    """

    __slots__ = (
        "_begun_header",
        "_begun_key",
        "_cut_key",
        "_pem_end",
        "_pem_head",
        "_prefixes",
        "begun",
        "hint",
        "longest_prefix",
        "whole",
    )

    def __init__(self) -> None:
        encoded = [core for text in _ENCODED_BEGINNINGS for core in _both_alphabets(_cores(text.encode()))]
        starts = [start for start, _ in _KEYS]
        cores = "|".join(sorted({re.escape(core) for core in encoded}))
        keys = "|".join(pattern for _, pattern in _KEYS)
        begun = "|".join(map(re.escape, starts))
        schemes = "|".join(_SCHEMES)
        self._prefixes = tuple(dict.fromkeys((*starts, *encoded, *_SCHEMES, _PEM_BEGIN)))
        self.longest_prefix = max(map(len, self._prefixes))
        self.begun = Beginnings(self._prefixes)
        self.hint = re.compile(_any_of(self._prefixes))
        self.whole = re.compile(
            rf"{_PEM}|{_BEARER}|(?<![A-Za-z0-9])(?:{keys})|(?:{cores})[A-Za-z0-9+/_\-]{{12,}}={{0,2}}"
        )
        self._cut_key = re.compile(rf"(?<![A-Za-z0-9])(?:{begun})[A-Za-z0-9_\-.]{{{_CUT_KEY},}}")
        self._pem_head = re.compile(_PEM_HEAD)
        self._pem_end = re.compile(_PEM_END)
        self._begun_header = re.compile(rf"{_PEM_BEGIN}[A-Z0-9 ]{{0,40}}-{{0,5}}\Z")
        self._begun_key = re.compile(
            rf"(?:{schemes})[A-Za-z0-9_\-.~+/]*={{0,2}}\Z"
            rf"|(?<![A-Za-z0-9])(?:{begun})[A-Za-z0-9_\-.]*\Z"
            rf"|(?:{cores})[A-Za-z0-9+/_\-]*={{0,2}}\Z"
        )

    def cut_off(self, text: str) -> int:
        """The position of a key if its beginning ends ``text`` and is too long to be a common word; else the length of
        ``text``."""
        key = self._cut_key.search(text, len(text.rstrip(_TOKEN_CHARACTERS)))
        return len(text) if key is None else key.start()

    def unfinished(self, text: str, start: int) -> tuple[int, Continuation | None]:
        """Where a key begins that may continue past ``text`` (its length if none does), and its Continuation."""
        at = start
        while (head := self._pem_head.search(text, at)) is not None:
            end = self._pem_end.search(text, head.end())
            if end is None:
                return head.start(), _pem_goes_on
            at = end.end()
        key = self._begun_key.search(text, start)
        header = self._begun_header.search(text, start)
        if header is not None and (key is None or header.start() < key.start()):
            return header.start(), None
        if key is None:
            return len(text), None
        return key.start(), _token_goes_on if _TOKEN_RUN.fullmatch(text, len(text) - 1) else None

    def finds(self, text: str) -> bool:
        """Whether ``text`` contains a key. Searching for prefixes first is faster than for all patterns."""
        match = self.whole.match
        for prefix in self._prefixes:
            at = text.find(prefix)
            while at >= 0:
                if match(text, at) is not None:
                    return True
                at = text.find(prefix, at + 1)
        return False


MARK = "[redacted]"
"""The replacement of a secret."""
MAX_HELD = 16_384
"""Most characters a stream holds back while they may be part of a secret."""
GRAM = 4
"""Characters of a secret in a row that make a stream of pieces suspicious."""
_SHORT = 64
_MOST_CLEAN = 4_096
_MOST_LONG = 16
_LONG_TOGETHER = 8_000_000
_PIECE = 16_384
_CUT = late_pattern(r" ?(?:\.\.\.|…)(?: \([0-9]+ characters more\) \.\.\.)? ?")
_NO_LINE_END = late_pattern(r"[^\r\n]")


class Secret:
    """A hidden text: repr, str, format and JSON give a mark. Parameters: ``value`` the text itself.

    ``reveal()`` returns it. Compares in constant time; cannot be pickled.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The text itself."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({MARK})"

    def __str__(self) -> str:
        return MARK

    def __format__(self, spec: str) -> str:
        return format(MARK, spec)

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode("utf-8", "replace"), other._value.encode("utf-8", "replace"))

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled or copied to disk")

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        def load(value: object) -> Secret:
            if isinstance(value, Secret):
                return value
            if isinstance(value, str):
                return cls(value)
            raise ValueError("a secret is written as a string")

        return core_schema.no_info_plain_validator_function(
            load, serialization=core_schema.plain_serializer_function_ser_schema(str)
        )


class Redactor:
    """Removes secrets from texts.

    Parameters: ``secrets`` in use, texts or :class:`Secret`; those shorter than :data:`MIN_SECRET` are ignored.
    ``patterns`` also finds texts in the format of known keys (API keys, tokens, private keys, authorization headers).
    Thread-safe.

    Attributes: ``forms`` all texts searched for, every known secret in each of its forms, longest first; ``grams`` their
    runs of :data:`GRAM` characters; ``clean`` short texts already searched that contain none (names and paths recur);
    ``memory`` the number of characters before a piece of a stream that may complete the prefix of a key; ``examined`` the
    values searched in advance, with the redacted form of each, by identity; ``searched`` the same for the last
    long texts.
    """

    def __init__(self, secrets: Iterable[str | Secret] = (), *, patterns: bool = True) -> None:
        self._lock = threading.Lock()
        self.forms: tuple[str, ...] = ()
        self.grams: frozenset[str] = frozenset()
        self.clean: set[str] = set()
        self.examined: dict[int, tuple[Any, Any]] = {}
        self.searched: dict[int, tuple[str, str]] = {}
        self._compiled: re.Pattern[str] | None = None
        self._lent: dict[str, int] = {}
        self._forms_lent: dict[str, list[str]] = {}
        self._begun = self._ended = Beginnings(())
        self._patterns = KeyPatterns() if patterns else None
        self.memory = self._patterns.longest_prefix if self._patterns is not None else GRAM
        for secret in secrets:
            self.add(secret)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], secrets: Iterable[str | Secret] = ()) -> Redactor:
        """A redactor for ``secrets`` and those of the environment.

        A variable holds a secret if a word of its name says so (``DJANGO_SECRET_KEY``, ``OPENAI_API_KEY_2``,
        ``GITHUB_PAT``), or if its value is an address with user and password.
        """
        return cls([*secrets, *(secret for name, value in environ.items() for secret in secrets_of(name, value))])

    def __repr__(self) -> str:
        return "Redactor()"

    def suspects(self, text: str) -> bool:
        """Whether ``text`` contains the prefix of a known kind of key; a cheap test for pieces of a stream."""
        patterns = self._patterns
        return patterns is not None and patterns.hint.search(text) is not None

    def add(self, secret: str | Secret) -> None:
        """Add a secret to search for."""
        value = secret.reveal() if isinstance(secret, Secret) else secret
        self._change({*self.forms, *_forms_of(value)})

    @property
    def _known(self) -> re.Pattern[str] | None:
        """The pattern of all secrets, compiled for the first text that has one."""
        if self._compiled is None and self.forms:
            self._compiled = re.compile("|".join(map(re.escape, self.forms)))
        return self._compiled

    def lend(self, secret: str) -> None:
        """Add a secret until :meth:`take_back` was called for it as often."""
        self._lent[secret] = self._lent.get(secret, 0) + 1
        if self._lent[secret] == 1:
            new = [form for form in _forms_of(secret) if form not in self.forms]
            self._forms_lent[secret] = new
            self._change({*self.forms, *new})

    def take_back(self, secret: str) -> None:
        """Search no longer for a secret that was lent; see :meth:`lend`."""
        self._lent[secret] -= 1
        if self._lent[secret] == 0:
            del self._lent[secret]
            gone = {*self._forms_lent.pop(secret)}.difference(*map(_forms_of, self._lent))
            self._change({*self.forms} - gone)

    def _change(self, wanted: set[str]) -> None:
        with self._lock:
            forms = tuple(sorted(wanted, key=lambda form: (-len(form), form)))
            self._compiled = None
            self._begun, self._ended = Beginnings(forms), Beginnings([form[::-1] for form in forms])
            self.grams = frozenset([form[at : at + GRAM] for form in forms for at in range(len(form) - GRAM + 1)])
            self.forms = forms
            self.clean = set()
            self.searched = {}

    def finds(self, text: str) -> bool:
        """Whether ``text`` contains a secret, in linear time."""
        clean = self.clean  # before the forms: adding a secret replaces them in the other order
        if len(text) > LONG_TEXT:
            searched = self.searched.get(id(text))
            if searched is not None:
                return searched[1] is not text
        elif text in clean:
            return False
        for form in self.forms:
            if form in text:
                return True
        if (self._patterns is not None and self._patterns.finds(text)) or self._rests(text):
            return True
        if len(text) <= _SHORT:
            if len(clean) >= _MOST_CLEAN:
                clean.clear()
            clean.add(text)
        return False

    def redact(self, text: str) -> str:
        """``text`` with every secret replaced by :data:`MARK`, in linear time; the same object if there is none.

        This includes the rest of a secret next to an ellipsis, where a text was cut.
        """
        searched = self.searched.get(id(text)) if len(text) > LONG_TEXT else None
        if searched is not None:
            return searched[1]
        return self._without_rests(self._without_patterns(self._without_known(text))) if self.finds(text) else text

    def redaction(self, text: str) -> Work[str]:
        """The work of :meth:`redact` for a long text. The results for the last few are cached until :meth:`forget`."""
        searched = self.searched.get(id(text))
        if searched is not None:
            return searched[1]
        long, stream = self.searched, self.stream()
        shown: list[str] = []  # nothing as long as the shown text is the whole: joining a large one takes long
        same = 0
        for start in range(0, len(text) + _PIECE, _PIECE):
            yield _PIECE // CHARACTERS_PER_STEP
            piece = stream.feed(text[start : start + _PIECE]) if start < len(text) else stream.finish()
            if not shown and text.startswith(piece, same):
                same += len(piece)
            else:
                shown = shown or [text[:same]]
                shown.append(piece)
        whole = "".join(shown) if shown else text if same == len(text) else text[:same]
        while long and (len(long) >= _MOST_LONG or sum([len(each) for each, _ in long.values()]) > _LONG_TOGETHER):
            del long[next(iter(long))]
        long[id(text)] = (text, whole)
        return whole

    def forget(self) -> None:
        """Let go of long texts and examined values."""
        self.searched = {}
        self.examined = {}

    def mask(self, text: str) -> str:
        """``text`` with every character of a secret replaced by ``*``, line ends kept: all positions stay valid."""
        if not self.finds(text):
            return text
        for pattern in (self._known, self._patterns.whole if self._patterns is not None else None):
            text = pattern.sub(_stars, text) if pattern is not None else text
        return text

    def _without_known(self, text: str) -> str:
        pattern = self._known
        if pattern is None or not any([form in text for form in self.forms]):
            return text
        return pattern.sub(MARK, text)

    def _without_patterns(self, text: str) -> str:
        patterns = self._patterns
        if patterns is None or patterns.hint.search(text) is None:
            return text
        return patterns.whole.sub(_mark, text)

    def _without_rests(self, text: str) -> str:
        shown: list[str] = []
        done = 0
        for start, end in self._rests(text):
            shown += [text[done:start], MARK]
            done = end
        return "".join([*shown, text[done:]])

    def _rests(self, text: str) -> list[tuple[int, int]]:
        """Where the rest of a secret stands that was cut: before an ellipsis its beginning, after one its end.

        Rests of fewer than :data:`GRAM` characters are not looked for.
        """
        if "..." not in text and "…" not in text:
            return []
        cuts = [(0, 0), *[each.span() for each in _CUT.finditer(text)], (len(text), len(text))]
        rests: list[tuple[int, int]] = []
        for at, (_, start) in enumerate(cuts[:-1]):
            end = cuts[at + 1][0]
            if at:
                beginning = text[start : min(end, start + self._ended.longest)]
                size = len(beginning) - self._ended.find(beginning[::-1])
                if size >= GRAM:
                    rests.append((start, start + size))
                    start += size
            if end < len(text):
                piece = text[start:end]
                begins = self._begun.find(piece)
                if self._patterns is not None:
                    begins = min(begins, self._patterns.cut_off(piece))
                if len(piece) - begins >= GRAM:
                    rests.append((start + begins, end))
        return rests

    def data(self, data: bytes) -> bytes:
        """Like :meth:`redact`, for bytes; bytes outside UTF-8 are kept."""
        return self.redact(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def stream(self) -> RedactedStream:
        """A redactor for text in pieces; finds a secret across any cuts."""
        return RedactedStream(self)

    # the two steps of a stream; each returns the finished text and the text held back

    def known_step(self, held: str) -> tuple[str, str]:
        """Redact known secrets in ``held`` as far as more text cannot change the result; return that and the rest."""
        if self._known is None or not held:
            return held, ""
        cut = self._begun.find(held)
        if cut < len(held):
            cut = _uncut(self._known, held, cut)
        if len(held) - cut > max(MAX_HELD, len(self.forms[0])):
            cut = len(held)
        return self._without_known(held[:cut]), held[cut:]

    def pattern_step(self, before: str, held: str) -> tuple[str, str, Continuation | None]:
        """Redact keys in ``held``, which follows the character ``before``; returns the same as :meth:`known_step`.

        The third item says which pieces cannot change the result; None if any piece can.
        """
        patterns = self._patterns
        if patterns is None or not held:
            return held, "", None
        goes_on: Continuation | None = None
        text = before + held
        cut = patterns.begun.find(text)
        if patterns.hint.search(text) is not None:
            begins, goes_on = patterns.unfinished(text, len(before))
            if begins > cut:
                goes_on = None
            whole = _uncut(patterns.whole, text, min(begins, cut))
            goes_on = goes_on if whole == begins else None
            cut = whole
        cut = max(cut, len(before))
        if len(text) - cut > MAX_HELD:
            # no key is that long: this is a lookalike, or a private key without an end
            cut, goes_on = len(text), None
        return self._without_patterns(text[:cut])[len(before) :], text[cut:], goes_on


def _uncut(pattern: re.Pattern[str], text: str, cut: int) -> int:
    """``cut``, moved to the start of the match that spans it."""
    for match in pattern.finditer(text):
        if match.start() >= cut:
            break
        if match.end() > cut:
            return match.start()
    return cut


class RedactedStream:
    """Redacts text in pieces: :meth:`feed` returns the text that may be shown already, :meth:`finish` the rest.

    The results joined equal :meth:`Redactor.redact` of the whole. Text is held back only while it may be part of a secret,
    at most :data:`MAX_HELD` characters. Text held back is not scanned again with each piece: a piece that only continues a
    key is put aside.
    """

    __slots__ = ("_before", "_goes_on", "_half", "_more", "_more_size", "_raw", "_redactor", "_tail")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._raw = ""
        self._half = ""
        self._before = ""
        self._goes_on: Continuation | None = None
        self._more: list[str] = []
        self._more_size = 0
        self._tail = ""

    def feed(self, text: str) -> str:
        """Add ``text``. Returns the text now safe to show and not returned before."""
        half, self._raw = self._redactor.known_step(self._raw + text)
        return self._second(half)

    def _second(self, text: str) -> str:
        if not text:
            return ""
        goes_on = self._goes_on
        fits = len(self._half) + self._more_size + len(text) <= MAX_HELD
        if fits and goes_on is not None and goes_on(self._tail, text):
            self._more.append(text)
            self._more_size += len(text)
            self._tail = (self._tail + text)[-len(PEM_END_BEGIN) :]
            return ""
        text = self._held() + text
        done, self._half, self._goes_on = self._redactor.pattern_step(self._before, text)
        self._tail = self._half[-len(PEM_END_BEGIN) :]
        taken = text[: len(text) - len(self._half)]
        if taken:
            self._before = taken[-1]
        return done

    def _held(self) -> str:
        held = "".join([self._half, *self._more])
        self._more = []
        self._more_size = 0
        return held

    @property
    def held(self) -> int:
        """Number of characters held back."""
        return len(self._half) + self._more_size + len(self._raw)

    def finish(self) -> str:
        """Return the redacted text held back so far and reset the stream."""
        rest = self._held() + self._redactor.redact(self._raw)
        done = self._redactor.redact(self._before + rest)[len(self._before) :]
        self._raw = self._half = self._before = ""
        self._goes_on = None
        return done


def _mark(match: re.Match[str]) -> str:
    """The mark; for an authorization header, after the name of its scheme."""
    return (match.group("scheme") or "") + MARK


def _stars(match: re.Match[str]) -> str:
    return _NO_LINE_END.sub("*", match.group())
