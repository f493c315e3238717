"""Python stacks for work that recurses as deep as a program text is nested."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LEVELS = 30
"""Levels of nesting that are worked through on one stack."""


def on_fresh_stack(work: Callable[[], T]) -> T:
    """Run ``work`` in a thread of its own, whose stack is empty, and wait for it."""
    result: list[T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(work())
        except BaseException as error:  # noqa: BLE001 - carried over to the waiting thread, and raised there
            failure.append(error)

    thread = threading.Thread(target=run, name="agentflow-compile")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]
