"""Adds what other sources propose to what the index ranks, fused by rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agentflow.core.ports.memory_ports import Candidate
from agentflow.memory.ranking import Ranked
from agentflow.memory.rows import FileRow
from agentflow.memory.weights import RANK_OFFSET

DEPTH = 50
"""Each source is asked for so many candidates at least, and so many ranked files are fused with them."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A source's candidate that the index knows: its file, the lines that matter and the reason."""

    file: FileRow
    lines: tuple[int, int] | None
    score: float
    why: str


def proposals(
    candidates: Sequence[Candidate], rows: Mapping[str, FileRow]
) -> tuple[list[Proposal], list[tuple[str, str]]]:
    """The candidates whose paths are among ``rows``, best first, each file once; ``(path, reason)`` of the others."""
    chosen: dict[int, Proposal] = {}
    left_out: list[tuple[str, str]] = []
    for candidate in sorted(candidates, key=lambda candidate: -candidate.score):
        row = rows.get(candidate.path)
        if row is None:
            left_out.append((candidate.path, "proposed by a source, and not in the index"))
        elif row.id not in chosen:
            chosen[row.id] = Proposal(row, candidate.lines, candidate.score, candidate.why)
    return list(chosen.values()), left_out


def fused(ranked: Sequence[Ranked], answers: Sequence[Sequence[Proposal]]) -> list[Ranked]:
    """``ranked`` and what each source proposes, in one order: by the sum of reciprocal ranks, scaled to 0..1."""
    first = 1 / (RANK_OFFSET + 1)
    scores: dict[int, float] = {}
    items = {item.file.id: item for item in ranked}
    for rank, item in enumerate(ranked, 1):
        scores[item.file.id] = 1 / (RANK_OFFSET + rank)
    for answer in answers:
        for rank, proposal in enumerate(answer, 1):
            file = proposal.file
            scores[file.id] = scores.get(file.id, 0.0) + 1 / (RANK_OFFSET + rank)
            item = items.get(file.id) or Ranked(file, 0.0, {}, lines=proposal.lines)
            items[file.id] = replace(item, why=(*item.why, proposal.why)) if proposal.why else item
    whole = first * (1 + len(answers))
    mixed = [replace(item, score=min(1.0, scores[file] / whole)) for file, item in items.items()]
    return sorted(mixed, key=lambda item: (-item.score, item.file.root, item.file.path))
