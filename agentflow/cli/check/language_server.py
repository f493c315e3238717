"""``agentflow lsp``: the language server for one editor."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator, Iterable
from importlib.util import find_spec
from typing import BinaryIO

from agentflow.cli.check.around import names_around
from agentflow.cli.check.language import names_of
from agentflow.cli.shared.common import Exit, UsageError
from agentflow.cli.shared.mcp_options import McpOptions
from agentflow.core.data.errors import AgentflowError
from agentflow.lib.distribution import install, own_version


def serve_editor(
    options: McpOptions, *, tasks: str | None = None, app: str | None = None, bindings: Iterable[str] | None = None
) -> int:
    """Serve the editor at standard input and output until it disconnects. Options as for ``check``. Returns the exit code.

    If a flow cannot be loaded or a server's tools are unknown, the editor shows a warning and the other names are served.
    Raises UsageError (``cli/extra``) without the packages of the extra ``lsp``.
    """
    if find_spec("pygls") is None:
        raise UsageError(
            "the language server needs a package that is not installed: pygls",
            code="cli/extra",
            hint=install("cli", "lsp"),
        )
    from agentflow.lang.survey import Surveyor
    from agentflow.lsp.open_texts import Server, serve
    from agentflow.lsp.vocabulary import Vocabulary

    with _own_output() as (stdin, stdout):
        warnings: list[str] = []
        try:
            around = names_around(options, tasks=tasks, app=app)
        except AgentflowError as error:
            warnings.append(f"{error.message}; programs are checked without that flow")
            around = names_around(McpOptions(), tasks=tasks)
        warnings += around.notes
        names, bound_names = around.names, names_of(bindings)
        vocabulary = Vocabulary(names, around.descriptions, around.foreign)
        warning = "\n".join(warnings) or None
        server = Server(vocabulary, lambda: Surveyor(names=names, bindings=bound_names), own_version(), warning)
        serve(server, stdin, stdout)
    return Exit.OK


@contextlib.contextmanager
def _own_output() -> Generator[tuple[BinaryIO, BinaryIO], None, None]:
    """Standard input and output reserved for the protocol; other output goes to standard error."""
    protocol = os.dup(1)
    sys.stdout.flush()
    os.dup2(2, 1)
    with os.fdopen(protocol, "wb") as stdout:
        yield sys.stdin.buffer, stdout
