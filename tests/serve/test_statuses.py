"""How a run that failed is answered: by status, with one body, and so that no client pays for it again on its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentflow import AgentFlow, ScriptedProvider
from agentflow.core.data import provider_errors as providers
from agentflow.core.data.errors import (
    CommandDenied,
    ConfigurationError,
    DataError,
    HostPanic,
    InvalidOutput,
    JournalError,
    LimitExceeded,
    PathDenied,
    ResourceExhausted,
    RunCancelled,
    SandboxUnavailable,
    SexpEvaluationError,
    StrayExit,
    TaskError,
    WorkflowError,
)
from agentflow.serve.error_responses import error_response, failure_of_run
from tests.support.serve_clients import ROUTES, frames_of, openai_client, request_of
from tests.support.served import served

ASK = '(defatom ask (params (q)) (instructions "{{q}}") (max_output_tokens 3)) '
ANSWERING = {"tail": ASK + "(ask (q message))", "value": ASK + "(value-of (ask (q message)))"}
WITHIN = {"within": ASK + "(list (value-of (ask (q message))))"}
TEXT = "one two three"


def cut_off(text: str = TEXT, reason: str = "max_tokens") -> ScriptedProvider:
    return ScriptedProvider(lambda request: {"text": text, "stop_reason": reason})


@pytest.mark.parametrize("name", ANSWERING)
@pytest.mark.parametrize("text", [TEXT, ""])
async def test_an_answer_that_was_cut_off_is_an_answer(name: str, text: str) -> None:
    """``length`` or ``incomplete`` with the text that there is, whole and streamed, as the vendors say it: no error to repeat.

    OpenAI's SDK repeated a 500 twice, and the run was paid for three times.
    """
    model = cut_off(text)
    async with AgentFlow(provider=model) as flow, served(flow, ANSWERING) as server, openai_client(server) as client:
        plain = await client.chat.completions.create(model=name, messages=[{"role": "user", "content": "x"}])
        assert (plain.choices[0].message.content, plain.choices[0].finish_reason) == (text, "length")
        assert plain.usage is not None and plain.usage.prompt_tokens > 0
        response = await client.responses.create(model=name, input="x")
        assert (response.output_text, response.status) == (text, "incomplete")
        assert response.incomplete_details is not None and response.incomplete_details.reason == "max_output_tokens"
        calls = len(model.requests)
        assert calls == 2
        ends = {route: frames_of((await server.post(*request_of(route, name))).text) for route in ROUTES}
    assert ends["chat"][-1]["choices"][0]["finish_reason"] == "length"
    assert "".join([each["choices"][0]["delta"].get("content", "") for each in ends["chat"]]) == text
    assert ends["responses"][-1]["type"] == "response.incomplete"
    assert ends["responses"][-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert (ends["ui"][-1]["type"], ends["ui"][-1]["finishReason"]) == ("finish", "length")
    assert (ends["agui"][-1]["type"], ends["agui"][-1]["code"]) == ("RUN_ERROR", "task/exhausted")


async def test_a_full_context_window_cuts_an_answer_off_too() -> None:
    """Clients know one word for both."""
    model = cut_off(reason="context_window")
    async with AgentFlow(provider=model) as flow, served(flow, ANSWERING) as server:
        body = {"model": "tail", "messages": [{"role": "user", "content": "x"}]}
        answer = (await server.post("/v1/chat/completions", body)).json()
    assert (answer["choices"][0]["message"]["content"], answer["choices"][0]["finish_reason"]) == (TEXT, "length")


async def test_a_cut_off_step_on_the_way_is_a_failure() -> None:
    """Only the answering task's text is an answer: what another one was saying is not part of it."""
    async with AgentFlow(provider=cut_off()) as flow, served(flow, WITHIN) as server:
        for path, body in (
            ("/v1/chat/completions", {"model": "within", "messages": [{"role": "user", "content": "x"}]}),
            ("/v1/responses", {"model": "within", "input": "x"}),
        ):
            answer = await server.post(path, body)
            assert (answer.status_code, answer.json()["error"]["code"]) == (422, "task/exhausted")
            assert answer.headers["x-should-retry"] == "false"


async def test_an_answer_that_was_mended_is_complete() -> None:
    """A task that was cut off and did it again ends as its last answer does."""
    texts = iter([{"text": "half", "stop_reason": "max_tokens"}, {"text": "whole"}])
    program = ASK + "(value-of (retry 2 (ask (q message))))"
    async with (
        AgentFlow(provider=ScriptedProvider(lambda request: next(texts))) as flow,
        served(flow, {"x": program}) as server,
    ):
        body = {"model": "x", "messages": [{"role": "user", "content": "x"}]}
        answer = (await server.post("/v1/chat/completions", body)).json()
    assert (answer["choices"][0]["message"]["content"], answer["choices"][0]["finish_reason"]) == ("whole", "stop")


STATUSES: list[tuple[BaseException, int]] = [
    (SexpEvaluationError("no"), 422),
    (WorkflowError("no"), 422),
    (StrayExit("no"), 422),
    (ValueError("no"), 422),
    (DataError("no", code="durable/no-value"), 422),
    (InvalidOutput("no"), 422),
    (TaskError("no", reason="input_validation_failure"), 422),
    (TaskError("no", reason="tool_execution_error"), 422),
    (TaskError("no", reason="execution_timeout"), 422),
    (ResourceExhausted("no", resource="turns", used=2, limit=1), 422),
    (LimitExceeded("no", limit="wall_s", used=2, allowed=1), 422),
    (LimitExceeded("no", limit="steps", used=2, allowed=1), 422),
    (PathDenied("no"), 422),
    (CommandDenied("no"), 422),
    (providers.Refused("no"), 422),
    (providers.ContextWindowExceeded("no"), 422),
    (RunCancelled("no"), 503),
    (JournalError("no", code="durable/interrupted"), 503),
    (JournalError("no"), 500),
    (ConfigurationError("no"), 500),
    (SandboxUnavailable("no"), 500),
    (HostPanic("no"), 500),
    (TaskError("no", reason="configuration_error"), 500),
    (TaskError("no", reason="connection_error"), 502),
    (providers.ServerError("no"), 502),
]


@pytest.mark.parametrize(("error", "status"), STATUSES, ids=lambda each: getattr(each, "code", type(each).__name__))
def test_a_program_that_fails_is_no_fault_of_the_server(error: BaseException, status: int) -> None:
    """5xx is for faults of the server and of providers, which clients and proxies repeat; what a program does is 422.

    The body of every one is the same.
    """
    answer = error_response(failure_of_run(error), run_id="r")
    told = json.loads(bytes(answer.body))["error"]
    assert answer.status_code == status
    assert set(told) == {"message", "type", "param", "code"}
    assert (told["type"] == "server_error") == (status >= 500)
    assert answer.headers["x-should-retry"] == "false"


async def test_failures_of_a_workflow_of_the_server_are_told_by_class_alone() -> None:
    """Of the host's own code as of programs: the same answer with and without a database, raised or as a failed result."""
    flow = AgentFlow()

    @flow.workflow
    async def lookup(message: str) -> str:
        """Look up."""
        raise KeyError(f"hunter22 {message}")

    exports = {"raised": lookup, "failed": "(lookup (message message))", "program": '(error "no such thing")'}
    told: dict[str, Any] = {}
    async with flow, served(flow, exports) as server:
        for name in exports:
            body = {"model": name, "messages": [{"role": "user", "content": "x"}]}
            answer = await server.post("/v1/chat/completions", body)
            assert answer.status_code == 422 and "hunter22" not in answer.text
            told[name] = answer.json()["error"]["code"]
    assert told == {"raised": "host/raised", "failed": "host/raised", "program": "program/error"}


async def test_every_path_answers_errors_in_one_form() -> None:
    """Also a path that is none, a method that is none, and what fails outside of every handler."""
    async with AgentFlow() as flow, served(flow, {"x": "(string-append message)"}) as server:
        for method, path, status in (
            ("GET", "/nowhere", 404),
            ("GET", "/v1/nothing", 404),
            ("DELETE", "/runs", 405),
            ("POST", "/health", 405),
            ("GET", "/v1/chat/completions", 405),
        ):
            answer = await server.client.request(method, path)
            told = answer.json()["error"]
            assert (answer.status_code, told["code"]) == (status, "serve/no-route")
            assert set(told) == {"message", "type", "param", "code"} and path in told["message"]
            assert ("allow" in answer.headers) == (status == 405)
