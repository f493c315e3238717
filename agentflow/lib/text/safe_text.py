"""Makes text from models, tools and files safe to show on a terminal.

Control sequences move the cursor, rewrite earlier lines, set the clipboard or answer as if typed, and bidirectional
overrides show code in another order than it has. :func:`clean` removes them for display, :func:`escape` makes them visible
where a person makes a decision.

Sequences follow ECMA-48 (CSI, OSC, DCS, SOS, PM, APC, two-character escapes), 7-bit and 8-bit forms.
"""

from __future__ import annotations

import re

from agentflow.lib.text.late_pattern import late_pattern

_BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_INVISIBLE = "\u00ad\u200b\u2060-\u2064\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"

_SEQUENCE = late_pattern(
    r"\r\n?"
    # strings end with ST or BEL; an unterminated one ends with its line, not with the text
    r"|(?:\x1b[PX\]^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"
    r"|\x1b[ -/]*[0-~]?"
    rf"|[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029{_BIDI}{_INVISIBLE}]"
)
_CONTROL = late_pattern(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff{_BIDI}{_INVISIBLE}]")
_ALL_CONTROL = late_pattern(rf"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff{_BIDI}{_INVISIBLE}]")


def clean(text: str) -> str:
    """``text`` without control sequences, other control characters, bidirectional overrides and invisible characters.

    Tabs and line ends stay; ``\\r\\n`` and ``\\r`` become ``\\n``, so that earlier text is not overwritten. Takes time
    linear in the length of the text.
    """
    if text.isascii() and text.isprintable():
        return text
    return _SEQUENCE.sub(_replacement, text)


def _replacement(match: re.Match[str]) -> str:
    return "\n" if match.group()[0] in "\r\u2028\u2029" else ""


def escape(text: str, *, lines: bool = False) -> str:
    """``text`` with every control character escaped (``\\x1b``, ``\\u202e``), for approvals and messages.

    With ``lines``, line ends and tabs stay unchanged.
    """
    if text.isascii() and text.isprintable():
        return text
    return (_CONTROL if lines else _ALL_CONTROL).sub(_written_out, text)


def _written_out(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x100:
        return {9: "\\t", 10: "\\n", 13: "\\r"}.get(code, f"\\x{code:02x}")
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shown(path: str) -> str:
    """``path`` for a message: quoted, control characters escaped, at most 200 characters."""
    text = path if len(path) <= 200 else f"{path[:120]}...{path[-60:]}"
    return repr(escape(text))
