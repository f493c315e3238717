"""Loopback servers of OpenAI's and of Anthropic's batches, as strict as the vendors say that theirs are.

Rules are those of the SDKs' own documentation (openai 3.57, anthropic 2.14): a file of at most 50,000 lines and 200 MB with the
purpose ``batch``, one endpoint and one model for all lines, unique custom ids, ``24h``, at most 16 pairs of metadata of 64 and 512
characters; at most 100,000 requests and 256 MB, unique custom ids of 1 to 64 letters, digits, ``_`` and ``-``, no streaming. Answers
come in another order than the requests. Nothing but a batch is answered without ``ordinary``.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

_KINDS = {401: "authentication_error", 403: "permission_error", 413: "request_too_large", 429: "rate_limit_error"}
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}").fullmatch


@dataclass
class Sent:
    """A batch as the server has it."""

    id: str
    lines: list[dict[str, Any]]
    endpoint: str
    metadata: dict[str, str]
    created: float
    file: str = ""
    ended: bool = False
    cancelled: bool = False
    answered: set[str] = field(default_factory=set[str])
    failed: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    invalid: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])


class BatchServer:
    """A server of both vendors: ``batches`` are what it was sent, ``finish`` ends them, ``ordinary`` counts calls outside of batches.

    ``answer`` gives the text for a request's body. With ``at_once`` a batch ends by itself after ``takes_s`` seconds. ``lose`` is called with the name of
    a step before its answer is sent; where it returns true the connection breaks instead. ``refuse`` gives the status and the message with which a
    batch of these bodies is refused, ``fault`` those of OpenAI's errors for a body once the batch was taken, ``written`` the text of the answers that is sent
    in place of theirs; ``ahead_s`` are seconds by which its clock is ahead.
    """

    def __init__(
        self,
        answer: Callable[[dict[str, Any]], str] = lambda body: "yes",
        *,
        at_once: bool = True,
        takes_s: float = 0.1,
        lose: Callable[[str], bool] = lambda step: False,
        refuse: Callable[[list[dict[str, Any]]], tuple[int, str] | None] = lambda bodies: None,
        fault: Callable[[dict[str, Any]], dict[str, Any] | None] = lambda body: None,
        written: Callable[[str], str] = lambda text: text,
        ahead_s: float = 0.0,
    ) -> None:
        self.answer = answer
        self.at_once = at_once
        self.takes_s = takes_s
        self.lose = lose
        self.refuse = refuse
        self.fault = fault
        self.written = written
        self.ahead_s = ahead_s
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, Sent] = {}
        self.ordinary: list[dict[str, Any]] = []
        self.refused: list[str] = []
        self.url = ""

    # -- control

    def finish(self, *, expire: frozenset[str] = frozenset(), errors: dict[str, dict[str, Any]] | None = None) -> None:
        """End all batches: calls of the custom ids ``expire`` have no answer, those of ``errors`` that error."""
        for batch in self.batches.values():
            if not batch.ended:
                batch.ended = True
                batch.failed = errors or {}
                batch.answered = {each["custom_id"] for each in batch.lines} - expire - batch.failed.keys()

    @property
    def submitted(self) -> Counter[str]:
        """How often each request was submitted, by its custom id."""
        taken = [batch for batch in self.batches.values() if not batch.invalid]
        return Counter(each["custom_id"] for batch in taken for each in batch.lines)

    def _refuse(self, message: str, status: int = 400) -> Response:
        self.refused.append(message)
        return JSONResponse(
            {"error": {"type": _KINDS.get(status, "invalid_request_error"), "message": message}, "type": "error"},
            status,
        )

    def _new(
        self, prefix: str, lines: list[dict[str, Any]], endpoint: str, metadata: dict[str, str], file: str
    ) -> Sent:
        batch = Sent(f"{prefix}{len(self.batches) + 1}", lines, endpoint, metadata, time.time(), file)
        self.batches[batch.id] = batch
        return batch

    def _seen(self, batch: Sent) -> None:
        if self.at_once and not batch.ended and time.time() - batch.created >= self.takes_s:
            batch.ended = True
            batch.answered = {each["custom_id"] for each in batch.lines}

    # -- OpenAI

    async def upload(self, request: Request) -> Response:
        form = await request.form()
        if form.get("purpose") != "batch":
            return self._refuse("the purpose is not batch")
        content = await form["file"].read()  # type: ignore[union-attr]
        if len(content) > 200_000_000:
            return self._refuse("the file is larger than 200 MB", 413)
        name = f"file-{len(self.files) + 1}"
        self.files[name] = content
        return JSONResponse(
            {
                "id": name,
                "object": "file",
                "bytes": len(content),
                "created_at": int(time.time()),
                "filename": "f",
                "purpose": "batch",
                "status": "processed",
            }
        )

    async def create(self, request: Request) -> Response:
        body = await request.json()
        content = self.files.get(body.get("input_file_id", ""))
        if content is None:
            return self._refuse("no such file")
        if body.get("completion_window") != "24h":
            return self._refuse("the completion window is not 24h")
        metadata = body.get("metadata") or {}
        if len(metadata) > 16 or any(
            len(key) > 64 or not isinstance(value, str) or len(value) > 512 for key, value in metadata.items()
        ):
            return self._refuse("invalid metadata")
        lines = [json.loads(line) for line in content.decode().splitlines() if line.strip()]
        ids = [line.get("custom_id") for line in lines]
        if (
            not 1 <= len(lines) <= 50_000
            or len(set(ids)) != len(ids)
            or not all(isinstance(each, str) and each for each in ids)
        ):
            return self._refuse("1 to 50,000 lines, each with a custom_id of its own")
        if any(line.get("method") != "POST" or line.get("url") != body["endpoint"] for line in lines):
            return self._refuse("each line is a POST to the endpoint of the batch")
        if body["endpoint"] not in ("/v1/responses", "/v1/chat/completions"):
            return self._refuse("unknown endpoint")
        if len({line["body"].get("model") for line in lines}) != 1:
            return self._refuse("a batch is for one model")
        if any(line["body"].get("stream") for line in lines):
            return self._refuse("a batch cannot stream")
        if refusal := self.refuse([line["body"] for line in lines]):
            return self._refuse(refusal[1], refusal[0])
        batch = self._new("batch_", lines, body["endpoint"], metadata, body["input_file_id"])
        for number, line in enumerate(lines, 1):
            if fault := self.fault(line["body"]):
                batch.invalid.append(
                    {"line": number, "code": "invalid_request", "message": "?", "param": None, **fault}
                )
        batch.ended = bool(batch.invalid)
        if self.lose("create"):
            raise ConnectionResetError
        return JSONResponse(self._openai(batch))

    def _openai(self, batch: Sent) -> dict[str, Any]:
        status = (
            "in_progress"
            if not batch.ended
            else "cancelled"
            if batch.cancelled
            else "failed"
            if batch.invalid
            else "completed"
        )
        return {
            "id": batch.id, "object": "batch", "endpoint": batch.endpoint, "completion_window": "24h", "input_file_id": batch.file,
            "created_at": int(batch.created + self.ahead_s), "status": status, "metadata": batch.metadata,
            "errors": {"object": "list", "data": batch.invalid} if batch.invalid else None,
            "output_file_id": f"out-{batch.id}" if batch.ended and batch.answered else None,
            "error_file_id": f"err-{batch.id}" if batch.ended and len(batch.answered) < len(batch.lines) else None,
        }  # fmt: skip

    async def openai_list(self, request: Request) -> Response:
        limit = int(request.query_params.get("limit", 20))
        if not 1 <= limit <= 100:
            return self._refuse("limit is 1 to 100")
        every = [*reversed(self.batches.values())]
        after = request.query_params.get("after")
        start = 0 if after is None else [each.id for each in every].index(after) + 1
        page = every[start : start + limit]
        for each in page:
            self._seen(each)
        return JSONResponse(
            {
                "object": "list",
                "data": [self._openai(each) for each in page],
                "has_more": start + limit < len(every),
                "last_id": page[-1].id if page else None,
            }
        )

    async def openai_get(self, request: Request) -> Response:
        batch = self.batches[request.path_params["id"]]
        self._seen(batch)
        return JSONResponse(self._openai(batch))

    async def openai_cancel(self, request: Request) -> Response:
        batch = self.batches[request.path_params["id"]]
        batch.cancelled = batch.ended = True
        return JSONResponse(self._openai(batch))

    async def content(self, request: Request) -> Response:
        kind, _, id = request.path_params["id"].partition("-")
        batch = self.batches[id]
        rows: list[dict[str, Any]] = []
        for line in reversed(batch.lines):
            name = line["custom_id"]
            if kind == "out" and name in batch.answered:
                rows.append(
                    {
                        "id": f"r-{name}",
                        "custom_id": name,
                        "response": {
                            "status_code": 200,
                            "request_id": "q",
                            "body": self._answer_of(line["body"], batch.endpoint),
                        },
                        "error": None,
                    }
                )
            elif kind == "err" and name in batch.failed:
                rows.append(
                    {
                        "id": f"r-{name}",
                        "custom_id": name,
                        "response": {
                            "status_code": batch.failed[name].get("status", 400),
                            "request_id": "q",
                            "body": {"error": batch.failed[name]},
                        },
                        "error": None,
                    }
                )
            elif kind == "err" and name not in batch.answered:
                code = "batch_cancelled" if batch.cancelled else "batch_expired"
                rows.append(
                    {
                        "id": f"r-{name}",
                        "custom_id": name,
                        "response": None,
                        "error": {
                            "code": code,
                            "message": "This request could not be executed before the completion window expired.",
                        },
                    }
                )
        return PlainTextResponse(self.written(_lines(rows)))

    def _answer_of(self, body: dict[str, Any], endpoint: str) -> dict[str, Any]:
        text = self.answer(body)
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        if endpoint == "/v1/responses" and text.startswith("call "):
            called = {
                "type": "function_call",
                "id": "f",
                "call_id": "c1",
                "name": text[5:],
                "arguments": "{}",
                "status": "completed",
            }
            return {
                "id": "resp_1",
                "object": "response",
                "status": "completed",
                "model": body["model"],
                "output": [called],
                "usage": usage,
            }
        if endpoint == "/v1/responses":
            content = [{"type": "output_text", "text": text, "annotations": []}]
            return {
                "id": "resp_1",
                "object": "response",
                "status": "completed",
                "model": body["model"],
                "output": [
                    {"type": "message", "id": "m", "status": "completed", "role": "assistant", "content": content}
                ],
                "usage": usage,
            }
        return {
            "id": "c",
            "object": "chat.completion",
            "model": body["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        }

    # -- Anthropic

    async def anthropic_create(self, request: Request) -> Response:
        content = await request.body()
        if len(content) > 256_000_000:
            return self._refuse("the batch is larger than 256 MB", 413)
        body = json.loads(content)
        if set(body) != {"requests"}:
            return self._refuse(f"unknown fields {sorted(set(body) - {'requests'})}")
        lines = body["requests"]
        ids = [line.get("custom_id") for line in lines]
        if (
            not 1 <= len(lines) <= 100_000
            or len(set(ids)) != len(ids)
            or not all(isinstance(each, str) and _ID(each) for each in ids)
        ):
            return self._refuse("1 to 100,000 requests, each with a custom_id of its own, of 1 to 64 characters")
        if any(line["params"].get("stream") or "max_tokens" not in line["params"] for line in lines):
            return self._refuse("params: stream is not allowed, max_tokens is required")
        if refusal := self.refuse([line["params"] for line in lines]):
            return self._refuse(refusal[1], refusal[0])
        batch = self._new("msgbatch_", lines, "/v1/messages", {}, "")
        if self.lose("create"):
            raise ConnectionResetError
        return JSONResponse(self._anthropic(batch))

    def _anthropic(self, batch: Sent) -> dict[str, Any]:
        total, good, bad = len(batch.lines), len(batch.answered), len(batch.failed)
        over = total - good - bad if batch.ended else 0
        created = datetime.fromtimestamp(batch.created + self.ahead_s, UTC).isoformat()
        return {
            "id": batch.id, "type": "message_batch", "processing_status": "ended" if batch.ended else "in_progress",
            "request_counts": {"processing": 0 if batch.ended else total, "succeeded": good, "errored": bad, "canceled": over if batch.cancelled else 0, "expired": 0 if batch.cancelled else over},
            "created_at": created, "expires_at": created, "ended_at": created if batch.ended else None,
            "archived_at": None, "cancel_initiated_at": None, "results_url": f"{self.url}/v1/messages/batches/{batch.id}/results" if batch.ended else None,
        }  # fmt: skip

    async def anthropic_list(self, request: Request) -> Response:
        limit = int(request.query_params.get("limit", 20))
        if not 1 <= limit <= 1_000:
            return self._refuse("limit is 1 to 1000")
        every = [*reversed(self.batches.values())]
        after = request.query_params.get("after_id")
        start = 0 if after is None else [each.id for each in every].index(after) + 1
        page = every[start : start + limit]
        for each in page:
            self._seen(each)
        return JSONResponse(
            {
                "data": [self._anthropic(each) for each in page],
                "has_more": start + limit < len(every),
                "first_id": page[0].id if page else None,
                "last_id": page[-1].id if page else None,
            }
        )

    async def anthropic_get(self, request: Request) -> Response:
        batch = self.batches[request.path_params["id"]]
        self._seen(batch)
        return JSONResponse(self._anthropic(batch))

    async def anthropic_cancel(self, request: Request) -> Response:
        batch = self.batches[request.path_params["id"]]
        batch.cancelled = batch.ended = True
        return JSONResponse(self._anthropic(batch))

    async def anthropic_results(self, request: Request) -> Response:
        batch = self.batches[request.path_params["id"]]
        if not batch.ended:
            return self._refuse("the batch has not ended", 404)
        rows: list[dict[str, Any]] = []
        for line in reversed(batch.lines):
            name = line["custom_id"]
            if name in batch.answered:
                result: dict[str, Any] = {
                    "type": "succeeded",
                    "message": _message(line["params"], self.answer(line["params"])),
                }
            elif name in batch.failed:
                result = {"type": "errored", "error": {"type": "error", "error": batch.failed[name]}}
            else:
                result = {"type": "canceled" if batch.cancelled else "expired"}
            rows.append({"custom_id": name, "result": result})
        return PlainTextResponse(self.written(_lines(rows)), media_type="application/x-jsonl")

    # -- ordinary calls

    async def ordinary_call(self, request: Request) -> Response:
        body = await request.json()
        self.ordinary.append(body)
        if request.url.path.endswith("/messages"):
            return JSONResponse(_message(body, self.answer(body)))
        return JSONResponse(
            self._answer_of(body, "/v1/responses" if "responses" in request.url.path else "/v1/chat/completions")
        )

    @asynccontextmanager
    async def serving(self) -> Any:
        """Serve, and set ``url``."""
        get, post = ["GET"], ["POST"]
        routes = [
            Route("/v1/files", self.upload, methods=post),
            Route("/v1/files/{id}/content", self.content, methods=get),
            Route("/v1/batches", self.create, methods=post),
            Route("/v1/batches", self.openai_list, methods=get),
            Route("/v1/batches/{id}", self.openai_get, methods=get),
            Route("/v1/batches/{id}/cancel", self.openai_cancel, methods=post),
            Route("/v1/messages/batches", self.anthropic_create, methods=post),
            Route("/v1/messages/batches", self.anthropic_list, methods=get),
            Route("/v1/messages/batches/{id}", self.anthropic_get, methods=get),
            Route("/v1/messages/batches/{id}/cancel", self.anthropic_cancel, methods=post),
            Route("/v1/messages/batches/{id}/results", self.anthropic_results, methods=get),
            Route("/v1/messages", self.ordinary_call, methods=post),
            Route("/v1/responses", self.ordinary_call, methods=post),
            Route("/v1/chat/completions", self.ordinary_call, methods=post),
        ]
        config = uvicorn.Config(Starlette(routes=routes), port=0, log_level="critical", lifespan="off")
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        try:
            yield self
        finally:
            server.should_exit = True
            await task


def _lines(rows: list[dict[str, Any]]) -> str:
    return "\n".join([json.dumps(row, ensure_ascii=False) for row in rows])


def _message(params: dict[str, Any], text: str) -> dict[str, Any]:
    return {
        "id": "msg_1", "type": "message", "role": "assistant", "model": params["model"],
        "content": [{"type": "text", "text": text}], "stop_reason": "end_turn", "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }  # fmt: skip
