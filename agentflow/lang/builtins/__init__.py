"""The primitives: one module per topic, collected into one sorted, immutable table."""

from __future__ import annotations

from collections.abc import Mapping

from agentflow.lang.builtins import data, lists, logic, numbers, procedures, records, results, strings, world
from agentflow.lang.builtins.registry import Primitive, collect, primitive

PRIMITIVES: Mapping[str, Primitive] = collect(
    (data, lists, logic, numbers, procedures, records, results, strings, world)
)
"""Every primitive by name, sorted."""

__all__ = ["PRIMITIVES", "Primitive", "primitive"]
