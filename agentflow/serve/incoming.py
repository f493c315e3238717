"""Incoming requests: their key and their right to ask, and their bodies, which are bounded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from starlette.requests import ClientDisconnect, Request

from agentflow.core.data.errors import cut
from agentflow.core.data.json_parse import parsed
from agentflow.core.data.walk import in_slices
from agentflow.serve.error_responses import RequestError
from agentflow.serve.keys import Key, Keys

MAX_BODY = 4 * 2**20
"""Maximum size of a request's body in bytes."""
LOCAL = ("localhost", "127.0.0.1", "[::1]")
"""The names of a server on its own machine."""


class Door:
    """Admits requests: addressed to one of ``hosts``, from pages of ``origins`` or the server itself only, with a key.

    Without ``keys`` every caller who reaches the server is ``anyone``. So pages of other sites, shown by a browser on this
    machine, must not reach it, neither through their own host name (Host) nor as that site (Origin).
    """

    def __init__(self, anyone: Key, keys: Keys | None, hosts: Iterable[str], origins: Iterable[str]) -> None:
        self._anyone = anyone
        self._keys = keys
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(origins)

    def check_site(self, request: Request) -> None:
        """Raise RequestError for a request to another host or from another site."""
        host = request.headers.get("host", "").lower()
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        if "*" not in self._hosts and name not in self._hosts:
            raise RequestError(
                f"this server is not called '{cut(name, 100)}'",
                code="serve/host",
                status=421,
                hint="ask by one of its own names",
                setting="start it with --allow-host NAME for each of its names",
            )
        origin = request.headers.get("origin")
        if origin is None or origin in self._origins:
            return
        if origin.partition("://")[2].lower() != host:
            raise RequestError(
                f"pages of '{cut(origin, 100)}' may not use this server",
                code="serve/origin",
                status=403,
                setting="start it with --allow-origin for each site that may use it",
            )

    def key_called(self, name: str) -> Key | None:
        """The key with this name, or None."""
        every = [self._anyone] if self._keys is None else self._keys
        return next((key for key in every if key.name == name), None)

    def knows(self, request: Request) -> bool:
        """Whether a request has a key, or needs none."""
        return self._find(request) is not None

    def is_operator(self, request: Request) -> bool:
        """Whether a request's key may hear of the server's settings."""
        key = self._find(request)
        return key is not None and key.may_see_host

    def _find(self, request: Request) -> Key | None:
        if self._keys is None:
            return self._anyone
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        return self._keys.find(token.strip()) if kind.lower() == "bearer" else None

    def key_of(self, request: Request) -> Key:
        """The key of a request. Raises RequestError (401) if it has none or an unknown one."""
        key = self._find(request)
        if key is None:
            raise RequestError(
                "this server needs a valid key", code="serve/no-key", status=401, hint="Authorization: Bearer KEY"
            )
        return key


async def read_body(request: Request) -> dict[str, Any]:
    """The JSON object in a request. Raises RequestError: 413 above 4 MiB, 415 for another type, 400 for anything else.

    Content types other than JSON are refused because browsers let pages of other sites send them without a preflight.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise RequestError(
            "the body must be JSON", code="serve/type", status=415, hint="content-type: application/json"
        )
    data = bytearray()
    try:
        async for chunk in request.stream():
            data += chunk
            if len(data) > MAX_BODY:
                raise RequestError(f"the body is larger than {MAX_BODY:,} bytes", code="serve/too-large", status=413)
    except ClientDisconnect:
        raise RequestError("the client has disconnected", code="serve/gone", status=400) from None
    try:
        body = await in_slices(parsed(data.decode("utf-8")))
    except ValueError as error:
        raise RequestError(f"the body is not valid JSON: {cut(str(error), 200)}", code="serve/json") from None
    if not isinstance(body, dict):
        raise RequestError("the body must be a JSON object", code="serve/json", hint='start with {"model": ...')
    return cast("dict[str, Any]", body)
