"""Effects: what everybody else has to know of one stands with its class."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast, get_args

import pytest

from agentflow.core.data.frozen import frozen
from agentflow.core.data.values import SharedList
from agentflow.core.data.walk import finish
from agentflow.core.events import effects
from agentflow.core.events.effects import Effect, EffectBase
from agentflow.run.strand.authority import missing_grant
from agentflow.run.strand.strand import carries_data, leaving
from tests.support.fakes import FakeRun

KINDS = get_args(Effect)


def test_every_effect_is_one_of_the_closed_set() -> None:
    """Each class of effects that is no base of others is a member of ``Effect``, and the other way round."""
    classes = [each for each in vars(effects).values() if isinstance(each, type) and issubclass(each, EffectBase)]
    bases = {base for each in classes for base in each.__mro__[1:]}
    assert set(KINDS) == set(classes) - bases


@pytest.mark.parametrize("kind", KINDS)
def test_an_effect_names_the_field_with_its_data(kind: type[EffectBase]) -> None:
    """An effect whose fields hold data of the program says which, so that it leaves the language as plain data."""
    names = {field.name for field in fields(kind)}
    assert kind.data in names if names & {"arguments", "change", "inputs", "schema", "text"} else kind.data is None


def test_an_effect_is_added_in_one_place() -> None:
    """What a new class of effects says of itself is enough for grants and for what leaves the language."""

    @frozen
    class Paint(EffectBase):
        data = "colours"
        colours: dict[str, Any]

        @property
        def grant(self) -> str | None:
            return "paint"

    effect: Any = Paint({"wall": SharedList.of(["red", "blue"])})
    call = FakeRun().call()
    assert missing_grant(effect, call) is None
    call.grants = frozenset({"draw"})
    assert missing_grant(effect, call) == "paint"
    call.grants = frozenset({"paint"})
    assert missing_grant(effect, call) is None
    assert carries_data(effect) and not carries_data(cast(Any, Paint({"wall": "red"})))
    left: Any = finish(leaving(effect, 1_000, None))
    assert left.colours == {"wall": ["red", "blue"]} and type(left.colours["wall"]) is list
    assert effect.asked is None
