"""How well a search finds the files that a change is about, measured on repositories with a history.

    python tests/benchmarks/memory_recall.py REPOSITORY... [--questions 40] [--out FILE] [--against FILE] [--tree TREE]

REPOSITORY is a git repository, bare or not. A question is the subject of a commit that does one thing: no merge, one to
six files, at least four words, none that only bumps, releases or formats. The truth are the files it changed, moved or
removed. Files and history are indexed as they were before it. Questions are spread over the newer half of the history.

Reported for all files and for code alone (the truth without prose, data and files of unknown kind, in the same answers):
recall@10 (share of the truth among the first ten, averaged over questions) and MRR (one over the rank of the first hit),
as means over repositories; beside them a plain fusion of signals (body, path, symbols, messages, recency, co-change;
fixed weights, no factors for kinds) over the same index, and the paired difference to it with a 95 % interval (a bootstrap
over questions). ``--out`` writes the ranks, ``--against`` compares with ranks written before, ``--tree`` measures the
agentflow of another work tree, as far as its store has the methods that the fusion calls; else run that tree's own script with
``--out``. Nothing is downloaded.

The weights of :class:`~agentflow.memory.RankWeights` were tuned on flask, ripgrep, express, gin, fzf, jq, black and httpx.
Kept out of every choice: trio, axios, sinatra, redis-py, urllib3, bat and tmux; of that to have FTS5 split and stem the texts,
scrapy, pytest, tokio, caddy, mocha, jekyll and junit4, which nothing had been measured on before. That to split paths and names
by FTS5 too, and to read 30 files, was taken on ripgrep, flask, black, git, sphinx and vue; hapi, serde, redis, pip and cargo were
kept out of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NOISE = re.compile(
    r"\b(?:bump|release|changelog|version|typos?|merge|revert|lint|format|formatting|deps|dependenc\w+|pre-commit"
    r"|copyright|prepare)\b",
    re.I,
)
NOT_CODE = {"prose", "data", "text", "markup"}
LOG = 6_000
MOST_FILES = 6
SHOWN = 50
SAMPLES = 2_000

LOWEST_TO_FUSION = -0.03
"""The least that the lower end of the interval of a difference to the fusion may be, on all files."""
LEAST_TO_BEFORE = {False: 0.08, True: -0.01}
"""The least difference of recall to ranks written before: on all files, and on code alone."""
REACH = {False: (0.73, 0.62), True: (0.82, 0.64)}
"""Recall and MRR to reach for on repositories kept out of tuning: on all files, and on code alone."""


@dataclass(frozen=True)
class Question:
    commit: str
    text: str
    truth: frozenset[str]


@dataclass(frozen=True)
class Answer:
    """Ranks (from 1) of the files of the truth that an answer holds, and how many there are; likewise of code alone."""

    ranks: tuple[int, ...]
    truth: int
    code_ranks: tuple[int, ...]
    code: int

    def score(self, code: bool) -> tuple[float, float] | None:
        """``(recall@10, reciprocal rank)``; None if the truth has no file of the kind."""
        ranks, truth = (self.code_ranks, self.code) if code else (self.ranks, self.truth)
        if not truth:
            return None
        return sum(rank <= 10 for rank in ranks) / truth, 1 / min(ranks) if ranks else 0.0


def git(repository: Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=True).stdout


def questions(repository: Path, wanted: int) -> list[Question]:
    """Questions from the newer half of the history, newest first."""
    log = git(repository, "log", "--no-merges", "-M", "--name-status", "--format=%x1e%H%x1f%P%x1f%s", "-n", str(LOG))
    asked: dict[str, Question] = {}
    for record in log.split("\x1e")[1:]:
        head, _, body = record.partition("\n")
        commit, parents, subject = head.split("\x1f", 2)
        changed = [line.split("\t") for line in body.splitlines() if "\t" in line]
        text = re.sub(r"\s*\(#\d+\)$", "", subject).strip()
        truth = frozenset(fields[1] for fields in changed if fields[0][0] in "MDR")
        one_thing = 1 <= len(changed) <= MOST_FILES and not NOISE.search(subject)
        if parents and truth and one_thing and len(re.findall(r"[A-Za-z]{2,}", text)) >= 4:
            asked.setdefault(text, Question(commit, text, truth))
    newer = list(asked.values())[: max(wanted * 4, len(asked) // 2)]
    return newer[:: max(1, len(newer) // wanted)][:wanted]


class Fusion:
    """The plain fusion: every signal divided by its best and added, with one weight each."""

    WEIGHTS: Mapping[str, float] = {
        "body": 1.0, "path": 1.0, "symbols": 1.0, "messages": 1.0, "cochange": 1.0, "recency": 0.5,
    }  # fmt: skip

    def __init__(self, database: Path) -> None:
        from agentflow.lib.text.terms import Tokeniser
        from agentflow.memory.index_store import Store

        self._store = Store(database)
        self._tokeniser = Tokeniser()

    def close(self) -> None:
        self._store.close()

    def search(self, text: str) -> list[str]:
        from agentflow.memory.ranking import looked_for

        store = self._store
        with store.snapshot():  # what is remembered of an earlier state is forgotten
            phrases = self._tokeniser.query_phrases(text)
            fields = ("body", "path", "symbols", "messages")
            signals = {field: store.search(field, looked_for(field, phrases), 200) for field in fields}
            seeds = sorted(together := self._added(signals), key=lambda file: -together[file])[:15]
            beside: dict[int, float] = {}
            for seed in seeds:
                commits = store.history.commits_of(seed, 60)
                for _, file in store.history.files(commits) if commits else ():
                    if file != seed:
                        beside[file] = beside.get(file, 0.0) + together[seed] / (len(commits) + 2)
            signals["cochange"] = beside
            rows = store.rows(sorted({file for scores in signals.values() for file in scores}))
            signals["recency"] = {file: row.recency for file, row in rows.items()}
            final = self._added(signals)
            return [rows[file].path for file in sorted(rows, key=lambda file: (-final[file], rows[file].path))[:SHOWN]]

    def _added(self, signals: Mapping[str, Mapping[int, float]]) -> dict[int, float]:
        added: dict[int, float] = {}
        for name, scores in signals.items():
            best = max(scores.values(), default=0.0) or 1.0
            for file, score in scores.items():
                added[file] = added.get(file, 0.0) + self.WEIGHTS[name] * score / best
        return added


def answer(found: Sequence[str], question: Question, kinds: Mapping[str, str]) -> Answer | None:
    """None if the index holds no file of the truth."""
    truth = {path for path in question.truth if path in kinds}
    code = {path for path in truth if kinds[path] not in NOT_CODE}
    if not truth:
        return None
    at = {path: rank for rank, path in enumerate(found, 1)}
    ranks = [tuple(sorted(at[path] for path in wanted if path in at)) for wanted in (truth, code)]
    return Answer(ranks[0], len(truth), ranks[1], len(code))


def measure(repository: Path, wanted: int) -> list[dict[str, Answer]]:
    """Per question the answers of ``agentflow`` and ``fusion``."""
    with tempfile.TemporaryDirectory() as scratch:
        clone = Path(scratch, "clone")
        git(repository, "clone", "-q", "--no-checkout", ".", str(clone))
        return asyncio.run(ask(clone, questions(clone, wanted), Path(scratch, "index.db")))


async def ask(clone: Path, asked: Sequence[Question], database: Path) -> list[dict[str, Answer]]:
    """Oldest question first: one index goes from parent to parent."""
    from agentflow.memory import FileIndex

    answers: list[dict[str, Answer]] = []
    index = FileIndex(database)
    fusion: Fusion | None = None
    for question in reversed(asked):
        git(clone, "checkout", "-q", "--force", f"{question.commit}^")
        await index.update(clone)
        fusion = fusion or Fusion(database)
        kinds = {row.path: row.language for row in await index.files()}
        found = [item.file.path for item in await index.search(question.text, SHOWN)]
        ours, plain = answer(found, question, kinds), answer(fusion.search(question.text), question, kinds)
        if ours is not None and plain is not None:
            answers.append({"agentflow": ours, "fusion": plain})
    await index.aclose()
    if fusion is not None:
        fusion.close()
    return answers


# ---------------------------------------------------------------- figures

Ranks = Mapping[str, Sequence[Mapping[str, Answer]]]


def macro(ranks: Ranks, name: str, code: bool) -> tuple[float, float]:
    """Means over repositories of the means over questions."""
    means: list[tuple[float, float]] = []
    for answers in ranks.values():
        scores = [score for each in answers if (score := each[name].score(code)) is not None]
        if scores:
            means.append((sum(r for r, _ in scores) / len(scores), sum(m for _, m in scores) / len(scores)))
    return sum(r for r, _ in means) / len(means), sum(m for _, m in means) / len(means)


def difference(ours: Ranks, theirs: Ranks, name: str, code: bool, figure: int) -> tuple[float, float, float]:
    """The mean of the paired differences of ``agentflow`` in ``ours`` to ``name`` in ``theirs``, and its 95 % interval."""
    pairs: list[float] = []
    for repository, answers in ours.items():
        for mine, other in zip(answers, theirs[repository], strict=True):
            a, b = mine["agentflow"].score(code), other[name].score(code)
            if a is not None and b is not None:
                pairs.append(a[figure] - b[figure])
    chance = random.Random(0)
    means = sorted(sum(chance.choices(pairs, k=len(pairs))) / len(pairs) for _ in range(SAMPLES))
    return sum(pairs) / len(pairs), means[SAMPLES // 40], means[-SAMPLES // 40]


def show(ranks: Ranks, before: Ranks | None) -> None:
    for code, title in ((False, "all files"), (True, "code alone")):
        print(f"\n{title:14} recall@10     MRR")
        for name in ("agentflow", "fusion"):
            recall, mrr = macro(ranks, name, code)
            reach = f"  reach for {REACH[code][0]:.2f} / {REACH[code][1]:.2f}" if name == "agentflow" else ""
            print(f"{name:14} {recall:9.3f} {mrr:7.3f}{reach}")
        for other, label, name in ((ranks, "fusion", "fusion"), (before, "before", "agentflow")):
            if other is None:
                continue
            if label == "before":
                recall, mrr = macro(other, name, code)
                print(f"{label:14} {recall:9.3f} {mrr:7.3f}")
            for figure, said in enumerate(("recall@10", "MRR")):
                value, low, high = difference(ranks, other, name, code, figure)
                verdict = ""
                if label == "fusion" and not code:
                    verdict = judged(low, LOWEST_TO_FUSION)
                elif label == "before" and said == "recall@10":
                    verdict = judged(value, LEAST_TO_BEFORE[code])
                print(f"  to {label:9} {said:9} {value:+.3f}  ({low:+.3f} .. {high:+.3f}){verdict}")


def judged(value: float, least: float) -> str:
    return f"  at least {least:+.2f}: {'met' if value >= least else 'MISSED'}"


def written(ranks: Ranks) -> str:
    fields: dict[str, Any] = {
        repository: [{name: vars(answer) for name, answer in each.items()} for each in answers]
        for repository, answers in ranks.items()
    }
    return json.dumps(fields)


def read(text: str) -> Ranks:
    def one(fields: Mapping[str, Any]) -> Answer:
        return Answer(tuple(fields["ranks"]), fields["truth"], tuple(fields["code_ranks"]), fields["code"])

    return {
        repository: [{name: one(fields) for name, fields in each.items()} for each in answers]
        for repository, answers in json.loads(text).items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repositories", nargs="+", type=Path)
    parser.add_argument("--questions", type=int, default=40, help="per repository at most")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parents[2])
    options = parser.parse_args()
    sys.path.insert(0, str(options.tree))
    ranks: dict[str, list[dict[str, Answer]]] = {}
    for repository in options.repositories:
        ranks[str(repository)] = measure(repository, options.questions)
        recall, mrr = macro({"": ranks[str(repository)]}, "agentflow", False)
        print(
            f"{str(repository)[-40:]:40} {len(ranks[str(repository)]):4} questions  recall@10 {recall:.3f}  MRR {mrr:.3f}"
        )
    if options.out:
        options.out.write_text(written(ranks))
    show(ranks, read(options.against.read_text()) if options.against else None)


if __name__ == "__main__":
    main()
