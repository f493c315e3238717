"""Runs of the scenarios that are known not to be right yet, with the reason. None is left but by a decision.

``python -m tests.vendors.figures --known`` writes the list as it is now.
"""

KNOWN: dict[str, str] = {}
