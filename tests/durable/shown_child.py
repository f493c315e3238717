"""Runs of random structures, in processes that kill themselves: see :mod:`tests.durable.test_shown_outcomes`.

One line of JSON on standard input for each process: ``{"db", "log", "face", "tree", "number", "limits", "fails", "kill_after"}``. The
log has a line for each outcome that is paid for (``paid KEY``) and for each that an observer was shown as a success (``shown KEY``).
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from typing import Any

from agentflow import AgentFlow, AgentflowError, Limits, ModelRequest, Price, ScriptedProvider
from agentflow.errors import JournalError
from agentflow.events import Event, ModelFinished, TaskFinished, ToolFinished

Tree = list[Any]
"""A form and its parts: ``["task", key]``, ``["agent", key]``, ``["tool", key]``, ``["timeout", seconds, part]``, ``["try", part]``,
or ``seq``, ``parallel``, ``race`` or ``pmap`` of parts."""
LEAVES = ("task", "agent", "tool")


def sexp(tree: Tree) -> str:
    """The S-expression of a structure."""
    match tree:
        case ["task" | "agent" as name, key]:
            return f'(content ({name} (key "{key}")))'
        case ["tool", key]:
            return f'(content (look (at "{key}")))'
        case ["timeout", seconds, part]:
            return f"(try (timeout {seconds} {sexp(part)}) (catch (e) (get-field e 'code)))"
        case ["try", part]:
            return f"(try {sexp(part)} (catch (e) (get-field e 'code)))"
        case ["pmap", *parts]:
            thunks = " ".join(f"(lambda () {sexp(part)})" for part in parts)
            return f"(pmap (lambda (f) (f)) (list {thunks}))"
        case [form, *parts]:
            return f"({'list' if form == 'seq' else form} {' '.join(map(sexp, parts))})"
        case _:
            raise AssertionError(tree)


def python(tree: Tree) -> str:
    """The Python text of a structure: a function for each part, and the call of the outermost."""
    lines: list[str] = []

    def part(tree: Tree) -> str:
        name = f"f{len(lines)}"
        lines.append("")
        at = len(lines) - 1
        match tree:
            case ["task" | "agent" as task, key]:
                body = f"return {task}({key!r})"
            case ["tool", key]:
                body = f"return look({key!r})"
            case ["timeout", seconds, inner]:
                body = f"try:\n        return timeout({seconds}, {part(inner)}())\n    except Exception as e:\n        return e.code"
            case ["try", inner]:
                body = f"try:\n        return {part(inner)}()\n    except Exception as e:\n        return e.code"
            case ["seq", *parts]:
                body = f"return [{', '.join([part(each) + '()' for each in parts])}]"
            case ["pmap", *parts]:
                body = f"return pmap(lambda f: f(), [{', '.join([part(each) for each in parts])}])"
            case [form, *parts]:
                body = f"return {form}({', '.join([part(each) + '()' for each in parts])})"
            case _:
                raise AssertionError(tree)
        lines[at] = f"def {name}():\n    {body}\n"
        return name

    first = part(tree)
    return "\n".join([*reversed(lines), f"{first}()"])


def flow_in(job: dict[str, Any]) -> tuple[AgentFlow, Callable[[Tree], Any]]:
    """A flow over the database of ``job`` with tasks and a tool, which log the outcomes they pay for, and its workflow."""
    log = os.open(job["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(what: str, key: str) -> None:
        os.write(log, f"{what} {key}\n".encode())

    async def pay(key: str) -> str:
        note("paid", key)
        await asyncio.sleep(random.choice([0.0, 0.002, 0.004, 0.02]))
        return f"<{key}>"

    async def model(request: ModelRequest) -> Any:
        said = request.messages[0].text
        turn = sum(each.role == "assistant" for each in request.messages)
        key = f"{said.split()[-1]}.{turn}"
        usage = {"input_tokens": 0, "output_tokens": 20}
        text = await pay(key)
        if said.startswith("agent") and turn < 2:
            return {"text": text, "tool_calls": [{"name": "look", "arguments": {"at": f"{key}t"}}], "usage": usage}
        return {"text": text, "usage": usage}

    def shown(event: Event) -> None:
        if isinstance(event, TaskFinished | ToolFinished) and event.outcome == "ok" and event.result is not None:
            text = event.result.content
        elif isinstance(event, ModelFinished) and event.outcome == "ok" and event.response is not None:
            text = event.response.text
        else:
            return
        for key in re.findall(r"<(.*?)>", text):
            note("shown", key)

    flow = AgentFlow(
        provider=ScriptedProvider(model),
        prices={"scripted:*": Price(input=0, output=10)},
        durable=f"sqlite:///{job['db']}",
    )
    flow.subscribe(shown)

    @flow.tool
    async def look(at: str) -> str:
        """Look at something, which may fail."""
        text = await pay(at)
        if random.random() < job["fails"]:
            raise ValueError("no luck")
        return text

    @flow.task(max_output_tokens=20)
    async def task(key: str) -> str:
        """task {{key}}"""
        raise NotImplementedError

    @flow.task(max_output_tokens=20, tools=[look])
    async def agent(key: str) -> str:
        """agent {{key}}"""
        raise NotImplementedError

    async def carry_out(tree: Tree) -> Any:
        """A structure, with asyncio's own constructs and those of the package in turn."""
        match tree:
            case ["task", key]:
                return await task(key)
            case ["agent", key]:
                return await agent(key)
            case ["tool", key]:
                return await flow.call_tool("look", at=key)
            case ["timeout", seconds, part]:
                try:
                    if len(str(part)) % 2:
                        async with asyncio.timeout(seconds):
                            return await carry_out(part)
                    return await asyncio.wait_for(carry_out(part), seconds)
                except TimeoutError:
                    return "late"
            case ["try", part]:
                try:
                    return await carry_out(part)
                except* AgentflowError:
                    pass
                return "failed"
            case ["seq", *parts]:
                return [await carry_out(part) for part in parts]
            case ["parallel", *parts] if len(parts) % 2:
                async with asyncio.TaskGroup() as group:
                    tasks = [group.create_task(carry_out(part)) for part in parts]
                return [each.result() for each in tasks]
            case ["parallel", *parts]:
                return await asyncio.gather(*[carry_out(part) for part in parts])
            case ["pmap", *parts]:
                return await flow.map(carry_out, parts, limit=3)
            case ["race", *parts]:
                return await flow.race(*[carry_out(part) for part in parts])
            case _:
                pass
        raise AssertionError(tree)

    @flow.workflow
    async def walk(tree: list[Any]) -> Any:
        return await carry_out(tree)

    return flow, walk


async def work_on(job: dict[str, Any]) -> bool:
    """Begin the run or resume it. Says whether it ended with a value."""
    flow, walk = flow_in(job)
    limits = Limits(**job["limits"])
    async with flow:
        try:
            stored = await flow.runs()
            if stored and stored[0].status == "done":  # it was killed after the end
                return True
            if stored:
                handle = await flow.resume("run", limits=limits)
            elif job["face"] == "workflow":
                handle = await flow.start(walk(job["tree"]), run_id="run", limits=limits)
            else:
                text = sexp(job["tree"]) if job["face"] == "sexp" else python(job["tree"])
                handle = await flow.start(text, surface=job["face"], run_id="run", limits=limits)
            await handle.result()
        except JournalError:
            raise
        except (AgentflowError, ExceptionGroup):
            return False
    return True


STUCK_S = 20.0
"""Seconds after which a process counts as stuck."""


def stuck() -> None:
    """End the process."""
    os._exit(3)


def main() -> None:
    """Fork a process for each job, after one run that loads all that they need."""
    with tempfile.TemporaryDirectory() as directory:
        job = {"db": f"{directory}/runs.db", "log": f"{directory}/log", "face": "sexp", "tree": ["task", "a"]}
        asyncio.run(work_on({**job, "fails": 0.0, "limits": {}}))
    for line in sys.stdin:
        job = json.loads(line)
        pid = os.fork()
        if not pid:
            status = 2
            try:
                random.seed()
                if job["kill_after"] is not None:
                    threading.Timer(job["kill_after"], os.kill, (os.getpid(), signal.SIGKILL)).start()
                threading.Timer(STUCK_S, stuck).start()
                status = 0 if asyncio.run(work_on(job)) else 1
            except BaseException:  # the process ends here, whatever it was
                traceback.print_exc()
            os._exit(status)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
