"""Reasoning effort: the levels that each model accepts, as documented by the vendors.

https://platform.claude.com/docs/en/build-with-claude/effort and
https://developers.openai.com/api/docs/guides/reasoning. No effort is sent to a model that is not listed here, because
servers refuse fields and values that a model does not support.
"""

from __future__ import annotations

import re

from agentflow.core.data.messages import Effort

_ORDER = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_USUAL = ("low", "medium", "high")
_ANTHROPIC = (
    (r"claude-opus-4-5", _USUAL),
    (r"claude-(opus|sonnet)-4-6|claude-mythos-preview", (*_USUAL, "max")),
    (r"claude-haiku-[5-9]", _USUAL),
    (r"claude-opus-4-[7-9]|claude-[a-z]+-([5-9]|\d\d)\b", (*_USUAL, "xhigh", "max")),
)
_OPENAI = (
    (r"gpt-5(\.\d)?-pro", ("high",)),
    (r"gpt-5\.1-codex-max", (*_USUAL, "xhigh")),
    (r"gpt-5\.1", ("none", *_USUAL)),
    (r"gpt-5\.[2-5]\b", ("none", *_USUAL, "xhigh")),
    (r"gpt-(5\.([6-9]|\d\d)|[6-9]|\d\d)\b", ("none", *_USUAL, "xhigh", "max")),
    (r"gpt-5\b", ("minimal", *_USUAL)),
    (r"o\d|codex|(.*/)?gpt-oss", _USUAL),
)


def anthropic_efforts(model: str) -> tuple[str, ...]:
    """The values of ``output_config.effort`` that a model accepts; empty if it accepts none or is unknown."""
    return _levels(_ANTHROPIC, model)


def openai_efforts(model: str) -> tuple[str, ...]:
    """The values of ``reasoning.effort`` that a model accepts; empty if it accepts none or is unknown."""
    return _levels(_OPENAI, model)


def nearest(effort: Effort, levels: tuple[str, ...]) -> str:
    """The one of ``levels`` nearest to ``effort``."""
    wanted = _ORDER.index(effort)
    return min(levels, key=lambda level: abs(_ORDER.index(level) - wanted))


def _levels(table: tuple[tuple[str, tuple[str, ...]], ...], model: str) -> tuple[str, ...]:
    return next((levels for pattern, levels in table if re.match(pattern, model)), ())


__all__ = ["anthropic_efforts", "nearest", "openai_efforts"]
