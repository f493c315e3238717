"""A run as a text: its transcript on the terminal, and its report in Markdown, from the same passages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from agentflow.cli.shared.amounts import money, seconds
from agentflow.cli.shared.open_waits import answer_line
from agentflow.cli.shared.wrapping import wrapped
from agentflow.core.events.questions import Question
from agentflow.lib.text.safe_text import clean
from agentflow.observe.run_view import RunView, Tally
from agentflow.observe.transcript import ReadStep

_TIME = 10
_INDENT = 2


def transcript_text(passages: Iterable[ReadStep], width: int) -> str:
    """The passages for a terminal of ``width`` columns: a heading each, and below it the text, wrapped at words."""
    lines: list[str] = []
    for each in passages:
        margin = " " * (_TIME + _INDENT * each.depth)
        heading = f"{seconds(each.at):>{_TIME - 2}}  {margin[_TIME:]}{each.heading}"
        lines.append(wrapped("  ".join([heading, *_facts(each)]), width))
        for label, text in each.texts:
            first, *rest = text.strip("\n").splitlines() or [""]
            lead = f"{margin}  {label}: " if label else f"{margin}  "
            lines += [wrapped(lead + first, width), *[wrapped(f"{margin}    {row}", width) for row in rest]]
    return clean("\n".join([line.rstrip() for line in lines]))


def _facts(each: ReadStep) -> list[str]:
    """The time, tokens and cost of a passage in words, and its outcome unless that is ok."""
    facts = [] if each.outcome == "ok" else [each.outcome]
    if each.kind == "note":
        return []
    if each.seconds is not None:
        facts.append(seconds(each.seconds))
    if each.tokens is not None:
        facts.append(f"{each.tokens[0]:,} tokens in, {each.tokens[1]:,} out")
    if each.cost_usd is not None:
        facts.append(money(each.cost_usd))
    return facts


def run_markdown(
    rows: Iterable[tuple[str, str]],
    view: RunView,
    passages: Sequence[ReadStep],
    questions: Sequence[Question] = (),
    *,
    error: str | None = None,
    difference: str | None = None,
    db: str | None = None,
) -> str:
    """The report of a run in Markdown, with the facts of the HTML page.

    ``rows`` are the facts of its head; ``error`` is the reason of its failure, ``difference`` the comparison with another run. Text
    from models, tools and people stands in fences: no markup in it has effect.
    """
    parts = [f"# {_inline(view.name or 'run')}", "\n".join([f"- **{name}**: {_inline(value)}" for name, value in rows])]
    if error:
        parts += ["## Failed", _fenced(error)]
    for each in questions:
        parts += [
            "## Waits for an answer" if each.signal is None else "## Waits for a signal",
            _fenced(each.question),
            _fenced(answer_line(each, "ANSWER", db)),
        ]
    if view.denials:
        parts += ["## Denied by the policy", "\n".join([f"- {_inline(each)}" for each in view.denials])]
    if view.tasks:
        parts += ["## Costs", _table(view.tasks)]
    if difference:
        parts += ["## Compared with the other run", _fenced(difference)]
    for name, text in view.texts.items():
        parts += [
            f"## Program {_inline(name)}",
            _fenced(text.strip("\n"), "python" if name.endswith(".py") else "lisp"),
        ]
    if passages:
        parts.append("## What happened")
    for each in passages:
        facts = ", ".join([f"at {seconds(each.at)}", *_facts(each)])
        parts.append(f"{'#' * min(6, 3 + each.depth)} {_inline(each.heading)}\n\n{facts}")
        for label, text in each.texts:
            parts.append(f"{label}:\n\n{_fenced(text)}" if label else _fenced(text))
    if view.warnings:
        listed = [f"- `{each.get('code')}`: {_inline(str(each.get('message')))}" for each in view.warnings]
        parts += ["## Warnings", "\n".join(listed)]
    return clean("\n\n".join(parts) + "\n")


def _table(tasks: Mapping[str, Tally]) -> str:
    rows = [
        "| step | calls | failed | time | tokens in | cached | tokens out | cost |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, each in sorted(tasks.items(), key=lambda row: (-(row[1].cost_usd or 0.0), -row[1].seconds)):
        cells = [f"{number:,}" for number in (each.calls, each.failures)]
        used = [f"{number:,}" for number in (each.input_tokens, each.cached_tokens, each.output_tokens)]
        rows.append(
            "| " + " | ".join([_inline(name), *cells, seconds(each.seconds), *used, money(each.cost_usd)]) + " |"
        )
    return "\n".join(rows)


def _inline(text: str) -> str:
    """``text`` on one line and without markup."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))


def _fenced(text: str, language: str = "text") -> str:
    longest = max([len(each) for each in re.findall(r"`+", text)], default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"
