"""The self-test of a sandbox: runs a program that tries to break out, then checks its success.

It runs once per process and back-end, before the first command. The state outside afterwards decides; the probe's own
report only shows that it ran and could work in its workspace.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import socket
import tempfile

from agentflow.core.data.frozen import frozen
from agentflow.executors.sandbox.backend import CommandLimits, Sandbox, Spawn
from agentflow.executors.sandbox.installations import installation
from agentflow.executors.sandbox.pipes import Output, attach
from agentflow.executors.sandbox.supervised import interpreter
from agentflow.lib.own_threads import own_thread
from agentflow.lib.shielded import run_or_undo, run_to_completion

_TIMEOUT_S = 20.0

_PROBE = r"""
import json, os, socket, sys
outside, port, parent, token = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
report = {}
def attempt(name, action):
    try:
        report[name] = bool(action())
    except OSError:
        report[name] = False
def write(path):
    with open(path, "w") as file:
        file.write("x")
    return True
def send():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        return sender.sendto(b"x", ("127.0.0.1", port))
def connect():
    with socket.create_connection(("127.0.0.1", port), 1):
        return True
def spy(process):
    with open(f"/proc/{process}/environ", "rb") as file:
        return token.encode() in file.read()
attempt("inside", lambda: write("inside"))
attempt("outside", lambda: write(outside + "/written"))
attempt("link", lambda: write("link/linked"))
attempt("truncate", lambda: os.truncate(outside + "/kept", 0) is None)
attempt("mode", lambda: os.chmod(outside + "/kept", 0o777) is None)
attempt("remove", lambda: os.unlink(outside + "/kept") is None)
attempt("udp", send)
attempt("tcp", connect)
attempt("spy", lambda: spy(parent))
attempt("spy1", lambda: spy(1))
print(json.dumps(report))
"""

_WORDS = {
    "written": "it wrote a file outside of the workspace",
    "linked": "it wrote through a link that leads outside",
    "kept": "it changed, truncated or removed a file outside of the workspace",
    "udp": "it sent a datagram",
    "tcp": "it opened a connection",
    "spy": "it read the environment of this process",
    "spy1": "it read the environment of the first process",
}


@frozen
class _Scene:
    workspace: str
    outside: str
    scratch: str


async def examine(sandbox: Sandbox) -> list[str]:
    """Test ``sandbox``. Returns a sentence for each promise it broke; an empty list if it passed."""
    creation = own_thread(tempfile.mkdtemp, prefix="agentflow-selftest-")
    base = await run_or_undo(creation, undo=os.rmdir)
    try:
        scene = await own_thread(_prepare, base)
        return await _examine_in(scene, sandbox)
    finally:
        await run_to_completion(own_thread(shutil.rmtree, base, True))


def _prepare(base: str) -> _Scene:
    base = os.path.realpath(base)
    scene = _Scene(f"{base}/workspace", f"{base}/outside", f"{base}/scratch")
    for path in (scene.workspace, scene.outside, scene.scratch):
        os.mkdir(path)
    os.symlink(scene.outside, f"{scene.workspace}/link")
    with open(f"{scene.outside}/kept", "w") as file:
        file.write("kept")
    os.chmod(f"{scene.outside}/kept", 0o644)
    return scene


async def _examine_in(scene: _Scene, sandbox: Sandbox) -> list[str]:
    token = secrets.token_hex(16)
    python = interpreter()
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
    ):
        port = _bind_both(udp, tcp)
        marker = await asyncio.create_subprocess_exec(
            # a process with a secret in its environment, like this one
            python,
            "-I",
            "-S",
            "-c",
            "import sys; sys.stdin.read()",
            stdin=asyncio.subprocess.PIPE,
            env={"AGENTFLOW_SELFTEST": token},
        )
        try:
            report = await _probe(scene, sandbox, (python, port, marker.pid, token))
        finally:
            marker.kill()
            await run_to_completion(marker.wait())
        if isinstance(report, str):
            return [report]
        broken = await own_thread(_look, scene)
        broken += [_WORDS[name] for name in ("spy", "spy1") if report.get(name)]
        broken += [_WORDS["udp"]] if _received(udp) else []
        broken += [_WORDS["tcp"]] if _accepted(tcp) else []
        if not report.get("inside"):
            broken.append("the workspace is not writable")
        return broken


def _bind_both(udp: socket.socket, tcp: socket.socket) -> int:
    tcp.bind(("127.0.0.1", 0))
    tcp.listen(1)
    port: int = tcp.getsockname()[1]
    udp.bind(("127.0.0.1", port))
    udp.setblocking(False)
    tcp.setblocking(False)
    return port


def _received(udp: socket.socket) -> bool:
    try:
        return bool(udp.recv(1))
    except BlockingIOError:
        return False


def _accepted(tcp: socket.socket) -> bool:
    try:
        tcp.accept()[0].close()
    except BlockingIOError:
        return False
    return True


def _look(scene: _Scene) -> list[str]:
    broken = [_WORDS[name] for name in ("written", "linked") if os.path.lexists(f"{scene.outside}/{name}")]
    try:
        with open(f"{scene.outside}/kept") as file:
            kept = file.read() == "kept" and os.fstat(file.fileno()).st_mode & 0o777 == 0o644
    except OSError:
        kept = False
    return broken if kept else [*broken, _WORDS["kept"]]


async def _probe(scene: _Scene, sandbox: Sandbox, parameters: tuple[str, int, int, str]) -> dict[str, bool] | str:
    """Run the probe with ``parameters``. Returns its report, or a sentence on why there is none."""
    python, port, parent, token = parameters
    read_end, write_end = os.pipe()
    output = Output(65_536)
    transport = await attach(read_end, output)
    cwd = os.open(scene.workspace, os.O_RDONLY | os.O_DIRECTORY)
    try:
        running = await sandbox.spawn(
            Spawn(
                executable=python,
                argv=(python, "-I", "-S", "-c", _PROBE, scene.outside, str(port), str(parent), token),
                env={"PATH": "/usr/bin:/bin"},
                cwd=scene.workspace,
                cwd_fd=cwd,
                workspace=(scene.workspace,),
                scratch=scene.scratch,
                readable=installation(python),
                network=False,
                limits=CommandLimits(),
                stdout=write_end,
                stderr=write_end,
            )
        )
    except OSError as error:
        transport.close()
        return f"it could not be started: {error}"
    except BaseException:  # close the transport, even when cancelled
        transport.close()
        raise
    finally:
        os.close(cwd)
        os.close(write_end)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            ending = await running.wait()
            await output.done.wait()
    except TimeoutError:
        return "the probe did not exit"
    finally:
        await run_to_completion(running.end())
        transport.close()
    if ending.exit_code != 0:
        return f"the probe failed ({ending.error or ending.exit_code}): {output.text()[-500:].strip()}"
    return json.loads(output.text())
