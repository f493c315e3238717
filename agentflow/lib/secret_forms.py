"""The forms of secrets in a text: encodings of known ones, and formats of keys.

A known secret is recognised verbatim and in its usual encodings: base64 in both alphabets at any of the three
alignments (RFC 4648), hexadecimal, percent encoding and JSON escapes.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterable
from string import ascii_letters, digits
from urllib.parse import quote, quote_plus, unquote, unquote_plus

MIN_SECRET = 6
"""Length of the shortest secret searched for: a shorter one would redact ordinary words."""
MIN_NAMED = 8
"""Minimum length of a value that counts as a secret because of its variable's name."""

_TOKEN_CHARACTERS = f"{ascii_letters}{digits}_-."
_CUT_KEY = 8
"""Characters after its prefix that make what was left of a key one."""

_SECRET_WORDS = frozenset({
    "apikey", "auth", "cred", "creds", "credential", "credentials", "dsn", "jwt", "key", "keys", "pass", "passphrase",
    "passwd", "password", "pat", "pwd", "secret", "secrets", "token", "tokens",
})  # fmt: skip
"""Words that mark a variable as secret, anywhere in its name."""
_PLAIN_WORDS = frozenset({"dir", "directory", "file", "id", "name", "path", "sock", "type"})
"""Last words of a name that mark it as harmless: the variable only refers to a secret."""
_WORKING_DIRECTORY = "PWD"
"""The shell's own variable; redacting its value would hide the path of every file below it."""
_NAME_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_USER_INFO = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*://(?P<user>[^/@\s:]*)(?::(?P<password>[^/\s]*))?@")
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
_TOKEN_RUN = re.compile(rf"{_TOKEN}+")
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
    """Finds where the end of a text may be the beginning of a known form, of which ``longest`` is the length."""

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
        """The first index from which ``text`` is an incomplete form; its length if there is none."""
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
    """The passwords in an address, before its host or in its query, each as it is written and as it is sent."""
    query = address.partition("?")[2].partition("#")[0]
    written = [login.group("password") or ""] if (login := _USER_INFO.match(address)) is not None else []
    written += [value for name, _, value in (each.partition("=") for each in query.split("&")) if "password" in name]
    return [each for text in written for each in {text, unquote(text), unquote_plus(text)} if len(each) >= MIN_SECRET]


def _any_of(texts: Iterable[str]) -> str:
    """A pattern of any of ``texts``, told apart letter by letter: a search does not try all of them at every place."""
    rests: dict[str, list[str]] = {}
    for text in texts:
        rests.setdefault(text[:1], []).append(text[1:])
    if "" in rests:
        return ""
    ways = [re.escape(first) + _any_of(rest) for first, rest in sorted(rests.items())]
    return ways[0] if len(ways) == 1 else f"(?:{'|'.join(ways)})"


Continuation = Callable[[str, str], bool]
"""``(last characters held back, piece)``: whether the piece only continues what is held back."""


def _token_goes_on(tail: str, text: str) -> bool:
    return _TOKEN_RUN.fullmatch(text) is not None


def _pem_goes_on(tail: str, text: str) -> bool:
    return PEM_END_BEGIN not in tail + text


class KeyPatterns:
    """The patterns of keys: ``hint`` a cheap first test, ``whole`` keys, ``begun`` what may begin one.

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
        """Where a key begins of which the end of ``text`` has so much that it is no common word; its length if none does."""
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
