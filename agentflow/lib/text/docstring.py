"""Parses docstrings in Google, NumPy, Sphinx and epydoc style: descriptions of a function and its parameters."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from docstring_parser import Docstring

_KEYWORDS = ("Keyword Args", "Keyword Arguments", "Other Parameters")
"""Titles of sections of parameters that docstring_parser does not know."""
_TITLE = re.compile(rf"^(Args|Arguments|Parameters|Params|{'|'.join(_KEYWORDS)}):[ \t]*$", re.M)
_BULLET = re.compile(r"^([ \t]+)[-*] (?=[*\w]+ *(?:\([^)\n]*\))? *:)", re.M)


def describe(function: object) -> tuple[str, dict[str, str]]:
    """``(description, {parameter: description})`` from a docstring; both empty without one.

    The description is the text before the first section; a parameter's description is one line.
    """
    text = inspect.getdoc(function)
    if not text:
        return "", {}
    from docstring_parser import ParseError, parse

    try:
        docstring = parse(text)
        if _TITLE.search(text) and _named(listed := _google(text)) > _named(docstring):
            docstring = listed
    except (ParseError, IndexError):  # its reST parser meets a field without a name, ": :", with an IndexError
        return text, {}
    parameters = {
        name.strip(" *"): " ".join((parameter.description or "").split())
        for parameter in docstring.params
        for name in parameter.arg_name.split(",")
    }
    return (docstring.description or "").strip(), parameters


def _named(docstring: Docstring) -> int:
    """How many parameters are described by names that parameters may have."""
    return sum([parameter.arg_name.strip(" *").isidentifier() for parameter in docstring.params])


def _google(text: str) -> Docstring:
    """A docstring in Google style with more titles, bullets, and a section on its first line, whose indentation is lost."""
    from docstring_parser.google import DEFAULT_SECTIONS, GoogleParser, Section, SectionType

    titles = _TITLE.findall(text)
    first, _, rest = text.partition("\n")
    if _TITLE.match(first) and len(titles) == 1 and not rest.startswith((" ", "\t")):
        text = f"\n{first}\n{re.sub('^(?=.)', '    ', rest, flags=re.M)}"
    sections = [*DEFAULT_SECTIONS, *[Section(title, "param", SectionType.MULTIPLE) for title in _KEYWORDS]]
    return GoogleParser(sections).parse(_BULLET.sub(r"\1", text))
