"""Worked examples of the language cards."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Example:
    """A worked example: its purpose, the program, and its value as program text in S-expressions."""

    about: str
    program: str
    value: str
