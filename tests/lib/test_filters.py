"""The language of filters: terms that all hold, and errors that say which term is wrong and how to write it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from agentflow.core.data.errors import ConfigurationError
from agentflow.lib.text.filters import FilterField, parse_filter

FIELDS = {
    "name": FilterField(),
    "status": FilterField(words=("done", "failed", "cancelled")),
    "label": FilterField(keys=True),
    "tag": FilterField(),
    "score": FilterField(kind="number", keys=True),
    "cost": FilterField(kind="number"),
    "duration": FilterField(kind="seconds"),
    "since": FilterField(kind="since"),
    "until": FilterField(kind="until"),
    "metadata": FilterField(kind="any", keys=True),
}
RUN: dict[str, Any] = {
    "name": "answer_mail",
    "status": "done",
    "label.product": "support",
    "label.a b": "",
    "tag": ("hard", "long"),
    "score.judge": 0.25,
    "score.exact": 1.0,
    "cost": None,
    "duration": 90.0,
    "metadata.level": 3,
    "metadata.kind": "x*y",
    "metadata.live": True,
}


def holds(text: str, **changed: Any) -> bool:
    """Whether the run fits the filter."""
    run = {"since": time.time(), "until": time.time(), **RUN, **changed}
    return parse_filter(text, FIELDS, "status=failed").fits(lambda name, key: run.get(f"{name}.{key}" if key else name))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "  ",
        "status=done",
        "status = done",
        "status!=failed label.product=support",
        "name=answer*",
        "name=*_m?il",
        "name!=other*",
        "name='answer_mail'",
        "label.product='support' status=\"done\"",
        'label.none=""',
        "label.none!=support",
        "tag=hard tag=long tag!=easy",
        "score.judge<0.5 score.judge>=0.25 score.judge!=1",
        "score.exact=true",
        "duration<=90s duration>1m duration=90",
        "metadata.level>2 metadata.level=3 metadata.live=true",
        "metadata.kind='x?y' label.product='s*p?rt'",
        "since=7d",
        "since=2020-01-01 until=2999-12-31T23:59",
    ],
)
def test_a_run_of_which_all_terms_hold_fits(text: str) -> None:
    """Signs, wildcards, quotes, lengths of time and dates; a filter without terms fits everything."""
    assert holds(text)


@pytest.mark.parametrize(
    "text",
    [
        "status=failed",
        "status=done name=other",
        "name=answer",
        "name=ANSWER*",
        "tag=easy",
        "tag!=hard",
        "score.judge>0.25",
        "score.none>0",
        "score.none!=0",
        "cost<100",
        "cost>=0",
        "metadata.kind>1",
        "until=7d",
        "since=2999-01-01",
    ],
)
def test_a_run_of_which_one_does_not_hold_does_not_fit(text: str) -> None:
    """Upper and lower case differ, and no comparison holds of a number that is missing."""
    assert not holds(text)


@pytest.mark.parametrize(
    ("text", "problem", "hint"),
    [
        ("failed", "at character 1: 'failed' has no sign", "name=failed*"),
        ("name=a statu=done", "at character 8: there is no field 'statu'", "did you mean 'status'?"),
        ("size>3", "there is no field 'size'", "label.NAME"),
        ("status=fail", "'fail' is not a status", "done, failed, cancelled"),
        ("status=dnoe", "'dnoe' is not a status", "did you mean 'done'?"),
        ("status==done", "has the sign ==", "write ="),
        ("name~x", "'name~x' is not a term", "the signs are"),
        ("status=done and cost>1", "at character 13: 'and' is not a term", "leave it out"),
        ("status=done OR cost>1", "'OR' is not a term", "there is no 'or'"),
        ("not status=done", "'not' is not a term", "!="),
        ("cost>$1", "'$1' is not a number", "cost<0.5"),
        ("cost=>1", "'>1' is not a number", "cost<0.5"),
        ("score>1", "'score' is not a field by itself", "score.NAME"),
        ("cost.usd>1", "'cost' has no part 'usd'", "write cost"),
        ("name>b", "'name' is not a number", "name=b"),
        ("metadata.kind<b", "'metadata.kind' is not a number", "metadata.kind=b"),
        ("label.a= status=done", "'label.a=' has no value", 'label.a=""'),
        ("name=", "'name=' has no value", 'name=""'),
        ("name='ab", "without its closing quote", 'name=""'),
        ("since>7d", "'since' is a bound already", "since=7d"),
        ("since=week", "neither a length of time nor a date", "since=2026-11-01"),
        ("duration>5x", "'5x' is not a duration", "duration>90s"),
        ("duration>long", "not a duration", "duration>90s"),
    ],
)
def test_a_wrong_term_is_named_with_its_place_and_its_remedy(text: str, problem: str, hint: str) -> None:
    """Each error has the code config/filter, what is wrong and where, and what to write."""
    with pytest.raises(ConfigurationError) as caught:
        holds(text)
    assert caught.value.code == "config/filter" and problem in caught.value.message
    assert hint in str(caught.value.hint) and "status=failed" in str(caught.value.hint)


def test_a_filter_is_a_text() -> None:
    """A number, as a caller of the older cases(100) gives it, is refused."""
    with pytest.raises(ConfigurationError, match="a filter is a text"):
        parse_filter(100, FIELDS, "status=failed")  # pyright: ignore[reportArgumentType]
