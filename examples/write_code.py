"""Writes a module, runs its tests, and writes it again until they pass: a director-evaluator loop. You need no key.

The model may not run anything. The program runs the tests, in the sandbox of commands, in its own directory.
"""

import asyncio
import os
import tempfile
from pathlib import Path

from agentflow import AgentFlow, Limits, ScriptedProvider

PROGRAM = """
(defatom write-module
  (params (wanted string) (tests string) (advice string))
  (instructions "Write the Python module roman.py: {{wanted}}

These tests must pass:
{{tests}}

{{advice}}
Answer with the code alone, without a fence."))

(define (try-out code)
  (value-of (system:write_file (file_path "roman.py") (content code) (overwrite true)))
  (system:execute_shell_command (command "python -m unittest -q test_roman") (timeout 60)))

(define (decide outcome advice code round)
  (log-message "round" round (if (failed? outcome) "fails" "passes"))
  (if (failed? outcome)
      (list 'continue (format "The last version was\\n{}\\nand failed:\\n{}" code (get-field (get-field outcome 'notes) 'stderr)))
      (list 'stop code)))

(director-evaluator-loop
  (max-iterations 5)
  (initial-director-input "")
  (director (lambda (advice round) advice))
  (executor (lambda (advice round)
              (value-of (write-module (wanted wanted) (tests tests) (advice advice)))))
  (evaluator (lambda (code advice round) (try-out code)))
  (controller decide))
"""

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
        flow.subscribe(lambda event: print(event.message) if event.type == "log" else None)
        print((await flow.run(PROGRAM, bindings={"wanted": WANTED, "tests": TESTS})).value)


with tempfile.TemporaryDirectory() as directory:
    Path(directory, "test_roman.py").write_text(TESTS)
    asyncio.run(main(directory))
