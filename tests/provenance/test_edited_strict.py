"""A strict policy and what effects are known by: the records that answer an edited program, idempotency keys, keys of questions, made names.

Effects in an arm are numbered apart, for each set of sources. So nothing that others see of an effect outside of it says what the arm did.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, CallContext, Labelled, Provenance, ScriptedProvider
from agentflow.core.data.source import Surface
from agentflow.durable.values.record_values import REQUEST
from agentflow.journal.sqlite import SqliteJournal
from tests.provenance.edited_programs import BOTH, RUN, Clerk, edited, programs, told
from tests.provenance.strict_programs import SECRETS, Observer
from tests.provenance.test_durable import Gate
from tests.scale.workers import detached, working
from tests.support.postgres import Server

ORDINARY = replace(BOTH, strict=False)

ARMS: dict[str, tuple[Surface, str]] = {
    "if": ("sexp", "(if (> s 1) (ticket (of 1)))"),
    "an arm in an arm": ("sexp", "(if (> s 0) (begin (ticket (of 1)) (if (null? items) (ticket (of 1)))))"),
    "a loop over a secret": ("sexp", "(for-each (lambda (x) (ticket (of 1))) items)"),
    "a loop as often as a secret": ("sexp", "(loop s (ticket (of 1)))"),
    "map": ("sexp", "(map (lambda (x) (ticket (of 1))) items)"),
    "pmap": ("sexp", "(pmap (lambda (x) (ticket (of 1))) items)"),
    "a branch": ("sexp", "(parallel (if (> s 1) (ticket (of 1))) 2)"),
    "a form in an arm": ("sexp", "(if (> s 1) (parallel (ticket (of 1)) (ticket (of 1))))"),
    "a time-out in an arm": ("sexp", "(if (> s 1) (timeout 9 (ticket (of 1))))"),
    "a retry": ("sexp", "(retry (if (> s 1) 2 1) (ticket (of 1)))"),
    "a program in an arm": ("sexp", "(if (> s 1) (eval-program '(ticket (of 1)) (allow ticket)))"),
    "a program with a secret": (
        "sexp",
        '(eval-program \'(if (> q 1) (ticket (of 1))) (allow ticket) (bindings (dict "q" s)))',
    ),
    "a call that a secret equals": ("sexp", "(ticket (of (if (> s 1) 1 2)))"),
    "an error that is caught": ("sexp", "(try (begin (if (> s 1) (error 1)) 0) (catch (e) (ticket (of 1))))"),
    "a finally": ("sexp", "(try (if (> s 1) (ticket (of 1))) (finally (if (> s 2) (ticket (of 1)))))"),
    "if in Python": ("python", "if s > 1:\n    ticket(of=1)"),
    "for in Python": ("python", "for x in items:\n    ticket(of=1)"),
    "while in Python": ("python", "i = 0\nwhile i < s:\n    i += 1\n    ticket(of=1)"),
    "after a break": ("python", "for x in [1, 2]:\n    if s > 1:\n        break\n    ticket(of=1)"),
    "after a return": ("python", "def f():\n    if s > 1:\n        return\n    ticket(of=1)\nf()"),
    "a comprehension": ("python", "ys = [ticket(of=1) for x in items]"),
    "a condition": ("python", "y = s > 1 and ticket(of=1)"),
    "except in Python": (
        "python",
        "try:\n    if s > 1:\n        raise ValueError('x')\nexcept Exception:\n    ticket(of=1)",
    ),
    "a branch in Python": ("python", "parallel(ticket(of=1) if s > 1 else 0, 1)"),
}
"""Arms with effects that are equal to ones outside of them."""

SHOWN: dict[str, dict[Surface, tuple[str, str]]] = {
    "moved": {
        "sexp": ("(send (to (value-of (ticket (of 1)))))", "(show (to (value-of (ticket (of 1)))))"),
        "python": ("send(ticket(of=1))", "show(ticket(of=1))"),
    },
    "another before it": {
        "sexp": (
            "(ticket (of 1)) (ticket (of 1)) (ticket (of 1))",
            "(ticket (of 5)) (show (to (value-of (ticket (of 1))))) (show (to (value-of (ticket (of 1)))))",
        ),
        "python": ("ticket(of=1)\nticket(of=1)\nticket(of=1)", "ticket(of=5)\nshow(ticket(of=1))\nshow(ticket(of=1))"),
    },
    "one less": {
        "sexp": ("(ticket (of 5)) (ticket (of 1)) (ticket (of 1))", "(show (to (value-of (ticket (of 1)))))"),
        "python": ("ticket(of=5)\nticket(of=1)\nticket(of=1)", "show(ticket(of=1))"),
    },
    "new": {
        "sexp": ("0", "(show (to (value-of (ticket (of 1)))))"),
        "python": ("0", "show(ticket(of=1))"),
    },
    "in branches": {
        "sexp": (
            "(parallel (ticket (of 1)) (begin (ticket (of 1)) (ticket (of 1))))",
            "(parallel 0 (show (to (value-of (ticket (of 1))))))",
        ),
        "python": ("parallel(ticket(of=1), ticket(of=1))", "parallel(0, show(ticket(of=1)))"),
    },
}
"""What follows outside of the arm, before and after the edit."""


@pytest.mark.parametrize("edit", SHOWN)
@pytest.mark.parametrize("arm", ARMS)
async def test_records_of_an_arm_answer_nothing_outside_of_it(arm: str, edit: str, tmp_path: Path) -> None:
    """Which record answers an effect outside of the arm, and whether one does, is the same whatever the arm did; with the arm kept or gone."""
    surface, code = ARMS[arm]
    before, after = SHOWN[edit][surface]
    for at, text in enumerate((f"{code}\n{after}", after)):
        (root := tmp_path / str(at)).mkdir()
        assert await told(root, f"{code}\n{before}", text, surface) is None


@pytest.mark.parametrize("arm", ARMS)
async def test_records_of_an_arm_answer_the_arm(arm: str, tmp_path: Path) -> None:
    """An arm that is kept is answered from its own records, and what is outside of it from its own: nothing is carried out again."""
    surface, code = ARMS[arm]
    last = {"sexp": "(send (to (value-of (ticket (of 1)))))", "python": "send(ticket(of=1))"}[surface]
    more = {"sexp": "(define unused 1)", "python": "unused = 1"}[surface]
    for at, secret in enumerate(SECRETS):
        root = tmp_path / str(at)
        assert await edited(root, f"{code}\n{last}", f"{more}\n{code}\n{last}", surface, secret) == ("ended", [])


KINDS = {
    "a tool": "(ticket (of 1))",
    "a task": "(t (x 1))",
    "a task with a tool": "(asks (x 1))",
    "a function": "(double 1)",
    "a question": '(ask-human "Go?")',
    "a time": "(now)",
    "an id": "(uuid)",
    "a number": "(random 10)",
    "a pause": "(sleep 0)",
    "memory": '(get_context (query "x"))',
}
"""Effects of every kind that has a record."""


@pytest.mark.parametrize("kind", KINDS)
async def test_a_record_of_any_kind_answers_nothing_outside_of_its_arm(kind: str, tmp_path: Path) -> None:
    """Nothing is replayed for an edited program whose call depends on nothing; for one that calls it in the arm, all is."""
    head = """(defatom t (params (x)) (instructions "{{x}}") (tools))
    (defatom asks (params (x)) (instructions "{{x}}") (tools ticket))"""
    effect, secret = KINDS[kind], SECRETS[1]
    arm = f"{head} (if (> s 1) {effect})"

    def answers(request: Any) -> Any:
        if request.tools and len(request.messages) < 2:
            return {"tool_calls": [{"name": "ticket", "arguments": {"of": 1}}]}
        return "x"

    for program, replayed in ((f"{head} {effect}", False), (f"{arm} (define unused 1)", True)):
        (root := tmp_path / str(replayed)).mkdir()
        counts: list[int] = []
        for edit in (None, program):
            flow = AgentFlow(
                provider=ScriptedProvider(answers),
                root=root,
                provenance=BOTH,
                durable=f"sqlite:///{root}/runs.db",
                answer=lambda question: True,
            )

            @flow.tool
            async def ticket(of: int) -> str:
                """Draw a number."""
                return "1"

            async with flow:
                if edit is None:
                    handle = await flow.start(arm, {**Observer.bindings(secret), "double": double}, run_id=RUN)
                else:
                    handle = await flow.resume(RUN, program=edit, bindings={"double": double})
                await handle.result()
                counts.append(handle.replayed)
        assert counts[0] == 0 and (counts[1] > 0) is replayed


def double(number: int) -> int:
    """A function of the host."""
    return 2 * number


async def test_they_are_told_by_an_ordinary_policy(tmp_path: Path) -> None:
    """The same programs tell it without ``strict``, so that those above are some."""
    surface, code = ARMS["if"]
    telling = [
        await told(tmp_path / str(at), f"{code}\n{before}", f"{code}\n{after}", surface, policy=ORDINARY)
        for at, (before, after) in enumerate([each[surface] for each in SHOWN.values()])
        if (tmp_path / str(at)).mkdir() is None
    ]
    assert any(telling)


@pytest.mark.parametrize("surface", ["sexp", "python"])
async def test_random_programs_that_are_edited_tell_nothing(surface: Surface, tmp_path: Path) -> None:
    """Neither do programs and edits that are put together at random (by hand: ``python -m tests.provenance.edited_programs --count 2000``)."""
    for seed in range(12):
        (root := tmp_path / str(seed)).mkdir()
        before, after = programs(seed, surface)
        runs = await told(root, before, after, surface)
        assert runs is None, (seed, before, after, runs)


# -- what others know an effect by --------------------------------------------------------------------------------


@pytest.mark.parametrize("arm", ARMS)
async def test_idempotency_keys_do_not_count_what_arms_do(arm: str, tmp_path: Path) -> None:
    """A service that is given the keys of a run learns nothing of its arms, and no two calls have one key."""
    surface, code = ARMS[arm]
    last = {"sexp": '(ticket (of 1)) (send (to "end"))', "python": "ticket(of=1)\nsend('end')"}[surface]
    seen: list[list[Any]] = []
    for at, secret in enumerate(SECRETS):
        clerk = Clerk(tmp_path / str(at))
        async with clerk.flow as flow:
            await (await flow.start(f"{code}\n{last}", Observer.bindings(secret), run_id=RUN, surface=surface)).result()
        assert len(set(clerk.keys)) == len(clerk.keys) > 1
        seen.append(clerk.seen)
    assert seen[0] == seen[1] == seen[2]


ASKING = '(if (> s 1) (ticket (of 1))) (parallel (ask-human "Go?" (dict "type" "boolean")) 1) (send (to "end"))'


@pytest.mark.parametrize("lasting", [True, False])
async def test_the_key_of_a_question_does_not_count_what_arms_do(lasting: bool, tmp_path: Path) -> None:
    """Who is asked sees a key that is the same in all runs, and answers by it; also a run that left memory, or is resumed meanwhile."""
    keys: list[str] = []
    for at, secret in enumerate(SECRETS):
        root = tmp_path / str(at)
        clerk = Clerk(root)
        async with clerk.flow as flow:
            handle = await flow.start(ASKING, Observer.bindings(secret), run_id=RUN)
            assert await handle.wait() == "waiting"
            [question] = handle.waiting
            if not lasting:
                await flow.send(RUN, question.key, True)
                await handle.result()
        if lasting:
            async with Clerk(root).flow as flow:
                [asked] = await flow.questions(RUN)
                handle = await flow.resume(RUN)
                assert await handle.wait() == "waiting"
                assert asked.key == question.key == handle.waiting[0].key
                await flow.send(RUN, asked.key, True)
                await handle.result()
        keys.append(question.key)
    assert keys[0] == keys[1] == keys[2]


NAMES = {
    "in a branch": "(if (> s 1) (ticket (of 1))) (send (to (symbol->string (first (parallel (gensym) 1)))))",
    "in a program": ("(if (> s 1) (ticket (of 1))) (send (to (eval-program '(symbol->string (gensym)))))"),
    "in a time-out": "(if (> s 1) (gensym)) (send (to (timeout 9 (symbol->string (gensym)))))",
}


@pytest.mark.parametrize("where", NAMES)
async def test_a_name_that_is_made_does_not_count_what_arms_do(where: str, tmp_path: Path) -> None:
    """A made name says where it was made: in whatever form that is, not how much was done in arms before."""
    seen: list[Any] = []
    for at, secret in enumerate(SECRETS):
        (root := tmp_path / str(at)).mkdir()
        observer = Observer(root)
        async with observer.flow:
            text = NAMES[where].replace("ticket (of", "note (to")
            seen.append(await observer.run(text, secret))
    assert seen[0] == seen[1] == seen[2] and seen[0][0] == "ended"


TWO = Provenance(rules=[], strict=True, sources={"ticket": "user"})


async def test_an_arm_does_not_count_what_arms_of_others_do(tmp_path: Path) -> None:
    """What is known of an effect in an arm may be told to those who may know its test, and tells them of no other secret."""
    seen: list[Any] = []
    for at, secret in enumerate((0, 3)):
        named: list[str] = []

        async def tell(name: str, ctx: CallContext, named: list[str] = named) -> str:
            """Tell a name to those who may know what it depends on."""
            named.extend([name, ctx.idempotency_key])
            return "told"

        flow = AgentFlow(
            provider=ScriptedProvider(), tools=[tell], provenance=TWO, durable=f"sqlite:///{tmp_path}/{at}.db"
        )
        text = """(if (> s 1) (begin (tell (name (symbol->string (gensym)))) (gensym)))
        (if (> t 1) (tell (name (symbol->string (gensym)))))"""
        async with flow:
            bindings = {"s": Labelled(secret, "one"), "t": Labelled(5, "two")}
            await (await flow.start(text, bindings, run_id=RUN)).result()
        seen.append(named[-2:])
    assert seen[0] == seen[1]


# -- runs that go on ----------------------------------------------------------------------------------------------

LONG = """(if (> s 1) (begin (ticket (of 1)) (ticket (of 2)))) (ticket (of 1)) (parallel (ticket (of 1)) (if (> s 1) (ticket (of 1))))
(hold) (ticket (of 1)) (send (to "end"))"""


@pytest.mark.parametrize(
    ("first", "then"),
    [(BOTH, BOTH), (ORDINARY, BOTH), (BOTH, ORDINARY), (None, BOTH), (BOTH, None)],
    ids=["strict", "strict later", "no longer strict", "a policy later", "no policy any more"],
)
async def test_a_run_goes_on_under_any_policy(
    first: Provenance | None, then: Provenance | None, tmp_path: Path
) -> None:
    """Records are found by the paths of effects, which are the same under any policy: nothing is done twice."""
    gate = Gate()
    clerk = Clerk(tmp_path, policy=first)
    async with clerk.flow as flow:
        gate.add_to(flow)
        await flow.start(LONG, Observer.bindings(SECRETS[1]), run_id=RUN)
        await gate.reached.wait()
    assert len(clerk.keys) == 5
    later = Clerk(tmp_path, policy=then)
    gate = Gate()
    gate.release.set()
    async with later.flow as flow:
        gate.add_to(flow)
        await (await flow.resume(RUN)).result()
    assert len(later.keys) == 2 and not set(later.keys) & set(clerk.keys)


@pytest.mark.parametrize(("first", "then"), [(ORDINARY, BOTH), (BOTH, ORDINARY), (None, BOTH), (BOTH, None)])
async def test_an_open_question_keeps_its_key_under_any_policy(
    first: Provenance | None, then: Provenance | None, tmp_path: Path
) -> None:
    """Whoever was asked may answer by the key that was shown, also if the policy is another when the run goes on."""
    async with Clerk(tmp_path, policy=first).flow as flow:
        handle = await flow.start(ASKING, Observer.bindings(SECRETS[1]), run_id=RUN)
        assert await handle.wait() == "waiting"
        [question] = handle.waiting
    clerk = Clerk(tmp_path, policy=then)
    async with clerk.flow as flow:
        handle = await flow.resume(RUN)
        assert await handle.wait() == "waiting"
        assert [each.key for each in (*handle.waiting, *await flow.questions(RUN))] == [question.key] * 2
        await flow.send(RUN, question.key, True)
        await handle.result()
    assert clerk.seen[0] == "end"


async def test_paths_and_records_are_those_of_any_other_flow(tmp_path: Path) -> None:
    """Under a strict policy the path of an effect counts all effects; and only there do records say what a request depended on."""
    paths: list[list[str]] = []
    for at, policy in enumerate((BOTH, ORDINARY, None)):
        clerk = Clerk(tmp_path / str(at), policy=policy)
        async with clerk.flow as flow:
            bindings = Observer.bindings(SECRETS[1])
            await (await flow.start(LONG.replace("(hold)", ""), bindings, run_id=RUN)).result()
        store = SqliteJournal(tmp_path / str(at) / "runs.db")
        rows = await store.effects(RUN)
        await store.aclose()
        paths.append(sorted(row.path for row in rows))
        assert {REQUEST in row.value for row in rows} == {policy is BOTH}
    assert paths[0] == paths[1] == paths[2]


async def test_records_that_followed_no_tests_answer_as_before(tmp_path: Path) -> None:
    """A run of a flow whose policy is not strict told its choices anyway: its records answer an edited strict program by path and order."""
    before = "(ticket (of 1)) (ticket (of 2))"
    async with Clerk(tmp_path, policy=ORDINARY).flow as flow:
        await (await flow.start(before, Observer.bindings(SECRETS[0]), run_id=RUN)).result()
    later = Clerk(tmp_path, first=100)
    async with later.flow as flow:
        await (await flow.resume(RUN, program="(ticket (of 2)) (ticket (of 1)) (ticket (of 3))")).result()
    assert len(later.keys) == 1


async def test_a_call_in_flight_in_an_arm_is_none_outside_of_it(tmp_path: Path) -> None:
    """Whether an equal call was at work in an arm when the run stopped decides nothing of one outside of it."""
    ends: list[Any] = []
    for at, secret in enumerate(SECRETS):
        (root := tmp_path / str(at)).mkdir()
        reached, sent = asyncio.Event(), list[int]()

        def flow_of(root: Path = root, reached: asyncio.Event = reached, sent: list[int] = sent) -> AgentFlow:
            flow = AgentFlow(provider=ScriptedProvider(), provenance=TWO, durable=f"sqlite:///{root}/runs.db")

            @flow.tool(idempotent=False)
            async def pay(amount: int) -> str:
                """Pay, which the first process does not come to an end of."""
                if reached.is_set():
                    sent.append(amount)
                    return "paid"
                reached.set()
                await asyncio.get_running_loop().create_future()
                return ""

            @flow.tool
            async def stay() -> str:
                """Stay there."""
                reached.set()
                await asyncio.get_running_loop().create_future()
                return ""

            return flow

        async with flow_of() as flow:
            await flow.start("(if (> s 1) (pay (amount 1))) (stay)", Observer.bindings(secret), run_id=RUN)
            await reached.wait()
        async with flow_of() as flow:
            handle = await flow.resume(RUN, program="(pay (amount 1))", on_inflight="fail")
            ends.append((await handle.result()).value.status)
        assert sent == [1]
    assert ends == ["COMPLETE"] * 3


# -- workers ------------------------------------------------------------------------------------------------------


async def test_branches_on_workers_do_not_count_what_arms_do(postgres_server: Server, tmp_path: Path) -> None:
    """What tools of a branch are told about their run and their call follows neither from the place of its form nor from how often the run
    has waited: in equal runs it is not the same."""
    text = """(if (> s 1) (pmap :on workers (lambda (x) (ticket (of x))) (list 5 6)))
    (pmap :on workers (lambda (x) (ticket (of x))) (list 1 2))"""
    keys: list[str] = []
    for _ in range(2):
        clerk = Clerk(tmp_path, durable=postgres_server.schema())
        async with clerk.flow as flow, working(flow):
            await (await detached(flow, RUN, text, bindings=Observer.bindings(SECRETS[1]))).result()
        assert len(clerk.seen) == 2 and len(clerk.keys) == 4
        keys += clerk.keys
    assert len(set(keys)) == 8
