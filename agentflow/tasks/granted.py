"""Describes the granted names for a model that writes a program, in the language of that program."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agentflow.core.data.errors import clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import ASK, DEFINE, ENDORSE, FILES, PUBLISH, SIGNAL, Definitions
from agentflow.core.data.source import Surface
from agentflow.core.data.templates import Parameter
from agentflow.core.ports.ports import TemplatePort, ToolPort
from agentflow.tasks.workflows import WorkflowLibrary

_EFFECTS: Mapping[Surface, Mapping[str, str]] = MappingProxyType(
    {
        "sexp": {
            "get_context": '(get_context (query "...")) language: the paths of files relevant to a question, best first',
            "solve": '(solve "goal" (allow name ...)) language: has a program written and run for a smaller goal',
            ASK: '(ask-human "question" [schema]) language: asks a person; schema is a JSON Schema, as a dict',
            SIGNAL: '(wait-for-signal "name" [schema]) language: waits for data that the host sends; schema is a JSON Schema, as a dict',
            PUBLISH: '(publish-state "key" value) language: sets a key of the state that the host shows',
            ENDORSE: '(endorse value "reason") language: the value without where it came from; somebody approves each',
            DEFINE: '(defatom name (params (p type) ...) (instructions "... {{p}} ...")) language: defines a task, '
            "called as (name (p value) ...); its model may use the tools granted here",
        },
        "python": {
            "get_context": 'get_context("...") language: the paths of files relevant to a question, best first',
            "solve": 'solve("goal", allow=["name"]) language: has a program written and run for a smaller goal',
            ASK: 'ask_human("question", output=str) language: asks a person; output is the type of the answer',
            SIGNAL: 'wait_for_signal("name", output=str) language: waits for data that the host sends; output is its type',
            PUBLISH: 'publish_state("key", value) language: sets a key of the state that the host shows',
            ENDORSE: 'endorse(value, "reason") language: the value without where it came from; somebody approves each',
            DEFINE: '@task def name(p: str) -> str: """... {{p}} ...""" language: defines a task, whose body is its prompt, '
            "called as name(p); its model may use the tools granted here",
        },
    }
)
_FILES: Mapping[Surface, str] = MappingProxyType(
    {"sexp": "(files (list path ...))", "python": "files=[path, ...]"},
)


@frozen
class GrantedNames:
    """Describes tasks, tools, workflows and effects by name."""

    templates: TemplatePort
    tools: ToolPort | None = None
    workflows: WorkflowLibrary | None = None

    def describe(self, allow: frozenset[str], surface: Surface = "sexp", defined: Definitions | None = None) -> str:
        """Usage and description of each known name, one per line."""
        lines = [line for name in sorted(allow) if (line := self.described(name, surface, defined)) is not None]
        return "\n".join(lines) or "(none: the program can only compute)"

    def described(self, name: str, surface: Surface = "sexp", defined: Definitions | None = None) -> str | None:
        """Usage and description of one name; None if nothing has it."""
        if name in _EFFECTS[surface]:
            return _EFFECTS[surface][name]
        if name.startswith(FILES):
            return f"{name} language: files that match may be given to tasks, {_FILES[surface]}"
        compiled = self.templates.find_compiled(name, defined)
        if compiled is not None:
            template = compiled.template
            about = _line(template.description or clip(template.instructions, 200))
            return f"{_usage(name, _types(template.params, surface), surface)} task: {about} [files: {_FILES[surface]}]"
        tool = self.tools.find(name) if self.tools is not None else None
        if tool is not None:
            from agentflow.lib.schema.short_types import short_type  # few models write programs

            form = tool.spec.input_schema
            properties: Mapping[str, Any] = form.get("properties", {})
            if surface == "python":
                needed, defs = form.get("required", ()), form.get("$defs")
                typed = {
                    key: short_type(schema, defs) + ("" if key in needed else " = ...")
                    for key, schema in properties.items()
                }
                usage = _usage(name, typed, surface)
            else:
                usage = _usage(name, {key: _type(schema) for key, schema in properties.items()}, surface)
            returned = tool.facts().returns
            usage += "" if returned is None else f" -> {short_type(returned)}"
            return f"{usage} tool: {_line(tool.spec.description)}"
        workflow = self.workflows.find(name) if self.workflows is not None else None
        if workflow is not None:
            types = _types(workflow.params, surface)
            usage = (
                _usage(f"call-workflow {name}", types, surface)
                if surface == "sexp"
                else _python_call("call_workflow", types, f'"{name}"')
            )
            return f"{usage} workflow: {_line(workflow.description)}"
        return None


def _usage(name: str, types: Mapping[str, str], surface: Surface) -> str:
    """How a task or tool is called."""
    if surface == "python":
        return _python_call(name.replace(":", ".").replace("-", "_"), types)
    return f"({name}{''.join(f' ({key} {kind})' for key, kind in types.items())})"


def _python_call(name: str, types: Mapping[str, str], *first: str) -> str:
    return f"{name}({', '.join([*first, *[f'{key}: {kind}' for key, kind in types.items()]])})"


def _types(params: Mapping[str, Parameter], surface: Surface) -> dict[str, str]:
    if surface == "sexp":
        return {key: parameter.type for key, parameter in params.items()}
    from agentflow.lib.schema.short_types import simple_type

    return {key: simple_type(each.type) + ("" if each.required else " = ...") for key, each in params.items()}


def _type(schema: Any) -> str:
    return str(schema.get("type", "any")) if isinstance(schema, Mapping) else "any"  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def _line(text: str) -> str:
    return clip(" ".join(text.split()), 400)
