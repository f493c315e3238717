"""The shell: real prompt_toolkit on a pipe, real evaluation, values and errors as they are shown."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest
from prompt_toolkit.document import Document
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from agentflow import AgentFlow, ScriptedProvider
from agentflow.cli.run.repl import PromptEditor, is_complete, names_in_sight, repl
from agentflow.core.data.source import Source
from agentflow.lang.environment import SexpEnvironment


class Typed:
    """A line editor that plays inputs; a callable among them is called when its turn comes."""

    def __init__(self, *inputs: str | Callable[[], Any]) -> None:
        self.inputs = list(inputs)

    async def read(self, prompt: str) -> str:
        """The next input."""
        if not self.inputs:
            raise EOFError
        text = self.inputs.pop(0)
        if callable(text):
            return text() or ""
        return text


@pytest.fixture
async def flow(tmp_path: Path) -> AsyncGenerator[AgentFlow]:
    """A flow whose model answers in words."""
    async with AgentFlow(provider=ScriptedProvider(["one two three"] * 5), root=tmp_path) as made:
        yield made


async def session(flow: AgentFlow, *inputs: str | Callable[[], Any]) -> str:
    """What a session with these inputs shows."""
    shown: list[str] = []
    assert await repl(flow, editor=Typed(*inputs), write=shown.append, banner=False) == 0
    return "".join(shown)


async def test_values_errors_and_definitions(flow: AgentFlow) -> None:
    """Values print as program text, errors as diagnostics; definitions stay, and _ is the last value."""
    shown = await session(flow, "(define x 20)", '(list x \'a "b")', "(first nil)", "(+ x 1)", "(* _ 2)")
    assert '20\n(20 a "b")\n' in shown
    assert "error[list/empty]" in shown
    assert shown.endswith("21\n42\n")


async def test_answers_are_shown_as_they_stream(flow: AgentFlow) -> None:
    """A model's text appears while it comes, log lines in between, and then the value."""
    task = '(defatom ask (params (q string)) (instructions "{{q}}"))'
    shown = await session(flow, task, '(value-of (ask (q "hi")))', '(log-message "note")')
    assert "one two three\n" in shown and '"one two three"\n' in shown and "; note\n" in shown


async def test_commands(flow: AgentFlow) -> None:
    """,doc ,names ,time ,help do what they say, and an unknown command is answered."""
    shown = await session(
        flow, "(define y 1)", ",doc append", ",doc y", ",names", ",time (+ 1 1)", ",nope", ",quit", "9"
    )
    assert "(append list ...)" in shown and "y is 1" in shown and "\ny\n" in shown
    assert "2\n; 0.0" in shown and "there is no command ,nope" in shown and "9" not in shown.split(",nope")[1]


async def test_interrupt_ends_one_form(flow: AgentFlow) -> None:
    """Ctrl-C while a form runs cancels that form; the shell and its definitions go on."""
    loop = asyncio.get_running_loop()

    def interrupt_soon() -> str:
        loop.call_later(0.2, os.kill, os.getpid(), signal.SIGINT)
        return "(let spin () (spin))"

    before = signal.getsignal(signal.SIGINT)
    shown = await session(flow, "(define kept 7)", interrupt_soon, "kept")
    assert "; interrupted\n7\n" in shown
    assert signal.getsignal(signal.SIGINT) is before


async def test_a_failing_tool_does_not_end_the_shell(flow: AgentFlow) -> None:
    """An exception of the host's own code is shown."""

    async def breaks() -> str:
        """Breaks."""
        raise ValueError("no")

    flow.tool(breaks)
    assert "FAILED" in await session(flow, "(breaks)")


@pytest.mark.parametrize(
    ("text", "complete"),
    [("(+ 1", False), ("(+ 1 2)", True), ('"a', False), ("'", False), (")", True), (",doc x", True), ("#| x", False)],
)
def test_lines_go_on_until_balanced(text: str, complete: bool) -> None:
    """Enter evaluates what is closed, and continues what is not; text that more cannot mend is evaluated."""
    assert is_complete(text) is complete


@pytest.fixture
def pipe() -> Any:
    """A terminal's input that a test types into."""
    with create_pipe_input() as made:
        yield made


async def test_the_line_editor(pipe: PipeInput, tmp_path: Path) -> None:
    """On prompt_toolkit: Enter in an open form makes a new line; history is kept in the file."""
    history = tmp_path / "state" / "history"
    editor = PromptEditor(lambda: ["string-append"], history=history, input=pipe, output=DummyOutput())
    pipe.send_text("(+ 1\r2)\r")
    assert await asyncio.wait_for(editor.read("> "), 5) == "(+ 1\n2)"
    assert "+(+ 1" in history.read_text("utf-8")
    reading = asyncio.create_task(editor.read("> "))
    pipe.send_text("(string-ap\t")
    await asyncio.sleep(0.5)  # a completion is looked up while typing goes on
    pipe.send_text(' "a")\r')
    assert await asyncio.wait_for(reading, 5) == '(string-append "a")'
    pipe.send_text("abc\x03")
    with pytest.raises(KeyboardInterrupt):
        await editor.read("> ")
    pipe.send_text("\x04")
    with pytest.raises(EOFError):
        await editor.read("> ")


async def test_completion_knows_the_live_environment(flow: AgentFlow) -> None:
    """Names to complete are the variables, tools, primitives and forms there are now."""
    env = SexpEnvironment({"my-variable": 1})
    names = names_in_sight(flow, env)
    assert {"my-variable", "string-append", "lambda", "system:read_files"} <= set(names)
    editor = PromptEditor(lambda: names_in_sight(flow, env), output=DummyOutput())
    completer = editor.completer
    found = [c.text for c in completer.get_completions(Document("(list my-v"), None)]  # type: ignore[arg-type]
    assert found == ["my-variable"]


async def test_the_command_on_a_terminal(tmp_path: Path) -> None:
    """On a real terminal: a form over two lines, its value, a clean end; what was typed is in the history file."""
    master, slave = os.openpty()
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path),
        "TERM": "xterm",
        "PROMPT_TOOLKIT_NO_CPR": "1",
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "agentflow", "repl", "--model", "offline", "--root", str(tmp_path),
        stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    shown = b""
    try:
        async with asyncio.timeout(60):
            for typed, wait in ((b"(* 6\r", b">"), (b"7)\r", b"\n\x1b[0m."), (b",quit\r", b"42\r\n")):
                while wait not in shown:
                    shown += await asyncio.to_thread(os.read, master, 4_096)
                os.write(master, typed)
            assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(master)
    assert "+(* 6" in (tmp_path / "agentflow" / "history").read_text("utf-8")


async def python_session(flow: AgentFlow, *inputs: str) -> str:
    """What a session in Python shows."""
    shown: list[str] = []
    assert await repl(flow, editor=Typed(*inputs), write=shown.append, banner=False, surface="python") == 0
    return "".join(shown)


async def test_a_session_in_python(flow: AgentFlow) -> None:
    """Statements are evaluated in one environment, values shown as Python shows them, errors with hints in Python."""
    shown = await python_session(
        flow,
        "x = 20",
        "def twice(n):\n    return n * 2\n",
        "[twice(x), 'a', None, {'k': (1,)}]",
        "x.nme",
        "sortd([1])",
        "twice(_)",
        "# nothing",
        ",doc pmap",
        ",doc open",
        "@task\ndef say(q):\n    '{{q}}'\n",
        ",doc say",
        "say('hi')",
        "print('note')",
    )
    assert "[40, 'a', None, {'k': (1,)}]\n" in shown and "did you mean 'sorted'" in shown and "None\n" not in shown[:5]
    assert "pmap(f, xs, limit=8)\n  Calls a function" in shown and "'open' is not there: tools read" in shown
    assert "say(q)\n  task\n" in shown and "'one two three'\n" in shown and "# note\n" in shown


def test_blocks_of_python_end_with_an_empty_line() -> None:
    """A whole statement is evaluated at the end of its line; an open bracket, text or block waits for more."""
    from agentflow.cli.run.repl import PYTHON

    whole = ["x = 1", "f(1,\n2)", "def f():\n    return 1\n", "x = )", ",doc f", "'''a\nb'''"]
    more = ["def f():", "def f():\n    return 1", "f(1,", "'''a", "if x:\n    y\nelse:", "@task"]
    assert [is_complete(text, PYTHON) for text in whole] == [True] * len(whole)
    assert [is_complete(text, PYTHON) for text in more] == [False] * len(more)


async def test_a_class_typed_in_one_entry_is_there_in_the_next(flow: AgentFlow) -> None:
    """In the shell for Python: as what is called, as the type of an answer and of other fields, completed and documented; typed again it is another one."""
    shown: list[str] = []
    inputs = [
        'class Review:\n    worst: str\n    grade: str = "low"\n',
        'Review("x").grade',
        "class Reviews:\n    items: list[Review]\n",
        'Reviews([Review("y")]).items[0].worst',
        '@task\ndef judge(x: str) -> Review:\n    """Judge {{x}}"""\n',
        "Review(wrst=1)",
        ",doc Review",
        ",names",
        "Review = 5",
        "class Review:\n    better: int\n",
        "Review(3).better",
    ]
    assert await repl(flow, editor=Typed(*inputs), write=shown.append, banner=False, surface="python") == 0
    text = "".join(shown)
    assert text.startswith("'low'\n'y'\nerror[call/argument]: Review(...) has no field 'wrst'")
    assert "did you mean 'worst'?" in text and "class Review:\n    worst: str" in text and "Review\nReviews\n" in text
    assert text.endswith("\n3\n")
    env = SexpEnvironment()
    await flow.evaluator.evaluate(Source("t", "class A:\n    x: int", "python"), env)
    assert "A" in names_in_sight(flow, env)
