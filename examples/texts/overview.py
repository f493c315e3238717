"""Reads every file of a directory, asks one typed question about each in parallel, and adds up the answers.

agentflow run examples/texts/overview.py --model anthropic:claude-sonnet-5-5
"""

from typing import Literal

from agentflow.workflow import pmap, system, task, workflow


class Summary:
    purpose: str
    kind: Literal["code", "prose", "data"]
    risks: list[str]


class Overview:
    headline: str
    most_urgent: str


@task
def summarise(path: str, text: str) -> Summary:
    """What is the file {{path}} for, and what in it is risky?

    {{text}}
    """
    ...


@task
def sum_up(summaries: list[Summary]) -> Overview:
    """Sum up, and name what is the most urgent of all:
    {{summaries}}
    """
    ...


@workflow
def main(directory: str = "."):
    """An overview of the files of a directory, and the most urgent of all risks."""
    names = system.list_directory(directory_path=directory)
    paths = sorted(name for name in names if name.endswith((".py", ".md")))
    summaries = pmap(lambda path: summarise(path, system.read_files(file_paths=[path])), paths, limit=8)
    return {"files": dict(zip(paths, summaries, strict=True)), "total": sum_up(summaries)}
