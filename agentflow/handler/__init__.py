"""Handler: conversations with models. Prompts, the loop of model calls and tool calls, and the tools themselves.

Reaches models, executors and runs through the ports of ``core`` only. Start with
:mod:`agentflow.handler.turn_loop`; :mod:`agentflow.handler.tool_registry` runs the tools.
"""
