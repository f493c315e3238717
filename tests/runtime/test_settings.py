"""``agentflow.toml`` and its variables: what is wrong is said when the file is read, with its key and its mend."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentflow.app import AgentFlow
from agentflow.core.errors import AgentflowError, ConfigurationError
from agentflow.core.limits import Limits
from agentflow.settings import Settings, load_settings, read_limits

WRONG = [
    ("modle = 'offline'", "modle: there is no such setting", "model"),
    ("fallbacks = 'openai:gpt-5'", "fallbacks: ", 'fallbacks = ["..."]'),
    ("fallbacks = ['a', 3]", "fallbacks[1]: ", ""),
    ("[limits]\nstps = 3", "limits: there is no limit 'stps'", "steps"),
    ("[limits]\nsteps = 'many'", "limits: Limits(steps='many')", "Limits(steps="),
    ("[limits]\nusd = -1", "limits: Limits(usd=-1)", "Limits(usd="),
    ("[model]\nname = 'x'", "model: ", ""),
    ("model = 'gpt-5'", "model: the model 'gpt-5'", "openai:gpt-5"),
    ("model = gpt-5", "line 1", "quotes"),
    ("base_url = 'http://localhost:0'", "base_url: ", "http://localhost:8080/v1"),
    ("sandbox = 'bublewrap'", "sandbox: ", "bubblewrap"),
    ("allow_commands = ['git \"log']", "allow_commands: the command rule 'git \"log'", ""),
    ("decompose = 'yes'", "decompose: ", ""),
]


@pytest.mark.parametrize(("text", "said", "mend"), WRONG, ids=[text for text, _, _ in WRONG])
def test_a_wrong_setting_is_named_with_its_file_and_key(text: str, said: str, mend: str, tmp_path: Path) -> None:
    """Unknown keys, wrong types and values that the part they are for refuses: file, key and mend are said."""
    (tmp_path / "agentflow.toml").write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        load_settings(tmp_path, {})
    assert str(tmp_path / "agentflow.toml") in caught.value.message
    assert said in caught.value.message
    assert mend in (caught.value.hint or "")


def test_a_wrong_variable_is_named() -> None:
    """A value from the environment is blamed on its variable."""
    with pytest.raises(ConfigurationError, match="AGENTFLOW_MODEL: model: the model 'gpt-5'"):
        load_settings(Path("/nonexistent"), {"AGENTFLOW_MODEL": "gpt-5"})


def test_limits_of_a_file_are_the_limits_of_a_run(tmp_path: Path) -> None:
    """Names and numbers give Limits over the defaults, or over others."""
    (tmp_path / "agentflow.toml").write_text("[limits]\nsteps = 5\nusd = 0.5\n")
    assert load_settings(tmp_path, {}).make_limits() == Limits(steps=5, usd=0.5)
    assert read_limits({"turns": 2}, Limits(steps=7)) == Limits(steps=7, turns=2)


@pytest.mark.parametrize("setting", ["root", "tasks"])
def test_a_directory_that_is_none_is_refused(setting: str, tmp_path: Path) -> None:
    """A root or a directory of tasks that does not exist, or is a file, is said when the flow is built."""
    (tmp_path / "file").touch()
    for path, what in ((tmp_path / "gone", "does not exist"), (tmp_path / "file", "is not a directory")):
        with pytest.raises(ConfigurationError, match=what) as caught:
            AgentFlow(settings=Settings.model_validate({setting: str(path)}))
        assert caught.value.code == "config/directory"
        assert f"--{setting}" in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["review.sexp", "./flows/review.sexp", "my flows/review.sexp"])
async def test_the_name_of_a_file_is_not_the_text_of_a_program(name: str) -> None:
    """A str is program text: a file's name in its stead is refused, with the Path to write; texts that end alike are not."""
    async with AgentFlow() as flow:
        for use in (flow.run(name), flow.eval(name), flow.define(name)):
            with pytest.raises(AgentflowError) as caught:
                await use
            assert caught.value.code == "program/file-name"
            assert caught.value.hint == f"write Path({name!r})"
        assert await flow.eval('"review.sexp"') == "review.sexp"
        assert await flow.eval("7 ; as in review.sexp") == 7
