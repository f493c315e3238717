"""Extraction for the offline model: the question of a prompt, its relevant sentences, a schema filled from them."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from agentflow.lib.sentence_rank import LexicalSentenceRanker
from agentflow.providers.wire import record, records

_MAX_TEXT = 400_000
_MAX_PASSAGES = 1_500
_MAX_PASSAGE = 400
_MAX_RECORDS = 50
_MAX_DEPTH = 12
_CODE_SCORE = 0.55
"""Weight of a line of code relative to a sentence."""
_FLOOR = 0.35
"""Minimum score to be quoted, as a share of the best score."""

_FILE = re.compile(r"<file\b[^>]*?\bpath=\"([^\"]*)\"[^>]*>\n?(.*?)\n?</file>", re.S)
_SCHEMA = re.compile(r"<schema>.*?</schema>|^Answer with one JSON value [^\n]*$", re.S | re.M)
_QUESTION = re.compile(r"^[ \t]*(?:question|query|request|goal)[ \t]*:[ \t]*(\S[^\n]*)\n?", re.M | re.I)
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[A-Z0-9\"'(\[`*])")
_STATEMENT = re.compile(
    r"^(?:async |def |class |return |import |from \S+ import|@)|\s=\s|[{}();,\[\\]$|\(self|^[\w.]+\("
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_NOTHING = "Nothing in the text bears on the question."


@dataclass(frozen=True, slots=True)
class Passage:
    """A sentence, or a line of code, with its file (``""`` for none) and its relevance in 0..1."""

    text: str
    path: str
    score: float


def _without_documents(text: str, documents: dict[str, str]) -> str:
    """``text`` without its file elements and JSON records with a path, which are moved to ``documents``."""
    for path, content in _FILE.findall(text):
        documents[html.unescape(path)] = content.replace("&lt;", "<")
    text = _FILE.sub("\n", text)
    decoder, kept, at = json.JSONDecoder(), list[str](), 0
    for tries, match in enumerate(re.finditer(r"^(?=[\[{])", text, re.M)):
        if match.start() < at or tries >= _MAX_RECORDS:
            continue
        try:
            value, end = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        entries = records(value) if isinstance(value, list) else [record(value)]
        named = {path: entry for entry in entries if isinstance(path := record(entry).get("path"), str)}
        if named:
            documents.update({path: "\n\n".join(_strings(entry, path)) for path, entry in named.items()})
            kept.append(text[at : match.start()])
            at = end
    return "".join([*kept, text[at:]])


def _strings(value: object, but: str, depth: int = 0) -> Iterator[str]:
    """All strings in a JSON value, except ``but``."""
    if isinstance(value, str) and value != but:
        yield value
    elif depth < _MAX_DEPTH:
        for item in (*record(value).values(), *records(value)):
            yield from _strings(item, but, depth + 1)


def _passages(text: str, path: str) -> Iterator[Passage]:
    """Sentences of prose, comments and docstrings, joined across lines, and single lines of code."""
    run: list[str] = []
    for line in [*text.splitlines(), ""]:
        bare = line.strip(" \t#/*;<!->\"'|`=")
        words = bare.split()
        plain = sum(word.strip(".,:;()'\"`").isalpha() for word in words)
        if len(words) >= 2 and plain * 3 >= len(words) * 2 and not _STATEMENT.search(bare):
            run.append(bare)
            continue
        for sentence in _SENTENCE_END.split(" ".join(run)):
            if " " in sentence:
                yield Passage(sentence[:_MAX_PASSAGE], path, 1.0)
        run.clear()
        if len(bare) > 8:
            yield Passage(bare[:_MAX_PASSAGE], path, _CODE_SCORE)


class Extract:
    """The passages of a prompt that concern its question.

    Parameters: ``prompt`` the user's text, with or without files in it; ``results`` the tool results since; ``ranker``
    scores sentences.
    """

    def __init__(self, prompt: str, results: str, ranker: LexicalSentenceRanker) -> None:
        documents: dict[str, str] = {}
        words = _without_documents(_SCHEMA.sub("", prompt[:_MAX_TEXT]), documents)
        if said := _without_documents(results[:_MAX_TEXT], documents).strip():
            documents[""] = said
        rest = _QUESTION.sub("", words)
        asking = [text for text in _SENTENCE_END.split(" ".join(rest[:20_000].split())) if text.endswith("?")]
        stated = _QUESTION.search(words)
        self.question = stated[1].strip() if stated else " ".join(asking) or rest[:1_000]
        texts = documents or {"": rest}
        passages = [p for path, text in texts.items() for p in _passages(text, path)][:_MAX_PASSAGES]
        passages = [p for p in passages if p.text not in self.question] or passages
        scores = ranker(self.question, [passage.text for passage in passages])
        weighed = [replace(passage, score=passage.score * by) for passage, by in zip(passages, scores, strict=True)]
        self._ranked = sorted(weighed, key=lambda passage: -passage.score)

    def text(self) -> str:
        """The relevant passages, by file, and the files; the beginning of the text if there are none."""
        by_path: dict[str, list[str]] = {}
        for passage in _best(self._ranked, 8):
            by_path.setdefault(passage.path, []).append(passage.text)
        if not by_path:
            return _NOTHING
        lines = [f"- {path}: {' '.join(said)}" if path else f"- {' '.join(said)}" for path, said in by_path.items()]
        files = [path for path in by_path if path]
        cited = ["", f"Files: {', '.join(files)}"] if files else []
        return "\n".join(["What the text says, extracted by relevance:", "", *lines, *cited])

    def value(self, schema: Mapping[str, Any]) -> Any:
        """A value that conforms to ``schema``, filled from the text."""
        return self._value(schema, schema, "", self._ranked, 0)

    def _value(
        self, schema: Mapping[str, Any], root: Mapping[str, Any], name: str, passages: Sequence[Passage], depth: int
    ) -> Any:
        schema = _resolved(schema, root)
        score = passages[0].score if passages else 0.0
        if "const" in schema:
            return schema["const"]
        if options := cast(list[Any], schema.get("enum")):
            text = " ".join(passage.text for passage in _best(passages, 12)).lower()
            spread = options[min(len(options) - 1, int(score * len(options)))]
            return next((option for option in options if isinstance(option, str) and option.lower() in text), spread)
        match _type(schema, name):
            case "object":
                properties: dict[str, Any] = dict(schema.get("properties") or {})
                required = list[str](schema.get("required") or ())
                if depth > _MAX_DEPTH:
                    properties = {key: properties[key] for key in required if key in properties}
                properties.update((key, {}) for key in required if key not in properties)
                if depth > 2 * _MAX_DEPTH:
                    return {}
                return {key: self._value(s, root, key, passages, depth + 1) for key, s in properties.items()}
            case "array":
                return self._array(schema, root, name, passages, depth)
            case "boolean":
                return score >= 0.5
            case "integer" | "number" as kind:
                return _number(schema, name, passages, score, whole=kind == "integer")
            case "null":
                return None
            case _:
                return self._string(schema, name, passages)

    def _array(
        self, schema: Mapping[str, Any], root: Mapping[str, Any], name: str, passages: Sequence[Passage], depth: int
    ) -> list[Any]:
        items = _resolved(schema.get("items") or {}, root)
        one = name.removesuffix("s")
        least, most = int(schema.get("minItems") or 0), int(schema.get("maxItems") or 8)
        if _named(name, "file", "path", "source"):
            groups = [[Passage(path, path, 1.0)] for path in _paths(passages)]
        elif _type(items) == "object" and _paths(passages):
            groups = [[p for p in passages if p.path == path] for path in _paths(passages)]
        else:
            groups = [[passage] for passage in _best(passages, 5)]
        groups = [] if depth > _MAX_DEPTH else groups[: max(least, most)]
        filled = [self._value(items, root, one, group, depth + 1) for group in groups]
        return filled + [self._value(items, root, one, passages, depth + 1) for _ in range(least - len(filled))]

    def _string(self, schema: Mapping[str, Any], name: str, passages: Sequence[Passage]) -> str:
        if _named(name, "question", "query", "goal"):
            text = self.question
        elif _named(name, "file", "path", "source"):
            text = next(iter(_paths(passages)), passages[0].path if passages else "")
        else:
            text = " ".join(passage.text for passage in _best(passages, 3))
        text = (text or _NOTHING)[: schema.get("maxLength")]
        return text.ljust(schema.get("minLength") or 0, ".")


def _best(passages: Sequence[Passage], limit: int) -> list[Passage]:
    """The best ``limit`` passages, without duplicates and without any far below the best."""
    floor = passages[0].score * _FLOOR if passages else 0.0
    distinct = {passage.text.lower(): passage for passage in reversed(passages) if passage.score >= floor}
    return sorted(distinct.values(), key=lambda passage: -passage.score)[:limit]


def _paths(passages: Sequence[Passage]) -> list[str]:
    """The files with relevant passages, best first."""
    return list(dict.fromkeys(passage.path for passage in passages if passage.path and passage.score > 0))


def _number(schema: Mapping[str, Any], name: str, passages: Sequence[Passage], score: float, *, whole: bool) -> float:
    """A rating by relevance, or else the first number in the text, within the schema's bounds."""
    low, high = schema.get("minimum"), schema.get("maximum")
    stated = next((m for passage in _best(passages, 8) if (m := _NUMBER.search(passage.text))), None)
    if stated is None or _named(name, "score", "relevance", "confidence", "rating"):
        value = (low or 0) + ((1 if high is None else high) - (low or 0)) * score
    else:
        value = float(stated.group())
    value = min(max(value, value if low is None else low), value if high is None else high)
    return int(value) if whole else round(value, 3)


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> dict[str, Any]:
    """``schema`` with references resolved, ``allOf`` merged, and reduced to its first alternative that is not null."""
    merged = dict(schema)
    for _ in range(_MAX_DEPTH):
        parts = records(merged.pop("allOf", None))
        if isinstance(reference := merged.pop("$ref", None), str):
            target: Any = root
            for key in filter(None, reference.lstrip("#").split("/")):
                target = record(target).get(key)
            parts.append(record(target))
        options = records(merged.pop("anyOf", None)) + records(merged.pop("oneOf", None))
        parts += [option for option in options if option.get("type") != "null"][:1] or options[:1]
        if not parts:
            break
        for part in parts:
            required = [*(merged.get("required") or ()), *(part.get("required") or ())]
            properties = {**record(merged.get("properties")), **record(part.get("properties"))}
            merged.update({**part, "required": required, "properties": properties} if properties or required else part)
    return merged


def _type(schema: Mapping[str, Any], name: str = "") -> str:
    kind: Any = schema.get("type")
    if isinstance(kind, list):
        kind = next((one for one in cast(list[str], kind) if one != "null"), "null")
    if kind is None and ("properties" in schema or "required" in schema):
        return "object"
    if kind is None and ("items" in schema or _named(name, "files")):
        return "array"
    return kind or "string"


def _named(name: str, *words: str) -> bool:
    """Whether one of ``words``, or its plural, is a part of ``name``."""
    return any(part in (word, word + "s") for part in re.split(r"[_\W]+", name.lower()) for word in words)
