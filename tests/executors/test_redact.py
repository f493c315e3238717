"""Secrets are found in every disguise, whole or in pieces, and shown by nothing that holds them."""

from __future__ import annotations

import base64
import copy
import json
import pickle
import urllib.parse

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from agentflow.core.data.errors import clip, cut
from agentflow.core.data.values import plain
from agentflow.lib.redact import MARK, Redactor, Secret
from agentflow.lib.redacted_copy import redacted
from tests.support.spending import spent

VALUE = 'pl+nted/s3cret-Ünï"x'


class Holder(BaseModel):
    key: Secret


def test_a_secret_shows_itself_nowhere() -> None:
    """repr, str, format, JSON, models and errors show a mark; only reveal() gives it."""
    secret = Secret(VALUE)
    holder = Holder.model_validate({"key": VALUE})
    shown = (
        f"{secret} {secret!r} {secret:>30} {holder} {holder!r} {holder.model_dump_json()} {plain(secret)} {[secret]}"
    )
    assert VALUE not in shown and json.dumps(VALUE)[1:-1] not in shown and MARK in shown
    assert secret.reveal() == VALUE == holder.key.reveal()
    assert secret == Secret(VALUE) and secret != Secret("other") and secret != VALUE and bool(secret)
    assert copy.deepcopy(secret) is secret and hash(secret) == hash(Secret(VALUE))
    with pytest.raises(TypeError):
        pickle.dumps(secret)


@pytest.mark.parametrize("before", ["", "a", "ab", "abc"])
@pytest.mark.parametrize("after", ["", "z", "yz", "xyz"])
def test_base64_at_every_alignment(before: str, after: str) -> None:
    """Whatever stands around it in the encoded text, in both alphabets."""
    redactor = Redactor([VALUE])
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        encoded = encode((before + VALUE + after).encode()).decode()
        shown = redactor.redact(encoded)
        left = shown.replace(MARK, "").rstrip("=")
        # at most the two characters at each edge that the secret shares with its neighbours
        assert MARK in shown and len(left) <= (len(before) + len(after)) * 4 / 3 + 3


@pytest.mark.parametrize(
    "form",
    [
        VALUE,
        json.dumps(VALUE),
        json.dumps(VALUE, ensure_ascii=False),
        json.dumps({"inner": json.dumps(VALUE)}),
        repr(VALUE),
        urllib.parse.quote(VALUE),
        urllib.parse.quote(VALUE, safe=""),
        urllib.parse.quote_plus(VALUE),
        VALUE.encode().hex(),
        VALUE.encode().hex().upper(),
    ],
)
def test_other_disguises(form: str) -> None:
    """JSON, repr, percent encoding and hexadecimal."""
    assert VALUE not in Redactor([VALUE]).redact(f"x={form};") and MARK in Redactor([VALUE]).redact(f"x={form};")


KEYS = [
    "sk-ant-api03-AbCdEf0123456789_-AbCdEf",
    "sk-proj-AbCdEf0123456789AbCdEf0123456789",
    "sk-AbCdEf0123456789AbCdEf0123456789",
    "AKIAIOSFODNN7EXAMPLE",
    "AIzaSyA-1234567890abcdefghijklmnopqrstu",
    "ghp_AbCdEf0123456789AbCdEf0123456789abcd",
    "github_pat_11ABCDEFG0123456789_abcdefghij",
    "glpat-AbCdEf0123456789abcd",
    "xoxb-123456789012-abcdefghij",
    "hf_AbCdEfGhIjKlMnOpQrStUvWxYzAbCdEfGh",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P",
    "gsk_AbCdEf0123456789AbCdEf0123456789",
    "xai-AbCdEf0123456789AbCdEf0123456789AbCdEf0123456789",
    "tvly-dev-AbCdEf0123456789AbCdEf",
    "hvs.CAESIAbCdEf0123456789AbCdEf",
    "SG.AbCdEf0123456789.AbCdEf0123456789AbCdEf",
    "lsv2_pt_AbCdEf0123456789AbCdEf0123456789_abc",
    "dckr_pat_AbCdEf0123456789AbCdEf",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("key", KEYS)
def test_what_looks_like_a_key_goes(key: str) -> None:
    """Keys of the usual kinds, unknown to anybody, in text and in headers."""
    redactor = Redactor()
    assert redactor.redact(f"before {key} after") == f"before {MARK} after"
    assert redactor.redact(f'{{"authorization": "Bearer {key}"}}').count(key) == 0


def test_headers_keep_their_scheme() -> None:
    """Bearer and Basic stay, what follows goes."""
    assert Redactor().redact("Authorization: Bearer abcdefghijklmnop1234") == f"Authorization: Bearer {MARK}"
    assert Redactor().redact("authorization: basic dXNlcjpwYXNzd29yZA==") == f"authorization: basic {MARK}"


@pytest.mark.parametrize(
    "text",
    [
        "a task-force of risk-averse people",
        "the bearer of news",
        "ask-me-anything-about-it-please-now",
        "eyJ",
        "sk-learn",
        "hello\n",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    """Words that merely resemble keys are left alone."""
    assert Redactor([VALUE]).redact(text) == text


def test_short_secrets_are_not_searched_for() -> None:
    """A secret of a few characters would redact ordinary words."""
    assert Redactor(["a", "the", ""]).redact("the cat") == "the cat"


def test_data_and_bytes() -> None:
    """JSON data in all its places, and bytes that are not text."""
    redactor = Redactor([Secret(VALUE)])
    found = redacted({"a": [VALUE, {"b": (f"x{VALUE}", 1, None)}], VALUE: Secret("q")}, redactor)
    assert found == {"a": [MARK, {"b": (f"x{MARK}", 1, None)}], MARK: MARK}
    assert redactor.data(b"\xff" + VALUE.encode() + b"\x00") == b"\xff" + MARK.encode() + b"\x00"


def test_the_environments_secrets() -> None:
    """Values of variables that are named like secrets are known; others are not."""
    redactor = Redactor.from_environment(
        {"MY_API_KEY": "abcdefgh1", "HOME": "/home/someone", "DB_PASSWORD": "hunter2hunter2"}
    )
    assert redactor.redact("abcdefgh1 /home/someone hunter2hunter2") == f"{MARK} /home/someone {MARK}"


@pytest.mark.parametrize(
    ("name", "value", "secret"),
    [
        ("DJANGO_SECRET_KEY", "abcdefgh1", "abcdefgh1"),
        ("STRIPE_KEY", "abcdefgh1", "abcdefgh1"),
        ("OPENAI_API_KEY_2", "abcdefgh1", "abcdefgh1"),
        ("GITHUB_PAT", "abcdefgh1", "abcdefgh1"),
        ("SENTRY_DSN", "https://abcdefgh1@host/1", "https://abcdefgh1@host/1"),
        ("DATABASE_URL", "postgres://me:hunter2hunter2@db/x", "hunter2hunter2"),
        ("REDIS", "redis://:hunter2hunter2@cache:6379/0", "hunter2hunter2"),
        ("myServicePassword", "abcdefgh1", "abcdefgh1"),
        ("AUTH_TOKEN_OLD", "abcdefgh1", "abcdefgh1"),
    ],
)
def test_a_variable_whose_name_or_value_says_secret(name: str, value: str, secret: str) -> None:
    """Any word of the name counts, whatever stands behind it, and so does an address with a password."""
    redactor = Redactor.from_environment({name: value})
    assert secret not in redactor.redact(f"connect with {secret} now")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("PATH", "/usr/local/bin:/usr/bin"),
        ("KEYBOARD_LAYOUT", "us-international"),
        ("TOKENIZERS_PARALLELISM", "falsefalse"),
        ("SSL_KEY_FILE", "/etc/ssl/private.txt"),
        ("PYPI_MIRROR", "https://mirror.example/simple"),
        ("COMPASS", "north-by-northwest"),
        ("PWD", "/home/someone/project"),
        ("AWS_KEY_ID", "harmless-name"),
    ],
)
def test_a_variable_that_only_resembles_one(name: str, value: str) -> None:
    """Parts of words, names of files and plain addresses are not secrets."""
    assert Redactor.from_environment({name: value}).redact(value) == value


@pytest.mark.parametrize(
    "piece", ["x", "ab cd\n", "-", "-----END ", "eyJ", "A" * 40, "-----BEGIN RSA PRIVATE KEY-----", "="]
)
@pytest.mark.parametrize("head", ["-----BEGIN RSA PRIVATE KEY-----\n", "eyJhbGci", "sk-", "Bearer ", ""])
def test_a_stream_costs_the_same_however_long_a_key_goes_on(head: str, piece: str) -> None:
    """Behind a key that has begun and never ends, ten thousand pieces cost what so many pieces cost anywhere."""
    secret = "".join(f"{n:x}" for n in range(900))  # a key file held in a variable

    def cost(first: str, each: str) -> float:
        stream = Redactor([secret]).stream()
        stream.feed(first)
        with spent() as spending:
            for _ in range(10_000):
                stream.feed(each)
        return spending.seconds

    # 50 us a piece, with a margin of 3; re-reading what is held back costs over 1 ms a piece
    assert cost(head, piece) < 10_000 * 50e-6 * 3


PIECES = st.sampled_from(
    [VALUE, *KEYS, "Bearer abcdefghijklmnop12", "bearer ", "hello ", "sk-", "-----", "pl+n", "eyJ", "x", "\n", "=",
     base64.b64encode(b"q" + VALUE.encode()).decode(), base64.b64encode(KEYS[0].encode()).decode(), VALUE[:9], "A"]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, max_size=6).map("".join), st.lists(st.integers(1, 30), min_size=1, max_size=20))
def test_pieces_give_what_the_whole_gives(text: str, sizes: list[int]) -> None:
    """However a text is cut, the stream gives what redacting the whole gives, and holds back nothing at the end."""
    redactor = Redactor([VALUE, "another secret"])
    stream = redactor.stream()
    out, at, turn = "", 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        out += stream.feed(text[at : at + size])
        at, turn = at + size, turn + 1
    assert out + stream.finish() == redactor.redact(text)
    assert stream.finish() == ""


@pytest.mark.parametrize("limit", range(4, 2 * len(VALUE) + 60, 3))
@pytest.mark.parametrize("key", [VALUE, "sk-ant-api03-abcdefghijklmnop1234567890"])
def test_what_a_cut_leaves_of_a_secret_is_redacted(key: str, limit: int) -> None:
    """Wherever a message was cut, at its end or in its middle: at most three characters of a known secret are left beside the
    mark, and of a key that is known by its format alone its beginning, which is not a secret. Nothing else is taken out."""
    redactor = Redactor([VALUE])
    left = 4 if key == VALUE else len("sk-") + 8
    for text in (f"the question: is {key} the key that you want to have?", f"{'x' * 20} {key} {'y' * 20}"):
        for shown in (cut(text, limit), f"it asks '{cut(text, limit)}': say", clip(text, limit)):
            kept = redactor.redact(shown)
            assert not [at for at in range(len(key) - left + 1) if key[at : at + left] in kept.split("...")[0]], kept
            if key == VALUE:
                assert not [at for at in range(len(key) - left + 1) if key[at : at + left] in kept], kept
            assert redactor.redact(kept) == kept and redactor.finds(shown) == (kept != shown)
    plain = "pl, ... sk-learn... a well...-known case… (Basic ...)"
    assert redactor.redact(plain) is plain


def test_ordinary_pieces_pass_at_once() -> None:
    """Text that begins no secret is not held back."""
    stream = Redactor([VALUE]).stream()
    assert stream.feed("Good morning, ") == "Good morning, "


@pytest.mark.parametrize(
    "text",
    [
        "s" * 300_000,
        "Bearer " * 50_000,
        "-----BEGIN " * 30_000,
        "sk-" * 100_000,
        "eyJa." * 60_000,
        "..." * 100_000,
        f"{VALUE[:5]}..." * 30_000,
        "sk-" * 100_000 + "!...",
        "pl+n" * 70_000 + "...",
    ],
)
def test_hostile_text_is_redacted_in_linear_time(text: str) -> None:
    """Text made of beginnings of keys costs no more than its length; the test's time limit is the judge."""
    Redactor([VALUE]).redact(text)
