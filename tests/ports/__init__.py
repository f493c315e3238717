"""Public examples of other frameworks, each written anew in our own words from what it does.

A port is the code that a user would write from the documentation; the fixtures ``flow`` and ``script`` stand for the application's
flow and its models (docs/testing.md). Its docstring names the example, and says the behaviour that holds here as it does there.
Files by subject: tools, approvals, dependencies, answers, ends. What a mechanism does in each corner is tested in ``tests/agents``.
"""
