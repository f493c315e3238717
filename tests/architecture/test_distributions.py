"""What installing the library brings, and that it is enough: nothing of the command's, nothing of the tests'."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from agentflow.lib.distribution import NAME, install, own_version

ROOT = Path(__file__).resolve().parents[2]
FLOW = """
import asyncio
from agentflow import AgentFlow, ScriptedProvider

async def main():
    async with AgentFlow(provider=ScriptedProvider(["Paris"])) as flow:
        print((await flow.run('(defatom ask (params) (instructions "Capital?")) (value-of (ask))')).value)

asyncio.run(main())
"""


def installed_with(name: str) -> dict[str, Distribution]:
    """The distributions that installing ``name`` installs here, itself left out."""
    pending = [Requirement(name)]
    seen: dict[tuple[str, ...], Distribution] = {}
    while pending:
        requirement = pending.pop()
        key = canonicalize_name(requirement.name)
        extras = {"", *requirement.extras}
        if (key, *sorted(extras)) in seen:
            continue
        seen[(key, *sorted(extras))] = dist = distribution(requirement.name)
        for text in dist.requires or ():
            needed = Requirement(text)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras):
                pending.append(needed)
    return {key[0]: dist for key, dist in seen.items() if key[0] != "agentflow"}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with links to what the library alone installs, and nothing else."""
    directory = tmp_path_factory.mktemp("site")
    for dist in installed_with("agentflow").values():
        for top in {file.parts[0] for file in dist.files or () if file.parts[0] not in ("..", "__pycache__")}:
            if not (directory / top).exists():
                (directory / top).symlink_to(Path(str(dist.locate_file(top))))
    return directory


def test_the_library_alone_is_few_distributions() -> None:
    """Who embeds flows installs at most 22 distributions with the library, most of them the two SDKs'."""
    names = sorted(installed_with("agentflow"))
    assert len(names) <= 22, names


def python(library: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """An interpreter that finds the library's distributions and this checkout, no other package."""
    environment = {"PYTHONPATH": f"{library}:{ROOT}", "PATH": "/usr/bin:/bin", "HOME": str(library)}
    return subprocess.run(
        [sys.executable, "-S", "-P", *arguments], capture_output=True, text=True, env=environment, check=False
    )


def test_the_library_alone_runs_a_flow(library: Path) -> None:
    """A flow needs no package of the extras: an interpreter that has only the library's dependencies runs one."""
    done = python(library, "-c", FLOW)
    assert (done.returncode, done.stdout) == (0, "Paris\n"), done.stderr


def test_the_command_without_its_extra_says_what_to_install(library: Path) -> None:
    """Without the extra ``cli`` the command names what is missing and how to install it, with exit code 2."""
    done = python(library, "-m", "agentflow", "--help")
    assert done.returncode == 2 and done.stdout == ""
    assert (
        "typer, rich, prompt_toolkit" in " ".join(done.stderr.split()) and "pip install 'agentflow[cli]'" in done.stderr
    )
    done = python(library, "-m", "agentflow", "run", "-e", "1", "--json")
    assert done.returncode == 2 and '"code": "cli/extra"' in done.stdout


def test_the_extra_is_what_the_command_needs() -> None:
    """``agentflow[cli]`` brings each module that the command asks for, and the library alone none of them."""
    with_it, without = installed_with("agentflow[cli]"), installed_with("agentflow")
    assert {"typer", "rich", "prompt-toolkit"} <= set(with_it) - set(without)


def test_the_name_of_the_distribution_is_spelt_once() -> None:
    """A release under another name changes one line of the package, and ``pyproject.toml``: versions and hints to install
    extras follow."""
    asks = re.compile(r"""(version|metadata)\(["']agentflow["']\)|agentflow\[[a-z]""")
    spelt = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in (ROOT / "agentflow").rglob("*.py")
        for line in path.read_text("utf-8").splitlines()
        if asks.search(line)
    ]
    assert not spelt, spelt
    with (ROOT / "pyproject.toml").open("rb") as file:
        assert tomllib.load(file)["project"]["name"] == NAME
    assert install("cli", "lsp") == f"pip install '{NAME}[cli,lsp]'" and own_version() == distribution(NAME).version
