"""Handler: conversations with models. Prompts, the loop of model calls and tool calls, and the tools themselves.

Reaches models, executors and runs through the ports of ``core`` only. Read ``turn_loop`` (the tools
that a prompt offers), then down to the model with ``prompt_run`` (model calls and tool calls in turn; ``prompt_opening`` is its beginning, ``prompt_answers`` its end, ``prompt_bill`` its cost, ``reserving`` the part that is reserved before) and ``model_turn`` (one call and its typed answer), and down to the
tools with ``admitting`` (may this call start?) and ``tool_registry``. ``compaction`` shortens conversations.
"""
