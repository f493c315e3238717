"""Subtasks: tasks that a model requests with a CONTINUATION.

The template is selected by the request's name, else its ``type:subtype``, else the first existing one of its
``template_hints``, else the best match of its description. The subtask runs one level deeper. Past the depth limit
(``max_depth`` of the request, at most the run's ``subtask_depth``), or if an ancestor is working on the same request,
it is refused with a FAILED result, which the parent's model reads like any other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import TaskError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.results import TaskResult
from agentflow.core.data.session import Session
from agentflow.core.events.events import SubtaskStarted
from agentflow.tasks.context_rules import resolve_settings
from agentflow.tasks.overrides import TaskOptions, fingerprint
from agentflow.tasks.runner import TaskRunner
from agentflow.tasks.template_registry import CompiledTemplate, TemplateRegistry


@frozen
class Subtasks:
    """Runs subtask requests. Holds no state: depth and ancestors are on the call."""

    registry: TemplateRegistry
    runner: TaskRunner

    def select(self, request: SubtaskRequest, call: CallContext) -> CompiledTemplate | None:
        """The template for a request at ``call``, or None."""
        template = self.runner.find(request, call)
        if template is not None or request.name is not None or request.type != "atomic":
            return template
        for hint in request.template_hints:
            template = self.registry.find(hint, call.definitions) or self.registry.find(
                f"{request.type}:{hint}", call.definitions
            )
            if template is not None:
                return template
        matching = self.registry.matching(request.description, call.definitions) if request.description else []
        return matching[0][0] if matching else None

    async def run(
        self, request: SubtaskRequest, call: CallContext, options: TaskOptions, task: CompiledTemplate | None = None
    ) -> TaskResult:
        """Run a request within ``call``, between Subtask events. A failure is a FAILED result.

        ``task`` is a task that the host passed as a tool: it is run even if another has its name, with the host's
        authority.
        """
        if task is None:
            compiled = self.select(request, call)
        else:
            call, journal = call.for_host(), call.run.journal
            compiled = task if journal is None else cast(CompiledTemplate, journal.template(task))
        depth = max(call.level, 1 + sum(mark.startswith("sub:") for mark in call.subtask_chain))
        request = replace(request, depth=depth)
        mark = fingerprint(compiled.name, request) if compiled is not None else ""
        with call.nested(SubtaskStarted, request=request, depth=depth) as scope:
            inner = scope.call
            inner.toolbox = None
            inner.session = self._session(compiled, request, call)
            inner.add_mark(f"sub:{mark}")
            result = self._refusal(compiled, request, call, depth, mark)
            if result is None:
                assert compiled is not None
                result = await self.runner.run(compiled, request, inner, replace(options, functions=None))
            scope.set(result=result, usage=result.usage, name=compiled.name if compiled is not None else "")
            if result.failed:
                scope.set(error=result.error)
        return result

    def _refusal(
        self, compiled: CompiledTemplate | None, request: SubtaskRequest, call: CallContext, depth: int, mark: str
    ) -> TaskResult | None:
        if compiled is None:
            return self.runner.not_found(request, call)
        allowed = call.run.limits.subtask_depth
        if request.max_depth is not None:
            allowed = min(allowed, request.max_depth)
        if depth > allowed:
            return TaskResult.failure(
                "subtask_failure",
                f"subtask '{compiled.name}' would be nested {depth} deep; at most {allowed} is allowed",
                details={
                    "cause": "depth",
                    "code": "tasks/subtask-depth",
                    "depth": depth,
                    "limit": allowed,
                    "hint": "do the work here instead of handing it on, or raise Limits(subtask_depth=...)",
                },
            )
        if any(ancestor.partition(":")[2] == mark for ancestor in call.subtask_chain):
            return TaskResult.failure(
                "subtask_failure",
                f"subtask '{compiled.name}' is already being worked on with the same inputs by the task that asks for it",
                details={
                    "cause": "cycle",
                    "code": "tasks/subtask-cycle",
                    "hint": "ask for something smaller, or answer from the known facts",
                },
            )
        return None

    @staticmethod
    def _session(compiled: CompiledTemplate | None, request: SubtaskRequest, call: CallContext) -> Session:
        """The session of a subtask: a fork of its parent's if it inherits, else an empty one; neither is joined."""
        if compiled is None:
            return Session()
        template = compiled.template
        try:
            settings = resolve_settings(template.subtype, template.context_management, request.context_management)
        except TaskError:
            return Session()  # the task itself fails with this error
        return call.session.fork() if settings.inherit_context == "full" else Session()
