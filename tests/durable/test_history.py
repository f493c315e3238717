"""What was said before is part of what a task asks for: its digest is the same in every process."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentflow import AgentFlow, ScriptedProvider, Session
from agentflow.core.data.errors import JournalError
from agentflow.core.data.messages import ModelRequest, user
from tests.durable.world import Flow, World, interrupted

KEY = "sk-live-0123456789abcdefghij"


def test_a_digest_says_what_was_said() -> None:
    """Equal exchanges have equal digests, forked, joined, read back or taken back; another order has another."""
    one, two, three = (user("one"),), (user("two"),), (user("three"),)
    session = Session()
    empty = session.digest()
    session.commit(one)
    session.commit(two)
    both = session.digest()
    assert both == Session.from_json(session.to_json()).digest() != empty
    mark = session.mark()
    session.commit(three)
    assert session.digest() != both and session.digest(0) == empty
    session.go_back(mark)
    assert session.digest() == both

    fork = session.fork()
    assert fork.digest() == both
    fork.commit(three)
    session.join([fork])
    assert session.digest() == fork.digest() and session.fork().digest() == session.digest()

    last = Session()
    last.commit(two)
    last.commit(three)
    assert session.digest(2) == last.digest() and session.digest(9) == session.digest()
    swapped = Session()
    swapped.commit(three)
    swapped.commit(two)
    assert swapped.digest() != last.digest()
    last.reset()
    assert last.digest() == empty


async def test_later_tasks_are_told_what_replayed_steps_gave(world: World, flow: Flow) -> None:
    """A task that accumulates is told of the steps before it, also of those that were answered from records."""
    text = """
    (defatom ask (params (q string)) (instructions "{{q}}") (history_config '((use_session_history false)))
      (context (accumulate_data true) (accumulation_format full_output)))
    (list (content (look (at "a"))) (content (look (at "b"))) (content (ask (q "what?"))))
    """
    await interrupted(world, flow, text, "b")
    told: list[str] = []

    def answer(request: ModelRequest) -> str:
        told.append(str(request.messages))
        return "done"

    async with flow(provider=ScriptedProvider(answer)) as second:
        await (await second.start(text, run_id="r")).result()
    assert "<a>" in told[0] and "<b>" in told[0]


async def test_secrets_in_the_history_are_out_of_it_at_once(
    world: World, flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is sent of an answer that held a secret is what is stored of it, before an interruption as after it."""
    monkeypatch.setenv("SERVICE_API_KEY", KEY)
    text = """
    (defatom ask (params (q string)) (instructions "{{q}}") (history_config true))
    (begin (ask (q (string-append "the key is " key))) (ask (q "again")) (look (at "x")) (content (ask (q "more"))))
    """
    await interrupted(world, flow, text, "x", bindings={"key": KEY})
    async with flow() as second:
        handle = await second.start(text, {"key": KEY}, run_id="r")
        assert (await handle.result()).value == "answer to more after 5"
    assert world.done["again"] == 1


async def test_another_model_is_another_task(world: World, tmp_path: Path) -> None:
    """The model that answers is part of what was asked, whether the task names it or the flow."""
    text = '(defatom ask (params (q string)) (instructions "{{q}}")) (list (ask (q "one")) (look (at "x")))'

    def opened(model: str) -> AgentFlow:
        return AgentFlow(
            model, provider=ScriptedProvider(world.answer), tools=[world.look], durable=f"sqlite:///{tmp_path}/r.db"
        )

    world.hold.add("x")
    async with opened("first") as flow:
        await flow.start(text, run_id="r")
        await world.reached.wait()
    world.hold.clear()
    async with opened("second") as flow:
        with pytest.raises(JournalError) as caught:
            await (await flow.resume("r")).result()
    assert caught.value.code == "durable/mismatch" and world.done == {"one": 1}
