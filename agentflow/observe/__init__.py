"""Observe: delivers the events of a run to its observers: the caller, a console, a file.

Knows the events of ``core``, but not their causes. Start with :mod:`agentflow.observe.stream`, the queues between a run and
its readers.
"""
