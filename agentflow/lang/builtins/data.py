"""Reading and writing JSON."""

from __future__ import annotations

from typing import Any

from agentflow.core.data.errors import LimitExceeded, SexpEvaluationError
from agentflow.core.data.json_parse import MAX_DEPTH, TooNested, parsed
from agentflow.core.data.walk import Work
from agentflow.lang.builtins.numbers import integer
from agentflow.lang.builtins.registry import primitive, wrong_type
from agentflow.lang.builtins.strings import string
from agentflow.lang.calling import begun
from agentflow.lang.charging import BYTES_PER_ELEMENT, Bounded, touch_elements, touch_text
from agentflow.lang.json_writer import json_work

MAX_INDENT = 16
_BYTES_PER_OBJECT = 184


@primitive("parse-json", usage="(parse-json string)", arity=(1, 1), sliced=True, size="data", takes="s")
def parse_json(rt: Bounded, text: Any) -> Any:
    """The value of a JSON text: objects become dicts, arrays lists, ``null`` none.

    A text that is not exactly one JSON value is the error ``json/invalid``, with the position. At most 200 levels of
    nesting and integers of 4,300 digits are read. The last of duplicate keys wins.
    """
    source = string("parse-json", 1, text)
    touch_text(rt, len(source))
    objects = source.count("{")
    values = source.count(",") + source.count("[") + objects
    touch_elements(rt, values)
    rt.allocate(len(source) + values * BYTES_PER_ELEMENT + objects * _BYTES_PER_OBJECT)
    return begun(_parsed(source))


def _parsed(source: str) -> Work[Any]:
    try:
        return (yield from parsed(source))
    except UnicodeEncodeError:
        raise SexpEvaluationError(
            "parse-json: the text has half a surrogate pair in it", code="json/invalid", hint="clean the text first"
        ) from None
    except TooNested:
        raise LimitExceeded(
            f"parse-json: the text is nested deeper than {MAX_DEPTH} levels",
            limit="depth",
            allowed=MAX_DEPTH,
            hint="JSON this deep is hardly data",
        ) from None
    except ValueError as error:
        raise SexpEvaluationError(
            f"parse-json: {error}",
            code="json/invalid",
            hint="the whole text must be one JSON value" if source.strip() else "the text is empty",
        ) from None


@primitive("to-json", usage="(to-json value [indent])", arity=(1, 2), sliced=True, size="text", takes="jI")
def to_json(rt: Bounded, value: Any, indent: Any = None) -> str:
    """The value as JSON text, on one line or indented by that many spaces.

    Symbols are strings; models are objects of their declared fields. Infinities and procedures have no JSON
    (``json/unrepresentable``); data deeper than 1,000 levels is refused (``limits/depth``).
    """
    spaces = None if indent is None else integer("to-json", 2, indent)
    if spaces is not None and not 0 <= spaces <= MAX_INDENT:
        wrong_type("to-json", 2, f"an indentation from 0 to {MAX_INDENT}", indent)
    return begun(json_work(value, rt, indent=spaces))
