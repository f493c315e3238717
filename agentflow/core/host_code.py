"""Code of the host that runs inside a run: tools, host functions, and the host's own objects behind ports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Token
from types import TracebackType
from typing import Any

from agentflow.core.call import CallContext, HostCalls, LineCall, current_call

calling: Callable[[], CallContext | None] = current_call.get
"""The call of the code that is executing, as it was set: a LineCall where that is a workflow's own."""


def executing_call() -> CallContext | None:
    """The call whose tool, host callable or workflow is executing; None outside of a run."""
    call = current_call.get()
    return call.line.strand.call if type(call) is LineCall else call


def executing_line() -> Any:
    """The :class:`~agentflow.runtime.line.Line` of the workflow whose own code is executing; None elsewhere."""
    call = current_call.get()
    return call.line if type(call) is LineCall else None


def executing() -> tuple[CallContext | None, Any]:
    """Both: :func:`executing_call` and :func:`executing_line`."""
    call = current_call.get()
    return (call.line.strand.call, call.line) if type(call) is LineCall else (call, None)


class StrayExit(RuntimeError):
    """Host code ended in a way it may not: it called ``sys.exit``, or raised CancelledError
    although nobody cancelled it. It is a failure of that code, and no reason to end the process or the run."""


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
    (:meth:`~agentflow.core.call.CallContext.for_host`), whoever called the code.

    The order in which such code starts effects is unknown, so the effects of ``call`` are identified by their content. Raises
    StrayExit in place of a SystemExit, and of a CancelledError when this task was not cancelled.
    """

    __slots__ = ("_call", "_host", "_token")
    _token: Token[CallContext | None]

    def __init__(self, call: CallContext) -> None:
        self._call = call

    def __enter__(self) -> None:
        call = self._call
        call._ordered = False  # pyright: ignore[reportPrivateUsage]
        self._host = call.host = HostCalls()
        self._token = current_call.set(call if call.grants is None else call.for_host())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        current_call.reset(self._token)
        if error is None:
            return
        if isinstance(error, SystemExit):
            raise StrayExit(f"it called sys.exit({error.code!r})") from error
        if isinstance(error, asyncio.CancelledError) and not self._host.cancelled():
            raise StrayExit("it raised CancelledError, although nobody cancelled it") from error
