"""``cons`` and ``rest`` take constant time, and what they give is a list wherever it is seen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentflow import AgentFlow, ScriptedProvider, SexpEnvironment, SexpEvaluationError
from agentflow.core.data.values import SHARED_FROM, SharedList, plain_lists
from tests.support.spending import spent

BUILD = "(define (build n) (do ((i 0 (+ i 1)) (l nil (cons i l))) ((= i n) l))) "
LONG = SHARED_FROM * 3


def _flow(*tools: Any) -> AgentFlow:
    return AgentFlow(provider=ScriptedProvider([]), tools=tools)


@pytest.mark.parametrize(
    "text", ["(build N)", "(let walk ((l (build N)) (n 0)) (if (null? l) n (walk (rest l) (+ n 1))))"]
)
async def test_building_and_walking_are_linear(text: str) -> None:
    """Four times the elements cost about four times as much, not sixteen."""

    async def cost(n: int) -> float:
        async with _flow() as flow:
            with spent() as spending:
                await flow.run(BUILD + text.replace("N", str(n)))
            return spending.seconds

    await cost(1_000)
    small, large = await cost(50_000), await cost(200_000)
    assert large < small * 4 * 3


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("l", list(range(LONG))[::-1]),
        ("(length l)", LONG),
        ("(first l)", LONG - 1),
        ("(cadr l)", LONG - 2),
        ("(caddr l)", LONG - 3),
        ("(cddr l)", list(range(LONG - 2))[::-1]),
        ("(rest l)", list(range(LONG - 1))[::-1]),
        ("(nth l 5)", LONG - 6),
        ("(reverse l)", list(range(LONG))),
        ("(append '(1 2) l '(3))", [1, 2, *range(LONG)[::-1], 3]),
        ("(append '(1 2) l)", [1, 2, *range(LONG)[::-1]]),
        ("(equal? l (reverse (reverse l)))", True),
        ("(equal? l (rest l))", False),
        ("(list? l)", True),
        ("(pair? l)", True),
        ("(null? l)", False),
        ("(type-of l)", "list"),
        ("(if l 1 2)", 1),
        ("(map (lambda (x) x) l)", list(range(LONG))[::-1]),
        ("(pmap (lambda (x) x) l)", list(range(LONG))[::-1]),
        ("(apply + l)", sum(range(LONG))),
        ("(sort l)", list(range(LONG))),
        ("(first (member 5 l))", 5),
        ("(length (zip l l))", LONG),
        ("(first (parse-json (to-json l)))", LONG - 1),
        ("(length (list l l))", 2),
        ("(get (dict 'a l) 'a)", list(range(LONG))[::-1]),
        ("`(1 ,@l)", [1, *range(LONG)[::-1]]),
        ("(cons (cons 1 l) (cons 2 l))", [[1, *range(LONG)[::-1]], 2, *range(LONG)[::-1]]),
        ("(eval-program (list 'length (list 'quote l)))", LONG),
        ("((lambda (a . more) (length more)) 1 2 l)", 2),
        ("(try (raise l) (catch (e) (get-field e 'value)))", list(range(LONG))[::-1]),
        ('(= (length (format "{}" l)) (length (format "{}" (append l nil))))', True),
        ('(string-join (map number->string (rest (rest l))) "")', "".join(map(str, range(LONG - 2)[::-1]))),
        ("(assoc 3 (map (lambda (x) (cons x l)) l))", [3, *range(LONG)[::-1]]),
    ],
)
async def test_a_shared_list_is_a_list_to_every_primitive(text: str, expected: Any) -> None:
    """Reading, asking, comparing, printing, splicing; the value that leaves is made of Python lists."""
    async with _flow() as flow:
        value = (await flow.run(f"{BUILD} (define l (build {LONG})) {text}")).value
    assert value == expected and _plain(value)


def _plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    return all(map(_plain, value.values())) if isinstance(value, dict) else not isinstance(value, SharedList)


async def test_what_leaves_a_program_holds_no_shared_list() -> None:
    """Arguments of tools and host callables, the host's look into an environment, errors, procedures called later."""
    seen: list[Any] = []

    async def take(value: Any) -> list[Any]:
        """A tool.

        Args:
            value: anything
        """
        seen.append(value)
        return [value]

    async with _flow(take) as flow:
        env = SexpEnvironment({"host": lambda *values: seen.extend(values)})
        text = f"{BUILD} (define l (build {LONG})) (take (value (dict 'a (list l)))) (host l (list l)) (lambda () (list l))"
        procedure = (await flow.run(text, env=env)).value
        seen.append(await flow.call(procedure))
        seen.append(env.lookup("l"))
        seen.append(env.bindings()["l"])
        with pytest.raises(SexpEvaluationError) as raised:
            await flow.run("(raise (list l))", env=env)
        seen.append(raised.value.value)
    assert len(seen) == 7 and all(map(_plain, seen)), [type(each) for each in seen]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["cons", "rest", "save", "load"]), st.integers(0, 3)), max_size=300))
def test_sharing_never_shows(steps: list[tuple[str, int]]) -> None:
    """Lists built on parts of each other hold what lists that are copied each time hold."""
    saved: list[tuple[Any, list[int]]] = [(SharedList.of(list(range(LONG))), list(range(LONG)))] * 4
    ours, theirs = saved[0]
    for number, (step, at) in enumerate(steps):
        match step:
            case "cons":
                ours = ours.after(number) if isinstance(ours, SharedList) else [number, *ours]
                theirs = [number, *theirs]
            case "rest" if theirs:
                ours = ours.rest() if isinstance(ours, SharedList) else ours[1:]
                theirs = theirs[1:]
            case "save":
                saved[at] = (ours, theirs)
            case _:
                ours, theirs = saved[at]
        assert len(ours) == len(theirs) and plain_lists(ours) == theirs
        if theirs:
            assert (ours.first() if isinstance(ours, SharedList) else ours[0]) == theirs[0]
    for kept, expected in saved:
        assert plain_lists(kept) == expected


def test_plain_lists_keeps_what_is_plain() -> None:
    """Data without shared lists is the same object; with them, sharing and cycles are kept in the copy."""
    data: list[Any] = [1, {"a": [2]}, (3,)]
    assert plain_lists(data) is data
    one = SharedList.of([1, 2])
    data = [one, one]
    data.append(data)
    copy = plain_lists(data)
    assert copy[0] == [1, 2] and copy[0] is copy[1] and copy[2] is copy
