"""Every option of a task, tool, question or run has an effect or is an error, on every surface, from one table."""

from __future__ import annotations

import ast
import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

import agentflow
from agentflow import AgentFlow, Limits, Provider, ScriptedProvider, Session, tool
from agentflow.core.data.errors import AgentflowError, ConfigurationError, SexpEvaluationError
from agentflow.flow.task_options import AskSettings, TaskSettings
from agentflow.handler.tools import ToolOptions, ToolSettings
from agentflow.lib.option_table import CALLED, NAMES, OPTIONS, Place, options_of

STUB = ast.parse(Path(agentflow.__file__).with_name("workflow.pyi").read_text("utf-8"))


def written(kind: type) -> dict[str, str]:
    """The annotations of a class as they are written, by field; inherited ones too."""
    return {name: str(each) for base in reversed(kind.__mro__) for name, each in inspect.get_annotations(base).items()}


def flow_of(*replies: Any, **options: Any) -> tuple[AgentFlow, ScriptedProvider]:
    """A flow whose model answers by a script."""
    model = ScriptedProvider(replies or ("ok",) * 9)
    return AgentFlow(provider=model, **options), model


# -- one table ---------------------------------------------------------------------------------------------------


def rows(place: Place) -> dict[str, str]:
    """The options of a place with their types."""
    return {each.name: each.kind for each in options_of(place)}


def test_type_checkers_know_the_rows_of_the_table() -> None:
    """Names and types of the TypedDicts of ``@flow.task``, ``flow.ask`` and ``@flow.tool``, and the fields of a tool's options."""

    def plain(kind: type) -> dict[str, str]:
        return {
            name: text.removeprefix("ForwardRef('").split("',")[0].removesuffix("')")
            for name, text in written(kind).items()
        }

    assert plain(TaskSettings) == rows("task")
    assert {
        **plain(AskSettings),
        "output": "type",
        "session": "Session | None",
        "purse": "str | None",
        "deps": "Any",
    } == rows("ask")
    assert plain(ToolSettings) == rows("tool")
    assert {field.name: field.type for field in fields(ToolOptions)} == rows("tool")
    assert get_type_hints(TaskSettings), "every name in the annotations is imported"


def test_the_stub_of_workflow_texts_knows_them() -> None:
    """``@task`` of ``agentflow.workflow`` has each option of a text, and no other."""
    overloads = [each for each in STUB.body if isinstance(each, ast.FunctionDef) and each.name == "task"]
    assert {argument.arg for each in overloads for argument in each.args.kwonlyargs} == NAMES["text"]


def test_no_place_has_an_option_twice() -> None:
    """A row is one option; a tool and a task may both have one of a name."""
    for place in CALLED:
        names = [each.name for each in OPTIONS if place in each.places]
        assert len(names) == len(set(names)), place


# -- what is not in it --------------------------------------------------------------------------------------------

SLIPS = [
    ("instructions", "system='You are ...'"),
    ("prompt", "the prompt is"),
    ("system_prompt", "system='You are ...'"),
    ("temperature", "settings={'temperature'"),
    ("max_tokens", "max_output_tokens=2000"),
    ("response_model", "Review"),
    ("output_type", "Review"),
    ("result_type", "Review"),
    ("deps_type", "flow.run(call, deps="),
    ("context_type", "flow.run(call, deps="),
    ("sub_agents", "handoffs=[billing]"),
    ("guardrails", "around_tool=[careful]"),
    ("is_function", "register_template"),
    ("params", "parameters"),
    ("sources", "file_paths"),
    ("limits", "flow.run(call, limits="),
    ("session", "flow.run(call, session="),
    ("timeout", "timeout_s"),
    ("max_retries", "retries"),
    ("efort", "effort"),
    ("nonsense", "the options are"),
]


@pytest.mark.parametrize(
    ("surface", "name", "said"),
    [
        (each, *slip)
        for each in ("task", "ask", "copy")
        for slip in SLIPS
        if each != "ask" or slip[0] not in NAMES["ask"]
    ],
)
async def test_an_unknown_option_is_refused_with_the_word_to_write(name: str, said: str, surface: str) -> None:
    """What other frameworks call an option, and what templates have, is an error before any model is asked, with a hint."""
    flow, model = flow_of()

    async def answer(question: str) -> str:
        """{{question}}"""

    async with flow:
        task = flow.task(answer)
        with pytest.raises(ConfigurationError) as refused:
            if surface == "ask":
                flow.ask("What is 2+2?", **({name: "x"} if name != "prompt" else {"instructions": "x"}))  # type: ignore[call-overload]
            elif surface == "copy":
                task.with_options(**{name: "x"})  # type: ignore[arg-type]
            else:
                flow.task(**{name: "x"})(answer)  # type: ignore[call-overload]
    assert refused.value.code == "config/option" and said in (refused.value.hint or "")
    assert model.requests == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tools": "search"}, "tools=['search']"),
        ({"tools": 3}, "tools=[search, "),
        ({"retries": "3"}, "retries=2"),
        ({"retries": -1}, "retries=2"),
    ],
)
async def test_a_value_that_an_option_cannot_have_is_refused(options: dict[str, Any], said: str) -> None:
    """A text in place of a list of tools is not a list of letters."""
    flow, _ = flow_of()
    async with flow:
        with pytest.raises(ConfigurationError) as refused:
            flow.ask("Why?", **options)
    assert refused.value.code == "config/option" and said in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"needs_approval": True}, "approval"),
        ({"name_override": "x"}, "name"),
        ({"timeout": 3}, "timeout_s"),
        ({"approve": True}, "approval"),
        ({"model": "x"}, "the options are"),
    ],
)
def test_a_tool_has_no_other_options(options: dict[str, Any], said: str) -> None:
    """``@tool`` and ``@flow.tool`` refuse what they do not know, alike."""

    def look(text: str) -> str:
        """Look."""
        return text

    flow, _ = flow_of()
    for declare in (tool, flow.tool):
        with pytest.raises(ConfigurationError) as refused:
            declare(**options)(look)  # type: ignore[operator]
        assert refused.value.code == "config/option" and said in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("text", "surface", "said"),
    [
        ('@task(instructions="Be brief.")\ndef f() -> str:\n    """Hi."""\nf()', "python", "system="),
        ('@task(temperature=0)\ndef f() -> str:\n    """Hi."""\nf()', "python", "settings="),
        ('@task(output_type="x")\ndef f() -> str:\n    """Hi."""\nf()', "python", "-> Review"),
        ('(defatom f (params) (prompt "Hi.")) (f)', "sexp", "instructions"),
        ('(defatom f (params) (instructions "Hi.") (system_prompt "x")) (f)', "sexp", "system"),
        ('(defatom f (params) (instructions "Hi.") (max_tokens 3)) (f)', "sexp", "max-output-tokens"),
    ],
)
async def test_texts_have_the_same_hints(text: str, surface: Any, said: str) -> None:
    """Unknown options of ``@task`` and ``defatom`` are named where they stand, with the word of the table."""
    flow, _ = flow_of()
    async with flow:
        with pytest.raises(SexpEvaluationError) as refused:
            flow.compile(text, surface=surface)
    assert refused.value.code == "defatom/option" and said in (refused.value.hint or "")


# -- what is in it has an effect ------------------------------------------------------------------------------------


async def test_a_prompt_with_a_system_text_sends_both() -> None:
    """``system=`` of ``ask`` follows that of the flow, and the prompt is sent beside them."""
    flow, model = flow_of(system="You work for ACME.")
    async with flow:
        await flow.ask("What is 2+2?", system="You add.")
        await flow.ask("What is 2+3?")
        assert flow.handler.base_system_prompt == "You work for ACME."
        await flow.handler.execute_prompt("What is 2+4?", system="You add.")
    assert [request.system for request in model.requests] == [
        "You work for ACME.\n\nYou add.",
        "You work for ACME.",
        "You work for ACME.\n\nYou add.",
    ]
    assert "What is 2+2?" in str(model.requests[0].messages)
    with pytest.raises(ConfigurationError) as refused:
        AgentFlow("offline", system=lambda ctx: "x")  # type: ignore[arg-type]
    assert refused.value.code == "config/option"


async def test_bounds_of_a_prompt_reach_the_request() -> None:
    """``max_output_tokens`` and ``settings`` are in the request, ``max_turns`` ends the loop."""
    flow, model = flow_of("ok", {"tool_calls": [{"name": "look", "arguments": {}}]})

    @flow.tool
    def look() -> str:
        """Look."""
        return "seen"

    async with flow:
        await flow.ask("Why?", max_output_tokens=123, settings={"temperature": 0})
        assert (model.requests[0].max_output_tokens, model.requests[0].settings) == (123, {"temperature": 0})
        with pytest.raises(AgentflowError) as ended:
            await flow.ask("Why?", tools=[look], max_turns=1)
    assert len(model.requests) == 2, ended.value


async def test_a_task_has_the_name_that_it_is_given() -> None:
    """Programs, events and models know a task by ``name=``; its description is what ``description=`` says."""
    flow, _ = flow_of()

    @flow.task(name="billing:answer", description="Answers questions about bills.", subtype="billing")
    async def answer(question: str) -> str:
        """{{question}}"""

    async with flow:
        assert ((await flow.run('(billing:answer (question "x"))')).value).content == "ok"
        template = flow.task_system.find_template("atomic:billing")
        assert template is not None and template.name == answer.name == answer.tool.name == "billing:answer"
        assert template.description == "Answers questions about bills."


async def test_a_copy_with_a_name_is_found_again_and_one_without_is_refused(tmp_path: Path) -> None:
    """``start`` of a copy needs a name under which another process finds it, not the original under other options."""
    flow, model = flow_of(durable=f"sqlite:///{tmp_path}/runs.db")

    @flow.task
    async def answer(question: str) -> str:
        """{{question}}"""

    careful = answer.with_options(name="careful", system="Be careful.")
    async with flow:
        with pytest.raises(ConfigurationError) as refused:
            await flow.start(answer.with_options(system="Be quick.")("x"))
        assert refused.value.code == "python/not-durable" and "with_options(name=" in (refused.value.hint or "")
        run = await flow.start(careful("x"), run_id="r")
        assert (await run.result()).value == "ok"
        assert (await flow.start(answer("x"), run_id="s")) is not None
        info = await flow.find_run("r")
        assert info is not None
    assert model.requests[0].system.endswith("Be careful.")


async def test_a_run_says_what_to_write_for_its_limits_and_session() -> None:
    """A dict in place of Limits, and a name in place of a session, are errors with the code to write."""
    flow, model = flow_of()

    @flow.task
    async def answer(question: str) -> str:
        """{{question}}"""

    async with flow:
        for run in (flow.run, flow.stream, flow.bounds):
            with pytest.raises(ConfigurationError) as refused:
                made = run("(+ 1 2)", limits={"usd": 1})  # type: ignore[operator, arg-type]
                if hasattr(made, "__await__"):
                    await made
            assert refused.value.code == "config/option" and "Limits(usd=1)" in (refused.value.hint or "")
        with pytest.raises(ConfigurationError) as refused:
            await flow.run(answer("x"), session="user-42")  # type: ignore[arg-type]
        assert "flow.session('user-42')" in (refused.value.hint or "")
        await flow.run(answer("x"), session=Session(), limits=Limits(tokens=10_000))
    with pytest.raises(ConfigurationError):
        AgentFlow("offline", limits={"usd": 1})  # type: ignore[arg-type]
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ({"instructions": "Be brief."}, "system="),
        ({"response_model": int}, "'output_model'"),
        ({"temperature": 0}, "settings="),
        ({"max_tokens": 5}, "max_output_tokens="),
        ({"sytem": "x"}, "system"),
    ],
)
async def test_a_prompt_of_the_handler_has_the_same_hints(option: dict[str, Any], instead: str) -> None:
    """``execute_prompt`` and ``stream_prompt`` refuse an option that there is not, with the word to write."""
    flow, _ = flow_of()
    async with flow:
        for ask in (flow.handler.execute_prompt, lambda text, **more: anext(flow.handler.stream_prompt(text, **more))):
            with pytest.raises(ConfigurationError) as refused:
                await ask("Why?", **option)
            assert refused.value.code == "config/option" and instead in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("llm", "the option is called 'model'"),
        ("instructions", "system='You are ...'"),
        ("provder", "did you mean 'provider'?"),
        ("temperature", "flow.ask('...', settings={'temperature': 0.2})"),
        ("retries", "flow.ask('...', retries=...)"),
        ("session", "flow.run(call, session=session)"),
        ("traits", "provider=Provider(traits="),
        ("clocks", "provider=Provider("),
        ("retry", "provider=Provider("),
        ("colour", "the options are "),
    ],
)
def test_an_unknown_parameter_of_a_flow_is_refused_with_the_word_to_write(name: str, said: str) -> None:
    """``AgentFlow(llm=...)`` says where what is meant goes; nothing was opened by then."""
    with pytest.raises(ConfigurationError) as refused:
        AgentFlow(provider=ScriptedProvider([]), **{name: 1})  # type: ignore[arg-type]
    assert refused.value.code == "config/option" and name in refused.value.message
    assert refused.value.hint is not None and said in refused.value.hint


@pytest.mark.parametrize(
    ("provider", "said"),
    [("offline", "write model='offline'"), ({"retry": {}}, "provider=Provider("), (Provider, "Provider(")],
)
def test_a_provider_is_an_adapter_or_the_options_of_one(provider: Any, said: str) -> None:
    """``provider="offline"`` names a model, and a mapping is no ``Provider``: both are refused when the flow is built."""
    with pytest.raises(ConfigurationError, match="not an adapter") as refused:
        AgentFlow(provider=provider)
    assert refused.value.code == "config/provider" and said in (refused.value.hint or "")
