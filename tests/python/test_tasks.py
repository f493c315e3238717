"""Tasks that are Python functions: what a signature declares, what a call gives, and the errors of typical slips."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel

from agentflow import AgentFlow, Limits, ScriptedProvider, TaskResult
from agentflow.errors import AgentflowError, ConfigurationError, DataError, InvalidOutput, TaskError, WorkflowError
from agentflow.events import Event, PartialOutput, RunStarted, TaskStarted
from agentflow.lib.signature import ToolInputError

LOW = '{"worst": "a loop", "grade": "low"}'


class Review(BaseModel):
    """An answer of a task."""

    worst: str
    grade: Literal["low", "high"]


@dataclasses.dataclass
class Window:
    """An argument, and an answer, that is a dataclass."""

    first: int
    last: int


def flow_of(tmp_path: Path, *replies: Any, **options: Any) -> tuple[AgentFlow, ScriptedProvider]:
    """A flow whose model answers by a script."""
    model = ScriptedProvider(replies)
    return AgentFlow(provider=model, root=str(tmp_path), **options), model


def prompts(model: ScriptedProvider) -> list[str]:
    """What the model was asked, without how it is to answer."""
    texts = [request.messages[-1].parts[0].text for request in model.requests]  # type: ignore[union-attr]
    return [text.partition("\n\n")[0] for text in texts]


async def test_docstring_is_the_prompt_and_the_annotation_the_answer(tmp_path: Path) -> None:
    """The docstring is rendered with the arguments and defaults; the answer is an instance of the annotated model."""
    flow, model = flow_of(tmp_path, LOW)

    @flow.task
    async def review(path: str, strict: bool = False) -> Review:
        """Name the worst bug in {{path}} (strict: {{strict}})."""

    async with flow:
        answer = await review("a.py")
    assert answer == Review(worst="a loop", grade="low")
    assert "Name the worst bug in a.py (strict: false)." in prompts(model)[0]


@pytest.mark.parametrize(
    ("kind", "reply", "value"),
    [
        (str, "anything", "anything"),
        (int, "7", 7),
        (list[int], "[1, 2]", [1, 2]),
        (Literal["good", "bad"], '"good"', "good"),
        (Review | None, "null", None),
        (Window, '{"first": 1, "last": 2}', Window(1, 2)),
        (list[Review], f"[{LOW}]", [Review(worst="a loop", grade="low")]),
        (dict[str, Window], '{"a": {"first": 1, "last": 2}}', {"a": Window(1, 2)}),
    ],
)
async def test_answers_of_any_type(tmp_path: Path, kind: Any, reply: str, value: Any) -> None:
    """Whatever type JSON can carry may be the answer, of a task and of ``ask``."""
    flow, _ = flow_of(tmp_path, reply, reply)

    async def task() -> Any:
        """Answer."""

    task.__annotations__["return"] = kind
    async with flow:
        assert await flow.task(task)() == value
        assert await flow.ask("Answer.", output=kind) == value


async def test_arguments_are_validated_before_any_model_is_asked(tmp_path: Path) -> None:
    """A wrong argument is refused by name, from Python and from a program, and no model is called."""
    flow, model = flow_of(tmp_path)

    @flow.task
    async def cut(window: Window, unit: Literal["line", "page"], least: int = 1) -> str:
        """Cut {{window}} by {{unit}}, {{least}} at least."""

    async with flow:
        with pytest.raises(ToolInputError, match="unit"):
            await cut(Window(1, 2), "word")  # type: ignore[arg-type]
        with pytest.raises(ToolInputError, match=r"window\.last"):
            await cut({"first": 1}, "line")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="takes 3 arguments"):
            await cut(Window(1, 2), "line", 1, 2)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="'window' twice"):
            await cut(Window(1, 2), "line", window=Window(1, 2))  # type: ignore[misc]
        with pytest.raises(AgentflowError, match="unit"):
            await flow.run('(value-of (cut (window (dict "first" 1 "last" 2)) (unit "word")))')
    assert model.requests == []


async def test_models_and_dataclasses_go_in_as_json(tmp_path: Path) -> None:
    """An argument that is a model or a dataclass stands in the prompt as JSON, its fields within reach of slots."""
    flow, model = flow_of(tmp_path, "ok")

    @flow.task
    async def cut(window: Window, review: Review) -> str:
        """{{window}} {{review.worst}}"""

    async with flow:
        await cut(Window(1, 2), review=Review(worst="x", grade="high"))
    assert prompts(model)[0] in ('{"first": 1, "last": 2} x', '{"first":1,"last":2} x')


async def test_programs_call_the_same_task(tmp_path: Path) -> None:
    """A task is callable from programs by name, with the same prompt, answer and events."""
    flow, model = flow_of(tmp_path, LOW, LOW)
    seen: list[Event] = []

    @flow.task
    async def review(path: str) -> Review:
        """Name the worst bug in {{path}}."""

    async with flow:
        flow.subscribe(seen.append)
        from_python = await review("a.py")
        count = len(seen)
        from_program = (await flow.run('(value-of (review (path "a.py")))')).value
    assert from_python == from_program
    assert [(e.path, type(e)) for e in seen[:count]] == [(e.path, type(e)) for e in seen[count:]]
    assert prompts(model)[0] == prompts(model)[1]


async def test_a_failed_task_raises_its_error_and_a_whole_result_does_not(tmp_path: Path) -> None:
    """The error of a FAILED result is raised; a function that returns TaskResult gives it as it is."""
    broken = {"error": "out of order"}
    flow, _ = flow_of(tmp_path, broken, broken, '{"worst": 1}', '{"worst": 1}', "no JSON", "no JSON")

    @flow.task
    async def text(topic: str) -> str:
        """About {{topic}}."""

    @flow.task
    async def whole(topic: str) -> TaskResult:
        """About {{topic}}."""

    async with flow:
        with pytest.raises(TaskError, match="out of order"):
            await text("cats")
        assert (await whole("cats")).failed
        with pytest.raises(TaskError) as missed:
            await flow.ask("Review.", output=Review)
        assert missed.value.reason == "output_format_failure"
        with pytest.raises(InvalidOutput):
            await flow.ask("Review.", output=Review)


async def test_retries_try_again_in_the_same_run(tmp_path: Path) -> None:
    """A task with ``retries`` is tried again after a failure, under the numbers that ``retry`` of a program draws."""
    flow, _ = flow_of(tmp_path, {"error": "out of order"}, "fine")
    seen: list[Event] = []

    @flow.task(retries=1)
    async def text(topic: str) -> str:
        """About {{topic}}."""

    async with flow:
        flow.subscribe(seen.append)
        assert await text("cats") == "fine"
    assert [e.path for e in seen if isinstance(e, TaskStarted)] == ["0/0.0", "0/2.0"]


async def test_options_and_copies(tmp_path: Path) -> None:
    """``with_options`` gives a copy that Python calls; programs go on to call the first."""
    flow, model = flow_of(tmp_path, "a", "b", "c")

    async def search(question: str) -> str:
        """Search."""
        return question

    @flow.task(system="Be brief.", tools=[search])
    async def text(topic: str) -> str:
        """About {{topic}}."""

    async with flow:
        other = text.with_options(model="scripted:other")
        assert [await text("x"), await other("x"), ((await flow.run('(text (topic "x"))')).value).content] == [
            "a",
            "b",
            "c",
        ]
    assert [request.model for request in model.requests] == ["", "scripted:other", ""]
    assert all("Be brief." in request.system for request in model.requests)
    assert [spec.name for spec in model.requests[0].tools] == ["search"]


async def test_options_of_the_model_reach_it(tmp_path: Path) -> None:
    """How hard to think is said to the model of a task and of ``ask``; an option that is none is refused by name."""
    flow, model = flow_of(tmp_path, "a", "b")

    @flow.task(effort="low")
    async def text(topic: str) -> str:
        """About {{topic}}."""

    async with flow:
        await text("x")
        await flow.ask("Why?", effort="high")
        with pytest.raises(ConfigurationError, match="efort"):
            await flow.ask("Why?", efort="high")  # type: ignore[call-overload]
    assert [request.effort for request in model.requests] == ["low", "high"]


async def test_a_call_is_a_run_with_limits_or_a_stream(tmp_path: Path) -> None:
    """``flow.run`` and ``flow.stream`` take a call; ``run.of`` gives one kind of events."""
    flow, _ = flow_of(tmp_path, LOW, LOW)

    @flow.task
    async def review(path: str) -> Review:
        """Name the worst bug in {{path}}."""

    async with flow:
        result = await flow.run(review("a.py"), limits=Limits(tokens=10_000), run_id="r-1")
        assert result.run_id == "r-1" and result.usage.requests == 1 and result.value.grade == "low"
        async with flow.stream(review("a.py")) as run:
            parts = [event.value async for event in run.of(PartialOutput)]
            assert (await run.value()).worst == "a loop"
    assert parts


async def test_a_call_names_the_line_it_was_made_on(tmp_path: Path) -> None:
    """Events and errors point to the call in the Python file, not into the package."""
    flow, _ = flow_of(tmp_path, {"error": "out of order"})
    seen: list[Event] = []
    async with flow:
        flow.subscribe(seen.append)
        with pytest.raises(TaskError) as failed:
            await flow.ask("Answer.")  # this line
    (started,) = [e for e in seen if isinstance(e, TaskStarted)]
    assert started.span is not None and failed.value.span is not None
    assert started.span.text == 'flow.ask("Answer.")' and started.span.source.name == __name__
    assert "this line" in failed.value.span.source.line(failed.value.span.line)
    assert [e.name for e in seen if isinstance(e, RunStarted)] == ["ask"]


async def unannotated(topic) -> str:  # type: ignore[no-untyped-def]
    """About {{topic}}."""


async def without_answer(topic: str):  # type: ignore[no-untyped-def]
    """About {{topic}}."""


async def misspelt(topic: str) -> str:
    """About {{topci}}."""


async def without_schema(topic: str) -> Callable[[], Awaitable[None]]:
    """About {{topic}}."""


async def without_prompt(topic: str) -> str: ...


def plain(topic: str) -> str:
    """About {{topic}}."""


@pytest.mark.parametrize(
    ("function", "kind", "code", "said"),
    [
        (unannotated, ConfigurationError, "python/annotation", "topic: str"),
        (without_answer, ConfigurationError, "python/annotation", "-> str"),
        (misspelt, DataError, "tasks/undeclared-parameter", "topic"),
        (without_schema, ConfigurationError, "python/returns", "TaskResult"),
        (without_prompt, ConfigurationError, "python/no-prompt", '"""'),
        (plain, ConfigurationError, "python/not-async", "async def"),
    ],
)
async def test_slips_are_named_where_the_task_is_declared(
    tmp_path: Path, function: Any, kind: type[AgentflowError], code: str, said: str
) -> None:
    """What a task cannot be is refused by its decorator, with what to write instead."""
    flow, _ = flow_of(tmp_path)
    async with flow:
        with pytest.raises(kind) as refused:
            flow.task(function)
    assert refused.value.code == code and said in (refused.value.hint or "")


async def test_slips_of_calls_are_named(tmp_path: Path) -> None:
    """A call that was not awaited, was awaited twice, or is made of a closed flow says so."""
    flow, _ = flow_of(tmp_path, "a", "b")

    @flow.task
    async def text(topic: str) -> str:
        """About {{topic}}."""

    async with flow:
        with pytest.raises(WorkflowError) as forgotten:
            await text(text("cats"))  # type: ignore[arg-type]
        assert forgotten.value.code == "python/not-awaited"
        call = text("cats")
        assert await call == "a"
        with pytest.raises(WorkflowError) as twice:
            await call
        assert twice.value.code == "python/awaited-twice"
        with pytest.warns(RuntimeWarning, match=r"text\(\.\.\.\) at .* was never awaited"):
            text("cats")
        with pytest.raises(ConfigurationError) as bound:
            await flow.run(text("cats"), bindings={"x": 1})  # type: ignore[call-overload]
        assert bound.value.code == "python/bindings"
    with pytest.raises(ConfigurationError) as closed:
        await text("cats")
    assert closed.value.code == "flow/closed" and "async with" in (closed.value.hint or "")


async def test_a_body_that_returns_text_is_the_prompt(tmp_path: Path) -> None:
    """Text that the body returns replaces the docstring, from Python, from programs and for models; its arguments are typed."""
    flow, model = flow_of(tmp_path, *["ok"] * 4, LOW)

    @flow.task
    async def cut(window: Window, unit: str = "line") -> str:
        return f"Cut {window.last - window.first} times by {unit}."

    @flow.task
    async def review(path: str, strict: bool = False) -> Review:
        """Review {{path}}."""
        if strict:
            return f"Review {path}, strictly: {await flow.ask('Why?')}"  # type: ignore[return-value]
        return None  # type: ignore[return-value]

    async with flow:
        assert await cut(Window(1, 4)) == "ok"
        assert (await flow.run('(content (cut (window (dict "first" 1 "last" 3)) (unit "page")))')).value == "ok"
        assert await flow.run(cut(Window(1, 2)), limits=Limits(tokens=10_000))
        assert (await review("a.py", strict=True)).grade == "low"
        with pytest.raises(AgentflowError):
            await review("b.py")  # asked, and no reply is left
    assert prompts(model)[:3] == ["Cut 3 times by line.", "Cut 2 times by page.", "Cut 1 times by line."]
    assert prompts(model)[3:5] == ["Why?", "Review a.py, strictly: ok"]
    assert prompts(model)[5] == "Review b.py."


async def test_a_model_calls_a_task_whose_body_is_its_prompt(tmp_path: Path) -> None:
    """Offered as a tool, the body gets what the model said in its types, and its text is what the subtask is asked. Arguments that do
    not fit come back to the model as an error, and the body does not run; what the body does, it does with the host's authority.
    """
    asked: list[Any] = []
    windows = ({"first": 1}, {"first": 1, "last": 4}, {"first": 0, "last": 0})
    cuts, last = [{"tool_calls": [{"name": "cut", "arguments": {"window": window}}]} for window in windows], "done"
    flow, model = flow_of(tmp_path, *cuts[:2], "in three", cuts[2], "twice", "in two", last)

    @flow.task
    async def cut(window: Window, unit: str = "line") -> str:
        """Cut a window."""
        asked.append(window)
        times = window.last - window.first
        return f"Cut {times} times by {unit}." if times else await flow.ask("How often?")

    @flow.task(tools=[cut])
    async def work(text: str) -> str:
        """{{text}}"""

    async with flow:
        result = await flow.run(work("Begin."))
    assert result.value == last and result.usage.requests == 7 and asked == [Window(1, 4), Window(0, 0)]
    told = [request.messages[-1].parts[0].text for request in model.requests]  # type: ignore[union-attr]
    assert "'last' is missing" in told[1] and told[2] == "Cut 3 times by line." and told[3] == "in three"
    assert told[4:6] == ["How often?", "twice"]


async def test_a_body_that_gives_no_prompt(tmp_path: Path) -> None:
    """A body that raises, or gives what is not text, fails the task by name, with its own error as the cause."""
    flow, model = flow_of(tmp_path)

    @flow.task
    async def number(topic: str) -> int:
        """About {{topic}}."""
        return len(topic)

    @flow.task
    async def raising(topic: str) -> str:
        return {"a": "b"}[topic]

    @flow.task
    async def nothing(topic: str) -> str:
        return topic

    @flow.task
    async def checked(topic: str) -> str:
        """About {{topic}}."""
        raise NotImplementedError

    async with flow:
        for call, code in (
            (number("cats"), "python/prompt"),
            (raising("x"), "host/raised"),
            (nothing(""), "tasks/empty-prompt"),
        ):
            with pytest.raises(TaskError) as refused:
                await call
            assert refused.value.code == code
        with pytest.raises(AgentflowError) as asked:
            await checked("cats")
        assert asked.value.code == "provider/script-ended"
    assert prompts(model) == ["About cats."]


async def test_a_task_with_history() -> None:
    """``history=True`` sends what was said before and adds to it; no other task of the workflow does."""
    model = ScriptedProvider(lambda request: str(len(request.messages)))
    flow = AgentFlow(provider=model)

    @flow.task(history=True)
    async def converse(text: str) -> str:
        """{{text}}"""

    @flow.task
    async def judge(text: str) -> str:
        """{{text}}"""

    @flow.workflow
    async def both() -> list[str]:
        return [await task("x") for task in (converse, judge, converse, judge, converse)]

    assert await both() == ["1", "1", "3", "1", "5"]
