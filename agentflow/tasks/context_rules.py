"""Resolves the three dimensions of a task's context (inherited, accumulated, fresh) from defaults and overrides.

A fresh lookup excludes inheritance ("enabled" contradicts "full" and "subset"). Settings come in layers: the subtype's
defaults, then the template's, then the request's. If a layer names one of the two dimensions, the other is adjusted to
it; only a layer that itself names both sides of the contradiction fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import ClassVar, Literal

from agentflow.core.data.errors import TaskError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.mapping_records import Entries
from agentflow.core.data.templates import ContextManagement


@frozen(eq=False)
class ContextSettings(Entries):
    """Resolved settings: every dimension has a value. Stored unchanged in the notes of the result."""

    FIELDS: ClassVar[Mapping[str, str]] = MappingProxyType(
        {name: name for name in ("inherit_context", "accumulate_data", "accumulation_format", "fresh_context")}
    )

    inherit_context: Literal["full", "none", "subset"] = "full"
    accumulate_data: bool = False
    accumulation_format: Literal["notes_only", "full_output"] = "notes_only"
    fresh_context: Literal["enabled", "disabled"] = "disabled"


STANDARD = ContextSettings()
"""Default settings of every subtype except ``subtask``."""
DEFAULTS: Mapping[str, ContextSettings] = MappingProxyType(
    {"subtask": ContextSettings(inherit_context="none", fresh_context="enabled")}
)
"""Default settings by subtype, if they differ from :data:`STANDARD`."""


def resolve_settings(
    subtype: str, template: ContextManagement | None = None, override: ContextManagement | None = None
) -> ContextSettings:
    """Resolve the settings of a task from its subtype, its template's settings and a request's override.

    Raises TaskError (``tasks/context-conflict``) if one layer contradicts itself.
    """
    settings = DEFAULTS.get(subtype, STANDARD)
    for layer, name in ((template, "the template"), (override, "the request")):
        if layer is not None:
            settings = _apply(settings, layer, name)
    return settings


def _apply(settings: ContextSettings, layer: ContextManagement, name: str) -> ContextSettings:
    inherit, fresh = layer.inherit_context, layer.fresh_context
    if fresh == "enabled" and inherit in ("full", "subset"):
        raise TaskError(
            f"{name} asks for fresh_context 'enabled' together with inherit_context '{inherit}'",
            reason="input_validation_failure",
            code="tasks/context-conflict",
            hint="a fresh lookup starts from nothing: say inherit_context 'none', or fresh_context 'disabled'",
            details={"inherit_context": inherit, "fresh_context": fresh},
        )
    if inherit is not None:
        settings = replace(settings, inherit_context=inherit)
        if inherit != "none" and settings.fresh_context == "enabled":
            settings = replace(settings, fresh_context="disabled")
    if fresh is not None:
        settings = replace(settings, fresh_context=fresh)
        if fresh == "enabled" and settings.inherit_context != "none":
            settings = replace(settings, inherit_context="none")
    if layer.accumulate_data is not None:
        settings = replace(settings, accumulate_data=layer.accumulate_data)
    if layer.accumulation_format is not None:
        settings = replace(settings, accumulation_format=layer.accumulation_format)
    return settings
