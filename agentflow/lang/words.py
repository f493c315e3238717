"""The reserved names of the language: a task or tool of the same name does not shadow them."""

from __future__ import annotations

from agentflow.lang.analyzer import EFFECT_NAMES
from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.forms import FORMS

TOOL_FORMS = frozenset({"remember", "recall"})
"""Special forms that call the tool of their name."""
WORDS = frozenset({*FORMS, *PRIMITIVES, *EFFECT_NAMES}) - TOOL_FORMS
"""Special forms, primitives and names of effects: a program that calls one of them calls no task and no tool."""
