"""Functions that generated code calls, independent of the kind of strand; passed to it as constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, cast

from agentflow.core.data.errors import SexpEvaluationError
from agentflow.core.data.labels import bare, because_of
from agentflow.lang.abi import Runtime
from agentflow.lang.calling import TAIL, bounce
from agentflow.lang.charging import check_bits, touch_bits
from agentflow.lang.printer import print_value
from agentflow.lang.trace import too_early


async def apply(rt: Runtime, function: Any, arguments: Sequence[Any], d: int) -> Any:
    """Call any procedure value with positional arguments, including its tail calls."""
    result = await rt.pick(function, len(arguments), d)(rt, d + 1, *arguments)
    return await bounce(rt, d) if result is TAIL else result


def rounds(value: Any) -> range:
    """The iterations of ``loop``. Raises SexpEvaluationError for an invalid count."""
    count, value = value, bare(value)
    if type(value) is not int or value < 0:
        error = SexpEvaluationError(
            f"loop: the count is an integer that is not negative, and this is {print_value(value, limit=80)}",
            code="loop/count",
            hint="write (loop 3 body)",
        )
        raise because_of(error, count)
    return range(value)


def bounded(rt: Runtime, value: Any, who: str) -> Any:
    """``value``, which may be an integer of more than 256 bits. Raises LimitExceeded if it is too large."""
    if type(value) is int:
        check_bits(rt, value.bit_length(), who)
        touch_bits(rt, value)
    return value


def uninitialised(name: str) -> NoReturn:
    """Raise UnboundSymbolError (``binding/uninitialised``): a variable was read before its definition."""
    raise too_early(name)


def fresh(value: Any) -> Any:
    """A copy of quoted data that shares no mutable parts, made without recursion."""
    out: list[Any] = []
    pending: list[tuple[Any, Any, Any]] = [(value, out, None)]
    while pending:
        at, target, key = pending.pop()
        copied: Any = at
        if isinstance(at, list):
            copied = list(cast(list[Any], at))
            pending.extend((item, copied, i) for i, item in enumerate(cast(list[Any], copied)) if _mutable(item))
        elif isinstance(at, dict):
            copied = dict(cast(dict[Any, Any], at))
            pending.extend((item, copied, k) for k, item in cast(dict[Any, Any], copied).items() if _mutable(item))
        if target is out:
            out.append(copied)
        else:
            target[key] = copied
    return out[0]


def _mutable(value: object) -> bool:
    return isinstance(value, list | dict)
