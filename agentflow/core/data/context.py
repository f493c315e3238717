"""Questions to the memory system, and its answers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import AliasChoices, Field, InstanceOf

from agentflow.core.data.frozen import frozen
from agentflow.core.data.models import MappingModel
from agentflow.core.data.result_notes import FailedPart

MEMORY_ASKED = "memory:"
"""In the subtask chain of the calls that a host's memory makes while it answers."""


MatchKind = Literal["file", "symbol", "commit"]
"""The kinds of thing that a lookup may find: files, functions, classes and headings in them, and commits."""


class ContextGenerationInput(MappingModel):
    """A question to the memory system.

    ``query`` the question (default: ``template_description``); ``inputs`` the task's arguments; ``inherited_context``
    and ``previous_outputs`` background text; ``target_files`` paths to prefer; ``matching_strategy`` content or
    metadata; ``kinds`` which kinds of matches to give; ``max_results`` maximum number of matches.
    """

    query: str = ""
    template_description: str = Field(
        default="", validation_alias=AliasChoices("template_description", "templateDescription")
    )
    template_type: str = Field(default="", validation_alias=AliasChoices("template_type", "templateType"))
    template_subtype: str = Field(default="", validation_alias=AliasChoices("template_subtype", "templateSubtype"))
    inputs: dict[str, Any] = Field(default_factory=dict)
    inherited_context: str = Field(
        default="", validation_alias=AliasChoices("inherited_context", "inheritedContext", "history")
    )
    previous_outputs: str = Field(default="", validation_alias=AliasChoices("previous_outputs", "previousOutputs"))
    fresh_context: Literal["enabled", "disabled"] = Field(
        default="enabled", validation_alias=AliasChoices("fresh_context", "freshContext")
    )
    target_files: list[str] = Field(default_factory=list)
    matching_strategy: Literal["content", "metadata"] = "content"
    kinds: list[MatchKind] = Field(default=["file"], min_length=1)
    max_results: int = Field(default=20, ge=1, le=10_000)

    @property
    def text(self) -> str:
        """The text to match: the query, or the description with the inputs."""
        if self.query:
            return self.query
        return " ".join([self.template_description, *(str(value) for value in self.inputs.values())]).strip()


CONTEXT_KEYS: Mapping[str, str] = {
    "history": "inherited_context",
    **{name: name for name in ContextGenerationInput.model_fields},
    "templateDescription": "template_description",
    "templateType": "template_type",
    "templateSubtype": "template_subtype",
    "inheritedContext": "inherited_context",
    "previousOutputs": "previous_outputs",
    "freshContext": "fresh_context",
    "targetFiles": "target_files",
    "matchingStrategy": "matching_strategy",
    "maxResults": "max_results",
}
"""The keys of a question in a program, with their fields."""


class MatchItem(MappingModel):
    """A match of the memory system.

    ``path`` its location (of a commit: ``commit:`` and its hash), ``content`` its text (may be empty if only the path was
    requested), ``score`` its relevance in 0..1, ``kind`` file, symbol, commit or text, ``start_line``/``end_line`` lines
    from 1 (None: all), ``relevance`` the reason, ``metadata`` anything else (``paths`` of a commit).
    """

    path: str = Field(default="", validation_alias=AliasChoices("path", "source_path", "id"))
    content: str = ""
    score: float = Field(
        default=0.0, ge=0.0, le=1.0, validation_alias=AliasChoices("score", "relevance_score", "relevanceScore")
    )
    kind: str = Field(default="file", validation_alias=AliasChoices("kind", "content_type", "type"))
    start_line: int | None = None
    end_line: int | None = None
    relevance: str = ""
    metadata: dict[str, Any] = Field(default_factory=dict)

    @property
    def relevance_score(self) -> float:
        """The score, under the specification's longer name."""
        return self.score

    @property
    def source_path(self) -> str:
        """The path, under the specification's longer name."""
        return self.path


class AssociativeMatchResult(MappingModel):
    """The answer of the memory system: a summary and matches, best first. ``error`` is the failure, if any.

    ``skipped`` lists the files that could not be examined, with the reasons.
    """

    context_summary: str = Field(
        default="", validation_alias=AliasChoices("context_summary", "contextSummary", "context")
    )
    matches: list[MatchItem] = Field(default_factory=list[MatchItem])
    error: str | None = None
    skipped: list[dict[str, str]] = Field(default_factory=list[dict[str, str]])

    @property
    def file_paths(self) -> list[str]:
        """The paths of the matches, best first, without duplicates; for a commit those of the files it touched."""
        paths: dict[str, None] = {}
        for match in self.matches:
            candidates = match.metadata.get("paths", ()) if match.kind == "commit" else [match.path]
            paths.update(dict.fromkeys(path for path in candidates if path))
        return list(paths)


class DataContext(MappingModel):
    """Material that precedes every prompt of a session until it is cleared.

    ``failed_parts`` are the files it was to hold by name and that could not be read; they are not kept with a session.
    """

    source_query: str | None = None
    items: list[MatchItem] = Field(default_factory=list[MatchItem])
    overall_summary: str = ""
    retrieved_at: float = Field(default_factory=time.time)
    failed_parts: tuple[InstanceOf[FailedPart], ...] = Field(default=(), exclude=True, repr=False)


@frozen
class InheritedContext:
    """The context that a task's subtasks may inherit: inherited ``text`` and the absolute ``paths`` of its files."""

    text: str = ""
    paths: tuple[str, ...] = ()


NOTHING_INHERITED = InheritedContext()
"""Nothing to inherit."""
