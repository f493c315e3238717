"""What a program defines belongs to its environment: who sees a task of ``defatom``, who does not, and until when."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, CallContext, ScriptedProvider, SexpEnvironment, SexpEvaluationError
from agentflow.core.data.errors import AgentflowError, UnboundSymbolError
from agentflow.core.data.known_names import NameInfo
from agentflow.events import Warning
from agentflow.handler.tools import subtask_tool
from agentflow.lang.portable import dump_closure, load_closure
from agentflow.run.engine import Engine
from agentflow.tasks.service import TaskService
from tests.support.values import value_of


def echo(request: Any) -> str:
    """A model that repeats the last thing it was told."""
    return request.messages[-1].text


def flow_of(root: Path, model: Any = echo, **options: Any) -> AgentFlow:
    """A flow over a scripted model."""
    return AgentFlow(provider=ScriptedProvider(model), root=root, **options)


def task(text: str, name: str = "s") -> str:
    """A definition whose prompt is ``text`` and its parameter."""
    return f'(defatom {name} (params (x)) (instructions "{text} {{{{x}}}}"))'


def said(text: str, name: str = "s") -> str:
    """A call of a task, for its text."""
    return f'(content ({name} (x "{text}")))'


async def test_runs_that_overlap_each_see_their_own(tmp_path: Path) -> None:
    """Three runs at once define one name with three texts, wait for each other, and each calls its own."""
    gate = asyncio.Barrier(3)

    async def meet() -> None:
        """Wait until all have come."""
        await gate.wait()

    async with flow_of(tmp_path, tools=[meet]) as flow:
        async with asyncio.TaskGroup() as group:
            runs = [group.create_task(value_of(flow.run(f"{task(letter)} (meet) {said('1')}"))) for letter in "ABC"]
        assert [run.result() for run in runs] == ["A 1", "B 1", "C 1"]
        assert flow.task_system.find_template("s") is None
        with pytest.raises(UnboundSymbolError):
            await flow.run(said("1"))


async def test_the_environment_carries_its_tasks(tmp_path: Path) -> None:
    """Runs that share ``env=`` share what they define; an environment inside it sees it too, and may hide it."""
    async with flow_of(tmp_path) as flow:
        env = SexpEnvironment()
        await flow.run(task("A"), env=env)
        assert (await flow.run(said("1"), env=env)).value == "A 1"
        inner = env.extend()
        assert (await flow.run(said("2"), env=inner)).value == "A 2"
        assert (await flow.run(f"{task('B')} {said('3')}", env=inner)).value == "B 3"
        assert (await flow.run(said("4"), env=env)).value == "A 4"


async def test_bindings_are_a_frame_before_the_environment(tmp_path: Path) -> None:
    """With both, bindings are read first and are gone afterwards; what the run defines goes to the environment."""
    async with flow_of(tmp_path) as flow:
        env = SexpEnvironment({"n": 1, "kept": "old"})
        program = f"(define total (+ n 1)) {task('A')} (set! kept 'new) (list n total {said('1')})"
        assert (await flow.run(program, env=env, bindings={"n": 10})).value == [10, 11, "A 1"]
        assert (env.lookup("n"), env.lookup("total"), env.lookup("kept").name) == (1, 11, "new")
        assert (await flow.run(said("2"), env=env)).value == "A 2"
        assert (await flow.run("(define n (+ n 1)) n", env=env, bindings={"n": 5})).value == 6
        assert env.lookup("n") == 6
        assert (await flow.run("(if false (define n 0) n)", env=env, bindings={"n": 7})).value == 7
        assert env.lookup("n") == 6


async def test_a_task_of_the_program_comes_before_the_flows(tmp_path: Path) -> None:
    """Found in the environment first, then in the task system; a variable comes before both."""
    async with flow_of(tmp_path) as flow:
        await flow.define(task("flow"))
        assert (await flow.run(said("1"))).value == "flow 1"
        assert (await flow.run(f"{said('0')} {task('mine')} (list {said('1')})")).value == ["mine 1"]
        assert (await flow.run(f"(define before {said('0')}) {task('mine')} before")).value == "flow 0"
        assert (await flow.run("(s 1)", bindings={"s": lambda x: x + 1})).value == 2
        assert (await flow.run(said("2"))).value == "flow 2"


async def test_a_tool_is_called_until_the_program_defines_its_name(tmp_path: Path) -> None:
    """A definition that is not reached does not hide the tool of that name."""

    async def s(x: str) -> str:
        """A tool."""
        return f"tool {x}"

    async with flow_of(tmp_path, tools=[s]) as flow:
        assert (await flow.run(f"(if false {task('mine')}) {said('1')}")).value == "tool 1"
        assert (await flow.run(f"(define a {said('1')}) {task('mine')} (list a {said('2')})")).value == [
            "tool 1",
            "mine 2",
        ]


async def test_closures_bring_their_tasks(tmp_path: Path) -> None:
    """A closure called later, by the host or in another run, finds the tasks of where it was written."""
    async with flow_of(tmp_path) as flow:
        closure = (await flow.run(f"{task('A')} (lambda (x) (content (s (x x))))")).value
        assert await flow.call(closure, "1") == "A 1"
        program = f'{task("B")} (list (f "2") {said("2")})'
        assert (await flow.run(program, bindings={"f": closure})).value == ["A 2", "B 2"]
        dynamic = (await flow.run(f"{task('A')} (lambda (name) (content (name (x 5))))")).value
        assert (await flow.run("(f 's)", bindings={"f": dynamic})).value == "A 5"


async def test_a_dump_brings_its_tasks(tmp_path: Path) -> None:
    """JSON of a closure carries the tasks its text names, those their prompts name, and no others."""
    prompt = '(defatom outer (params (x)) (instructions "<{{s(x)}}>"))'
    unused = task("no", "unused")
    async with flow_of(tmp_path) as flow:
        closure = (await flow.run(f"{task('A')} {prompt} {unused} (lambda (x) (content (outer (x x))))")).value
        data = json.loads(json.dumps(dump_closure(closure)))
    assert sorted(data["closures"][0]["templates"]) == ["outer", "s"]
    async with flow_of(tmp_path) as other:
        again = load_closure(data, names=other.engine.names())
        assert await other.call(again, "1") == "<A 1>"
        assert other.task_system.find_template("outer") is None
    with pytest.raises(AgentflowError, match="brings tasks"):
        load_closure(data)


async def test_programs_that_a_program_starts_see_its_tasks(tmp_path: Path) -> None:
    """eval-program and solve call them when granted; what those define themselves is gone with them."""
    replies = iter([f"(string-append {said('2')} (content (t (x 3))))", "A 2", "T 3"])

    def model(request: Any) -> str:
        return next(replies) if "Write one program" in request.messages[-1].text else echo(request)

    async with flow_of(tmp_path, model) as flow:
        program = f"{task('A')} (eval-program '{said('1')} (allow s))"
        assert (await flow.run(program)).value == "A 1"
        with pytest.raises(SexpEvaluationError, match="not granted"):
            await flow.run(f"{task('A')} (eval-program '{said('1')})")
        solved = (await flow.run(f'{task("A")} {task("T", "t")} (solve "both" (allow s t))')).value
        assert solved.content == "A 2T 3"
        nested = f"(eval-program '(begin {task('B')} {said('1')}) (allow defatom))"
        assert (await flow.run(f"{task('A')} (list {nested} {said('1')})")).value == ["B 1", "A 1"]


async def test_what_a_run_starts_sees_its_tasks(tmp_path: Path) -> None:
    """Subtasks of a model, template functions, and a tool that runs a program or a task find the run's tasks."""

    def model(request: Any) -> Any:
        text = request.messages[-1].parts[0].text
        if text.startswith("lead"):
            return {"tool_calls": [{"name": "dig", "arguments": {"x": "deep"}}]}
        return text

    async with flow_of(tmp_path, model) as flow:

        async def again(ctx: CallContext) -> str:
            """Run a program, and a task of the run."""
            inner = (await flow.run(said("program"))).value
            direct = await flow.task_system.execute_task("atomic", "special", {"x": "task"})
            return f"{inner}; {direct.content}"

        flow.tool(again)
        flow.tools.add(subtask_tool("dig", "Digs.", template="s", parameters={"x": "string"}))
        special = '(defatom t (params (x)) (subtype "special") (instructions "T {{x}}"))'
        assert (await flow.run(f"{task('A')} {special} (content (again))")).value == "A program; T task"
        boss = '(defatom boss (params) (instructions "lead") (tools dig))'
        assert (await flow.run(f"{task('A')} {boss} (content (boss))")).value == "A deep"
        nest = '(defatom nest (params (x)) (instructions "[{{s(x)}}]"))'
        assert (await flow.run(f'{task("A")} {nest} (content (nest (x "in")))')).value == "[A in]"


async def test_branches_define_for_themselves_until_they_join(tmp_path: Path) -> None:
    """Each branch sees its own definition and what it inherited; joined, the last branch's is the program's."""
    branches = " ".join(f"(begin {task(letter)} (meet) {said('1')})" for letter in "ABC")
    gate = asyncio.Barrier(3)

    async def meet() -> None:
        """Wait until all have come."""
        await gate.wait()

    async with flow_of(tmp_path, tools=[meet]) as flow:
        env = SexpEnvironment()
        program = f"{task('0')} (list (parallel {branches}) {said('2')})"
        assert (await flow.run(program, env=env)).value == [["A 1", "B 1", "C 1"], "C 2"]
        assert (await flow.run(said("3"), env=env)).value == "C 3"
        nested = f"(parallel (begin {task('in')} (list {said('1')} (parallel {said('2')} (begin {task('x')} 0)) {said('3')})))"
        assert (await flow.run(f"{nested}")).value == [["in 1", ["in 2", 0], "x 3"]]
        started = f"(parallel (begin {task('B')} (eval-program '{said('1')} (allow s))) 1)"
        assert (await flow.run(f"{task('0')} {started}")).value == ["B 1", 1]


async def test_pmap_joins_in_index_order(tmp_path: Path) -> None:
    """Whatever order elements finish in, the definition of the last one stays."""

    async def wait(seconds: float) -> None:
        """Wait a little."""
        await asyncio.sleep(seconds)

    async with flow_of(tmp_path, tools=[wait]) as flow:
        program = f"""(pmap (lambda (i) (wait (seconds (if (= i 0) 0.02 0))) (if (= i 0) {task("zero")} {task("one")}))
                            (list 0 1)) {said("1")}"""
        assert (await flow.run(program)).value == "one 1"


async def test_a_race_keeps_the_winners(tmp_path: Path) -> None:
    """What the losers defined is gone; when all fail, so is everything."""
    async with flow_of(tmp_path) as flow:
        program = f"(race (begin {task('loser')} (raise 'no)) (begin {task('winner')} 1)) {said('1')}"
        assert (await flow.run(program)).value == "winner 1"
        lost = f"{task('0')} (try (race (begin {task('loser')} (raise 'no))) (catch (e) 0)) {said('1')}"
        assert (await flow.run(lost)).value == "0 1"
        failed = f"{task('0')} (try (parallel (begin {task('part')} 1) (raise 'no)) (catch (e) 0)) {said('1')}"
        assert (await flow.run(failed)).value == "0 1"


async def test_evaluate_string_publishes_outside_of_a_run(tmp_path: Path) -> None:
    """The specification's entry makes definitions the task system's; inside a run it does not."""
    async with flow_of(tmp_path) as flow:

        async def inside() -> str:
            """Define a task from within a tool."""
            return await flow.evaluator.evaluate_string(f"{task('in', 'inner')} {said('1', 'inner')}")

        flow.tool(inside)
        await flow.evaluator.evaluate_string(f"{task('A')} (parallel {task('B', 't')} 1)")
        assert (await flow.run(f"(list {said('1')} {said('1', 't')})")).value == ["A 1", "B 1"]
        assert (await flow.run("(content (inside))")).value == "in 1"
        assert flow.task_system.find_template("inner") is None


async def test_define_publishes_all_or_none(tmp_path: Path) -> None:
    """flow.define gives the names in order; a program that fails registers nothing; bindings are found."""
    async with flow_of(tmp_path) as flow:
        names = await flow.define(f"{task('A')} {task('B', 't')} {task('C')} limit", {"limit": 3})
        assert names == ["t", "s"]
        assert (await flow.run(said("1"))).value == "C 1"
        with pytest.raises(SexpEvaluationError):
            await flow.define(f"{task('D', 'u')} {task('E')} (raise 'no)")
        assert flow.task_system.find_template("u") is None
        assert (await flow.run(said("1"))).value == "C 1"


async def test_define_runs_as_the_host(tmp_path: Path) -> None:
    """A tool of the host may define tasks, whatever the program that called it was granted."""
    async with flow_of(tmp_path) as flow:

        async def install() -> list[str]:
            """Define a task."""
            return await flow.define(task("A"))

        flow.tool(install)
        assert (await flow.run("(value-of (install))", allow=["install"])).value == ["s"]
        assert (await flow.run(said("1"))).value == "A 1"


async def test_running_a_text_again_warns_of_nothing(tmp_path: Path) -> None:
    """Only another definition of a name that is there is worth a warning, in an environment as in the task system."""
    warned: list[str] = []
    async with flow_of(tmp_path) as flow:
        flow.subscribe(lambda event: warned.append(event.code) if isinstance(event, Warning) else None)
        env = SexpEnvironment()
        for _ in range(2):
            await flow.run(task("A"))
            await flow.run(task("A"), env=env)
            await flow.define(task("A"))
            await flow.evaluator.evaluate_string(task("A"))
        assert warned == []
        await flow.run(task("B"))
        assert warned == []
        await flow.run(task("B"), env=env)
        await flow.define(task("B"))
        assert warned == ["task/redefined"] * 2


class CountingTasks(TaskService):
    """A task service that counts the definitions it makes ready: one each time a program with one is compiled."""

    prepared = 0

    def prepare(self, fields: Any) -> Any:
        self.prepared += 1
        return super().prepare(fields)


async def test_a_program_that_calls_what_it_defines_fits_itself(tmp_path: Path) -> None:
    """It is compiled once, however often and in whatever environment it runs, also after it has defined its task."""
    async with flow_of(tmp_path) as flow:
        tasks = CountingTasks(flow.task_system.service.executor)
        engine = Engine(tasks, flow.tools)
        text = f"{task('A')} {said('1')}"
        program = engine.compiler.compile(text)
        env = SexpEnvironment()
        for _ in range(3):
            async with engine.open("test") as (_, call):
                for where in (SexpEnvironment(), env):
                    again = engine.compiler.compile(text, env=where)
                    assert again is program
                    assert await engine.evaluate(again, where, call) == "A 1"
                assert await engine.define(text, None, call) == ["s"]
        assert tasks.prepared == 1


async def test_programs_fit_signatures(tmp_path: Path) -> None:
    """A task that takes other parameters is another task to a compiled program."""
    async with flow_of(tmp_path) as flow:
        await flow.define(task("A"))
        program = flow.compile("(s (x 1))")

        def describe(name: str) -> NameInfo:
            found = flow.engine.names().describe(name)
            assert found is not None
            return found

        assert program.fits(describe)
        await flow.define(task("B"))
        assert program.fits(describe)
        await flow.define('(defatom s (params (x) (y)) (instructions "{{x}} {{y}}"))')
        assert not program.fits(describe)


async def test_names_are_compared_again_after_any_change(tmp_path: Path) -> None:
    """A program compiled before is the same while nothing changes, and is looked at anew once a name may mean something
    else: a tool or a task is registered or removed, test mode begins or ends, another flow runs it, a name is bound."""

    async def twice(x: str) -> str:
        """Say it twice."""
        return x + x

    async with flow_of(tmp_path) as flow, flow_of(tmp_path) as other:
        text = '(content (s (x "a")))'
        flow.tool(twice)
        await flow.define(task("A"))
        first = flow.compile(text)
        assert flow.compile(text) is first and flow.compile(first) is first
        with pytest.raises(SexpEvaluationError, match="unrecognized operator"):
            await other.run(first)
        assert flow.compile(first) is first
        flow.tools.remove("twice")
        assert flow.compile(first) is first
        await flow.define('(defatom s (params (x) (y)) (instructions "{{x}} {{y}}"))')
        assert flow.compile(first) is not first and flow.compile(text) is not first

        ordinary = flow.compile("(atomic:greeting)")
        flow.task_system.set_test_mode(True)
        scripted = flow.compile("(atomic:greeting)")
        assert scripted is not ordinary and flow.compile(ordinary) is scripted
        flow.task_system.set_test_mode(False)
        assert flow.compile(scripted) is ordinary

        assert (await flow.run("(+ 1 2)")).value == 3
        assert (await flow.run("(+ 1 2)", bindings={"+": lambda a, b: a * 10 + b})).value == 12
        assert (await flow.run("(+ 1 2)")).value == 3


async def test_a_wrong_definition_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    """What the task system refuses in a template is refused when the program is compiled, at its place."""
    ran: list[int] = []

    async def act() -> None:
        """Note that it ran."""
        ran.append(1)

    async with flow_of(tmp_path, tools=[act]) as flow:
        with pytest.raises(SexpEvaluationError) as caught:
            await flow.run('(act)\n(defatom t (params (x strng)) (instructions "{{x}}"))')
    assert caught.value.code == "defatom/invalid" and "strng" in caught.value.message
    assert caught.value.span is not None and caught.value.span.line == 2 and ran == []


async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def delete(path: str) -> str:
    """Delete a file."""
    raise AssertionError(path)


async def test_untrusted_programs_define_tasks_when_granted(tmp_path: Path) -> None:
    """``defatom`` is a grant; a program's own tasks need none, and their models get of the tools only what it holds."""
    provider = ScriptedProvider(echo)
    async with AgentFlow(provider=provider, root=tmp_path, tools=[add, delete]) as flow:
        program = f"{task('A')} {said('1')}"
        with pytest.raises(SexpEvaluationError, match="may not define tasks"):
            await flow.run(program, allow=["s"])
        assert (await flow.run(program, allow=["defatom"])).value == "A 1"
        assert provider.requests[-1].tools == ()
        greedy = '(defatom s (params (x)) (instructions "{{x}}") (tools add delete))'
        assert (await flow.run(f"{greedy} {said('1')}", allow=["defatom", "add"])).value == "1"
        assert [spec.name for spec in provider.requests[-1].tools] == ["add"]
        env = SexpEnvironment()
        await flow.run(f"{greedy} (define f (lambda () {said('1')}))", allow=["defatom", "add"], env=env)
        await flow.run("(f)", env=env)
        assert [spec.name for spec in provider.requests[-1].tools] == ["add"], "the grants of its definition"
        await flow.run(said("1"), env=env, allow=["s", "delete"])
        assert provider.requests[-1].tools == (), "and those of its call"
        assert (await flow.run(said("2"), env=env, allow=["defatom"])).value == "2", "who may define may call"
        with pytest.raises(SexpEvaluationError, match="not granted"):
            await flow.run(said("2"), env=env, allow=["add"])


async def test_an_environment_does_not_pass_authority_on(tmp_path: Path) -> None:
    """What the host defined is called by untrusted programs only when granted, also behind a definition not reached."""
    async with flow_of(tmp_path) as flow:
        env = SexpEnvironment()
        await flow.run(task("host"), env=env)
        await flow.define(task("flow", "t"))
        for text in (said("1"), "((car '(s)) (x 1))"):
            with pytest.raises(SexpEvaluationError, match=r"not granted|nothing this program may call"):
                await flow.run(text, env=env, allow=["defatom"])
        assert (await flow.run(said("1"), env=env, allow=["s"])).value == "host 1"
        early = f"(define r (t (x 1))) {task('mine', 't')} (get-field (get-field (get-field r 'notes) 'error) 'message)"
        assert "not granted" in (await flow.run(early, allow=["defatom"])).value


@pytest.mark.parametrize(
    ("definition", "call"),
    [
        ('(defatom s (params (x)) (instructions "{{x}}") (file_paths "secret.txt"))', said("1")),
        ('(defatom s (params (x)) (instructions "{{x}}") (settings (tools "web")))', said("1")),
        (task("A"), '(value-of (s (x 1) (files (list "secret.txt"))))'),
        (task("A"), "(value-of (s (x 1) (context ((fresh_context enabled)))))"),
        ('(defatom s (params (x)) (instructions "{{host(x)}}"))', "(value-of (s (x 1)))"),
    ],
)
async def test_their_tasks_reach_nothing_else(tmp_path: Path, definition: str, call: str) -> None:
    """Neither files, nor memory, nor native request fields, nor the host's tasks by way of a prompt."""
    (tmp_path / "secret.txt").write_text("secret")
    call = call.replace("(context ((", "(context '((")
    async with flow_of(tmp_path) as flow:
        await flow.define(task("host", "host"))
        with pytest.raises(AgentflowError) as caught:
            await flow.run(f"{definition} {call}", allow=["defatom"])
        assert caught.value.code == "name/not-granted"
        granted = ["defatom", "system:read_files", "get_context", "host"]
        if "settings" not in definition:
            assert (await flow.run(f"{definition} {call}", allow=granted)).value


async def test_a_model_writes_a_program_with_a_task_of_its_own(tmp_path: Path) -> None:
    """solve grants ``defatom`` like any other name, and tells the model how it is written."""
    asked: list[str] = []

    def model(request: Any) -> str:
        asked.append(request.messages[-1].text)
        return f"{task('own')} (value-of (s (x 1)))" if "Write one program" in asked[-1] else asked[-1]

    async with flow_of(tmp_path, model) as flow:
        assert ((await flow.run('(solve "say it" (allow defatom))')).value).content == "own 1"
    assert "(defatom name (params" in asked[0]
