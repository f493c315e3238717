"""Writes, judges and rewrites a text until its judge is satisfied, at most three times.

agentflow run examples/texts/improve_text.py -b topic="tides" --model anthropic:claude-sonnet-5-5
"""

from agentflow.workflow import task


class Verdict:
    grade: int
    advice: str


@task
def draft(topic: str, advice: str) -> str:
    """Write three sentences about {{topic}}. {{advice}}"""
    ...


@task
def judge(text: str) -> Verdict:
    """Grade this text from 0 to 10 and say what would make it better.

    {{text}}
    """
    ...


def main(topic: str):
    advice = "Be plain."
    text = ""
    for _ in range(3):
        text = draft(topic, advice)
        verdict = judge(text)
        if verdict.grade >= 8:
            break
        advice = verdict.advice
    return text
