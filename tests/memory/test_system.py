"""MemorySystem: one question in, matches with their lines out."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from agentflow import MemorySystem
from agentflow.core.call.call import CallContext
from agentflow.core.data.context import ContextGenerationInput
from agentflow.core.data.errors import ConfigurationError, DataError
from agentflow.core.events.events import Warning
from agentflow.memory import FileMemory, RerankFailed
from tests.support.fakes import FakeRun
from tests.support.repository import commit, repository, write

FILES = {
    "src/stream.py": "class Stream:\n    '''Detects streams that were cut off.'''\n",
    "src/retry.py": "def backoff(n):\n    '''Waits between attempts.'''\n",
    "README.md": "# Project\n\nStreams and retries.\n",
}


def names(paths: Sequence[str]) -> list[str]:
    return [os.path.basename(path) for path in paths]


def real(path: str | Path) -> str:
    return os.path.realpath(path)


def lines_of(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


async def test_matches_carry_path_lines_score_and_reason(tmp_path: Path) -> None:
    """Paths are absolute and exist; content is the lines named; the summary names what was found."""
    long = "\n".join(f"filler {n}" for n in range(300)) + "\ndef cut_off(): 'streams cut off'\n"
    write(tmp_path, {**FILES, "src/long.py": long})
    async with MemorySystem(roots=[tmp_path]) as memory:
        result = await memory.get_relevant_context_for(ContextGenerationInput(query="how are streams cut off?"))
    assert result.error is None and set(names(result.file_paths)) == {"stream.py", "long.py", "README.md"}
    assert "3 files" in result.context_summary and "src/stream.py" in result.context_summary
    for match in result.matches:
        lines = lines_of(match.path)
        assert match.start_line is not None and match.end_line is not None
        assert match.content == "\n".join(lines[match.start_line - 1 : match.end_line])
        assert 0 < match.score <= 1 and match.kind == "file" and match.relevance.startswith("matched by")
    found = next(match for match in result.matches if match.path.endswith("long.py"))
    assert "cut_off" in found.content and found.metadata["relative_path"] == "src/long.py"


async def test_relative_roots_and_the_same_root_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However a root is written, paths in answers are absolute and files are found once."""
    write(tmp_path, FILES)
    monkeypatch.chdir(tmp_path)
    async with MemorySystem(roots=["."]) as memory:
        report = await memory.index_git_repository(tmp_path)
        assert report.unchanged + report.added == 3
        result = await memory.get_relevant_context_with_description("backoff between attempts")
        assert result.file_paths == [real("src/retry.py")]
        described = await memory.describe(result.file_paths)
        assert "def backoff" in described[result.file_paths[0]]


async def test_a_file_written_meanwhile_is_found(tmp_path: Path) -> None:
    """A question looks for changes first, so a workflow finds what it has just written."""
    write(tmp_path, FILES)
    async with MemorySystem(config={"refresh_s": 0}, roots=[tmp_path]) as memory:
        assert await memory.search("quetzal") == []
        write(tmp_path, {"new.py": "quetzal = 1"})
        assert names([match.path for match in await memory.search("quetzal")]) == ["new.py"]
        (tmp_path / "new.py").unlink()
        assert await memory.search("quetzal") == []


async def test_target_files_come_first(tmp_path: Path) -> None:
    """A hint moves a matching file up; it does not invent one."""
    write(tmp_path, {**FILES, "notes.txt": "streams"})
    async with MemorySystem(roots=[tmp_path]) as memory:
        asked = ContextGenerationInput(query="streams", target_files=["notes.txt", "no/such.py"])
        assert names((await memory.get_relevant_context_for(asked)).file_paths)[0] == "notes.txt"


async def test_what_is_known_already_counts_a_little(tmp_path: Path) -> None:
    """Inherited context and inputs decide between equals and never push out what the question names."""
    write(tmp_path, {"a.py": "pelican swan", "b.py": "pelican heron", "c.py": "heron heron"})
    async with MemorySystem(roots=[tmp_path]) as memory:
        asked = ContextGenerationInput(query="pelican", history="we spoke of the heron")  # type: ignore[call-arg]
        assert names((await memory.get_relevant_context_for(asked)).file_paths) == ["b.py", "a.py", "c.py"]
        by_description = ContextGenerationInput(template_description="Feed one", inputs={"bird": "heron"})
        assert names((await memory.get_relevant_context_for(by_description)).file_paths)[0] == "c.py"


async def test_strategies_and_fresh_context(tmp_path: Path) -> None:
    """``metadata`` leaves file texts out; ``disabled`` looks nothing up."""
    write(tmp_path, FILES)
    async with MemorySystem(roots=[tmp_path]) as memory:
        meta = ContextGenerationInput(query="attempts", matching_strategy="metadata")
        assert (await memory.get_relevant_context_for(meta)).matches == []
        off = ContextGenerationInput(query="streams", fresh_context="disabled", inherited_context="known")
        result = await memory.get_relevant_context_for(off)
        assert result.matches == [] and result.context_summary == "known"


async def test_the_global_index_says_what_is_there(tmp_path: Path) -> None:
    """Path to metadata for every file; entries a host adds are found by their text."""
    write(tmp_path, FILES)
    async with MemorySystem(roots=[tmp_path]) as memory:
        reports = await memory.update_global_index({"wiki://walrus": "how we feed the walrus"})
        assert reports[0].added == 3
        known = memory.global_index
        assert known[real(tmp_path / "src/retry.py")] == "python, 2 lines; defines backoff"
        result = await memory.get_relevant_context_with_description("feeding the walrus")
        assert result.file_paths == ["wiki://walrus"] and result.matches[0].kind == "text"


async def test_a_memory_without_roots_knows_what_it_is_told(tmp_path: Path) -> None:
    """Constructed alone, it answers with nothing, or with the entries given."""
    async with MemorySystem() as memory:
        assert (await memory.get_relevant_context_with_description("x")).matches == []
        await memory.update_global_index({"a": "pelican", "b": "heron"})
        assert (await memory.get_relevant_context_with_description("heron")).file_paths == ["b"]


async def test_history_can_be_left_out_of_one_repository(tmp_path: Path) -> None:
    """The choice made at indexing holds at later questions."""
    root = repository(tmp_path / "r", {"a.py": "x"})
    commit(root, {"a.py": "y"}, "free the capybara")
    async with MemorySystem(config={"refresh_s": 0}) as memory:
        await memory.index_git_repository(root, {"history": False})
        assert await memory.search("capybara") == []
        await memory.index_git_repository(root, {"history": True})
        assert names([m.path for m in await memory.search("capybara")]) == ["a.py"]


async def test_what_was_skipped_is_in_the_answer(tmp_path: Path) -> None:
    """So that a caller sees why a file cannot be among the matches."""
    write(tmp_path, {**FILES, "secret.pem": "x"})
    async with MemorySystem(roots=[tmp_path]) as memory:
        result = await memory.get_relevant_context_with_description("streams")
    assert [(names([s["path"]])[0], s["reason"]) for s in result.skipped] == [("secret.pem", "a protected name")]


async def test_a_root_that_is_gone_is_an_error_of_the_answer(tmp_path: Path) -> None:
    """The lookup reports it; indexing by hand raises it."""
    async with MemorySystem(roots=[tmp_path / "gone"]) as memory:
        result = await memory.get_relevant_context_with_description("x")
        assert result.matches == [] and result.error is not None and "gone" in result.error
        with pytest.raises(DataError):
            await memory.index_git_repository(tmp_path / "gone")


def test_an_unknown_setting_is_named() -> None:
    """With the setting that was meant."""
    with pytest.raises(ConfigurationError) as caught:
        MemorySystem(config={"max_byte": 3})
    assert caught.value.code == "memory/setting" and "max_bytes" in (caught.value.hint or "")


async def test_an_index_is_kept_per_set_of_roots(tmp_path: Path) -> None:
    """With a cache directory the next process starts with what this one knew."""
    write(tmp_path / "root", FILES)
    config = {"cache_dir": str(tmp_path / "cache")}
    async with MemorySystem(config=config, roots=[tmp_path / "root"]) as memory:
        await memory.update_global_index()
    async with MemorySystem(config=config, roots=[tmp_path / "root"]) as memory:
        assert (await memory.update_global_index())[0].unchanged == 3
    assert len(list((tmp_path / "cache").glob("*.db"))) == 1


class Reversing:
    """A Ranker that turns the order round, makes up a path, and can fail."""

    def __init__(self, error: RerankFailed | None = None) -> None:
        self.error = error
        self.asked: list[tuple[str, list[str]]] = []

    async def rank(
        self, question: ContextGenerationInput, candidates: Mapping[str, str], call: CallContext | None
    ) -> list[tuple[str, float]]:
        self.asked.append((question.text, list(candidates)))
        if self.error is not None:
            raise self.error
        return [("/made/up", 1.0), *((path, 1.5) for path in reversed(list(candidates)))][: question.max_results]


async def test_a_ranker_reorders_the_candidates(tmp_path: Path) -> None:
    """Its order and scores hold (clipped to 0..1); paths it made up are dropped."""
    write(tmp_path, FILES)
    async with MemorySystem(roots=[tmp_path]) as plain, MemorySystem(roots=[tmp_path], ranker=Reversing()) as ranked:
        asked = ContextGenerationInput(query="streams retry")
        before = (await plain.get_relevant_context_for(asked)).file_paths
        result = await ranked.get_relevant_context_for(asked)
    assert result.file_paths == before[::-1] and {match.score for match in result.matches} == {1.0}


async def test_a_ranker_that_fails_is_a_warning_and_nothing_is_lost(tmp_path: Path) -> None:
    """The order is the one without it, the answer is not a failure, and a warning of the run says what went wrong."""
    write(tmp_path, FILES)
    run = FakeRun()
    asked = ContextGenerationInput(query="streams retry")
    failing = Reversing(RerankFailed("no ranking, twice"))
    async with FileMemory(roots=[tmp_path]) as plain, FileMemory(roots=[tmp_path], ranker=failing) as memory:
        before = await plain.find(asked)
        result = await memory.find(asked, run.call())
    assert failing.asked and result.error is None and result.file_paths == before.file_paths
    (warning,) = [event for event in run.events if isinstance(event, Warning)]
    assert warning.code == "memory/rerank" and "no ranking, twice" in warning.message
