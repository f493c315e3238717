"""The flow that the options of a command and the settings describe."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from agentflow.cli.shared.approving import answerer, approver
from agentflow.cli.shared.common import UsageError
from agentflow.cli.shared.mcp_options import servers_of
from agentflow.cli.shared.state import can_record
from agentflow.core.data.errors import ConfigurationError

if TYPE_CHECKING:
    from agentflow.app import AgentFlow
    from agentflow.core.data.limits import Limits

from agentflow.cli.shared.options import FlowOptions


def parse_limits(texts: Iterable[str], base: Limits) -> Limits:
    """Apply ``name=number`` options to ``base``. Raises UsageError, and ConfigurationError for an unknown limit."""
    from agentflow.settings import read_limits

    with _in_words():
        return read_limits(numbers_of("--limit", texts, lambda name: read_limits({name: None})), base)


@contextlib.contextmanager
def _in_words() -> Generator[None]:
    """A block with errors that name options as the command line does, and not as calls in Python."""
    try:
        yield
    except ConfigurationError as error:
        from agentflow.lib.text.toml_words import reworded

        raise reworded(error, "") from error


def numbers_of(option: str, texts: Iterable[str], check_name: Callable[[str], object]) -> dict[str, Any]:
    """The ``name=number`` texts of a repeatable option. Raises UsageError, and the error of ``check_name`` for an unknown
    name."""
    values: dict[str, Any] = {}
    for text in texts:
        name, _, number = text.partition("=")
        check_name(name)
        try:
            values[name] = None if number == "none" else float(number) if "." in number else int(number)
        except ValueError:
            raise UsageError(
                f"{option} {text}: the value is a number, or none", hint=f"write {option} {name}=1000"
            ) from None
    return values


@contextlib.asynccontextmanager
async def open_flow(options: FlowOptions, **overrides: Any) -> AsyncGenerator[AgentFlow, None]:
    """The flow that ``options`` and the settings describe; ``overrides`` are arguments of AgentFlow."""
    async with make_flow(options, **overrides) as flow:
        if flow.mcp.servers:
            from agentflow.cli.shared.mcp_names import remember

            await asyncio.to_thread(remember, flow)
        yield flow


def make_flow(options: FlowOptions, **overrides: Any) -> AgentFlow:
    """The same flow, not entered: nothing is connected or taken over."""
    if options.app is not None:
        return _application(options.app, options, overrides)
    from agentflow.app import AgentFlow
    from agentflow.providers.clocks import clocks_of
    from agentflow.providers.dialects.retry import retry_of
    from agentflow.providers.table import Provider

    settings = options.settings()
    with _in_words():
        clocks = numbers_of("--clock", options.clock or (), lambda name: clocks_of({name: 1}))
        retry = numbers_of("--retries", options.retries or (), lambda name: retry_of({name: 1}))
        clocks_of(clocks)
        retry_of(retry)
        provider = Provider(clocks=clocks, retry=retry)
    arguments: dict[str, Any] = {
        "settings": settings.model_copy(update={"mcp": {}}) if settings.mcp else settings,
        "provider": provider,
        "limits": parse_limits(options.limit or (), settings.make_limits()).lowered(
            options.max_cost, options.max_tokens
        ),
        "approve": approver(options.approve),
        "answer": None if "durable" in overrides else answerer(),
        "index_cache": True,
        "notes": options.notes,
        "mcp": servers_of(settings, options),
        "record": getattr(options, "record", False) and can_record(),
        "provenance": options.policy,
        **overrides,
    }
    return _explaining(AgentFlow(**cast(Any, arguments)), options)


def _explaining(flow: AgentFlow, options: FlowOptions) -> AgentFlow:
    """The flow, which denies nothing with ``--explain``. Raises UsageError if it has no policy."""
    if not options.explain:
        return flow
    engine = flow.engine
    if engine.provenance is None:
        raise UsageError("--explain tells what a policy denies, and there is none", hint="give one with --policy FILE")
    engine.follow(replace(engine.provenance, explain=True))
    return flow


def _application(where: str, options: FlowOptions, overrides: Mapping[str, Any]) -> AgentFlow:
    """The flow of ``--app``, within the limits of the command line, asking on the terminal.

    ``overrides`` may name other callbacks to ask.
    """
    from agentflow.cli.shared.application import check_durable, check_options, load_flow, narrow

    check_options(options)
    flow = load_flow(where)
    if options.policy is not None:
        narrow(flow, options.policy, where)
    durable = "durable" in overrides
    if durable:
        check_durable(flow, where)
    limits = parse_limits(options.limit or (), flow.limits).lowered(options.max_cost, options.max_tokens)
    flow.limits = flow.engine.limits = limits
    approve = overrides["approve"] if "approve" in overrides else approver(options.approve)
    answer = overrides["answer"] if "answer" in overrides else None if durable else answerer()
    flow.engine.attend(approve, answer)
    return _explaining(flow, options)
