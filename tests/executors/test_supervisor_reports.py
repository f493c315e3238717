"""What a supervisor tells its host is data of a known shape: anything else counts as no report."""

from __future__ import annotations

import json

import pytest

from agentflow.executors.sandbox import _supervisor
from agentflow.executors.sandbox.supervised import reports_in


def test_reports_are_read_up_to_what_is_none() -> None:
    """A command that had got hold of its supervisor could send anything: no code, no other types, no other fields are taken."""
    assert reports_in(b'{"error": "no"}\n{"exit": 127}\n') == [{"error": "no"}, {"exit": 127}]
    assert reports_in(b"{}\n") == [{}]


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00", b"[1]", b'{"exit": "0"}', b'{"exit": true}', b'{"exit": 0, "more": 1}', b'{"error": 1}', b"{" * 100_000, b"\xfb\xe9\x01\n"],
)  # fmt: skip
def test_what_is_no_report_is_none(data: bytes) -> None:
    """A command whose supervisor sent such a thing has failed: nobody knows how it ended."""
    assert reports_in(data) == []


@pytest.mark.parametrize("text", ["plain", 'with "quotes" and \\', "lines\n\tand\x00", "é – 好", "\udcff", ""])
def test_a_supervisor_writes_json_without_its_module(text: str) -> None:
    """As ``json`` would, whose import takes longer than the start of a command."""
    assert json.loads(_supervisor._quoted(text)) == text  # pyright: ignore[reportPrivateUsage]
