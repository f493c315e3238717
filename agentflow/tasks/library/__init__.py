"""The templates that come with agentflow; their prompts are files in this directory, read at first use."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from agentflow.core.data.errors import TaskError, cut
from agentflow.core.data.results import TaskResult
from agentflow.core.data.values import to_json
from agentflow.tasks.template_registry import CompiledTemplate, compile_template

FILES: Mapping[str, str] = MappingProxyType(
    {
        "atomic:associative_matching": "associative_matching",
        "atomic:associative_matching:content": "associative_matching",
        "atomic:associative_matching:metadata": "associative_matching_metadata",
        "atomic:associative_matching_metadata": "associative_matching_metadata",
        "atomic:format_json": "format_json",
        "atomic:solve": "solve",
        "atomic:solve_python": "solve_python",
        "atomic:solve_repair": "solve_repair",
    }
)
"""The file of each built-in template, by identifier."""
TEST_FILES: Mapping[str, str] = MappingProxyType(
    {
        "greeting": "greeting",
        "format_date": "format_date",
        "atomic:greeting": "greeting",
        "atomic:format_date": "format_date",
    }
)
"""The file of each template of test mode, by identifier."""


def builtin(identifier: str) -> CompiledTemplate | None:
    """The built-in template for ``type:subtype``, or None."""
    file = FILES.get(identifier)
    return None if file is None else read(file)


@cache
def read(file: str) -> CompiledTemplate:
    """The template in ``file``, one of the values of :data:`FILES` and :data:`TEST_FILES`."""
    from agentflow.tasks.xml import parse_templates

    text = resources.files("agentflow.tasks.library").joinpath(f"{file}.xml").read_text("utf-8")
    return compile_template(parse_templates(text, f"library/{file}.xml")[0])


def _format_json(values: Mapping[str, Any]) -> TaskResult:
    value = values["value"]
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise TaskError(
                f"the text is not JSON: {error}",
                reason="output_format_failure",
                code="tasks/no-json",
                details={"content": cut(values["value"], 2_000)},
            ) from None
    return TaskResult(content=to_json(value, indent=values["indent"]), parsedContent=value)


def _format_date(values: Mapping[str, Any]) -> TaskResult:
    try:
        date = datetime.datetime.fromisoformat(values["date"])
        return TaskResult(content=date.strftime(values["format"]))
    except ValueError as error:
        raise TaskError(
            f"format_date: {error}",
            reason="input_validation_failure",
            code="tasks/bad-parameter",
            hint="a date is written as 2026-01-31 or 2026-01-31T12:00:00",
        ) from None


INTERNAL: Mapping[str, Callable[[Mapping[str, Any]], TaskResult]] = MappingProxyType(
    {"agentflow:format_json": _format_json, "agentflow:format_date": _format_date}
)
"""The functions of templates that need no model, by template name."""
