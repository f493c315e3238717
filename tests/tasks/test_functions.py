"""Template functions: environments, calls in prompts and from Python, isolation, cycles and depth."""

from __future__ import annotations

from typing import Any

import pytest

from agentflow.core.data.errors import UnboundSymbolError
from agentflow.core.data.provider_errors import RateLimited
from agentflow.core.data.requests import FunctionCallNode, SubtaskRequest
from agentflow.core.data.session import Session
from agentflow.core.events.events import TaskStarted
from agentflow.spec.task_system import TaskSystem
from agentflow.tasks.template_environment import Environment
from tests.support.fake_tasks import FakePrompts
from tests.support.fakes import FakeRun


def test_environments_find_outward_and_extend_inward() -> None:
    """find looks outward through the levels; extend leaves its parent alone; unbound names say what is near."""
    outer = Environment({"name": 1, "other": 2})
    inner = outer.extend({"name": 3})
    assert (inner.find("name"), inner.find("other"), outer.find("name")) == (3, 2, 1)
    assert inner.bindings == {"name": 3} and inner.outer is outer
    with pytest.raises(UnboundSymbolError, match="'nme' is not bound") as caught:
        inner.find("nme")
    assert isinstance(caught.value, NameError) and caught.value.hint == "did you mean 'name'?"


def system(*replies: Any, **functions: tuple[str, str]) -> tuple[TaskSystem, FakePrompts]:
    """A task ``t(x)`` that calls functions; ``name=(params, body)`` are text functions."""
    prompts = FakePrompts(*replies)
    tasks = TaskSystem(prompts=prompts)
    for name, (params, body) in functions.items():
        tasks.register_template({"name": name, "params": params, "instructions": body, "is_function": True})
    return tasks, prompts


async def ask(tasks: TaskSystem, prompt: str, **inputs: Any) -> Any:
    tasks.register_template({"name": "t", "subtype": "t", "params": list(inputs), "instructions": prompt})
    return await tasks.execute_task("atomic", "t", inputs)


async def test_a_text_function_is_its_rendered_body() -> None:
    """``{{f(a, b="x")}}`` inserts the body with its parameters filled; no model is called for it."""
    tasks, prompts = system(f=("a, b", "[{{a}}|{{b}}]"))
    await ask(tasks, '{{f(x, b="x")}} {{f("lit", word)}} {{f(f(1, 2), b=x)}}', x="val")
    assert prompts.text == "[val|x] [lit|word] [[1|2]|val]"


async def test_inserted_text_is_not_scanned_again() -> None:
    """What a function gives may look like a place or a call; it stays text."""
    tasks, prompts = system(f=("a", "{{a}}"), g=("", "secret"))
    await ask(tasks, "{{f(x)}}", x="{{g()}} {{x}}")
    assert prompts.text == "{{g()}} {{x}}"


async def test_a_task_as_function_is_its_answer() -> None:
    """Calling a template that is not a function asks the model, as a task of its own with events."""
    tasks, prompts = system("inner answer", "final", pick=("", ""))
    tasks.register_template({"name": "sub", "subtype": "sub", "params": "q", "instructions": "Q: {{q}}"})
    tasks.register_template({"name": "t", "subtype": "t", "params": "x", "instructions": "Use {{sub(x)}}"})
    run = FakeRun()
    session = Session()
    result = await tasks.service.run_request(SubtaskRequest(name="t", inputs={"x": "why"}), run.call(session))
    assert result.content == "final" and prompts.text == "Use inner answer"
    assert [call.session is session for call in prompts.calls] == [False, True]
    outer, inner = run.of(TaskStarted)
    assert (outer.name, inner.name, inner.parent) == ("t", "sub", outer.seq) and run.unbalanced() == []


async def test_a_function_sees_only_its_parameters() -> None:
    """A body that uses its caller's variable cannot even be registered; arguments are evaluated outside."""
    tasks, prompts = system(f=("a", "{{a}}"))
    with pytest.raises(Exception, match="not a declared parameter"):
        tasks.register_template({"name": "g", "params": "a", "instructions": "{{x}}", "is_function": True})
    await ask(tasks, "{{f(x)}}", x="x-value", a="caller's a")
    assert prompts.text == "x-value"


@pytest.mark.parametrize(
    ("call", "says", "code"),
    [
        ("{{nope()}}", "no template function 'nope'", "tasks/template-not-found"),
        ("{{ff(1)}}", "no template function 'ff'", "tasks/template-not-found"),
        ("{{f()}}", "misses its parameters 'a', 'b'", "tasks/missing-parameter"),
        ("{{f(1, 2, 3)}}", "takes 2 arguments, and got 3", "tasks/bad-call"),
        ("{{f(1, c=2)}}", "has no parameter 'c'", "tasks/bad-call"),
        ("{{f(1, a=2)}}", "parameter 'a' twice", "tasks/bad-call"),
    ],
)
async def test_wrong_calls_fail_the_task(call: str, says: str, code: str) -> None:
    """A call that cannot be made is input_validation_failure with what is wrong; no model is called."""
    tasks, prompts = system(f=("a, b", ""))
    result = await ask(tasks, call)
    error = result.notes["error"]
    assert says in result.content and error["reason"] == "input_validation_failure"
    assert error["details"]["code"] == code and prompts.prompts == []


async def test_cyclic_functions_fail_naming_the_cycle() -> None:
    """Functions that call each other in a cycle end at once with execution_halted and the cycle's names."""
    tasks, _ = system(f=("", "{{g()}}"), g=("", "{{h()}}"), h=("", "{{f()}}"))
    result = await ask(tasks, "{{f()}}")
    assert result.notes["error"]["reason"] == "execution_halted"
    assert result.notes["error"]["details"]["cycle"] == "f -> g -> h -> f"
    tasks, _ = system(f=("a", "{{f(a)}}"))
    assert "f -> f" in (await ask(tasks, "{{f(1)}}")).content
    tasks, _ = system()
    assert "t -> t" in (await ask(tasks, "{{t()}}")).content


async def test_recursion_is_capped() -> None:
    """A chain of functions deeper than the cap, or a call_depth beyond it, ends with execution_halted."""
    functions = {f"f{n}": ("", f"{{{{f{n + 1}()}}}}") for n in range(30)}
    tasks, _ = system(**functions)
    result = await ask(tasks, "{{f0()}}")
    assert result.notes["error"]["details"]["code"] == "tasks/function-depth"
    tasks, _ = system(f=("", "x"))
    tasks.register_template({"name": "t", "subtype": "t", "params": "", "instructions": "{{f()}}"})
    assert (await tasks.execute_task("atomic", "t", {}, None, None, 5)).status == "COMPLETE"
    deep = await tasks.execute_task("atomic", "t", {}, call_depth=25)
    assert deep.notes["error"]["reason"] == "execution_halted"


@pytest.mark.parametrize(("depth", "status"), [(0, "COMPLETE"), (19, "COMPLETE"), (20, "FAILED"), (1_000, "FAILED")])
async def test_the_depth_a_host_states_guards_a_task_of_any_kind(depth: int, status: str) -> None:
    """A task that calls no function is refused as well: what runs it may be a tool of the task before."""
    tasks, prompts = system()
    tasks.register_template({"name": "plain", "subtype": "plain", "params": "", "instructions": "x"})
    result = await tasks.execute_task("atomic", "plain", {}, call_depth=depth)
    assert result.status == status
    assert len(prompts.prompts) == (status == "COMPLETE")


async def test_function_call_nodes() -> None:
    """Texts are variables of the environment first and literals else; nodes nest; data stays data."""
    tasks, prompts = system(f=("a, b", "{{a}}-{{b}}"))
    env = Environment({"v": "bound"})
    node = FunctionCallNode(
        template_name="f",
        arguments=["v", FunctionCallNode(template_name="f", arguments=["w"], named_arguments={"b": {"k": "v"}})],
    )
    result = await tasks.execute_call(node, env)
    assert result.content == 'bound-w-{"k": "v"}' and prompts.prompts == []
    assert (await tasks.execute_call(FunctionCallNode(template_name="nope"))).failed


async def test_a_failing_function_fails_the_task_with_its_reason() -> None:
    """The model error of a called task is the caller's failure, the exception kept."""
    error = RateLimited("slow", status=429)
    tasks, _ = system(error)
    tasks.register_template({"name": "sub", "params": "", "instructions": "x"})
    result = await ask(tasks, "{{sub()}}")
    assert result.error is error and result.notes["error"]["reason"] == "llm_error"


async def test_an_evaluator_may_evaluate_calls_itself() -> None:
    """An evaluator with evaluate_function_call is given the node and the environment."""

    class Evaluator:
        async def evaluate_string(self, sexp_string: str, initial_env: Any = None) -> Any: ...

        async def evaluate_function_call(self, call: FunctionCallNode, env: Environment) -> Any:
            return f"{call.template_name} {env.find('x')}"

    tasks = TaskSystem(Evaluator())
    assert (await tasks.execute_call(FunctionCallNode(template_name="f"), Environment({"x": 1}))).content == "f 1"
