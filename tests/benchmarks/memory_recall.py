"""How well a search finds the files a change is about, measured on repositories with a history.

    python tests/benchmarks/memory_recall.py git REPOSITORY... [--commits 60] [--no-history]
    python tests/benchmarks/memory_recall.py changelog OLD_TREE=NEW_TREE... [--no-history]

Query = a commit's subject; truth = the source files it changed that existed before; index and history are frozen at its
parent. Reported per repository and as the mean over repositories: recall@10 (share of the truth among the first ten,
averaged over queries) and MRR (one over the rank of the first hit).

``git`` checks out each parent in a clone of its own. ``changelog`` is for places where only releases can be had: a
ChangeLog made from the git log (GNU projects ship one) gives real messages with the files they touched. The older
release's tree is what is indexed, its ChangeLog is the history, and the entries that only the newer ChangeLog has are
the queries. ``--ablate`` also shows each signal left out. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from agentflow.memory import FileIndex, RankWeights
from agentflow.memory.rules import language

NOT_SOURCE = {"prose", "data", "text", "markup"}
MORE_SOURCE = {".y", ".l", ".S", ".s", ".am", ".ac", ".awk", ".in", ".pxd"}
MAX_TRUTH = 10
BUNDLED = re.compile(
    r"^(?:lib|gl|gnulib(?:-tests)?|gltests|gnu|m4|build-aux|po|man|devel/perlasm|src/gl|intl)/|(?:^|/)ChangeLog[^/]*$"
    r"|(?:^|/)(?:configure|aclocal\.m4|Makefile\.in|ltmain\.sh|config\.(?:guess|sub|h\.in)|INSTALL|texinfo\.tex)$"
)


@dataclass(frozen=True)
class Query:
    text: str
    truth: frozenset[str]


@dataclass(frozen=True)
class Score:
    recall: float
    mrr: float
    count: int


def is_source(path: str) -> bool:
    return language(path) not in NOT_SOURCE and not path.endswith((".in", ".am"))


def git(repository: Path, *arguments: str, text: str | None = None) -> str:
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.invalid", "-C", str(repository), *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True, errors="replace").stdout


def one(found: Sequence[str], truth: frozenset[str]) -> tuple[float, float]:
    """Recall at ten and reciprocal rank of one answer."""
    ranks = [rank for rank, path in enumerate(found, 1) if path in truth]
    return sum(rank <= 10 for rank in ranks) / len(truth), 1 / ranks[0] if ranks else 0.0


def mean(pairs: Sequence[tuple[float, float]]) -> Score:
    count = len(pairs) or 1
    return Score(sum(r for r, _ in pairs) / count, sum(m for _, m in pairs) / count, len(pairs))


# ---------------------------------------------------------------- repositories


def commits_of(repository: Path, wanted: int) -> list[tuple[str, Query]]:
    """The newest ``wanted`` commits that say something and change one to ten source files that were there before."""
    log = git(repository, "log", "--no-merges", "--no-renames", "--name-status", "--format=%x1e%H%x1f%P%x1f%s")
    found: list[tuple[str, Query]] = []
    for record in log.split("\x1e")[1:]:
        head, _, body = record.partition("\n")
        commit, parents, subject = head.split("\x1f", 2)
        changed = [line.split("\t", 1) for line in body.splitlines() if "\t" in line]
        truth = frozenset(path for kind, path in changed if kind in ("M", "D") and is_source(path))
        if parents and 1 <= len(truth) <= MAX_TRUTH and len(subject.split()) >= 3:
            found.append((commit, Query(subject, truth)))
        if len(found) >= wanted:
            break
    return found


async def measure_git(repository: Path, wanted: int, history: bool, weights: RankWeights) -> Score:
    """Oldest first, so that the index of one parent is brought up to date to the next."""
    pairs: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as place:
        clone = Path(place, "clone")
        git(repository, "clone", "-q", "--no-checkout", ".", str(clone))
        index = FileIndex(weights=weights)
        for commit, query in reversed(commits_of(repository, wanted)):
            git(clone, "checkout", "-q", "--force", f"{commit}^")
            await index.update(clone, history=history)
            found = await index.search(query.text, 50)
            pairs.append(one([item.file.path for item in found], query.truth))
        await index.aclose()
    return mean(pairs)


# ---------------------------------------------------------------- releases with a ChangeLog


@dataclass(frozen=True)
class Entry:
    subject: str
    paths: tuple[str, ...]


def entries(text: str) -> list[Entry]:
    """The commits of a ChangeLog made from git, newest first: first line, and the files its bullets name."""
    if text.startswith("commit "):
        return _stat_entries(text)
    found: list[Entry] = []
    for block in re.split(r"^(?=\d{4}-\d\d-\d\d  )", text, flags=re.M):
        lines = [line[1:] if line.startswith("\t") else line for line in block.splitlines()[1:]]
        for chunk in _commits(lines):
            subject = next((line.strip() for line in chunk if line.strip()), "")
            paths = tuple(dict.fromkeys(path for line in chunk for path in _bullet(line)))
            if paths and not subject.startswith("*"):
                found.append(Entry(subject, paths))
    return found


def _stat_entries(text: str) -> list[Entry]:
    """The commits of ``git log --stat``."""
    found: list[Entry] = []
    for block in re.split(r"^commit [0-9a-f]{40}.*\n", text, flags=re.M)[1:]:
        subject = next((line.strip() for line in block.splitlines() if line.startswith("    ") and line.strip()), "")
        paths = re.findall(r"^ ([^\s|{}]+) +\| +\d", block, flags=re.M)
        if paths and "..." not in block.partition(" | ")[0]:
            found.append(Entry(subject, tuple(paths)))
    return found


def _commits(lines: Sequence[str]) -> list[list[str]]:
    """One date's lines, parted where a paragraph without bullets follows one with them."""
    chunks: list[list[str]] = [[]]
    bullets = False
    previous = ""
    for line in lines:
        if not previous.strip() and line.strip() and not line.startswith("*") and bullets:
            chunks.append([])
            bullets = False
        bullets = bullets or line.startswith("* ")
        chunks[-1].append(line)
        previous = line
    return chunks


def _bullet(line: str) -> list[str]:
    match = re.match(r"\* ([^:(]+)", line)
    names = re.split(r"[,\s]+", match.group(1).strip()) if match else []
    return [name.strip("'`") for name in names if re.fullmatch(r"[\w./+-]+", name.strip("'`"))]


def build_repository(tree: Path, log: Sequence[Entry], place: Path) -> None:
    """A git repository whose history has these messages and files, and whose checkout is ``tree`` without bundled files."""
    stream: list[str] = []
    known = {str(p.relative_to(tree)) for p in tree.rglob("*") if p.is_file() and not p.is_symlink()}
    number = 0
    for entry in reversed(log):
        paths = [path for path in entry.paths if path in known]
        if not paths:
            continue
        number += 1
        message = entry.subject.encode()
        stream.append(f"commit refs/heads/main\ncommitter x <x@example.invalid> {1_000_000_000 + number * 3600} +0000")
        stream.append(f"data {len(message)}\n{entry.subject}")
        for path in paths:
            stream.append(f"M 644 inline {path}\ndata {len(str(number))}\n{number}")
    git_init = ["git", "init", "-q", "-b", "main", str(place)]
    subprocess.run(git_init, check=True)
    subprocess.run(["git", "-C", str(place), "fast-import", "--quiet"], input="\n".join(stream).encode(), check=True)
    for path in sorted(known):
        if not BUNDLED.search(path):
            target = place / path
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(tree / path, target)
    git(place, "add", "-A")
    git(place, "commit", "-q", "-m", "release")


def new_queries(old: Path, new: Path, place: Path) -> tuple[list[Entry], list[Query]]:
    before = entries((old / "ChangeLog").read_text("utf-8", "replace"))
    told = {(entry.subject, entry.paths) for entry in before}
    queries: list[Query] = []
    for entry in entries((new / "ChangeLog").read_text("utf-8", "replace")):
        truth = frozenset(p for p in entry.paths if is_source(p) and not BUNDLED.search(p) and (old / p).is_file())
        fresh = (entry.subject, entry.paths) not in told
        if fresh and 1 <= len(truth) <= MAX_TRUTH and len(entry.subject.split()) >= 3:
            queries.append(Query(entry.subject, truth))
    return before, queries


@dataclass
class Frozen:
    name: str
    index: FileIndex
    queries: list[Query]


async def freeze(old: Path, new: Path, place: Path, history: bool, most: int) -> Frozen:
    before, queries = new_queries(old, new, place)
    build_repository(old, before, place)
    index = FileIndex()
    report = await index.update(place, history=history)
    print(f"# {old.name}: {report.files} files, {report.commits} commits, {len(queries)} queries", file=sys.stderr)
    return Frozen(old.name, index, queries[:most])


async def measure_frozen(frozen: Frozen, weights: RankWeights) -> Score:
    frozen.index.weights = weights
    pairs: list[tuple[float, float]] = []
    for query in frozen.queries:
        found = await frozen.index.search(query.text, 50)
        pairs.append(one([item.file.path for item in found], query.truth))
    return mean(pairs)


# ---------------------------------------------------------------- reporting


def show(name: str, scores: Sequence[Score]) -> None:
    recall = sum(score.recall for score in scores) / len(scores)
    mrr = sum(score.mrr for score in scores) / len(scores)
    worst = min(score.recall for score in scores)
    print(f"{name:34} recall@10 {recall:.3f}  MRR {mrr:.3f}  worst {worst:.3f}")


async def changelog(pairs: Sequence[str], history: bool, ablate: bool, most: int) -> None:
    with tempfile.TemporaryDirectory() as place:
        frozen: list[Frozen] = []
        for number, pair in enumerate(pairs):
            old, _, new = pair.partition("=")
            made = await freeze(Path(old), Path(new), Path(place, str(number)), history, most)
            if made.queries:
                frozen.append(made)
        began = time.perf_counter()
        base = [await measure_frozen(item, RankWeights()) for item in frozen]
        asked = sum(len(item.queries) for item in frozen)
        for item, score in zip(frozen, base, strict=True):
            print(f"{item.name:34} recall@10 {score.recall:.3f}  MRR {score.mrr:.3f}  ({score.count} queries)")
        show("MACRO" + ("" if history else " (no history)"), base)
        print(f"# {(time.perf_counter() - began) / asked * 1e3:.1f} ms a query", file=sys.stderr)
        if ablate:
            for field in fields(RankWeights):
                off = 1.0 if field.name in ("prose", "data", "text") else 0.0
                weights = replace(RankWeights(), **{field.name: off})
                show(f"without {field.name}", [await measure_frozen(item, weights) for item in frozen])
        for item in frozen:
            await item.index.aclose()


async def repositories(places: Sequence[str], wanted: int, history: bool) -> None:
    scores: list[Score] = []
    for place in places:
        score = await measure_git(Path(place), wanted, history, RankWeights())
        print(f"{place:34} recall@10 {score.recall:.3f}  MRR {score.mrr:.3f}  ({score.count} queries)")
        scores.append(score)
    show("MACRO" + ("" if history else " (no history)"), scores)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("git", "changelog"))
    parser.add_argument("places", nargs="+")
    parser.add_argument("--commits", type=int, default=60, help="queries per repository at most")
    parser.add_argument("--no-history", action="store_true")
    parser.add_argument("--ablate", action="store_true")
    given = parser.parse_args()
    if given.kind == "git":
        asyncio.run(repositories(given.places, given.commits, not given.no_history))
    else:
        asyncio.run(changelog(given.places, not given.no_history, given.ablate, given.commits))


if __name__ == "__main__":
    main()
