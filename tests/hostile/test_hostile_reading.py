"""Files that code with grants chooses for a task: only those it may read, whichever way it names them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data.errors import ConfigurationError
from agentflow.handler.tools import subtask_tool
from agentflow.tasks.workflows import MAGIC

FILES = ("docs/a.md", "docs/deep/b.md", "src/c.py", "d[1].md")


class Ground:
    """A flow over a root with a few files, whose model hands on what ``replies`` say and notes what it was sent."""

    def __init__(self, root: Path) -> None:
        self.replies: list[Any] = []
        self.sent: list[str] = []
        for path in FILES:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(f"text of {path}")
        self.flow = AgentFlow(provider=ScriptedProvider(self._answer), root=root)
        self.flow.tools.add(subtask_tool("delegate", "Hand work on", template_hints=["plain"]))
        templates = (
            {"name": "plain", "subtype": "subtask", "instructions": "Work."},
            {"name": "slot", "params": "path", "instructions": "Work.", "file_paths": ["{{path}}"]},
            {
                "name": "source",
                "params": "path",
                "instructions": "Work.",
                "file_paths_source": {"type": "literal", "path": "{{path}}"},
            },
            {"name": "fixed", "instructions": "Work.", "file_paths": ["src/c.py"]},
            {"name": "boss", "instructions": "Lead.", "tools": ["delegate"]},
        )
        for template in templates:
            self.flow.task_system.register_template(
                {"params": "", "context_management": {"fresh_context": "disabled"}, **template}
            )

    def _answer(self, request: Any) -> Any:
        self.sent.append("\n".join(message.text for message in request.messages))
        return self.replies.pop(0) if self.replies else "fine"

    def read(self) -> set[str]:
        """The files whose text a model was sent."""
        return {path for path in FILES if any(f"text of {path}" in text for text in self.sent)}


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    made = Ground(tmp_path)
    async with made.flow:
        yield made


GRANTS: dict[str, tuple[list[str], set[str]]] = {
    "none": ([], set()),
    "all": (["system:read_files"], set(FILES)),
    "all_by_pattern": (["files:**"], set(FILES)),
    "directory": (["files:docs/*"], {"docs/a.md"}),
    "tree": (["files:docs/**"], {"docs/a.md", "docs/deep/b.md"}),
    "anywhere": (["files:**/*.md"], {"docs/a.md", "docs/deep/b.md", "d[1].md"}),
    "one_star_is_one_name": (["files:*"], {"d[1].md"}),
    "two": (["files:src/?.py", "files:docs/a.md"], {"src/c.py", "docs/a.md"}),
    "another_tool": (["system:write_file", "files:"], set()),
}
"""Grants, and the files that they let code give to a task."""

WAYS = {
    "request": '(plain (files (list "{}")))',
    "slot": '(slot (path "{}"))',
    "source": '(source (path "{}"))',
    "name_as_data": '((car (list "plain")) (files (list "{}")))',
    "closure": '((lambda (f) (plain (files (list f)))) "{}")',
    "branch": '(parallel (plain (files (list "{}"))))',
    "tool": '(delegate (description "work") (file_paths (list "{}")))',
    "eval": '(eval-program \'(plain (files (list "{}"))) (allow plain {grants}))',
    "defined": '(defatom mine (params) (instructions "x")) (mine (files (list "{}")))',
    "model": "(boss)",
}
"""How code gives the file ``{}`` to a task."""


MISTAKES: dict[str, tuple[Any, str]] = {
    "a_file": (["plain", "docs/a.md"], "leave it out"),
    "a_misspelling": (["system:read_fles"], "'system:read_files'"),
    "a_text": ("plain", "allow=['name', ...]"),
    "no_name": ([None], "allow=['name', ...]"),
}
"""Values of ``allow`` that can only be mistakes, and what the hint says."""


@pytest.mark.parametrize("mistake", MISTAKES)
async def test_a_grant_of_nothing_is_refused(mistake: str, ground: Ground) -> None:
    """What is not a task, tool, workflow or pattern of files cannot be granted: nothing runs."""
    allow, hint = MISTAKES[mistake]
    with pytest.raises(ConfigurationError) as caught:
        await ground.flow.run("(plain)", allow=allow)
    assert caught.value.code == "config/allow" and hint in (caught.value.hint or "") and not ground.sent


async def test_a_grant_may_name_what_there_will_be(ground: Ground, tmp_path: Path) -> None:
    """Tasks that the program defines can be granted, and workflows of a directory that was not read yet."""
    own = '(defatom mine (params) (instructions "x")) (get-field (mine) \'status)'
    granted = ["mine", "files:docs/*", "get_context", "defatom", "ask-human", "solve"]
    assert (await ground.flow.run(own, allow=granted)).value == "COMPLETE"
    (tmp_path / "add.sexp").write_text(f'{MAGIC}\n;;; {{"name": "add"}}\n(+ 1 2)')
    async with AgentFlow(provider=ScriptedProvider([]), workflows=tmp_path) as flow:
        assert (await flow.run("'fine", allow=["add"])).value == "fine"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("granted", GRANTS)
async def test_code_gives_a_task_the_files_it_was_granted(granted: str, way: str, ground: Ground) -> None:
    """Of all files, exactly those are sent to a model that the grants cover."""
    grants, expected = GRANTS[granted]
    for path in FILES:
        if way == "model":
            ground.replies = [
                {"tool_calls": [{"name": "delegate", "arguments": {"description": "x", "file_paths": [path]}}]}
            ]
        text = WAYS[way].replace("{}", path).replace("{grants}", " ".join(f'"{name}"' for name in grants))
        allow = ["plain", "slot", "source", "delegate", "boss", "defatom", *grants]
        await ground.flow.run(text, allow=allow)
    assert ground.read() == expected


@pytest.mark.parametrize(
    "path",
    [
        "docs/../src/c.py",
        "./src/c.py",
        "docs/./../src/c.py",
        "ROOT/src/c.py",
        "ROOT/docs/../src/c.py",
        "docs//../src//c.py",
    ],
)
async def test_a_path_is_what_it_leads_to(path: str, ground: Ground, tmp_path: Path) -> None:
    """However a path is written, it is judged by the file that is read."""
    text = f'(plain (files (list "{path.replace("ROOT", str(tmp_path))}")))'
    await ground.flow.run(text, allow=["plain", "files:docs/**"])
    assert ground.read() == set()
    await ground.flow.run(text, allow=["plain", "files:src/**"])
    assert ground.read() == {"src/c.py"}


async def test_a_hosts_template_chooses_for_itself(ground: Ground) -> None:
    """A file that the host's template always reads needs no grant; a file that an untrusted one names does."""
    await ground.flow.run("(fixed)", allow=["fixed"])
    assert ground.read() == {"src/c.py"}
    ground.sent.clear()
    text = '(defatom mine (params) (instructions "x") (file_paths "src/c.py"))'
    define = (await ground.flow.run(f"(lambda () {text} (mine))")).value
    await ground.flow.run("(f)", bindings={"f": define}, allow=["defatom"])
    assert ground.read() == set()


async def test_a_model_hands_files_on_as_far_as_its_caller_may(ground: Ground) -> None:
    """A task of the host's lets its model hand any file to a subtask, which is the host's choice of that tool."""
    ground.replies = [
        {"tool_calls": [{"name": "delegate", "arguments": {"description": "x", "file_paths": ["src/c.py"]}}]}
    ]
    await ground.flow.run("(boss)")
    assert ground.read() == {"src/c.py"}


async def test_a_lookup_that_the_caller_asks_for_needs_its_grant(ground: Ground) -> None:
    """Asking memory is reading: a call may enable it only with the grant of get_context."""
    text = "(plain (context (list (list 'fresh_context 'enabled))))"
    refused = (await ground.flow.run(text, allow=["plain"])).value
    assert refused.failed and refused.notes["error"]["details"]["code"] == "name/not-granted"
    assert not (await ground.flow.run(text, allow=["plain", "get_context"])).value.failed
