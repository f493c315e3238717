"""What a call's operands are is decided by its operator: positions for a procedure, names for a task or tool."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from agentflow.core.data.errors import SexpEvaluationError
from agentflow.core.data.results import TaskResult
from tests.support.fake_run import FakeFlow

DEPTH = 4
KINDS = ("procedure", "bound-tool", "tool")
"""How an operator is written: a variable that holds a procedure or a tool's name, or the tool's name itself."""


def text_of(value: Any) -> str:
    """A result's content, and any other value as text."""
    return value.content if isinstance(value, TaskResult) else str(value)


def flow_of_tools() -> FakeFlow:
    """Tools ``t0`` ... that say which arguments they were called with."""

    def tool(name: str) -> Any:
        return lambda **given: "".join(f"{name}[{key}={text_of(value)}]" for key, value in given.items())

    flow = FakeFlow(tools={f"t{index}": tool(f"t{index}") for index in range(DEPTH)})
    flow.env.define("as-text", text_of)
    return flow


def operator(kind: str, index: int) -> str:
    """The name at a level of a nest."""
    return {"procedure": "f", "bound-tool": "s", "tool": "t"}[kind] + str(index)


def nest(chain: tuple[str, ...]) -> str:
    """``(c0 (c1 ... "e"))`` in a procedure that is told by its arguments what the variables are."""
    text = '"e"'
    for index in reversed(range(len(chain))):
        text = f"({operator(chain[index], index)} {text})"
    params = " ".join(f"f{index} s{index}" for index in range(DEPTH))
    given = " ".join(f'(lambda (x) (format "f{index}<{{}}>" (as-text x))) \'t{index}' for index in range(DEPTH))
    return f"(define (run {params}) {text}) (as-text (apply run (list {given})))"


def meaning(chain: tuple[str, ...], index: int = 0) -> str:
    """The value of the nest by the rule itself. Raises LookupError where a tool's operand is not a pair."""
    if index == len(chain):
        return "e"
    if chain[index] == "procedure":
        return f"f{index}<{meaning(chain, index + 1)}>"
    if index + 1 == len(chain):
        raise LookupError
    return f"t{index}[{operator(chain[index + 1], index + 1)}={meaning(chain, index + 2)}]"


@pytest.mark.parametrize(
    "chain", [each for n in range(1, DEPTH + 1) for each in itertools.product(KINDS, repeat=n)], ids="-".join
)
async def test_a_nest_means_what_its_operators_say(chain: tuple[str, ...]) -> None:
    """From the outside in, each operator decides what the next name is."""
    flow = flow_of_tools()
    try:
        expected = meaning(chain)
    except LookupError:
        with pytest.raises(SexpEvaluationError) as caught:
            await flow(nest(chain))
        assert caught.value.code == "call/positional"
    else:
        assert await flow(nest(chain)) == expected


SAME = [
    '(t (p "x"))',
    '((lambda (r) r) (t (p "x")))',
    '(let ((g identity)) (g (t (p "x"))))',
    '(let ((g identity) (f identity)) (g (f (t (p "x")))))',
    '(define g identity) (g (t (p "x")))',
    '((if true identity list) (t (p "x")))',
    '(apply identity (list (t (p "x"))))',
    '(define (late) (g (t (p "x")))) (define (g r) r) (late)',
    '(try ((lambda (r) r) (t (p "x"))) (catch (e) e))',
    '(let ((g \'t)) (g (p "x")))',
    '(let ((g identity) (name (quote t))) (g (name (p "x"))))',
]


@pytest.mark.parametrize("text", SAME)
async def test_a_call_with_one_argument_is_an_operand(text: str) -> None:
    """Whoever receives its result, and whether or not the receiver is known when the program is compiled."""
    flow = FakeFlow(tasks={"t": lambda p: f"task {p}"})
    assert (await flow(text)).content == "task x"


async def test_a_context_lookup_is_an_operand() -> None:
    """Forms that take names without being tasks or tools are called in an operand too, and named as arguments are."""
    flow = FakeFlow(tools={"t": lambda get_context: str(get_context)})
    assert await flow('(let ((g length)) (g (get_context (query "x"))))') == 1
    assert (await flow("(let ((g 't) (query abs)) (g (get_context (query -5))))")).content == "5"


async def test_the_name_of_an_argument_is_not_looked_up() -> None:
    """Nor is it called: a procedure of that name is not what a tool's parameter means."""
    flow = FakeFlow(tools={"t": lambda p: str(p)})
    assert (await flow('(let ((g \'t) (p (lambda (x) (error "called")))) (g (p 1)))')).content == "1"


async def test_the_innermost_operand_is_evaluated_once() -> None:
    """And after all operators, from left to right."""
    flow = FakeFlow(tools={"t": lambda **given: str(given)})
    seen: list[str] = []

    def note(name: str, value: Any) -> Any:
        seen.append(name)
        return value

    flow.env.define("note", note)
    await flow('((note "g" list) (t (p (note "a" 1))) (t (p (note "b" 2))))')
    assert seen == ["g", "a", "b"]


@pytest.mark.parametrize("head", ["(lambda (f) ", "(define (run f) ", "(let ((f identity)) "])
def test_code_grows_with_the_text(head: str) -> None:
    """A level of a nest adds the same amount of code whatever is around it."""

    def size(levels: int) -> int:
        flow = FakeFlow(tasks={"t": lambda p: p})
        text = f"{head}{'(f ' * levels}(t (p 1)){')' * levels})"
        return _instructions(flow.compile(text).link(flow.env).__code__)

    sizes = [size(levels) for levels in range(2, 41)]
    steps = [after - before for before, after in itertools.pairwise(sizes)]
    assert max(steps) < 2 * min(steps)


def _instructions(code: Any) -> int:
    return len(code.co_code) + sum(_instructions(each) for each in code.co_consts if hasattr(each, "co_code"))


async def test_a_call_with_a_pair_for_an_operand_is_a_tail_call() -> None:
    """``(k (cdr xs))`` looks like a named argument, and needs no stack when ``k`` is a procedure."""
    flow = FakeFlow()
    text = """
    (define (even-length? xs) (if (null? xs) true (odd-length? (cdr xs))))
    (define (odd-length? xs) (if (null? xs) false (even-length? (cdr xs))))
    (define (step k xs) (if (null? xs) 'done (k (cdr xs))))
    (define (go xs) (step go xs))
    (list (even-length? (range 30000)) (go (range 30000)))
    """
    assert await flow(text) == [True, "done"]


async def test_a_nest_is_as_deep_as_the_text_may_be() -> None:
    """Operators that are not known do not cost Python's stack."""
    flow = FakeFlow()
    levels = flow.limits.nesting - 1
    assert await flow(f"(let ((f identity)) {'(f ' * levels}1{')' * levels})") == 1


BINDINGS = {
    "let": "(let ((f {f})) {call})",
    "let*": "(let* ((g 1) (f {f})) {call})",
    "letrec": "(letrec ((g (lambda () {call})) (f {f})) (g))",
    "body": "(define (m) (define (g) {call}) (define f {f}) (g)) (m)",
    "top": "(define (g) {call}) (define f {f}) (g)",
}
"""Where a procedure may be bound that is only ever called; in some the call is written before the procedure."""


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize(
    ("procedure", "call", "expected"),
    [
        ("(lambda (a b) (list a b))", "(f 1 2)", [1, 2]),
        ("(lambda (a . more) (list a more))", "(f 1 2 3)", [1, [2, 3]]),
        ("(lambda (. all) all)", "(f 1 (f 2))", [1, [2]]),
        ("(lambda (a) a)", "(f (abs 1))", 1),
        ("(lambda (a) a)", "(f (f (abs 1)))", 1),
        ("(lambda (a . more) (if (= a 0) more (f (- a 1) a)))", "(f 2)", [1]),
    ],
)
async def test_a_procedure_is_called_alike_wherever_it_is_bound(
    binding: str, procedure: str, call: str, expected: Any
) -> None:
    """Whether its code can be called directly makes no difference to what a call gives."""
    if binding in ("let", "let*") and procedure.count("(f "):
        pytest.skip("a procedure does not see itself there")
    assert await FakeFlow()(BINDINGS[binding].format(f=procedure, call=call)) == expected


@pytest.mark.parametrize("binding", BINDINGS)
@pytest.mark.parametrize(("procedure", "call"), [("(lambda () 1)", "(f 2)"), ("(lambda (a . m) a)", "(f)")])
async def test_a_wrong_number_of_operands_is_said_alike_wherever_it_is_bound(
    binding: str, procedure: str, call: str
) -> None:
    """The error is about the operands, also of a local procedure that nothing but the call mentions."""
    with pytest.raises(SexpEvaluationError) as caught:
        await FakeFlow()(BINDINGS[binding].format(f=procedure, call=call))
    assert caught.value.code == "arity/closure"
