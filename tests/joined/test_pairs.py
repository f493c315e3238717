"""Who calls whom at a port, with the real parts on both sides: fakes alone once hid a pair that could not work.

:data:`PAIRS` has a row for every pair that meets. A port without a row fails the suite, and so does an implementation
whose methods do not take what the port says.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agentflow import (
    AgentFlow,
    AgentflowError,
    Allowance,
    CommandExecutor,
    FileAccessManager,
    LimitExceeded,
    Limits,
    MemorySystem,
    Price,
    Rate,
    ScriptedProvider,
    code,
    tool,
)
from agentflow.connect import token_store
from agentflow.core.call import journal_port, run_port
from agentflow.core.call.call import CallContext
from agentflow.core.data.context import AssociativeMatchResult, ContextGenerationInput
from agentflow.core.data.messages import ModelRequest, TextPart, user
from agentflow.core.data.requests import FunctionCallNode, SubtaskRequest
from agentflow.core.events.effects import CallWorkflow, Solve
from agentflow.core.ports import batch_ports, executor_ports, memory_ports, ports, store_ports
from agentflow.core.ports.memory_ports import Candidate
from agentflow.core.ports.ports import Prompt
from agentflow.durable.catalogue import RunCatalogue
from agentflow.durable.decisions import JournalClock, JournalVerdict
from agentflow.durable.journal import RunJournal
from agentflow.durable.reuse import Reuse
from agentflow.exploration.explorer import FlowExplorer
from agentflow.handler.around_model import RunningCall
from agentflow.handler.data_context import DataContexts
from agentflow.handler.tool_registry import ToolRegistry
from agentflow.handler.tools import subtask_tool
from agentflow.handler.turn_loop import OneModel, TurnLoop
from agentflow.journal.events import SqliteEvents
from agentflow.journal.postgres.queue import PostgresQueue
from agentflow.journal.postgres.rows import BlobDirectory
from agentflow.journal.postgres.shared_rates import PostgresRates
from agentflow.journal.sessions import Sessions
from agentflow.journal.sqlite import SqliteJournal
from agentflow.journal.store import Results
from agentflow.journal.stored_batches import StoredBatches
from agentflow.journal.stored_purses import StoredPurses
from agentflow.mcp import FileTokens, McpHttp, MemoryTokens, SignIn, TokenStore
from agentflow.memory.file_memory import EmbeddingSource, FileMemory
from agentflow.memory.index import LexicalRanker
from agentflow.memory.notes import FlowNotes
from agentflow.memory.rerank import LlmRanker
from agentflow.observe.files import EventFile, EventFiles
from agentflow.observe.recorder import Recorder
from agentflow.providers.batch_calls import OpenAIBatches
from agentflow.providers.embeddings import Embeddings
from agentflow.providers.fallback import FallbackProvider, FallbackRouter
from agentflow.providers.fleet_rates import FleetRates
from agentflow.providers.offline import OfflineProvider
from agentflow.providers.openai import OpenAIResponsesProvider
from agentflow.providers.prices import Prices
from agentflow.providers.rates import ProcessRates
from agentflow.providers.table import Router, open_provider
from agentflow.run.admission import Admission
from agentflow.run.bounds.flow_facts import Facts
from agentflow.run.engine import Engine, ProgramCheck
from agentflow.run.run import Run
from agentflow.settings import Settings
from agentflow.spec.evaluator import SexpEvaluator
from agentflow.spec.handler import BaseHandler
from agentflow.spec.host import HandlerContexts, HostCommands, HostMemory
from agentflow.spec.task_system import TaskSystem
from agentflow.tasks.service import TaskService
from agentflow.tasks.solve import Solver
from agentflow.tasks.workflows import WorkflowLibrary, make_workflow
from tests.batches.flows import about, asking, opened
from tests.support.batch_server import BatchServer
from tests.support.embedding_server import EmbeddingServer
from tests.support.model_server import ModelServer

ASK = {"name": "ask", "subtype": "ask", "params": "q", "instructions": "Answer {{q}}"}


class HostsCommands:
    """A host's command executor, in the specification's shape: it knows nothing of calls."""

    def __init__(self, commands: CommandExecutor) -> None:
        self.commands = commands

    async def execute_command_safely(self, command: Any, cwd: Any = None, timeout: Any = None) -> Any:
        return await self.commands.execute_command_safely(command, cwd, timeout)

    def parse_file_paths_from_output(self, output: str, cwd: Any = None) -> list[str]:
        return self.commands.parse_file_paths_from_output(output, cwd)


class HostsMemory:
    """A host's memory, which asks another that is real."""

    def __init__(self, memory: MemorySystem) -> None:
        self.memory = memory

    async def get_relevant_context_for(self, input: ContextGenerationInput) -> AssociativeMatchResult:
        return await self.memory.get_relevant_context_for(input)


@dataclass
class House:
    """A flow over two files, whose scripted model plays ``replies`` in order."""

    flow: AgentFlow
    root: Path
    provider: ScriptedProvider
    replies: list[Any] = field(default_factory=list[Any])
    postgres: Callable[[], str] = lambda: ""
    """Gives the URL of a new schema."""

    @asynccontextmanager
    async def call(self) -> AsyncIterator[CallContext]:
        """A call of a real run."""
        async with self.flow.engine.open("pair") as (_, call):
            yield call

    @property
    def bees(self) -> str:
        return str(self.root / "bees.txt")

    def sent(self) -> str:
        """All text of the last request."""
        return "\n".join(message.text for message in self.provider.requests[-1].messages)


@pytest.fixture
async def house(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[House]:
    (tmp_path / "bees.txt").write_text("The hive holds honey.\n")
    (tmp_path / "fish.txt").write_text("The pelican eats fish.\n")
    replies: list[Any] = []
    provider = ScriptedProvider(lambda request: replies.pop(0))
    async with AgentFlow(provider=provider, root=tmp_path, sandbox="none") as flow:
        flow.task_system.register_template(ASK)
        yield House(flow, tmp_path, provider, replies, lambda: request.getfixturevalue("postgres_url"))


def prompt(text: str = "go", **options: Any) -> Prompt:
    return Prompt(parts=(TextPart(text),), **options)


def calls(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_calls": [{"name": name, "arguments": arguments}]}


async def shout(text: str) -> str:
    """Say it loudly."""
    return text.upper()


# -- models -----------------------------------------------------------------------------------------------------------


async def turn_loop_asks_offline(house: House) -> None:
    loop = TurnLoop(OneModel(OfflineProvider()), ToolRegistry())
    async with house.call() as call:
        outcome = await loop.run_prompt(prompt("What holds honey? The hive holds honey."), call)
    assert "hive" in outcome.response.text


async def turn_loop_asks_what_calls_cost(house: House) -> None:
    house.replies += ["paid"]
    async with AgentFlow(
        provider=house.provider, root=house.root, limits=Limits(usd=1), prices={"scripted:*": Price(1, 1)}
    ) as flow:
        result = await flow.run('(defatom ask (params) (instructions "Go.")) (value-of (ask))')
    assert result.value == "paid" and result.cost == result.usage.total_tokens / 1e6


async def adapter_keeps_to_its_rate(house: House) -> None:
    rates = ProcessRates({"openai-chat:*": Rate(requests_per_min=60)})
    async with ModelServer(["good"], repeat=True) as server:
        adapter = open_provider("openai-chat", base_url=f"{server.url}/v1", api_key="k", rates=rates)
        deltas = [delta async for delta in adapter.stream(ModelRequest((user("hi"),), model="m"))]
        await adapter.aclose()
    assert deltas[-1].response is not None
    assert [rates.ready("openai-chat:m", 0) for _ in range(6)] == [True] * 5 + [False], "the call was counted"


async def a_purse_is_spent_from_its_store(house: House) -> None:
    purses, url = {"team": Allowance(model_calls=2)}, f"sqlite:///{house.root}/purses.db"
    async with AgentFlow(provider=ScriptedProvider(["one", "two"]), durable=url, purses=purses) as flow:
        await flow.ask("hi", purse="team")
    async with AgentFlow(provider=ScriptedProvider(["two", "three"]), durable=url, purses=purses) as flow:
        await flow.ask("hi", purse="team")
        with pytest.raises(LimitExceeded):
            await flow.ask("hi", purse="team")


async def a_run_has_answers_of_a_batch(house: House) -> None:
    server = BatchServer(about)
    async with server.serving(), opened(server.url, house.root) as flow:
        result = await (await flow.start(asking(flow)(["a"]), run_id="r1")).result()
    assert result.value == ["A"] and len(server.batches) == 1


async def middleware_awaits_a_model_call(house: House) -> None:
    seen: list[str] = []

    async def watched(request: Any, run: Any, ctx: CallContext) -> Any:
        response = await run(request)
        seen.append(response.text)
        return response

    async with AgentFlow(provider=ScriptedProvider(["up"]), around_model=[watched]) as flow:
        assert await flow.ask("hi") == "up"
    assert seen == ["up"]


async def fallback_goes_on_to_the_next(house: House) -> None:
    house.replies += [{"error": "down"}, "up"]
    second = FallbackProvider([(house.provider, "a"), (house.provider, "b")])
    async with house.call() as call:
        outcome = await TurnLoop(OneModel(second), ToolRegistry()).run_prompt(prompt(), call)
    assert outcome.response.text == "up"


async def turn_loop_finds_a_model(house: House) -> None:
    loop = TurnLoop(FallbackRouter(Router("offline"), ()), ToolRegistry())
    async with house.call() as call:
        assert (await loop.run_prompt(prompt("What holds honey? The hive."), call)).response.text


async def handler_finds_a_model(house: House) -> None:
    assert house.flow.handler.model_provider is house.provider


# -- tools --------------------------------------------------------------------------------------------------------------


async def turn_loop_calls_a_tool(house: House) -> None:
    house.flow.tool(shout)
    house.replies += [calls("shout", text="honey"), "done"]
    async with house.call() as call:
        outcome = await house.flow.handler.prompts.run_prompt(prompt(), call)
    assert outcome.turns == 2 and "HONEY" in str(house.provider.requests[-1].messages[-1].parts)


async def program_calls_a_tool(house: House) -> None:
    house.flow.tool(shout)
    assert (await house.flow.run('(value-of (shout (text "honey")))')).value == "HONEY"


async def program_calls_a_subtask_tool(house: House) -> None:
    house.flow.tools.add(subtask_tool("delegate", "Hand it on.", template="ask", parameters={"q": "string"}))
    house.replies.append("handed on")
    assert (await house.flow.run('(value-of (delegate (q "x")))')).value == "handed on" and "Answer x" in house.sent()


async def program_gives_a_tool_its_settings(house: House) -> None:
    async def show(inputs: dict[str, Any], context: Any, pairs: list[list[str]]) -> list[Any]:
        return [inputs, context, pairs]

    house.flow.tool(show)
    for given in ("'((a 1))", '(list (list "a" 1))', '{"a" 1}'):
        text = f"(value-of (show (inputs {given}) (context {given}) (pairs '((a b)))))"
        assert (await house.flow.run(text)).value == [{"a": 1}, {"a": 1}, [["a", "b"]]]


async def program_gives_a_tool_a_list(house: House) -> None:
    async def count(inputs: list[list[str]]) -> int:
        return len(inputs)

    house.flow.tool(count)
    assert (await house.flow.run("(value-of (count (inputs '((a b) (c d)))))")).value == 2


async def solver_describes_a_tool(house: House) -> None:
    house.flow.tool(shout)
    assert house.flow.solver.names.describe(frozenset({"shout"})) == "(shout (text string)) -> str tool: Say it loudly."


# -- prompts ------------------------------------------------------------------------------------------------------------


async def task_runs_a_prompt(house: House) -> None:
    house.replies.append("fine")
    async with house.call() as call:
        result = await house.flow.task_system.service.run_request(SubtaskRequest(name="ask", inputs={"q": "x"}), call)
    assert result.content == "fine" and "Answer x" in house.sent()


async def handler_runs_a_prompt(house: House) -> None:
    house.replies.append("fine")
    assert (await house.flow.handler.execute_prompt("hi")).content == "fine"


async def task_system_uses_a_handler(house: House) -> None:
    house.replies.append("fine")
    result = await house.flow.task_system.execute_task("atomic", "ask", {"q": "x"}, handler=house.flow.handler)
    assert result.content == "fine", result


# -- memory -------------------------------------------------------------------------------------------------------------


def asking_memory(memory: Callable[[House], Any]) -> Callable[[House], Awaitable[None]]:
    async def ask(house: House) -> None:
        async with house.call() as call:
            result = await memory(house).find(ContextGenerationInput(query="honey"), call)
        assert result.error is None and result.file_paths == [house.bees]

    return ask


async def task_looks_context_up(house: House) -> None:
    house.replies.append("fine")
    result = await house.flow.task_system.execute_task(
        "atomic", "ask", {"q": "honey"}, context_management={"fresh_context": "enabled"}
    )
    assert house.bees in result.notes["context_files"] and "The hive holds honey." in house.sent()


async def program_looks_context_up(house: House) -> None:
    assert (await house.flow.run('(get_context (query "honey"))')).value == [house.bees]


async def tool_looks_context_up(house: House) -> None:
    result = await house.flow.executors.execute_get_context({"query": "honey"})
    assert json.loads(result.content) == [house.bees]
    assert ((await house.flow.run('(value-of (system:get_context (query "honey")))')).value) == [house.bees]


async def handler_primes_from_memory(house: House) -> None:
    primed = await house.flow.handler.prime_data_context("honey")
    assert [item.path for item in primed.items] == [house.bees]


async def memory_asks_a_model_to_rank(house: House) -> None:
    house.replies += [
        json.dumps(
            [{"path": str(house.root / name), "score": 0.5, "relevance": ""} for name in ("fish.txt", "bees.txt")]
        )
    ]
    ranker = LlmRanker(house.flow.solver.executor.run_template)
    async with FileMemory(roots=[house.root], ranker=ranker) as memory, house.call() as call:
        result = await memory.find(ContextGenerationInput(query="honey fish"), call)
        outside = await memory.find(ContextGenerationInput(query="honey fish"))
    assert result.error is None and {match.score for match in result.matches} == {0.5}
    assert outside.error is None and len(outside.matches) == 2 and {match.score for match in outside.matches} != {0.5}
    assert "The hive holds honey." in house.sent()


async def one_bad_entry_does_not_void_the_others(house: House) -> None:
    answer = [{"path": house.bees, "score": 0.5, "relevance": ""}, {"path": str(house.root / "fish.txt")}]
    house.replies += [json.dumps(answer)] * 4  # each is sent back once for its second entry
    ranker = LlmRanker(house.flow.solver.executor.run_template)
    async with FileMemory(roots=[house.root], ranker=ranker) as memory, house.call() as call:
        result = await memory.find(ContextGenerationInput(query="honey fish"), call)
    assert result.error is None and [match.score for match in result.matches if match.path == house.bees] == [0.5]
    tasks = TaskSystem(prompts=house.flow.handler.prompts)
    index = {house.bees: "bees", str(house.root / "fish.txt"): "fish"}
    found = await tasks.generate_context_for_memory_system(ContextGenerationInput(query="honey"), index)
    assert found.error is None and found.file_paths[0] == house.bees


async def memory_system_ranks_for_the_host(house: House) -> None:
    answer = json.dumps([{"path": house.bees, "score": 0.25, "relevance": ""}])
    house.replies += [answer, answer]
    runs: set[str] = set()
    settings = Settings(root=str(house.root), rerank=True)
    async with AgentFlow(provider=house.provider, root=house.root, settings=settings) as flow:
        flow.subscribe(lambda event: runs.add(event.run_id))
        question = ContextGenerationInput(query="honey")
        result = await flow.memory_system.get_relevant_context_for(question)
        assert result.error is None and [match.score for match in result.matches] == [0.25] and len(runs) == 1

        async def look() -> float:
            """Ask from inside a tool: the ranking is that run's."""
            return (await flow.memory_system.get_relevant_context_for(question)).matches[0].score

        flow.tool(look)
        assert (await flow.run("(value-of (look))")).value == 0.25 and len(runs) == 2


async def memory_ranks_by_words(house: House) -> None:
    async with FileMemory(roots=[house.root]) as memory, house.call() as call:
        await memory.update_global_index()
        memory.ranker = LexicalRanker(memory.index)
        result = await memory.find(ContextGenerationInput(query="honey"), call)
    assert result.error is None and result.file_paths == [house.bees]


class HostsSource:
    """A host's source of candidates, which proposes one file."""

    def __init__(self, path: str) -> None:
        self.path = path

    async def candidates(self, question: ContextGenerationInput, limit: int) -> list[Candidate]:
        return [Candidate(self.path, (1, 1), 1.0, "the host says so")]


async def memory_asks_a_source(house: House) -> None:
    source = HostsSource(str(house.root / "fish.txt"))
    async with FileMemory(roots=[house.root], sources=[source]) as memory, house.call() as call:
        result = await memory.find(ContextGenerationInput(query="honey"), call)
    assert set(result.file_paths) == {house.bees, source.path}
    assert {match.path: match.relevance for match in result.matches}[source.path] == "the host says so"


async def memory_asks_for_vectors(house: House) -> None:
    async with EmbeddingServer(meanings=[{"honey", "pelican"}]) as server:
        embedder = Embeddings("toy", base_url=server.url)
        async with FileMemory(roots=[house.root], embedder=embedder) as memory, house.call() as call:
            result = await memory.find(ContextGenerationInput(query="honey"), call)
    assert set(result.file_paths) == {house.bees, str(house.root / "fish.txt")}


# -- files and commands -------------------------------------------------------------------------------------------------


async def task_reads_files(house: House) -> None:
    house.replies.append("fine")
    await house.flow.task_system.execute_task("atomic", "ask", {"q": "x"}, file_paths=["bees.txt"])
    assert "The hive holds honey." in house.sent()


async def tools_read_write_and_list(house: House) -> None:
    executors = house.flow.executors
    assert "honey" in (await executors.execute_read_files({"file_paths": ["bees.txt"]})).content
    assert not (await executors.execute_write_file({"file_path": "new.txt", "content": "new"})).failed
    listed = await executors.execute_list_directory({"directory_path": "."})
    assert listed.notes["directory_contents"] == ["bees.txt", "fish.txt", "new.txt"]


async def handler_primes_from_files(house: House) -> None:
    primed = await house.flow.handler.prime_data_context(initial_files=["bees.txt"])
    assert "honey" in primed.items[0].content


async def tool_runs_a_command(house: House) -> None:
    result = await house.flow.executors.execute_shell_command({"command": "cat bees.txt"})
    assert result.content == "The hive holds honey.\n"
    refused = await house.flow.run(
        '(system:execute_shell_command (command "cat bees.txt"))', allow=["system:execute_shell_command"]
    )
    assert refused.value.failed and "was not approved" in refused.value.content


async def task_finds_files_by_a_command(house: House) -> None:
    house.replies.append("fine")
    source = {"type": "command", "command": "ls bees.txt"}
    house.flow.task_system.register_template({**ASK, "file_paths_source": source})
    await house.flow.task_system.execute_task("atomic", "ask", {"q": "x"})
    assert "The hive holds honey." in house.sent()


async def handler_finds_files_by_a_command(house: House) -> None:
    assert await house.flow.handler.execute_file_path_command("ls bees.txt") == [house.bees]


async def model_runs_a_command(house: House) -> None:
    call = calls("system:execute_shell_command", command="echo hi")
    house.replies += [call, "done"]
    house.flow.task_system.register_template({**ASK, "tools": ["system:execute_shell_command"]})
    await house.flow.task_system.execute_task("atomic", "ask", {"q": "x"})
    assert "was not approved" in str(house.provider.requests[-1].messages[-1].parts)


async def host_commands_find_files(house: House) -> None:
    host = HostCommands(HostsCommands(house.flow.commands))
    async with house.call() as call:
        found = await host.find_files("find . -name '*.txt'", call)
        started = await host.prepare("ls bees.txt", call=call)
        assert (await started()).success and (await host.find_files("no-such-program", call)).error
    assert sorted(found.paths) == [house.bees, str(house.root / "fish.txt")]


async def memory_has_its_own_way_with_descriptions(house: House) -> None:
    class Memory(MemorySystem):
        async def get_relevant_context_with_description(self, query: str, context: str = "") -> Any:
            return await super().get_relevant_context_with_description(f"honey {query}", context)

    async with Memory(roots=[house.root]) as memory:
        template = {"file_paths_source": {"type": "description", "description": "please"}}
        assert await house.flow.task_system.resolve_file_paths(template, memory) == ([house.bees], None)


async def host_commands_run_a_command(house: House) -> None:
    host = HostCommands(HostsCommands(house.flow.commands))
    async with house.call() as call:
        ended = await host.execute_command_safely("ls bees.txt", call=call)
    assert ended.success and host.parse_file_paths_from_output(ended.stdout) == [house.bees]


# -- tasks --------------------------------------------------------------------------------------------------------------


async def program_calls_a_task(house: House) -> None:
    house.replies.append("fine")
    assert (await house.flow.run('(value-of (ask (q "x")))')).value == "fine"


async def run_runs_a_subtask(house: House) -> None:
    house.replies += [calls("dig", q="x"), "dug", "done"]
    house.flow.tools.add(subtask_tool("dig", "Digs.", template="ask", parameters={"q": "string"}))
    assert (await house.flow.handler.execute_prompt("go")).content == "done"
    assert "dug" in str(house.provider.requests[-1].messages[-1].parts)


async def solver_describes_a_task(house: House) -> None:
    assert house.flow.solver.names.describe(frozenset({"ask"})).startswith("(ask (q any)) task: Answer")


async def task_system_takes_an_evaluator(house: House) -> None:
    system = TaskSystem(house.flow.evaluator, house.flow.memory_system)
    system.register_template({"name": "twice", "params": "x", "is_function": True, "instructions": "{{x}} {{x}}"})
    result = await system.execute_call(FunctionCallNode(template_name="twice", arguments=["so"]))
    assert result.content == "so so"


# -- data contexts --------------------------------------------------------------------------------------------------------


async def tool_primes_the_session_of_its_run(house: House) -> None:
    house.replies.append("fine")
    await house.flow.run(
        '(system:prime_handler_data_context (initial_files (list "bees.txt"))) (value-of (ask (q "x")))'
    )
    assert "The hive holds honey." in house.sent() and house.flow.handler.data_context is None


async def host_primes_the_handler(house: House) -> None:
    primed = await house.flow.executors.execute_prime_handler_data_context({"initial_files": ["bees.txt"]})
    assert primed.notes["item_count"] == 1 and house.flow.handler.data_context is not None
    assert not (await house.flow.executors.execute_clear_handler_data_context({})).failed
    assert house.flow.handler.data_context is None


# -- runs ---------------------------------------------------------------------------------------------------------------


async def solver_has_programs_checked_and_run(house: House) -> None:
    house.replies += ["(shout)", "(value-of (ask (q goal)))", "fine"]
    async with house.call() as call:
        result = await house.flow.solver.solve(Solve("g", ("ask",), 2, {"goal": "x"}), call)
    assert result.content == "fine" and result.notes["rounds"] == 2


async def program_calls_a_tool_for_a_model(house: House) -> None:
    house.flow.tool(shout)
    calls = [{"name": "run_program", "arguments": {"program": "shout(text='hi')"}}]
    house.replies += [{"tool_calls": calls}, "done"]
    assert await house.flow.ask("Shout.", tools=[code(["shout"])]) == "done"
    assert "shout(text: str)" in house.provider.requests[0].tools[0].description


async def written_program_is_admitted(house: House) -> None:
    with pytest.raises(AgentflowError) as refused:
        await house.flow.run("(eval-program '(list (ask (q 1)) (ask (q 2))) (allow ask))", limits=Limits(model_calls=1))
    assert refused.value.code == "bounds/over-budget" and not house.provider.requests


async def program_is_solved(house: House) -> None:
    house.replies.append("(+ n 2)")
    assert (await house.flow.run('(value-of (solve "add two" (inputs (list (list "n" 40)))))')).value == 42


async def program_is_explored(house: House) -> None:
    house.replies += ['(begin (log-message "acted") (first (filter even? items)))', "(length items)"]
    program = '(value-of (solve "count" (inputs (list (list "items" (list 7 9)))) (explore true)))'
    async with house.flow.stream(program) as run:
        logged = [event.message async for event in run if event.type == "log"]
        assert await run.value() == 2 and "acted" not in logged


async def workflow_is_called(house: House) -> None:
    await house.flow.workflows.save(make_workflow({"name": "sum", "params": {"n": "integer"}, "program": "(+ n 2)"}))
    assert (await house.flow.run("(value-of (call-workflow sum (n 40)))")).value == 42


async def bounds_are_worked_out(house: House) -> None:
    house.flow.task_system.register_template(ASK)
    await house.flow.workflows.save(make_workflow({"name": "two", "params": {}, "program": "(ask (q 1))"}))
    bounds = await house.flow.bounds("(list (call-workflow two) (call-workflow two))")
    assert str(bounds.calls["task:ask"]) == "2"


async def task_is_taken_over(house: House) -> None:
    house.replies += [{"text": "cut", "stop_reason": "max_tokens"}, '(string-append "done " "in parts")']
    house.flow.task_system.register_template({**ASK, "decompose": 1})
    result = await house.flow.task_system.execute_task("atomic", "ask", {"q": "x"})
    assert result.content == "done in parts" and result.notes["decomposed"] is True, result


async def workflow_is_run(house: House) -> None:
    await house.flow.workflows.save(
        make_workflow({"name": "sum", "params": {"n": "integer"}, "program": "(+ n 2)", "allow": []})
    )
    async with house.call() as call:
        result = await house.flow.workflows.call_workflow(CallWorkflow("sum", {"n": 40}), call)
    assert result.value() == 42
    assert house.flow.solver.names.describe(frozenset({"sum"})).startswith("(call-workflow sum (n integer))")
    with pytest.raises(Exception, match="not granted"):
        await house.flow.workflows.save(make_workflow({"name": "bad", "program": "(ask (q 1))", "allow": []}))


async def tool_calls_a_procedure(house: House) -> None:
    async def twice(f: Any, ctx: CallContext) -> Any:
        """Apply f two times."""
        return await ctx.call(f, await ctx.call(f, 1))

    house.flow.tool(twice)
    assert (await house.flow.run("(value-of (twice (f (lambda (x) (+ x 5)))))")).value == 11


async def note_tools_keep_notes(house: House) -> None:
    """The tools write and read the notes of a real flow, for a program and within its run."""
    async with AgentFlow(provider=house.provider, root=house.root, notes="session") as flow:
        assert (await flow.run('(remember "bees dance") (recall "how do bees dance?")')).value == ["bees dance"]


async def results_are_used_again(house: House) -> None:
    """A task and a tool that say so are carried out once for two runs of one database; a second flow reads the first's."""
    looked: list[str] = []

    @tool(reuse="1d", reuse_key="this pair")
    async def look(at: str) -> str:
        """Look."""
        looked.append(at)
        return f"seen {at}"

    text = '(defatom once (params (x)) (instructions "{{x}}") (reuse "1d")) (list (value-of (once (x "a"))) (value-of (look (at "b"))))'
    model = ScriptedProvider(["only once"])
    for _ in range(2):
        async with AgentFlow(
            provider=model, root=house.root, tools=[look], durable=f"sqlite:///{house.root}/runs.db"
        ) as flow:
            assert (await flow.run(text)).value == ["only once", "seen b"]
    assert looked == ["b"] and len(model.requests) == 1


@dataclass(frozen=True)
class Pair:
    """``caller`` uses ``callee`` through ``port``; ``shown`` makes it do so and looks at what came of it."""

    port: str
    caller: str
    callee: type
    shown: Callable[[House], Awaitable[None]]

    def __str__(self) -> str:
        return f"{self.caller} x {self.callee.__name__} at {self.port}"


def signing_in_keeps_its_state(store_in: Callable[[Path], TokenStore]) -> Callable[[House], Awaitable[None]]:
    async def shown(house: House) -> None:
        """A sign-in that has begun is found again in the store, by two flows that share it, and ends once."""
        pytest.importorskip("mcp_types", reason="the MCP SDK is an extra")
        from tests.support.oauth_server import REDIRECT, browse, strict_servers

        sign_in = SignIn(user=lambda ctx: "ada", redirect_uri=REDIRECT, tokens=store_in(house.root.parent / "tokens"))
        async with strict_servers(service="service-token") as (authority, server):
            headers = {"Authorization": "Bearer service-token"}
            servers = [McpHttp("sdk", f"{server.url}/mcp", headers=headers, credentials=sign_in)]
            one = AgentFlow(model="offline", mcp=servers, root=house.root)
            address = await one.mcp.sign_in("sdk", user="ada")
            await one.aclose()
            assert address is not None
            async with AgentFlow(model="offline", mcp=servers, root=house.root) as two:
                assert await two.mcp.sign_in("sdk", user="ada") == address
                assert await two.mcp.signed_in(await browse(address, "ada"), user="ada")
                assert await two.call_tool("sdk:shout", text="hi") == {"result": "HI"}
        assert authority.faults == []

    return shown


async def rates_are_shared(house: House) -> None:
    """A call is counted for all processes of the database, and waits for what it may have of the rate."""
    store = PostgresRates(house.postgres())
    try:
        limiter = FleetRates({"a:*": Rate(requests_per_min=600)}, store)
        await limiter.take("a:m", 10)
        limiter.correct("a:m", 5)
        assert (await store.share("a:m", (0.1, 0.0), 6.0, [1] * 100)).calls < 60
    finally:
        await store.aclose()


async def worker_does_a_run(house: House) -> None:
    """The run is queued with what it needs, and its job handed over once."""
    async with AgentFlow(provider=house.provider, root=house.root, tools=[shout], durable=house.postgres()) as flow:
        handle = await flow.start('(content (shout (text "a")))', run_id="r", where="workers")
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(flow.work(stop=stop))
            assert (await handle.result()).value == "A"
            stop.set()
        found = await flow.find_run("r")
        assert found is not None and found.slices == 1


async def large_values_are_files(house: House) -> None:
    """A value too large for the database goes to a file, and a second process answers the effect from it."""
    url = house.postgres().replace("?", f"?blobs={house.root / 'blobs'}&")
    for slices in (1, 2):
        async with AgentFlow(provider=house.provider, root=house.root, tools=[shout], durable=url) as flow:
            handle = await flow.start(
                "(length (content (shout (text text))))", run_id="r", bindings={"text": "a" * 100_000}
            )
            assert (await handle.result()).value == 100_000, slices
    assert [path for path in (house.root / "blobs").rglob("*") if path.is_file()]


async def durable_run_goes_on(house: House) -> None:
    """Each form whose outcome depends on time is decided once, and the second run is answered from its records."""
    text = """(list (try (timeout 0.01 (hang)) (catch (e) 'late)) (race (hang) (shout (text "a")))
                    (try (parallel (hang) (error "no")) (catch (e) 'failed)) (hang))"""
    hanging: list[asyncio.Event] = []

    async def hang() -> str:
        """Never end, the first time."""
        hanging.append(asyncio.Event())
        if len(hanging) == 4:
            reached.set()
        if len(hanging) < 5:
            await hanging[-1].wait()
        return "went on"

    reached = asyncio.Event()
    for time in (1, 2):
        async with AgentFlow(
            provider=house.provider, root=house.root, tools=[hang, shout], durable=f"sqlite:///{house.root}/runs.db"
        ) as flow:
            handle = await flow.start(text, run_id="r")
            if time == 1:
                await reached.wait()
            else:
                late, won, failed, last = (await handle.result()).value
    assert (late, won.content, failed, last.content) == ("late", "A", "failed", "went on")
    assert len(hanging) == 5 and handle.replayed == 1


async def run_is_recorded(house: House) -> None:
    """What a run publishes is written once, and found again by its id; its effects wait while too much is unwritten."""
    files, tables = EventFiles(house.root / "logs"), SqliteEvents(house.root / "logs.db")
    recorders = [Recorder(files, buffer=1), Recorder(tables, buffer=1)]
    async with AgentFlow(provider=house.provider, root=house.root, tools=[shout]) as flow:
        for recorder in recorders:
            flow.subscribe(recorder)
        value = (await flow.run('(map (lambda (x) (shout (text x))) (list "a" "b"))', run_id="r")).value
    for recorder in recorders:
        await recorder.aclose()
    assert [each.content for each in value] == ["A", "B"]
    async with aclosing(RunCatalogue([files, tables])) as catalogue:
        (run,) = await catalogue.list()
        events = await catalogue.events("r")
    assert (run.run_id, run.state) == ("r", "ok") and events == list(tables.read("r"))
    assert sum(event["type"] == "tool_finished" for event in events) == 2


async def session_lasts(house: House) -> None:
    """What a run adds to a session that lasts is in the database, and in the session when it is opened again."""
    say = '(defatom say (params (q string)) (instructions "{{q}}") (history_config true))'
    text = f'{say} (begin (say (q "one")) (say (q "two")))'
    for before in (0, 2):
        async with (
            AgentFlow(
                provider=ScriptedProvider(["one", "two"]), root=house.root, durable=f"sqlite:///{house.root}/runs.db"
            ) as flow,
            flow.session("ada") as session,
        ):
            assert len(session.turns()) == before
            await flow.run(text, session=session)


PAIRS = [
    Pair("ProviderAdapter", "TurnLoop", OfflineProvider, turn_loop_asks_offline),
    Pair("ProviderAdapter", "TurnLoop", FallbackProvider, fallback_goes_on_to_the_next),
    Pair("ProviderAdapter", "FallbackProvider", ScriptedProvider, fallback_goes_on_to_the_next),
    Pair("RateLimiter", "HttpAdapter", ProcessRates, adapter_keeps_to_its_rate),
    Pair("Pricing", "TurnLoop", Prices, turn_loop_asks_what_calls_cost),
    Pair("ModelRouter", "TurnLoop", FallbackRouter, turn_loop_finds_a_model),
    Pair("ModelRouter", "FallbackRouter", Router, turn_loop_finds_a_model),
    Pair("ModelRouter", "TurnLoop", OneModel, turn_loop_asks_offline),
    Pair("ModelRouter", "BaseHandler", FallbackRouter, handler_finds_a_model),
    Pair("PurseStore", "Purses", StoredPurses, a_purse_is_spent_from_its_store),
    Pair("BatchStore", "BatchDesk", StoredBatches, a_run_has_answers_of_a_batch),
    Pair("BatchApi", "BatchDesk", OpenAIBatches, a_run_has_answers_of_a_batch),
    Pair("BatchProvider", "BatchedModel", OpenAIResponsesProvider, a_run_has_answers_of_a_batch),
    Pair("TokenStore", "Accounts", FileTokens, signing_in_keeps_its_state(FileTokens)),
    Pair("TokenStore", "Accounts", MemoryTokens, signing_in_keeps_its_state(lambda directory: MemoryTokens())),
    Pair("ModelCall", "middleware", RunningCall, middleware_awaits_a_model_call),
    Pair("ToolPort", "TurnLoop", ToolRegistry, turn_loop_calls_a_tool),
    Pair("ToolPort", "EffectRunner", ToolRegistry, program_calls_a_tool),
    Pair("ToolPort", "EffectRunner", ToolRegistry, program_calls_a_subtask_tool),
    Pair("ToolPort", "EffectRunner", ToolRegistry, program_gives_a_tool_its_settings),
    Pair("ToolPort", "EffectRunner", ToolRegistry, program_gives_a_tool_a_list),
    Pair("ToolPort", "Solver", ToolRegistry, solver_describes_a_tool),
    Pair("NotePort", "note_tools", FlowNotes, note_tools_keep_notes),
    Pair("PromptRunner", "AtomicTaskExecutor", TurnLoop, task_runs_a_prompt),
    Pair("PromptRunner", "BaseHandler", TurnLoop, handler_runs_a_prompt),
    Pair("PromptRunner", "TaskSystem", TurnLoop, task_system_uses_a_handler),
    Pair("MemoryPort", "HostMemory", MemorySystem, asking_memory(lambda h: HostMemory(h.flow.memory_system))),
    Pair("ContextFinder", "Engine", HostMemory, asking_memory(lambda h: HostMemory(HostsMemory(h.flow.memory_system)))),
    Pair("ContextFinder", "TaskService", FileMemory, task_looks_context_up),
    Pair("ContextFinder", "ContextSources", HostMemory, memory_has_its_own_way_with_descriptions),
    Pair("ContextFinder", "EffectRunner", FileMemory, program_looks_context_up),
    Pair("ContextFinder", "SystemTools", FileMemory, tool_looks_context_up),
    Pair("ContextFinder", "DataContexts", FileMemory, handler_primes_from_memory),
    Pair("ContextFinder", "MemorySystem", FileMemory, memory_system_ranks_for_the_host),
    Pair("Ranker", "FileMemory", LlmRanker, memory_asks_a_model_to_rank),
    Pair("Ranker", "FileMemory", LlmRanker, one_bad_entry_does_not_void_the_others),
    Pair("Ranker", "FileMemory", LexicalRanker, memory_ranks_by_words),
    Pair("CandidateSource", "FileMemory", HostsSource, memory_asks_a_source),
    Pair("CandidateSource", "FileMemory", EmbeddingSource, memory_asks_for_vectors),
    Pair("Embedder", "EmbeddingSource", Embeddings, memory_asks_for_vectors),
    Pair("FilePort", "AtomicTaskExecutor", FileAccessManager, task_reads_files),
    Pair("FilePort", "SystemTools", FileAccessManager, tools_read_write_and_list),
    Pair("FilePort", "DataContexts", FileAccessManager, handler_primes_from_files),
    Pair("CommandPort", "SystemTools", CommandExecutor, tool_runs_a_command),
    Pair("CommandPort", "ContextSources", CommandExecutor, task_finds_files_by_a_command),
    Pair("CommandPort", "BaseHandler", CommandExecutor, handler_finds_files_by_a_command),
    Pair("CommandPort", "SystemTools", CommandExecutor, model_runs_a_command),
    Pair("CommandPort", "SystemTools", HostCommands, host_commands_run_a_command),
    Pair("CommandPort", "ContextSources", HostCommands, host_commands_find_files),
    Pair("HostCommandPort", "HostCommands", CommandExecutor, host_commands_run_a_command),
    Pair("TemplatePort", "EffectRunner", TaskService, program_calls_a_task),
    Pair("TemplatePort", "Engine", TaskService, run_runs_a_subtask),
    Pair("TemplatePort", "Solver", TaskService, solver_describes_a_task),
    Pair("EvaluatorPort", "TaskSystem", SexpEvaluator, task_system_takes_an_evaluator),
    Pair("DataContextPort", "SystemTools", DataContexts, tool_primes_the_session_of_its_run),
    Pair("DataContextPort", "SystemTools", HandlerContexts, host_primes_the_handler),
    Pair("HandlerPort", "HandlerContexts", BaseHandler, host_primes_the_handler),
    Pair("SolverPort", "EffectRunner", Solver, program_is_solved),
    Pair("SolverPort", "Engine", Solver, task_is_taken_over),
    Pair("WorkflowPort", "EffectRunner", WorkflowLibrary, workflow_is_called),
    Pair("ProgramChecker", "WorkflowLibrary", ProgramCheck, workflow_is_run),
    Pair("ProgramExplorer", "Solver", FlowExplorer, program_is_explored),
    Pair("RunServices", "Solver", Engine, solver_has_programs_checked_and_run),
    Pair("EngineServices", "CodeTools", Engine, program_calls_a_tool_for_a_model),
    Pair("Admission", "Solver", Admission, solver_has_programs_checked_and_run),
    Pair("Admission", "eval_program", Admission, written_program_is_admitted),
    Pair("RunServices", "TaskRunner", Engine, task_is_taken_over),
    Pair("RunServices", "WorkflowLibrary", Engine, workflow_is_run),
    Pair("RunPort", "CallContext", Run, tool_calls_a_procedure),
    Pair("RunPort", "TurnLoop", Run, turn_loop_calls_a_tool),
    Pair("ResultStore", "Reuse", Results, results_are_used_again),
    Pair("ReusePort", "TaskService", Reuse, results_are_used_again),
    Pair("ReusePort", "ToolRegistry", Reuse, results_are_used_again),
    Pair("JournalStore", "DurableRuns", SqliteJournal, durable_run_goes_on),
    Pair("RateStore", "FleetRates", PostgresRates, rates_are_shared),
    Pair("JobQueue", "work_on", PostgresQueue, worker_does_a_run),
    Pair("BlobStore", "Blobs", BlobDirectory, large_values_are_files),
    Pair("JournalPort", "branches", RunJournal, durable_run_goes_on),
    Pair("Pacer", "Paced", Recorder, run_is_recorded),
    Pair("EventSink", "Recorder", EventFile, run_is_recorded),
    Pair("EventStore", "RunCatalogue", EventFiles, run_is_recorded),
    Pair("NameFacts", "ProgramEstimator", Facts, bounds_are_worked_out),
    Pair("EventStore", "RunCatalogue", SqliteEvents, run_is_recorded),
    Pair("SessionStore", "Conversations", Sessions, session_lasts),
    Pair("Verdict", "branches", JournalVerdict, durable_run_goes_on),
    Pair("Clock", "recovery", JournalClock, durable_run_goes_on),
]


@pytest.mark.parametrize("pair", PAIRS, ids=str)
async def test_a_pair_works(pair: Pair, house: House) -> None:
    """The caller, the real one, gets from the callee, the real one, what it wants of the port."""
    await pair.shown(house)


def ports_of(module: Any) -> dict[str, type]:
    """The Protocols that a module defines."""
    return {
        name: value
        for name, value in vars(module).items()
        if inspect.isclass(value) and getattr(value, "_is_protocol", False) and value.__module__ == module.__name__
    }


PORTS = {
    name.removesuffix("Of"): port
    for module in (ports, batch_ports, executor_ports, memory_ports, store_ports, run_port, journal_port, token_store)
    for name, port in ports_of(module).items()
}
"""All ports; those that are generic in what a call is, by their names for a CallContext."""


def test_every_port_has_a_pair() -> None:
    """A new port needs a row that says who meets there."""
    assert PORTS.keys() == {pair.port for pair in PAIRS}


@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_the_callee_takes_what_the_port_says(pair: Pair) -> None:
    """Each method of the port exists with the port's parameters, under its names and in its order."""
    for name, wanted in vars(PORTS[pair.port]).items():
        if name.startswith("_") or not inspect.isfunction(wanted):
            continue
        method = getattr(pair.callee, name, None)
        if method is None:
            continue  # set on the instance; the type checker knows
        taken = [each for each in inspect.signature(method).parameters if each != "self"]
        said = [each for each in inspect.signature(wanted).parameters if each != "self"]
        assert taken[: len(said)] == said, f"{pair.callee.__name__}.{name}{tuple(taken)}, not {tuple(said)}"
