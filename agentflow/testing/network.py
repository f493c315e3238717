"""Forbids network use: within a block, connections to other machines raise an error."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Generator
from typing import Any

from agentflow.core.data.errors import AgentflowError

_LOCAL_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", ""})


class NetworkForbidden(AgentflowError):
    """A connection to another machine was attempted while the network was forbidden. The message names the host."""

    default_code = "testing/network-forbidden"


def _local(host: object) -> bool:
    if host is None:
        return True
    text = host.decode("ascii", "replace") if isinstance(host, bytes | bytearray) else str(host)
    return text in _LOCAL_NAMES or text == "::1" or text.startswith("127.") or text in ("0.0.0.0", "::")


@contextlib.contextmanager
def forbid_network() -> Generator[None, None, None]:
    """Within the block, raise NetworkForbidden on attempts to resolve or connect to another host.

    All providers use the socket module, with any HTTP client; loopback servers and unix sockets still work. The guard
    affects the whole process, so use it around a test and not inside a program.
    """
    real_connect, real_connect_ex, real_resolve = (
        socket.socket.connect,
        socket.socket.connect_ex,
        socket.getaddrinfo,
    )

    def check(host: object) -> None:
        if not _local(host):
            raise NetworkForbidden(
                f"a connection to {host!r} was attempted while the network is forbidden; "
                "use ScriptedProvider, a Cassette or a loopback server"
            )

    def check_address(own: socket.socket, address: Any) -> None:
        if own.family in (socket.AF_INET, socket.AF_INET6):
            check(address[0])

    def connect(self: socket.socket, address: Any) -> None:
        check_address(self, address)
        return real_connect(self, address)

    def connect_ex(self: socket.socket, address: Any) -> int:
        check_address(self, address)
        return real_connect_ex(self, address)

    def resolve(host: Any, *arguments: Any, **options: Any) -> Any:
        check(host)
        return real_resolve(host, *arguments, **options)

    socket.socket.connect = connect  # pyright: ignore[reportAttributeAccessIssue]
    socket.socket.connect_ex = connect_ex  # pyright: ignore[reportAttributeAccessIssue]
    socket.getaddrinfo = resolve
    try:
        yield
    finally:
        socket.socket.connect = real_connect
        socket.socket.connect_ex = real_connect_ex
        socket.getaddrinfo = real_resolve
