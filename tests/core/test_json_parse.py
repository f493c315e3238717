"""Reading large JSON in parts gives what reading it at once gives, errors included."""

from __future__ import annotations

import gc
import json
import random
import time
from typing import Any

import jiter
import pytest

from agentflow.core.data.json_parse import AT_ONCE, TooNested, parsed
from agentflow.core.data.walk import finish


def at_once(text: str) -> Any:
    return jiter.from_json(text.encode(), allow_inf_nan=False)


def document(chance: random.Random, depth: int) -> Any:
    """Data of all kinds and shapes, with strings full of what looks like structure."""
    strings = ["", "a", '"', "\\", "[{,}]", 'x"y\\', "é", "\n", "long " * 40]
    kind = chance.randrange(4) if depth else 3
    match kind:
        case 0 | 1:
            return [document(chance, depth - 1) for _ in range(chance.choice([0, 1, 7, 40]))]
        case 2:
            return {
                f"{chance.choice(strings)}{n}": document(chance, depth - 1) for n in range(chance.choice([0, 1, 25]))
            }
        case _:
            return chance.choice([1, -2.5, True, None, *strings])


@pytest.mark.parametrize("seed", [0, 1, *[pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6)]])
def test_a_large_text_gives_what_it_gives_at_once(seed: int) -> None:
    """Whatever its shape and spacing; duplicate keys too."""
    chance = random.Random(seed)
    data = [document(chance, 4) for _ in range(40)] + [
        1,
        {"a": list(range(30_000)), "b": ["x" * 70_000, {"c": [[]] * 40_000}]},
    ]
    text = json.dumps(data, ensure_ascii=chance.random() < 0.5, indent=chance.choice([None, 1]))
    text = text.replace('1": ', '0": ') if seed % 2 else text
    assert len(text) > AT_ONCE
    assert finish(parsed(f" \n{text}\t")) == at_once(text)


LONG = ",".join('{"a": [1, 2, "]"]}' for _ in range(9_000))
DEEP = "[" * 150 + LONG + "]" * 150


@pytest.mark.parametrize("seed", range(24))
def test_a_damaged_text_is_an_error_where_it_is_damaged(seed: int) -> None:
    """A character removed, added or changed: the same verdict as at once, and the same value if it still is JSON."""
    chance = random.Random(seed)
    text = [f"[{LONG}]", DEEP, f'{{"k": [{LONG}], "l": {{"m": [{LONG}]}}}}'][seed % 3]
    at = chance.choice([0, len(text) - 1, len(text) // 2, chance.randrange(len(text)), chance.randrange(len(text))])
    piece = chance.choice(["", ",", "]", "}", "[", "{", '"', ":", "1", " ", "\\", ",,", "nul"])
    damaged = text[:at] + piece + text[at + chance.randrange(2) :]
    try:
        expected: Any = at_once(damaged)
    except ValueError:
        with pytest.raises(ValueError, match=r"at line \d+ column \d+|recursion"):
            finish(parsed(damaged))
    else:
        assert finish(parsed(damaged)) == expected


def test_the_position_of_an_error_is_one_in_the_whole_text() -> None:
    """The line and column that at once would name."""
    lines = [f'  {{"n": {n}}},' for n in range(20_000)]
    lines[15_000] = '  {"n": nul},'
    text = "[\n" + "\n".join(lines) + '\n  "end"\n]'
    with pytest.raises(ValueError) as whole:
        at_once(text)
    with pytest.raises(ValueError) as parts:
        finish(parsed(text))
    assert str(parts.value) == str(whole.value)


def test_nesting_is_bounded_across_parts() -> None:
    """Containers that are read in parts count like those within a part."""
    for levels in range(195, 203):
        text = "[" * levels + LONG + "]" * levels
        try:
            expected = at_once(text)
        except ValueError:
            with pytest.raises(TooNested):
                finish(parsed(text))
        else:
            assert finish(parsed(text)) == expected


@pytest.mark.parametrize(
    "text", ["[" + "[]," * 300_000 + "1]", '["' + '\\"' * 1_000_000 + '"]', "[" + '{"a":[1]},' * 90_000 + "1]"]
)
def test_no_part_takes_long(text: str) -> None:
    """A part takes at most some 25 ms of processor time (asserted with a margin of 3), the collector's pauses left out."""
    longest = 0.0
    work = parsed(text)
    gc.disable()
    try:
        while True:
            began = time.thread_time()
            try:
                next(work)
            except StopIteration:
                break
            finally:
                longest = max(longest, time.thread_time() - began)
    finally:
        gc.enable()
    assert longest < 0.075
