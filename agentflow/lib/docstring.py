"""Parses docstrings in Google, NumPy, Sphinx and epydoc style: descriptions of a function and its parameters."""

from __future__ import annotations

import inspect


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
    except (ParseError, IndexError):  # its reST parser meets a field without a name, ": :", with an IndexError
        return text, {}
    parameters = {
        name.strip().lstrip("*"): " ".join((parameter.description or "").split())
        for parameter in docstring.params
        for name in parameter.arg_name.split(",")
    }
    return (docstring.description or "").strip(), parameters
