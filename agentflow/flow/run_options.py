"""The options of ``flow.run``, ``flow.stream`` and ``flow.start``, as type checkers see them and as the engine gets them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from typing import Any, Literal, TypeAlias, cast

from typing_extensions import TypedDict

from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.limits import Limits
from agentflow.core.data.session import Session
from agentflow.core.data.source import Surface
from agentflow.flow.python import FlowCall
from agentflow.lang.environment import SexpEnvironment
from agentflow.lib.option_table import unknown_field, wrong_value
from agentflow.run.questions import Approver
from agentflow.run.run import Tenant
from agentflow.run.run_spec import PLAIN, RunSpec

Where: TypeAlias = Literal["here", "workers"]
"""Who carries out a durable run: the process that starts it, or any worker."""


class RunOptions(TypedDict, total=False):
    """The options of ``flow.run``, ``flow.stream`` and ``flow.eval``."""

    bindings: Mapping[str, Any] | None
    env: SexpEnvironment | None
    session: Session | None
    limits: Limits | None
    allow: Iterable[str] | None
    approve: Approver | None
    run_id: str | None
    labels: Mapping[str, str] | None
    max_cost: float | None
    max_tokens: int | None
    priority: int
    tenant: Tenant | None
    surface: Surface | None


class StartOptions(TypedDict, total=False):
    """The options of ``flow.start``."""

    run_id: str | None
    limits: Limits | None
    allow: Iterable[str] | None
    approve: Approver | None
    labels: Mapping[str, str] | None
    session: Session | None
    priority: int
    tenant: Tenant | str | None
    where: Where
    queue: str
    surface: Surface | None


RUN = RunOptions.__optional_keys__
START = StartOptions.__optional_keys__
_SPEC = frozenset([each.name for each in fields(RunSpec)]) - {"queue"}


def spec_of(where: str, names: Collection[str], program: object, options: Mapping[str, Any]) -> RunSpec:
    """The spec of a run of ``program`` from the ``options`` of the method ``where``, which takes those in ``names``.

    Raises ConfigurationError (``config/option``) for an unknown option, and for limits or a session that are neither.
    """
    if not options:
        return PLAIN
    for name in options:
        if name not in names:
            if isinstance(program, FlowCall):
                program.close()  # nobody will await it
            raise unknown_field(name, where, names)
    check_run(program, options.get("limits"), options.get("session"))
    chosen = {name: value for name, value in options.items() if name in _SPEC}
    allow = chosen.get("allow")
    if not (allow is None or isinstance(allow, Collection)):
        chosen["allow"] = tuple(allow)
    return RunSpec(**chosen)


def check_run(program: object, limits: object, session: object = None) -> None:
    """Check the ``limits`` and the ``session`` of a run. Raises ConfigurationError (``config/option``) for what is neither these nor None."""
    problem: ConfigurationError | None = None
    if limits is not None and not isinstance(limits, Limits):
        entries = cast("Mapping[object, object]", limits) if isinstance(limits, Mapping) else {"usd": 1.0}
        shown = ", ".join([f"{name}={value!r}" for name, value in entries.items()])
        hint = f"write limits=Limits({clip(shown, 200)})"
        problem = wrong_value("a run", "limits", cast(object, limits), "are no Limits", hint)
    elif session is not None and not isinstance(session, Session):
        name = repr(session) if isinstance(session, str) else "'user-42'"
        hint = f"async with flow.session({clip(name, 80)}) as session: ... session=session; or agentflow.Session()"
        problem = wrong_value("a run", "session", session, "is no session", hint)
    if problem is not None:
        if isinstance(program, FlowCall):
            program.close()
        raise problem
