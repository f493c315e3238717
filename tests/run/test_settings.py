"""``agentflow.toml`` and its variables: what is wrong is said when the file is read, with its key and its mend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentflow import Allowance, ScriptedProvider
from agentflow.app import AgentFlow
from agentflow.cli.admin.trust import trust_file
from agentflow.core.data.errors import AgentflowError, ConfigurationError
from agentflow.core.data.limits import Limits
from agentflow.core.data.messages import Usage
from agentflow.errors import PurseEmpty
from agentflow.file_rules import FILE_RULES
from agentflow.providers.prices import Price, Prices
from agentflow.settings import Settings, load_settings, read_file, read_limits
from tests.support.values import value_of

WRONG = [
    ("modle = 'offline'", "modle: there is no such setting", "model"),
    ("fallbacks = 'openai:gpt-5'", "fallbacks: ", 'fallbacks = ["..."]'),
    ("fallbacks = ['a', 3]", "fallbacks[1]: ", ""),
    ("[limits]\nstps = 3", "limits: there is no limit 'stps'", "steps"),
    ("[limits]\nsteps = 'many'", 'limits: steps = "many"', "for example steps = 10000000"),
    ("[limits]\nusd = -1", "limits: usd = -1", "for example usd = 0.5"),
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


FROM_A_FILE: dict[str, Any] = {
    "model": "offline",
    "fallbacks": ["openai:gpt-5"],
    "root": "src",
    "roots": ["src", "docs"],
    "tasks": "tasks",
    "workflows": "workflows",
    "deny_commands": ["git push *"],
    "limits": {"steps": 5, "wall_s": 1e9, "turns": 32},
    "rates": {"anthropic:*": {"requests_per_min": 5}},
    "model_settings": {"temperature": 0},
    "traits": {"output": "json_object"},
    "clocks": {"first_byte_s": 900},
    "retry": {"attempts": 1},
    "system": "",
    "concurrency": 3,
    "rerank": True,
    "surface": "python",
    "decompose": 2,
    "prompt_cache": "1h",
    "provenance": {"default": "deny"},
    "sandbox": "landlock",
    "base_url": "http://127.0.0.1:8080/v1",
}
IF_IT_IS_TRUSTED: dict[str, list[Any]] = {
    "root": ["..", "/", "out"],
    "roots": [["src", "../elsewhere"], ["/etc"], ["out"]],
    "tasks": ["../tasks"],
    "workflows": ["/tmp"],
    "allow_commands": [["git log *"]],
    "shell": [True],
    "readable": [["~/.cache"], ["data"]],
    "limits": [{"steps": 10_000_001}, {"output_chars": 1e9}],
    "system": ["Be brief."],
    "traits": [
        {"own": True},
        {"slots": 1_000},
        {"omit": ["max_tokens"]},
        {"call_id": "(a+)+"},
        {"least_limit": 100_000},
    ],
    "concurrency": [257],
    "retry": [{"attempts": 5}],
    "model_settings": [{"tools": [{"type": "web_search"}]}, {"service_tier": "priority"}],
    "mcp": [{"notes": {"command": "npx"}}],
    "purses": [{"user-*": {"usd": 5, "per": "1d"}}],
}
"""Values that widen, by setting; ``out`` is a link that leads out of the directory."""
NARROWS_UNTIL_THEN: dict[str, Any] = {"prices": {"openai-chat:llama": {"input": 1, "output": 1}}}
"""Values that are read from any file, and do all that they say in one that is trusted."""
NEVER_FROM_A_FILE: dict[str, Any] = {
    "sandbox": "none",
    "base_url": "https://elsewhere.example/v1",
    "api_key": "tomato-harbour-71",
    "embeddings": "nomic",
    "embeddings_url": "http://localhost:8080/v1",
    "otel": "http://localhost:4318",
    "durable": "sqlite:///runs.db",
    "record": True,
    "notes": "flow",
    "index_cache": ".cache",
}


def test_what_a_directorys_file_may_set(tmp_path: Path) -> None:
    """Every setting is one that a file of somebody else's project may give, one that it may give where the user trusts the
    file, or one that it may not: that is said, with why."""
    kinds = (FROM_A_FILE, IF_IT_IS_TRUSTED, NARROWS_UNTIL_THEN, NEVER_FROM_A_FILE)
    assert {*FILE_RULES} == {name for kind in kinds for name in kind} >= {*Settings.model_fields}
    rules = {name: rule for name, rule in FILE_RULES.items() if rule is not None}
    assert {name for name, rule in rules.items() if rule.trusting and not rule.counts} == {*IF_IT_IS_TRUSTED}
    assert {name for name, rule in rules.items() if rule.counts} == {*NARROWS_UNTIL_THEN}
    (tmp_path / "out").symlink_to("/")
    for name, values in IF_IT_IS_TRUSTED.items():
        for value in values:
            directory = _with_file(tmp_path, name, value)
            with pytest.raises(ConfigurationError, match=f"may not set {name}") as caught:
                load_settings(directory, {})
            assert "agentflow trust" in (caught.value.hint or "") and caught.value.code == "config/setting"
            assert trust_file(directory, forget=False, as_json=True) == 0
            assert getattr(load_settings(directory, {}), name) == value
            assert trust_file(directory, forget=True, as_json=True) == 0
    for name, value in NARROWS_UNTIL_THEN.items():
        directory = _with_file(tmp_path, name, value)
        for trusted in ((), (name,)):
            file = read_file(directory)
            assert getattr(load_settings(directory, {}), name) == value and file is not None and file.trusted == trusted
            assert trust_file(directory, forget=bool(trusted), as_json=True) == 0
    for name, value in FROM_A_FILE.items():
        assert getattr(load_settings(_with_file(tmp_path, name, value), {}), name) == value
    for name, value in NEVER_FROM_A_FILE.items():
        with pytest.raises(ConfigurationError, match=f"may not set {name}") as caught:
            load_settings(_with_file(tmp_path, name, value), {})
        rule = FILE_RULES[name]
        assert rule is not None and caught.value.hint == f"{rule.why}: {rule.instead}"


def test_trust_binds_what_would_run(tmp_path: Path) -> None:
    """A changed text, a changed script or makefile that a command of it runs, another program of that name and a link that leads
    elsewhere: each must be trusted again. What nothing runs may change."""
    text = (
        'roots = ["link"]\nallow_commands = ["python3 build.py *", "make"]\n[mcp.t]\ncommand = ["./serve", "--now"]\n'
    )
    file, link = tmp_path / "agentflow.toml", tmp_path / "link"
    for name in ("build.py", "Makefile", "serve", "notes.txt"):
        (tmp_path / name).write_text("first")
    (tmp_path / "serve").chmod(0o755)
    file.write_text(text)
    link.symlink_to("/usr")
    assert trust_file(tmp_path, forget=False, as_json=True) == 0
    load_settings(tmp_path, {})
    (tmp_path / "notes.txt").write_text("second")
    load_settings(tmp_path, {})
    for name in ("build.py", "Makefile", "serve"):
        (tmp_path / name).write_text("second")
        with pytest.raises(ConfigurationError, match="may not set"):
            load_settings(tmp_path, {})
        (tmp_path / name).write_text("first")
        load_settings(tmp_path, {})
    link.unlink()
    link.symlink_to("/etc")
    with pytest.raises(ConfigurationError, match="may not set roots"):
        load_settings(tmp_path, {})


def test_what_came_from_the_file_is_said(tmp_path: Path) -> None:
    """The names of the settings, and which of them count because the file is trusted."""
    (tmp_path / "agentflow.toml").write_text('model = "offline"\nshell = true\n')
    assert trust_file(tmp_path, forget=False, as_json=True) == 0
    file = read_file(tmp_path)
    assert file is not None and file.told() == "from agentflow.toml: model, shell (trusted)"
    assert read_file(tmp_path / "nowhere") is None


def test_what_a_file_may_not_set_arguments_and_variables_do(tmp_path: Path) -> None:
    """The user's own word counts, beside any file."""
    directory = _with_file(tmp_path, "model", "offline")
    assert load_settings(directory, {}, sandbox="none").sandbox == "none"
    url = "https://elsewhere.example/v1"
    assert load_settings(directory, {"AGENTFLOW_BASE_URL": url}).base_url == url


async def test_a_file_does_not_lower_a_price(tmp_path: Path) -> None:
    """A file's price of a model that has a known one counts only if it is higher."""
    known = Prices()
    known.load()
    usage = Usage(1_000, 1_000)
    for price, times in ((0.001, 1), (1_000, 2)):
        settings = load_settings(
            _with_file(tmp_path, "prices", {"openai:gpt-4o": {"input": price, "output": price}}), {}
        )
        async with AgentFlow("openai:gpt-4o", api_key="tomato-harbour-71", settings=settings) as flow:
            flow.router.prices.load()
            cost = flow.router.prices.cost("openai", "gpt-4o", usage)
            assert cost == (known.cost("openai", "gpt-4o", usage) if times == 1 else 2.0)


@pytest.mark.parametrize("price", [0, 0.001, 3])
async def test_a_file_prices_a_model_that_nobody_else_prices_once_it_is_trusted(tmp_path: Path, price: float) -> None:
    """Until then its price stays unknown, so that a limit in dollars holds; a price of the application's own counts in any case."""
    directory = _with_file(tmp_path, "prices", {"scripted-like:*": {"input": price, "output": price}})
    own = {"scripted-like:mine": Price(5, 5)}
    usage = Usage(1_000_000)

    async def costs() -> list[float | None]:
        async with AgentFlow(prices=own, settings=load_settings(directory, {})) as flow:
            return [flow.router.prices.cost("scripted-like", model, usage) for model in ("llama", "mine")]

    assert await costs() == [None, 5]
    assert trust_file(directory, forget=False, as_json=True) == 0
    assert await costs() == [price, 5]


async def test_purses_of_a_file_are_those_of_flows_that_are_given_none(tmp_path: Path) -> None:
    """``[purses]`` of a trusted file has names, patterns, limits and periods; what it misspells is said with its place."""
    (tmp_path / "agentflow.toml").write_text(
        '[purses]\n"user-*" = { model_calls = 1, per = "1d" }\nshared = { usd = 5 }\n', "utf-8"
    )
    assert trust_file(tmp_path, forget=False, as_json=True) == 0
    settings = load_settings(tmp_path, {})
    async with AgentFlow(provider=ScriptedProvider(lambda request: "fine"), settings=settings) as flow:
        assert await flow.ask("hi", purse="user-1") == "fine"
        with pytest.raises(PurseEmpty):
            await flow.ask("hi", purse="user-1")
        assert (await flow.purses.look("shared")).usd_left == 5
        with pytest.raises(ConfigurationError, match="nobody"):
            await flow.ask("hi", purse="nobody")
    async with AgentFlow(settings=settings, purses={"own": Allowance(usd=1)}) as flow:
        with pytest.raises(ConfigurationError, match="shared"):
            await flow.purses.look("shared")
    for wrong, message in (
        ({"user-*": {"dollars": 5}}, "has no 'dollars'"),
        ({"user-*": 5}, "is not a table"),
        ({"user-*": {"usd": -1}}, "usd=-1"),
        ({"user-*": {"usd": 1, "per": "soon"}}, "per='soon'"),
        ({"a b": {"usd": 1}}, "names no purse"),
    ):
        with pytest.raises(ConfigurationError, match=message) as caught:
            load_settings(tmp_path / "none", {}, purses=wrong)
        assert caught.value.code == "config/purse"


async def test_no_run_within_a_limit_of_dollars_uses_an_untrusted_price(tmp_path: Path) -> None:
    """The call does not begin, and the error says to trust the file."""
    (tmp_path / "agentflow.toml").write_text(
        'model = "openai-chat:llama"\nbase_url = "http://127.0.0.1:9/v1"\n'
        "[limits]\nusd = 1\n[prices.'*']\ninput = 0.001\noutput = 0.001\n"
    )
    async with AgentFlow(settings=load_settings(tmp_path, {})) as flow:
        with pytest.raises(AgentflowError) as caught:
            await flow.run(flow.ask("hi"))
    assert caught.value.code == "limits/unpriced" and "agentflow trust" in (caught.value.hint or "")


def _with_file(directory: Path, name: str, value: Any) -> Path:
    """``directory`` with a file that sets one thing, as JSON writes it where TOML does the same."""
    if isinstance(value, dict):
        lines = [f"[{name}]", *(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items())]
    else:
        lines = [f"{name} = {_toml(value)}"]
    (directory / "agentflow.toml").write_text("\n".join(lines))
    return directory


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value)


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
        for use in (flow.run(name), value_of(flow.run(name)), flow.define(name)):
            with pytest.raises(AgentflowError) as caught:
                await use
            assert caught.value.code == "program/file-name"
            assert caught.value.hint == f"write Path({name!r})"
        assert (await flow.run('"review.sexp"')).value == "review.sexp"
        assert (await flow.run("7 ; as in review.sexp")).value == 7
