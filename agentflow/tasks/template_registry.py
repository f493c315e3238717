"""The registered templates: stored by name, indexed by ``type:subtype``, compiled when they are registered.

:func:`content_of` identifies a task except its arguments: with it, a record shows whether its answer is still valid.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Container, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import Any, TypeVar, cast

from pydantic import BaseModel, TypeAdapter, ValidationError

from agentflow.core.call.call import CallContext
from agentflow.core.data.context import NOTHING_INHERITED
from agentflow.core.data.errors import AgentflowError, DataError, TaskError, cut
from agentflow.core.data.known_names import HANDOFF, CompiledTask, Definitions, NameInfo, OutputAdapter, out_of_reach
from agentflow.core.data.models import validation_messages
from agentflow.core.data.requests import SubtaskRequest
from agentflow.core.data.templates import CONVERSES, STATELESS, HistoryConfig, TaskTemplate
from agentflow.core.data.values import pairs_to_dict, plain
from agentflow.core.ports.ports import Tool
from agentflow.core.ports.toolbox import NO_TOOLBOX, Toolbox
from agentflow.lib.schema.declared_schema import parse_type
from agentflow.lib.schema.json_types import left_out, without
from agentflow.lib.schema.tagged_unions import tagged_unions
from agentflow.lib.text.late_pattern import late_pattern
from agentflow.lib.text.suggest import did_you_mean
from agentflow.tasks.context_rules import STANDARD, ContextSettings, resolve_settings
from agentflow.tasks.describe import arguments_schema, task_info
from agentflow.tasks.template import CompiledText, OutputSpec, format_instructions, output_spec, parse_text
from agentflow.tasks.types import convert

_log = logging.getLogger(__name__)

SIMILARITY_THRESHOLD = 0.1
"""Minimum Jaccard similarity of words for a match of :meth:`TemplateRegistry.matching`."""


@dataclass(frozen=True)
class CompiledTemplate:
    """A checked template with parsed texts and output format.

    ``described`` is its subject, the description or else the prompt; ``context`` are the settings of a call that overrides
    none; ``info`` describes its arguments; ``grants`` are those of the program that defined it (None: the host);
    ``history`` is the default use of the conversation; ``toolbox`` are the tools passed as objects by the host. ``memo``
    caches values computed from the other fields.
    """

    name: str
    template: TaskTemplate
    prompt: CompiledText
    described: CompiledText
    system: CompiledText
    file_paths: tuple[CompiledText, ...]
    source: tuple[tuple[str, CompiledText], ...]
    output: OutputSpec
    format_instructions: str
    history: HistoryConfig
    context: ContextSettings | None
    info: NameInfo
    grants: frozenset[str] | None = None
    toolbox: Toolbox = NO_TOOLBOX
    memo: dict[str, Any] = field(default_factory=dict[str, Any], init=False, repr=False, compare=False)

    def history_with(self, call: HistoryConfig | None) -> HistoryConfig:
        """How a call with these settings of its own uses the conversation."""
        return self.history if call is None else call.over(self.history)

    def conversing(self) -> CompiledTemplate:
        if not self.template.stateless:
            return self
        cached = self.memo.get("conversing")
        if cached is None:
            template = self.template.model_copy(update={"stateless": False})
            cached = replace(self, template=template, history=_history_settings(template))
            self.memo["conversing"] = cached
        return cast(CompiledTemplate, cached)

    @property
    def texts(self) -> tuple[tuple[str, CompiledText], ...]:
        """Its parsed texts, each with its field."""
        return (
            ("instructions", self.prompt),
            ("description", self.described),
            ("system", self.system),
            *(("file_paths", path) for path in self.file_paths),
            *(("file_paths_source", text) for _, text in self.source),
        )

    @property
    def functions(self) -> tuple[str, ...]:
        """The names of the templates that its texts call."""
        return tuple(dict.fromkeys(name for _, text in self.texts for name in text.functions))

    @property
    def calls(self) -> tuple[str, ...]:
        """The names of the templates that running it calls, each as often as its prompt and its system text do."""
        return (*self.prompt.functions, *self.system.functions)

    @property
    def returns(self) -> Mapping[str, Any] | None:
        return self.output.schema

    def arguments_schema(self) -> dict[str, Any]:
        return arguments_schema(self.template.params)

    @property
    def output_adapter(self) -> OutputAdapter | None:
        if self.output.model is None:
            return None
        adapter = self.memo.get("adapter")
        if adapter is None:
            adapter = tagged_unions(self.output.model) or TypeAdapter(self.output.model)
            self.memo["adapter"] = adapter
        return adapter

    @property
    def fields(self) -> dict[str, Any]:
        """The template as JSON data, restored by :func:`prepare_template`."""
        return self.template.model_dump(mode="json", exclude_unset=True)

    def granted(self, grants: frozenset[str] | None) -> CompiledTemplate:
        if grants == self.grants:
            return self
        models = () if grants is None else (self.template.model or "", *self.template.fallbacks)
        if any([each.startswith("local:") for each in models]):
            message, hint = f"the untrusted task '{self.name}' names a file as its model", "name the file in the flow"
            raise DataError(message, code="tasks/model-path", hint=hint)
        return replace(self, grants=grants, info=replace(self.info, untrusted=grants is not None))

    def with_tools(self, toolbox: Toolbox) -> CompiledTemplate:
        copy = object.__new__(CompiledTemplate)  # for each question with tools: replace() takes ten times as long
        copy.__dict__.update(self.__dict__, toolbox=toolbox.only(self.template.tools), memo={})
        return copy


_ALIASES: Mapping[str, str] = {
    "parameters": "params",
    "context": "context_management",
    "contextManagement": "context_management",
    "historyConfig": "history_config",
    "filePathsSource": "file_paths_source",
    "isFunctionTemplate": "is_function",
    "is_function_template": "is_function",
    "prompt": "instructions",
    "outputModel": "output_model",
}
_DOCUMENTATION = frozenset({"title", "returns", "metadata"})
_FIELDS = frozenset(TaskTemplate.model_fields) | {
    "instructions", "taskPrompt", "task_prompt", "body", "system", "systemPrompt", "system_prompt", "output_format",
    "outputFormat", "context_management", "file_paths", "filePaths",
}  # fmt: skip
MAX_NAME = 200
_PARAMETER = late_pattern(r"[^\W\d][\w-]*")


def read_template(source: Mapping[str, Any] | TaskTemplate) -> TaskTemplate:
    """A template from a mapping in the specification's shape; a TaskTemplate is returned unchanged.

    Raises DataError (``tasks/template``) that names the missing, unknown or invalid field.
    """
    if isinstance(source, TaskTemplate):
        return source
    data = cast(object, source)
    if not isinstance(data, Mapping):
        raise DataError(f"a template is a dict or a TaskTemplate, not {type(data).__name__}", code="tasks/template")
    fields = _normalise(cast(Mapping[str, Any], data))
    label = fields.get("name")
    label = f"template '{label}'" if isinstance(label, str) and label else "a template"
    if not fields.get("name"):
        raise DataError(f"{label} has no name", code="tasks/template", hint="give it a 'name' that is unique")
    if "params" not in fields or fields["params"] is None:
        raise DataError(
            f"{label} declares no params",
            code="tasks/template",
            hint="say which parameters it takes: 'params': 'text, language', a list, a dict, or {} for none",
        )
    for key in fields:
        if key not in _FIELDS:
            raise DataError(
                f"{label} has an unknown key '{key}'",
                code="tasks/template",
                hint=did_you_mean(key, _FIELDS) or f"known keys are {', '.join(sorted(TaskTemplate.model_fields))}",
            )
    try:
        return TaskTemplate.model_validate(fields)
    except ValidationError as error:
        raise DataError(
            f"{label}: {'; '.join(validation_messages(error)[:5])}",
            code="tasks/template",
            details={"field": list(error.errors(include_url=False, include_context=False)[0]["loc"])},
        ) from error


def _normalise(source: Mapping[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for key, value in source.items():
        if key in _DOCUMENTATION or (key.startswith("_") and key not in _FIELDS):
            continue
        fields[_ALIASES.get(key, key)] = value
    model = fields.get("model")
    if isinstance(model, Mapping):
        preferences = cast(Mapping[str, Any], model)
        fields["model"] = preferences.get("preferred")
        fields.setdefault("fallbacks", list(preferences.get("fallback") or preferences.get("fallbacks") or ()))
    for key in ("context_management", "history_config", "file_paths_source"):
        value = fields.get(key)
        if value is not None and not isinstance(value, BaseModel):
            fields[key] = pairs_to_dict(value) or value
    if fields.get("context_management", ...) is None:
        del fields["context_management"]
    return fields


def compile_template(template: TaskTemplate) -> CompiledTemplate:
    """Check a template and parse its texts. Raises DataError that names the template and its fault."""
    name = template.name
    if not name.isprintable() or not name.strip() or len(name) > MAX_NAME:
        raise DataError(
            f"{cut(name, MAX_NAME)!r} is not a template name",
            code="tasks/template",
            hint=f"a name is one line of at most {MAX_NAME} characters; programs can call it when it has no spaces",
        )
    for parameter, declared in template.params.items():
        if _PARAMETER.fullmatch(parameter) is None:
            raise DataError(
                f"template '{name}': '{parameter}' is not a parameter name",
                code="tasks/template",
                details={"field": ["params", parameter]},
            )
        try:
            parse_type(declared.type)
            if declared.default is not None:
                convert(declared.default, declared.type)
        except ValueError as error:
            raise DataError(
                f"template '{name}', parameter '{parameter}': {error}",
                code="tasks/template",
                details={"field": ["params", parameter]},
            ) from error
    source = template.file_paths_source or {}
    with _in_field("output_format"):
        output = output_spec(template)
    described = _parsed("description", template.description, f"description of {name}") if template.description else None
    prompt = _parsed("instructions", template.instructions, f"template {name}") if template.instructions else described
    prompt = prompt or parse_text("")
    compiled = CompiledTemplate(
        name,
        template,
        prompt,
        described or prompt,
        _parsed("system", template.system, f"system prompt of {name}"),
        tuple(_parsed("file_paths", path, f"file_paths of {name}") for path in template.file_paths),
        tuple(
            (key, _parsed("file_paths_source", text, f"file_paths_source of {name}"))
            for key, text in sorted(source.items())
            if isinstance(text, str)
        ),
        output,
        format_instructions(output),
        _history_settings(template),
        _context_settings(template),
        task_info(template),
    )
    _check_places(compiled)
    return compiled


@contextmanager
def _in_field(field: str) -> Generator[None]:
    """Errors raised inside say, in their details, which field of the template is at fault."""
    try:
        yield
    except DataError as error:
        error.details.setdefault("field", [field])
        raise


def _parsed(field: str, text: str, name: str) -> CompiledText:
    with _in_field(field):
        return parse_text(text, name)


def _history_settings(template: TaskTemplate) -> HistoryConfig:
    """The settings of a call that names none."""
    base, own = STATELESS if template.stateless else CONVERSES, template.history_config
    return base if own is None else own.over(base)


def _context_settings(template: TaskTemplate) -> ContextSettings | None:
    """The settings of a call that overrides none; None if the template contradicts itself, which its call reports."""
    try:
        return resolve_settings(template.subtype, template.context_management)
    except TaskError:
        return None


def prepare_template(source: Mapping[str, Any] | TaskTemplate) -> CompiledTemplate:
    """Read, check and parse a template. Raises DataError that names the template and its fault."""
    return compile_template(read_template(source))


def prepare_definition(fields: Mapping[str, Any]) -> CompiledTemplate:
    """The template of a program's definition, which must not contain a contradiction.

    Raises DataError with the wrong ``field`` in its details.
    """
    compiled = prepare_template(fields)
    if compiled.context is None:
        try:
            resolve_settings(compiled.template.subtype, compiled.template.context_management)
        except TaskError as error:
            raise DataError(
                error.message, code="tasks/template", hint=error.hint, details={"field": ["context_management"]}
            ) from error
    return compiled


def _check_places(compiled: CompiledTemplate) -> None:
    declared = compiled.template.params
    for name, text in compiled.texts:
        for variable in text.variables:
            if variable not in declared:
                by_function = (
                    "a function reads the dependencies of a run: system=lambda ctx: f'You help {ctx.deps.name}.'"
                )
                span = next(p.span for p in text.pieces if not isinstance(p, str) and p.name == variable)
                raise DataError(
                    f"template '{compiled.name}' uses '{{{{{variable}}}}}', which is not a declared parameter",
                    code="tasks/undeclared-parameter",
                    span=span,
                    hint=did_you_mean(variable, declared)
                    or (by_function if variable in ("ctx", "deps") else f"give it a parameter '{variable}'"),
                    details={"field": [name]},
                )


class TemplateRegistry:
    """Templates by name, with an index by ``type:subtype``.

    The last registration of a subtype wins; registering a name again replaces the template and its index entry. ``builtin``
    looks up the templates that come with agentflow, which are found if no registered one has the name, and never listed.
    ``revision`` is another object after each change, also of the templates that ``builtin`` finds (see :meth:`changed`).
    ``words`` are names that programs cannot call a task by: using one logs a warning.
    """

    def __init__(
        self, builtin: Callable[[str], CompiledTemplate | None] | None = None, words: Container[str] = ()
    ) -> None:
        self._words = words
        self.revision = object()
        self._compiled: dict[str, CompiledTemplate] = {}
        self._index: dict[str, str] = {}
        self._builtin = builtin

    @property
    def templates(self) -> dict[str, TaskTemplate]:
        """A copy of the templates by name, in order of registration."""
        return {name: compiled.template for name, compiled in self._compiled.items()}

    @property
    def template_index(self) -> dict[str, str]:
        """A copy of the index: from ``type:subtype`` to the name of its template."""
        return dict(self._index)

    def register(self, source: Mapping[str, Any] | TaskTemplate | CompiledTemplate) -> CompiledTemplate:
        """Check and store a template. Raises DataError and leaves the registry unchanged."""
        compiled = source if isinstance(source, CompiledTemplate) else prepare_template(source)
        if compiled.name in self._words:
            _log.warning(out_of_reach("task", compiled.name))
        old = self._compiled.pop(compiled.name, None)
        if old is not None:
            self._forget(old.template)
        self._compiled[compiled.name] = compiled
        self._index[_key(compiled.template)] = compiled.name
        self.changed()
        return compiled

    def changed(self) -> None:
        """Note that an identifier may have come to mean another template."""
        self.revision = object()

    def _forget(self, template: TaskTemplate) -> None:
        key = _key(template)
        if self._index.get(key) != template.name:
            return
        del self._index[key]
        for name, other in self._compiled.items():
            if _key(other.template) == key:
                self._index[key] = name

    def find(self, identifier: str, defined: Definitions | None = None) -> CompiledTemplate | None:
        """The atomic template of that name, else the one of that ``type:subtype``, else None.

        Tasks ``defined`` by programs around the call come before the registered ones, and these before the built-in
        ones.
        """
        compiled = self.find_own(identifier, defined)
        return self._builtin(identifier) if compiled is None and self._builtin is not None else compiled

    def find_own(self, identifier: str, defined: Definitions | None = None) -> CompiledTemplate | None:
        """Like :meth:`find`, without the built-in templates."""
        if defined is not None:
            template = cast("CompiledTemplate | None", defined.task(identifier))
            if template is None and ":" in identifier:
                template = _defined_subtype(identifier, defined)
            if template is not None:
                return template
        compiled = self._compiled.get(identifier)
        if compiled is None or compiled.template.type != "atomic":
            named = self._index.get(identifier)
            compiled = self._compiled.get(named) if named is not None else None
        return compiled if compiled is not None and compiled.template.type == "atomic" else None

    def names(self, defined: Definitions | None = None) -> list[str]:
        """Names of the atomic templates, including those ``defined`` around the call, sorted."""
        names = {name for name, compiled in self._compiled.items() if compiled.template.type == "atomic"}
        return sorted(names if defined is None else names.union(defined.tasks()))

    def matching(self, text: str, defined: Definitions | None = None) -> list[tuple[CompiledTemplate, float]]:
        """Atomic templates with a description similar to ``text`` and their Jaccard index, best first, ties by name."""
        query = words(text)
        scored: list[tuple[CompiledTemplate, float]] = []
        templates = dict(self._compiled)
        if defined is not None:
            templates |= cast("Mapping[str, CompiledTemplate]", defined.tasks())
        for compiled in templates.values():
            if compiled.template.type == "atomic":
                score = jaccard(query, words(compiled.template.description or compiled.name))
                if score > SIMILARITY_THRESHOLD:
                    scored.append((compiled, score))
        scored.sort(key=lambda pair: (-pair[1], pair[0].name))
        return scored

    def load(self, templates: Iterable[TaskTemplate | CompiledTemplate]) -> list[str]:
        """Register several templates, or none if one is invalid. Returns their names."""
        before = (dict(self._compiled), dict(self._index))
        try:
            return [self.register(template).name for template in templates]
        except AgentflowError:
            self._compiled, self._index = before
            self.changed()
            raise


def _defined_subtype(identifier: str, defined: Definitions) -> CompiledTemplate | None:
    """The last task of that ``type:subtype`` that a program defined."""
    own = cast("Mapping[str, CompiledTemplate]", defined.tasks())
    return next((each for each in reversed([*own.values()]) if _key(each.template) == identifier), None)


def _key(template: TaskTemplate) -> str:
    return f"{template.type}:{template.subtype}"


_WORD = late_pattern(r"[^\W_]+")


def words(text: str) -> frozenset[str]:
    """The set of words of a text, in lower case; ``_`` and ``-`` separate words."""
    return frozenset(_WORD.findall(text.lower()))


def jaccard(a: frozenset[str], b: frozenset[str]) -> float:
    """The Jaccard index: common words over all words, from 0 to 1."""
    return len(a & b) / len(a | b) if a and b else 0.0


_NOT_CONTENT = frozenset({"batch", "priority", "prompt_cache", "reuse"})
"""Fields of a task that change its cost or its turn, but not its answer."""

TASKS_BELOW = "the tasks that its model may run"
"""The name in messages of the part of :func:`content_of` that the requests of the task itself do not depend on."""

PARTS = (
    "the definition of the task",
    "the model",
    "the conversation",
    "the data context",
    "the results of earlier steps",
    TASKS_BELOW,
)
"""The names in messages of the parts of :func:`content_of`, in their order."""

Find = Callable[[str], CompiledTemplate | None]
C = TypeVar("C", bound=CompiledTask)


def content_of(
    compiled: CompiledTemplate,
    request: SubtaskRequest,
    call: CallContext,
    *,
    model: str,
    find: Find,
    settled: bool = True,
) -> list[Any]:
    """Template, model, and the sent parts of the conversation and of earlier steps, as data, equal for equal tasks; then,
    if there are any, the definitions of the tasks that the model may run.

    ``model`` is the full name of the model, ``find`` returns the templates that texts call. The contents of files and the
    results of lookups do not count; nor, with ``settled``, the conversation in concurrent host code: its order differs
    from run to run.
    """
    history = compiled.history_with(request.history_config)
    sends = history.use_session_history and not (settled and "/~" in call.path)
    session = call.session
    definition = definition_of(compiled, find)
    offered, below = _offered(compiled, call, find) if compiled.template.tools else ((), ())
    return [
        [definition, offered] if offered else definition,
        model,
        session.digest(history.history_turns_to_include, compacted=history.compact_after_tokens is not None)
        if sends
        else None,
        None if session.data_context is None else plain(session.data_context),
        _handed_on(compiled, request, call),
        *below,
    ]


# A model runs its tasks as it runs the code of a tool: their prompts are part of the answering code
def _offered(compiled: CompiledTemplate, call: CallContext, find: Find) -> tuple[list[Any], list[Any]]:
    """The versions of the flow's tools that a task names (those of its own tools are in its definition) and the descriptions of
    the tasks that its model may run; and, as one part if there are any, the definitions of these."""
    journal, tool = call.run.journal, partial(cast(Any, call.run.services).tools.find, call=call)
    named = [tool(name) for name in sorted({*(compiled.template.tools or ())}.difference(compiled.toolbox))]
    offered: list[Any] = [[each.name, each.version] for each in named if each is not None and each.version is not None]
    tasks = tasks_below(compiled, tool, find)[1:]
    if not tasks:
        return offered, []
    if journal is not None:
        tasks = [cast(CompiledTemplate, journal.template(each)) for each in tasks]
    tasks.sort(key=lambda each: each.name)
    offered += [[each.name, each.template.description or each.template.instructions] for each in tasks]
    return offered, [[[each.name, definition_of(each, find)] for each in tasks]]


def tasks_below(compiled: C, tool: Callable[[str], Tool | None], task: Callable[[str], C | None]) -> list[C]:
    """The task and those that its model may run: as tools, or by a handoff; with those that theirs may run."""
    tasks = [compiled]
    for each in tasks:  # which grows
        own = cast(Toolbox, each.toolbox)
        run: list[C | None] = []
        for name in dict.fromkeys([*own, *(each.template.tools or ())]):
            used = own.get(name) or tool(name)
            if used is None or used.task is not None or used.kind == "subtask":
                run.append((used and used.task) or task(name.removeprefix(HANDOFF)))
        tasks += [other for other in run if other is not None and all([other is not before for before in tasks])]
    return tasks


def definition_of(compiled: CompiledTemplate, find: Find) -> str | list[Any]:
    """The digest of a template, and of the templates that its texts call, independent of the order of calls."""
    digest, called = _own(compiled)
    if not called:
        return digest
    seen: dict[str, CompiledTemplate | None] = {compiled.name: compiled}
    pending = [compiled]
    while pending:
        for name in _own(pending.pop())[1]:
            if name not in seen:
                seen[name] = other = find(name)
                if other is not None:
                    pending.append(other)
    return [[name, None if each is None else _own(each)[0]] for name, each in sorted(seen.items())]


def _own(compiled: CompiledTemplate) -> tuple[str, tuple[str, ...]]:
    """A digest of a template's fields, and the templates that its texts call. Fields that only save money do not count."""
    cached = compiled.memo.get("content")
    if cached is None:
        fields = {name: value for name, value in compiled.fields.items() if name not in _NOT_CONTENT}
        data: list[Any] = [fields] if compiled.output.model is None else [fields, compiled.output.schema]
        if compiled.toolbox.mark:
            data.append(compiled.toolbox.mark)
        if len(compiled.toolbox):
            data.append([_tool(compiled.toolbox[name]) for name in sorted(compiled.toolbox)])
        text = json.dumps(plain(data), sort_keys=True)
        digest = blake2b(text.encode("ascii"), digest_size=16).hexdigest()
        cached = compiled.memo["content"] = (digest, compiled.functions)
    return cached


def _tool(tool: Tool) -> list[Any]:
    """The parts of a tool that the record of a task depends on. An additional optional parameter does not count: old
    answers and calls still fit."""
    schema = tool.spec.input_schema
    return [tool.name, without(schema, left_out(schema)), tool.reference]


def _handed_on(compiled: CompiledTemplate, request: SubtaskRequest, call: CallContext) -> Any:
    """The material that the task inherits from the surrounding task and from earlier steps."""
    material = call.material
    inherits = material is not None and material is not NOTHING_INHERITED
    if not inherits and call.steps is None:
        return None
    settings = _settings(compiled, request)
    steps = call.steps if settings.accumulate_data else None
    return [
        None if steps is None else steps.previous_outputs(settings.accumulation_format, call.grants),
        [material.text, list(material.paths)]
        if material is not None and inherits and settings.inherit_context != "none"
        else None,
    ]


def _settings(compiled: CompiledTemplate, request: SubtaskRequest) -> ContextSettings:
    if request.context_management is None:
        return STANDARD if compiled.context is None else compiled.context
    try:
        return resolve_settings(
            compiled.template.subtype, compiled.template.context_management, request.context_management
        )
    except TaskError:
        return STANDARD  # a contradiction, which the task itself reports
