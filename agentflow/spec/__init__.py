"""Spec: the classes of the specification. They open runs on the engine, or join the executing one, and delegate.

The only room that asks which call is executing. Start with :mod:`agentflow.spec.joining`.
"""
