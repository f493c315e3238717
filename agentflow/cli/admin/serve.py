"""``agentflow serve``: a flow over HTTP."""

from __future__ import annotations

import os

from agentflow.cli.shared.approving import approver
from agentflow.cli.shared.common import Exit, UsageError, check_packages, write_out
from agentflow.cli.shared.host_options import ServeOptions
from agentflow.cli.shared.made_flows import open_flow
from agentflow.cli.shared.wrapping import say

_PACKAGES = ("starlette", "uvicorn")
KEYS = "AGENTFLOW_SERVE_KEYS"
"""The environment variable that names the keys file."""


def print_new_key(name: str) -> int:
    """Create a key; print its table to standard output and the key itself to standard error. Returns the exit code."""
    check_packages(*_PACKAGES, extra="serve")
    from agentflow.serve.keys import new_key

    token, table = new_key(name)
    say(f"the key of {name}, which is shown only now: {token}")
    write_out(table)
    return Exit.OK


async def serve_flow(paths: list[str], options: ServeOptions) -> int:
    """Serve until the process is asked to stop. Returns the exit code. Raises UsageError and ConfigurationError."""
    check_packages(*_PACKAGES, extra="serve")
    from agentflow.serve import FlowServer
    from agentflow.serve.exports import exports_of
    from agentflow.serve.incoming import LOCAL
    from agentflow.serve.listening import is_local, listen, open_socket

    keys = options.keys or os.environ.get(KEYS)
    if keys is None and not is_local(options.host):
        raise UsageError(
            f"--host {options.host}: without keys a server accepts connections from this machine only",
            code="serve/open",
            hint="agentflow serve --new-key NAME >> keys.toml, then --keys keys.toml",
        )
    exports = exports_of(paths, options.export or ())
    if not exports and not options.programs:
        raise UsageError("there is nothing to serve", hint="pass programs, a directory of them, or --export TASK")
    if options.on_disconnect not in ("cancel", "continue"):
        raise UsageError(f"--on-disconnect {options.on_disconnect}: write cancel or continue")
    hosts = [*LOCAL, options.host, *(options.allow_host or ())]
    if not is_local(options.host) and not options.allow_host:
        hosts.append("*")  # with keys any host name is safe: pages of other sites cannot make a browser send a key
    asked = None if options.approve == "ask" else approver(options.approve)
    async with open_flow(options, approve=asked, answer=None) as flow:
        server = FlowServer(
            flow,
            exports,
            keys=keys,
            hosts=hosts,
            origins=options.allow_origin or (),
            fleet=options.fleet,
            programs=(options.allow or ()) if options.programs else None,
            on_disconnect="continue" if options.on_disconnect == "continue" else "cancel",
        )
        sock = open_socket(options.host, options.port)

        def ready(address: str) -> None:
            names = ", ".join(server.service.offers) or "programs"
            say(f"serving {names} at {address}")

        await listen(server, sock, grace_s=options.grace, ready=ready)
    return Exit.OK
