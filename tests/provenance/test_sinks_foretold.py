"""Bounds say which sources may reach which guarded argument: too much perhaps, and never too little."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

import pytest

from agentflow import AgentFlow, AgentflowError, Labelled, Provenance, ScriptedProvider, Sink
from agentflow.core.events.facts import GuardedArgument

TASK = '(defatom t (params (q any)) (instructions "{{q}}") (tools))'
NOT_REACHED: dict[str, tuple[Literal["sexp", "python"], str]] = {
    "the user's": ("sexp", '(send (to "a") (text (value-of (fetch))))'),
    "a variable beside it": ("sexp", '(define p (fetch)) (define q "a") (send (to q) (text p))'),
    "another parameter": ("sexp", '(define (f a b) (send (to a) (text b))) (f "a" (value-of (fetch)))'),
    "elements of the user": ("sexp", "(for-each (lambda (u) (send (to u) (text (value-of (fetch))))) users)"),
    "a test": ("sexp", '(if (fetch) (send (to "a") (text "b")) 1)'),
    "an endorsement": ("sexp", '(send (to (endorse (value-of (fetch)) "looked at")) (text "b"))'),
    "a task beside it": ("sexp", f'{TASK} (t (q (fetch))) (send (to "a") (text (value-of (t (q "x")))))'),
    "a loop": (
        "sexp",
        '(let go ((n 3) (to "a")) (if (> n 0) (go (- n 1) to) (send (to to) (text (value-of (fetch))))))',
    ),
    "the user's, in Python": ("python", "p = fetch()\nsend(to='a', text=p)"),
    "another list": ("python", "xs = ['a']\nys = []\nys.append(fetch())\nsend(to=xs[0], text=ys[0])"),
    "elements, in Python": ("python", "for u in users:\n    send(to=u, text=fetch())"),
    "an endorsement, in Python": ("python", "send(to=endorse(fetch(), 'looked at'), text='b')"),
    "another parameter, in Python": ("python", "def f(a, b):\n    send(to=a, text=b)\nf('a', fetch())"),
}
REACHED: dict[str, tuple[Literal["sexp", "python"], str, tuple[str, ...]]] = {
    "a result": ("sexp", '(send (to (value-of (fetch))) (text "b"))', ("web",)),
    "a list of both": (
        "sexp",
        '(map (lambda (u) (send (to u) (text "b"))) (list (lookup) (fetch)))',
        ("directory", "web"),
    ),
    "an error": ("sexp", '(try (fetch) (catch (e) (send (to (get-field e "message")) (text "b"))))', ("web",)),
    "text that is a program": ("sexp", "(eval-program (value-of (fetch)) (allow send))", ("web",)),
    "a name that is data": ("sexp", '((value-of (fetch)) (to "a") (text "b"))', ("web",)),
    "what a task is offered": ("sexp", '(defatom t (params) (instructions "Do it") (tools fetch send)) (t)', ("web",)),
    "a session's turn": (
        "sexp",
        f'{TASK} (define (f) (send (to (value-of (t (q "x")))) (text "b"))) (t (q (fetch))) (f)',
        ("web",),
    ),
    "a session's turn before": (
        "sexp",
        f'{TASK} (t (q (fetch))) (send (to (value-of (t (q "x")))) (text "b"))',
        ("web",),
    ),
    "a binding": ("sexp", '(send (to (first users)) (text "b"))', ("mail",)),
    "an alias": ("python", "xs = []\nys = xs\nys.append(fetch())\nsend(to=xs[0], text='b')", ("web",)),
    "a list of the caller": (
        "python",
        "def f(l):\n    l.append(fetch())\nxs = []\nf(xs)\nsend(to=xs[0], text='b')",
        ("web",),
    ),
    "a tool as a value": (
        "python",
        "f = {'a': fetch}['a']\nsend(to=f('x'), text='b')",
        ("web",),
    ),
    "a tool called as a value": ("python", "f = [send][0]\nf(fetch())", ("web",)),
    "a branch": ("python", "a, b = parallel(lookup(), fetch())\nsend(to=b, text='b')", ("directory", "web")),
}


@pytest.fixture
async def flow() -> AsyncIterator[AgentFlow]:
    """A flow that reads the web and a directory, and sends to whom the user or the directory names."""
    policy = Provenance(
        rules=[Sink("send", "to", allow=["user", "directory"])], sources={"fetch": "web", "lookup": "directory"}
    )
    async with AgentFlow(provider=ScriptedProvider(), provenance=policy) as flow:

        async def fetch() -> str:
            return "x"

        async def lookup() -> str:
            return ""

        async def send(to: object, text: object) -> None:
            pass

        flow.tool(fetch)
        flow.tool(lookup)
        flow.tool(send)
        yield flow


async def to_of(
    flow: AgentFlow, surface: Literal["sexp", "python"], text: str, users: object = ("a",)
) -> GuardedArgument:
    """What the bounds say of the recipient."""
    bounds = await flow.bounds(text, surface=surface, bindings={"users": users})
    (to,) = [each for each in bounds.authority.sinks if each.tool == "send"]
    assert (to.argument, to.allow) == ("to", ("user", "directory"))
    return to


@pytest.mark.parametrize("case", NOT_REACHED)
async def test_what_cannot_reach_is_not_named(case: str, flow: AgentFlow) -> None:
    """Where a guarded argument is the user's, whatever else the program reads, its bounds say that nothing reaches it."""
    surface, text = NOT_REACHED[case]
    to = await to_of(flow, surface, text)
    assert to.sources == () and str(to) == "'to' of send is reached by the user only"


@pytest.mark.parametrize("case", REACHED)
async def test_what_may_reach_is_named(case: str, flow: AgentFlow) -> None:
    """Each source that may reach a guarded argument is named, and said to be refused where the policy does not allow it."""
    surface, text, sources = REACHED[case]
    to = await to_of(flow, surface, text, [Labelled("a", "mail")])
    assert set(sources) <= set(to.sources)
    assert set(to.refused) == set(to.sources) - {"directory"}


async def test_a_policy_that_is_set_later_is_foretold(flow: AgentFlow) -> None:
    """The policy has one place: bounds, programs and runs are judged by the one in force, whenever it was set."""
    text = '(send (to "a") (text (value-of (fetch))))'
    flow.engine.follow(Provenance(rules=[Sink("send", "text")]))
    (sink,) = (await flow.bounds(text)).authority.sinks
    assert (sink.argument, sink.refused) == ("text", ("tool:fetch",))
    with pytest.raises(AgentflowError) as denied:
        await flow.run(text)
    assert denied.value.code == "provenance/denied"
    flow.engine.follow(None)
    assert (await flow.bounds(text)).authority.sinks == () and (await flow.run(text)).sources == frozenset()


OTHERS: dict[str, tuple[Literal["sexp", "python"], str, str, str]] = {
    "a task": ("sexp", f"{TASK} (t (q (value-of (fetch))))", "t", "q"),
    "a task, in Python": ("python", "@task\ndef t(q) -> str:\n    '{{q}}'\nt(q=fetch())", "t", "q"),
    "a question to memory": ("sexp", "(get_context (query (value-of (fetch))))", "get_context", "query"),
    "a saved workflow": ("sexp", "(call-workflow saved (q (value-of (fetch))))", "saved", "q"),
}


@pytest.mark.parametrize("case", OTHERS)
async def test_sinks_of_what_is_no_tool_are_told(case: str, flow: AgentFlow) -> None:
    """A rule may name tasks, saved workflows and questions to memory, too; bounds foretell them as they do those of tools."""
    surface, text, name, argument = OTHERS[case]
    flow.engine.follow(Provenance(rules=[Sink(name, argument)], sources={"fetch": "web"}))
    (sink,) = (await flow.bounds(text, surface=surface)).authority.sinks
    assert (sink.tool, sink.argument, sink.refused) == (name, argument, ("web",))
    flow.engine.follow(Provenance(rules=[Sink(name, "other")], sources={"fetch": "web"}))
    assert (await flow.bounds(text, surface=surface)).authority.sinks == ()


def notify(to: object, *texts: object) -> None:
    """Tell somebody, who is not a tool."""


ASKED: dict[str, tuple[Literal["sexp", "python"], str, str, str]] = {
    "a function": ("sexp", '(notify (value-of (fetch)) "a")', "notify", "to"),
    "its further arguments": ("sexp", '(notify "a" "b" (value-of (fetch)))', "notify", "texts"),
    "a function, in Python": ("python", "notify(fetch(), 'a')", "notify", "to"),
    "a function by another name": ("python", "f = notify\nf(fetch(), 'a')", "notify", "to"),
    "a function that is passed": ("sexp", "(map (lambda (f) (f (value-of (fetch)))) (list notify))", "notify", "to"),
    "a function that is mapped": ("sexp", "(map notify (list (value-of (fetch))))", "notify", "to"),
    "a function in a list": ("sexp", "((first within) (value-of (fetch)))", "notify", "to"),
    "a question to somebody": ("sexp", "(ask-human (value-of (fetch)))", "ask-human", "question"),
    "its schema": ("sexp", '(ask-human "a" (dict "type" (value-of (fetch))))', "ask-human", "schema"),
    "a question, in Python": ("python", "ask_human(fetch())", "ask-human", "question"),
    "questions": ("sexp", "(map ask-human (list (value-of (fetch))))", "ask-human", "question"),
    "a question by another name": ("sexp", "(let ((f ask-human)) (f (value-of (fetch))))", "ask-human", "question"),
    "a name of a signal": ("sexp", "(wait-for-signal (value-of (fetch)))", "wait-for-signal", "name"),
    "one, in Python": ("python", "wait_for_signal(fetch())", "wait-for-signal", "name"),
    "what is published": ("sexp", '(publish-state "page" (value-of (fetch)))', "publish-state", "value"),
    "its key": ("sexp", "(publish-state (value-of (fetch)) 1)", "publish-state", "key"),
    "what is published, in Python": ("python", "publish_state('page', fetch())", "publish-state", "value"),
    "a message": ("sexp", "(log-message (value-of (fetch)))", "log-message", "text"),
    "a message, in Python": ("python", "print(fetch())", "log-message", "text"),
    "a goal": ("sexp", "(solve (value-of (fetch)) (allow))", "solve", "goal"),
    "a goal, in Python": ("python", "solve(fetch(), allow=[])", "solve", "goal"),
    "inputs": ("sexp", '(solve "a" (allow) (inputs (dict "x" (value-of (fetch)))))', "solve", "inputs"),
    "an input by its name": ("python", "solve('a', allow=[], inputs={'x': fetch()})", "solve", "x"),
    "a program that is data": ("sexp", "(eval-program (value-of (fetch)) (allow ask-human))", "ask-human", "question"),
}


@pytest.mark.parametrize("case", ASKED)
async def test_sinks_without_names_in_programs_are_told(case: str, flow: AgentFlow) -> None:
    """Arguments that a program gives by position have the names of the function's parameters, and those that the page on policies lists; a call is judged by
    them, and foretold."""
    surface, text, name, argument = ASKED[case]
    bindings = {"notify": notify, "within": [notify]}
    flow.engine.follow(Provenance(rules=[Sink(name, argument)], sources={"fetch": "web"}))
    told = (await flow.bounds(text, surface=surface, bindings=bindings)).authority.sinks
    assert {(each.tool, each.argument, each.refused) for each in told} == {(name, argument, ("web",))}
    if "eval-program" not in text:
        with pytest.raises(AgentflowError) as denied:
            await flow.run(text, surface=surface, bindings=bindings)
        assert denied.value.code == "provenance/denied" and denied.value.details["argument"] == argument


@pytest.mark.parametrize(
    ("surface", "text"),
    [
        ("sexp", '(define page (value-of (fetch))) (notify "a" page) (notify "b")'),
        ("python", "page = fetch()\nnotify('a', page)\nnotify('b')"),
    ],
)
async def test_arguments_of_functions_are_told_apart(
    surface: Literal["sexp", "python"], text: str, flow: AgentFlow
) -> None:
    """What reaches one parameter of a function of the host does not reach the others."""
    flow.engine.follow(Provenance(rules=[Sink("notify", "to")], sources={"fetch": "web"}))
    (sink,) = (await flow.bounds(text, surface=surface, bindings={"notify": notify})).authority.sinks
    assert (sink.argument, sink.sources) == ("to", ())
    await flow.run(text, surface=surface, bindings={"notify": notify})


async def test_who_sees_an_argument_of_a_function_is_named_by_another(flow: AgentFlow) -> None:
    """A rule may say that those whom one parameter of a function names see the others."""
    flow.engine.follow(
        Provenance(
            rules=[Sink("notify", readers_in="to")], sources={"fetch": "web"}, readers={"web": ["*@here.example"]}
        )
    )
    await flow.run('(notify "a@here.example" (value-of (fetch)))', bindings={"notify": notify})
    with pytest.raises(AgentflowError) as denied:
        await flow.run('(notify "a@there.example" (value-of (fetch)))', bindings={"notify": notify})
    assert denied.value.code == "provenance/readers"


async def test_sinks_are_told_in_text_and_as_data(flow: AgentFlow) -> None:
    """The manifest of a program and the JSON of its bounds say the same."""
    bounds = await flow.bounds("(send (to (value-of (fetch))) (text (value-of (lookup))))")
    assert ("sink", "'to' of send may be reached by web (refused)") in bounds.authority.rows()
    assert bounds.to_dict()["authority"]["sinks"] == [
        {"tool": "send", "argument": "to", "allow": ["user", "directory"], "may_reach": ["web"], "refused": ["web"]}
    ]


async def test_a_tool_says_itself_what_may_fill_it() -> None:
    """Without a policy sinks that tools declare are followed too; an argument that anyone may fill is not a sink."""
    async with AgentFlow(provider=ScriptedProvider()) as flow:

        @flow.tool(sinks={"to": "user", "text": "anyone"})
        def send(to: str, text: str) -> None:
            """Send it."""

        @flow.tool
        def look() -> str:
            """Look."""
            return ""

        bounds = await flow.bounds("(send (to (value-of (look))) (text (value-of (look))))")
        (to,) = bounds.authority.sinks
        assert (to.argument, to.sources) == ("to", ("tool:look",))
