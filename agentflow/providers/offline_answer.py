"""What the offline model answers: extracts, as text or as the JSON that was asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from agentflow.core.ports import SentenceRanker
from agentflow.lib.tokens import Tokeniser
from agentflow.providers.offline_reading import MAX_PASSAGES, Passage, Reading

_PROSE_BONUS = 1.0
_CODE_FACTOR = 0.55
_EARLY_BONUS = 0.12
_ECHO_FACTOR = 0.1
"""A passage that only repeats the question is no answer to it."""
_KEYS = re.compile(r"[\"'](\w{1,40})[\"']\s*:")
_FIELDS = re.compile(
    r"\b(?:keys|fields|properties)\b(?:\s+(?:like|named|called|are))?\s*[:,]?\s*([\w ,`\"'-]{3,200})", re.I
)
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_MAX_DEPTH = 12


@dataclass(frozen=True, slots=True)
class Found:
    """A passage with its relevance in 0..1."""

    passage: Passage
    score: float


class Answerer:
    """Answers one prompt from its own words.

    Parameters: ``reading`` the prompt taken apart; ``ranker`` scores sentences; ``tokeniser`` finds keywords.
    """

    def __init__(self, reading: Reading, ranker: SentenceRanker, tokeniser: Tokeniser) -> None:
        self._reading = reading
        self._ranker = ranker
        self._tokeniser = tokeniser
        self._asked = set(tokeniser.query_terms(reading.question))
        self.found = self._ranked()

    def text(self, limit: int = 8) -> str:
        """The passages that bear on the question, by file, with the paths they stand in."""
        chosen = self._best(limit)
        if not chosen:
            return "Nothing in the text given bears on the question."
        by_path: dict[str, list[str]] = {}
        for item in chosen:
            by_path.setdefault(item.passage.path, []).append(_said(item.passage))
        lines = ["What the text given says, extracted by relevance:", ""]
        for path, said in by_path.items():
            lines.append(f"- {path}: {' '.join(said)}" if path else f"- {' '.join(said)}")
        paths = [path for path in by_path if path]
        if paths:
            lines += ["", f"Files: {', '.join(paths)}"]
        return "\n".join(lines)

    def json(self, schema: Mapping[str, Any] | None) -> Any:
        """A value that meets ``schema``, filled from the text; without one, the keys the instructions name."""
        if schema:
            return self._value(schema, schema, "", self.found, 0)
        keys = list(dict.fromkeys(_KEYS.findall(self._reading.instructions)))
        if not keys and (named := _FIELDS.search(self._reading.instructions)):
            listed = re.split(r"[\s,`\"']+(?:and[\s,`\"']+)?", named.group(1))
            keys = [key for key in listed if re.fullmatch(r"[a-z]\w{2,30}", key)][:10]
        keys = keys or ["answer", "key_points", "files"]
        return {key: self._value(_guess(key), {}, key, self.found, 0) for key in keys}

    def _ranked(self) -> list[Found]:
        passages = self._reading.passages
        if len(passages) > MAX_PASSAGES:
            stems = [term for term in self._asked if len(term) > 2]
            pattern = re.compile("|".join(map(re.escape, stems)) or r"(?!)", re.I)
            near = [passage for passage in passages if pattern.search(passage.text)]
            passages = (near or passages)[:MAX_PASSAGES]
        scores = self._ranker(self._reading.question, [passage.text for passage in passages])
        asked = self._reading.question.lower().strip(" ?.!")
        firsts: dict[str, int] = {}
        found: list[Found] = []
        for passage, score in zip(passages, scores, strict=True):
            place = firsts[passage.path] = firsts.get(passage.path, -1) + 1
            weight = _PROSE_BONUS if passage.prose else _CODE_FACTOR
            if asked and asked in passage.text.lower():
                weight *= _ECHO_FACTOR
            early = _EARLY_BONUS / (1 + place) if passage.prose and score > 0 else 0.0
            found.append(Found(passage, min(1.0, score * weight + early)))
        found.sort(key=lambda item: (-item.score, item.passage.order))
        return found

    def _best(self, limit: int, found: Sequence[Found] | None = None, prose: bool | None = None) -> list[Found]:
        """The best passages, none twice, none far below the best; where nothing matches, how the text begins."""
        pool = [
            item for item in (self.found if found is None else found) if prose is None or item.passage.prose == prose
        ]
        if not pool:
            return []
        floor = pool[0].score * 0.35
        chosen: list[Found] = []
        seen: set[str] = set()
        for item in pool if pool[0].score > 0 else sorted(pool, key=lambda item: item.passage.order):
            said = item.passage.text.lower()
            if item.score < floor or len(chosen) >= limit:
                break
            if said not in seen:
                seen.add(said)
                chosen.append(item)
        return chosen

    def _coverage(self, found: Sequence[Found]) -> float:
        """The share of the question's terms that occur in the passages, in 0..1."""
        if not self._asked or not found:
            return 0.0
        held = self._tokeniser.bag(" ".join(item.passage.text for item in found[:60] if item.score > 0))
        return round(sum(term in held for term in self._asked) / len(self._asked), 2)

    def _paths(self, found: Sequence[Found]) -> list[str]:
        return list(dict.fromkeys(item.passage.path for item in found if item.passage.path and item.score > 0))

    def _value(
        self, schema: Mapping[str, Any], top: Mapping[str, Any], name: str, found: Sequence[Found], depth: int
    ) -> Any:
        schema = _resolved(schema, top)
        if "const" in schema:
            return schema["const"]
        if "default" in schema and not found:
            return schema["default"]
        options = schema.get("enum")
        if isinstance(options, list) and options:
            return self._choice(cast(list[Any], options), name, found)
        match _type(schema):
            case "object":
                return self._object(schema, top, found, depth)
            case "array":
                return self._array(schema, top, name, found, depth)
            case "boolean":
                return self._coverage(found) >= 0.5
            case "integer":
                return int(self._number(schema, name, found, whole=True))
            case "number":
                return self._number(schema, name, found, whole=False)
            case "null":
                return None
            case _:
                return self._string(schema, name, found)

    def _object(
        self, schema: Mapping[str, Any], top: Mapping[str, Any], found: Sequence[Found], depth: int
    ) -> dict[str, Any]:
        properties = cast(Mapping[str, Any], schema.get("properties") or {})
        required = set(cast(Sequence[str], schema.get("required") or ()))
        if depth >= _MAX_DEPTH:
            properties = {key: inner for key, inner in properties.items() if key in required}
        filled = {
            key: self._value(
                cast(Mapping[str, Any], inner) if isinstance(inner, Mapping) else {}, top, key, found, depth + 1
            )
            for key, inner in properties.items()
            if depth < 2 * _MAX_DEPTH
        }
        for key in sorted(required - filled.keys()):
            filled[key] = self._value(_guess(key), top, key, found, depth + 1)
        return filled or {"text": self._string({}, "text", found)} if not properties else filled

    def _array(
        self, schema: Mapping[str, Any], top: Mapping[str, Any], name: str, found: Sequence[Found], depth: int
    ) -> list[Any]:
        items = _resolved(cast(Mapping[str, Any], schema.get("items") or {}), top)
        least = int(schema.get("minItems") or 0)
        most = int(schema.get("maxItems") or max(least, 8))
        if _type(items) == "object" and depth < _MAX_DEPTH:
            made: list[Any] = [self._value(items, top, name, group, depth + 1) for group in self._groups(found, items)]
        elif _type(items) == "string" and "enum" not in items:
            made = self._strings(name, found)
        else:
            made = [self._value(items, top, name, [item], depth + 1) for item in self._best(min(most, 3), found)]
        made = made[:most]
        while len(made) < least:
            made.append(self._value(items, top, name, found, depth + 1))
        return made

    def _groups(self, found: Sequence[Found], items: Mapping[str, Any]) -> list[list[Found]]:
        """The passages of each file, best file first; without files, each good passage by itself."""
        by_path: dict[str, list[Found]] = {}
        for item in found:
            by_path.setdefault(item.passage.path, []).append(item)
        if set(by_path) - {""}:
            return [group for path, group in by_path.items() if path and group[0].score > 0]
        return [[item] for item in self._best(5, found)]

    def _strings(self, name: str, found: Sequence[Found]) -> list[str]:
        folded = name.lower()
        if _names(folded, "file", "path", "source"):
            return self._paths(found)
        if _names(folded, "keyword", "tag", "topic", "term"):
            return self._keywords(found)
        summary = {item.passage.text for item in self._best(2, found, prose=True)}
        points = [_said(item.passage) for item in self._best(6, found) if item.passage.text not in summary]
        return (points or [_said(item.passage) for item in self._best(3, found)])[:4]

    def _keywords(self, found: Sequence[Found]) -> list[str]:
        words = re.findall(r"[A-Za-z_][\w.-]{3,30}", " ".join(item.passage.text for item in self._best(8, found)))
        return list(dict.fromkeys(word.lower().rstrip(".") for word in words if self._tokeniser.query_terms(word)))[:6]

    def _string(self, schema: Mapping[str, Any], name: str, found: Sequence[Found]) -> str:
        folded = name.lower()
        if _names(folded, "path", "file", "source"):
            said = next(iter(self._paths(found)), next((item.passage.path for item in found), ""))
        elif _names(folded, "question", "query"):
            said = self._reading.question
        elif folded == "relevance" and not any(item.passage.path for item in found[:1]):
            said = ("low", "medium", "high")[min(2, int(self._coverage(found) * 3))]
        elif _names(folded, "quote", "line", "code", "excerpt", "evidence", "snippet"):
            best = self._best(1, found, prose=False) or self._best(1, found)
            said = best[0].passage.text if best else ""
        elif _names(folded, "title", "name", "heading"):
            best = self._best(1, found)
            said = best[0].passage.text.split(". ")[0][:80] if best else ""
        else:
            best = self._best(1 if _names(folded, "reason", "why", "relevance") else 3, found, prose=True)
            said = " ".join(_said(item.passage) for item in best or self._best(2, found))
        return _fitted(said or "Nothing in the text given bears on the question.", schema)

    def _choice(self, options: Sequence[Any], name: str, found: Sequence[Found]) -> Any:
        levels = [option for option in options if isinstance(option, str)]
        scale = [level for level in ("none", "low", "medium", "high") if level in (item.lower() for item in levels)]
        if len(scale) >= 2 and len(scale) == len(levels):
            wanted = scale[min(len(scale) - 1, int(self._coverage(found) * len(scale)))]
            return next(option for option in levels if option.lower() == wanted)
        text = " ".join(item.passage.text for item in self._best(12, found)).lower()
        best = max(levels, key=lambda option: text.count(option.lower().replace("_", " ")), default=None)
        return best if best is not None and best.lower().replace("_", " ") in text else options[0]

    def _number(self, schema: Mapping[str, Any], name: str, found: Sequence[Found], *, whole: bool) -> float:
        low, high = schema.get("minimum"), schema.get("maximum")
        if _names(name.lower(), "score", "relevance", "confidence", "rating", "probability"):
            top = float(high) if high is not None else (10.0 if whole else 1.0)
            floor = float(low or 0)
            best = found[0].score if found else 0.0
            value = floor + (top - floor) * (best if found and found[0].passage.path else self._coverage(found))
            return round(value) if whole else round(value, 3)
        if _names(name.lower(), "count", "number", "total"):
            return float(len(self._paths(found)) or len(self._best(20, found)))
        stated = next((m.group() for item in self._best(8, found) if (m := _NUMBER.search(item.passage.text))), None)
        value = float(stated) if stated is not None else float(low or 0)
        value = min(value, float(high)) if high is not None else value
        value = max(value, float(low)) if low is not None else value
        return float(round(value)) if whole else value


def _names(name: str, *wanted: str) -> bool:
    parts = re.split(r"[_\W]+", name)
    return any(part in (word, word + "s") for part in parts for word in wanted)


def _guess(key: str) -> dict[str, Any]:
    """A schema for a key that was only named: by what such keys usually hold."""
    folded = key.lower()
    if _names(folded, "score", "confidence", "relevance_score"):
        return {"type": "number"}
    if re.search(r"(points|files|paths|sources|keywords|tags|items|quotes|reasons|facts)$", folded):
        return {"type": "array", "items": {"type": "string"}}
    return {"type": "boolean"} if folded.startswith(("is_", "has_")) else {"type": "string"}


def _resolved(schema: Mapping[str, Any], top: Mapping[str, Any]) -> Mapping[str, Any]:
    """``schema`` with its reference followed and its alternatives decided: the first that is not null."""
    for _ in range(_MAX_DEPTH):
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith("#"):
            schema = _pointed(reference, top)
            continue
        merged = schema.get("allOf")
        if isinstance(merged, list) and merged:
            schema = _merged(schema, cast(list[Mapping[str, Any]], merged), top)
            continue
        options = cast(list[Mapping[str, Any]] | None, schema.get("anyOf") or schema.get("oneOf"))
        if not options:
            return schema
        schema = next((option for option in options if option.get("type") != "null"), options[0])
    return schema


def _pointed(reference: str, top: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a reference within the schema (``#/$defs/Name``) points to; anything, where it points nowhere."""
    at: object = top
    for part in filter(None, reference[1:].split("/")):
        if not isinstance(at, Mapping):
            return {}
        at = cast(Mapping[str, object], at).get(part.replace("~1", "/").replace("~0", "~"))
    return cast(Mapping[str, Any], at) if isinstance(at, Mapping) else {}


def _merged(schema: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], top: Mapping[str, Any]) -> dict[str, Any]:
    made: dict[str, Any] = {key: value for key, value in schema.items() if key != "allOf"}
    for part in parts:
        for key, value in _resolved(part, top).items():
            if key == "properties":
                made[key] = {**cast(dict[str, Any], made.get(key) or {}), **cast(dict[str, Any], value)}
            elif key == "required":
                made[key] = [*cast(list[str], made.get(key) or []), *cast(list[str], value)]
            else:
                made.setdefault(key, value)
    return made


def _type(schema: Mapping[str, Any]) -> str:
    kind: object = schema.get("type")
    if isinstance(kind, list):
        kinds = cast(list[str], kind)
        kind = next((one for one in kinds if one != "null"), "null")
    if isinstance(kind, str):
        return kind
    return "object" if "properties" in schema else "array" if "items" in schema else "string"


def _fitted(text: str, schema: Mapping[str, Any]) -> str:
    pattern, most, least = schema.get("pattern"), schema.get("maxLength"), schema.get("minLength")
    if isinstance(pattern, str):
        try:
            found = re.search(pattern, text)
        except re.error:
            found = None
        text = found.group() if found else text
    if isinstance(most, int) and len(text) > most:
        text = text[:most]
    return text.ljust(least, ".") if isinstance(least, int) else text


def _said(passage: Passage) -> str:
    """A passage as it is quoted: prose ends with a full stop, code stays as it is and is marked."""
    text = passage.text
    if not passage.prose:
        return f"`{text}`"
    return text if text.endswith((".", "!", "?", "...", ":", "}", ";", ")")) else f"{text}."


def as_json(value: object) -> str:
    """The answer's JSON text."""
    return json.dumps(value, ensure_ascii=False, indent=2)
