"""What all routes of a server share: the flow, what it offers, and the runs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any, Literal, TypeAlias, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from agentflow.app import AgentFlow
from agentflow.core.errors import cut
from agentflow.core.session import Session
from agentflow.lib.suggest import did_you_mean
from agentflow.serve.exports import Offer
from agentflow.serve.faults import RequestError, body_of, error_response
from agentflow.serve.keys import Key
from agentflow.serve.runs import ServedRun, ServedRuns
from agentflow.serve.streaming import disconnected, leave

T = TypeVar("T")
OnDisconnect: TypeAlias = Literal["cancel", "continue"]
PROGRAM = "program"
"""What a run of a sent program is called."""


class Service:
    """A flow that is served.

    ``programs`` are the names that sent programs may call; None: none are taken. ``on_disconnect`` is what becomes of a run
    whose client goes away, where it belongs to that.
    """

    def __init__(
        self,
        flow: AgentFlow,
        offers: Mapping[str, Offer],
        programs: frozenset[str] | None,
        on_disconnect: OnDisconnect = "cancel",
    ) -> None:
        self._on_disconnect = on_disconnect
        self.flow = flow
        self.offers = offers
        self.programs = programs
        self.runs = ServedRuns(flow)
        self.started = time.time()

    def offer(self, name: object, key: Key, param: str) -> Offer:
        """The export called ``name``. Raises RequestError: 404 for one that is not there, or not for this key."""
        if not isinstance(name, str):
            raise RequestError(f"'{param}' names an export", code="serve/field", param=param)
        offer = self.offers.get(name)
        if offer is None or not key.may_call(name):
            allowed = [each for each in self.offers if key.may_call(each)]
            raise RequestError(
                f"there is no export '{cut(name, 100)}'",
                code="serve/unknown-export",
                status=404,
                param=param,
                hint=did_you_mean(name, allowed) or f"there are: {', '.join(allowed) or 'none for this key'}",
            )
        return offer

    async def start(
        self,
        offer: Offer,
        given: Mapping[str, Any],
        key: Key,
        *,
        session: Session | None = None,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        lasting: bool = False,
        attended: bool = False,
    ) -> ServedRun:
        """Begin a run of an export. Raises RequestError, DataError and TaskError for parameters that do not fit."""
        program, bindings = offer.work(given)
        return await self.runs.start(
            program,
            bindings,
            offer.name,
            key,
            session=session,
            limits=offer.limits,
            allow=offer.allow,
            run_id=run_id,
            labels=labels,
            lasting=lasting,
            attended=attended and self._on_disconnect == "cancel",
        )

    def takes_programs(self, key: Key) -> bool:
        """Whether programs of ``key`` are run."""
        return self.programs is not None and key.may_send_programs

    async def start_program(
        self,
        program: str,
        bindings: Mapping[str, Any],
        key: Key,
        *,
        allow: Iterable[str] | None = None,
        run_id: str | None = None,
        labels: Mapping[str, str] | None = None,
        lasting: bool = False,
        attended: bool = False,
    ) -> ServedRun:
        """Begin a run of a program that was sent, which is never trusted: it may call what the server grants, or less.

        Raises RequestError (403, ``serve/programs``) where none are taken.
        """
        if self.programs is None or not self.takes_programs(key):
            raise RequestError(
                "this server runs no programs that are sent to it",
                code="serve/programs",
                status=403,
                hint="name one of its exports; a server that does is started with --programs",
            )
        grants = self.programs if allow is None else self.programs & frozenset(allow)
        return await self.runs.start(
            program,
            bindings,
            PROGRAM,
            key,
            allow=grants,
            run_id=run_id,
            labels=labels,
            lasting=lasting,
            attended=attended and self._on_disconnect == "cancel",
        )

    @contextlib.asynccontextmanager
    async def until_gone(self, request: Request, run: ServedRun) -> AsyncGenerator[None, None]:
        """A block that waits for a run: when the client goes away meanwhile, the run is cancelled."""

        async def watch() -> None:
            await disconnected(request.receive)
            await self.left(run)

        watching: asyncio.Task[object] = asyncio.create_task(watch())
        try:
            yield
        except asyncio.CancelledError:
            await run.cancel()
            raise
        finally:
            await leave(watching)

    async def left(self, run: ServedRun) -> None:
        """The client of ``run`` has gone, or has had all of it."""
        if self._on_disconnect == "cancel":
            await run.cancel()

    def redact(self, value: T) -> T:
        """Text, or data of texts, without secrets."""
        return self.flow.redact(value)

    def fault(self, error: BaseException) -> dict[str, Any]:
        """The body that says why a run failed, without secrets: a FAILED result that it gave may hold some."""
        return self.redact(body_of(error))

    def failed_answer(self, run: ServedRun, error: BaseException) -> Response:
        """The answer that says why a run failed, and when it may be tried again if that is a matter of its key's day."""
        return error_response(error, run_id=run.run_id, body=self.fault(error), day_left=run.key.day_left)


__all__ = ["Service"]
