"""Checks that the authority in force covers an effect, and builds the errors for when it does not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import ConfigurationError, SexpEvaluationError, TaskError, clip
from agentflow.core.data.known_names import FILES, GUARDED, Names, permitted
from agentflow.core.data.results import TaskResult
from agentflow.core.data.source import Span
from agentflow.core.events.effects import (
    AskHuman,
    AwaitSignal,
    CallTool,
    Effect,
    Endorse,
    GetContext,
    Publish,
    TaskCall,
)
from agentflow.core.ports.ports import WorkflowPort
from agentflow.lang.analyzer import EFFECT_NAMES
from agentflow.lang.forms import FORMS
from agentflow.lib.text.suggest import did_you_mean

_CONTEXT = frozenset({"get_context", "system:get_context"})


def missing_grant(effect: Effect, call: CallContext) -> str | None:
    """The name that the grants of ``call`` lack for ``effect``; None when they suffice."""
    grants = call.grants
    if grants is None:
        return None
    name = effect.grant
    if name is None or name in grants:
        return None
    if isinstance(effect, TaskCall | CallTool):
        template = call.definitions.task(name) if call.definitions is not None else None
        return None if template is not None and permitted(template, grants) else name
    if isinstance(effect, GetContext) and (grants & _CONTEXT or (effect.items and "get-context-items" in grants)):
        return None
    return name


async def refuse(effect: Effect, name: str, call: CallContext) -> Any:
    """Refuse an effect that lacks the grant ``name``: return a FAILED result if the effect has results, else raise."""
    call.warn("name/not-granted", f"'{name}' was called, and is not granted to this program", name=name)
    if isinstance(effect, GetContext | AskHuman | AwaitSignal | Publish | Endorse):
        raise not_granted(name, call.grants, call.span)
    error = not_granted(name, call.grants, call.span)
    return TaskResult.from_error(
        TaskError(
            error.message,
            reason="input_validation_failure",
            code=error.code,
            span=error.span,
            hint=error.hint,
            details={"cause": "not_granted", "name": name},
        )
    )


def not_granted(name: str, grants: frozenset[str] | None, span: Span | None) -> SexpEvaluationError:
    """The error for code that uses ``name`` without the grant for it."""
    return SexpEvaluationError(
        f"'{name}' is not granted to this program",
        code="name/not-granted",
        span=span,
        hint=f"grant it by name: allow=['{name}', ...]; granted are {_listed(grants)}",
    )


def _listed(grants: frozenset[str] | None) -> str:
    return ", ".join(sorted(grants or ())[:20]) or "none"


async def grants_of(allow: Iterable[str], text: str, names: Names, workflows: WorkflowPort | None) -> frozenset[str]:
    """The grants that ``allow`` gives a program ``text``; ``names`` are the names defined around it.

    An undefined name is granted if the program mentions it, since the program may define it. Raises ConfigurationError
    (``config/allow``) for any other undefined name.
    """
    grants = () if isinstance(allow, str) else tuple(allow)
    if isinstance(allow, str) or not all(isinstance(name, str) for name in cast(tuple[object, ...], grants)):
        raise ConfigurationError(
            f"allow is a list of names, and this is {clip(repr(allow), 100)}",
            code="config/allow",
            hint="write allow=['name', ...]",
        )
    unknown = [name for name in grants if not _means_something(name, names) and name not in text]
    others = await workflows.load_names() if unknown and workflows is not None else ()
    for name in unknown:
        if name not in others:
            raise ConfigurationError(
                f"allow: there is no task, tool or workflow '{clip(name, 100)}' to grant",
                code="config/allow",
                hint=did_you_mean(name, [*names.known_names(), *others]) or "register it first, or leave it out",
            )
    return frozenset(grants)


def _means_something(name: str, names: Names) -> bool:
    forms = name in FORMS or name in EFFECT_NAMES or name in GUARDED
    return forms or name.startswith(FILES) or names.describe(name) is not None
