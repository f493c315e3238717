"""Code of the host that runs inside a run: tools, host functions, and the host's own objects behind ports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import Token
from types import TracebackType
from typing import Any, cast

from agentflow.core.call.call import CallContext, LineCall, current_call
from agentflow.core.call.host_calls import HostCalls
from agentflow.core.data.errors import HostPanic, StrayExit, clip

calling: Callable[[], CallContext | None] = current_call.get
"""The call of the code that is executing, as it was set: a LineCall where that is a workflow's own."""


def executing_call() -> CallContext | None:
    """The call whose tool, host callable or workflow is executing; None outside of a run."""
    call = current_call.get()
    return call.line.strand.call if type(call) is LineCall else call


def executing_line() -> Any:
    """The :class:`~agentflow.flow.line.Line` of the workflow whose own code is executing; None elsewhere."""
    call = current_call.get()
    return call.line if type(call) is LineCall else None


def executing() -> tuple[CallContext | None, Any]:
    """Both: :func:`executing_call` and :func:`executing_line`."""
    call = current_call.get()
    return (call.line.strand.call, call.line) if type(call) is LineCall else (call, None)


def contained(error: BaseException) -> StrayExit | HostPanic:
    """The failure of host code that stands for ``error``, which is stray (:func:`is_stray`)."""
    if isinstance(error, SystemExit):
        return StrayExit(f"code of the host called sys.exit({error.code!r})", hint="raise an exception, or return")
    if isinstance(error, asyncio.CancelledError):
        return StrayExit(
            "code of the host raised CancelledError, although nobody cancelled it",
            hint="it awaits a task that it, or a library, cancelled: catch that where it is awaited",
        )
    name, said = type(error).__name__, clip(str(error), 500)
    hint = "derive exceptions from Exception; what an extension reports as a panic is a fault in it"
    return HostPanic(f"code of the host raised {name}, which is no Exception: {said}", hint=hint)


def is_stray(error: BaseException, cancelled: bool) -> bool:
    """Whether host code may not end with ``error``. ``cancelled``: its task has been cancelled since it began.

    An interrupt from the keyboard is the user's, and passes.
    """
    if isinstance(error, asyncio.CancelledError):
        return not cancelled
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return not isinstance(error, Exception) and group.subgroup(KeyboardInterrupt) is None
    return not isinstance(error, Exception | KeyboardInterrupt | GeneratorExit)


@contextmanager
def containing() -> Generator[HostCalls]:
    """A block that calls code of the host which starts nothing in the run: ``await code.to_end(...)``. Raises as :class:`HostCode` does."""
    own = HostCalls()
    try:
        yield own
    except (
        BaseException
    ) as error:  # of any kind: what is no Exception is a failure of that code, the rest is raised again
        if is_stray(error, own.cancelled()):
            raise contained(error) from error
        raise


class LineCode:
    """A block in which the code of a Python workflow runs: its calls belong to ``call``, in order."""

    __slots__ = ("_call", "_token")
    _token: Token[CallContext | None]

    def __init__(self, call: LineCall) -> None:
        self._call = call

    def __enter__(self) -> None:
        self._token = current_call.set(self._call)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        current_call.reset(self._token)


class HostCode:
    """A block in which code of the host runs: public entries called there join ``call``, with the host's authority
    (:meth:`~agentflow.core.call.call.CallContext.for_host`), whoever called the code.

    The order in which such code starts effects is unknown, so the effects of ``call`` are identified by their content. Raises
    StrayExit or HostPanic where :func:`is_stray` says so. What the code awaits is awaited so: ``await code.to_end(...)``.
    """

    __slots__ = ("_call", "_host", "_token")
    _token: Token[CallContext | None]

    def __init__(self, call: CallContext) -> None:
        self._call = call

    def __enter__(self) -> HostCalls:
        call = self._call
        call.is_ordered = False
        self._host = call.host = HostCalls()
        self._token = current_call.set(call if call.grants is None else call.for_host())
        return self._host

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        current_call.reset(self._token)
        if error is not None and is_stray(error, self._host.cancelled()):
            raise contained(error) from error
