"""Secrets: a type that is never printed, and redaction of texts that leave the process.

:class:`Secret` wraps a value that must not be printed. A :class:`Redactor` knows the secrets in use and the formats of
keys (:mod:`agentflow.lib.secret_forms`); texts of events, logs, exceptions and journal records go through it, structured
data through :mod:`agentflow.lib.redacted_copy`.
"""

from __future__ import annotations

import hmac
import re
import threading
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema

from agentflow.core.data.work import CHARACTERS_PER_STEP, LONG_TEXT, Work
from agentflow.lib.secret_forms import (
    MIN_SECRET,
    PEM_END_BEGIN,
    Beginnings,
    Continuation,
    KeyPatterns,
    forms_of,
    secrets_of,
)

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
_CUT = re.compile(r" ?(?:\.\.\.|…)(?: \([0-9]+ characters more\) \.\.\.)? ?")
_NO_LINE_END = re.compile(r"[^\r\n]")


class Secret:
    """A text that is never shown: repr, str, format and JSON give a mark. Parameters: ``value`` the text itself.

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
    values that were searched before they are shown, with what is shown of each, by identity; ``searched`` the same of the
    last long texts.
    """

    def __init__(self, secrets: Iterable[str | Secret] = (), *, patterns: bool = True) -> None:
        self._lock = threading.Lock()
        self.forms: tuple[str, ...] = ()
        self.grams: frozenset[str] = frozenset()
        self.clean: set[str] = set()
        self.examined: dict[int, tuple[Any, Any]] = {}
        self.searched: dict[int, tuple[str, str]] = {}
        self._known: re.Pattern[str] | None = None
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
        added = [form for part in (value, value.strip()) if len(part) >= MIN_SECRET for form in forms_of(part)]
        with self._lock:
            forms = tuple(sorted({*self.forms, *added}, key=lambda form: (-len(form), form)))
            if forms:
                self._known = re.compile("|".join(map(re.escape, forms)))
            self._begun, self._ended = Beginnings(forms), Beginnings([form[::-1] for form in forms])
            self.grams = frozenset([form[at : at + GRAM] for form in forms for at in range(len(form) - GRAM + 1)])
            self.forms = forms
            self.clean = set()
            self.searched = {}

    def finds(self, text: str) -> bool:
        """Whether ``text`` contains a secret, in linear time."""
        clean = self.clean  # before the forms: whoever adds a secret replaces them in the other order
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

        That includes what is left of a secret beside an ellipsis, where a text was cut.
        """
        searched = self.searched.get(id(text)) if len(text) > LONG_TEXT else None
        if searched is not None:
            return searched[1]
        return self._without_rests(self._without_patterns(self._without_known(text))) if self.finds(text) else text

    def redaction(self, text: str) -> Work[str]:
        """The work of :meth:`redact` for a long text. What came of the last few is remembered until :meth:`forget`."""
        searched = self.searched.get(id(text))
        if searched is not None:
            return searched[1]
        long, stream = self.searched, self.stream()
        shown: list[str] = []  # nothing as long as what is shown is the text: joining a large one takes long
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
        """Like :meth:`redact`, for bytes; bytes that are not UTF-8 are kept."""
        return self.redact(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def stream(self) -> RedactedStream:
        """A redactor for text in pieces; finds a secret wherever the pieces are cut."""
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
    """Redacts text in pieces: :meth:`feed` returns what may be shown already, :meth:`finish` the rest.

    The results joined equal :meth:`Redactor.redact` of the whole. Text is held back only while it may be part of a
    secret, at most :data:`MAX_HELD` characters. Text held back is not scanned again with each
    piece: a piece that only continues the key that has begun is put aside.
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
        """Add ``text``. Returns the text that is now safe to show and was not returned before."""
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
