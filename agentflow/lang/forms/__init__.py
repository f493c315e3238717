"""The special forms: one module per family, collected into one sorted table."""

from __future__ import annotations

from collections.abc import Mapping

from agentflow.lang.forms import binding, concurrency, control, data, failure, loops, programs, tasks
from agentflow.lang.forms.form import SpecialForm, collect

FORMS: Mapping[str, SpecialForm] = collect((binding, concurrency, control, data, failure, loops, programs, tasks))
"""Every special form by name, sorted."""

SCOPING: frozenset[str] = frozenset(name for name, form in FORMS.items() if form.scoping)
"""The forms that confine a ``define`` inside them to their own scope."""

__all__ = ["FORMS", "SCOPING", "SpecialForm"]
