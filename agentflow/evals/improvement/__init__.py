"""Improvement: a search for better instructions and programs, by evaluations that pay only for the calls that a candidate changes.

``search`` is the loop: read it first. ``candidates`` has the forms of a program and the split of the cases, ``proposals`` the question for new instructions,
``improvement_report`` its result.
"""

from __future__ import annotations

from agentflow.evals.improvement.candidates import ProgramCandidate
from agentflow.evals.improvement.improvement_report import ImprovementReport

__all__ = ["ImprovementReport", "ProgramCandidate"]
