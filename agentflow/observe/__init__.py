"""Observe: delivers the events of a run to whoever watches it: the caller, a console, a file.

Knows the events of ``core`` and nothing of what causes them. Start with :mod:`agentflow.observe.stream`, the queues
between a run and its readers.
"""
