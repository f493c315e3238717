"""Names as a program finds them: what each one is, what a call of it takes, and the tasks that programs define.

The language knows tasks and tools through these types only. A :class:`Template` is opaque to it: the task system makes
one of a definition's fields, an environment holds it, and the task system runs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias, cast

from agentflow.core.templates import TaskTemplate

NameKind: TypeAlias = Literal["variable", "task", "tool", "unknown"]
"""What a free name is where a program runs."""


@dataclass(frozen=True, slots=True)
class ParameterInfo:
    """A parameter of a task or tool: whether a call must give it, and the JSON Schema of its values (empty: any)."""

    required: bool = True
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class NameInfo:
    """What a name is and, for a task or tool, what a call of it takes.

    ``parameters`` by name, in order; None when nothing is known of them. ``reserved`` are arguments that every task
    call may have, unless the task declares a parameter of that name. ``open`` takes arguments that are not declared;
    ``lenient`` converts values that are exactly the wanted type in another form, as tasks do. ``untrusted`` is a task
    that an untrusted program defined: whoever may define tasks may call it.
    """

    kind: NameKind
    parameters: Mapping[str, ParameterInfo] | None = None
    reserved: Mapping[str, ParameterInfo] = field(default_factory=dict[str, ParameterInfo])
    open: bool = False
    lenient: bool = False
    untrusted: bool = False

    def parameter(self, name: str) -> ParameterInfo | None:
        """The parameter called ``name``, reserved ones included."""
        found = self.parameters.get(name) if self.parameters is not None else None
        return found if found is not None else self.reserved.get(name)


def info_of_schema(kind: NameKind, schema: Mapping[str, Any]) -> NameInfo:
    """What a call takes whose arguments object has the JSON Schema ``schema``."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return NameInfo(kind, {}, open=schema.get("additionalProperties", True) is not False)
    needed = schema.get("required")
    required = frozenset(cast("list[str]", needed)) if isinstance(needed, list) else frozenset[str]()
    shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    parameters: dict[str, ParameterInfo] = {}
    for name, given in cast("Mapping[str, Any]", properties).items():
        own: Mapping[str, Any] = cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else dict[str, Any]()
        parameters[name] = ParameterInfo(name in required, {**own, **shared})
    return NameInfo(kind, parameters, open=schema.get("additionalProperties", True) is not False)


VARIABLE = NameInfo("variable")
UNKNOWN = NameInfo("unknown")


class Template(Protocol):
    """A task that a program defined. Opaque to the language, which asks it no more than this."""

    @property
    def name(self) -> str: ...
    @property
    def info(self) -> NameInfo:
        """What a call of it takes."""
        ...

    @property
    def grants(self) -> frozenset[str] | None:
        """What the code that defined it might call; None: the host's own authority."""
        ...

    @property
    def fields(self) -> Mapping[str, Any]:
        """What it can be prepared from again, as JSON data."""
        ...

    def granted(self, grants: frozenset[str] | None) -> Template:
        """The same template, defined by code that may call ``grants``."""
        ...


class Definitions(Protocol):
    """The tasks that programs defined where a call stands: those of its environment, and of the calls around it."""

    def task(self, name: str) -> Template | None:
        """The task called ``name``; None when no program here defined one."""
        ...

    def tasks(self) -> Mapping[str, Template]:
        """All tasks in sight by name, in the order of their definition, the nearest of each name."""
        ...


class CompiledTask(Template, Protocol):
    """A template as the runtime sees it: what the task system made of a :class:`TaskTemplate`."""

    @property
    def template(self) -> TaskTemplate: ...


class Names(Protocol):
    """What the language may ask about the tasks and tools around a program."""

    def describe(self, name: str) -> NameInfo | None:
        """What ``name`` is; None when it is nothing here."""
        ...

    def prepare(self, fields: Mapping[str, Any]) -> Template:
        """The template of a definition's fields. Raises AgentflowError naming what is wrong with them."""
        ...

    def known_names(self) -> Iterable[str]:
        """The names of all tasks and tools, for suggestions."""
        ...


def permitted(template: Template, grants: frozenset[str] | None) -> bool:
    """Whether code with ``grants`` may call a task that a program defined.

    What untrusted code defined may do no more than its definer, so whoever may define tasks may call it.
    """
    return grants is None or template.name in grants or (template.grants is not None and DEFINE in grants)


def narrowed(grants: frozenset[str] | None, more: frozenset[str] | None) -> frozenset[str] | None:
    """The authority of code that holds both ``grants`` and ``more``, None being the host's own."""
    if more is None:
        return grants
    return more if grants is None else grants & more


DEFINE = "defatom"
"""The grant that lets an untrusted program define tasks."""
