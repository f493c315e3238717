"""Spec: the specification's faces. They open runs on the engine, or join the one that is executing, and delegate.

The one room that asks which call is executing. Start with :mod:`agentflow.spec.joining`.
"""
