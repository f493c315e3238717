"""What is wrong with a task definition is found when the program is compiled, and the part that is wrong is underlined."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider, SexpEvaluationError
from agentflow.core.data.errors import ConfigurationError
from agentflow.core.data.known_names import VARIABLE, NameInfo
from agentflow.lang.diagnosis import check_program
from agentflow.lang.program import compile_program
from agentflow.tasks.template_registry import prepare_definition


class Flow:
    """A flow with the task ``known`` and the variable ``bound``."""

    def describe(self, name: str) -> NameInfo | None:
        return {"known": NameInfo("task"), "bound": VARIABLE, "tool": NameInfo("tool")}.get(name)

    def prepare(self, fields: Any) -> Any:
        return prepare_definition(fields)

    def known_names(self) -> list[str]:
        return ["known", "tool"]


def task(instructions: str = '"{{a}}"', options: str = "", params: str = "(a string)", name: str = "t") -> str:
    """A definition with one part to be changed."""
    return f"(defatom {name} (params {params}) (instructions {instructions}) {options})"


FAULTS = [
    (task(params="(a strng)"), "defatom/invalid", "(a strng)"),
    (task(params="(a string) (b- lines)"), "defatom/invalid", "(b- lines)"),
    (task('"Say {{a"'), "defatom/invalid", "{{a"),
    (task('"Say {{a}} and {{}}."'), "defatom/place", "{{}}"),
    (task('"Say {{a}} and {{ b }}."'), "defatom/place", "{{ b }}"),
    (task('"A \\n tab {{b}}"'), "defatom/place", '"A \\n tab {{b}}"'),
    (task(options='(system "{{a.}}")'), "defatom/invalid", "{{a.}"),
    (task('"Say {{unknown(a)}}!"'), "defatom/function", "{{unknown(a)}}"),
    (task('"Say {{known(lost(a))}}!"'), "defatom/function", "{{known(lost(a))}}"),
    (task('"Say {{tool(a)}}!"'), "defatom/function", "{{tool(a)}}"),
    (task('"Say {{t(a)}}!"'), "defatom/function", "{{t(a)}}"),
    (task(options='(file_paths "{{b}}")'), "defatom/invalid", '(file_paths "{{b}}")'),
    (
        task(options="(context (inherit_context full) (fresh_context enabled))"),
        "defatom/invalid",
        "(context (inherit_context full) (fresh_context enabled))",
    ),
    (task(options="(context (inherit_context all))"), "defatom/invalid", "(inherit_context all)"),
    (task(options='(context {"inherit_context" "all"})'), "defatom/invalid", '"all"'),
    (task(options="(history_config (turns 3))"), "defatom/invalid", "(turns 3)"),
    (task(options="(output_format (type yaml))"), "defatom/invalid", "(output_format (type yaml))"),
    (task("5"), "defatom/option", "5"),
    (task(name="if"), "defatom/name", "if"),
    (task(name="car"), "defatom/name", "car"),
    (task(name="get_context"), "defatom/name", "get_context"),
    (task(name="bound"), "defatom/name", "bound"),
    (f"(define t 1) {task()}", "defatom/name", "t"),
    (f"(defmacro t (x) x) {task()}", "defatom/name", "t"),
]


@pytest.mark.parametrize(("text", "code", "underlined"), FAULTS, ids=[each[0] for each in FAULTS])
def test_a_fault_is_an_error_of_the_program_at_the_part_that_is_wrong(text: str, code: str, underlined: str) -> None:
    """Before anything runs; whatever found it, the program's text is what is shown."""
    with pytest.raises(SexpEvaluationError) as caught:
        compile_program(text, names=Flow())
    assert caught.value.code == code
    assert caught.value.span is not None and caught.value.span.text == underlined


SOUND = [
    task('"{{known(a)}} {{later(a)}}"') + task(name="later"),
    task(name="tool"),
    task(options="(context (fresh_context enabled))"),
    f"(let ((t 1)) t) {task()}",
    task('(string-append "Say " "{{a}}")'),
]


@pytest.mark.parametrize("text", SOUND)
def test_what_may_turn_out_well_is_no_fault(text: str) -> None:
    """Tasks defined later, a tool's name, one side of a setting, a variable elsewhere, a text that is computed."""
    compile_program(text, names=Flow())


async def test_a_text_may_be_computed(tmp_path: Path) -> None:
    """A name where text is wanted is a variable, and a call is a call; a quoted name is that name as text."""
    provider = ScriptedProvider(["one"])
    async with AgentFlow(provider=provider, root=tmp_path) as flow:
        program = """
        (define about "Say hello to {{who}}.")
        (define (tone name) (format "Be {}." name))
        (defatom greet (params (who)) (instructions about) (system (tone "kind")) (subtype 'letter))
        (greet (who "Ada"))
        """
        assert ((await flow.run(program)).value).content == "one"
    (request,) = provider.requests
    assert "Say hello to Ada." in str(request.messages) and request.system is not None and "Be kind." in request.system


@pytest.mark.parametrize(
    ("text", "code", "underlined"),
    [
        ("(define n 5) (defatom t (params) (instructions n))", "defatom/option", "n"),
        ('(define s "{{b}}") (defatom t (params) (instructions s))', "defatom/invalid", "s"),
        ("(defatom t (params) (instructions nobody))", "name/unbound", "nobody"),
        ('(defatom t (params) (instructions "x") (file_paths (list "a" 1)))', "defatom/option", '(list "a" 1)'),
    ],
)
async def test_a_computed_text_is_checked_when_it_is_there(
    tmp_path: Path, text: str, code: str, underlined: str
) -> None:
    """At the form that gave it."""
    async with AgentFlow(provider=ScriptedProvider([]), root=tmp_path) as flow:
        with pytest.raises(SexpEvaluationError) as caught:
            await flow.run(text)
    assert caught.value.code == code
    assert caught.value.span is not None and caught.value.span.text == underlined


async def test_a_definition_with_a_computed_text_is_known_when_it_is_compiled() -> None:
    """Its parameters are written out: a call with an unknown one is found before it runs."""
    text = '(define s "x") (defatom t (params (a)) (instructions s)) (t (a 1) (b 1))'
    with pytest.raises(SexpEvaluationError) as caught:
        compile_program(text, names=Flow(), allow=["defatom"])
    assert caught.value.code == "call/unknown-parameter"


async def test_turns_and_answers_are_bounded_by_positive_integers() -> None:
    """``max-turns`` and ``max-output-tokens`` are fields of the task; anything but a positive integer is refused."""
    model = ScriptedProvider(["done"])
    async with AgentFlow(provider=model) as flow:
        await flow.define(task(options="(max-turns 3) (max-output-tokens 50)"))
        template = flow.task_system.find_template("t")
        assert (template["max_turns"], template["max_output_tokens"]) == (3, 50)
        await flow.run('(t (a "x"))')
        assert model.requests[0].max_output_tokens == 50
    for wrong in ("0", "2.5", '"3"', "a b"):
        (fault,) = check_program(task(options=f"(max-turns {wrong})"))
        assert fault.code == "defatom/option"


@pytest.mark.parametrize("spelled", ["(max_output_tokens 50)", "(max-output-tokens 50)"])
async def test_hyphens_and_underscores_of_options_are_the_same(spelled: str) -> None:
    """Either spelling is the option, and both together are that option twice."""
    async with AgentFlow(provider=ScriptedProvider(["done"])) as flow:
        await flow.define(task(options=spelled))
        assert flow.task_system.find_template("t")["max_output_tokens"] == 50
    (fault,) = check_program(task(options="(max-output-tokens 5) (max_output_tokens 5)"))
    assert fault.code == "form/duplicate"
    assert check_program(task(options='(file-paths "a.md")'), allow=["defatom"])[0].code == "name/not-granted"


async def test_a_scripted_model_keeps_as_many_requests_as_it_is_told() -> None:
    """A process that makes many calls does not hold them all."""
    model = ScriptedProvider(lambda request: "x", keep=2)
    async with AgentFlow(provider=model) as flow:
        for number in range(4):
            await flow.ask(f"question {number}")
    assert [request.messages[-1].text for request in model.requests] == ["question 2", "question 3"]
    with pytest.raises(ConfigurationError):
        ScriptedProvider(keep=-1)


def test_an_untrusted_program_takes_no_more_turns_than_the_run_allows() -> None:
    """A task that untrusted code defines may not raise the run's own bound of turns."""
    assert check_program(task(options="(max-turns 33)")) == []
    (fault,) = check_program(task(options="(max-turns 33)"), allow=["defatom"])
    assert "32 turns" in fault.message
