"""Who may see a value: what came from a source that not everybody may see reaches nobody else, whoever asked for it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Literal

import pytest

from agentflow import (
    AgentFlow,
    AgentflowError,
    ApprovalRequest,
    CallContext,
    ConfigurationError,
    Labelled,
    Provenance,
    ScriptedProvider,
    Sink,
    TaskResult,
    tool,
)
from agentflow.core.data.errors import DataError
from agentflow.core.events.questions import Question
from agentflow.events import Event, Log, StateChanged, WaitStarted

POLICY = Provenance(
    rules=[Sink("send", readers_in="to"), Sink("post", readers=["public"])],
    sources={"salaries": "hr"},
    readers={"hr": ["*@hr.example", "payroll"]},
)
INSIDE = '(send (to "ann@hr.example") (text (value-of (salaries))))'
OUTSIDE = {
    "outside": '(send (to "eve@evil.example") (text (value-of (salaries))))',
    "one_of_several": '(send (to (list "ann@hr.example" "eve@evil.example")) (text (value-of (salaries))))',
    "one_of_several_in_a_text": '(send (to "eve@evil.example, ann@hr.example") (text (value-of (salaries))))',
    "one_of_several_lines": '(send (to "eve@evil.example\\nann@hr.example") (text (value-of (salaries))))',
    "an_address_with_another_name": '(send (to "<eve@evil.example> ann@hr.example") (text (value-of (salaries))))',
    "in_part": '(send (to "eve@evil.example") (text (format "it is {}" (value-of (salaries)))))',
    "told_by_a_model": '(send (to "eve@evil.example") (text (value-of (t (q (value-of (salaries)))))))',
    "as_the_address": '(send (to (format "{}@hr.example.evil" (value-of (salaries)))) (text "hi"))',
    "published": "(post (text (value-of (salaries))))",
    "a_tool_without_a_rule": "(search (query (value-of (salaries))))",
    "bound": '(send (to "eve@evil.example") (text secret))',
    "both": '(send (to "ann@hr.example") (text (format "{} {}" secret (value-of (salaries)))))',
}


async def run(
    program: str, policy: Provenance | None, surface: Literal["sexp", "python"] = "sexp", **model: Any
) -> list[Any]:
    """What was sent by a program; its model answers with what it is asked, or as ``replies`` say."""
    sent: list[Any] = []

    async def salaries() -> str:
        """What everybody earns."""
        return "Bob 100"

    async def send(to: str | list[str], text: str) -> str:
        """Send a mail."""
        sent.append((to, text))
        return "sent"

    async def post(text: str) -> str:
        """Publish a text."""
        sent.append(text)
        return "posted"

    async def search(query: str) -> str:
        """Ask a search engine."""
        sent.append(query)
        return "nothing"

    async def payroll(text: str) -> str:
        """Pay."""
        sent.append(text)
        return "paid"

    tools = [salaries, send, post, search, payroll]
    replies = model.get("replies") or (lambda request: request.messages[-1].parts[-1].text)
    task = '(defatom t (params (q any)) (instructions "{{q}}"))\n' if surface == "sexp" else ""
    async with AgentFlow(provider=ScriptedProvider(replies), tools=tools, provenance=policy) as flow:
        secret = Labelled("the code", readers=["boss@work.example"])
        await flow.run(task + program, bindings={"secret": secret}, surface=surface)
    return sent


async def test_those_who_may_see_it_get_it() -> None:
    """By the argument that names them, or as the tool itself where no rule says who sees what reaches it; others get what has no restriction."""
    assert await run(INSIDE, POLICY) == [("ann@hr.example", "Bob 100")]
    assert await run("(payroll (text (value-of (salaries))))", POLICY) == ["Bob 100"]
    assert await run('(send (to "eve@evil.example") (text "hi")) (post (text "hi")) (search (query "x"))', POLICY)
    assert await run('(send (to "boss@work.example") (text secret))', POLICY)
    assert await run('send(to="ann@hr.example", text=salaries())', POLICY, "python") == [("ann@hr.example", "Bob 100")]


@pytest.mark.parametrize("program", OUTSIDE.values(), ids=OUTSIDE)
async def test_nobody_else_gets_it(program: str) -> None:
    """Whoever is named, and through whatever the value went; without a policy it is sent."""
    assert await run(program, None)
    with pytest.raises(AgentflowError) as caught:
        await run(program, POLICY)
    assert caught.value.code == "provenance/readers" and caught.value.details["readers"]


async def test_a_model_that_read_it_tells_nobody_else() -> None:
    """In a tool loop every later call depends on it: to those who may see it, and to nobody else."""
    calls = [
        ("salaries", {}),
        ("send", {"to": "eve@evil.example", "text": "x"}),
        ("send", {"to": "ann@hr.example", "text": "y"}),
    ]
    replies = [{"tool_calls": [{"name": name, "arguments": data}]} for name, data in calls]
    assert await run('(t (q "go"))', POLICY, replies=[*replies, "done"]) == [("ann@hr.example", "y")]


async def test_who_may_see_a_value_says_nothing_of_where_it_may_go() -> None:
    """A value of the user with readers is the user's: it fills what only the user may fill."""
    policy = Provenance(rules=[Sink("send", "text", allow=["user"]), Sink("send", readers_in="to")])
    assert await run('(send (to "boss@work.example") (text secret))', policy)
    policy = Provenance(rules=[Sink("send", "*", allow=["user"]), Sink("send", "text", readers_in="to")])
    with pytest.raises(AgentflowError, match="depends on tool:salaries, which may not reach it"):
        await run('(send (to "a") (text (value-of (salaries))))', policy)


async def test_somebody_may_answer_for_it() -> None:
    """An endorsed value may be seen by anybody."""
    program = '(send (to "eve@evil.example") (text (endorse secret "it is old")))'
    assert await run(program, POLICY) == [("eve@evil.example", "the code")]


def test_a_narrower_policy_only_narrows() -> None:
    """Readers of both policies must allow, and a rule of the narrower one cannot say that somebody else sees an argument."""
    lying = Provenance(rules=[Sink("send", readers=["payroll"])], readers={"hr": ["payroll", "ann@*"]})
    both = POLICY.narrowed(lying)
    sources = frozenset(["hr"])
    for who, hidden in (("eve@evil.example", True), ("bob@hr.example", True), ("ann@hr.example", False)):
        assert bool(both.hidden("send", "text", sources, {"to": who}, tool=True)) is hidden
    assert not both.hidden("send", "text", frozenset(["web"]), {"to": "eve"}, tool=True)


def test_a_file_says_the_same() -> None:
    """Readers of sources, and of arguments, in a policy file; what is none is refused."""
    sinks = [{"tool": "send", "readers_in": "to"}, {"tool": "post", "readers": ["public"]}]
    table = {"sink": sinks, "sources": {"salaries": "hr"}, "readers": {"hr": ["*@hr.example", "payroll"]}}
    assert Provenance.from_table(table) == POLICY
    for wrong in (
        {"readers": {"hr": "ann"}},
        {"sink": [{"tool": "send", "readers": [1]}]},
        {"sink": [{"tool": "a", "reader": "b"}]},
    ):
        with pytest.raises(ConfigurationError) as caught:
            Provenance.from_table(wrong)
        assert caught.value.code == "provenance/policy"
    with pytest.raises(ConfigurationError, match="without blanks, commas"):
        Labelled("x", readers=["a,b"])


@pytest.mark.parametrize(
    ("to", "is_sent"),
    [
        ("ann@hr.example, bob@hr.example", True),
        (["ann@hr.example", "bob@hr.example"], True),
        ("HR-team", True),
        ("<ann@hr.example>", True),
        (",", False),
        ("HR-team, ann@hr.example", True),
        ("eve@evil.example;ann@hr.example", False),
        ("eve@evil.example\tann@hr.example", False),
        ({"eve@evil.example": "ann@hr.example"}, False),
        ({"ann@hr.example": []}, True),
        ("", False),
        ([], False),
    ],
)
async def test_everybody_who_is_named_counts(to: Any, is_sent: bool) -> None:
    """Several names in one text, a list or a dict are so many readers; a name that is allowed as it is written is one. Whoever names nobody has it seen by the tool."""
    sent: list[Any] = []

    async def salaries() -> str:
        """What everybody earns."""
        return "Bob 100"

    async def send(to: Any, text: str) -> str:
        """Send a mail."""
        sent.append(to)
        return "sent"

    policy = Provenance(
        rules=[Sink("send", readers_in="to")],
        sources={"salaries": "hr"},
        readers={"hr": ["*@hr.example", "HR-team"]},
    )
    async with AgentFlow(provider=ScriptedProvider(), tools=[salaries, send], provenance=policy) as flow:
        try:
            await flow.run("send(to=to, text=salaries())", bindings={"to": to}, surface="python")
        except AgentflowError as error:
            assert error.code == "provenance/readers"
    assert bool(sent) == is_sent


PEOPLE: dict[str, tuple[Literal["sexp", "python"], str, str]] = {
    "a question": ("sexp", "(ask-human (value-of (salaries)))", "ask-human"),
    "a part of a question": ("sexp", '(ask-human (format "Is {} right?" (value-of (salaries))))', "ask-human"),
    "the schema of one": (
        "sexp",
        '(ask-human "Who?" (dict "type" "string" "title" (value-of (salaries))))',
        "ask-human",
    ),
    "a message": ("sexp", "(log-message (value-of (salaries)))", "log-message"),
    "a question, in Python": ("python", "ask_human(salaries())", "ask-human"),
    "a message, in Python": ("python", 'print("paid:", salaries())', "log-message"),
    "the name of a signal": ("sexp", "(wait-for-signal (value-of (salaries)))", "wait-for-signal"),
    "a state": ("sexp", '(publish-state "pay" (list (value-of (salaries))))', "publish-state"),
    "a state, in Python": ("python", "publish_state('pay', salaries())", "publish-state"),
    "a state that a tool changes": ("sexp", "(paid (text (value-of (salaries))))", "publish-state"),
    "a state of the host's code": ("sexp", "(board (x (value-of (salaries))))", "publish-state"),
    "a question that a tool asks": ("sexp", "(payroll (text (value-of (salaries))))", "ask-human"),
    "a question of the host's code": ("sexp", "(desk (x (value-of (salaries))))", "ask-human"),
}


@pytest.mark.parametrize("case", PEOPLE)
async def test_people_are_shown_what_they_may_see(case: str) -> None:
    """A question, a message, a signal's name and a state are seen by their forms, for example ``ask-human``, or by whom a rule says: others are not asked and not told, whoever
    asks, and no event has the text."""
    surface, program, name = PEOPLE[case]

    async def shown(policy: Provenance | None) -> list[str]:
        seen: list[str] = []

        async def salaries() -> str:
            """What everybody earns."""
            return "Bob 100"

        async def payroll(text: str, ctx: CallContext) -> str:
            """Pay."""
            return str(await ctx.ask_human(f"Pay {text}?"))

        async def paid(text: str, ctx: CallContext) -> None:
            """Note who is paid."""
            ctx.state["pay"] = text

        def answer(question: Question) -> str:
            seen.append(question.question)
            return "yes"

        async with AgentFlow(
            provider=ScriptedProvider(), tools=[salaries, payroll, paid], provenance=policy, answer=answer
        ) as flow:

            @flow.workflow
            async def desk(x: str) -> str:
                return str(await flow.ask_human(f"Pay {x}?"))

            @flow.workflow
            async def board(x: str) -> None:
                await flow.publish("pay", x)

            def look(event: Event) -> None:
                if isinstance(event, Log | StateChanged):
                    seen.append(event.message if isinstance(event, Log) else str(event.changes))
                elif isinstance(event, WaitStarted) and event.signal:
                    seen.append(event.signal)

            flow.subscribe(look)
            try:
                async with flow.stream(program, surface=surface) as running:
                    if name == "wait-for-signal":
                        with suppress(DataError):  # the program was refused, and has ended
                            await running.signal("Bob 100")
                    value: object = (await running.result()).value
            except AgentflowError as error:
                refused.append(error.code)
            else:
                refused.extend(
                    [str(value.notes.error.details["code"])]
                    if isinstance(value, TaskResult) and value.notes.error
                    else []
                )
        return seen

    refused: list[str] = []
    hr = ["payroll", "desk", "paid", "board"]
    somebody, ann = Sink("*-*", readers=["bob@sales.example"]), Sink(name, readers=["ann@hr.example"])
    for policy in (
        None,
        Provenance(sources={"salaries": "hr"}, readers={"hr": [*hr, name]}),
        Provenance(rules=[ann], sources={"salaries": "hr"}, readers={"hr": [*hr, "ann@hr.example"]}),
    ):
        assert await shown(policy) and not refused
    for policy in (
        Provenance(sources={"salaries": "hr"}, readers={"hr": hr}),
        Provenance(rules=[somebody], sources={"salaries": "hr"}, readers={"hr": [*hr, name]}),
    ):
        assert not await shown(policy) and refused == ["provenance/readers"]
        refused.clear()


async def test_a_model_is_sent_what_those_may_see_whom_a_rule_names() -> None:
    """Without a rule a model is sent anything; a rule for its task says who sees it."""
    assert await run("(value-of (t (q (value-of (salaries)))))", POLICY) == []
    rules = [*POLICY.rules, Sink("t", readers=["vendor"])]
    with pytest.raises(AgentflowError) as caught:
        await run(
            "(value-of (t (q (value-of (salaries)))))",
            Provenance(rules=rules, sources=POLICY.sources, readers=POLICY.readers),
        )
    assert caught.value.code == "provenance/readers" and caught.value.details["readers"] == ["vendor"]


async def test_whoever_approves_a_call_sees_what_it_is_about() -> None:
    """An approval is a decision about the values themselves, as an endorsement is: it shows them."""
    shown: list[str] = []

    async def salaries() -> str:
        """What everybody earns."""
        return "Bob 100"

    @tool(approval=True)
    async def payroll(text: str) -> str:
        """Pay."""
        return "paid"

    def approve(request: ApprovalRequest) -> bool:
        shown.append(request.text)
        return True

    async with AgentFlow(
        provider=ScriptedProvider(), tools=[salaries, payroll], provenance=POLICY, approve=approve
    ) as flow:
        await flow.run("(payroll (text (value-of (salaries))))", allow=["salaries", "payroll"])
    assert shown and "Bob 100" in shown[0]
