"""The dialects: what is written to and read from a server, byte by byte, and what each server takes.

Read ``wire`` and ``decoding`` (shared by all), then one of ``anthropic_wire``, ``openai_chat_wire`` and ``openai_responses_wire``;
``traits`` says what a server takes, ``schema_translation`` writes JSON Schemas for it, ``faults`` reads its errors.
"""
