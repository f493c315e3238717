"""What the language server may load, and what may load it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.architecture.test_layers import ROOT, imports
from tests.support.children import HANG_S

SCRIPT = """
import contextlib, io, sys
import agentflow, agentflow.cli.main as main
with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
    main.app(["--help"])
heavy = {"pygls", "lsprotocol", "cattrs"} & set(sys.modules)
assert not heavy, heavy
sys.modules["pygls"] = None
sys.argv = ["agentflow", "lsp"]
main.app(["lsp"])
"""


def test_it_is_loaded_by_its_command_alone() -> None:
    """Neither the library nor the command's help loads its packages; without them ``lsp`` says what to install."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=HANG_S)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "error[cli/extra]" in done.stderr and "pip install 'agentflow[cli,lsp]'" in done.stderr


def test_it_knows_the_language_only() -> None:
    """The room needs no flow: text and names come in, answers go out."""
    files = sorted(Path(ROOT / "lsp").glob("*.py"))
    assert len(files) > 5
    assert set().union(*map(imports, files)) == {"core", "lang", "lsp"}
