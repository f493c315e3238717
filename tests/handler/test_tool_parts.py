"""Tools that give images and documents: what the model reads, and what the program has of it."""

from __future__ import annotations

from typing import Any

import pytest

from agentflow import AgentFlow, Limits, ScriptedProvider, TaskResult
from agentflow.core.data.messages import DocumentPart, ImagePart, TextPart, ToolResultPart
from agentflow.core.data.values import plain

CHART = ImagePart("image/png", "aW1n")
PAGE = DocumentPart("application/pdf", "cGRm", name="page.pdf")
CALL = {"tool_calls": [{"name": "look", "arguments": {}}]}
TASK = '(defatom ask (params) (instructions "go") (tools look))'


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        (CHART, (CHART,)),
        ([TextPart("see:"), CHART, PAGE], (TextPart("see:"), CHART, PAGE)),
        ({"status": "COMPLETE", "content": "a chart", "notes": {"parts": [plain(CHART)]}}, (CHART,)),
    ],
)
async def test_a_tools_parts_reach_the_model(given: Any, parts: tuple[Any, ...]) -> None:
    """Parts, lists of them, and their JSON in a result's notes; text stands for them in the content."""

    async def look() -> Any:
        """Look."""
        return given

    model = ScriptedProvider([CALL, "done"])
    async with AgentFlow(provider=model, tools=[look]) as flow:
        await flow.run(f"{TASK} (ask)")
        result = (await flow.run("(look)")).value
    (answer,) = model.requests[1].messages[-1].parts
    assert isinstance(answer, ToolResultPart) and answer.parts == parts and answer.text == result.content
    assert result.notes["parts"] == parts and result.content
    assert plain(result)["notes"]["parts"][0]["type"] == parts[0].type


def test_parts_as_text() -> None:
    """Where a dialect takes text alone: texts as they are, a line for each image and document."""
    result = TaskResult.of([TextPart("see:"), CHART, PAGE, ImagePart(url="https://x.org/a.png")])
    assert result.content == "see:\n[image: image/png]\n[document: page.pdf]\n[image: https://x.org/a.png]"
    assert result.parsed_content is None
    assert TaskResult.of([TextPart("a"), "b"]).parsed_content is not None  # a list of anything else is data
    assert TaskResult("COMPLETE", notes={"parts": ["left", "right"]}).notes["parts"] == ["left", "right"]


async def test_long_text_among_parts_is_cut_and_images_stay() -> None:
    """The limit on a tool result's characters holds for the text of its parts."""

    async def look() -> Any:
        """Look."""
        return [TextPart("x" * 10_000), CHART]

    model = ScriptedProvider([CALL, "done"])
    async with AgentFlow(provider=model, tools=[look], limits=Limits(output_chars=1_000)) as flow:
        await flow.run(f"{TASK} (ask)")
    (answer,) = model.requests[1].messages[-1].parts
    assert isinstance(answer, ToolResultPart)
    text, image = answer.parts
    assert isinstance(text, TextPart) and len(text.text) < 1_100 and image == CHART and text.text == answer.text
