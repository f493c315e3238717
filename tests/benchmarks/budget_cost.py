"""What a budget costs: a reservation, an estimate as a conversation grows, and a thousand runs that have one at once.

python -m tests.benchmarks.budget_cost [--effort 0.1]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import time

from agentflow import AgentFlow, Limits, Price, ScriptedProvider
from agentflow.core.call.spending import PriceQuote
from agentflow.core.data.messages import Message, ModelRequest, user
from agentflow.core.data.session import Session
from agentflow.handler.token_estimate import Calibration, Estimator, size_of_message
from agentflow.run.reservation import RunFunds
from tests.benchmarks.loop_hold import Ticker

ASK = '(defatom ask (params (n integer)) (instructions "Answer {{n}}")) (pmap (lambda (n) (ask (n n))) (range 3))'


def reservation(times: int) -> float:
    """Microseconds of one reservation and its return, of tokens and money, in a part of a run."""
    purse = RunFunds(Limits(tokens=10**9, usd=10**6), RunFunds(Limits(tokens=10**9)))
    quote = PriceQuote(0.001, 0.00001)
    began = time.process_time()
    for _ in range(times):
        purse.reserve(1_000, 500, quote, "m").free()
    return (time.process_time() - began) / times * 1e6


def estimate(length: int, times: int) -> float:
    """Microseconds of the estimate of a request with one message more than the last, after ``length`` messages."""
    message = user("a message of some words, as they come " * 5)
    estimator = Estimator("m", Calibration())
    messages: tuple[Message, ...] = (message,) * length
    estimator.input_tokens(ModelRequest(messages))
    requests = [ModelRequest((*messages, *(message,) * (extra + 1))) for extra in range(times)]
    began = time.process_time()
    for request in requests:
        estimator.input_tokens(request)
    return (time.process_time() - began) / times * 1e6


def opened(length: int, times: int) -> float:
    """Microseconds of the size of what a prompt begins with, after ``length`` messages of its conversation."""
    session = Session()
    exchange = (user("a message of some words, as they come " * 5),) * 2
    for _ in range(length // 2):
        session.commit(exchange)
    session.size(size_of_message)
    began = time.process_time()
    for _ in range(times):
        session.commit(exchange)
        session.size(size_of_message)
    return (time.process_time() - began) / times * 1e6


async def crowd(count: int) -> tuple[float, float]:
    """Longest hold of the loop, in milliseconds of processor time less the collector's, by ``count`` runs at once, each with
    a budget of its own; and the collector's longest pause."""
    model = ScriptedProvider(lambda request: "a few words")
    prices = {"scripted:*": Price(1, 1)}
    async with AgentFlow(provider=model, limits=Limits(tokens=100_000, usd=1), prices=prices) as flow:
        await flow.run(ASK)
        ticker = Ticker()
        gc.callbacks.append(ticker.collected)
        ticking = asyncio.create_task(ticker.run())
        try:
            await asyncio.gather(*(flow.run(ASK) for _ in range(count)))
        finally:
            ticking.cancel()
            gc.callbacks.remove(ticker.collected)
    return max(ticker.holds) * 1e3, max(ticker.collections, default=0.0) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--effort", type=float, default=1.0)
    effort = parser.parse_args().effort
    times = max(10, int(200_000 * effort))
    print(f"a reservation and its return      {reservation(times):8.2f} us   (at most 3)")
    for length in (10, 1_000, 10_000):
        print(f"an estimate after {length:6,} messages {estimate(length, max(10, int(200 * effort))):8.2f} us")
    for length in (10, 1_000, 10_000):
        print(f"a prompt's first  {length:6,} messages {opened(length, max(10, int(200 * effort))):8.2f} us")
    count = max(10, int(1_000 * effort))
    hold, pause = asyncio.run(crowd(count))
    print(f"{count:,} runs at once: longest hold {hold:8.1f} ms of processor time   (at most 50)")
    print(f"{'':18}collector at most {pause:8.1f} ms")


if __name__ == "__main__":
    main()
