"""Durable flows of the batch servers."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from agentflow import AgentFlow, Price

MODELS = {"openai": "openai:gpt-5", "openai-chat": "openai-chat:gpt-5", "anthropic": "anthropic:claude-test"}


def opened(server: str, tmp_path: Path, model: str = "openai:gpt-5", database: str = "", **options: Any) -> AgentFlow:
    """A durable flow of a server, whose desk looks often."""
    url = server if model.startswith("anthropic") else f"{server}/v1"
    prices = {"*": Price(1_000_000, 1_000_000)}
    flow = AgentFlow(
        model=model,
        base_url=url,
        api_key="k",
        root=tmp_path,
        durable=database or f"sqlite:///{tmp_path}/runs.db",
        prices=prices,
        **options,
    )
    times = desk_of(flow).times
    times.poll_s, times.gather_s, times.settle_s = 0.05, 0.05, 0.3
    return flow


def about(body: dict[str, Any]) -> str:
    """An answer that says what was asked."""
    return re.findall(r"Classify (\w+)", json.dumps(body))[-1].upper()


def desk_of(flow: AgentFlow) -> Any:
    return flow._durable._runs.batches


def asking(flow: AgentFlow, batch: bool | str = True) -> Any:
    @flow.task(batch=batch, history=False)
    async def classify(text: str) -> str:
        """Classify {{text}}"""

    @flow.workflow
    async def all_of(texts: list[str]) -> list[str]:
        return await flow.map(classify, texts)

    return all_of
