"""``agentflow lsp``: the language server for one editor."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Generator, Iterable, Mapping
from importlib.util import find_spec
from typing import BinaryIO

from agentflow.cli.common import Exit, UsageError
from agentflow.cli.language import ShippedNames, names_of
from agentflow.core.errors import AgentflowError
from agentflow.core.names import Names
from agentflow.executors.tool_specs import SCHEMAS
from agentflow.tasks.xml import read_directory


def serve_editor(*, tasks: str | None = None, app: str | None = None, bindings: Iterable[str] | None = None) -> int:
    """Serve the editor at standard input and output until it leaves. Options as those of ``check``.

    A flow that cannot be loaded is told to the editor, and the names of every flow serve in its stead.
    Raises UsageError (``cli/extra``) without the packages of the extra ``lsp``.
    """
    if find_spec("pygls") is None:
        raise UsageError(
            "the language server needs a package that is not installed: pygls",
            code="cli/extra",
            hint="pip install 'agentflow[cli,lsp]'",
        )
    from agentflow.lang.survey import Surveyor
    from agentflow.lsp.server import Server, serve
    from agentflow.lsp.vocabulary import Vocabulary

    with _own_output() as (stdin, stdout):
        warning = None
        templates = list(read_directory(tasks)) if tasks is not None else []
        names: Names = ShippedNames(templates)
        descriptions = {name: entry.description for name, entry in SCHEMAS.items()}
        descriptions |= {template.name: template.description for template in templates}
        if app is not None:
            try:
                names, descriptions = _names_of_flow(app)
            except AgentflowError as error:
                warning = f"{error.message}; programs are checked without it"
        known = names_of(bindings)
        server = Server(Vocabulary(names, descriptions), lambda: Surveyor(names=names, bindings=known), warning)
        serve(server, stdin, stdout)
    return Exit.OK


def _names_of_flow(app: str) -> tuple[Names, Mapping[str, str]]:
    """The tasks and tools of a flow, and what they are for. Raises UsageError."""
    from agentflow.cli.application import load_flow

    engine = load_flow(app).engine
    descriptions: dict[str, str] = {}
    for name in engine.tools.names():
        tool = engine.tools.find(name)
        descriptions[name] = tool.spec.description if tool is not None else ""
    for name in engine.tasks.template_names():
        compiled = engine.tasks.find_compiled(name)
        descriptions[name] = compiled.template.description if compiled is not None else ""
    return engine.names(), descriptions


@contextlib.contextmanager
def _own_output() -> Generator[tuple[BinaryIO, BinaryIO], None, None]:
    """Standard input and output for the protocol alone: what anything else prints goes to standard error."""
    protocol = os.dup(1)
    sys.stdout.flush()
    os.dup2(2, 1)
    with os.fdopen(protocol, "wb") as stdout:
        yield sys.stdin.buffer, stdout
