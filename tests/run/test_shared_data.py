"""Data that shares its parts may leave a program anywhere: that ends in linear work or in a typed error, never for ever."""

from __future__ import annotations

from typing import Any

import pytest

from agentflow import AgentFlow, AgentflowError, ScriptedProvider
from tests.support.spending import spent

DAG = "(define (dag n x) (if (= n 0) x (dag (- n 1) (list x x)))) (define d (dag 60 1)) "
TASK = '(defatom t (params (x any)) (instructions "{{x}}")) '


async def take(value: Any = None) -> int:
    """Takes anything.

    Args:
        value: what it takes
    """
    return 1


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("(log-message d)", "limits/string"),
        ("(take (value d))", "limits/string"),
        (TASK + "(t (x d))", "limits/string"),
        ('(get_context (query "x") (inputs (dict "a" d)))', "limits/string"),
        ('(solve "goal" (inputs (dict "a" d)))', "limits/string"),
        ("(eval-program (list 'quote d))", "limits/source-bytes"),
        ("(to-json d)", "limits/string"),
        ('(format "{}" d)', "limits/string"),
        ('(eval-program \'(length x) (bindings (dict "x" d)))', 2),
        ("(equal? d (dag 60 1))", True),
        ("(member d (list 1 (dag 60 1) 2))", "list"),
        ("(length (list d d))", 2),
        ("(host d)", 2),
        ("(try (raise d) (catch (e) (length (get-field e 'value))))", 2),
        ("d", "list"),
    ],
)
async def test_shared_data_leaves_in_linear_work_or_not_at_all(text: str, outcome: Any) -> None:
    """Sixty doublings would write out to 10^18 parts; whatever they are given to, the run ends."""
    async with AgentFlow(provider=ScriptedProvider(["a"] * 9), tools=[take]) as flow:
        with spent() as spending:
            try:
                value = (await flow.run(DAG + text, bindings={"host": lambda x: len(x)})).value
                shown = "list" if isinstance(value, list) else value
            except AgentflowError as error:
                shown = error.code
    assert shown == outcome
    assert spending.seconds < 3
