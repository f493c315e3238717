"""The tables of the reference pages that come from the code: limits, settings, options, system tools, commands, vendors.

``python -m tests.docs.reference_pages`` writes them anew. A page has them between two comments, among its own text.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from types import MappingProxyType
from typing import Any

import typer

from agentflow.cli.main import app
from agentflow.core.data.limits import Limits
from agentflow.executors.tool_specs import SCHEMAS
from agentflow.file_rules import FILE_RULES
from agentflow.lib.option_table import CALLED, OPTIONS, options_of
from agentflow.settings import ENVIRONMENT, Settings
from tests.support.vendors import RULES, VENDORS
from tests.support.vendors.rules import rules_of

DOCS = Path(__file__).resolve().parents[2] / "docs"


_TYPES = {"list[str]": "list of texts", "dict": "table", "bool": "`true` or `false`", "int": "number", "str": "text",
          "Literal": "text or `false`"}  # fmt: skip
"""What a setting is called in a page, by what its annotation has in it; the first one counts."""


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _markdown(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


def _attribute_texts(kind: type) -> dict[str, str]:
    """The texts below the fields of a class."""
    (definition,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    texts: dict[str, str] = {}
    for before, after in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name) and isinstance(after, ast.Expr):
            assert isinstance(after.value, ast.Constant)
            texts[before.target.id] = _markdown(str(after.value.value))
    return texts


def _number(value: Any) -> str:
    return "" if value is None else f"{value:,}"


def limits() -> str:
    """Every limit with its default."""
    texts = _attribute_texts(Limits)
    rows = [(f"`{field.name}`", _number(field.default), texts[field.name]) for field in fields(Limits)]
    return _table(("limit", "default", "what is counted"), rows)


def settings() -> str:
    """Every key of a settings file, with its variable."""
    texts = _attribute_texts(Settings)
    variables = {key: variable for variable, key in ENVIRONMENT.items()}
    rows: list[tuple[str, ...]] = []
    for key, field in Settings.model_fields.items():
        default = "" if field.default in (None, "", [], {}) else f"`{str(field.default).lower()}`"
        kind = next(text for start, text in _TYPES.items() if start in str(field.annotation))
        name = f"`{key}`" + (
            " (not in a file)" if (rule := FILE_RULES[key]) is not None and rule.permits is None else ""
        )
        rows.append((name, kind, default, f"`{variables[key]}`" if key in variables else "", texts[key]))
    return _table(("key", "type", "default", "variable", "meaning"), rows)


def system_tools() -> str:
    """The seven system tools with their parameters."""
    parts: list[str] = []
    for name, entry in SCHEMAS.items():
        required = entry.schema["required"]
        rows = [
            (f"`{key}`", _schema_type(schema), "yes" if key in required else "", schema.get("description", ""))
            for key, schema in entry.schema["properties"].items()
        ]
        flags = {"Reads only.": entry.read_only, "Asks for approval.": entry.approval}
        said = " ".join([entry.description, *(text for text, is_so in flags.items() if is_so)])
        parts.append(f"## `{name}`\n\n{said}\n")
        if rows:
            parts.append(_table(("parameter", "type", "required", "meaning"), rows))
    return "\n".join(parts)


def _schema_type(schema: Mapping[str, Any]) -> str:
    items = schema.get("items")
    return f"list of {items['type']}s" if items else str(schema.get("type", "any"))


def commands() -> str:
    """Every command with its arguments and options."""
    return "\n".join(_command("agentflow", typer.main.get_command(app)))


def _command(name: str, command: Any) -> Iterable[str]:
    text = (command.help or "").split("\f")[0].replace("\b", "").strip()
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = [param for param in command.params if param.param_type_name == "option" and param.name != "help"]
    yield f"## `{' '.join([name, *(param.metavar or param.name.upper() for param in arguments)])}`\n\n{text}\n"
    rows = [(_option(param), _default(param), " ".join((param.help or "").split())) for param in options]
    if rows:
        yield _table(("option", "default", "meaning"), rows)
    for inner, subcommand in sorted(getattr(command, "commands", {}).items()):
        yield from _command(f"{name} {inner}", subcommand)


def _option(param: Any) -> str:
    names = ", ".join(f"`{each}`" for each in [*param.opts, *param.secondary_opts])
    return names if param.is_flag or not param.metavar else f"{names} {param.metavar}"


def _default(param: Any) -> str:
    value = param.default
    if value in (None, False, "", ()) or callable(value) or type(value).__name__ in ("UnsetType", "Sentinel"):
        return ""
    return f"`{str(getattr(value, 'value', value)).lower()}`"


def task_options() -> str:
    """Every option of a prompt in Python and in workflow texts, and where it may stand."""
    places = [place for place in CALLED if place != "tool"]
    rows = [
        (
            f"`{each.name}`" + (f" (`defatom`: `{each.atom}`)" if each.atom else ""),
            f"`{each.kind}`",
            ", ".join([f"`{CALLED[place]}`" for place in places if place in each.places]),
            each.effect,
        )
        for each in OPTIONS
        if each.places != ("tool",)
    ]
    return _table(("option", "type", "where", "effect"), rows)


def tool_options() -> str:
    """Every option of a tool."""
    return _table(("option", "effect"), [(f"`{each.name}`", each.effect) for each in options_of("tool")])


def vendors() -> str:
    """Every vendor that has a strict stand-in: where it is, how many rules it is checked by, and how old these are."""
    rows: list[tuple[str, ...]] = []
    for name, each in VENDORS.items():
        dates = sorted([rule.date for rule in rules_of(name)])
        rows.append(
            (each.title, f"`{each.route}:`", f"`{each.address}`", str(len(dates)), f"{dates[0]} to {dates[-1]}")
        )
    return _table(("vendor", "route", "address", "rules", "dates of the rules"), rows)


def rules() -> str:
    """Every rule of the strict fakes, with its source and the date of that."""
    rows: list[tuple[str, ...]] = []
    for rule in sorted(RULES, key=lambda each: each.group):
        without = [VENDORS[name].name for name in VENDORS if name not in rule.vendors]
        whose = "all" if not without else ", ".join(rule.vendors)
        rows.append((rule.group, rule.name, whose, f"[{rule.date}]({rule.source})"))
    return _table(("about", "rule", "vendors", "date and source"), rows)


TABLES: Mapping[tuple[str, str], Callable[[], str]] = MappingProxyType(
    {
        ("limits.md", "limits"): limits,
        ("settings.md", "settings"): settings,
        ("system-tools.md", "system tools"): system_tools,
        ("cli.md", "commands"): commands,
        ("python.md", "options of tasks"): task_options,
        ("tools.md", "options of tools"): tool_options,
        ("servers.md", "vendors"): vendors,
        ("servers.md", "rules of vendors"): rules,
    }
)


def between(text: str, name: str) -> tuple[int, int]:
    """Where in a page the table of this name begins and ends."""
    begin = f"<!-- {name} -->\n\n"
    start = text.index(begin) + len(begin)
    return start, text.index("\n<!-- end -->", start)


def main() -> None:
    """Write every table."""
    for (page, name), table in TABLES.items():
        path = DOCS / page
        text = path.read_text("utf-8")
        start, end = between(text, name)
        path.write_text(text[:start] + table() + text[end:], "utf-8")


if __name__ == "__main__":
    main()
