"""Task templates and their settings, used by hosts, files and models to declare tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, cast

from pydantic import AliasChoices, Field, field_validator, model_validator

from agentflow.core.data.durations import seconds_of
from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.messages import Batching, Effort, PromptCache
from agentflow.core.data.models import MappingModel
from agentflow.core.data.values import name_of, pairs_to_dict


class Overrides(MappingModel):
    """Settings a program, host or file may leave out: ``nil`` counts as None, a symbol as its name."""

    @model_validator(mode="before")
    @classmethod
    def _read_program_values(cls, value: object) -> object:
        entries = pairs_to_dict(value)
        if entries is None:
            return value
        return {key: None if item == [] else name_of(item) or item for key, item in entries.items()}


class ContextManagement(Overrides):
    """How a task's context is assembled; ``None`` means the default of the template's subtype.

    ``inherit_context`` full, none or subset; ``accumulate_data``; ``accumulation_format`` notes_only or full_output;
    ``fresh_context`` enabled or disabled. camelCase keys are read too.
    """

    inherit_context: Literal["full", "none", "subset"] | None = Field(
        default=None, validation_alias=AliasChoices("inherit_context", "inheritContext")
    )
    accumulate_data: bool | None = Field(
        default=None, validation_alias=AliasChoices("accumulate_data", "accumulateData")
    )
    accumulation_format: Literal["notes_only", "full_output"] | None = Field(
        default=None, validation_alias=AliasChoices("accumulation_format", "accumulationFormat")
    )
    fresh_context: Literal["enabled", "disabled"] | None = Field(
        default=None, validation_alias=AliasChoices("fresh_context", "freshContext")
    )


# Tasks are stateless by default: histories sent unasked cost 25 times the tokens (decision 30)
class HistoryConfig(Overrides):
    """How a task uses its session's history.

    ``use_session_history`` sends earlier exchanges, ``history_turns_to_include`` limits them to the newest (None: all);
    ``record_in_session_history`` commits this exchange. With ``compact_after_tokens`` a history longer than that (by
    estimate) is sent as a summary of its older turns, which a model call writes, and its newest ``compact_keep_turns``.
    ``True`` and ``False`` are read as both: to send the earlier exchanges and to commit, or neither.

    Settings adjust the underlying ones individually: an unnamed setting keeps its underlying value.
    """

    use_session_history: bool = True
    history_turns_to_include: int | None = Field(default=None, ge=0)
    record_in_session_history: bool = True
    compact_after_tokens: int | None = Field(default=None, ge=1)
    compact_keep_turns: int = Field(default=2, ge=0)

    @model_validator(mode="before")
    @classmethod
    def _read_switch(cls, value: object) -> object:
        if isinstance(value, bool):
            return {"use_session_history": value, "record_in_session_history": value}
        return value

    def over(self, base: HistoryConfig) -> HistoryConfig:
        """``base`` with the settings named here."""
        return base.model_copy(update={name: getattr(self, name) for name in self.model_fields_set})

    @property
    def alone(self) -> bool:
        """Whether the conversation is neither sent nor added to."""
        return not (self.use_session_history or self.record_in_session_history)


CONVERSES = HistoryConfig.model_construct()  # valid as it stands: a check would build the model on import
"""The settings of a task that takes part in the conversation, where it names no others."""
STATELESS = HistoryConfig.model_construct(use_session_history=False, record_in_session_history=False)
"""The settings of a task that does not, where it names no others."""


# The session keeps all results: clearing changes requests alone (decision 64)
@frozen(kw_only=True)
class Clear:
    """Clears old results of tools from the requests of a long tool loop: ``clear_tool_results=Clear(after_tokens=50_000)``.

    Once a request would have more than ``after_tokens`` tokens of input, by estimate, the model reads one line in place of each
    result but the newest ``keep``: it says how to get the result again. Results that the model has yet to read stay. As each clearing
    makes the provider read the rest of the request anew, results are cleared together, and only if that saves at least a quarter of
    ``after_tokens``. The conversation keeps all results. Raises ConfigurationError (``config/option``) for values out of range.
    """

    after_tokens: int = 100_000
    keep: int = 3

    def __post_init__(self) -> None:
        for name, least in (("after_tokens", 1), ("keep", 0)):
            value: object = getattr(self, name)
            if type(value) is not int or value < least:
                raise ConfigurationError(
                    f"Clear: {name}={clip(repr(value), 120)} is not a number from {least} on",
                    code="config/option",
                    hint="write Clear(after_tokens=50_000, keep=3)",
                    details={"option": name},
                )


QUESTION = "ask"
"""The name of the task behind a question that has no task of its own."""


class Parameter(MappingModel):
    """A declared parameter of a template: ``type`` a simple name (``string``, ``integer``, ``string[]``, ...).

    ``json_schema`` describes its values in more detail: they are converted to the type, then checked against it.
    """

    type: str = "any"
    json_schema: dict[str, Any] | None = None
    description: str = ""
    required: bool = True
    default: Any = None


HOST_FUNCTIONS = ("prompt_function", "system_function", "rules")
"""The fields of a template that hold functions of the host."""


class TaskTemplate(MappingModel):
    """A task as registered with the task system.

    ``name`` identifies it, ``type`` is ``atomic``, ``subtype`` groups. ``params`` maps parameter names to
    :class:`Parameter` (a ``"a,b"`` string, a list or a dict is read). ``instructions`` is the prompt with ``{{param}}``
    slots; ``system`` the system prompt; ``model`` a model name or None for the flow's; ``output_format`` a dict ``{"type":
    "json" | "text", "schema": ...}``; ``tools`` the names the task may call (None: none of them unless the caller grants
    some); ``fallbacks`` models to try if ``model`` fails; ``decompose`` how many rounds a model may take to write a program
    for a task that ran out of context or output (0: never); ``is_function`` makes it a text function: its value is the
    rendered instructions, without a model call; ``max_turns``, ``max_output_tokens`` and ``timeout_s`` (seconds) bound its
    prompt; ``history_config`` is how it uses the conversation: unnamed settings are those of a task that takes part in it,
    or does not if ``stateless``; ``reuse`` the maximum age of an equal call's result, in any run, that may be reused
    (``"1d"``), a changed ``version`` says that earlier results no longer apply; ``priority`` (-1000 to 1000) is that of its calls where they wait for others, in place of the run's;
    ``settings`` are request fields native to the model's dialect; ``prompt_cache`` how long the provider is to cache the
    beginning of the prompt: ``"5m"``, ``"1h"``, or False (``"off"``) for not at all (None: where it pays); ``effort`` how
    hard the model is to think (``none``, ``low``, ``medium``, ``high``, ``max``); ``batch`` has its model calls made in batches at half the price; ``provider_tools`` are tools that the
    provider itself runs, in its own form (``{"type": "web_search"}``), offered in addition to ``tools``; ``sources`` are
    the sources of the data from which a program made its texts, in a flow with a policy. The host's ``prompt_function``,
    awaited with the parameters' values and the call, may return a prompt in place of ``instructions``;
    its ``system_function``, awaited with the call, returns the system prompt in place of ``system``; ``rules`` are the
    host's :class:`~agentflow.core.ports.ports.TurnRules`, None for the usual ones. ``tool_choice`` is ``auto``, ``required``,
    ``none`` or the name of a tool.
    """

    name: str
    type: str = "atomic"
    subtype: str = "standard"
    description: str = ""
    params: dict[str, Parameter]
    instructions: str = Field(
        default="", validation_alias=AliasChoices("instructions", "taskPrompt", "task_prompt", "body")
    )
    system: str = Field(default="", validation_alias=AliasChoices("system", "systemPrompt", "system_prompt"))
    model: str | None = None
    fallbacks: list[str] = Field(default_factory=list)
    decompose: int = Field(default=0, ge=0, le=20)
    output_format: dict[str, Any] = Field(
        default_factory=dict, validation_alias=AliasChoices("output_format", "outputFormat")
    )
    context_management: ContextManagement = Field(
        default_factory=ContextManagement, validation_alias=AliasChoices("context_management", "contextManagement")
    )
    history_config: HistoryConfig | None = None
    stateless: bool = False
    file_paths: list[str] = Field(default_factory=list, validation_alias=AliasChoices("file_paths", "filePaths"))
    file_paths_source: dict[str, Any] | None = None
    tools: list[str] | None = None
    is_function: bool = False
    settings: dict[str, Any] = Field(default_factory=dict)
    max_turns: int | None = Field(default=None, ge=1)
    max_output_tokens: int | None = Field(default=None, ge=1)
    timeout_s: float | None = Field(default=None, gt=0)
    reuse: str | None = None
    version: str | int | float | None = None
    prompt_cache: PromptCache | None = None
    effort: Effort | None = None
    batch: Batching | None = None
    provider_tools: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    priority: int | None = Field(default=None, ge=-1_000, le=1_000)
    sources: list[str] = Field(default_factory=list[str])
    output_model: Any = Field(default=None, exclude=True)
    prompt_function: Callable[..., Any] | None = Field(default=None, exclude=True)
    system_function: Callable[..., Any] | None = Field(default=None, exclude=True)
    tool_choice: str = "auto"
    rules: Any = Field(default=None, exclude=True)

    @field_validator("output_format", mode="before")
    @classmethod
    def _read_format(cls, value: object) -> object:
        """``"json"`` and ``"text"`` name a format, any other text is a simple schema; a list of pairs is a dict."""
        if isinstance(value, str):
            return {"type": value} if value in ("json", "text") else {"type": "json", "schema": value}
        if isinstance(value, list):
            return pairs_to_dict(cast(list[Any], value)) or value  # pyright: ignore[reportUnknownVariableType]
        return value

    @field_validator("prompt_cache", mode="before")
    @classmethod
    def _read_cache(cls, value: object) -> object:
        return False if value == "off" else value

    @field_validator("provider_tools", mode="before")
    @classmethod
    def _read_provider_tools(cls, value: object) -> object:
        """Each names its ``type``; a list of pairs is a dict."""
        if not isinstance(value, list):
            return value
        tools = [pairs_to_dict(each) or {} for each in cast(list[object], value)]
        if not all([isinstance(each.get("type"), str) for each in tools]):
            raise ValueError('a tool of the provider is a table with its type, {"type": "web_search"}')
        return tools

    @field_validator("reuse")
    @classmethod
    def _check_reuse(cls, value: str | None) -> str | None:
        if value is not None:
            seconds_of(value)
        return value

    @field_validator("batch", mode="before")
    @classmethod
    def _check_batch(cls, value: object) -> object:
        if value is not None:
            from agentflow.core.data.batches import within_s  # few tasks are batched

            within_s(value)
        return value

    @field_validator("params", mode="before")
    @classmethod
    def _read_params(cls, value: object) -> object:
        if isinstance(value, str):
            return {name.strip(): Parameter() for name in value.split(",") if name.strip()}
        if isinstance(value, list | tuple):
            return {str(name): Parameter() for name in cast(list[object], value)}
        if isinstance(value, dict):
            read: dict[str, object] = {}
            for name, declared in cast(dict[object, object], value).items():
                read[str(name)] = {"type": declared} if isinstance(declared, str) else (declared or {})
            return read
        return value
