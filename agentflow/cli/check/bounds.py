"""``check --bounds``: upper bounds of programs' effects and cost, before they run."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from agentflow.cli.shared.common import Exit, UsageError, labelled, parse_bindings, read_program, write_json, write_out
from agentflow.cli.shared.made_flows import make_flow
from agentflow.cli.shared.mcp_names import servers_of_flow, stand_ins
from agentflow.cli.shared.options import FlowOptions
from agentflow.cli.shared.tool_files import tools_in_files
from agentflow.cli.shared.wrapping import say
from agentflow.core.data.errors import AgentflowError
from agentflow.core.data.frozen import frozen
from agentflow.core.data.source import Source
from agentflow.lang.bounds.polynomial import UNBOUNDED, Bound
from agentflow.lib.text.safe_text import clean
from agentflow.run.bounds.estimate import Bounds, named_sizes


@frozen
class Maxima:
    """The bounds that a program must keep to be accepted: ``model_calls``, and ``usd`` dollars. None: no limit."""

    model_calls: float | None = None
    usd: float | None = None


async def bounds_files(
    paths: Sequence[str],
    options: FlowOptions,
    *,
    bind: Sequence[str] = (),
    sizes: Sequence[str] = (),
    maxima: Maxima,
    tools: Sequence[str] = (),
    as_json: bool = False,
) -> int:
    """Print the bounds of programs, which may call ``tools`` too (``search=tools.py``). Returns exit code 3 if one exceeds a
    maximum, or might."""
    sized = parse_sizes(sizes)
    bindings = parse_bindings([each for each in bind if "=" in each])
    files: list[dict[str, Any]] = []
    seen: set[str] = set()
    code = Exit.OK
    async with contextlib.aclosing(make_flow(options)) as flow:  # making a flow starts nothing
        flow.tools.exchange((), stand_ins(servers_of_flow(flow)))
        for tool in tools_in_files(tools):
            flow.tools.add(tool)
        for path in paths:
            name, text = read_program(path)
            source = Source.of(name, text)
            bounds = await flow.bounds(source, bindings=bindings)
            seen |= bounds.sizes
            errors = past(bounds, source, sized, maxima)
            code = Exit.DIAGNOSTICS if errors else code
            if as_json:
                listed = [{"severity": "error", **each.to_dict()} for each in errors]
                files.append({"file": name, "bounds": bounds.to_dict(sized), "diagnostics": listed})
                continue
            write_out(clean(rendered(name, bounds, sized)))
            for error in errors:
                say(error.render(), sys.stdout)
    unused = sorted(named_sizes(sized).keys() - seen)
    if as_json:
        write_json({"ok": code == Exit.OK, "files": files, "unused_sizes": unused})
    elif unused:
        write_out(
            f"note: no bound depends on {', '.join(unused)}; they depend on {', '.join(sorted(seen)) or 'no size'}\n"
        )
    return code


def parse_sizes(texts: Sequence[str]) -> dict[str, float]:
    """Parse sizes such as ``files=50``. Raises UsageError."""
    sizes: dict[str, float] = {}
    for text in texts:
        name, _, number = text.partition("=")
        if not name or not number.isdecimal():
            raise UsageError(f"'{text}' is not a size", hint="write --size NAME=NUMBER, for example --size files=50")
        sizes[name] = int(number)
    return sizes


def past(bounds: Bounds, source: Source, sizes: Mapping[str, float], maxima: Maxima) -> list[AgentflowError]:
    """One error for each maximum that a program may exceed."""
    errors: list[AgentflowError] = []
    values = named_sizes(sizes)
    asked = (("model calls", bounds.model_calls, maxima.model_calls), ("dollars", bounds.usd, maxima.usd))
    for what, bound, most in asked:
        if most is None:
            continue
        missing = sorted(bound.sizes - values.keys())
        if bound == UNBOUNDED:
            first = bounds.unbounded[0] if bounds.unbounded else None
            reason = first.reason if first is not None else "; ".join(bounds.notes)
            errors.append(
                AgentflowError(
                    f"the {what} of this program have no bound: {reason}",
                    code="bounds/unbounded",
                    span=None if first is None else first.span,
                    hint="bound the loop by a counter, or by a list that gets shorter",
                )
            )
        elif missing:
            size = shlex.quote(f"{missing[0].removeprefix('len(').removesuffix(')')}=50")
            errors.append(
                AgentflowError(
                    f"the {what} of {source.name} depend on {', '.join(missing)}: at most {bound}",
                    code="bounds/size",
                    hint=f"state the size: --size {size}",
                )
            )
        else:
            value = bound.at(values) or 0
            if value > most:
                errors.append(
                    AgentflowError(
                        f"{source.name} may take {_number(value)} {what} ({bound}), but the limit is {_number(most)}",
                        code="bounds/over-budget",
                    )
                )
    return errors


def rendered(name: str, bounds: Bounds, sizes: Mapping[str, float]) -> str:
    """The bounds as a table in text form."""
    values = named_sizes(sizes)
    rows = [("model calls", _shown(bounds.model_calls, values)), ("tool calls", _shown(bounds.tool_calls, values))]
    rows.append(("at once", _shown(bounds.width, values)))
    tokens = [
        f"{'not known' if each == UNBOUNDED else _shown(each, values)} {way}"
        for each, way in ((bounds.input_tokens, "in"), (bounds.output_tokens, "out"))
    ]
    rows.append(("tokens", f"at most {', '.join(tokens)}"))
    money = bounds.usd
    rows.append(("money", "not known" if money == UNBOUNDED else f"at most ${_shown(money, values)}"))
    calls = [f"{key.partition(':')[2]} {_shown(bound, values)}" for key, bound in sorted(bounds.calls.items())]
    rows.append(("may call", ", ".join(calls) or "nothing"))
    rows += [(label, text) for label, text in bounds.authority.rows() if label != "tasks"]
    for each in bounds.by_data:
        rows.append(("by data", f"{each.line}:{each.column} data determines what is called here"))
    for each in bounds.unbounded:
        rows.append(("no bound", f"{each.span.line}:{each.span.column} {each.reason}"))
    rows += [("loose", each) for each in bounds.loose]
    rows += [("note", each) for each in bounds.notes]
    return f"{name}\n{labelled([(f'  {label}', text) for label, text in rows], 14)}"


def _shown(bound: Bound, sizes: Mapping[str, float]) -> str:
    """A bound, with its value if its sizes are known."""
    if bound == UNBOUNDED or not bound.sizes:
        return str(bound)
    if bound.sizes <= sizes.keys():
        return f"{bound} = {_number(bound.at(sizes) or 0)}"
    return str(bound)


def _number(value: float) -> str:
    return f"{value:,.10g}"
