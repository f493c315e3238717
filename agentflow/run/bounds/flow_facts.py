"""A flow's facts about its tasks and tools before any is called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, cast

from agentflow.core.call.provenance import PolicyInForce
from agentflow.core.data.frozen import slotted
from agentflow.core.data.known_names import CompiledTask, Definitions
from agentflow.core.data.limits import Limits
from agentflow.core.data.requests import MOST_SUMMARIES, turns_without_tools
from agentflow.core.data.templates import TaskTemplate
from agentflow.core.events.facts import TaskFacts, ToolFacts, WorkflowFacts
from agentflow.core.ports.ports import USUAL_RULES, TemplatePort, Tool, ToolPort, TurnRules
from agentflow.core.ports.toolbox import offered
from agentflow.tasks.workflows import WorkflowLibrary


@slotted
class Facts:
    """The tasks and tools of a flow.

    Parameters: ``templates`` and ``tools`` hold them, ``limits`` are those of runs, ``workflows`` the saved ones; ``looks_up``
    says that file lookups ask models, ``decompose`` that tasks which do not decide themselves may have programs written for
    them; ``in_force`` has the flow's policy of where values may go.
    """

    templates: TemplatePort
    tools: ToolPort
    limits: Limits
    workflows: WorkflowLibrary | None = None
    looks_up: bool = False
    decompose: bool = False
    in_force: PolicyInForce = field(default_factory=PolicyInForce)

    def task(
        self,
        name: str,
        defined: Definitions | None = None,
        grants: frozenset[str] | None = None,
        *,
        turns: int | None = None,
    ) -> TaskFacts | None:
        """The facts of a task in ``defined``, or a registered one, called with ``grants`` (None: the host's); None if unknown."""
        template = self.templates.find_compiled(name, defined)
        return None if template is None else self.own_task(template, grants, turns=turns, defined=defined)

    def own_task(
        self,
        template: Mapping[str, Any] | CompiledTask,
        grants: frozenset[str] | None = None,
        *,
        turns: int | None = None,
        defined: Definitions | None = None,
    ) -> TaskFacts:
        compiled = self.templates.prepare(cast("Mapping[str, Any]", template)) if _is_fields(template) else template
        task = cast(CompiledTask, compiled)
        declared = task.template
        own = {name: self._facts_of(tool) for name, tool in task.toolbox.items()}
        offers = {} if declared.is_function else self._offered(task, grants, own, defined)
        tools, reason = (*offers,), "" if declared.is_function else self._endless(declared, offers.values())
        return TaskFacts(
            template=declared,
            model_calls=None if reason else self._model_calls(declared, tools, turns or self.limits.turns),
            reason=reason,
            tools=tools,
            own=(*own.values(),),
            offered_all=_rules(declared).chooser is not None or (declared.tools is None and bool(tools)),
            returns=task.returns,
            calls=task.calls,
            history=not task.history.alone,
        )

    def tool(self, name: str) -> ToolFacts | None:
        """The facts of the tool called ``name``, or None."""
        tool = self.tools.find(name)
        return None if tool is None else self._facts_of(tool)

    def _facts_of(self, tool: Tool) -> ToolFacts:
        name, policy = tool.name, self.in_force.policy
        if policy is None:
            return tool.facts()
        arguments = [*(tool.spec.input_schema.get("properties") or ())]
        sinks = policy.sinks(name, arguments, tool.sinks)
        source = policy.source_of(name, tool.source or "")
        return replace(tool.facts(), source=source, sinks={key: " ".join(allowed) for key, allowed in sinks.items()})

    def guards(self) -> Callable[[str, Iterable[str]], Mapping[str, Sequence[str]]] | None:
        """The guarded arguments of a callable other than a tool, with their allowed sources; None without rules."""
        policy = self.in_force.policy
        if policy is None or not (policy.rules or policy.narrowed_by):
            return None

        def guards(name: str, arguments: Iterable[str]) -> Mapping[str, Sequence[str]]:
            more = policy.named_arguments(name) if name == "solve" else ()  # a solve has its inputs as arguments
            return policy.sinks(name, sorted({*arguments, *more}), None)

        return guards

    def workflow(self, name: str) -> WorkflowFacts | None:
        """The facts of the saved workflow called ``name``, or None; :meth:`ready` has to load workflows first."""
        saved = None if self.workflows is None else self.workflows.find(name)
        if saved is None:
            return None
        allow = None if saved.allow is None else frozenset(saved.allow)
        return WorkflowFacts(name, saved.program, frozenset(saved.params), allow, saved.surface)

    async def ready(self) -> None:
        """Load the saved workflows. Raises DataError."""
        if self.workflows is not None:
            await self.workflows.load_names()

    def task_names(self) -> Sequence[str]:
        return self.templates.template_names()

    def tool_names(self) -> Sequence[str]:
        return self.tools.names()

    def _offered(
        self,
        task: CompiledTask,
        grants: frozenset[str] | None,
        own: Mapping[str, ToolFacts],
        defined: Definitions | None,
    ) -> dict[str, ToolFacts]:
        def find(name: str) -> ToolFacts:
            if (tool := self.tool(name)) is not None:
                return tool
            is_task = self.templates.find_compiled(name, defined) is not None
            return ToolFacts(name=name, calls_models=is_task)  # the run reports the unknown tool

        def ordinary() -> list[str]:
            return [spec.name for spec in self.tools.ordinary()]

        return offered(task.template.tools, own, ordinary, grants, find)

    def _endless(self, template: TaskTemplate, tools: Iterable[ToolFacts]) -> str:
        """Why nothing bounds the model calls of a task; empty if something does."""
        if template.decompose if "decompose" in template.model_fields_set else self.decompose:
            return f"task '{template.name}' may have a program written for it (decompose)"
        fresh = template.context_management.fresh_context or (
            "enabled" if template.subtype == "subtask" else "disabled"
        )
        if self.looks_up and fresh == "enabled":
            return f"task '{template.name}' looks up files, which asks models as often as the files need"
        if _rules(template).chooser is not None:
            return f"the tools of task '{template.name}' are chosen in the run"
        for tool in tools:
            if tool.calls_models:
                return f"the model of task '{template.name}' may call '{tool.name}', which runs tasks"
        return ""

    def _model_calls(self, template: TaskTemplate, tools: Sequence[str], turns: int) -> int:
        if template.is_function:
            return 0
        kind = template.output_format.get("type", "json" if template.output_format else "text")
        most = template.max_turns or turns
        if not tools and not template.provider_tools:
            rules = _rules(template)
            checked = kind != "text" or template.output_model is not None or rules.check is not None
            most = min(most, turns_without_tools(checked, rules.rounds))
        history = template.history_config
        return most + (MOST_SUMMARIES if history is not None and history.compact_after_tokens is not None else 0)


def _rules(template: TaskTemplate) -> TurnRules:
    """The host's rules for the turns of a task."""
    return template.rules or USUAL_RULES


def _is_fields(template: object) -> bool:
    return isinstance(template, Mapping)
