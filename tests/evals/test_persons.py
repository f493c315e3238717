"""The person in a case: scripted turns, then a function or a task that plays the person."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ConfigurationError, ScriptedProvider
from agentflow.evals import Case, contains, read_cases


def chat(flow: AgentFlow) -> Any:
    """A workflow that asks until the person says goodbye, and gives all that the person said."""

    @flow.task
    async def reply(said: str) -> str:
        """Reply to: {{said}}"""
        raise NotImplementedError

    @flow.workflow
    async def conversation(opening: str) -> list[str]:
        heard: list[str] = []
        said = opening
        while said != "bye":
            said = await flow.ask_human(await reply(said), str)
            heard.append(said)
        return heard

    return conversation


class Counting:
    """A model that repeats its last message; whoever plays the person says goodbye in the second turn."""

    def __init__(self) -> None:
        self.asked = 0
        self.provider = ScriptedProvider(self.reply)

    def reply(self, request: Any) -> str:
        self.asked += 1
        text = request.messages[-1].text
        if not text.startswith("You play"):
            return f"<{text}>"
        return "bye" if "a museum" in text.partition("so far:")[2] else "a museum"

    def since(self) -> int:
        count, self.asked = self.asked, 0
        return count


async def test_the_turns_of_a_case_answer_in_their_order(tmp_path: Path) -> None:
    """In files too; a program that asks once more ends the sample as blocked, and so does a wrong kind of answer as failed."""
    (tmp_path / "cases.jsonl").write_text(
        '{"opening": "hi", "turns": ["Oslo", "bye"], "name": "two"}\n'
        '{"opening": "hi", "turns": ["Oslo"], "name": "short"}\n{"opening": "bye", "name": "none"}\n'
        '{"opening": "hi", "turns": [3, "bye"], "name": "odd"}\n'
    )
    cases = read_cases(tmp_path / "cases.jsonl")
    assert cases[0].turns == ("Oslo", "bye") and read_cases([cases[0].to_dict()]) == cases[:1]
    assert cases[0].digest != cases[1].digest
    model = Counting()
    async with AgentFlow(provider=model.provider, durable=f"sqlite:///{tmp_path}/runs.db") as flow:
        report = await flow.evaluate(chat(flow), cases, repeat=2)
        told = {(each.case.name, each.draw): each for each in report.samples}
        assert [told["two", draw].value for draw in (0, 1)] == [["Oslo", "bye"]] * 2, (
            "from the first turn in each sample"
        )
        assert told["none", 0].value == [] and told["odd", 0].status == "failed"
        assert told["short", 0].status == "blocked" and "<Reply to: Oslo>" in told["short", 0].reason
        report = await flow.evaluate(chat(flow), cases[1:2], answer=lambda question: "bye")
        assert report.samples[0].value == ["Oslo", "bye"], "after the turns of the case"


async def test_a_task_plays_the_person(tmp_path: Path) -> None:
    """It takes the question, the conversation and the case by name; its answers are kept, and drawn for each draw."""
    model = Counting()
    async with AgentFlow(provider=model.provider, durable=f"sqlite:///{tmp_path}/runs.db") as flow:

        @flow.task
        async def person(asked: str, opening: str, conversation: list[dict[str, str]]) -> str:
            """You play somebody who began with {{opening}}. Answer {{asked}}; so far: {{conversation}}"""
            raise NotImplementedError

        program, cases = chat(flow), [{"opening": "hi"}]
        report = await flow.evaluate(program, cases, answer=person)
        assert report.samples[0].value == ["a museum", "bye"]
        assert (model.since(), report["base"].calls_paid, report.judging_calls) == (4, 2, 2)
        await flow.evaluate(program, cases, answer=person)
        assert model.since() == 0
        await flow.evaluate(program, cases, answer=person, repeat=2)
        assert model.since() == 4
        other = {"polite": {"reply": {"instructions": "Please reply to: {{said}}"}}}
        report = await flow.evaluate(program, cases, answer=person, variants=other, scorers=[contains("museum")])
        assert (model.since(), report["polite"].score("contains").mean) == (4, 1.0)


async def test_a_recorded_conversation_answers_before_the_person(tmp_path: Path) -> None:
    """A question that a record answers is not asked; turns are for the others."""
    model = Counting()
    async with AgentFlow(
        provider=model.provider, durable=f"sqlite:///{tmp_path}/runs.db", answer=lambda q: "bye"
    ) as flow:
        await (await flow.start(chat(flow)("hi"), run_id="real")).result()
        report = await flow.evaluate(None, [Case(run_id="real", turns=("never",))], variants={"same": {"reply": {}}})
        assert {each.value[0] for each in report.samples} == {"bye"}
        polite = {"polite": {"reply": {"instructions": "Please reply to: {{said}}"}}}
        report = await flow.evaluate(None, [Case(run_id="real", turns=("Oslo", "bye"))], variants=polite)
        assert report["polite"].samples[0].value == ["Oslo", "bye"], "another question"


async def test_wrong_turns_and_persons_say_what_to_write(tmp_path: Path) -> None:
    """One text as the turns, and a task that wants what there is not."""
    with pytest.raises(ConfigurationError, match="has the turns 'Yes'") as wrong:
        read_cases([{"opening": "hi", "turns": "Yes"}])
    assert wrong.value.hint == "a list: ['Yes.', 'On Monday.']"
    async with AgentFlow(provider=Counting().provider, durable=f"sqlite:///{tmp_path}/runs.db") as flow:

        @flow.task
        async def person(question: str) -> str:
            """{{question}}"""
            raise NotImplementedError

        report = await flow.evaluate(chat(flow), [{"opening": "hi"}], answer=person)
        assert "'person' wants 'question': it may have opening, case, expected, asked" in report.samples[0].reason
