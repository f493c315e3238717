"""Tasks: templates, their context and their execution; subtasks, saved workflows and programs that models write.

Reaches models, memory, files and runs through the ports of ``core`` only. Start with :mod:`agentflow.tasks.service`,
then :mod:`agentflow.tasks.runner` and :mod:`agentflow.tasks.executor`, which take one task from request to result.
"""
