"""Python workflows on the command line, ``MODULE:FLOW.NAME``."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

from agentflow.cli.shared.common import UsageError, parse_bindings
from agentflow.cli.shared.python_files import is_workflow_text
from agentflow.lib.text.suggest import did_you_mean

if TYPE_CHECKING:
    from agentflow.app import AgentFlow
    from agentflow.flow.python_functions import Declared

_REFERENCE = re.compile(r"([^\s:()'\"]+):([A-Za-z_][\w.-]*)")
_SHOWN_FRAMES = 3
_HOW = "agentflow run MODULE:FLOW.WORKFLOW, for example agentflow run launch:flow.audit -b topic=x"


def is_reference(text: str) -> bool:
    """Whether ``text`` means a Python workflow: a module, a colon and a name, unless a file has that name."""
    return _REFERENCE.fullmatch(text) is not None and not Path(text).exists()


def names_function(file: str | None, expression: str | None, app: str | None) -> bool:
    """Whether the argument of ``run`` means a Python workflow: a reference, or a name in the flow of ``--app``."""
    if file is None or expression is not None:
        return False
    return is_reference(file) or (app is not None and file.isidentifier() and not Path(file).exists())


def import_module(module: str, label: str, hint: str) -> ModuleType:
    """Import a module of the user, searched from the working directory first.

    ``label`` begins the message of an error, ``hint`` is the hint for a name that cannot be a module's. Raises UsageError
    (``cli/app``) if it does not exist, is a workflow text, or raises an exception: then with the last lines of the user's
    own files that led there.
    """
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    if module.endswith(".py") or "/" in module:
        name = module.removesuffix(".py").strip("./").replace("/", ".")
        rest = label.partition(":")[2]
        raise UsageError(
            f"{label}: '{module}' is a file", code="cli/app", hint=f"name its module: {name}:{rest or 'flow'}"
        )
    if not all(part.isidentifier() for part in module.split(".")):
        raise UsageError(f"{label}: '{module}' is not the name of a module", code="cli/app", hint=hint)
    file = Path(*module.split(".")).with_suffix(".py")
    if file.is_file() and is_workflow_text(file):
        raise UsageError(
            f"{label}: {file} is a workflow text, which agentflow runs itself",
            code="cli/text",
            hint=f"agentflow run {shlex.quote(str(file))}",
        )
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise _failed(label, error) from error
        files = [each.stem for each in sorted(Path().glob("*.py"))]
        raise UsageError(
            f"{label}: there is no module '{error.name}' here", code="cli/app", hint=did_you_mean(module, files) or hint
        ) from None
    except Exception as error:
        raise _failed(label, error) from error


def _failed(label: str, error: Exception) -> UsageError:
    """The error for a module that raised one, with the lines of the user's files that led to it."""
    lines = [
        f"{os.path.relpath(each.filename)}:{each.lineno} {each.line}"
        for each in traceback.extract_tb(error.__traceback__)
        if "importlib" not in each.filename and not _is_ours(each.filename)
    ]
    if "running event loop" in str(error):
        lines = [*lines[-1:], "put asyncio.run(main()) under if __name__ == '__main__':"]
    said = f"{label}: importing it raised {type(error).__name__}: {error}"
    return UsageError(said, code="cli/app", hint="\n    ".join(lines[-_SHOWN_FRAMES:]) or None)


def _is_ours(file: str) -> bool:
    import agentflow

    return file.startswith(str(Path(agentflow.__file__).parent))


def function_named(flow: AgentFlow, name: str, label: str) -> Declared[..., Any]:
    """The workflow or task ``name`` that was declared with the flow. Raises UsageError, which names the nearest."""
    functions = {each.name: each for each in cast("Iterable[Any]", flow.engine.functions.values())}
    function = functions.get(name) or functions.get(name.replace("_", "-"))
    if function is None:
        listed = f"it has {', '.join(sorted(functions))}" if functions else f"@flow.workflow declares one: {_HOW}"
        raise UsageError(
            f"{label}: the flow has no workflow or task '{name}'",
            code="cli/app",
            hint=did_you_mean(name, functions) or listed,
        )
    return function


def resolve(reference: str, app: str | None) -> tuple[Declared[..., Any], str | None]:
    """The function that a reference means, and the flow that runs it, in the form of ``--app``; ``app`` is the option.

    In ``launch:flow.audit`` it is the workflow or task ``audit`` of the flow ``flow``; in ``launch:audit`` a function of the
    module, in the flow that declared it. One that was declared without a flow is run by the flow of ``--app``, else by the
    module's ``flow``, else by one made from the options. Raises UsageError (``cli/app``).
    """
    from agentflow.app import AgentFlow
    from agentflow.flow.python_functions import Declared

    module_name, _, path = reference.partition(":")
    module = import_module(module_name, reference, _HOW)
    first, *rest = path.split(".")
    flows = {name: each for name, each in vars(module).items() if isinstance(each, AgentFlow)}
    if first in flows:
        if not rest:
            names = sorted(each.name for each in cast("Iterable[Any]", flows[first].engine.functions.values()))
            hint = f"name one of its workflows: agentflow run {reference}.{names[0] if names else 'NAME'}"
            raise UsageError(f"{reference} is a flow, not a workflow", code="cli/app", hint=hint)
        return function_named(flows[first], ".".join(rest), reference), f"{module_name}:{first}"
    value: Any = module
    for name in (first, *rest):
        inner: Any = getattr(value, name, None)
        if inner is None:
            names = [*flows, *[each for each in dir(value) if isinstance(getattr(value, each, None), Declared)]]
            where = f"the module '{module_name}'" if value is module else f"'{path}'"
            hint = did_you_mean(name, names) or (f"it has {', '.join(names)}" if names else _HOW)
            raise UsageError(f"{reference}: '{name}' is not in {where}", code="cli/app", hint=hint)
        value = inner
    if not isinstance(value, Declared):
        hint = "write @flow.workflow above an async function of the module"
        raise UsageError(f"{reference}: '{path}' is not a workflow or task", code="cli/app", hint=hint)
    function = cast("Declared[..., Any]", value)
    owners = [name for name, each in flows.items() if each.engine.functions.get(function.reference) is function]
    owner = next(iter(owners), "flow" if "flow" in flows else None)
    return function, f"{module_name}:{owner}" if app is None and owner is not None else app


def arguments_for(function: Declared[..., Any], bindings: Sequence[str], reference: str) -> dict[str, Any]:
    """The arguments of ``-b name=value`` options: JSON if the parameter takes the JSON value, else the text.

    Raises UsageError, which names the parameters, for arguments that the function cannot take.
    """
    from agentflow.lib.signature import ToolInputError, signature_of

    inner = cast("Callable[..., Any]", cast(Any, function).__wrapped__)
    signature = signature_of(inner, function.name, kind="workflow")
    values = parse_bindings([*bindings])
    texts = {name: text for name, _, text in (each.partition("=") for each in bindings)}
    try:
        signature.given((), values)
        return values
    except ToolInputError as error:
        wrong = {name for name in cast("list[str]", error.details.get("arguments", ())) if name in values}
        refused = error
    values = {**values, **{name: texts[name] for name in wrong}}
    try:
        signature.given((), values)
    except ToolInputError:
        required = signature.schema.get("required", ())
        shown = [f"-b {name}=VALUE" if name in required else f"[-b {name}=VALUE]" for name in signature.parameters]
        hint = f"agentflow run {reference} {' '.join(shown)}".rstrip()
        raise UsageError(refused.message, code=refused.code, hint=hint) from None
    return values
