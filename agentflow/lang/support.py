"""Functions that generated code calls and that need no particular strand: given to it as constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, cast

from agentflow.core.errors import SexpEvaluationError
from agentflow.lang.abi import Runtime
from agentflow.lang.builtins.registry import charge_bits
from agentflow.lang.calling import TAIL
from agentflow.lang.printer import print_value
from agentflow.lang.trace import too_early


async def bounce(rt: Runtime, d: int) -> Any:
    """Make the call that a function left in ``rt.tail``, and those it leaves in turn, in constant space."""
    while True:
        tail = rt.tail
        assert tail is not None
        rt.tail = None
        result = await tail[0](rt, d + 1, *tail[1:])
        if result is not TAIL:
            return result


async def apply(rt: Runtime, function: Any, arguments: Sequence[Any], d: int) -> Any:
    """Call any procedure value with positional arguments, to the end."""
    result = await rt.pick(function, len(arguments), d)(rt, d + 1, *arguments)
    return await bounce(rt, d) if result is TAIL else result


def rounds(value: Any) -> range:
    """The rounds of ``loop``. Raises SexpEvaluationError for what is no count."""
    if type(value) is not int or value < 0:
        raise SexpEvaluationError(
            f"loop: the count is an integer that is not negative, and this is {print_value(value, limit=80)}",
            code="loop/count",
            hint="write (loop 3 body)",
        )
    return range(value)


def bounded(rt: Runtime, value: Any, who: str) -> Any:
    """``value``, which may be an integer past 256 bits. Raises LimitExceeded when it is too large."""
    if type(value) is int:
        charge_bits(rt, value.bit_length(), who)
    return value


def uninitialised(name: str) -> NoReturn:
    """A variable was read before its definition. Raises UnboundSymbolError (``binding/uninitialised``)."""
    raise too_early(name)


def fresh(value: Any) -> Any:
    """A copy of quoted data that shares nothing which can be changed. Does not recurse."""
    out: list[Any] = []
    pending: list[tuple[Any, Any, Any]] = [(value, out, None)]
    while pending:
        at, target, key = pending.pop()
        made: Any = at
        if isinstance(at, list):
            made = list(cast(list[Any], at))
            pending.extend((item, made, i) for i, item in enumerate(cast(list[Any], made)) if _mutable(item))
        elif isinstance(at, dict):
            made = dict(cast(dict[Any, Any], at))
            pending.extend((item, made, k) for k, item in cast(dict[Any, Any], made).items() if _mutable(item))
        if target is out:
            out.append(made)
        else:
            target[key] = made
    return out[0]


def _mutable(value: object) -> bool:
    return isinstance(value, list | dict)
