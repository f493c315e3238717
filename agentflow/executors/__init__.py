"""Executors: files, commands and git on this machine, within what the configuration allows.

Knows ``core`` and the operating system; no task, model or program. Start with
:mod:`agentflow.executors.file_access` and :mod:`agentflow.executors.command_executor`, which enforce the rules;
:mod:`agentflow.executors.system_tools` offers both as the ``system:`` tools. The promises are in docs/security.md.
"""
