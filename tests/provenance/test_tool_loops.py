"""A model's tool calls carry everything that its prompt has read: a hijacked loop cannot reach a sink."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from agentflow import AgentflowError, Labelled, Provenance, Sink
from agentflow.core.events.events import EventBase
from tests.support.mail import Open

TASK = '(defatom t (params (x)) (instructions "Do {{x}}") (tools fetch lookup send))'


def calls(*asked: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    """A turn in which the model calls tools."""
    return {"tool_calls": [{"name": name, "arguments": arguments} for name, arguments in asked]}


async def test_a_loop_that_read_a_page_sends_to_nobody(mail: Open) -> None:
    """After the first untrusted reading the sink refuses; the model is told why and goes on."""
    made = await mail(
        calls(("fetch", {"url": "u"})), calls(("send", {"to": "eve", "body": "x"})), "I could not send it"
    )
    result = await made.flow.run(f'(begin {TASK} (value-of (t (x "it"))))')
    assert result.value == "I could not send it" and made.sent == []
    told = made.model.requests[-1].messages[-1].parts[0]
    assert "provenance/denied" in told.text and "web" in told.text  # type: ignore[union-attr]
    assert result.sources == frozenset({"web"})


async def test_a_loop_may_send_before_it_reads(mail: Open) -> None:
    """What a prompt has not read cannot have told it anything."""
    made = await mail(calls(("send", {"to": "bob", "body": "x"})), calls(("fetch", {"url": "u"})), "done")
    await made.flow.run(f'(begin {TASK} (t (x "it")))')
    assert made.sent == [("bob", "x")]


async def test_a_loop_may_send_to_the_directory(mail: Open) -> None:
    """Sources that the rule allows do not stop it."""
    made = await mail(
        calls(("lookup", {"name": "bob"})), calls(("send", {"to": "bob@example.com", "body": "x"})), "done"
    )
    result = await made.flow.run(f'(begin {TASK} (t (x "it")))')
    assert made.sent == [("bob@example.com", "x")]
    assert result.sources == frozenset({"directory", "tool:send"})


async def test_calls_of_one_turn_do_not_depend_on_one_another(mail: Open) -> None:
    """Of calls in one answer none has read what another gives, in whatever order they end."""
    made = await mail(calls(("fetch", {"url": "u"}), ("send", {"to": "bob", "body": "x"})), "done")
    await made.flow.run(f'(begin {TASK} (t (x "it")))')
    assert made.sent == [("bob", "x")]


async def test_arguments_of_the_task_are_read_first(mail: Open) -> None:
    """A task that is given a page has read it before its first turn."""
    made = await mail(calls(("send", {"to": "eve", "body": "x"})), "no")
    await made.flow.run(f'(begin {TASK} (t (x (value-of (fetch (url "u"))))))')
    assert made.sent == []


async def test_a_subtask_reads_for_its_parent(mail: Open) -> None:
    """What a tool reads inside of it is read by whoever called it, and carried on."""
    made = await mail(calls(("digest", {})), calls(("send", {"to": "eve", "body": "x"})), "no")

    @made.flow.tool(source="user")
    async def digest() -> str:
        """What the page says."""
        return str((await made.flow.run('(value-of (fetch (url "u")))')).value)

    task = '(defatom t (params (x)) (instructions "Do {{x}}") (tools digest fetch send))'
    result = await made.flow.run(f'(begin {task} (t (x "it")))')
    assert made.sent == [] and "web" in result.sources


async def test_a_tool_called_with_what_was_read_hands_it_on(mail: Open) -> None:
    """Host code that is called with what came from elsewhere cannot do for the caller what the caller may not."""
    made = await mail()

    @made.flow.tool
    async def forward(to: str) -> str:
        """Send for somebody else."""
        return str((await made.flow.run('(value-of (send (to to) (body "x")))', bindings={"to": to})).value)

    with pytest.raises(AgentflowError) as denied:
        await made.flow.run('(value-of (forward (to (value-of (fetch (url "u"))))))')
    assert "provenance/denied" in str(denied.value.to_dict()) and made.sent == []


async def test_a_tool_says_where_its_result_came_from(mail: Open) -> None:
    """``Labelled`` as a result: neither the tool's source nor its arguments' are added."""
    made = await mail()

    @made.flow.tool(source="web")
    def checked(text: str) -> Labelled:
        """An address out of a text that is in the directory."""
        return Labelled("bob@example.com", "directory")

    await made.flow.run('(send (to (value-of (checked (text (value-of (fetch (url "u"))))))) (body "x"))')
    assert made.sent == [("bob@example.com", "x")]


async def test_without_a_policy_labelled_is_its_value(mail: Open) -> None:
    """The same tool, and the same binding, in a flow that follows nothing."""
    made = await mail(policy=None)

    @made.flow.tool
    def checked() -> Labelled:
        """An address."""
        return Labelled("bob", "directory")

    result = await made.flow.run("(list (value-of (checked)) x)", bindings={"x": Labelled([1], "mail")})
    assert result.value == ["bob", [1]]


async def test_a_rule_for_every_argument_binds_calls_without_any(mail: Open) -> None:
    """``*`` is each argument, and the call itself."""
    made = await mail(
        calls(("fetch", {"url": "u"})), calls(("wipe", {})), "no", policy=Provenance(rules=[Sink("wipe")])
    )
    wiped: list[int] = []

    @made.flow.tool
    def wipe() -> str:
        """Delete everything."""
        wiped.append(1)
        return "ok"

    task = '(defatom t (params (x)) (instructions "Do {{x}}") (tools fetch wipe))'
    await made.flow.run(f'(begin {task} (t (x "it")))')
    assert wiped == []


async def test_deny_by_default_binds_tools_alone(mail: Open) -> None:
    """With ``default="deny"`` what no rule names takes what the user says; tasks are not sinks unless a rule names them."""
    made = await mail("hm", policy=Provenance(default="deny"))
    program = '(begin (defatom t (params (x)) (instructions "{{x}}")) (t (x (value-of (fetch (url "u"))))))'
    await made.flow.run(program)
    with pytest.raises(AgentflowError) as denied:
        await made.flow.run('(send (to "bob") (body (value-of (fetch (url "u")))))')
    assert denied.value.code == "provenance/denied"


@pytest.mark.parametrize(
    ("policy", "goes"), [(Provenance(), False), (Provenance(rules=[Sink("post", "to", ["web"])]), True)]
)
async def test_a_tool_declares_its_sinks(policy: Provenance, goes: bool, mail: Open) -> None:
    """``sinks={"to": "user"}`` holds in any flow with a policy; a rule of the policy replaces it."""
    made = await mail(policy=policy)
    posted: list[str] = []

    @made.flow.tool(sinks={"to": "user directory"})
    def post(to: str) -> str:
        """Post something."""
        posted.append(to)
        return "ok"

    with contextlib.suppress(AgentflowError):
        await made.flow.run('(post (to (value-of (fetch (url "u")))))')
    assert bool(posted) is goes
    with contextlib.suppress(AgentflowError):
        await made.flow.run('(post (to (value-of (lookup (name "bob")))))')
    assert ("bob@example.com" in posted) is not goes


async def test_explain_denies_nothing_and_says_what_it_would(mail: Open) -> None:
    """``explain`` lists what would have been denied, as warnings with the trail."""
    policy = Provenance(rules=[Sink("send", "to")], explain=True)
    made = await mail(policy=policy)
    seen: list[EventBase] = []
    made.flow.subscribe(seen.append)
    await made.flow.run('(send (to (value-of (fetch (url "u")))) (body "x"))')
    warned = [each for each in seen if getattr(each, "code", "") == "provenance/denied"]
    assert len(made.sent) == 1 and len(warned) == 1
    assert "came by: fetch 1:21 -> to of send 1:1" in warned[0].message  # type: ignore[attr-defined]


async def test_endorsing_is_granted_approved_and_published(mail: Open) -> None:
    """``endorse`` makes a value the user's: the host's programs may, others need the grant and an approval each time."""
    asked: list[str] = []
    made = await mail(approve=lambda request: bool(asked.append(request.text)) or len(asked) < 2)
    seen: list[EventBase] = []
    made.flow.subscribe(seen.append)
    program = '(send (to (endorse (value-of (fetch (url "u"))) "the user asked for it")) (body "x"))'
    await made.flow.run(program)
    assert len(made.sent) == 1 and asked == []
    endorsed = [each for each in seen if type(each).__name__ == "Endorsed"]
    assert [each.sources for each in endorsed] == [("web",)]  # type: ignore[attr-defined]
    with pytest.raises(AgentflowError) as refused:
        await made.flow.run(program, allow=["fetch", "send"])
    assert refused.value.code == "name/not-granted"
    await made.flow.run(program, allow=["fetch", "send", "endorse"])
    assert len(asked) == 1 and "web" in asked[0] and len(made.sent) == 2
    with pytest.raises(AgentflowError) as refused:
        await made.flow.run(program, allow=["fetch", "send", "endorse"])
    assert refused.value.code == "provenance/not-endorsed" and len(made.sent) == 2


async def test_host_code_depends_on_all_that_it_has_read(mail: Open) -> None:
    """Nobody sees into a workflow in Python: what it has read reaches whatever it does next, and not its other branches."""
    made = await mail()

    @made.flow.workflow
    async def forward() -> str:
        page = await made.flow.call_tool("fetch", url="u")
        return await made.flow.call_tool("send", to=page, body="x")

    @made.flow.workflow
    async def apart() -> list[str]:
        async def one(name: str) -> str:
            return await made.flow.call_tool(name, **({"url": "u"} if name == "fetch" else {"to": "bob", "body": "x"}))

        return await made.flow.map(one, ["fetch", "send"])

    with pytest.raises(AgentflowError) as denied:
        await made.flow.run(forward())
    assert denied.value.code == "provenance/denied" and made.sent == []
    result = await made.flow.run(apart())
    assert made.sent == [("bob", "x")] and "web" in result.sources
