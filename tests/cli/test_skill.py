"""``agentflow skill``: the folder follows the convention, and every block in it is what the checker, pytest and the runs say."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from agentflow import AgentFlow, ScriptedProvider
from agentflow.cli.check.skill import MISTAKES, message_for
from agentflow.cli.main import GROUPS
from agentflow.core.data.messages import ModelRequest
from tests.benchmarks.surface_trial import GOALS, Score, attempt, flow_of
from tests.support.children import pytest_command
from tests.support.commands import said_by

BLOCK = re.compile(r"^```(\w+) (file|text)=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
REVIEWS = [{"worst": "off by one", "severity": 4}, {"worst": "a typo", "severity": 1}]


@pytest.fixture(scope="module")
def skill(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder as the command writes it."""
    root = tmp_path_factory.mktemp("skill")
    done = said_by("skill", cwd=root)
    assert done.returncode == 0 and done.stdout.startswith(".agents/skills/agentflow/SKILL.md\n"), done.stderr
    return root / ".agents" / "skills" / "agentflow"


def blocks(skill: Path) -> dict[str, str]:
    """The blocks of SKILL.md that are files, by their names."""
    return {name: text for _, _, name, text in BLOCK.findall((skill / "SKILL.md").read_text())}


def test_the_folder_follows_the_convention(skill: Path) -> None:
    """A name that is the folder's, a description of at most 1,024 characters, a body of at most 500 lines and 5,000 tokens, and
    references that exist; no mark is left in it."""
    _, head, body = (skill / "SKILL.md").read_text().split("---\n", 2)
    fields = yaml.safe_load(head)
    assert fields["name"] == skill.name and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fields["name"])
    assert 0 < len(fields["description"]) <= 1024 and set(fields) == {"name", "description", "metadata"}
    assert body.count("\n") < 500 and len(body) < 20_000
    links = re.findall(r"\]\((references/\S+)\)", body)
    assert links and all((skill / each).is_file() for each in links)
    assert not re.search(r"(?<!\{)\{(version|message|mistakes|commands)\}", body)
    assert all(f"`{name}` (" in body for names in GROUPS.values() for name in names)


@pytest.mark.slow
def test_its_module_and_its_test_run(skill: Path, tmp_path: Path) -> None:
    """The Python module imports, pytest passes its test with the scripted model, and its cases are cases."""
    for name, text in blocks(skill).items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        pytest_command(tmp_path / "tmp", "test_launch.py"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and "1 passed" in done.stdout, done.stdout + done.stderr
    plan = said_by("eval", "launch:flow.audit", "cases.jsonl", "--plan", cwd=tmp_path, XDG_STATE_HOME=str(tmp_path))
    assert plan.returncode == 0, plan.stderr


@pytest.mark.parametrize("name", ["audit.py", "audit.sexp"])
async def test_its_texts_pass_the_checker_and_give_the_same(skill: Path, tmp_path: Path, name: str) -> None:
    """Both texts of the pair have no finding of ``check``, and the value that the module has."""
    path = tmp_path / name
    path.write_text(blocks(skill)[name])
    checked = said_by("check", name, cwd=tmp_path)
    assert checked.returncode == 0 and "nothing found" in checked.stderr, checked.stdout

    def reply(request: ModelRequest) -> str:
        return json.dumps(REVIEWS["b.py" in request.messages[-1].text])

    async with AgentFlow(provider=ScriptedProvider(reply)) as flow:
        assert (await flow.run(path, bindings={"paths": ["a.py", "b.py"]})).value == ["off by one"]


def test_the_mistakes_are_those_of_the_checker(skill: Path) -> None:
    """Each of the ten is a finding, with the message that the page shows; so is the message that it explains."""
    body = (skill / "SKILL.md").read_text()
    assert len(MISTAKES) == 10
    for name, wrong, instead in MISTAKES:
        first = message_for(name, wrong).splitlines()[0]
        code = re.match(r"error\[(.*?)\]", first)
        assert code is not None and f"`{code[1]}`" in body and instead in body, first
    assert message_for(*MISTAKES[0][:2]) in body


async def test_the_trial_can_give_a_model_the_skill(skill: Path) -> None:
    """The paired trial of surfaces sends the skill before the card: what a model writes with it is scored as without."""
    text = (skill / "SKILL.md").read_text()
    provider = ScriptedProvider(["(apply + numbers)", "sum(numbers)"])
    async with flow_of(None, provider, system=text) as flow:
        scores = {surface: Score() for surface in ("sexp", "python")}
        await attempt(flow, GOALS[0], "sexp", 1, scores["sexp"])
        await attempt(flow, GOALS[0], "python", 1, scores["python"])
    assert all(each.reached == 1 for each in scores.values())
    assert all(text.strip()[:400] in request.system for request in provider.requests)
