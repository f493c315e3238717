"""The offline model: not a language model but an extractor, for trying agentflow without a key."""

from __future__ import annotations

import asyncio
import html
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

from agentflow.core.data.messages import ModelRequest, ToolResultPart
from agentflow.core.data.values import to_json
from agentflow.lib.schema.json_schema import Schema
from agentflow.lib.schema.partial_json import follow_references
from agentflow.lib.text.sentence_rank import LexicalSentenceRanker
from agentflow.providers.dialects.wire import record, records
from agentflow.providers.scripted import ScriptedProvider

_MAX_TEXT, _MAX_PASSAGES, _MAX_PASSAGE, _MAX_RECORDS = 400_000, 1_500, 400, 50
_CODE_SCORE, _FLOOR = 0.3, 0.35
"""Weight of a line of code relative to a sentence; minimum score to be quoted, as a share of the best score."""
_MOST_OF_A_FILE = 3
"""Sentences of one file that an answer quotes."""

_FILE = re.compile(r"<file\b[^>]*?\bpath=\"([^\"]*)\"[^>]*>\n?(.*?)\n?</file>", re.S)
_SCHEMA = re.compile(r"<schema>.*?</schema>|^Answer with one JSON value [^\n]*$", re.S | re.M)
_STATED = re.compile(r"^[ \t]*(?:question|query|request|goal)[ \t]*:[ \t]*(\S[^\n]*)\n?", re.M | re.I)
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[A-Z0-9\"'(\[`*])")
_DOCSTRING = re.compile(r"(\"\"\"|''')(.*?)(?:\1|\Z)", re.S)
_MARKUP = re.compile(r":[a-z:]+:`~?(?:[\w.]*\.)?(\w+)`|`{1,3}([^`]*)`{1,3}")
_TEST = re.compile(r"(?:^|/)tests?/|(?:^|/)(?:test_[^/]*|conftest\.py|[^/]*[._]test\.\w+)$")
_CODE = re.compile(r"^(?:(?:async|def|class|return|import|from)\b|[@)]|\S{1,80}\()|[={}\[\]$\\]|[(,;]$")


class Passage(NamedTuple):
    """A sentence, or a line of code, with its file (``""`` for none), its relevance in 0..1, and its number in the prompt."""

    text: str
    path: str
    score: float
    number: int = 0


class Extract:
    """The question of a prompt and its passages, the most relevant first.

    Parameters: ``prompt`` the user's text, with or without files in it; ``results`` the tool results since.
    ``passages`` excludes the question, and the instruction that starts the prompt.
    """

    def __init__(self, prompt: str, results: str) -> None:
        documents: dict[str, str] = {}
        words = _take_documents(_SCHEMA.sub("", prompt[:_MAX_TEXT]), documents)
        if said := _take_documents(results[:_MAX_TEXT], documents).strip():
            documents[""] = said
        rest, stated = _STATED.sub("", words), _STATED.search(words)
        asking = [text for text in _SENTENCE_END.split(" ".join(rest[:20_000].split())) if text.endswith("?")]
        self.question = stated[1].strip() if stated else " ".join(asking) or rest[:1_000]
        texts = documents or {"": rest}
        every = list(islice((p for path, text in texts.items() for p in _passages(text, path)), _MAX_PASSAGES))
        scores = LexicalSentenceRanker()(self.question, [passage.text for passage in every])
        ranked = [
            Passage(each.text, each.path, each.score * score, number)
            for number, (each, score) in enumerate(zip(every, scores, strict=True))
        ]
        ranked.sort(key=lambda passage: -passage.score)
        answers = [passage for passage in ranked if not _repeats(passage.text, self.question)]
        self.passages = answers or [passage for passage in ranked if passage.text != every[0].text]
        self._quotable = answers or ranked

    def text(self) -> str:
        """The relevant passages by file, and the files; if there are none, passages of the question itself."""
        quotable = [each for each in self._quotable if not _TEST.search(each.path)] or self._quotable
        by_path: dict[str, list[Passage]] = {}
        for passage in best(quotable, 12):
            said = by_path.setdefault(passage.path, [])
            again = any([passage.text in each.text or each.text in passage.text for each in said])
            if not again and len(said) < _MOST_OF_A_FILE:
                said.append(passage)
        names = _short_names(list(by_path))
        blocks = [
            f"{names[path]}{': ' * bool(path)}{' '.join([each.text for each in sorted(said, key=lambda each: each.number)])}"
            for path, said in by_path.items()
        ]
        files = f"\n\nFiles: {', '.join(filter(None, names.values()))}" if any(by_path) else ""
        quoted = "\n\n".join(blocks) or "Nothing about the question."
        return f"Sentences that share the most words with the question, quoted:\n\n{quoted}{files}"


def best(passages: list[Passage], limit: int) -> list[Passage]:
    """The first ``limit`` of sorted passages, without duplicates and without those far below the best."""
    distinct = {p.text.lower(): p for p in reversed(passages) if p.score >= passages[0].score * _FLOOR}
    return sorted(distinct.values(), key=lambda passage: -passage.score)[:limit]


def _short_names(paths: list[str]) -> dict[str, str]:
    """Each path below the directory that all of them have in common."""
    parents = [os.path.dirname(path) for path in paths if os.path.isabs(path)]
    common = os.path.commonpath(parents) if parents else ""
    return {path: os.path.relpath(path, common) if common and os.path.isabs(path) else path for path in paths}


def _repeats(text: str, question: str) -> bool:
    """Whether a passage adds little or nothing to the question."""
    return text in question or (question.strip(" ?") in text and len(text) < 1.5 * len(question))


def _take_documents(text: str, documents: dict[str, str]) -> str:
    """``text`` without its file elements and JSON records with a path, which are moved to ``documents``."""
    documents.update((html.unescape(path), content.replace("&lt;", "<")) for path, content in _FILE.findall(text))
    text = _FILE.sub("\n", text)
    for match in islice(re.finditer(r"^[\[{]", text, re.M), _MAX_RECORDS):
        with suppress(ValueError, RecursionError):
            value, end = json.JSONDecoder().raw_decode(text, match.start())
            entries = [
                entry for entry in records(value) or [record(value)] if isinstance(record(entry).get("path"), str)
            ]
            documents.update((entry["path"], "\n\n".join(_strings({**entry, "path": None}))) for entry in entries)
            if entries:
                text = text[: match.start()] + " " * (end - match.start()) + text[end:]
    return text


def _strings(value: object) -> Iterator[str]:
    """All strings in a JSON value."""
    if isinstance(value, str):
        yield value
    for item in (*record(value).values(), *records(value)):
        yield from _strings(item)


def _passages(text: str, path: str) -> Iterator[Passage]:
    """Sentences of prose, comments and docstrings, joined across lines, and single lines of code."""
    run: list[str] = []
    for line, prose in [*_lines(text), ("", False)]:
        bare = _MARKUP.sub(lambda match: match[1] or match[2] or "", line).strip(" \t#/*;<!->\"'|`=")
        if prose and " " in bare and not _CODE.search(bare):
            run.append(bare)
            continue
        yield from (Passage(s[:_MAX_PASSAGE], path, 1.0) for s in _SENTENCE_END.split(" ".join(run)) if " " in s)
        run.clear()
        if len(bare) > 8:
            yield Passage(bare[:_MAX_PASSAGE], path, _CODE_SCORE)


def _lines(text: str) -> Iterator[tuple[str, bool]]:
    """The lines, and whether each may be prose: in Python, a docstring or a comment."""
    end = 0
    for match in _DOCSTRING.finditer(text):
        yield from [(line, line.lstrip().startswith("#")) for line in text[end : match.start()].splitlines()]
        yield from [("", False), *[(line, True) for line in match[2].splitlines()], ("", False)]
        end = match.end()
    yield from [(line, not end or line.lstrip().startswith("#")) for line in text[end:].splitlines()]


_METADATA = {"model": "offline", "note": "extractive, no language model"}
_DEPTH = 6
"""Maximum depth of filled optional properties and items, since a recursive schema has no end."""
_NUMBER = re.compile(r"-?\b\d{1,15}(?:\.\d{1,6})?\b")
_RATING = re.compile(r"score|relevance|confidence|rating", re.I)
_QUESTION = re.compile(r"question|query|goal", re.I)
_PATH = re.compile(r"(?:^|_)(?:file|path|source)s?(?:_|$)", re.I)
_SAMPLES = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T12:00:00Z",
    "email": "name@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


class OfflineProvider(ScriptedProvider):
    """The :class:`~agentflow.core.ports.ports.ProviderAdapter` with an extractor as its script: it needs no replies.

    It answers with the sentences of the prompt most relevant to its question and the names of their files, or fills a JSON
    schema from them, and identifies itself in the answer's metadata. The same prompt always gives the same answer. It calls a
    tool only if ``tool_choice`` requires one. Raises ConfigurationError for an invalid schema.
    """

    def __init__(self) -> None:
        super().__init__(self._reply, name="offline")

    async def _reply(self, request: ModelRequest) -> dict[str, Any]:
        self.requests.clear()  # only tests of scripted replies read them
        return {**await asyncio.to_thread(_answer, request), "metadata": _METADATA, "cost_usd": 0.0}


def _answer(request: ModelRequest) -> dict[str, Any]:
    """The answer as a scripted reply: extracted text, a value of the schema, or a call of the required tool."""
    messages, schema = request.messages, request.output_schema
    asked = max((i for i, m in enumerate(messages) if m.role == "user" and m.text.strip()), default=-1)
    results = [part.text for m in messages[asked + 1 :] for part in m.parts if isinstance(part, ToolResultPart)]
    prompt = messages[asked].text if asked >= 0 else ""
    extract = Extract(prompt, "\n\n".join(results))
    required = [tool for tool in request.tools if request.tool_choice in ("required", tool.name)]
    if required and not any(isinstance(part, ToolResultPart) for part in messages[-1].parts):
        arguments = _Filler({"type": "object", **required[0].input_schema}, extract).value
        return {"tool_calls": [{"name": required[0].name, "arguments": arguments}]}
    if schema is None and "JSON" in prompt:
        schema = {"type": "object", "required": ["answer", "files"]}
    text = extract.text() if schema is None else to_json(_Filler(schema, extract).value)
    cut = text[: 4 * request.max_output_tokens - 1] if request.max_output_tokens else text
    return {"text": cut, "stop_reason": "end" if cut == text else "max_tokens"}


class _Filler:
    """Fills a JSON Schema from an extract; the value may violate ``pattern``, ``not`` and conditions, but no other keyword."""

    def __init__(self, schema: Mapping[str, Any], extract: Extract) -> None:
        self._root, self._question = schema, extract.question
        self.value = self._value(schema, "", extract.passages, 0)

    def _value(self, schema: Mapping[str, Any], name: str, passages: list[Passage], depth: int) -> Any:
        schema = self._joined(schema)
        if "const" in schema or "default" in schema:
            return schema.get("const", schema.get("default"))
        if (kind := _type(schema, name)) == "array":
            return self._array(schema, name, passages, depth)
        if kind == "object":
            properties = record(schema.get("properties"))
            names = [*(properties if depth < _DEPTH else ()), *schema.get("required", ())] if depth < 4 * _DEPTH else ()
            return {key: self._value(properties.get(key, {}), key, passages, depth + 1) for key in dict.fromkeys(names)}
        candidates = self._candidates(schema, kind, name, passages)
        valid = Schema({key: schema[key] for key in schema if not key.startswith("$")})
        return next((value for value in candidates if not valid.check(value)), candidates[0])

    def _array(self, schema: Mapping[str, Any], name: str, passages: list[Passage], depth: int) -> list[Any]:
        first, rest = records(schema.get("prefixItems")), record(schema.get("items"))
        paths = dict.fromkeys(passage.path for passage in passages if passage.path and passage.score > 0)
        if _PATH.search(name) or (paths and _type(self._joined(rest)) == "object"):
            groups = [[passage for passage in passages if passage.path == path] for path in paths]
        else:
            groups = [[passage] for passage in best(passages, 5)]
        groups = groups[: schema.get("maxItems", 8)] if depth < _DEPTH else []
        groups += [passages] * (schema.get("minItems", 0) - len(groups))
        items = [*first, *[rest] * len(groups)]
        return [self._value(items[i], name.removesuffix("s"), group, depth + 1) for i, group in enumerate(groups)]

    def _candidates(self, schema: Mapping[str, Any], kind: str, name: str, passages: list[Passage]) -> list[Any]:
        """Scalar values that fit, best first."""
        score, text = passages[0].score if passages else 0.0, " ".join(passage.text for passage in best(passages, 3))
        if "enum" in schema:
            return sorted(schema["enum"], key=lambda option: str(option).lower() not in text.lower())
        if kind in ("integer", "number"):
            low = schema.get("minimum", schema.get("exclusiveMinimum", 0))
            high = schema.get("maximum", schema.get("exclusiveMaximum", low + 1))
            step = schema.get("multipleOf", 1)
            stated = [low + (high - low) * score] if _RATING.search(name) else map(float, _NUMBER.findall(text))
            numbers = *stated, *((low // step + n) * step for n in range(3)), (low + high) / 2, high
            return [int(number) if kind == "integer" else round(number, 3) for number in numbers]
        if kind != "string":
            return [score >= 0.5 if kind == "boolean" else None]
        text = self._question if _QUESTION.search(name) else text
        text = next((passage.path for passage in passages if passage.path), "") if _PATH.search(name) else text
        text = _SAMPLES.get(schema.get("format", ""), text or name or "text")
        return [text[: schema.get("maxLength")].ljust(schema.get("minLength", 0), ".")]

    def _joined(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """``schema`` merged with its reference, its ``allOf`` and its first alternative other than null."""
        joined = dict(schema)
        for _ in range(2 * _DEPTH):
            options = records(joined.pop("anyOf", None)) + records(joined.pop("oneOf", None))
            parts = [option for option in options if option.get("type") != "null"][:1] or options[:1]
            parts += records(joined.pop("allOf", None))
            if "$ref" in joined:
                parts.append(dict(follow_references({"$ref": joined.pop("$ref")}, self._root)))
            for part in parts:
                required = [*joined.get("required", ()), *part.get("required", ())]
                properties = record(joined.get("properties")) | record(part.get("properties"))
                joined |= part | ({"required": required, "properties": properties} if required or properties else {})
        return joined


def _type(schema: Mapping[str, Any], name: str = "") -> str:
    untyped = "object" if schema.keys() & {"properties", "required"} else "string"
    kinds = schema.get("type", "array" if "items" in schema or name == "files" else untyped)
    return kinds if isinstance(kinds, str) else next((kind for kind in kinds if kind != "null"), "null")
