"""The face says what it has: a row for each parameter and attribute of a flow, on the API page too, which is made of it."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from agentflow import AgentFlow

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"


def rows(section: str) -> list[str]:
    """The names of a section of the class's docstring, which has a row for each."""
    text = inspect.cleandoc(AgentFlow.__doc__ or "")
    body = re.split(r"\n\n", text.partition(f"{section}:\n")[2])[0]
    return re.findall(r"^    (\w+): ", body, re.MULTILINE)


def test_every_parameter_has_a_row_of_its_own() -> None:
    """The API page shows the docstring: each parameter of the constructor once, and nothing else."""
    parameters = inspect.signature(AgentFlow).parameters.keys() - {"unknown"}
    assert sorted(rows("Parameters")) == sorted(parameters)
    assert "::: agentflow.app.AgentFlow" in PAGE.read_text("utf-8")


async def test_every_public_attribute_is_documented() -> None:
    """What a flow has is documented in its class, or private; methods and properties have docstrings of their own."""
    async with AgentFlow(model="offline") as flow:
        public = {name for name in vars(flow) if not name.startswith("_")}
    assert public == set(rows("Attributes"))
    members = [name for name in dir(AgentFlow) if not name.startswith("_")]
    bare = [name for name in members if not inspect.getdoc(inspect.getattr_static(AgentFlow, name))]
    assert not bare
