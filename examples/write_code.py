"""Writes a module, runs its tests, and writes it again until they pass. You need no key.

The model may not run anything. The program runs the tests, in the sandbox of commands, in its own directory.
"""

import asyncio
import os
import tempfile
from pathlib import Path

from agentflow import AgentFlow, Limits, ScriptedProvider

WANTED = "a function roman(n) that gives n from 1 to 3999 as a Roman numeral."
TESTS = """
import unittest
from roman import roman

class Roman(unittest.TestCase):
    def test_numerals(self):
        self.assertEqual([roman(n) for n in (1, 4, 9, 1990, 2024)], ["I", "IV", "IX", "MCMXC", "MMXXIV"])
"""

FIRST = """
def roman(n):
    return "M" * (n // 1000) + "C" * (n // 100 % 10) + "X" * (n // 10 % 10) + "I" * (n % 10)
"""
SECOND = """
NUMERALS = [(1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"),
            (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]

def roman(n):
    text = ""
    for value, numeral in NUMERALS:
        text += numeral * (n // value)
        n %= value
    return text
"""


def model(request):  # a stand-in that learns from the failure; AGENTFLOW_MODEL=... asks a real one
    return SECOND if "AssertionError" in request.messages[-1].text else FIRST


async def main(directory: str) -> None:
    real = "AGENTFLOW_MODEL" in os.environ
    limits = Limits(wall_s=300, model_calls=5)
    async with AgentFlow(provider=None if real else ScriptedProvider(model), root=directory, limits=limits) as flow:

        @flow.task
        async def write_module(wanted: str, tests: str, advice: str) -> str:
            """Write the Python module roman.py: {{wanted}}

            These tests must pass:
            {{tests}}

            {{advice}}
            Answer with the code alone, without a fence."""

        async def failures() -> str:
            """The output of the tests; empty if they pass."""
            command = {"command": "python -m unittest -q test_roman", "timeout": 60}
            result = await flow.executors.execute_shell_command(command)
            return result.notes["stderr"] if result.failed else ""

        @flow.workflow
        async def write_until_tests_pass(wanted: str, tests: str) -> str:
            advice = ""
            for number in range(5):
                code = await write_module(wanted, tests, advice)
                await flow.call_tool("system:write_file", file_path="roman.py", content=code, overwrite=True)
                output = await flow.step(failures)
                print("round", number, "fails" if output else "passes")
                if not output:
                    return code
                advice = f"The last version was\n{code}\nand failed:\n{output}"
            return "no version passed the tests"

        print(await write_until_tests_pass(WANTED, TESTS))


with tempfile.TemporaryDirectory() as directory:
    Path(directory, "test_roman.py").write_text(TESTS)
    asyncio.run(main(directory))
