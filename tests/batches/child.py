"""A process with a durable run whose calls are made in batches; it may kill itself at an operation of the store or of the vendor.

Its argument is JSON: ``url``, ``model``, ``root``, ``point`` the number of the operation (from 0; -1: none), ``after`` whether it was done.
It prints the value of the run, its cost, and the spending of the purse that pays for it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from agentflow import Allowance, Purses
from tests.batches.flows import asking, desk_of, opened
from tests.support.children import HANG_S

OPERATIONS = frozenset(
    [
        "hold",
        "close",
        "ask",
        "claim",
        "release",
        "take",
        "change",
        "end",
        "send",
        "find",
        "look",
        "cancel",
        "deliver",
        "answered",
        "waiting",
    ]
)


class Struck:
    """An object whose operations are counted; the process dies at one of them."""

    counted = 0

    def __init__(self, inner: Any, point: int, after: bool) -> None:
        self._inner, self._point, self._after = inner, point, after

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name not in OPERATIONS:
            return found

        async def operation(*args: Any, **options: Any) -> Any:
            at = Struck.counted
            Struck.counted += 1
            if at == self._point and not self._after:
                os.kill(os.getpid(), signal.SIGKILL)
            value = await found(*args, **options)
            if at == self._point and self._after:
                os.kill(os.getpid(), signal.SIGKILL)
            return value

        return operation


async def main(job: dict[str, Any]) -> None:
    purses = Purses({"user": Allowance(usd=1_000_000)})
    async with opened(job["url"], Path(job["root"]), job["model"], purses=purses) as flow:
        desk, point, after = desk_of(flow), job["point"], job["after"]
        store = desk._store
        store.batches = Struck(store.batches, point, after)
        store.purses = Struck(store.purses, point, after)
        purses._store = store.purses
        desk._api = lambda model, found=desk._api: Struck(found(model), point, after)
        run = await flow.start(asking(flow)(["a", "b", "c", "d"]), run_id="r1", purse="user")
        async with asyncio.timeout(HANG_S):
            result = await run.result()
        spent = (await purses.look("user")).spent.usd
    print(json.dumps([result.value, result.cost, spent]))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
