"""Extracts the question of a prompt, and the sentences relevant to it with their files, for the offline model."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from agentflow.lib.text.sentence_rank import LexicalSentenceRanker
from agentflow.providers.dialects.wire import record, records

_MAX_TEXT, _MAX_PASSAGES, _MAX_PASSAGE, _MAX_RECORDS = 400_000, 1_500, 400, 50
_CODE_SCORE, _FLOOR = 0.55, 0.35
"""Weight of a line of code relative to a sentence; minimum score to be quoted, as a share of the best score."""

_FILE = re.compile(r"<file\b[^>]*?\bpath=\"([^\"]*)\"[^>]*>\n?(.*?)\n?</file>", re.S)
_SCHEMA = re.compile(r"<schema>.*?</schema>|^Answer with one JSON value [^\n]*$", re.S | re.M)
_QUESTION = re.compile(r"^[ \t]*(?:question|query|request|goal)[ \t]*:[ \t]*(\S[^\n]*)\n?", re.M | re.I)
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[A-Z0-9\"'(\[`*])")
_CODE = re.compile(r"^(?:(?:async|def|class|return|import|from)\b|[@)]|\S{1,80}\()|[={}\[\]$\\]|[(,;]$")


class Passage(NamedTuple):
    """A sentence, or a line of code, with its file (``""`` for none) and its relevance in 0..1."""

    text: str
    path: str
    score: float


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
        rest, stated = _QUESTION.sub("", words), _QUESTION.search(words)
        asking = [text for text in _SENTENCE_END.split(" ".join(rest[:20_000].split())) if text.endswith("?")]
        self.question = stated[1].strip() if stated else " ".join(asking) or rest[:1_000]
        texts = documents or {"": rest}
        every = list(islice((p for path, text in texts.items() for p in _passages(text, path)), _MAX_PASSAGES))
        scores = LexicalSentenceRanker()(self.question, [passage.text for passage in every])
        ranked = [Passage(p.text, p.path, p.score * score) for p, score in zip(every, scores, strict=True)]
        ranked.sort(key=lambda passage: -passage.score)
        answers = [passage for passage in ranked if not _repeats(passage.text, self.question)]
        self.passages = answers or [passage for passage in ranked if passage.text != every[0].text]
        self._quotable = answers or ranked

    def text(self) -> str:
        """The relevant passages by file, and the files; if there are none, passages of the question itself."""
        by_path: dict[str, list[str]] = {}
        for passage in best(self._quotable, 8):
            by_path.setdefault(passage.path, []).append(passage.text)
        quoted = "\n".join(f"- {path}{': ' * bool(path)}{' '.join(said)}" for path, said in by_path.items())
        files = f"\n\nFiles: {', '.join(filter(None, by_path))}" if any(by_path) else ""
        return f"What the text says, extracted by relevance:\n\n{quoted or '- nothing about the question'}{files}"


def best(passages: list[Passage], limit: int) -> list[Passage]:
    """The first ``limit`` of sorted passages, without duplicates and without those far below the best."""
    distinct = {p.text.lower(): p for p in reversed(passages) if p.score >= passages[0].score * _FLOOR}
    return sorted(distinct.values(), key=lambda passage: -passage.score)[:limit]


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
    for line in [*text.splitlines(), ""]:
        bare = line.strip(" \t#/*;<!->\"'|`=")
        if " " in bare and not _CODE.search(bare):
            run.append(bare)
            continue
        yield from (Passage(s[:_MAX_PASSAGE], path, 1.0) for s in _SENTENCE_END.split(" ".join(run)) if " " in s)
        run.clear()
        if len(bare) > 8:
            yield Passage(bare[:_MAX_PASSAGE], path, _CODE_SCORE)
