"""Reading and compiling deep or large texts: a fresh thread stack, and a pause of the collector."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")

LEVELS = 30
"""Levels of nesting handled on one stack."""


@contextmanager
def collector_paused() -> Generator[None, None, None]:
    """Pause the cyclic collector while a large tree is built; traversing it repeatedly would take half the time."""
    paused = gc.isenabled()
    if paused:
        gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


def on_fresh_stack(work: Callable[[], T]) -> T:
    """Run ``work`` in a new thread, with an empty stack, and wait for it."""
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
