"""The event parser: the same events however the bytes are cut, in linear time and bounded space."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow.core.data.provider_errors import ProtocolError
from agentflow.providers.dialects.sse import SseParser

STREAM = (
    b"\xef\xbb\xbfevent: first\n: comment\ndata: one\n\n"
    b"data:two\r\ndata: more\r\n\r\nid: 7\nretry: 10\n\nevent: lonely\n\ndata:\n\n"
    b'event: third\rdata: {"a": "\xc3\xbc"}\r\rdata: cut off'
)
EVENTS = [(b"first", b"one"), (b"", b"two\nmore"), (b"", b""), (b"third", b'{"a": "\xc3\xbc"}')]


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_cuts_do_not_matter(cuts: list[int]) -> None:
    """Wherever the network cuts the bytes, the events are those of the whole; an unfinished one is not given."""
    parser = SseParser()
    made: list[tuple[bytes, bytes]] = []
    edges = [0, *sorted(cuts), len(STREAM)]
    for start, end in itertools.pairwise(edges):
        made += parser.feed(STREAM[start:end])
    assert made == EVENTS
    assert parser.pending > 0


def test_byte_by_byte_is_the_same() -> None:
    """One byte at a time gives the same events."""
    parser = SseParser()
    assert [event for byte in STREAM for event in parser.feed(bytes([byte]))] == EVENTS


def test_an_oversized_line_is_refused() -> None:
    """A line that never ends is refused at the limit, not kept."""
    parser = SseParser(1_000)
    with pytest.raises(ProtocolError) as caught:
        for _ in range(20):
            parser.feed(b"data: " + b"x" * 100)
    assert caught.value.code == "provider/too-large"


def test_an_oversized_event_of_short_lines_is_refused() -> None:
    """So is an event that is large by the number of its lines."""
    parser = SseParser(1_000)
    with pytest.raises(ProtocolError):
        for _ in range(200):
            parser.feed(b"data: x\n")


def test_the_limit_is_per_event() -> None:
    """Many small events may be larger together than one may be."""
    parser = SseParser(100)
    assert len([event for _ in range(1_000) for event in parser.feed(b"data: small\n\n")]) == 1_000
