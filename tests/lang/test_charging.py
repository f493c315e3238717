"""Work is charged by its size: each primitive for what it goes over, before it does; and no charge is forgiven."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentflow.core.data.errors import LimitExceeded
from agentflow.core.data.limits import Limits
from agentflow.core.data.results import TaskResult
from agentflow.lang.builtins import PRIMITIVES, Primitive
from agentflow.lang.charging import BITS_PER_STEP, CHARACTERS_PER_STEP, ELEMENTS_PER_STEP
from tests.support.bounds import Bounds
from tests.support.fake_run import FakeFlow
from tests.support.spending import spent

SIZE = 1 << 17
Operands = Callable[[int], tuple[Any, ...]]


def numbers(n: int) -> list[int]:
    return list(range(n))


def text(n: int) -> str:
    return "ab " * (n // 3)


def huge(n: int) -> int:
    return (1 << n) - 1


def record(n: int) -> dict[int, int]:
    return {each: each for each in range(n)}


ELEMENTS: dict[str, Operands] = {
    "append": lambda n: (numbers(n), [1]),
    "assoc": lambda n: (-1, [[each] for each in range(n)]),
    "cddr": lambda n: (numbers(n),),
    "cons": lambda n: (0, numbers(n)),
    "dict": lambda n: tuple(range(n)),
    "eq?": lambda n: (numbers(n), numbers(n)),
    "format": lambda n: ("{}", numbers(n)),
    "keys": lambda n: (record(n),),
    "member": lambda n: (-1, numbers(n)),
    "merge": lambda n: (record(n), {}),
    "put": lambda n: (record(n), 1, 2),
    "range": lambda n: (n,),
    "rest": lambda n: (numbers(n),),
    "reverse": lambda n: (numbers(n),),
    "sources": lambda n: (numbers(n),),
    "string-join": lambda n: (["a"] * n,),
    "to-json": lambda n: (numbers(n),),
    "values": lambda n: (record(n),),
    "zip": lambda n: (numbers(n),),
}
"""The primitives that go over the elements of a list or dict, with operands of ``n`` elements."""
TEXTS: dict[str, Operands] = {
    "parse-json": lambda n: ('"' + text(n) + '"',),
    "string->number": lambda n: (text(n),),
    "string-append": lambda n: (text(n), ""),
    "string-contains?": lambda n: (text(n), "x"),
    "string-downcase": lambda n: (text(n),),
    "string-replace": lambda n: (text(n), "a", "b"),
    "string-split": lambda n: (text(n), "x"),
    "string-trim": lambda n: (text(n),),
    "string-upcase": lambda n: (text(n),),
    "string<?": lambda n: (text(n), text(n) + "a"),
    "string=?": lambda n: (text(n), text(n)),
    "string>?": lambda n: (text(n), text(n)),
    "substring": lambda n: (text(n), 1),
}
BITS: dict[str, Operands] = {
    "*": lambda n: (huge(n), 3),
    "+": lambda n: (huge(n), 1),
    "-": lambda n: (huge(n), 1),
    "/": lambda n: (huge(n), 3),
    "modulo": lambda n: (huge(n), 3),
    "number->string": lambda n: (huge(min(n, 14_000)),),
    "quotient": lambda n: (huge(n), 3),
    "remainder": lambda n: (huge(n), 3),
}
CALLS = {
    "apply": "(apply list xs)",
    "endorse": '(endorse xs "I have read it")',
    "filter": "(filter not xs)",
    "for-each": "(for-each not xs)",
    "log-message": "(log-message s)",
    "map": "(map not xs)",
    "reduce": "(reduce list xs)",
    "sort": "(sort xs)",
}
"""The primitives that call procedures, which cost a step each, or take part in the run."""
EFFECTS = ["ask-human", "now", "publish-state", "random", "sleep", "uuid", "wait-for-signal"]
"""The primitives that are effects, and go over nothing."""
CONSTANT: dict[str, Operands] = {
    **dict.fromkeys(["<", "<=", "=", ">", ">="], lambda n: (huge(n), huge(n) - 1)),
    **dict.fromkeys(["abs", "even?", "odd?", "negative?", "positive?", "round", "zero?"], lambda n: (huge(n),)),
    **dict.fromkeys(["max", "min"], lambda n: (huge(n), 1)),
    **dict.fromkeys(["boolean?", "dict?", "identity", "list?", "not", "null?"], lambda n: (numbers(n),)),
    **dict.fromkeys(["number?", "pair?", "procedure?", "symbol?", "type-of"], lambda n: (numbers(n),)),
    **dict.fromkeys(["first", "cadr", "caddr", "length", "list"], lambda n: (numbers(n),)),
    **dict.fromkeys(["string?", "string-length", "string->symbol"], lambda n: (text(n),)),
    **dict.fromkeys(["content", "failed?", "status", "value-of"], lambda n: (TaskResult(content=text(n)),)),
    **dict.fromkeys(["get", "get-field"], lambda n: ({**record(n), "a": 1}, "a")),
    "gensym": lambda n: ("g",),
    "nth": lambda n: (numbers(n), n - 1),
    "symbol->string": lambda n: (PRIMITIVES["string->symbol"].function(text(n)),),
}
"""The primitives whose work does not grow: a comparison of integers ends within the few microseconds that the limit on
their bits leaves, and elements are reached at once."""

SIZED = {
    name: (rows, unit) for rows, unit in ((ELEMENTS, ELEMENTS_PER_STEP), (TEXTS, CHARACTERS_PER_STEP)) for name in rows
}
SIZED |= {name: (BITS, BITS_PER_STEP) for name in BITS}


def call(made: Primitive, rt: Bounds, operands: tuple[Any, ...]) -> Any:
    try:
        return rt.call(made, *operands)
    except LimitExceeded as error:
        assert error.code == "limits/integer-digits"


def test_every_primitive_says_how_it_charges() -> None:
    """Each is in one of the tables above; those that go over something take the strand, to charge for it."""
    tables = [*ELEMENTS, *TEXTS, *BITS, *CALLS, *EFFECTS, *CONSTANT]
    assert sorted(tables) == sorted({made.canonical for made in PRIMITIVES.values()})
    assert all(PRIMITIVES[name].needs_rt for name in SIZED)
    assert all(PRIMITIVES[name].is_async for name in [*CALLS, *EFFECTS])


@pytest.mark.parametrize("name", sorted(SIZED))
def test_what_a_primitive_goes_over_is_charged(name: str) -> None:
    """A step for 64 elements, 1 KiB of text or 4 Kbit at the least; nothing for what is smaller."""
    rows, unit = SIZED[name]
    made = PRIMITIVES[name]
    large, small = Bounds(Limits(collection=10 * SIZE)), Bounds()
    operands = rows[name](SIZE)
    call(made, large, operands)
    reached = min(SIZE, 14_000) if name == "number->string" else SIZE
    assert large.charged >= (reached - 3) // unit
    call(made, small, rows[name](unit // 2))
    assert small.charged == 0


@pytest.mark.parametrize("name", sorted(CALLS))
async def test_primitives_that_call_are_charged(name: str) -> None:
    """So are those that call procedures: at least a step for 64 elements, beside a step for each call."""
    flow = FakeFlow(watched=False)
    flow.env.define("xs", numbers(SIZE))
    flow.env.define("s", text(SIZE))
    await flow(CALLS[name])
    assert flow.budget.steps_used >= (SIZE - 3) // (CHARACTERS_PER_STEP if name == "log-message" else ELEMENTS_PER_STEP)


@pytest.mark.parametrize("name", sorted(CONSTANT))
def test_the_others_take_the_same_time_whatever_their_operand(name: str) -> None:
    """A primitive that charges nothing does not go over its operand."""
    made, make = PRIMITIVES[name], CONSTANT[name]

    def best(operands: tuple[Any, ...]) -> float:
        taken: list[float] = []
        for _ in range(5):
            with spent() as spending:
                call(made, Bounds(), operands)
            taken.append(spending.seconds)
        return min(taken)

    assert best(make(SIZE)) <= 50 * best(make(1_024)) + 3e-5


async def test_no_charge_is_forgiven() -> None:
    """Two hundred scans of 100,000 elements cost their size, however small the slices are in which steps are granted."""
    flow = FakeFlow(watched=False)
    flow.env.define("xs", numbers(100_000))
    await flow("(loop 200 (member -1 xs))")
    assert flow.budget.steps_used >= 200 + 200 * (100_000 // ELEMENTS_PER_STEP)


async def test_a_charge_that_cannot_be_paid_is_refused_before_the_work() -> None:
    """Work ends the run where it is asked for, with the steps that were allowed and not one more."""
    flow = FakeFlow(watched=False, limits=Limits(steps=100))
    with pytest.raises(LimitExceeded) as caught:
        await flow("(define xs (range 10000)) (define done true)")
    assert caught.value.code == "limits/steps"
    assert caught.value.span is not None and caught.value.span.column == 12
    assert flow.budget.steps_used == 100
    assert "done" not in flow.env
