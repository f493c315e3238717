"""JSON text of data of any size and shape, in parts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any, cast

from agentflow.core.data.walk import CHARACTERS_PER_STEP, LEAVES, Sizes, TooLong, Work, keyed, sizes, slices

AT_ONCE = 64_000
"""Characters encoded in one part; smaller data takes a call of the encoder."""
_AT_ONCE_DEPTH = 150
_GROUP = 512


def encoded(
    data: Any,
    *,
    indent: int | None = None,
    limit: int | None = None,
    finite: bool = False,
    compact: bool = False,
    at_once: int = AT_ONCE,
) -> Work[str]:
    """JSON ``data`` (dicts with text keys, lists, numbers, text, booleans, None) as text, ``at_once`` characters in a part.

    A ``compact`` text has no spaces between elements. Raises TooLong, before it is written out as far as that can be known,
    if the text has more than ``limit`` characters; TooDeep; and ValueError for integers of more than 4,300 digits and, with
    ``finite``, for infinite numbers and NaN.
    """
    out: list[str] = []
    yield from written(data, out.append, indent=indent, limit=limit, finite=finite, compact=compact, at_once=at_once)
    return "".join(out)


def written(
    data: Any,
    take: Callable[[str], object],
    *,
    indent: int | None = None,
    limit: int | None = None,
    finite: bool = False,
    compact: bool = False,
    at_once: int = AT_ONCE,
) -> Work[None]:
    """The work of :func:`encoded`, for a reader that wants no text as a whole: ``take`` gets the pieces, in order."""
    separators = (",", ":") if compact else None
    encoder = json.JSONEncoder(ensure_ascii=False, indent=indent, allow_nan=not finite, separators=separators)
    encode = encoder.encode
    if type(data) in LEAVES:
        if type(data) is not str or len(data) <= at_once:
            take(encode(data))
            return
        pieces = _text_pieces(data, at_once)
    else:
        measured = yield from sizes(data)
        size, depth, _ = measured[id(data)]
        if limit is not None and size > limit:
            raise TooLong(size)
        small = size <= at_once and depth <= _AT_ONCE_DEPTH
        pieces = iter((encode(data),)) if small else _pieces(data, measured, encoder, at_once)
    total = 0
    for piece in pieces:
        total += len(piece)
        if limit is not None and total > limit:
            raise TooLong(total)
        if len(piece) >= CHARACTERS_PER_STEP:
            yield len(piece) // CHARACTERS_PER_STEP
        take(piece)


def _pieces(data: Any, measured: Sizes, encoder: json.JSONEncoder, at_once: int) -> Iterator[str]:
    """The text in pieces of about the size encoded at once, with an explicit stack of open containers."""
    encode, indent, between, after_key = (
        encoder.encode,
        cast("int | None", encoder.indent),
        encoder.item_separator,
        encoder.key_separator,
    )
    stack: list[tuple[str, Iterator[tuple[str, Any]]]] = []

    def line(level: int) -> str:
        return "" if indent is None else "\n" + " " * (indent * level)

    def opened(item: Any) -> str:
        stack.append((line(len(stack)) + ("}" if keyed(item) else "]"), _groups(item, measured, at_once, after_key)))
        return "{" if keyed(item) else "["

    yield opened(data)
    first = True
    while stack:
        closer, groups = stack[-1]
        for key, group in groups:
            lead = "" if first else between
            first = False
            if type(group) is _Whole:
                text = encode(group.items)[1:-1]
                if indent is not None:
                    text = text[:-1].replace("\n", "\n" + " " * (indent * (len(stack) - 1)))
                yield lead + text
                continue
            yield lead + line(len(stack)) + key
            if type(group) is str:
                yield from _text_pieces(group, at_once)
                continue
            yield opened(group)
            first = True
            break
        else:
            stack.pop()
            yield closer
            first = False


def _text_pieces(text: str, at_once: int) -> Iterator[str]:
    """A long text as a literal."""
    yield '"'
    for start in range(0, len(text), at_once):
        yield json.dumps(text[start : start + at_once], ensure_ascii=False)[1:-1]
    yield '"'


class _Whole:
    """Some entries of a container encoded together."""

    __slots__ = ("items",)

    def __init__(self, items: Any) -> None:
        self.items = items


def _groups(item: Any, measured: Sizes, at_once: int, after_key: str) -> Iterator[tuple[str, Any]]:
    """The entries of a container: runs of small ones together, large ones by themselves with their key."""
    named = keyed(item)
    for keys in slices(list(item), _GROUP) if named else slices(item, _GROUP):
        run: list[Any] = []
        size = 0
        for key in keys:
            value = item[key] if named else key
            if type(value) not in LEAVES:
                room, depth, _ = measured[id(value)]
                alone = bool(value) and (room > at_once or depth > _AT_ONCE_DEPTH)
            else:
                room = len(value) if type(value) is str else 8
                alone = type(value) is str and room > at_once
            if alone:
                if run:
                    yield "", _whole(run, item)
                    run, size = [], 0
                yield (json.dumps(key, ensure_ascii=False) + after_key if named else ""), value
                continue
            run.append(key)
            size += room
            if size > at_once:
                yield "", _whole(run, item)
                run, size = [], 0
        if run:
            yield "", _whole(run, item)


def _whole(keys: list[Any], item: Any) -> _Whole:
    return _Whole({key: item[key] for key in keys} if keyed(item) else keys)
