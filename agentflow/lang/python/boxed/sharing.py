"""Changes of data within branches: containers that code outside a branch can reach must not be changed inside.

Outside branches nothing is checked. At the first change inside one, the inputs of the branch are collected, by identity,
once for each fork: captured values of its procedures, the elements it runs over, and the variables of the environment.
Afterwards each change is a look-up. Objects outside cannot gain ones of the branch meanwhile, because they may not be
changed either.
"""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# Tests of exact types make list[Unknown] of Any.
from __future__ import annotations

from collections.abc import Sequence
from types import FunctionType
from typing import Any, cast

from agentflow.core.data.errors import SexpEvaluationError
from agentflow.core.data.fields import field_values
from agentflow.core.data.labels import Label
from agentflow.core.data.values import OrderedSet
from agentflow.core.data.walk import ELEMENTS_PER_STEP, LEAVES, PART, Work, slices
from agentflow.lang.abi import Fork, Runtime
from agentflow.lang.builtins.strict import Called
from agentflow.lang.closure import Closure
from agentflow.lang.environment import Cell, SexpEnvironment


def changing(rt: Runtime, value: object) -> Work[None] | None:
    """Refuse to change ``value``, within a branch, if code outside can reach it (``concurrency/shared-set``).

    None: it may be changed. Otherwise the reachable containers are not known yet: carry out the returned work, then ask
    again.
    """
    fork = rt.fork
    while fork is not None:
        reachable = fork.reachable
        if reachable is None:
            rt.charge(_collect(fork))
            reachable = fork.reachable
            if reachable is None:
                return _collected(fork)
        if id(value) in reachable:
            raise SexpEvaluationError(
                f"this {'set' if type(value) is OrderedSet else type(value).__name__} belongs to the code around this"
                " branch, which runs at the same time",
                code="concurrency/shared-set",
                hint="change a copy (row = dict(row)), or return the value and combine the results afterwards",
            )
        fork = fork.outer
    return None


def allowed(rt: Runtime, value: object) -> Work[None]:
    """The work of :func:`changing`, without a time limit."""
    while (work := changing(rt, value)) is not None:
        yield from work


def _collected(fork: Fork) -> Work[None]:
    """Continue collecting, like other branches that wait for it, until the reachable containers are known."""
    while fork.reachable is None:
        yield _collect(fork)


def _collect(fork: Fork) -> int:
    """Collect a part of the reachable containers of a fork; returns the number of steps."""
    if fork.reaching is None:
        fork.reaching = reachable(fork.roots)
    try:
        return next(fork.reaching)
    except StopIteration as done:
        fork.reachable = done.value
        return 0


def reachable(roots: Sequence[Any]) -> Work[frozenset[int]]:
    """The identities of all lists, dicts and sets, and of other holders of values, reachable from the inputs of a fork,
    which they keep alive."""
    seen: set[int] = set()
    keep: list[Any] = []  # values that may be created on each access: kept so that no other object gets their identity
    pending: list[Any] = list(roots)
    count = 0
    while pending:
        at = pending.pop()
        count += 1
        if count >= PART:
            yield count // ELEMENTS_PER_STEP
            count = 0
        if id(at) in seen:
            continue
        parts = at if type(at) is list else _parts(at)
        if parts is None:
            continue
        seen.add(id(at))
        if type(at) is not list:
            keep.append(at)
        count += len(parts)
        if len(parts) <= PART:
            pending += [each for each in parts if type(each) not in LEAVES]
            continue
        for part in slices(parts):
            yield len(part) // ELEMENTS_PER_STEP
            pending += [each for each in part if type(each) not in LEAVES]
        count = 0
    return frozenset(seen)


def _parts(value: Any) -> list[Any] | tuple[Any, ...] | None:
    kind = cast("type[Any]", type(value))
    if kind is tuple:
        return value
    if kind is dict:
        return list(value.values())
    if kind is Label:
        return (value.value,)
    if kind is OrderedSet:
        return ()
    if kind is Closure:
        return (value.raw, value.env)
    if kind is Called:
        return (value.function,)
    if kind is FunctionType:
        return _captured(value)
    if kind is SexpEnvironment:
        around = (value.parent,) if value.parent is not None else ()
        return (*value.cells(), *around)
    if isinstance(value, Cell):
        return (value.v,)
    # Of compiled code no part is a value of a program, and there is much of it.
    return None if kind.__module__.startswith("agentflow.lang.") else field_values(value) or None


def _captured(function: FunctionType) -> list[Any]:
    """The captured values of a function. Empty cells are unbound variables."""
    values: list[Any] = []
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:
            continue
    return values
