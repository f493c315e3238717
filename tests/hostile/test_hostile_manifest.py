"""One approval for a program that a model wrote: what it covers, and what no text of such a program gets by it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow
from agentflow.core.call.approval import ApprovalRequest
from agentflow.core.call.call import CallContext
from agentflow.handler.tools import tool
from agentflow.providers.scripted import ScriptedProvider

GRANTED = "(allow write wipe note ask each defatom eval-program)"


class Desk:
    """Tools that need approvals, what they did, and who was asked; ``answer`` says yes or no."""

    def __init__(self, answer: Callable[[ApprovalRequest], bool] = lambda request: True) -> None:
        self.asked: list[ApprovalRequest] = []
        self.done: list[str] = []
        self.grants: list[frozenset[str] | None] = []
        self._answer = answer

    def approve(self, request: ApprovalRequest) -> bool:
        self.asked.append(request)
        return self._answer(request)

    @property
    def tools(self) -> list[Any]:
        @tool(approval=True, sinks={"text": "user"})
        def write(text: Any, call: CallContext) -> str:
            """Write a text."""
            self.grants.append(call.grants)
            self.done.append(f"write {text}")
            return "written"

        @tool(approval=True)
        def wipe(text: Any) -> str:
            """Remove a text."""
            self.done.append(f"wipe {text}")
            return "gone"

        @tool(read_only=True)
        def note(text: Any) -> str:
            """Give a text back."""
            return str(text)

        return [write, wipe, note]

    def flow(self, *answers: Any, **options: Any) -> AgentFlow:
        return AgentFlow(provider=ScriptedProvider(list(answers)), tools=self.tools, approve=self.approve, **options)


async def test_one_program_is_approved_instead_of_its_calls() -> None:
    """The approver sees the text, what it reaches and its bounds, once; then it runs, and may call nothing else."""
    desk = Desk()
    async with desk.flow("(for-each (lambda (x) (write (text x))) (append lines (list 1)))") as flow:
        result = await flow.run(f'(solve "write them" (inputs {{"lines" (list "a" "b")}}) {GRANTED})')
    assert result.value.status == "COMPLETE" and desk.done == ["write a", "write b", "write 1"]
    (request,) = desk.asked
    manifest = request.manifest
    assert request.tool == "program" and manifest is not None
    assert (manifest.covers, manifest.tool_calls, manifest.model_calls) == (("write",), "3", "0")
    assert [each.name for each in manifest.authority.tools] == ["write"] and manifest.authority.complete
    for shown in ("tool calls    3", "write (writes, text: user)", "(for-each (lambda (x)"):
        assert shown in request.text
    assert all(grants is not None and "wipe" not in grants and "note" not in grants for grants in desk.grants)


async def test_a_program_that_is_refused_does_nothing_and_the_model_is_told() -> None:
    """No is an error of that program, which goes back to the model; another one may do without."""
    desk = Desk(lambda request: False)
    async with desk.flow("(write (text 1))", "(note (text 2))") as flow:
        result = await flow.run(f'(solve "do it" {GRANTED})')
    assert result.value.content == "2" and not desk.done and len(desk.asked) == 1


async def test_an_approval_is_for_that_text_and_those_tools() -> None:
    """Another text, and another tool under the name, has another digest."""
    digests: list[str] = []
    for program, kind in (
        ("(write (text 1))", "a"),
        ("(write (text 2))", "a"),
        ("(write (text 1))", "b"),
        ("(write (text 1))", "a"),
    ):
        desk = Desk(lambda request: False)
        async with desk.flow(program, *["(no"] * 3) as flow:
            if kind == "b":
                schema = {"type": "object", "properties": {"text": {"type": "integer"}}}
                flow.tools.register({"name": "write", "input_schema": schema, "approval": True}, str)
            await flow.run('(solve "do it" (allow write))')
        digests.append(desk.asked[0].digest)
    assert len(set(digests)) == 3 and digests[0] == digests[3]


TASK = '(defatom ask (params (x string)) (instructions "{{x}}") (tools write))'
HOSTILE = {
    "a name that data gives": '((string->symbol (string-append "wi" "pe")) (text 1))',
    "a name in an answer": '((content (note (text "wipe"))) (text 1))',
    "a program made of data": '(begin (write (text 0)) (eval-program (string-append "(wipe (text " "1))") (allow wipe)))',
    "a program that is a constant": "(begin (write (text 0)) (eval-program '(wipe (text 1)) (allow wipe)))",
    "a saved workflow": "(begin (write (text 0)) (call-workflow each))",
    "a procedure among the inputs": "(begin (write (text 0)) (helper 1))",
    "the value of a caught error": "(begin (write (text 0)) (try (raise helper) (catch (e) ((get-field e 'value) 1))))",
}


@pytest.mark.parametrize("way", HOSTILE)
async def test_what_the_approved_text_does_not_call_itself_asks(way: str, tmp_path: Path) -> None:
    """A yes to programs that call ``write`` never lets ``wipe`` run unasked, whatever way its call comes about."""
    desk = Desk(lambda request: request.manifest is not None and "wipe" not in request.manifest.covers)
    async with desk.flow(HOSTILE[way], *["(no"] * 3, workflows=tmp_path) as flow:
        (tmp_path / "each.sexp").write_text(
            ';;; agentflow workflow 1\n;;; {"name": "each", "params": {}, "allow": null}\n(wipe (text 1))\n', "utf-8"
        )
        await flow.run(f'(define (helper x) (wipe (text x))) (solve "x" (inputs (dict "helper" helper)) {GRANTED})')
    assert not [each for each in desk.done if each.startswith("wipe")], way


async def test_what_a_tasks_model_calls_asks_by_itself() -> None:
    """A model within the program chooses its own arguments, which nobody has seen: each of its calls is asked for."""
    desk = Desk(lambda request: request.manifest is not None)
    call = {"tool_calls": [{"name": "write", "arguments": {"text": "mine"}}]}
    async with desk.flow(f"{TASK} (write (text 1)) (content (ask (x 1)))", call, "done") as flow:
        result = await flow.run(f'(solve "do it" {GRANTED})')
    assert result.value.content == "done" and desk.done == ["write 1"]
    assert [each.tool for each in desk.asked] == ["program", "write"]


async def test_a_closure_that_outlives_its_program_asks() -> None:
    """The approval ends with the program: what it leaves behind asks for each call."""
    desk = Desk(lambda request: request.manifest is not None)
    async with desk.flow("(write (text 1)) (lambda () (write (text 2)))") as flow:
        await flow.run(f'((value-of (solve "do it" {GRANTED})))')
    assert desk.done == ["write 1"] and [each.tool for each in desk.asked] == ["program", "write"]


async def test_programs_that_call_no_such_tool_ask_nothing() -> None:
    """A program that only reads is not asked for, nor is one with the host's own authority."""
    desk = Desk()
    async with desk.flow("(note (text 1))") as flow:
        assert (await flow.run(f'(solve "do it" {GRANTED})')).value.content == "1"
        await flow.run('(write (text "host"))')
    assert not desk.asked and desk.done == ["write host"]


async def test_an_approval_holds_in_a_run_within_a_run() -> None:
    """A tool of the host that runs a program is part of the run: there, too, one approval covers the calls of a text."""
    desk = Desk()
    async with desk.flow("(write (text 1)) (write (text 2))") as flow:

        @flow.tool
        async def inner() -> str:
            """Run a program."""
            return (await flow.run('(solve "do it" (allow write))')).value.content

        await flow.run("(inner)", allow=["inner", "solve", "write"])
    assert desk.done == ["write 1", "write 2"] and [each.tool for each in desk.asked] == ["program"]
