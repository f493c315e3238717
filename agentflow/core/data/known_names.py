"""Names in programs: their kinds, the arguments of calls, and the tasks that programs define.

The language knows tasks and tools only through these types. A :class:`Template` is opaque to it: the task system builds
it from the fields of a definition, an environment holds it, and the task system runs it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any, Literal, Protocol, TypeAlias, cast
from urllib.parse import quote

from agentflow.core.data.frozen import frozen
from agentflow.core.data.templates import HistoryConfig, TaskTemplate
from agentflow.core.data.values import plain
from agentflow.core.data.walk import LEAVES, finish, keyed, sizes

_MAX_TEXT = 1_000_000
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def content_mark(kind: str, content: tuple[Any, ...]) -> str:
    """``~`` and eight hex digits that identify an effect: equal for equal kind and content, in every process."""
    try:
        text = _canonical(plain(content))
    except (ValueError, TypeError, RecursionError):
        text = _shown(content)
    data = f"{kind} {_ADDRESS.sub('', text)}".encode("utf-8", "surrogatepass")
    return "~" + hashlib.blake2b(data, digest_size=4).hexdigest()


def _canonical(data: list[Any]) -> str:
    """Equal texts for equal JSON data. For data with long text, a digest that reads shared parts once."""
    measured = finish(sizes(data))
    if measured[id(data)][0] <= _MAX_TEXT:
        return json.dumps(data, sort_keys=True)
    digests: dict[int, str] = {}

    def named(item: Any) -> Any:
        return item if type(item) in LEAVES else digests[id(item)]

    for key, (_, _, item) in measured.items():
        entries: Any = {k: named(v) for k, v in item.items()} if keyed(item) else [named(each) for each in item]
        text = json.dumps(entries, sort_keys=True)
        digests[key] = "#" + hashlib.blake2b(text.encode("ascii"), digest_size=16).hexdigest()
    return digests[id(data)]


def _shown(content: object) -> str:
    """A stable text for content other than data: objects by their type, without memory addresses."""
    try:
        return repr(content)
    except RecursionError:
        return type(content).__name__


def label_mark(label: str) -> str:
    """``@`` and a label, escaped so that nothing in it looks like a part of a path."""
    return "@" + quote(label, safe="", errors="surrogatepass")


def branch_prefix(path: str) -> str:
    """The prefix of the paths of a form's branches, from the form's own path; a branch adds its index."""
    above, _, last = path.rpartition("/")
    return f"{path}." if last.startswith("~") else f"{above}/{last.partition('.')[0]}."


def ordinal_of(path: str) -> tuple[str, int | None]:
    """The path of an effect's strand and its number there; None if its effects are identified by content."""
    parent, _, last = path.rpartition("/")
    number = last.partition(".")[0]
    return parent, int(number) if number.isdecimal() else None


NameKind: TypeAlias = Literal["variable", "task", "tool", "unknown"]
"""The kind of a free name where a program runs."""


@frozen
class ParameterInfo:
    """A parameter of a task or tool: whether it is required, and the JSON Schema of its values (empty: any)."""

    required: bool = True
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any])


@frozen
class RecordInfo:
    """A class that lists fields, which a text in Python declared: its text, and the JSON Schema of its records."""

    text: str
    schema: Mapping[str, Any]


@frozen
class NameInfo:
    """The kind of a name and, for a task or tool, the arguments of a call.

    ``parameters`` by name, in order; None if unknown. ``reserved`` are arguments that every task call may have, unless
    the task declares a parameter of that name. ``open`` accepts undeclared arguments; ``lenient`` converts values that
    represent the required type in another form, as tasks do. ``untrusted`` marks a task that an untrusted program
    defined: code that may define tasks may call it. ``record``: an earlier text declared a class of this name, which texts in
    Python may use as their own if the name is nothing else.
    """

    kind: NameKind
    parameters: Mapping[str, ParameterInfo] | None = None
    reserved: Mapping[str, ParameterInfo] = field(default_factory=dict[str, ParameterInfo])
    open: bool = False
    lenient: bool = False
    untrusted: bool = False
    record: RecordInfo | None = None

    def parameter(self, name: str) -> ParameterInfo | None:
        """The declared or reserved parameter called ``name``, or None."""
        declared = self.parameters.get(name) if self.parameters is not None else None
        return declared if declared is not None else self.reserved.get(name)


def info_of_schema(kind: NameKind, schema: Mapping[str, Any]) -> NameInfo:
    """The NameInfo of a tool or task with the JSON Schema ``schema`` for its arguments."""
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return NameInfo(kind, {}, open=schema.get("additionalProperties", True) is not False)
    needed = schema.get("required")
    required = frozenset(cast("list[str]", needed)) if isinstance(needed, list) else frozenset[str]()
    shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    parameters: dict[str, ParameterInfo] = {}
    for name, declared in cast("Mapping[str, Any]", properties).items():
        own: Mapping[str, Any] = (
            cast("Mapping[str, Any]", declared) if isinstance(declared, Mapping) else dict[str, Any]()
        )
        parameters[name] = ParameterInfo(name in required, {**own, **shared})
    return NameInfo(kind, parameters, open=schema.get("additionalProperties", True) is not False)


VARIABLE = NameInfo("variable")
UNKNOWN = NameInfo("unknown")


class Template(Protocol):
    """A task that a program defined. The language uses only these members."""

    @property
    def name(self) -> str: ...
    @property
    def info(self) -> NameInfo:
        """The arguments of a call."""
        ...

    @property
    def grants(self) -> frozenset[str] | None:
        """The grants of the code that defined it (None: the host's own authority)."""
        ...

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the tasks that its texts call, as ``{{f(x)}}``."""
        ...

    @property
    def fields(self) -> Mapping[str, Any]:
        """JSON data for preparing the template again."""
        ...

    def granted(self, grants: frozenset[str] | None) -> Template:
        """A copy of the template, as defined by code that may call ``grants``."""
        ...


class Definitions(Protocol):
    """The tasks that programs defined around a call: in its environment and in those of enclosing calls."""

    def task(self, name: str) -> Template | None:
        """The task called ``name`` that a program defined here, or None."""
        ...

    def tasks(self) -> Mapping[str, Template]:
        """All visible tasks by name, in order of definition, the nearest of each name."""
        ...


class OutputAdapter(Protocol):
    """Reads the values of a type from JSON data, and writes them: a pydantic TypeAdapter, or one that tags unions."""

    def validate_python(self, value: Any, /) -> Any:
        """The value that data stands for. Raises ValueError."""
        ...

    def dump_python(self, value: Any, /, *, mode: Literal["json"], by_alias: bool, warnings: bool) -> Any:
        """JSON data of a value."""
        ...


class CompiledTask(Template, Protocol):
    """A template as the runtime uses it, compiled by the task system from a :class:`TaskTemplate`."""

    @property
    def template(self) -> TaskTemplate: ...
    @property
    def returns(self) -> Mapping[str, Any] | None:
        """The JSON Schema of the task's value; None for text and for any JSON."""
        ...

    def arguments_schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments, as a model that may call it reads them."""
        ...

    @property
    def memo(self) -> dict[str, Any]:
        """Values that other modules have computed from it."""
        ...

    @property
    def toolbox(self) -> Mapping[str, Any]:
        """The tools that the host gave it as objects, by name."""
        ...

    def with_tools(self, toolbox: Any) -> CompiledTask:
        """A copy of the template with those of these tools that it names."""
        ...

    @property
    def history(self) -> HistoryConfig:
        """How a call uses the conversation by default."""
        ...

    def conversing(self) -> CompiledTask:
        """The template of calls with a session: history settings that it does not name are on."""
        ...

    @property
    def calls(self) -> tuple[str, ...]:
        """The names of the templates that running it calls, each as often as its texts do."""
        ...

    @property
    def output_adapter(self) -> OutputAdapter | None:
        """Reads and writes the class of the task's value; None if it has none."""
        ...


class Names(Protocol):
    """The queries of the language about the tasks and tools around a program."""

    def describe(self, name: str) -> NameInfo | None:
        """The description of ``name``, or None for an unknown name."""
        ...

    def prepare(self, fields: Mapping[str, Any]) -> Template:
        """Build the template of a definition from its fields. Raises AgentflowError that names their fault."""
        ...

    def known_names(self) -> Iterable[str]:
        """The names of all tasks and tools, for suggestions."""
        ...


def out_of_reach(what: str, name: str) -> str:
    """The warning about a task or tool (``what``) named like a keyword of the language."""
    return (
        f"no program can call the {what} '{name}': in programs this name is the language's own; "
        f"give the {what} another name, unless it is for others than programs"
    )


def permitted(template: Template, grants: frozenset[str] | None) -> bool:
    """Whether code with ``grants`` may call a task that a program defined.

    A task defined by untrusted code can do no more than that code, so code that may define tasks may call it.
    """
    return grants is None or template.name in grants or (template.grants is not None and DEFINE in grants)


def narrowed(grants: frozenset[str] | None, more: frozenset[str] | None) -> frozenset[str] | None:
    """The intersection of two sets of grants, where None is the host's own authority."""
    if more is None:
        return grants
    return more if grants is None else grants & more


DEFINE = "defatom"
"""The grant that lets an untrusted program define tasks."""
ASK = "ask-human"
"""The grant that a program needs for asking a person."""
SIGNAL = "wait-for-signal"
"""The grant that a program needs for receiving a signal."""
PUBLISH = "publish-state"
"""The grant that a program needs for changing the state of its run."""
ENDORSE = "endorse"
"""The grant that a program needs to state that a value may go anywhere, from any source."""
GUARDED = frozenset({ASK, ENDORSE, SIGNAL, PUBLISH})
"""The primitives that a program needs a grant for."""
ASKED = "ask:"
"""The prefix of the names of tasks made for ``ask(prompt, output=T)`` in Python texts."""
FILES = "files:"
"""The beginning of a grant that lets a program give files to tasks: ``files:docs/**``, relative to a root."""
EVERY = ":*"
"""The end of a name in a list of tools that stands for all tools of an MCP server: ``docs:*``."""
HANDOFF = "transfer_to_"
"""The beginning of the name of a tool that hands a conversation over to a task: ``transfer_to_billing``."""
ALL_FILES = f"{FILES}**"
READ_FILES = "system:read_files"
"""The tool that, once granted, also lets a program give any file to tasks."""


def file_grants(grants: frozenset[str] | None) -> frozenset[str]:
    """The files that code with ``grants`` may give to tasks, as grants."""
    if grants is None or READ_FILES in grants:
        return frozenset({ALL_FILES})
    return frozenset([name for name in grants if name.startswith(FILES)])
