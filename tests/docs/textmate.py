"""The TextMate grammar of the language, from the tables that the compiler and the Pygments lexer use.

``python -m tests.docs.textmate`` writes it into the extension for VS Code.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from agentflow.lang.builtins import PRIMITIVES
from agentflow.lang.forms import FORMS
from agentflow.lang.tokens import CONSTANTS

FILE = Path(__file__).resolve().parents[2] / "docs/editors/vscode/syntaxes/agentflow.tmLanguage.json"
_CHARACTER = r"""[^\s()\[\]{}"'`,;]"""
_NUMBER = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"


def _word(pattern: str) -> str:
    """A pattern that matches whole words only."""
    return f"(?<!{_CHARACTER})(?:{pattern})(?!{_CHARACTER})"


def _any_of(names: Iterable[str]) -> str:
    return _word("|".join(sorted(map(re.escape, names), key=lambda each: (-len(each), each))))


def grammar() -> dict[str, Any]:
    """The grammar."""
    patterns = [
        {"name": "comment.line.semicolon.agentflow", "match": ";.*$"},
        {"include": "#block"},
        {"name": "comment.block.datum.agentflow", "match": "#;"},
        {
            "name": "string.quoted.double.agentflow",
            "begin": '"',
            "end": '"',
            "patterns": [
                {"name": "constant.character.escape.agentflow", "match": r"\\(?:u[0-9a-fA-F]{4}|.)"},
                {"name": "variable.other.slot.agentflow", "match": r"\{\{[^{}]*\}\}"},
            ],
        },
        {"name": "constant.numeric.agentflow", "match": _word(_NUMBER)},
        {"name": "constant.language.agentflow", "match": _any_of(CONSTANTS)},
        {"name": "keyword.control.agentflow", "match": _any_of(FORMS)},
        {"name": "support.function.agentflow", "match": _any_of(PRIMITIVES)},
        {"name": "entity.name.function.agentflow", "match": rf"(?<=[(\[]){_CHARACTER}+"},
        {"name": "keyword.operator.quote.agentflow", "match": ",@|['`,]"},
        {"name": "variable.other.agentflow", "match": f"{_CHARACTER}+"},
    ]
    return {
        "$schema": "https://raw.githubusercontent.com/martinring/tmlanguage/master/tmlanguage.json",
        "name": "agentflow",
        "scopeName": "source.agentflow",
        "fileTypes": ["sexp"],
        "patterns": patterns,
        "repository": {
            "block": {
                "name": "comment.block.agentflow",
                "begin": r"#\|",
                "end": r"\|#",
                "patterns": [{"include": "#block"}],
            }
        },
    }


def text() -> str:
    """The file."""
    return json.dumps(grammar(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
