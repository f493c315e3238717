"""Effects and programs that code builds at run time, after their arguments are read."""

from __future__ import annotations

from typing import Any

from agentflow.core.data.labels import stripped
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Source, Span
from agentflow.core.events.effects import LONGEST_SIGNAL_NAME, AskHuman, AwaitSignal, Endorse, Publish, Timer
from agentflow.lang.abi import Runtime
from agentflow.lang.builtins.results import value_of
from agentflow.lang.builtins.world import sources
from agentflow.lang.python.boxed.copies import own_copy
from agentflow.lang.python.errors import wanted
from agentflow.lang.python.rows import code

_LONGEST_S = 1e9
_LARGEST = 1 << 60


def asked(question: Any, schema: dict[str, Any] | None) -> AskHuman:
    """The effect of ``ask_human(...)``."""
    if type(question) is not str:
        wanted("ask_human", "the question, as text", question)
    return AskHuman(question, schema)


def signal(name: Any, schema: dict[str, Any] | None) -> AwaitSignal:
    """The effect of ``wait_for_signal(...)``."""
    if type(name) is not str or not 1 <= len(name) <= LONGEST_SIGNAL_NAME:
        wanted("wait_for_signal", f"a name, as text of 1 to {LONGEST_SIGNAL_NAME} characters", name)
    return AwaitSignal(name, schema)


def published(key: Any, value: Any) -> Publish:
    """The effect of ``publish_state(...)``."""
    if type(key) is not str:
        wanted("publish_state", "the key, as text", key)
    return Publish((key, value))


def waiting(seconds: Any) -> Timer:
    """The effect of ``sleep(...)``."""
    if type(seconds) not in (int, float) or not 0 <= seconds < _LONGEST_S:
        wanted("sleep", "seconds, as a number that is not negative", seconds)
    return Timer(float(seconds))


def below(limit: Any) -> int:
    """The bound of ``random(n)``."""
    if type(limit) is not int or not 1 <= limit <= _LARGEST:
        wanted("random", "a positive integer of at most 60 bits", limit)
    return limit


def program_text(text: Any) -> Source:
    """The program of ``eval_program(...)``."""
    if type(text) is not str:
        wanted("eval_program", "the program, as text", text)
    return Source.unnamed(text, "python")


@code("o")
def unwrapped(result: Any) -> Any:
    """The data or text of a result. Raises the error of a failed one."""
    return value_of(result) if isinstance(result, TaskResult) else result


@code("k")
async def endorsed(rt: Runtime, value: Any, reason: Any, span: Span) -> Any:
    """The value of ``endorse(...)``: a copy, because an endorsement does not cover later changes of the value."""
    await rt.perform(Endorse((value, reason)), span)
    bare, _ = await rt.work(stripped(value))
    return (await rt.work(own_copy(bare)))[0]


@code("k", long="always")
def sources_of(rt: Runtime, value: Any) -> Any:
    """The value of ``sources(...)``."""
    return sources(rt, value)
