"""Tasks and records: a function with a prompt as its body, and a class that lists fields."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, cast

from agentflow.core.data.errors import AgentflowError, SexpEvaluationError, cut
from agentflow.core.data.known_names import ASKED, DEFINE, READ_FILES, NameInfo, ParameterInfo, RecordInfo
from agentflow.core.data.values import to_json
from agentflow.lang.environment import SexpEnvironment
from agentflow.lang.kernel.nodes import Const, Env, Node, Op, Prim
from agentflow.lang.python.failure import CLASSES
from agentflow.lang.python.functions import DECORATORS, is_literal
from agentflow.lang.python.lowering import Lowering, statement
from agentflow.lang.python.names import all_parameters, parameters
from agentflow.lang.python.rows import code
from agentflow.lib.option_hints import hint_for
from agentflow.lib.option_table import FIELDS, options_of
from agentflow.lib.text.slots import SLOT, not_filled, not_used, single_braces, unused
from agentflow.lib.text.suggest import did_you_mean

OPTIONS = tuple([each.name for each in options_of("text")])
"""The options of ``@task``."""
_TEXTS = frozenset([each.name for each in options_of("text") if each.kind in ("str", "Effort", "PromptCache")])
_COUNTS = frozenset(("max_turns", "max_output_tokens"))
_DATA = frozenset(OPTIONS) - _TEXTS - _COUNTS - {"tools"}
_GUARDED = {"file_paths": READ_FILES, "priority": "", "settings": "", "provider_tools": ""}
"""Options that an untrusted program needs a grant for, as in S-expressions; none allows those without one."""
_RESERVED = {each: ParameterInfo(required=False) for each in ("files", "context", "history_config", "inputs")}
_BASES = frozenset(("BaseModel", "TypedDict", "NamedTuple"))
_ENUMS = frozenset(("Enum", "StrEnum", "IntEnum"))
_PLAIN: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "dict": {"type": "object"},
    "list": {"type": "array"},
    "None": {"type": "null"},
}
_CONVERTED = frozenset(("string", "integer", "number", "boolean"))
_LENGTHS: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "array": {"min_length": "minItems", "max_length": "maxItems"},
        "string": {"min_length": "minLength", "max_length": "maxLength"},
    }
)
"""The keywords of a schema for the lengths of a ``Field``."""
TYPES = "str, int, float, bool, list[T], dict[str, T], Literal[...], T | None, Annotated[str, 'text'], Annotated[list[T], Field(max_length=8)], and classes of this text"


class Unclear(Exception):
    """An annotation that is not a type here."""

    def __init__(self, node: ast.AST) -> None:
        self.node = node


def schema_of(g: Lowering, node: ast.expr) -> dict[str, Any]:
    """The JSON Schema of an annotation. Raises :class:`Unclear` for an annotation that is not a type here."""
    if isinstance(node, ast.Constant) and node.value is None:
        return {"type": "null"}
    if isinstance(node, ast.Name):
        plain = _PLAIN.get(node.id)
        schema = plain
        if plain is None and g.is_record(node.id):
            schema = g.schemas[node.id]
        if schema is not None:
            return dict(schema)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return {"anyOf": [schema_of(g, node.left), schema_of(g, node.right)]}
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        inside = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        kind = node.value.id
        if kind in ("list", "List") and len(inside) == 1:
            return {"type": "array", "items": schema_of(g, inside[0])}
        if kind in ("dict", "Dict") and len(inside) == 2:
            return {"type": "object", "additionalProperties": schema_of(g, inside[1])}
        if kind == "Optional" and len(inside) == 1:
            return {"anyOf": [schema_of(g, inside[0]), {"type": "null"}]}
        if kind == "Annotated" and len(inside) > 1:
            schema = schema_of(g, inside[0])
            for beside in inside[1:]:
                schema = _annotated(schema, beside)
            return schema
        if kind == "Literal":
            values = [cast(object, each.value) for each in inside if isinstance(each, ast.Constant)]
            if len(values) == len(inside) and all(isinstance(each, str | int | bool) for each in values):
                return {"enum": values}
    raise Unclear(node)


def _annotated(schema: dict[str, Any], node: ast.expr) -> dict[str, Any]:
    """A schema with its metadata: a text or ``Doc("text")``, ``MaxLen(8)``, ``MinLen(1)``, or a ``Field`` of
    ``description``, ``min_length`` and ``max_length``."""
    match node:
        case ast.Constant(value=str()):
            said = [("description", node)]
        case ast.Call(func=ast.Name(id="Doc"), args=[ast.Constant(value=str()) as text], keywords=[]):
            said = [("description", text)]
        case ast.Call(func=ast.Name(id="MinLen" | "MaxLen" as bound), args=[number], keywords=[]):
            said = [("min_length" if bound == "MinLen" else "max_length", number)]
        case ast.Call(func=ast.Name(id="Field"), args=[], keywords=keywords):
            said = [(each.arg or "", each.value) for each in keywords]
        case _:
            raise Unclear(node)
    words = _LENGTHS.get(schema.get("type", ""), {})
    for name, value in said:
        constant = isinstance(value, ast.Constant)
        if constant and name == "description" and isinstance(value.value, str):
            schema = {**schema, "description": inspect.cleandoc(value.value)}
        elif constant and name in words and type(value.value) is int and value.value >= 0:
            schema = {**schema, words[name]: value.value}
        else:
            raise Unclear(node)
    return schema


@statement(ast.ClassDef)
def record(g: Lowering, node: ast.ClassDef) -> list[Node]:
    """``class Review:`` with annotated fields: a schema, and a function that makes a dict."""
    for each in node.decorator_list:
        if _last_name(each.func if isinstance(each, ast.Call) else each) != "dataclass":
            g.refuse(
                each, "this decorator of a class", "a class lists its fields; @dataclass is read, and means nothing"
            )
    for each in node.keywords:
        g.refuse(each, "this of a class", "a class lists its fields")
    bases = [_last_name(each) for each in node.bases]
    if not _ENUMS.isdisjoint(bases):
        g.foreign.add(node.name)
        values = [each.value for each in node.body if isinstance(each, ast.Assign)]
        shown = ", ".join(ast.unparse(each) for each in values[:8]) or '"low", "high"'
        g.refuse(node.bases[0], "an enumeration", f"the type is Literal[{shown}]")
        return []
    if any(name in CLASSES or name == "BaseException" for name in bases):
        g.foreign.add(node.name)
        hint = f'raise {bases[0]}("the fault"), and except {bases[0]}'
        g.refuse(node.bases[0], "a class of errors", hint.replace("Exception", "ValueError"))
        return []
    for base, name in zip(node.bases, bases, strict=True):
        if name not in _BASES:
            g.refuse(base, "inheritance", "a class lists all its fields")
    if g.scope.parent is not None:
        g.refuse(node, "a class inside a function", "write it at the top of the text")
    fields: dict[str, ast.expr | None] = {}
    properties: dict[str, Any] = {}
    for each in node.body:
        if isinstance(each, ast.Pass) or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant)):
            continue
        if not isinstance(each, ast.AnnAssign) or not isinstance(each.target, ast.Name) or each.target.id[0] == "_":
            _refuse_in_class(g, node, each)
            continue
        if each.value is not None and not isinstance(each.value, ast.Constant | ast.List | ast.Dict):
            hint = f"write a literal, or nothing: {each.target.id}: {ast.unparse(each.annotation)}"
            g.refuse(each.value, "a computed default of a field", hint)
        fields[each.target.id] = each.value
        try:
            properties[each.target.id] = schema_of(g, each.annotation)
        except Unclear as unclear:
            no_type(g, unclear, "this is not a type of a field")
    if node.name in g.foreign:
        return []
    g.records[node.name] = fields
    g.schemas[node.name] = {
        "type": "object",
        "title": node.name,
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    info = RecordInfo(ast.unparse(node), g.schemas[node.name])
    args: list[Node] = [Env(None), Const(None, node.name), Const(None, info)]
    g.at_start[f"class {node.name}"] = Prim(g.span_at(node), declared, args)
    return []


@code("k")
def declared(env: SexpEnvironment, name: str, record: RecordInfo) -> None:
    """Make a class known to later texts in the environment."""
    env.define_record(name, record)


def _last_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _refuse_in_class(g: Lowering, node: ast.ClassDef, part: ast.stmt) -> None:
    """Collect the error for a part of a class that is not a field."""
    if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
        g.foreign_methods.add(part.name)
        rest = ", ".join(each.arg for each in all_parameters(part.args)[1:])
        value = node.name.lower()
        called = f"def {part.name}({value}{', ' if rest else ''}{rest})"
        hint = "fields are given by name or in order" if part.name == "__init__" else f"write a function: {called}"
        if part.name == "__init__":
            g.foreign.add(node.name)
        g.refuse(part, f"the method '{part.name}'", f"a class lists its fields; {hint}")
        return
    if isinstance(part, ast.Assign) and isinstance(part.targets[0], ast.Name):
        name = part.targets[0].id
        g.refuse(part, "a field without a type", f"write {name}: str = {cut(ast.unparse(part.value), 40)}")
        return
    g.refuse(part, "this in a class", "a class lists its fields: name: str")


def task(g: Lowering, node: ast.FunctionDef | ast.AsyncFunctionDef, decorator: ast.expr) -> list[Node]:
    """``@task`` above a function with a prompt as its body: defines the task in the environment when executed."""
    if g.scope.parent is not None:
        g.refuse(node, "a task inside a function", "write it at the top of the text")
        return []
    if g.allow is not None and DEFINE not in g.allow:
        hint = "call the tasks it was granted, or grant it 'defatom'"
        g.wrong(decorator, "name/not-granted", "this program may not define tasks", hint)
        return []
    before = len(g.errors)
    fields = _fields(g, node, decorator)
    if fields is None:
        return []
    definition: Any = fields
    g.own_infos[node.name] = NameInfo("task", {each: ParameterInfo() for each in fields["params"]}, _RESERVED)
    if g.port is not None and len(g.errors) == before:
        try:
            definition = g.port.prepare(fields)
        except AgentflowError as error:
            g.wrong(node, "defatom/invalid", f"the task '{node.name}': {error.message}", error.hint)
            return []
        g.own_infos[node.name] = definition.info
    g.templates.setdefault(node.name, []).append(definition)
    return [Op(g.span_at(node), "define-task", [definition, ()], [Env(None)])]


DECORATORS["task"] = task


def _fields(g: Lowering, node: ast.FunctionDef | ast.AsyncFunctionDef, decorator: ast.expr) -> dict[str, Any] | None:
    """The fields of the task's template."""
    first = node.body[0]
    prompt = first.value.value if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) else None
    if not isinstance(prompt, str) or not all(map(_is_no_code, node.body[1:])):
        hint = f'write """{_prompt_of(first)}"""'
        g.wrong(node, "defatom/instructions", f"the body of the task '{node.name}' is its prompt", hint)
        return None
    names = parameters(node.args)
    if node.args.vararg or node.args.kwarg or node.args.defaults or any(node.args.kw_defaults):
        g.refuse(node, "'*args', '**kwargs' and defaults of a task", "a task lists its parameters")
    _check_slots(g, node, first, names)
    _check_used(g, node, first, [prompt, *_texts_of(decorator)])
    fields: dict[str, Any] = {
        "name": node.name,
        "type": "atomic",
        "params": {each.arg: _parameter(g, each.annotation) for each in all_parameters(node.args)},
        "instructions": _dedented(prompt),
        "stateless": True,
    }
    if node.returns is not None:
        output = answer_schema(g, node.returns)
        if output is not None:
            fields["output_format"] = output
    for option in decorator.keywords if isinstance(decorator, ast.Call) else ():
        value = _option(g, option)
        if value is not None and option.arg is not None:
            fields[FIELDS.get(option.arg, option.arg)] = value
    if isinstance(decorator, ast.Call) and decorator.args:
        g.wrong(decorator, "defatom/option", "the options of a task are keywords", '@task(model="...")')
    return fields


def define_at_start(g: Lowering, node: ast.AST, fields: dict[str, Any]) -> str:
    """Make the text define a task of these fields before anything else; returns its name, which depends on its content."""
    content = to_json(fields)
    name = f"{ASKED}{blake2b(content.encode('utf-8', 'surrogatepass'), digest_size=4).hexdigest()}"
    if name not in g.at_start and g.kind(name) != "task":
        definition: Any = {"name": name, "stateless": True, **fields}
        definition = g.port.prepare(definition) if g.port is not None else definition
        g.templates.setdefault(name, []).append(definition)
        g.at_start[name] = Op(g.span_at(node), "define-task", [definition, ()], [Env(None)])
    return name


def answer_schema(g: Lowering, node: ast.expr, *, text: bool = False) -> dict[str, Any] | None:
    """The output format of an answer of a type; None for text, unless it must be stated."""
    if text and isinstance(node, ast.Name) and node.id == "str":
        return {"type": "json", "schema": {"type": "string"}}
    if (isinstance(node, ast.Name) and node.id == "str") or (isinstance(node, ast.Constant) and node.value is None):
        return None
    try:
        return {"type": "json", "schema": schema_of(g, node)}
    except Unclear as unclear:
        no_type(g, unclear, "this is not a type of an answer")
        return None


def no_type(g: Lowering, unclear: Unclear, what: str) -> None:
    """Collect the error for an annotation that is not a type, unless it names something already refused."""
    if not (isinstance(unclear.node, ast.Name) and unclear.node.id in g.foreign):
        g.wrong(unclear.node, "python/annotation", what, f"the types are {TYPES}")


def _check_slots(g: Lowering, node: ast.FunctionDef | ast.AsyncFunctionDef, prompt: ast.AST, names: list[str]) -> None:
    """Check that every ``{{x}}`` of the prompt is a parameter; the error has the position of the slot."""
    span = g.span_at(prompt)
    for slot in SLOT.finditer(span.text):
        if slot[1] not in names and "(" not in slot[1]:
            hint = did_you_mean(slot[1], names) or f"its parameters are {', '.join(names) or '(none)'}"
            g.wrong(prompt, "defatom/instructions", f"{{{{{slot[1]}}}}} is not a parameter of '{node.name}'", hint)
            g.errors[-1].span = g.source.span(span.start + slot.start(), span.start + slot.end())


def _texts_of(decorator: ast.expr) -> list[str]:
    return [
        each.value for each in ast.walk(decorator) if isinstance(each, ast.Constant) and isinstance(each.value, str)
    ]


def _prompt_of(node: ast.stmt) -> str:
    """The intended prompt of a body other than a text: for an f-string its text, with slots."""
    value = node.value if isinstance(node, ast.Expr | ast.Return) else None
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        return cut(value.value, 200)
    if not isinstance(value, ast.JoinedStr):
        return "..."
    parts = [
        each.value if isinstance(each, ast.Constant) else f"{{{{{ast.unparse(each.value)}}}}}"
        for each in value.values
        if isinstance(each, ast.FormattedValue) or (isinstance(each, ast.Constant) and isinstance(each.value, str))
    ]
    return cut("".join(map(str, parts)), 200)


def _check_used(g: Lowering, node: ast.FunctionDef | ast.AsyncFunctionDef, prompt: ast.AST, texts: list[str]) -> None:
    """Refuse ``{x}`` for a parameter, and doubt one that the prompt does not use: its value would never reach a model."""
    span = g.span_at(prompt)
    for each in unused(parameters(node.args), texts):
        single = single_braces(each, span.text)
        if single is not None:
            g.wrong(prompt, "defatom/place", *not_filled(node.name, each))
            g.errors[-1].span = g.source.span(span.start + single.start(), span.start + single.end())
        elif each not in _RESERVED:
            message, hint = not_used(node.name, each)
            g.doubts.append(SexpEvaluationError(message, code="defatom/instructions", span=span, hint=hint))


def _is_no_code(node: ast.stmt) -> bool:
    """Whether a statement is ``...``, accepted by pyright in a function without code, or ``raise NotImplementedError``,
    for mypy."""
    if isinstance(node, ast.Raise):
        return isinstance(node.exc, ast.Name) and node.exc.id == "NotImplementedError" and node.cause is None
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and node.value.value is ...


def _parameter(g: Lowering, annotation: ast.expr | None) -> dict[str, Any]:
    """A parameter of a task as a template declares it: its type, if a plain one, and its metadata."""
    match annotation:
        case ast.Subscript(value=ast.Name(id="Annotated"), slice=ast.Tuple(elts=[kind, *_])):
            try:
                schema = schema_of(g, annotation)
            except Unclear as unclear:
                no_type(g, unclear, "this is not a type of a parameter")
                return {}
            about = {"description": schema.pop("description")} if "description" in schema else {}
            plain = _parameter(g, kind)
            return {**plain, **about, **({"json_schema": schema} if schema != plain else {})}
        case ast.Name(id=name) if (plain := _PLAIN.get(name)) is not None and plain["type"] in _CONVERTED:
            return {"type": plain["type"]}
        case _:
            return {}


def _option(g: Lowering, option: ast.keyword) -> Any:
    name, node = option.arg, option.value
    if name not in OPTIONS:
        g.wrong(node, "defatom/option", f"'@task' has no option '{name}'", hint_for(name or "", "text"))
        return None
    value: object = node.value if isinstance(node, ast.Constant) else None
    if name in _TEXTS and isinstance(value, str):
        return value
    if name in _COUNTS and type(value) is int and value > 0:
        if name == "max_turns" and g.allow is not None and value > g.limits.turns:
            g.wrong(
                node, "defatom/option", f"a task may take {g.limits.turns} turns here", f"max_turns={g.limits.turns}"
            )
        return value
    if name == "tools" and isinstance(node, ast.List):
        texts = [each.value for each in node.elts if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if len(texts) == len(node.elts):
            return texts
    if name in _DATA and is_literal(node):
        return _data(g, name, node)
    shown = {**dict.fromkeys(_TEXTS, '"..."'), **dict.fromkeys(_COUNTS, "8"), "tools": '["search"]', "history": "True"}
    message = f"'{name}' is written out: a text, a number, or a list of names"
    g.wrong(node, "defatom/option", message, f"write @task({name}={shown.get(name or '', '...')})")
    return None


def _data(g: Lowering, name: str, node: ast.expr) -> Any:
    """The value of an option with data."""
    needed = _GUARDED.get(name)
    if needed is not None and g.allow is not None and needed not in g.allow:
        hint = f"leave it out, or grant the program '{needed}'" if needed else "leave it out"
        g.wrong(node, "name/not-granted", f"this program may not give its tasks '{name}'", hint)
        return None
    return ast.literal_eval(node)


def _dedented(prompt: str) -> str:
    lines = prompt.strip().splitlines()
    indents = [len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()]
    least = min(indents, default=0)
    return "\n".join([lines[0], *(line[least:] for line in lines[1:])]) if lines else ""


_SIMPLE = frozenset(("string", "integer", "number", "boolean"))
_USAGE = '@workflow(allow=["review"])'


def declaration(g: Lowering, *, undecorated: bool = False) -> dict[str, Any] | None:
    """The ``params``, ``allow`` and ``description`` of the workflow that a text declares; None if it declares none.

    With ``undecorated`` those of any text that has a ``main``. Records in ``g`` the mistakes of the declaration.
    """
    main = g.scopes.function("main")
    decorator = None if main is None else _decorator(main)
    if main is None or (decorator is None and not undecorated):
        return None
    g.suite([each for each in g.tree.body if isinstance(each, ast.ClassDef)])
    return {
        "params": _params(g, main.args),
        "allow": None if decorator is None else _allow(g, decorator),
        "description": " ".join((ast.get_docstring(main) or "").split()),
    }


def _decorator(main: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.expr | None:
    for each in main.decorator_list:
        called = each.func if isinstance(each, ast.Call) else each
        if isinstance(called, ast.Name) and called.id == "workflow":
            return each
    return None


def _params(g: Lowering, args: ast.arguments) -> dict[str, Any]:
    """The parameters of ``main`` in the form that templates use."""
    positional = [*args.posonlyargs, *args.args]
    defaults = [*[None] * (len(positional) - len(args.defaults)), *args.defaults, *args.kw_defaults]
    params: dict[str, Any] = {}
    for parameter, default in zip([*positional, *args.kwonlyargs], defaults, strict=True):
        fields = params[parameter.arg] = _type(g, parameter.annotation)
        if default is not None and is_literal(default):
            fields.update(required=False, default=ast.literal_eval(default))
    return params


def _type(g: Lowering, annotation: ast.expr | None) -> dict[str, Any]:
    if annotation is None or (isinstance(annotation, ast.Name) and annotation.id in ("Any", "object")):
        return {}
    try:
        schema = schema_of(g, annotation)
    except Unclear as unclear:
        no_type(g, unclear, "this is not a type of a workflow's parameter")
        return {}
    kind = schema.get("type")
    return {"type": kind} if schema == {"type": kind} and kind in _SIMPLE else {"json_schema": schema}


def _allow(g: Lowering, decorator: ast.expr) -> list[str] | None:
    """The names that the workflow may call; None for all that its caller may call."""
    if not isinstance(decorator, ast.Call):
        return None
    named = {each.arg: each.value for each in decorator.keywords}
    if decorator.args or named.keys() - {"allow"}:
        g.wrong(decorator, "form/arity", "'@workflow' takes the names that it may call", f"write {_USAGE}")
    listed = named.get("allow")
    if listed is None:
        return None
    names = listed.elts if isinstance(listed, ast.List | ast.Tuple) else [listed]
    texts = [each.value for each in names if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    if len(texts) != len(names) or not isinstance(listed, ast.List | ast.Tuple):
        g.wrong(listed, "form/clause", "'allow' is a list of names", f"write {_USAGE}")
    return texts


def workflow(g: Lowering, node: ast.FunctionDef | ast.AsyncFunctionDef, decorator: ast.expr) -> None:
    """``@workflow`` above a function, which stays a function; its arguments are for ``main`` of the text."""
    if isinstance(decorator, ast.Call) and (g.scope.parent is not None or node.name != "main"):
        g.refuse(decorator, "'@workflow(...)' here", "only main declares a workflow; write @workflow")
        return
    _allow(g, decorator)


DECORATORS["workflow"] = workflow
