"""The documentation site, before it is built: every page is reached, and every link leads somewhere."""

from __future__ import annotations

import importlib.util
import posixpath
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
FENCE = re.compile(r"^```.*?^```", re.M | re.S)


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    """The script that builds the site; no package it builds with is installed here."""
    spec = importlib.util.spec_from_file_location("build_site", ROOT / ".ci/build_site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sources(builder: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the site, as they are built."""
    directory = tmp_path_factory.mktemp("site")
    assert builder.lay_out(directory) == []
    return directory


def text_of(page: Path) -> str:
    return FENCE.sub("", page.read_text("utf-8"))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings."""
    headings = re.findall(r"^#+ +(.*)$", text_of(page), re.M)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower()) for heading in headings}


def test_the_nav_lists_pages_that_exist_once(builder: ModuleType, sources: Path) -> None:
    """An entry of the navigation is a page, and no page has two."""
    places = [place for _, _, place in builder.nav()]
    assert not [place for place in places if not (sources / place).is_file()]
    assert len(places) == len(set(places))


def test_every_page_is_reached(builder: ModuleType, sources: Path) -> None:
    """A page is in the navigation, or linked from one that is."""
    reached: set[str] = set()
    waiting = [place for _, _, place in builder.nav()]
    while waiting:
        place = waiting.pop()
        if place in reached or not place.endswith(".md"):
            continue
        reached.add(place)
        links = LINK.findall(text_of(sources / place))
        waiting += [posixpath.normpath(posixpath.join(posixpath.dirname(place), link)) for link, _ in links if link]
    assert {path.relative_to(sources).as_posix() for path in sources.rglob("*.md")} == reached


def test_links_and_their_anchors_resolve(sources: Path) -> None:
    """A link leads to a file of the site, and its anchor to a heading there."""
    lost: list[str] = []
    for page in sources.rglob("*.md"):
        for link, anchor in LINK.findall(text_of(page)):
            target = page.parent / link if link else page
            if not target.is_file() or (anchor and anchor not in anchors(target)):
                lost.append(f"{page.relative_to(sources)}: {link}#{anchor}")
    assert not lost, lost


def test_the_site_reads_every_fence(sources: Path) -> None:
    """A block of code begins with a language and perhaps a title: with anything else the site shows the rest of the page as text."""
    fence = re.compile(r'^ *```(?:\w+(?: title="[^"]+")?)?$')
    lines = [
        f"{page.relative_to(sources)}: {line}"
        for page in sources.rglob("*.md")
        for line in page.read_text("utf-8").splitlines()
        if re.match(r" *```[^`]*$", line) and not fence.match(line)
    ]
    assert not lines


SEARCHED = """
agent, approval, async, audit log, batch, budget per user, cache, callback, cancel, chat history, checkpoint, concurrency, context window, cost,
cron, dataset, dependency injection, distributed, embedding, evaluation, fallback, function calling, guardrail, handoff, hook, human in the loop,
idempotency, image, instructions, interrupt, judge, LangGraph, MCP, memory, mock, multi-agent, observability, OpenTelemetry, parallel, persistence,
pipeline, prompt injection, prompt template, queue, quota, RAG, rate limit, reasoning, resume, retries, retrieval, sandbox, schedule,
server-sent events, streaming, structured output, sub-agent, system prompt, temperature, thread, time travel, timeout, token usage, tool use,
tracing, validation, vector store, worker
"""
"""Words of the field that readers search for."""


def test_the_words_of_the_field_lead_to_a_page(sources: Path) -> None:
    """Each has a heading of a page, or a row of the table 'If you look for' with a link."""
    headings = [
        re.sub(r"^#+ ", "", line)
        for page in sources.glob("*.md")
        for line in text_of(page).splitlines()
        if line.startswith("#")
    ]
    rows = re.findall(r"^\| (.*?) \| .*\]\(.*\|$", (sources / "glossary.md").read_text("utf-8"), re.M)
    places = "\n".join([*headings, *rows]).lower()
    words = [word.strip() for word in SEARCHED.split(",")]
    assert not [word for word in words if not re.search(rf"\b{re.escape(word.lower())}", places)]


def test_llms_txt_says_what_each_page_is_about(builder: ModuleType, sources: Path) -> None:
    """Readers that are models get every page of the navigation with its first sentence."""
    lines = [line for line in builder.llms_txt(sources).splitlines() if line.startswith("- [")]
    assert len(lines) == len(list(builder.nav()))
    assert all(re.fullmatch(r"- \[[^]]+\]\([\w/.-]+\.md\): \S.*[.:]", line) for line in lines), lines
