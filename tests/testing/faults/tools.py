"""The tools that the programs of these sets call: their signatures, and never their bodies, are what exploration reads."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from agentflow import tool


class Page(TypedDict):
    """A page as it was fetched."""

    title: str
    links: list[str]
    status: int


class Build(TypedDict):
    """How a build ended."""

    state: Literal["passed", "failed", "cancelled"]
    log: str


@tool(read_only=True)
async def search(query: str) -> list[str]:
    """Addresses of the pages that a query finds."""
    raise AssertionError("a tool of the host was called")


@tool(read_only=True)
async def fetch(url: str) -> Page:
    """A page of the web."""
    raise AssertionError("a tool of the host was called")


@tool(read_only=True)
async def stock(item: str) -> int:
    """How many of an item are there."""
    raise AssertionError("a tool of the host was called")


async def build(branch: str) -> Build:
    """Build a branch."""
    raise AssertionError("a tool of the host was called")


async def send(to: str, text: str) -> bool:
    """Send a mail; whether it was taken."""
    raise AssertionError("a tool of the host was called")


TOOLS = (search, fetch, stock, build, send)
