"""Selects a back-end, and tests before the first command that it keeps its promises on this machine.

A back-end requested by name is used or refuses; it is never replaced by another. ``auto`` takes the first of bubblewrap
and landlock that passes its self-test, and refuses if neither does: ``none`` has to be requested by name.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import Callable, Mapping

from agentflow.core.data.errors import ConfigurationError, SandboxUnavailable
from agentflow.executors.sandbox.backend import Sandbox
from agentflow.lib.own_threads import own_thread
from agentflow.lib.shielded import run_to_completion

_log = logging.getLogger(__name__)

BACKENDS = ("bubblewrap", "landlock", "none")
"""The names of the back-ends in settings."""
_AUTO = ("bubblewrap", "landlock")


class SandboxChoice:
    """A back-end, tested when it is first used.

    Parameters: ``wanted`` is a name of :data:`BACKENDS`, ``auto``, or a back-end. Raises ConfigurationError
    (``sandbox/unknown``) for any other name.
    """

    def __init__(self, wanted: str | Sandbox = "auto") -> None:
        if isinstance(wanted, str) and wanted != "auto" and wanted not in BACKENDS:
            raise ConfigurationError(
                f"there is no sandbox {wanted!r}",
                code="sandbox/unknown",
                hint="one of auto, " + ", ".join(sorted(BACKENDS)),
            )
        self._requested = wanted
        self._selected: Sandbox | None = None
        self._failure: SandboxUnavailable | None = None
        self._locks: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = weakref.WeakKeyDictionary()

    @property
    def name(self) -> str:
        """The name of the back-end in use; before the first use, the requested one."""
        if self._selected is not None:
            return self._selected.name
        return self._requested if isinstance(self._requested, str) else self._requested.name

    async def get(self) -> Sandbox:
        """The tested back-end. Raises SandboxUnavailable if it is missing or failed its test; a failure is final."""
        if self._selected is not None:
            return self._selected
        async with self._locks.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
            if self._failure is not None:
                raise self._failure.with_traceback(None)
            if self._selected is None:
                try:
                    self._selected = await run_to_completion(self._choose())
                except SandboxUnavailable as error:
                    self._failure = error
                    raise
            return self._selected

    async def _choose(self) -> Sandbox:
        own = await own_thread(_swept)
        if not isinstance(self._requested, str):
            return await self._passed(self._requested)
        if self._requested != "auto":
            return await self._passed(own[self._requested]())
        reasons: list[str] = []
        for name in _AUTO:
            try:
                sandbox = await self._passed(own[name]())
            except SandboxUnavailable as error:
                reasons.append(f"{name}: {error.message}")
            else:
                _log.info("commands run in the %s sandbox", name)
                return sandbox
        raise SandboxUnavailable(
            "no sandbox works here; " + "; ".join(reasons),
            code="sandbox/unavailable",
            hint='install bubblewrap, use Linux 6.2 or later, or say sandbox="none" to run commands unconfined',
        )

    async def _passed(self, sandbox: Sandbox) -> Sandbox:
        missing = await own_thread(sandbox.missing)
        if missing is not None:
            raise SandboxUnavailable(
                missing, code="sandbox/unavailable", hint='sandbox="none" runs commands unconfined, if that is intended'
            )
        if sandbox.confines:
            from agentflow.executors.sandbox.selftest import examine

            broken = await examine(sandbox)
            if broken:
                raise SandboxUnavailable(
                    f"{sandbox.name} failed its self-test: {'; '.join(broken)}",
                    code="sandbox/self-test",
                    hint="nothing was run; request another back-end by name",
                    details={"broken": broken},
                )
        return sandbox


def backends() -> Mapping[str, Callable[[], Sandbox]]:
    """The back-ends by name. They are imported with the first command: most processes run none."""
    from agentflow.executors.sandbox.bubblewrap import Bubblewrap
    from agentflow.executors.sandbox.landlock import Landlock
    from agentflow.executors.sandbox.unconfined import Unconfined

    return {"bubblewrap": Bubblewrap, "landlock": Landlock, "none": Unconfined}


def _swept() -> Mapping[str, Callable[[], Sandbox]]:
    """The :func:`backends`, after the process groups that other processes left behind were ended. Blocking."""
    from agentflow.executors.sandbox.pids import PidGroup

    PidGroup.sweep()
    return backends()
