"""Ends a task, or has its model try again, from host code: objects that tools and checks raise or return."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from importlib import import_module
from typing import Any, ClassVar, Literal, TypeAlias

from pydantic_core import PydanticSerializationError, to_jsonable_python

from agentflow.core.call.call import CallContext, HostCode
from agentflow.core.data.errors import AgentflowError, ConfigurationError, TaskError, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.messages import Message
from agentflow.core.data.reasons import Reason
from agentflow.core.data.results import TaskResult

Keep: TypeAlias = "Literal['all'] | Callable[[Sequence[Message]], Sequence[Message]] | None"
"""The messages that a conversation is handed over with: all, none, or those that a function chooses."""


class Retry(AgentflowError):
    """Raised by a ``check=`` or a tool to have the model try again: ``raise Retry("there is no flight on that day")``.

    ``why`` is the text that the model reads. From a check it counts as one of the task's ``rounds``; from a tool it is the result of
    the call.
    """

    default_code = "tasks/retry"
    default_reason: ClassVar[Reason] = "output_format_failure"

    def __init__(self, why: str) -> None:
        self.why = str(why)
        super().__init__(self.why or "try again")

    def __reduce__(self) -> tuple[Any, ...]:
        return Retry, (self.why,)


class Finish(Exception):
    """Raised by a tool to end the task of the calling model: ``raise Finish(order)``.

    ``value`` becomes the task's value, validated as its output; the model reads nothing more. The other calls of the same
    answer end first, and the first of several in their order counts. For a program, or host code, that calls the tool,
    ``value`` is its result.
    """

    def __init__(self, value: Any) -> None:
        self.value = value
        super().__init__(value)


@frozen
class Handoff:
    """Returned by a tool, or listed in ``handoffs=``: another task continues the same conversation.

    ``task`` is a task, or the name of one; ``arguments`` are its arguments where a tool returns it (in ``handoffs=`` the
    model gives them). The task has its own system prompt, tools and model, and reads its own prompt after the messages that
    ``keep`` leaves: ``"all"``, None for none, or the value of a plain function of the messages. Its value becomes that of the
    first task, so both return the same type. Raises ConfigurationError (``config/handoff``) for anything else.
    """

    task: Any
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    keep: Keep = "all"

    def __post_init__(self) -> None:
        if not isinstance(self.task, str) and not hasattr(self.task, "template"):
            raise _wrong(
                f"Handoff({clip(repr(self.task), 120)}) names no task",
                "Handoff(billing), a function of @flow.task, or its name",
            )
        if not isinstance(self.arguments, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise _wrong("the arguments of a Handoff are a dict", "Handoff(billing, {'question': 'Why?'})")
        if self.keep is not None and self.keep != "all" and not callable(self.keep):
            raise _wrong(f"keep={clip(repr(self.keep), 80)} is none of 'all', None and a function", "keep='all'")

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.task if isinstance(self.task, str) else self.task.template.name

    @property
    def compiled(self) -> Any:
        """The template of the task; None if it is only named."""
        return None if isinstance(self.task, str) else self.task.template

    def compiled_in(self, services: object) -> Any:
        """The template of the task in runs of ``services``; None if it is only named."""
        here = getattr(self.task, "template_in", None)
        return self.compiled if here is None else here(services)

    def stored(self) -> dict[str, Any]:
        """The handoff as JSON data, for the record of the tool that returned it; :func:`stored_handoff` reads it back."""
        keep = f"{self.keep.__module__}:{self.keep.__qualname__}" if callable(self.keep) else self.keep
        return {"task": self.name, "arguments": dict(self.arguments), "keep": keep}


def stored_handoff(data: Mapping[str, Any]) -> Handoff:
    """A handoff from the data of :meth:`Handoff.stored`. Raises ConfigurationError (``config/handoff``) if its ``keep`` function
    cannot be imported."""
    keep: Any = data["keep"]
    if keep not in (None, "all"):
        module, _, name = str(keep).partition(":")
        try:
            keep = getattr(import_module(module), name)
        except (ImportError, AttributeError):
            raise _wrong(
                f"the keep function '{keep}' of a recorded handoff to '{data['task']}' cannot be imported",
                "a function of a module, not a lambda or a closure",
            ) from None
    return Handoff(data["task"], data["arguments"], keep)


# An ending is a value of a class, so that no data from elsewhere can end a task (decision 52)
@frozen
class EndOfTask:
    """The end of a task, requested by a tool.

    ``data`` is JSON data, ``{"finish": value}`` or ``{"handoff": ...}``; ``live`` is the handoff as the tool returned it, None where
    it comes from a record.
    """

    data: Mapping[str, Any]
    live: Handoff | None = None

    @property
    def handoff(self) -> Handoff | None:
        """The handoff, if it is one."""
        if "handoff" not in self.data:
            return None
        return stored_handoff(self.data["handoff"]) if self.live is None else self.live


def with_ending(name: str, result: TaskResult, value: object) -> TaskResult:
    """The ``result`` of a call of the tool ``name`` that ends the task of the calling model, with ``value`` as that task's value."""
    if result.status != "COMPLETE":
        return result
    data = value.value() if isinstance(value, TaskResult) else value
    return _ended(
        result, "finish", data, None, f"the tool '{name}' ends the task with {clip(repr(value), 120)}, which is"
    )


def handing_over(name: str, handoff: Handoff, call: CallContext) -> TaskResult:
    """The result of the tool ``name`` that hands the conversation over, for the model of the task that continues."""
    result = TaskResult("COMPLETE", f"handed over to {handoff.name}")
    result = _ended(result, "handoff", handoff.stored(), handoff, f"the arguments of the handoff by '{name}' are")
    if result.status == "COMPLETE" and callable(handoff.keep) and call.run.journal is not None:
        stored_handoff(handoff.stored())  # found now, or not after an interruption either
    return result


def _ended(result: TaskResult, kind: str, value: object, live: Handoff | None, said: str) -> TaskResult:
    try:
        ending = EndOfTask({kind: to_jsonable_python(value)}, live)
    except PydanticSerializationError as error:
        message = f"{said} not data: {error}"
        return TaskResult.failure("tool_execution_error", message, details={"code": "tool/finish"})
    return replace(result, notes=replace(result.notes, ending=ending))


def _wrong(message: str, instead: str) -> ConfigurationError:
    return ConfigurationError(message, code="config/handoff", hint=f"write {instead}")


@frozen
class HandedOver:
    """A conversation handed over to another task.

    ``handoff`` says which; ``messages`` are those sent to its model, ``exchange`` all since the conversation's last turn
    was committed, and ``turns`` the number of model calls of the tasks so far.
    """

    handoff: Handoff
    messages: tuple[Message, ...]
    exchange: tuple[Message, ...]
    turns: int


async def called_by_host(
    function: Callable[..., Any], arguments: tuple[Any, ...], call: CallContext, label: str
) -> Any:
    """The value of a host's function, async or plain, called at ``call``.

    Raises its own AgentflowErrors, and TaskError (``host/raised``) with any other exception as its cause. ``label`` names it.
    """
    try:
        with HostCode(call) as code:
            value: Any = function(*arguments)
            return await code.to_end(value, label) if inspect.isawaitable(value) else value
    except AgentflowError:
        raise
    except Exception as error:
        details = {"exception": type(error).__name__}
        raise TaskError(
            f"{label} raised {type(error).__name__}: {error}", code="host/raised", details=details
        ) from error
