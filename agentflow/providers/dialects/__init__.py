"""The dialects: requests to and answers from servers, byte by byte, and the traits of each server.

Read ``wire`` and ``decoding`` (shared by all), then one of ``anthropic_wire``, ``openai_chat_wire`` and
``openai_responses_wire``; ``traits`` describes a server, ``schema_translation`` writes JSON Schemas for it, ``wire_faults``
reads its errors.
"""
