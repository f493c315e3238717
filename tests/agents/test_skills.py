"""Skills: a task lists folders of instructions, and its model reads those that it needs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentflow import AgentFlow, ConfigurationError, ScriptedProvider, task
from agentflow.core.data.messages import ToolResultPart

FORMS = """---
name: pdf-forms
description: Fills PDF forms. Use it when: a form is to be filled.   # a comment
license: MIT
metadata:
  author: example
  version: "1.0"
---

# Forms

Read references/FIELDS.md, then run scripts/fill.py.
"""
LETTERS = """---
name: letters
description: >-
  Writes letters in the style of
  the house.
---
Begin with "Dear".
"""


def write(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())


@pytest.fixture
def skills(tmp_path: Path) -> Path:
    """A directory of two skills, one with files of many kinds, and of things that are no skills."""
    top = tmp_path / "skills"
    write(top / "pdf-forms" / "SKILL.md", FORMS)
    write(top / "pdf-forms" / "references" / "FIELDS.md", "The first field is the name.")
    write(top / "pdf-forms" / "scripts" / "fill.py", "print('filled')\n")
    write(top / "pdf-forms" / "assets" / "logo.png", b"\x89PNG\0\0")
    write(top / "pdf-forms" / "assets" / "large.txt", "x" * 300_000)
    write(top / "pdf-forms" / ".env", "KEY=secret-of-the-host")
    write(top / "letters" / "SKILL.md", LETTERS)
    write(top / "README.md", "Skills of the house.")
    write(tmp_path / "outside.txt", "outside")
    os.symlink(tmp_path / "outside.txt", top / "pdf-forms" / "outside.txt")
    os.symlink(top, top / "pdf-forms" / "loop")
    return top


def reads(name: str, file: str | None = None) -> dict[str, Any]:
    """A reply that reads a skill, or a file of one."""
    arguments = {"name": name} | ({} if file is None else {"file": file})
    return {"tool_calls": [{"name": "read_skill", "arguments": arguments}]}


def results(model: ScriptedProvider) -> list[str]:
    """The texts of the tool results that the model was sent, in order."""
    return [p.text for each in model.requests for p in each.messages[-1].parts if isinstance(p, ToolResultPart)]


async def test_names_are_in_the_prompt_and_texts_on_demand(skills: Path) -> None:
    """The system prompt has names and descriptions in the order of names, the same in each turn; instructions and files come by
    the one tool."""
    model = ScriptedProvider([reads("pdf-forms"), reads("pdf-forms", "references/FIELDS.md"), "Filled."])
    async with AgentFlow(provider=model, root=skills.parent) as flow:

        @flow.task(system="You work in an office.", skills=[skills])
        async def office(work: str) -> str:
            """{{work}}"""

        assert await office("Fill the form.") == "Filled."
    system = model.requests[0].system
    assert system.startswith("You work in an office.\n\nSkills are instructions")
    assert system.endswith(
        "- letters: Writes letters in the style of the house.\n"
        "- pdf-forms: Fills PDF forms. Use it when: a form is to be filled."
    )
    assert {each.system for each in model.requests} == {system}
    assert [each.name for each in model.requests[0].tools] == ["read_skill"]
    instructions, fields = results(model)
    assert instructions.startswith("# Forms") and "license" not in instructions
    assert "assets/large.txt, assets/logo.png, references/FIELDS.md, scripts/fill.py\n\n" in instructions, (
        "neither protected files nor those outside"
    )
    assert instructions.endswith("for commands: skills/pdf-forms")
    assert fields == "The first field is the name."


@pytest.mark.parametrize(
    ("name", "file", "said"),
    [
        ("pdf-forms", "../letters/SKILL.md", "has no file"),
        ("pdf-forms", "/etc/passwd", "has no file"),
        ("pdf-forms", "../../outside.txt", "has no file"),
        ("pdf-forms", "outside.txt", "has no file"),
        ("pdf-forms", "loop/letters/SKILL.md", "has no file"),
        ("pdf-forms", ".env", "has no file"),
        ("pdf-forms", "references/FIELD.md", "did you mean 'references/FIELDS.md'?"),
        ("pdf-forms", "assets/logo.png", "is not a text"),
        ("pdf-forms", "assets/large.txt", "300,000 bytes"),
        ("pdf", None, "pdf-forms"),
        ("../skills", None, "pdf-forms"),
    ],
)
async def test_nothing_else_is_read(skills: Path, name: str, file: str | None, said: str) -> None:
    """Other names, paths out of the folder, links out of it, protected names, binary and large files are refused, and the model
    reads why."""
    model = ScriptedProvider([reads(name, file), "No."])
    async with AgentFlow(provider=model) as flow:
        assert await flow.ask("Try it.", skills=skills) == "No."
    (result,) = results(model)
    assert said in result and "secret-of-the-host" not in result and "outside\n" not in result


async def test_scripts_run_only_by_the_command_policy(skills: Path) -> None:
    """The tool of skills runs nothing: a script is run by the command tool, where the host offers it, and asks as any command
    does."""
    asked: list[str] = []

    def approve(request: Any) -> bool:
        asked.append(request.text)
        return "fill.py" in request.text

    command = {"command": "python skills/pdf-forms/scripts/fill.py"}
    model = ScriptedProvider(
        [
            reads("pdf-forms", "scripts/fill.py"),
            {"tool_calls": [{"name": "system:execute_shell_command", "arguments": command}]},
            "Done.",
        ]
    )
    async with AgentFlow(provider=model, root=skills.parent, approve=approve) as flow:
        await flow.ask("Fill it.", skills=[skills], tools=["system:execute_shell_command"])
    assert results(model)[0] == "print('filled')\n" and "filled" in results(model)[1]
    assert len(asked) == 1 and "fill.py" in asked[0]


async def test_the_flow_has_skills_for_all_and_a_task_its_own(skills: Path) -> None:
    """``AgentFlow(skills=)`` is for each task and question without its own; ``skills=[]`` leaves them out."""
    model = ScriptedProvider(["ok"] * 5)

    @task(skills=[skills / "letters"])
    async def writer(text: str) -> str:
        """{{text}}"""

    def own() -> str:
        """A tool."""
        return ""

    async with AgentFlow(provider=model, skills=[skills]) as flow:
        await flow.ask("Hello.")
        await flow.ask("Hello.", tools=[own])
        await flow.ask("Hello.", tools=lambda ctx: [own])
        await flow.ask("Hello.", tools=[own], skills=[])
        await flow.run(writer("Hello."))
    tools = [[each.name for each in request.tools] for request in model.requests]
    assert tools == [["read_skill"], ["own", "read_skill"], ["read_skill", "own"], ["own"], ["read_skill"]]
    listed = [request.system.count("\n- ") for request in model.requests]
    assert listed == [2, 2, 2, 0, 1]


async def test_a_changed_skill_answers_anew(skills: Path, tmp_path: Path) -> None:
    """The text of a skill is part of the content of a task: neither a result with ``reuse=`` nor a durable run answers from a
    record of other instructions, and equal ones are not paid again."""
    address = f"sqlite:///{tmp_path / 'runs.db'}"

    async def answer() -> int:
        model = ScriptedProvider([reads("letters"), "Dear Ada."])
        async with AgentFlow(provider=model, durable=address) as flow:

            @flow.task(skills=[skills], reuse="1d")
            async def letter(to: str) -> str:
                """Write to {{to}}."""

            assert await letter("Ada") == "Dear Ada."
        return len(model.requests)

    assert [await answer(), await answer()] == [2, 0]
    write(skills / "letters" / "SKILL.md", LETTERS.replace("Dear", "Hello"))
    assert [await answer(), await answer()] == [2, 0]
    write(skills / "pdf-forms" / "references" / "FIELDS.md", "The first field is the date.")
    assert [await answer(), await answer()] == [2, 0]


async def test_a_question_reads_a_changed_skill_again(skills: Path) -> None:
    """``flow.ask`` has the text of the moment; a declared task that of its declaration."""
    model = ScriptedProvider([reads("letters"), "1", reads("letters"), "2", reads("letters"), "3"])
    async with AgentFlow(provider=model) as flow:

        @flow.task(skills=[skills])
        async def letter(to: str) -> str:
            """Write to {{to}}."""

        await flow.ask("Write.", skills=[skills])
        write(skills / "letters" / "SKILL.md", LETTERS.replace("Dear", "Good day"))
        await flow.ask("Write.", skills=[skills])
        await letter("Ada")
    assert [each.split('"')[1] for each in results(model)] == ["Dear", "Good day", "Dear"]


async def test_a_durable_run_resumes_with_the_instructions_that_it_read(skills: Path, tmp_path: Path) -> None:
    """A run that waits after it has read a skill is resumed without reading it, or asking its model, again."""

    def opened(*replies: Any) -> tuple[AgentFlow, ScriptedProvider, Callable[[], Any]]:
        model = ScriptedProvider(replies)
        flow = AgentFlow(provider=model, durable=f"sqlite:///{tmp_path / 'runs.db'}")

        @flow.task(skills=[skills])
        async def letter(to: str) -> str:
            """Write to {{to}}."""

        @flow.workflow
        async def work() -> str:
            text = await letter("Ada")
            return text if await flow.ask_human("Send?", bool) else ""

        return flow, model, work

    flow, model, work = opened(reads("letters"), "Dear Ada.")
    async with flow:
        assert await (await flow.start(work(), run_id="r")).wait() == "waiting"
        (question,) = await flow.questions("r")
    flow, model, work = opened()
    async with flow:
        await flow.send("r", question.key, True)
        assert (await (await flow.resume("r")).result()).value == "Dear Ada."
    assert model.requests == []


BROKEN = {
    "no front matter": ("# Forms\n", "does not begin with a line ---", "begin it with ---"),
    "no end": ("---\nname: pdf-forms\n", "has no second line ---", "begin it with ---"),
    "no name": ("---\ndescription: d\n---\n", "has no name", "name: pdf-forms"),
    "another name": ("---\nname: forms\ndescription: d\n---\n", "called 'forms'", "has the name of its folder"),
    "a wrong name": ("---\nname: PDF Forms\ndescription: d\n---\n", "'PDF Forms' is not valid", "name: pdf-forms"),
    "no description": ("---\nname: pdf-forms\n---\nText.", "has no description", "what the skill does and when"),
    "too long": (f"---\nname: pdf-forms\ndescription: {'d' * 1025}\n---\n", "1,025 characters", "at most 1,024"),
    "no field": ("---\nname: pdf-forms\nwords\n---\n", "line 3: 'words' is not a field", "NAME: VALUE"),
    "twice": ("---\nname: pdf-forms\nname: b\n---\n", "line 3: 'name' is there twice", "leave one"),
    "not UTF-8": (b"---\nname: \xff\n---\n", "is not UTF-8", "convert it"),
    "a list": (
        "---\nname: pdf-forms\ndescription: [a, b]\n---\n",
        "line 3: the value of 'description' is not a text",
        "one line",
    ),
    "an open quote": ("---\nname: pdf-forms\ndescription: 'a\n---\n", "line 3: the value of 'description'", "one line"),
    "an unknown escape": ('---\nname: pdf-forms\ndescription: "\\q"\n---\n', "line 3: the value of", "one line"),
}

WRITTEN = [
    "Fills forms.",
    "Fills forms.  # a comment",
    "Fills C# forms",
    "'Fills forms: it''s quick'",
    "'Fills forms'   # a comment",
    '"Fills forms"  # a comment',
    '"Fills \\"forms\\" \\u00e9 \\t now"',
    '"# no comment"',
    "Fills\n  forms\n  of all kinds",
    '"Fills\n  forms"',
    ">-\n  Fills\n  forms",
    "|\n  Fills\n  forms",
    "\n  Fills forms",
    "Füllt Formulare — auch große",
    "[Fills, forms]",
    "{fills: forms}",
    "'Fills forms",
    "&anchor Fills",
    "*anchor",
    "!!str Fills",
    "@forms",
    "`forms`",
]


@pytest.mark.parametrize("written", WRITTEN)
async def test_a_description_is_read_as_yaml_or_refused(skills: Path, written: str) -> None:
    """A value that YAML reads as a text is that text, white space aside; any other is refused, and none is read otherwise."""
    text = f"---\nname: pdf-forms\ndescription: {written}\nlicense: [MIT\n---\nText.\n"
    write(skills / "pdf-forms" / "SKILL.md", text)
    try:
        meant = yaml.safe_load(text.split("\nlicense")[0].removeprefix("---\n"))["description"]
    except yaml.YAMLError:
        meant = None
    model = ScriptedProvider(["ok"])
    try:
        async with AgentFlow(provider=model) as flow:
            await flow.ask("Hello.", skills=[skills / "pdf-forms"])
    except ConfigurationError as error:
        assert "the value of 'description' is not a text" in error.message
        assert not isinstance(meant, str) or written[0] in "!&"  # a text with a tag or an anchor is refused, too
        return
    assert isinstance(meant, str)
    assert model.requests[0].system.endswith(f"- pdf-forms: {' '.join(meant.split())}")


@pytest.mark.parametrize("case", BROKEN)
async def test_a_malformed_skill_is_an_error_at_the_door(skills: Path, case: str) -> None:
    """A SKILL.md that does not follow the format is refused when the task is declared: the error names the file, the fault and
    what to write."""
    text, said, hint = BROKEN[case]
    write(skills / "pdf-forms" / "SKILL.md", text)
    with pytest.raises(ConfigurationError) as refused:
        AgentFlow(provider=ScriptedProvider([]), skills=[skills])
    assert refused.value.code == "config/skill"
    assert "pdf-forms/SKILL.md" in str(refused.value) and said in refused.value.message
    assert hint in (refused.value.hint or "")


async def test_the_first_wrong_guesses_are_refused(skills: Path, tmp_path: Path) -> None:
    """The file itself, a directory without skills, one that is not there, no path, and a link out of the directory: each names
    what to write."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "linked").mkdir()
    os.symlink(skills / "letters", tmp_path / "linked" / "letters")
    wrong: list[tuple[Any, str]] = [
        (skills / "letters" / "SKILL.md", str(skills / "letters")),
        (tmp_path / "empty", "empty/NAME/SKILL.md"),
        (tmp_path / "none", "working directory"),
        ([3], "skills=['skills']"),
        (3, "skills=['skills']"),
        (tmp_path / "linked", str(skills / "letters")),
    ]
    async with AgentFlow(provider=ScriptedProvider([])) as flow:
        for value, hint in wrong:
            with pytest.raises(ConfigurationError) as refused:
                flow.ask("Hello.", skills=value)
            assert refused.value.code == "config/skill" and hint in (refused.value.hint or ""), value
        write(tmp_path / "more" / "letters" / "SKILL.md", LETTERS)
        with pytest.raises(ConfigurationError, match="two skills are called 'letters'"):
            flow.ask("Hello.", skills=[skills, tmp_path / "more"])
        with pytest.raises(ConfigurationError) as duplicate:
            flow.ask("Hello.", skills=[skills], tools=["read_skill"])
        assert duplicate.value.code == "tool/duplicate"
