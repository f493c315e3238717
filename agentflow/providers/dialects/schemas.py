"""A JSON Schema in the form that a server takes: the same, weaker, or none.

What a server does not take is told to the model in a description, or in the prompt where the server takes no form of the schema.
Nothing gets less strict by that: answers are checked against the whole schema when they come in, and arguments before a tool runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentflow.core.data.frozen import frozen
from agentflow.core.data.messages import ModelRequest, Notice, ToolSpec
from agentflow.core.data.values import to_json
from agentflow.providers.dialects.schema_subsets import Place, subsets_of
from agentflow.providers.dialects.schema_translation import Translation, Unsaid
from agentflow.providers.dialects.traits import OutputForm, SchemaRules
from agentflow.providers.dialects.wire import Wire

_MOST_KEPT = 1_000


@frozen
class SchemaForm:
    """A schema as a server takes it.

    ``schema`` is None where it takes no form; ``strict`` says that it enforces the form; ``whole`` that the form says all that
    the schema does. ``rest`` is what a tool's description has to say besides.
    """

    schema: dict[str, Any] | None
    strict: bool = False
    whole: bool = False
    rest: str = ""


_NO_FORM = SchemaForm(None)
_GOES_ON = "(... goes on in the system text)"
"""The end of a description that is longer than a server takes."""


def _form(schema: Mapping[str, Any], wire: Wire, part: Place) -> SchemaForm:
    """The form of ``schema`` that the server of ``wire`` takes in ``part``, made once for each schema.

    Forms are kept by the identity of their schema, which is kept with them so that no other gets its identity.
    """
    forms, rules = wire.forms, wire.traits.schemas
    key = (id(schema), rules, part)
    kept = forms.get(key)
    if kept is not None:
        return kept[1]
    form = translated(schema, rules, part)
    if len(forms) >= _MOST_KEPT:
        forms.clear()
    forms[key] = (schema, form)
    return form


def translated(schema: Mapping[str, Any], rules: SchemaRules, part: Place) -> SchemaForm:
    """The form of ``schema`` that servers of ``rules`` take in ``part``. Raises nothing."""
    for subset in subsets_of(rules, part):
        work = Translation(schema, subset, tool=part != "output")
        try:
            result = work.run()
        except Unsaid:
            continue
        return SchemaForm(result, subset.strict, work.whole, work.rest)
    if part == "output":
        return _NO_FORM
    return SchemaForm({"type": "object", "properties": {}}, rest=_to_meet(schema))


def output_form(request: ModelRequest, wire: Wire, streaming: bool) -> tuple[OutputForm, SchemaForm | None]:
    """How the form of an answer is asked for, and the form of its schema where that is sent.

    The schema of an answer of which the server takes no form is said in the prompt, with a notice.
    """
    if request.output_schema is None:
        return "prompt", None
    how = wire.traits.output_form(tools=bool(request.tools or request.provider_tools), streaming=streaming)
    if how != "json_schema":
        return how, None
    form = _form(request.output_schema, wire, "output")
    if form.schema is not None:
        return how, form
    told = (
        "the schema of the answer stands in the prompt, because the server takes no form of it; the answer is checked"
    )
    wire.notices.append(Notice(told, code="provider/schema-in-prompt", details={"model": request.model}))
    return "prompt", None


def system_text(request: ModelRequest, wire: Wire, form: SchemaForm | None) -> str:
    """The system text of a request, with the schema of the answer if nothing else says it, and with what of the descriptions
    of tools their own field has no room for."""
    said = [request.system] if request.system else []
    if form is None and request.output_schema is not None and not wire.in_prompt:
        said.append(
            "Answer with one JSON value that meets this JSON Schema, and nothing else: no prose, no code fence.\n"
            f"<schema>{to_json(request.output_schema)}</schema>"
        )
    if wire.traits.description_limit:
        for tool in request.tools:
            _, _, rest = _described(tool, wire)
            said += [f"More on the tool {wire.to_wire(tool.name)}: {rest}"] if rest else []
    return "\n\n".join(said)


def tool_form(tool: ToolSpec, wire: Wire) -> tuple[str, SchemaForm]:
    """The description of a tool as it is sent, and the form of its schema."""
    description, form, _ = _described(tool, wire)
    return description, form


def _described(tool: ToolSpec, wire: Wire) -> tuple[str, SchemaForm, str]:
    """The description of a tool, with what its schema does not say; the schema's form; and the rest of a description that is
    too long for the server."""
    form = _form(tool.input_schema, wire, "strict tool" if tool.strict else "tool")
    whole = f"{tool.description}\n\n{form.rest}".lstrip() if form.rest else tool.description
    limit = wire.traits.description_limit
    if not limit or len(whole) <= limit:
        return whole, form, ""
    room = limit - len(_GOES_ON)
    at = whole.rfind(" ", 0, room) + 1 or room
    return whole[:at] + _GOES_ON, form, whole[at:]


def _to_meet(schema: Mapping[str, Any]) -> str:
    return f"The arguments must meet this JSON Schema: {to_json(schema)}"


__all__ = ["SchemaForm", "output_form", "system_text", "tool_form", "translated"]
