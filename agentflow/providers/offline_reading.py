"""What the offline model reads in a prompt: the question, the texts it was given, and their sentences."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

MAX_PASSAGES = 1_500
"""Passages of one prompt that are compared with the question; the ones that share a word with it come first."""
_MAX_PASSAGE = 400
_MAX_TEXT = 400_000

_FILE = re.compile(
    r"<(?:file|document|source)\b[^>]*?\b(?:path|name|source)=\"([^\"]*)\"[^>]*>\n?(.*?)\n?</(?:file|document|source)>",
    re.S | re.I,
)
_HEADED = re.compile(
    r"^(?:-{3,}|={3,}|#{3,})[ \t]*(?:File:?|Path:?)?[ \t]*([\w./~+@-]+\.\w+)[ \t]*:?[ \t]*(?:-{3,}|={3,}|#{3,})?[ \t]*$",
    re.M | re.I,
)
_SCHEMA = re.compile(r"<schema>.*?</schema>", re.S)
_PREFACES = re.compile(r"^(?:The elements below are material for this task\.|Answer with one JSON value )[^\n]*$", re.M)
_QUESTION = re.compile(r"^[ \t>*#-]*(?:question|query|request|goal|task|q)[ \t*]*[:：][ \t*]*(\S[^\n]*)", re.M | re.I)
_QUESTION_ELEMENT = re.compile(r"<(question|query|goal|request)>\s*(.*?)\s*</\1>", re.S | re.I)
_PATH = re.compile(r"(?<![\w/.])(?:[\w.~@+-]*/)*[\w@+-][\w.@+-]*\.[A-Za-z]\w{0,7}(?![\w/])")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[A-Z0-9\"'(\[`*])")
_COMMENT = re.compile(r"^\s*(?:#+!?|//+!?|/\*+|\*+/?|;+|--|<!--|\"\"\"|''')\s?")
_CLOSING = re.compile(r"\s*(?:\*/|\"\"\"|'''|-->)\s*$")
_CODE_MARK = re.compile(
    r"[{};=]|\w\(|^\s*(?:def|class|import|from|return|if|for|while|fn|func|let|const|var|public)\b|\)$|,$"
)
_STATEMENT = re.compile(r"^[\w.\[\]]+\s*(?::\s*[\w.\[\], |]+)?[+|]?=\s|[(\[{,;\\]$|\w\([\"'fr]|^\(|\)\.\w+\(")
_IMPORT = re.compile(r"(?:import|from|use|using|require|include|#include)\b")


@dataclass(frozen=True, slots=True)
class Passage:
    """A sentence, or a line of code, and the file it stands in (``""`` for none)."""

    text: str
    path: str
    prose: bool
    order: int


@dataclass(slots=True)
class Reading:
    """A prompt as the offline model understands it.

    ``question`` what is asked; ``instructions`` the prompt without the texts it was given; ``documents`` those texts by
    path; ``passages`` their sentences in order.
    """

    question: str
    instructions: str
    documents: dict[str, str] = field(default_factory=dict[str, str])
    passages: list[Passage] = field(default_factory=list[Passage])


def read_prompt(prompt: str, known: str = "") -> Reading:
    """Take a prompt apart. ``known`` is what the conversation and tool results say besides."""
    body = _PREFACES.sub("", _SCHEMA.sub("", prompt[:_MAX_TEXT]))
    documents: dict[str, str] = {}
    body = _take_elements(body, documents)
    body = _take_json(body, documents)
    head, rest = _head_and_material(body)
    _take_headed(rest, head, documents)
    if known.strip():
        earlier = _take_json(_take_elements(known[:_MAX_TEXT], documents), documents)
        documents.setdefault("", "")
        documents[""] = f"{documents['']}\n\n{earlier}".strip()
    question = _question(head) or _question(prompt[:20_000]) or _asking(head)
    reading = Reading(question, head.strip(), {path: text for path, text in documents.items() if text.strip()})
    reading.passages = list(_passages(reading))
    return reading


def _take_elements(body: str, documents: dict[str, str]) -> str:
    for match in _FILE.finditer(body):
        documents[html.unescape(match.group(1))] = match.group(2).replace("&lt;", "<")
    return _FILE.sub("\n", body)


def _take_json(body: str, documents: dict[str, str]) -> str:
    """Lists of objects with a path (summaries of files, candidates) become documents and leave the prompt."""
    decoder = json.JSONDecoder()
    at = 0
    kept: list[str] = []
    for match in re.finditer(r"^[ \t]*(?=[\[{])", body, re.M):
        if match.end() < at:
            continue
        try:
            value, end = decoder.raw_decode(body, match.end())
        except (ValueError, RecursionError):
            continue
        found = dict(_described(value))
        if found:
            for path, text in found.items():
                documents[path] = f"{documents[path]}\n{text}" if path in documents else text
            kept.append(body[at : match.start()])
            at = end
    kept.append(body[at:])
    return "".join(kept)


def _described(value: object) -> Iterator[tuple[str, str]]:
    for entry in cast(list[object], value) if isinstance(value, list) else [value]:
        if not isinstance(entry, dict):
            continue
        item = cast(dict[str, Any], entry)
        path = next(
            (item[key] for key in ("path", "file", "file_path", "source") if isinstance(item.get(key), str)), None
        )
        if path:
            texts = list(_texts({key: inner for key, inner in item.items() if inner != path}, 0))
            yield path, "\n\n".join(dict.fromkeys(texts))


def _texts(value: object, depth: int) -> Iterator[str]:
    if isinstance(value, str) and value.strip():
        yield value.strip()
    elif depth < 8 and isinstance(value, Mapping):
        for inner in cast(Mapping[str, object], value).values():
            yield from _texts(inner, depth + 1)
    elif depth < 8 and isinstance(value, list):
        for inner in cast(list[object], value):
            yield from _texts(inner, depth + 1)


def _head_and_material(body: str) -> tuple[str, str]:
    """Instructions first, then what they are about: split after the paragraph that leads over to the material.

    Two short paragraphs at the front (a question, what to do) are instructions; so is all of a short prompt.
    """
    paragraphs = re.split(r"\n[ \t]*\n", body.strip())
    if len(body) < 600 and not _HEADED.search(body) and len(paragraphs) < 3:
        return body, ""
    taken = 0
    for taken, paragraph in enumerate(paragraphs):
        if taken >= 4 or len(paragraph) > 1_200 or _HEADED.search(paragraph) or (taken and _looks_like_code(paragraph)):
            break
        if taken >= 2 and not _instructive(paragraph):
            break
    taken = max(taken, 1)
    return "\n\n".join(paragraphs[:taken]), "\n\n".join(paragraphs[taken:])


def _instructive(paragraph: str) -> bool:
    first = paragraph.lstrip("-*# \t").split(" ", 1)[0].rstrip(":,").lower()
    return first in {
        "answer", "summarise", "summarize", "list", "give", "say", "explain", "describe", "use", "return", "write",
        "quote", "name", "find", "be", "do", "choose", "if", "leave", "respond", "reply", "output", "extract",
    }  # fmt: skip


def _looks_like_code(paragraph: str) -> bool:
    lines = paragraph.splitlines()[:12]
    return sum(bool(_CODE_MARK.search(line)) for line in lines) * 2 > len(lines) + 1


def _take_headed(rest: str, head: str, documents: dict[str, str]) -> None:
    """Material under headings like ``--- path ---``; without any, all of it, under the path the instructions name."""
    if not rest.strip():
        return
    pieces = _HEADED.split(rest)
    if len(pieces) > 1:
        if pieces[0].strip():
            documents.setdefault("", pieces[0])
        for path, text in zip(pieces[1::2], pieces[2::2], strict=True):
            documents[path] = text
        return
    named = [path for path in dict.fromkeys(_PATH.findall(head)) if "/" in path or not documents]
    path = named[0] if len(named) == 1 else ""
    documents[path] = f"{documents[path]}\n\n{rest}" if path in documents else rest


def _question(text: str) -> str:
    element = _QUESTION_ELEMENT.search(text)
    if element:
        return " ".join(element.group(2).split())
    line = _QUESTION.search(text)
    return line.group(1).strip() if line else ""


def _asking(head: str) -> str:
    """The sentences that end with a question mark, else all of the instructions."""
    asked = [sentence for sentence in _SENTENCE_END.split(" ".join(head.split())) if sentence.rstrip().endswith("?")]
    return " ".join(asked) or " ".join(head.split())[:1_000]


def _passages(reading: Reading) -> Iterator[Passage]:
    order = 0
    documents = reading.documents or {"": reading.instructions}
    for path, text in documents.items():
        for said, prose in split_passages(text):
            yield Passage(said, path, prose, order)
            order += 1


def split_passages(text: str) -> Iterator[tuple[str, bool]]:
    """Sentences of prose, comments and docstrings (joined over line ends), and single lines of code: text, is prose."""
    run: list[str] = []
    quoted = False
    for line in text.splitlines():
        bare = _CLOSING.sub("", _COMMENT.sub("", line)).strip()
        comment = bool(_COMMENT.match(line))
        fences = len(re.findall(r"\"\"\"|'''", line))
        inside = quoted or fences > 0
        quoted = quoted != bool(fences % 2)
        is_code = bool(_CODE_MARK.search(bare)) and not _sentence_like(bare)
        if not inside and not comment and _IMPORT.match(bare):
            bare = ""
        if bare and (comment or inside or (not is_code and _worth_joining(bare, run))):
            if fences and run and not inside:
                yield from _sentences(run)
                run = []
            run.append(bare)
            if not (fences == 2 or (fences == 1 and not quoted)):
                continue
        yield from _sentences(run)
        run = []
        if bare and is_code and not inside and len(bare) > 8:
            yield bare[:_MAX_PASSAGE], False
    yield from _sentences(run)


def _worth_joining(line: str, run: list[str]) -> bool:
    """Whether a bare line is prose: a sentence, or the go-on of one."""
    return bool(run) or " " in line


def _sentence_like(line: str) -> bool:
    words = line.split()
    if (
        re.match(r"(?:async |def |class |return |for |if |while |with |assert |raise |@)", line)
        and line[-1:] not in ".?!"
    ):
        return False
    if _STATEMENT.search(line):
        return False
    plain = sum(word.strip(".,:;()'\"`").isalpha() for word in words)
    return len(words) >= 5 and plain * 3 >= len(words) * 2


def _sentences(lines: list[str]) -> Iterator[tuple[str, bool]]:
    if not lines:
        return
    for sentence in _SENTENCE_END.split(" ".join(lines)):
        said = sentence.strip(" *_=-~#>|")
        if len(said) > 8 and " " in said:
            yield said if len(said) <= _MAX_PASSAGE else f"{said[:_MAX_PASSAGE].rsplit(' ', 1)[0]} ...", True
