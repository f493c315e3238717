"""Runs of the scenarios that are known not to be right yet, with the reason. None is left but by a decision.

``python -m tests.vendors.figures --known`` writes the list as it is now.
"""

KNOWN: dict[str, str] = {
    "thinking budget: anthropic": "the thinking budget is below max_tokens",
    "thinking budget: bedrock": "the thinking budget is below max_tokens",
    "limits and efforts: openai": "at least 16 output tokens",
    "limits and efforts: azure": "at least 16 output tokens",
    "a picture of a tool: openai-chat": "AssertionError",
    "a picture of a tool: azure-chat": "AssertionError",
    "a picture of a tool: gemini": "AssertionError",
    "a picture of a tool: openrouter": "AssertionError",
    "a picture of a tool: mistral": "AssertionError",
    "a picture of a tool: vllm": "AssertionError",
}
