"""Advice for unknown options: the option that is meant by a word of another framework. Loaded on an error."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.lib.option_table import CALLED, NAMES, Place, options_of
from agentflow.lib.text.suggest import did_you_mean

_WORDS: Mapping[str, str] = MappingProxyType(
    {
        "system": "instructions system_prompt systemPrompt system_message system_instruction prompt role",
        "output": "output_type result_type response_model response_format response_schema output_schema output_model"
        " output_format outputFormat outputModel returns schema",
        "settings": "temperature top_p top_k seed stop stop_sequences presence_penalty frequency_penalty logit_bias logprobs"
        " service_tier verbosity extra_body model_settings generation_config config parallel_tool_calls",
        "max_output_tokens": "max_tokens max_completion_tokens maxTokens",
        "max_turns": "max_iterations max_steps max_iter recursion_limit turns",
        "effort": "reasoning reasoning_effort thinking",
        "timeout_s": "timeout request_timeout timeout_seconds",
        "retries": "max_retries num_retries retry attempts tries",
        "rounds": "output_retries result_retries max_rounds repairs",
        "check": "output_validator result_validator validator validate guard output_guardrail output_validators validation_context",
        "ends": "return_direct stop_on_call ends_run final",
        "tools": "functions toolsets tool mcp_servers builtin_tools",
        "provider_tools": "web_search_options native_tools",
        "history": "memory messages message_history chat_history history_config historyConfig",
        "context": "context_management contextManagement",
        "model": "llm model_name model_id",
        "fallbacks": "fallback fallback_models",
        "clear_tool_results": "clear_tool_uses context_edits context_editing clear_results",
        "file_paths": "files attachments filePaths",
        "description": "docstring doc handoff_description description_override",
        "name": "name_override func_name title",
        "reuse": "cache cache_ttl ttl",
        "approval": "needs_approval requires_approval require_approval confirm",
    }
)
"""Names of options in other frameworks, and template fields with options of another name."""
_PEERS: Mapping[str, str] = MappingProxyType({word: name for name, words in _WORDS.items() for word in words.split()})
_EXAMPLES: Mapping[str, str] = MappingProxyType(
    {
        "system": "system='You are ...' is the system prompt",
        "output": "output=Review is the type of the answer",
        "settings": "settings={'temperature': 0.2} holds the request fields of the model's dialect",
        "max_output_tokens": "max_output_tokens=2000 bounds an answer",
        "max_turns": "max_turns=8 bounds the tool loop",
        "tools": "tools=[search] lists the tools that the model may call",
        "history": "history=True takes part in the conversation",
        "clear_tool_results": "clear_tool_results=Clear(after_tokens=50_000) clears old tool results from a long loop",
        "context": "context={'fresh_context': 'enabled'} sets the texts that the task reads",
    }
)
_WRITTEN = re.compile(r"\w+=(\{.*?\}|'.*?'|\S+)").match
"""The option with its value at the beginning of an example."""
_PROMPT: Mapping[Place, str] = MappingProxyType(
    {
        "task": "the prompt is the docstring, or the return value of the body",
        "ask": "the prompt is the first argument",
        "text": "the prompt is the function's body",
    }
)
_DEPS = (
    "dependencies belong to a run: flow.run(call, deps=Bank()); a tool declares their type with ctx: CallContext[Bank]"
)
_AROUND = "around_tool=[careful] and around_model=[redact] are async functions around each call: async def careful(call, run, ctx)"
_HANDOFF = "handoffs=[billing] lets the model hand the conversation over; tools=[billing] lets it call the task"
_CHOSEN = "a function of ctx chooses the tools of each turn: tools=lambda ctx: [search] if ctx.deps.paid else []"
_ENDS = "@tool(ends=True) ends the task with the tool's return value, and so does raise Finish(value) in any tool"
_ASKS = "a tool asks for a yes: @tool(approval=True), or approval=lambda arguments, ctx: arguments['amount'] > 100"
_TOLD = "raise Retry('the fault') in the tool, or in a function of around=[...]: the model reads it"
_SESSION = "a conversation belongs to a run: flow.run(call, session=session)"
_LIMITS = "limits belong to a run: flow.run(call, limits=Limits(usd=1))"
_STORED = (
    "it is an option of the database: AgentFlow(durable=Durable('sqlite:///runs.db', sync='full', on_inflight='ask'))"
)
_ADAPTER = "it is an option of the adapter for model=: AgentFlow(model, provider=Provider(traits={...}, clocks={...}, retry={...}))"
_ABSENT: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("deps", "deps_type", "context_type", "dependencies"), _DEPS),
        **dict.fromkeys(("sub_agents", "agents", "team", "handoff"), _HANDOFF),
        **dict.fromkeys(
            (
                "guardrails",
                "input_guardrails",
                "output_guardrails",
                "tool_guardrails",
                "hooks",
                "callbacks",
                "middleware",
                "interceptors",
                "before_tool_callback",
                "after_tool_callback",
                "before_model_callback",
                "after_model_callback",
                "wrap_tool_call",
                "wrap_model_call",
                "capabilities",
                "history_processors",
            ),
            _AROUND,
        ),
        **dict.fromkeys(("prepare", "prepare_tools", "is_enabled"), _CHOSEN),
        **dict.fromkeys(("tool_use_behavior", "stop_on_first_tool", "end_strategy"), _ENDS),
        **dict.fromkeys(("needs_approval", "requires_approval", "interrupt_on", "interrupt_before"), _ASKS),
        **dict.fromkeys(("args_validator", "failure_error_function"), _TOLD),
        **dict.fromkeys(("session", "thread_id", "conversation_id"), _SESSION),
        **dict.fromkeys(("limits", "usage_limits"), _LIMITS),
        "keep_partial": "a conversation has it: Session(keep_partial=True), or flow.session('user-42', keep_partial=True)",
        "input_filter": "handoffs=[Handoff(billing, keep=function)] chooses the messages that go along",
        "checkpointer": "runs are stored by the flow: AgentFlow(durable='sqlite:///runs.db'), flow.start(call, run_id='r')",
        "answer": "the flow has who answers questions: AgentFlow(answer=function); or flow.send does, while approval_ttl= keeps them open",
        **dict.fromkeys(("sync", "take_over", "on_inflight"), _STORED),
        **dict.fromkeys(("traits", "clocks", "retry"), _ADAPTER),
        "params": "the parameters are those of the function",
        "is_function": "a text function is a template: flow.task_system.register_template({..., 'is_function': True})",
        "sources": "files come by file_paths=[...] or context={...}; AgentFlow(sources=) proposes files",
    }
)
"""Options of other frameworks, and template fields, that have no counterpart here."""


def hint_for(name: str, where: Place) -> str:
    """Advice ``where`` it stands for ``name``, which is not an option there."""
    there = NAMES[where]
    meant = _PEERS.get(name)
    if where == "atom":
        own = {each.name: each.atom or each.name for each in options_of(where)}
        shown = ["params", "instructions", "output_format", *own.values()]
        written = {**own, "output": "output_format"}.get(meant or name)
        written = "instructions" if name == "prompt" else written
        near = did_you_mean(name, shown) if written is None else f"did you mean '{written}'?"
        return near or f"the options are {', '.join(shown)}"
    if name in ("prompt", "instructions") and where in _PROMPT:
        return f"{_EXAMPLES['system']}; {_PROMPT[where]}"
    if meant == "output" and where in ("task", "text"):
        return "the return annotation of the function is the type of the answer: -> Review"
    if meant in there:
        return _EXAMPLES.get(meant, f"the option is called '{meant}'")
    if name in _ABSENT and (where != "tool" or _ABSENT[name] in (_CHOSEN, _TOLD)):
        return _ABSENT[name]
    if name in NAMES["task"] and where == "ask":
        return f"'{name}' is an option of a task with a name of its own: @flow.task({name}=...)"
    return did_you_mean(name, there) or f"the options are {', '.join(sorted(there))}"


def unknown_option(names: Iterable[str], where: Place) -> ConfigurationError:
    """The error (``config/option``) for keywords that include unknown options at ``where``."""
    name = next(name for name in names if name not in NAMES[where])
    return ConfigurationError(
        f"{CALLED[where]} has no option '{clip(name, 80)}'",
        code="config/option",
        hint=hint_for(name, where),
        details={"option": name},
    )


def unknown_field(name: str, where: str, names: Collection[str]) -> ConfigurationError:
    """The error (``config/option``) for ``name``, which is not among the ``names`` that ``where`` takes by keyword."""
    meant = _PEERS.get(name, name)
    meant = "output_model" if meant == "output" and "output_model" in names else meant
    if meant in names:
        hint = _EXAMPLES.get(meant, f"the option is called '{meant}'")
    elif meant in NAMES["ask"] and name not in _ABSENT:
        example = _WRITTEN(_EXAMPLES.get(meant, ""))
        written = f"{meant}=..." if example is None else example[0]
        hint = f"it is an option of a task or a question: flow.ask('...', {written})"
    else:
        hint = _ABSENT.get(name) or did_you_mean(name, names)
    return ConfigurationError(
        f"{where} has no option '{clip(name, 80)}'",
        code="config/option",
        hint=hint or f"the options are {', '.join(sorted(names))}",
        details={"option": name},
    )
