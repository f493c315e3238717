"""Messages for the author of a settings file: the arguments of a Python call, as TOML."""

from __future__ import annotations

import ast
import re
from typing import cast

from agentflow.core.data.errors import AgentflowError, ConfigurationError, clip
from agentflow.core.data.values import to_json
from agentflow.lib.text.python_trees import parsed

_CALL = re.compile(r"\b[A-Z]\w*(?=\()")
_NAMED = re.compile(r"\b(\w+)=(?=['\"\d\[{])")
_OPEN = re.compile(r"\b([a-z_]+)=(?=[,.;\s]|$)")


def to_toml(value: object) -> str:
    """A value as a settings file writes it."""
    match value:
        case bool():
            return "true" if value else "false"
        case list() | tuple():
            return f"[{', '.join(map(to_toml, cast('list[object]', value)))}]"
        case dict():
            fields = [f"{key} = {to_toml(each)}" for key, each in cast("dict[str, object]", value).items()]
            return f"{{ {', '.join(fields)} }}" if fields else "{}"
        case str():
            return to_json(value)
        case _:
            return str(value)


def in_toml(text: str) -> str:
    """A message with the fields of each Python call in it, ``Price(input=3)``, as TOML has them: ``input = 3``."""
    parts: list[str] = []
    at = 0
    for match in _CALL.finditer(text):
        end = _end(text, match.end())
        fields = None if match.start() < at else _fields(text[match.start() : end])
        if fields is not None:
            parts += [text[at : match.start()], ", ".join(fields)]
            at = end
    said = "".join([*parts, text[at:]]).replace(", or None", ", or left out")
    return _OPEN.sub(r"\1", _NAMED.sub(r"\1 = ", said))


def reworded(error: AgentflowError, where: str | None) -> ConfigurationError:
    """The error of a part about the entry ``where`` of a file, in TOML; None: of an argument in Python, unchanged.

    A hint about an option of calls is left out: no file has it.
    """
    if where is None:
        return ConfigurationError(error.message, code=error.code, hint=error.hint)
    hint = None if error.hint is None or "flow." in error.hint else in_toml(error.hint)
    said = in_toml(error.message)
    named = f"{said.partition(': ')[0]}: "  # the option, which the entry names too
    return ConfigurationError(
        where + said.removeprefix(named if where.endswith(named) else ""), code=error.code, hint=hint
    )


def fault_words(message: str, value: object) -> str:
    """The message of pydantic about a value, in TOML."""
    said = message.replace("True", "true").replace("False", "false").replace("a valid dictionary", "a table")
    return f"{said}, not {clip(to_toml(value), 80)}"


def _end(text: str, at: int) -> int:
    """The position of the bracket that closes the one at ``at``; the end of the text if it is not."""
    depth = 0
    for index in range(at, len(text)):
        depth += (text[index] in "([{") - (text[index] in ")]}")
        if not depth:
            return index + 1
    return len(text)


def _fields(call: str) -> list[str] | None:
    """The keywords of a call as TOML; None values are left out. None for any other text."""
    try:
        [statement] = parsed(call).body
        tree = statement.value if isinstance(statement, ast.Expr) else None
        if not isinstance(tree, ast.Call) or tree.args or not tree.keywords:
            return None
        named = {each.arg: ast.literal_eval(each.value) for each in tree.keywords}
    except (SyntaxError, ValueError):
        return None
    return [f"{name} = {'...' if value is None else to_toml(value)}" for name, value in named.items()]
