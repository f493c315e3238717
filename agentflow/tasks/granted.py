"""Describes the granted names for a model that writes a program, in the language of that program."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from agentflow.core.data.errors import clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.known_names import ASK, DEFINE, ENDORSE, FILES, Definitions
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
            ENDORSE: '(endorse value "reason") language: the value without where it came from; somebody approves each',
            DEFINE: '(defatom name (params (p type) ...) (instructions "... {{p}} ...")) language: defines a task, '
            "called as (name (p value) ...); its model may use the tools granted here",
        },
        "python": {
            "get_context": 'get_context("...") language: the paths of files relevant to a question, best first',
            "solve": 'solve("goal", allow=["name"]) language: has a program written and run for a smaller goal',
            ASK: 'ask_human("question", output=str) language: asks a person; output is the type of the answer',
            ENDORSE: 'endorse(value, "reason") language: the value without where it came from; somebody approves each',
            DEFINE: '@task def name(p: str) -> str: """... {{p}} ...""" language: defines a task, whose body is its prompt, '
            "called as name(p); its model may use the tools granted here",
        },
    }
)
_FILES: Mapping[Surface, str] = MappingProxyType(
    {"sexp": "(files (list path ...))", "python": "files=[path, ...]"},
)
_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "string": "str",
        "integer": "int",
        "number": "float",
        "boolean": "bool",
        "array": "list",
        "object": "dict",
        "list": "list",
        "dict": "dict",
    }
)
"""The types of parameters as Python writes them."""


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
            return f"{_usage(name, _types(template.params), surface)} task: {about} [files: {_FILES[surface]}]"
        tool = self.tools.find(name) if self.tools is not None else None
        if tool is not None:
            properties: Mapping[str, Any] = tool.spec.input_schema.get("properties", {})
            types = {key: _type(schema) for key, schema in properties.items()}
            return f"{_usage(name, types, surface)} tool: {_line(tool.spec.description)}"
        workflow = self.workflows.find(name) if self.workflows is not None else None
        if workflow is not None:
            types = _types(workflow.params)
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
    return f"{name}({', '.join([*first, *[f'{key}: {_python_type(kind)}' for key, kind in types.items()]])})"


def _python_type(kind: str) -> str:
    if kind.endswith("[]"):
        return f"list[{_python_type(kind[:-2])}]"
    return _TYPES.get(kind, "Any")


def _types(params: Mapping[str, Parameter]) -> dict[str, str]:
    return {key: parameter.type for key, parameter in params.items()}


def _type(schema: Any) -> str:
    return str(schema.get("type", "any")) if isinstance(schema, Mapping) else "any"  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]


def _line(text: str) -> str:
    return clip(" ".join(text.split()), 400)
