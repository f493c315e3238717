"""An untrusted program runs with exactly the grants that you give it. You need no key and no network."""

import asyncio

from agentflow import AgentFlow, LimitExceeded, Limits, SexpEvaluationError


async def convert(amount: float, currency: str) -> float:
    """Convert euros.

    Args:
        amount: In euros.
        currency: USD or GBP.
    """
    return round(amount * {"USD": 1.1, "GBP": 0.85}[currency], 2)


PROGRAMS = {
    "useful": '(map (lambda (c) (value-of (convert (amount 10.0) (currency c)))) (list "USD" "GBP"))',
    "curious": '(system:read_files (file_paths (list "secrets.txt")))',
    "hostile": "(define (spin n) (spin (+ n 1))) (spin 0)",
    "greedy": "(range 1000000000000)",
}


async def main() -> None:
    async with AgentFlow(tools=[convert], limits=Limits(steps=100_000, collection=10_000)) as flow:
        for name, program in PROGRAMS.items():
            try:
                print(f"{name}: {(await flow.run(program, allow=['convert'])).value}")
            except (SexpEvaluationError, LimitExceeded) as error:
                print(f"{name}: {error.code}: {error.message}")


asyncio.run(main())
