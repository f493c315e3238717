r"""File names as text, reversibly, though a name on a POSIX file system is any bytes.

A name that is UTF-8 is its own text. Every other byte is written ``\xNN`` (``caf\xe9.txt``), as Python and ``ls -b``
write it: plain ASCII, which JSON, SQLite, a terminal and a model carry unchanged, where the lone surrogates that
:func:`os.fsdecode` gives would be refused. A backslash of the name itself is written ``\x5c`` where it would read as
such an escape.
"""

from __future__ import annotations

import os
import re

_ENCODED = re.compile(r"[\udc80-\udcff]|\\(?=x(?:[89a-f][0-9a-f]|5c))")
_WRITTEN = re.compile(r"\\x([89a-f][0-9a-f]|5c)")


def name_text(name: str) -> str:
    """The text of ``name``, a file name or path as the :mod:`os` functions give it. The inverse is :func:`text_name`."""
    if name.isascii() and "\\" not in name:
        return name
    return _ENCODED.sub(lambda match: f"\\x{ord(match.group()) & 0xFF:02x}", name)


def text_name(text: str) -> str:
    """The name that ``text`` stands for, as the :mod:`os` functions take it.

    Escapes that spell UTF-8 give the same name as the characters themselves, so that rules on names see one spelling.
    """
    if "\\x" not in text:
        return text
    raw = _WRITTEN.sub(lambda match: chr(0xDC00 + int(match.group(1), 16)) if match.group(1) != "5c" else "\\", text)
    return os.fsdecode(os.fsencode(raw))
