"""Fixtures of flows with a policy."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from agentflow import AgentFlow, Provenance
from tests.support.mail import POLICY, Mail, Open


@pytest.fixture
async def mail(tmp_path: Path) -> AsyncIterator[Open]:
    """Opens a flow: ``await mail(*replies, policy=...)``."""
    opened: list[AgentFlow] = []

    async def make(*replies: Any, policy: Provenance | None = POLICY, **options: Any) -> Mail:
        made = Mail(tmp_path, replies, policy, **options)
        opened.append(made.flow)
        await made.flow.connect()
        return made

    yield make
    for flow in opened:
        await flow.aclose()
