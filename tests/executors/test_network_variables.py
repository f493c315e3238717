"""What was granted the network is told how it is reached, and no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentflow.core.ports.service_port import ServiceCommand
from agentflow.executors.command_executor import CommandExecutor
from agentflow.executors.file_access import FileAccessManager
from agentflow.executors.sandbox.installations import network_variables
from agentflow.executors.sandbox.selection import SandboxChoice
from agentflow.executors.services import Services
from tests.hostile.backends import CONFINING, needed

SHOW = ["sh", "-c", 'echo "$https_proxy $HTTP_PROXY $NO_PROXY"; cat "$SSL_CERT_FILE"']


def test_a_proxy_with_a_password_has_to_be_named() -> None:
    """Certificates and proxies are passed on, whatever the case of their names; what holds a password, or may, is not."""
    passed = {
        "SSL_CERT_FILE": "/corp/ca.pem",
        "NODE_EXTRA_CA_CERTS": "/corp/ca.pem",
        "https_proxy": "proxy.corp:3128",
        "HTTP_PROXY": "http://[::1]:3128",
        "NO_PROXY": "localhost,.corp",
    }
    kept = {
        "HTTPS_PROXY": "http://somebody:word@proxy.corp:3128",
        "all_proxy": "somebody:word@proxy.corp:3128",
        "ALL_PROXY": "http://[somebody@proxy.corp",
        "REQUESTS_CA_BUNDLE": "",
        "API_TOKEN": "tomato-harbour-71",
    }
    assert network_variables({**passed, **kept}) == passed


@pytest.mark.parametrize("backend", CONFINING)
@pytest.mark.parametrize("network", [True, False])
async def test_servers_and_commands_with_a_network(
    backend: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, network: bool
) -> None:
    """Where the network is granted, the certificates of the company are read wherever they lie; elsewhere nothing is told."""
    needed(backend)
    (tmp_path / "root").mkdir()
    (tmp_path / "ca.pem").write_text("certificates")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    monkeypatch.setenv("https_proxy", "proxy.corp:3128")
    monkeypatch.setenv("HTTP_PROXY", "http://somebody:word@proxy.corp:3128")
    monkeypatch.setenv("NO_PROXY", "localhost")
    expected = "proxy.corp:3128  localhost\ncertificates" if network else "  \n"
    async with CommandExecutor(tmp_path / "root", sandbox=backend, network=network) as commands:
        assert (await commands.execute_command_safely(SHOW)).stdout == expected
    with FileAccessManager([tmp_path / "root"]) as files:
        service = await Services(files, SandboxChoice(backend)).start(
            ServiceCommand(argv=tuple(SHOW), env={}, network=network)
        )
        out = b""
        while piece := await service.read():
            out += piece
        await service.stop(20)
    assert out.decode() == expected
