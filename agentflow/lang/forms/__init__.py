"""The special forms: one module per family, collected into one sorted table."""

from __future__ import annotations

from collections.abc import Mapping

from agentflow.lang.analyzer import SpecialForm
from agentflow.lang.forms import binding, concurrency, control, data, failure, loops, notes, programs, tasks
from agentflow.lang.forms.form import collect

FORMS: Mapping[str, SpecialForm] = collect(
    (binding, concurrency, control, data, failure, loops, notes, programs, tasks)
)
"""Every special form by name, sorted."""

__all__ = ["FORMS", "SpecialForm"]
