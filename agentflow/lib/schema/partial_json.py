"""Parses JSON written by models: a complete answer, perhaps in a code fence, or an incomplete one as it streams.

jiter, the parser inside pydantic, does the parsing: partial values, at most 200 levels of nesting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from agentflow.lib.schema.json_types import MAX_JSON_VALUES, has_too_many_values, type_name

KEY = "value"
"""The only key of the object."""
_SHARED = ("$defs", "definitions")


def enclosed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an object that holds a value of ``schema``, under :data:`KEY`; shared definitions stay at the root."""
    inner = {key: value for key, value in schema.items() if key not in _SHARED}
    shared = {key: schema[key] for key in _SHARED if key in schema}
    outer: dict[str, Any] = {
        "type": "object",
        "properties": {KEY: inner},
        "required": [KEY],
        "additionalProperties": False,
    }
    return cast(dict[str, Any], _moved({**outer, **shared}))


def with_root(schema: dict[str, Any]) -> dict[str, Any]:
    """``schema`` with its definition in place of the reference that a recursive class has at its root; any other unchanged."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    definition: Any = schema.get("$defs", {}).get(name)
    if schema.keys() != {"$ref", "$defs"} or not isinstance(definition, dict):
        return schema
    return {**cast(dict[str, Any], definition), "$defs": schema["$defs"]}


def disclosed(value: Any) -> Any:
    """The content of an object of :func:`enclosed`; any other value unchanged, for servers that ignore the schema."""
    entries: dict[str, Any] = cast(Any, value) if isinstance(value, dict) else {}
    return entries[KEY] if entries.keys() == {KEY} else value  # pyright: ignore[reportUnknownVariableType]


def _moved(schema: object) -> object:
    """``schema`` with references into the old root as references into the new one."""
    if isinstance(schema, list):
        return [_moved(each) for each in cast(list[Any], schema)]
    if not isinstance(schema, dict):
        return schema
    moved: dict[str, object] = {key: _moved(value) for key, value in cast(dict[str, Any], schema).items()}
    target = moved.get("$ref")
    if (
        isinstance(target, str)
        and target.startswith("#")
        and target.split("/")[1:2] not in (["$defs"], ["definitions"])
    ):
        moved["$ref"] = f"#/properties/{KEY}{target[1:]}"
    return moved


_THOUGHT = "</think>"
_BEGINS = ("{", "[", '"', "`")
_ALWAYS = 256
"""Up to this length the text is parsed after every chunk; beyond it, only after growing by a sixteenth."""


def parse_answer(text: str) -> Any:
    """The JSON of a model's answer: the whole text after its thoughts, or the content of its one code fence.

    Raises ValueError with reason and position; NaN, Infinity, more than 200 levels of nesting and more than
    :data:`~agentflow.lib.schema.json_types.MAX_JSON_VALUES` values are refused.
    """
    stripped = text.strip()
    if not stripped:
        raise ValueError("the answer is empty")
    try:
        return _parsed(stripped)
    except ValueError as error:
        after = stripped.partition(_THOUGHT)[2].strip()
        if not after:
            return _in_fence(stripped, error)
    try:
        return _parsed(after)
    except ValueError as error:
        return _in_fence(after, error)


def _in_fence(text: str, error: ValueError) -> Any:
    fenced = _fenced(text)
    if fenced is None:
        raise ValueError(str(error)) from None
    return _parsed(fenced)


def data_of(text: object) -> Any:
    """The list or object that a text is the JSON of; None for anything else."""
    if not isinstance(text, str) or not text.lstrip().startswith(("[", "{")):
        return None
    try:
        return _parsed(text)
    except ValueError:
        return None


def without_thoughts(text: str) -> str:
    """The text of a valid JSON answer after its leading thoughts.

    They are written ``<think>...</think>``; a server may have removed the first mark.
    """
    if _THOUGHT not in text:
        return text
    try:
        _parsed(text.strip())
    except ValueError:
        return text.partition(_THOUGHT)[2].lstrip()
    return text


def _parsed(text: str) -> Any:
    from jiter import from_json

    data = text.encode("utf-8", "replace")
    if has_too_many_values(data):
        raise ValueError(f"the answer has more than {MAX_JSON_VALUES:,} JSON values")
    return from_json(data, allow_inf_nan=False)


def _fenced(text: str) -> str | None:
    """The content of the only code fence of ``text``; None if there is none, or several."""
    pieces = text.split("```", 4)
    if len(pieces) != 3:
        return None
    language, line_end, content = pieces[1].partition("\n")
    return content if line_end and len(language) <= 40 else None


class PartialJson:
    """Parses a JSON text that arrives in pieces; :meth:`feed` returns the value so far.

    The total cost is a fixed multiple of the final length, for pieces of any size: past 256 characters the text
    is parsed again only after growing by a sixteenth.
    """

    __slots__ = ("_length", "_parsed_at", "_pieces")

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self._parsed_at = 0

    def feed(self, text: str) -> Any | None:
        """Add ``text``. Returns the value so far; None if there is none, or too little new text."""
        self._pieces.append(text)
        self._length += len(text)
        if self._length > _ALWAYS and self._length - self._parsed_at < self._parsed_at >> 4:
            return None
        return self.value()

    def value(self) -> Any | None:
        """The value so far, parsed leniently: strings, lists and objects end where the text does."""
        from jiter import from_json

        whole = "".join(self._pieces)
        self._pieces = [whole]
        self._parsed_at = self._length
        start = _start(whole)
        if start < 0:
            return None
        data = whole[start:].encode("utf-8", "replace")
        if has_too_many_values(data):
            return None
        try:
            return from_json(data, partial_mode="trailing-strings")
        except ValueError:
            return None


def _start(text: str) -> int:
    """Index where the JSON begins: after blanks, thoughts and the opening line of a code fence, if any."""
    at = len(text) - len(text.lstrip())
    if not text.startswith(_BEGINS, at) and (thought := text.find(_THOUGHT, at)) >= 0:
        at = thought + len(_THOUGHT)
        at += len(text) - at - len(text[at:].lstrip())
    elif text.startswith("<", at):
        return -1
    if text.startswith("```", at):
        line_end = text.find("\n", at)
        return line_end + 1 if line_end >= 0 else -1
    return at if at < len(text) else -1


def prune(value: Any, schema: Mapping[str, Any], _root: Mapping[str, Any] | None = None, _depth: int = 0) -> Any | None:
    """The part of an incomplete ``value`` that fits ``schema``; None if nothing does.

    Missing properties are allowed; properties and items of the wrong type are left out. References are followed.
    """
    root = _root if _root is not None else schema
    rules = follow_references(schema, root)
    if _depth > 64:
        return None
    if isinstance(value, dict) and rules.get("properties"):
        if not _type_allows(rules, "object") or _is_another(cast("dict[Any, Any]", value), rules["properties"]):
            return None
        properties = cast(Mapping[str, Any], rules["properties"])
        kept: dict[str, Any] = {}
        for name, item in cast(dict[str, Any], value).items():
            inner = properties.get(name)
            if inner is None:
                if rules.get("additionalProperties", True) is not False:
                    kept[name] = item
                continue
            part = prune(item, inner, root, _depth + 1)
            if part is not None or item is None:
                kept[name] = part
        return kept
    if isinstance(value, list) and isinstance(rules.get("items"), Mapping):
        if not _type_allows(rules, "array"):
            return None
        pruned = (prune(item, rules["items"], root, _depth + 1) for item in cast(list[Any], value))
        return [item for item in pruned if item is not None]
    if not _fits(value, rules):
        return None
    for key in ("anyOf", "oneOf"):
        if key in rules:
            candidates = (prune(value, schema, root, _depth + 1) for schema in rules[key])
            return next((item for item in candidates if item is not None), None)
    return cast(Any, value)


def _is_another(value: dict[Any, Any], properties: Mapping[str, Any]) -> bool:
    """Whether a field says by its constant that the value is another member of a union."""
    return any(
        ["const" in rules and name in value and value[name] != rules["const"] for name, rules in properties.items()]
    )


def _fits(value: Any, rules: Mapping[str, Any]) -> bool:
    """Whether a value without parts, or with unspecified parts, has the required type."""
    types = rules.get("type")
    if types is not None:
        name = type_name(value)
        allowed = (types,) if isinstance(types, str) else cast(Sequence[str], types)
        if name not in allowed and not (name == "integer" and "number" in allowed):
            return False
    if "enum" in rules and value not in rules["enum"]:
        return False
    return "const" not in rules or value == rules["const"]


def follow_references(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema that a chain of ``$ref`` into ``root`` leads to; empty if it leads nowhere."""
    for _ in range(16):
        ref = schema.get("$ref")
        if not isinstance(ref, str) or not ref.startswith("#/"):
            break
        at: Any = root
        for part in ref[2:].split("/"):
            at = cast(Mapping[str, Any], at).get(part, {}) if isinstance(at, Mapping) else {}
        schema = cast(Mapping[str, Any], at) if isinstance(at, Mapping) else {}
    return schema


def _type_allows(rules: Mapping[str, Any], name: str) -> bool:
    types = rules.get("type")
    return types is None or types == name or (isinstance(types, list) and name in types)
