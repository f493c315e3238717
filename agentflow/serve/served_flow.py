"""Shared by all routes of a server: the flow, the exports and the runs."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from agentflow.app import AgentFlow
from agentflow.core.data.errors import cut
from agentflow.core.data.session import Session
from agentflow.lib.text.suggest import did_you_mean
from agentflow.serve.client_calls import UNNAMED, ClientCall, Prepared
from agentflow.serve.error_responses import Reader, RequestError, body_of, error_response, failure_of_run
from agentflow.serve.exports import Offer
from agentflow.serve.fleet import Fleet
from agentflow.serve.keys import Key
from agentflow.serve.served_runs import ServedRun, ServedRuns
from agentflow.serve.streaming import disconnected, leave

T = TypeVar("T")
OnDisconnect: TypeAlias = Literal["cancel", "continue"]
PROGRAM = "program"
"""The export name shown for runs of sent programs."""


class Inputs(NamedTuple):
    """The values of an export's parameters, the conversation before them, and the state that the run shares."""

    values: Mapping[str, Any]
    session: Session | None = None
    state: Mapping[str, Any] | None = None


class ServedFlow:
    """A served flow.

    ``programs`` are the names that sent programs may call (None: sent programs are refused). ``on_disconnect`` decides
    about a run after its client disconnects, if the run belongs to that client.
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
        self.fleet = Fleet(flow)
        self.started = time.time()

    def offer(self, name: object, key: Key, param: str) -> Offer:
        """The export called ``name``; ``param`` is the field that names it. Raises RequestError (404) if this key has none such."""
        if not isinstance(name, str):
            raise RequestError(f"'{param}' must be the name of an export", code="serve/field", param=param)
        offer = self.offers.get(name)
        if offer is None or not key.may_call(name):
            allowed = [each for each in self.offers if key.may_call(each)]
            raise RequestError(
                f"there is no export '{cut(name, 100)}'",
                code="serve/unknown-export",
                status=404,
                param=param,
                hint=did_you_mean(name, allowed) or f"available: {', '.join(allowed) or 'none for this key'}",
            )
        return offer

    async def start(
        self,
        offer: Offer,
        inputs: Callable[[], Awaitable[Inputs]],
        key: Key,
        *,
        call: ClientCall = UNNAMED,
        labels: Mapping[str, str] | None = None,
        lasting: bool = False,
        attended: bool = False,
    ) -> ServedRun:
        """Start a run of an export. ``inputs`` is called once the key is admitted, since it may take long.

        Raises RequestError, DataError and TaskError for invalid inputs.
        """

        async def prepare() -> Prepared:
            values, session, state = await inputs()
            return Prepared(*offer.work(values), session, state)

        return await self.runs.start(
            prepare,
            offer.name,
            key,
            limits=offer.limits,
            allow=offer.allow,
            call=call,
            labels=labels,
            lasting=lasting,
            attended=attended and self._on_disconnect == "cancel",
        )

    def takes_programs(self, key: Key) -> bool:
        """Whether the server runs programs sent with ``key``."""
        return self.programs is not None and key.may_send_programs

    async def start_program(
        self,
        program: str,
        bindings: Mapping[str, Any],
        key: Key,
        *,
        allow: Iterable[str] | None = None,
        call: ClientCall = UNNAMED,
        labels: Mapping[str, str] | None = None,
        lasting: bool = False,
        attended: bool = False,
    ) -> ServedRun:
        """Start a run of a sent program, which is untrusted: it may call the names that the server grants, or those in
        ``allow``.

        Raises RequestError (403, ``serve/programs``) if the server refuses sent programs.
        """
        if self.programs is None or not self.takes_programs(key):
            raise RequestError(
                "this server does not run programs sent by clients",
                code="serve/programs",
                status=403,
                hint="call one of its exports",
                setting="start the server with --programs, and give the key programs = true",
            )
        grants = self.programs if allow is None else self.programs & frozenset(allow)

        async def prepare() -> Prepared:
            return Prepared(program, bindings)

        return await self.runs.start(
            prepare,
            PROGRAM,
            key,
            allow=grants,
            call=call,
            labels=labels,
            lasting=lasting,
            attended=attended and self._on_disconnect == "cancel",
        )

    @contextlib.asynccontextmanager
    async def until_gone(self, request: Request, run: ServedRun) -> AsyncGenerator[None, None]:
        """A block that waits for a run; if the client disconnects meanwhile, the run is cancelled."""

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
        """Handle that the client of ``run`` has disconnected, or has received everything."""
        if self._on_disconnect == "cancel":
            await run.cancel()

    def redact(self, value: T) -> T:
        """``value``, text or data with texts, without secrets."""
        return self.flow.redact(value)

    def fault(self, run: ServedRun, error: BaseException, key: Key | None = None) -> dict[str, Any]:
        """The body of the response for a failed run, without secrets, which a FAILED result may contain; ``key`` reads it, or that of the
        run."""
        reader = Reader(operator=(key or run.key).may_see_host, author=run.export == PROGRAM)
        return self.refusal(failure_of_run(error), reader)

    def refusal(self, error: BaseException, reader: Reader) -> dict[str, Any]:
        """The body of the response for a refused request, without secrets."""
        return self.redact(body_of(error, reader))

    def failed_answer(self, run: ServedRun, error: BaseException) -> Response:
        """The response for a failed run; for a daily limit of the key it says when the run can be repeated."""
        shown = failure_of_run(error)
        return error_response(shown, run_id=run.run_id, body=self.fault(run, shown), reset_s=run.key.wait_for(shown))
