"""Ranks with a model, which scores the candidates of the lexical search in concurrent shards that fit its budget."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import accumulate, count
from typing import Any, NamedTuple

from agentflow.core.call.call import CallContext
from agentflow.core.data.context import ContextGenerationInput
from agentflow.core.data.errors import TaskError
from agentflow.core.data.file_choice import read_choice
from agentflow.core.data.results import TaskResult
from agentflow.lib.text.terms import repeated
from agentflow.memory.defined_names import symbols
from agentflow.memory.file_walk import StampFields
from agentflow.memory.index_rows import NewFile, Words, shards
from agentflow.memory.matches import SHOWN_SYMBOLS
from agentflow.memory.rules import decode, language

_LETTERS = b"abcdefghijklmnopqrstuvwxyz"
_BETWEEN = b"\xff"
"""Stands between texts: no text in UTF-8 holds it."""
_CASES = bytes(
    97 if code in _LETTERS
    else 65 if code in _LETTERS.upper()
    else 48 if code in b"0123456789" or 128 <= code != _BETWEEN[0]
    else 32
    for code in range(256)
)  # fmt: skip
"""Small letters as ``a``, capitals as ``A``, digits and characters beyond ASCII as ``0``, everything else as blanks."""
_NO_CAPITALS = _CASES.replace(b"0", b"a")
"""The same with digits and characters beyond ASCII as ``a`` too."""
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+")
_CJK_FIRST = tuple(bytes([code]) for code in range(0xE3, 0xEE))
"""First bytes in UTF-8 of characters that :data:`_CJK` matches."""
_UTF8 = ("utf-8", "surrogatepass")


def spaced(texts: Sequence[bytes]) -> list[bytes]:
    """Each text (in UTF-8) with blanks between the parts of its names in camel case (``getName``, ``HTTPServer``).

    Runs of scripts without spaces become overlapping pairs of characters.
    """
    if not texts:
        return []
    data = _BETWEEN.join(texts)
    if not data.isascii() and any(first in data for first in _CJK_FIRST):
        data = _BETWEEN.join([text if text.isascii() else _paired(text) for text in texts])
    cuts = _cuts(data)
    if cuts:
        data = b" ".join([data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)])
    return data.split(_BETWEEN)


def spaced_names(names: Iterable[Sequence[str]]) -> list[str]:
    """For each file, the words of its ``names`` (a name or a heading), those that stand often less often, and compounds as
    one word too. No name holds a newline.

    A word is there once, and once more for each doubling; in order are only the words of no compound.
    """
    text = "\n".join(map(" ".join, names)).replace("\0", " ")
    parts = spaced([text.encode(*_UTF8)])[0].decode(*_UTF8).replace("_", " ").lower()
    wholes = text.replace("_", "").lower()
    return list(map(_counted, parts.split("\n"), wholes.split("\n")))


def _counted(parts: str, wholes: str) -> str:
    """The words ``parts``, counted, and those of ``wholes`` missing from them."""
    if not parts:
        return ""
    words = parts.split()
    compounds = dict.fromkeys(wholes.split())
    once = dict.fromkeys(words)
    if len(once) == len(words):
        said = [*words, *(compound for compound in compounds if compound not in once)]
        return " ".join(said)
    counts = Counter(words)
    return repeated((f"{word} ", times) for word, times in counts.items()) + " ".join(
        [compound for compound in compounds if compound not in counts]
    )


def _paired(text: bytes) -> bytes:
    return _CJK.sub(_pairs, text.decode(*_UTF8)).encode(*_UTF8)


def _cuts(data: bytes) -> list[int]:
    """Where a part begins within a word: ``getName`` before ``N``, ``HTTP2Server`` and ``HTTPServer`` before ``S``."""
    cuts = _ends(data.translate(_NO_CAPITALS), b"aA") + _ends(data.translate(_CASES), b"AAa")
    cuts.sort()
    return cuts


def _ends(cases: bytes, pattern: bytes) -> list[int]:
    """Where the second letter of each occurrence of ``pattern`` stands."""
    pieces = cases.split(pattern)
    ends = [ended + before for ended, before in zip(accumulate(map(len, pieces)), count(1, len(pattern)), strict=False)]
    ends.pop()
    return ends


def _pairs(match: re.Match[str]) -> str:
    """A run of a script without spaces as overlapping pairs of characters."""
    run = match.group()
    return f" {' '.join(run[at : at + 2] for at in range(len(run) - 1)) or run} "


class ReadFile(NamedTuple):
    """A file in the state read: its path, bytes and their digest, the fields of :class:`~agentflow.memory.file_walk.Stamp`, and the
    time."""

    path: str
    data: bytes
    digest: bytes
    stamp: StampFields
    read_ns: int


def digest_of(data: bytes) -> bytes:
    """The stamp that detects a change of the file."""
    return hashlib.blake2b(data, digest_size=16).digest()


def described(root: int, files: Sequence[ReadFile]) -> list[NewFile]:
    """The stored data of ``files`` of ``root`` (its id)."""
    texts = [decode(file.data) for file in files]
    kinds = [language(file.path, text) for file, text in zip(files, texts, strict=True)]
    names = list(map(symbols, texts, kinds))
    words = map(
        Words,
        spaced(
            [file.data if file.data.isascii() else text.encode(*_UTF8) for file, text in zip(files, texts, strict=True)]
        ),
        spaced([file.path.encode(*_UTF8) for file in files]),
        spaced_names(names),
    )
    return [
        NewFile(root, path, *stamp, digest, kind, _lines(text), _shown(own), read_ns, said)
        for (path, _, digest, stamp, read_ns), text, kind, own, said in zip(
            files, texts, kinds, names, words, strict=True
        )
    ]


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def _shown(names: Sequence[str]) -> str:
    return "\n".join([" ".join(name.split()) for name in names[:SHOWN_SYMBOLS]])


RunTask = Callable[[str, dict[str, Any], CallContext], Awaitable[TaskResult]]
"""``(template name, inputs, call or None)``: runs a template."""

TEMPLATES: dict[str, str] = {
    "content": "atomic:associative_matching",
    "metadata": "atomic:associative_matching_metadata",
}
"""Template names by strategy."""


class RerankFailed(TaskError):
    """The model did not give a ranking: its task failed, or its answer could not be read, twice."""

    default_code = "memory/rerank"
    default_reason = "context_matching_failure"


class LlmRanker:
    """The :class:`~agentflow.core.ports.memory_ports.Ranker` that asks a model.

    Parameters: ``run_task`` runs a template; ``budget_tokens`` are the estimated tokens per shard; ``concurrency`` is the number
    of shards asked at once; ``templates`` overrides the template names by strategy. The template takes ``query``, ``metadata``
    (a JSON list of ``{path, text}``) and ``max_results``; it answers with a JSON list of ``{path, score, relevance}``, or an
    object with such a list under ``matches`` or ``files``.
    """

    def __init__(
        self,
        run_task: RunTask,
        *,
        budget_tokens: int = 12_000,
        concurrency: int = 8,
        templates: Mapping[str, str] | None = None,
    ) -> None:
        self._run_task = run_task
        self._budget = budget_tokens
        self._concurrency = concurrency
        self._templates = {**TEMPLATES, **(templates or {})}

    async def rank(
        self, question: ContextGenerationInput, candidates: Mapping[str, str], call: CallContext | None
    ) -> list[tuple[str, float]]:
        """``(path, score in 0..1)`` of the best candidates, best first; ties keep the candidates' order.

        Paths the model invented are dropped, scores outside 0..1 are clipped. If an answer cannot be read, the model is
        asked once more. Raises RerankFailed; limits and cancellation pass through.
        """
        if call is None:
            raise RerankFailed(
                "ranking by a model works within a run only",
                hint="ask through get_context, flow.executors or flow.task_system, which start one",
            )
        parts = shards(candidates, self._budget)
        failures: dict[int, RerankFailed] = {}
        answers: list[dict[str, float]] = [{} for _ in parts]

        # Numbered before any runs, so that paths do not depend on how the shards overlap.
        numbered = [(index, shard, call.at(call.next_path("shard", index))) for index, shard in enumerate(parts)]
        pending = iter(numbered)

        async def ask() -> None:
            for index, shard, inner in pending:
                try:
                    answers[index] = await self._ask(question, shard, inner)
                except RerankFailed as failure:
                    failures[index] = failure

        await call.run.together([ask] * min(self._concurrency, len(parts)), call)
        if failures:
            raise failures[min(failures)]
        scores = {path: score for answer in answers for path, score in answer.items()}
        order = {path: index for index, path in enumerate(candidates)}
        return sorted(scores.items(), key=lambda item: (-item[1], order[item[0]]))[: question.max_results]

    async def _ask(
        self, question: ContextGenerationInput, shard: dict[str, str], call: CallContext
    ) -> dict[str, float]:
        template = self._templates[question.matching_strategy]
        listing = json.dumps([{"path": path, "text": content} for path, content in shard.items()], ensure_ascii=False)
        inputs = {"query": question.text, "metadata": listing, "max_results": question.max_results}
        problem = ""
        for _ in range(2):
            result = await self._run_task(template, inputs, call)
            try:
                return _ranking(result, shard)
            except ValueError as error:
                problem = str(error)
            if result.failed:
                raise RerankFailed(
                    f"the re-ranking task failed: {result.content}",
                    hint="memory also works without a ranker: leave ranker= unset, or correct the model's settings",
                    details={"template": template},
                )
        raise RerankFailed(
            f"the model's ranking could not be read, twice: {problem}",
            hint="use a model that follows a JSON format, or leave ranker= unset",
            details={"template": template},
        )


def _ranking(result: TaskResult, shard: Mapping[str, str]) -> dict[str, float]:
    """The scores in an answer; one bad entry does not void the others. Raises ValueError if none can be used."""
    matches, skipped = read_choice(result, shard)
    if not matches and any(entry["path"] in shard for entry in skipped):
        raise ValueError("no entry has a numeric score")
    return {match.path: match.score for match in matches}
