"""Derives a schema from the parameters of a typed function, and the function's arguments from data."""

from __future__ import annotations

import builtins
import inspect
import re
from collections.abc import Callable
from copy import deepcopy
from enum import Enum
from functools import partial
from math import inf
from types import FunctionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, cast, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from agentflow.core.call.call import CallContext
from agentflow.core.data.errors import AgentflowError, ConfigurationError, clip
from agentflow.core.data.frozen import frozen
from agentflow.core.data.media import is_media
from agentflow.core.data.values import Symbol
from agentflow.core.data.walk import LEAVES, copied, in_slices
from agentflow.lib.schema.partial_json import data_of
from agentflow.lib.text.late_pattern import late_pattern
from agentflow.lib.text.suggest import did_you_mean

if TYPE_CHECKING:
    from docstring_parser import Docstring


_KEYWORDS = ("Keyword Args", "Keyword Arguments", "Other Parameters")
"""Titles of sections of parameters that docstring_parser does not know."""
_TITLE = late_pattern(rf"^(Args|Arguments|Parameters|Params|{'|'.join(_KEYWORDS)}):[ \t]*$", re.M)
_BULLET = late_pattern(r"^([ \t]+)[-*] (?=[*\w]+ *(?:\([^)\n]*\))? *:)", re.M)


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
    """The number of parameters described under valid names."""
    return sum([parameter.arg_name.strip(" *").isidentifier() for parameter in docstring.params])


def _google(text: str) -> Docstring:
    """A docstring in Google style with more titles, bullets, and a section on its first line, which loses its indentation."""
    from docstring_parser.google import DEFAULT_SECTIONS, GoogleParser, Section, SectionType

    titles = _TITLE.findall(text)
    first, _, rest = text.partition("\n")
    if _TITLE.match(first) and len(titles) == 1 and not rest.startswith((" ", "\t")):
        text = f"\n{first}\n{re.sub('^(?=.)', '    ', rest, flags=re.M)}"
    sections = [*DEFAULT_SECTIONS, *[Section(title, "param", SectionType.MULTIPLE) for title in _KEYWORDS]]
    return GoogleParser(sections).parse(_BULLET.sub(r"\1", text))


FunctionKind: TypeAlias = Literal["tool", "task", "workflow"]
"""The intended use of a function."""


class ToolInputError(AgentflowError):
    """Invalid arguments of a tool, task or workflow; the message names each one and its fault."""

    default_code = "tool/invalid-arguments"
    default_reason = "input_validation_failure"


class Signature:
    """The parameters of a typed function, as a schema for models and as arguments for Python; see :func:`signature_of`.

    Attributes: ``description``, ``schema`` the JSON Schema of the arguments object, ``returns`` the annotation of the return
    value, ``kinds`` those of its parameters, ``deps`` the type of the dependencies that it declares with
    ``CallContext[...]`` (None: none), ``memo`` values that other modules computed from it. It keeps no reference to the function.
    """

    __slots__ = (
        "_context", "_defaults", "_fields", "_label", "_open", "_validate", "deps", "description", "kinds", "memo", "returns",
        "schema",
    )  # fmt: skip

    def __init__(self, origin: _Origin) -> None:
        self.description = origin.description
        self.memo: dict[str, Any] = {}
        self._label = f"{origin.kind} '{origin.name}'"
        self._context: list[str] = []
        self.deps: Any = None
        self._open = False
        self.returns = origin.hints.get("return", inspect.Signature.empty)
        fields: dict[str, Any] = {}
        self._fields: list[tuple[str, str]] = []
        self.kinds: dict[str, Any] = {}
        self._defaults: dict[str, FieldInfo] = {}
        for index, parameter in enumerate(origin.parameters):
            if origin.kind != "tool" and parameter.name not in origin.hints:
                raise ConfigurationError(
                    f"{self._label}: its parameter '{parameter.name}' has no annotation",
                    code="python/annotation",
                    hint=f"annotate it: {parameter.name}: str",
                )
            hint = origin.hints.get(parameter.name, Any)
            context = context_in(hint)
            if parameter.name == "ctx" and parameter.name not in origin.hints:  # which says enough
                context = Any
            if context is not None:
                if origin.kind == "workflow":
                    from agentflow.lib.slips import no_context

                    raise no_context(self._label, parameter.name)
                self._context.append(parameter.name)
                self.deps = self.deps if context is Any else context
            elif parameter.kind is parameter.VAR_KEYWORD:
                self._open = True
            elif parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                raise ConfigurationError(
                    f"{self._label}: its parameter '{parameter.name}' is positional, arguments are given by name",
                    code="tool/signature",
                    hint="give every parameter a name that may be used as a keyword",
                )
            else:
                field = f"p{index}"
                self.kinds[parameter.name] = hint
                fields[field] = _field(parameter, hint, origin.documented.get(parameter.name))
                self._fields.append((field, parameter.name))
        model = _argument_model(origin.name, fields, self._open)
        for field, name in self._fields:  # a default that pydantic knows and Python does not
            info, own = model.model_fields[field], fields[field][1].default
            if own is PydanticUndefined and not info.is_required():
                self._defaults[name] = info
        self.schema = _schema(model, self._label)
        self._validate: Callable[[object], BaseModel] = TypeAdapter(model).validator.validate_python

    def bind(self, arguments: dict[str, Any], call: CallContext) -> dict[str, Any]:
        """The validated keyword arguments of the function, of plain ``arguments``. Raises ToolInputError.

        A list or object that a model wrote as JSON text is read where no text is wanted.
        """
        try:
            checked = self._validate(arguments)
        except ValidationError as error:
            try:
                checked = self._validate(_with_data(arguments, error))
            except ValidationError:
                raise self._refused(error, arguments) from None
        bound = self._values(checked)
        if self._open and checked.model_extra:
            bound.update(checked.model_extra)
        for name in self._context:
            bound[name] = call
        return bound

    @property
    def parameters(self) -> list[str]:
        """The names of the parameters that callers give, in order."""
        return [name for _, name in self._fields]

    def data(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """The validated arguments of a call from Python as JSON data, by name; models and dataclasses as dicts.

        Images, documents and sound are kept unchanged. Raises the errors of :meth:`given`.
        """
        checked = self._checked(arguments, named)
        values = self._values(checked)
        if LEAVES.issuperset(map(type, values.values())):
            return values
        media = {name: value for name, value in values.items() if is_media(value)}
        include = {field for field, name in self._fields if name in values and name not in media}
        return {**checked.model_dump(mode="json", by_alias=True, include=include), **media}

    def given(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """The validated arguments of a call from Python, by name.

        Raises TypeError for a call that the function does not allow, ToolInputError for values of wrong types.
        """
        return self._values(self._checked(arguments, named))

    def _checked(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> BaseModel:
        if arguments:
            named = {**self._by_name(arguments, named), **named}
        try:
            return self._validate(named)
        except ValidationError as error:
            raise self._refused(error, named) from None

    def completed(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments of a call from Python, with the value of ``= Field(3)``, which Python takes for the
        default."""
        if not self._defaults:
            return named
        missing = self._defaults.keys() - named.keys() - set(self.parameters[: len(arguments)])
        return {**named, **{name: self._defaults[name].get_default(call_default_factory=True) for name in missing}}

    def _values(self, checked: BaseModel) -> dict[str, Any]:
        """The validated arguments of the call, and the defaults that Python does not know, by name."""
        present, own = checked.model_fields_set, self._defaults
        return {name: getattr(checked, field) for field, name in self._fields if field in present or name in own}

    def _by_name(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        names = self.parameters
        if len(arguments) > len(names):
            raise TypeError(f"{self._label} takes {len(names)} arguments, and was given {len(arguments)}")
        by_name = dict(zip(names, arguments, strict=False))
        for name in named.keys() & by_name.keys():
            raise TypeError(f"{self._label} was given '{name}' twice")
        return by_name

    def _refused(self, error: ValidationError, arguments: dict[str, Any]) -> ToolInputError:
        parameters = [name for _, name in self._fields]
        problems: list[str] = []
        wrong: list[str] = []
        for problem in error.errors(include_url=False, include_context=False)[:20]:
            location = ".".join(str(part) for part in problem["loc"])
            wrong += [str(part) for part in problem["loc"][:1]]
            if problem["type"] == "missing":
                problems.append(f"'{location}' is missing")
            elif problem["type"] == "extra_forbidden":
                near = did_you_mean(location, parameters)
                problems.append(f"there is no parameter '{clip(location, 80)}'" + (f" ({near})" if near else ""))
            else:
                problems.append(f"{location}: {problem['msg']}, got {clip(repr(problem['input']), 120)}")
        hint = f"its parameters are {', '.join(parameters)}" if parameters else "it takes no arguments"
        if not self._label.startswith("tool"):
            from agentflow.lib.slips import misplaced

            hint = misplaced(self._label, [each for each in wrong if each not in parameters]) or hint
        return ToolInputError(
            f"{self._label} cannot take these arguments: {'; '.join(problems)}",
            hint=hint,
            details={
                "problems": problems,
                "parameters": parameters,
                "given": sorted(str(name) for name in arguments),
                "arguments": wrong,
            },
        )


def is_method(function: object) -> bool:
    """Whether a function is written in a class, to be called on an object: its first parameter is ``self``."""
    if type(function) is not FunctionType:
        return False
    home = function.__qualname__.rpartition(".")[0]
    if not home or home.endswith("<locals>"):
        return False
    code = inspect.unwrap(function).__code__
    return code.co_varnames[: code.co_argcount][:1] == ("self",)


def context_in(hint: Any) -> Any:
    """The type of the dependencies that an annotation declares if it is that of a call: Bank of ``CallContext[Bank]``, Any of
    ``CallContext``; None for any other annotation."""
    for each in (hint, *get_args(hint)):
        if each is CallContext:
            return Any
        if get_origin(each) is CallContext:
            return get_args(each)[0]
    return None


def _with_data(arguments: dict[str, Any], error: ValidationError) -> dict[str, Any]:
    """``arguments`` with the data in place of JSON text that ``error`` refuses."""
    changed = deepcopy(arguments)
    for problem in error.errors(include_url=False, include_context=False)[:20]:
        at: Any = changed
        for key in problem["loc"]:
            try:
                inner: Any = at[key]
            except (LookupError, TypeError):  # a part of a type in place of a key: the member of a union
                break
            if inner is problem["input"] and (data := data_of(inner)) is not None:
                at[key] = data
            at = inner
    return changed


@frozen
class _Origin:
    """All parts of a signature."""

    name: str
    kind: FunctionKind
    description: str
    hints: dict[str, Any]
    parameters: tuple[inspect.Parameter, ...]
    documented: dict[str, str]


_MOST_KEPT = 1_000
_kept: dict[Any, Signature] = {}
"""Cached signatures by their inputs: closures of one function share theirs."""
_LASTING = (*LEAVES, Enum, FieldInfo, type)
"""Types of defaults kept unchanged."""


def signature_of(
    function: Callable[..., Any], name: str, description: str | None = None, kind: FunctionKind = "tool"
) -> Signature:
    """The signature of a function without positional-only parameters and ``*args``.

    ``kind`` is its intended use: only a tool may have parameters without annotations. A parameter annotated ``CallContext``,
    or ``CallContext[Bank]`` with the type of the run's dependencies, is hidden from models and filled in; so is ``ctx`` without an annotation. ``Annotated[str, "text"]`` and ``Field(description=...)`` describe a parameter,
    before the docstring; ``= Field(3)`` has the default 3. The arguments of a ``functools.partial`` are hidden from models too, and stay. The result is cached for every function with the same
    annotations, defaults and documentation. Raises ConfigurationError if no JSON object can represent the arguments.
    """
    hints = hints_of(function, f"{kind} '{name}'")
    text = getattr(function, "__doc__", None) or inspect.getdoc(function)
    parameters = None if _is_bare(function) else parameters_of(function)
    key = _key(
        name, description, kind, text, hints, _bare_shape(function) if parameters is None else _shape(parameters)
    )
    kept = None if key is None else _kept.get(key)
    if kept is not None:
        return kept
    if parameters is None:
        parameters = parameters_of(function)
    about, documented = describe(function)
    about = about if description is None else description
    signature = Signature(_Origin(name, kind, about, hints, parameters, documented))
    if key is not None:
        if len(_kept) >= _MOST_KEPT:
            _kept.clear()
        _kept[key] = signature
    return signature


def parameters_of(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """The parameters given with a call, without those that a partial holds by keyword: a model sees no key and no user
    that the host has bound, nor gives another one."""
    held: set[str] = set()
    inner: Any = function
    while isinstance(inner, partial):
        held.update(cast("partial[Any]", inner).keywords)
        inner = cast("partial[Any]", inner).func
    return tuple([each for each in inspect.signature(function).parameters.values() if each.name not in held])


def _key(
    name: str,
    description: str | None,
    kind: str,
    text: str | None,
    hints: dict[str, Any],
    shape: Any,
) -> Any:
    """A key, equal for functions of the same signature; None if it cannot be determined.

    Values equal in Python may differ here, ``1`` and ``True`` or ``int | str`` and ``str | int``: their spelling
    counts too.
    """
    if shape is None:
        return None
    annotations = tuple([(each, hint, repr(hint)) for each, hint in hints.items()])
    key = (name, description, kind, text, annotations, shape)
    try:
        hash(key)
    except TypeError:  # an annotation that has no hash
        return None
    return key


def _is_bare(function: Callable[..., Any]) -> bool:
    """Whether the parameters of a function are those of its code, which is many times faster to read than ``inspect``."""
    return type(function) is FunctionType and not function.__dict__.keys() & {"__wrapped__", "__signature__"}


def _bare_shape(function: Any) -> Any:
    """Code and defaults of a function; None if a default may change."""
    named: dict[str, Any] = function.__kwdefaults__ or {}
    defaults: tuple[Any, ...] = (*(function.__defaults__ or ()), *named.values())
    if not all([isinstance(each, _LASTING) for each in defaults]):
        return None
    return (function.__code__, tuple(named), tuple([_default_key(each) for each in defaults]))


def _shape(parameters: tuple[inspect.Parameter, ...]) -> Any:
    """Names, kinds and defaults of parameters; None if a default may change."""
    if any([each.default is not each.empty and not isinstance(each.default, _LASTING) for each in parameters]):
        return None
    return tuple([(each.name, each.kind, *_default_key(each.default)) for each in parameters])


def _default_key(default: object) -> tuple[object, ...]:
    kind = type(default)
    return (kind, repr(default)) if kind in LEAVES else (None, _Same(default))


class _Same:
    """Equal for the same object only, which it keeps."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def _field(parameter: inspect.Parameter, hint: Any, documented: str | None) -> tuple[Any, FieldInfo]:
    """The field of a parameter: its annotation, with default and metadata.

    A ``Field(...)`` in place of the default is the last of the annotations. The description is that of a Field, else a text
    in ``Annotated``, else that of the docstring.
    """
    default: Any = parameter.default
    if isinstance(default, FieldInfo):
        hint, default = Annotated[hint, default], parameter.empty
    more: dict[str, Any] = {} if default is parameter.empty else {"default": default}
    beside = getattr(hint, "__metadata__", ())
    if not any([isinstance(each, FieldInfo) and each.description is not None for each in beside]):
        texts = [each for each in (_said(one) for one in beside) if each is not None]
        more["description"] = texts[-1] if texts else documented
    return hint, Field(alias=parameter.name, **more)


def _said(beside: object) -> str | None:
    """The description in an annotation: a text, or ``Doc("text")``."""
    text = beside if isinstance(beside, str) else getattr(beside, "documentation", None)
    return text if isinstance(text, str) else None


def annotated(function: Callable[..., Any]) -> dict[str, Any]:
    """The types that a function is annotated with, by parameter, and that of ``return``. Raises NameError."""
    target: Any = function
    while hasattr(target, "func"):
        target = target.func
    if not (inspect.isfunction(target) or inspect.ismethod(target)):
        target = type(target).__call__
    hints = _classes(target) if _is_bare(target) else None
    return get_type_hints(target, include_extras=True) if hints is None else hints


def _classes(function: Any) -> dict[str, Any] | None:
    """The types of a function annotated with classes, or names of classes, only; None where they have to be evaluated.

    Most tools are such functions, and ``get_type_hints`` compiles every name: half of the cost of a new closure.
    """
    if getattr(function, "__type_params__", ()):
        return None
    hints: dict[str, Any] = {}
    try:
        annotations: dict[str, Any] = function.__annotations__
    except NameError:  # evaluated only now, from Python 3.14 on
        return None
    for name, each in annotations.items():
        if isinstance(each, str):
            each = function.__globals__.get(each) or getattr(builtins, each, None)
        if not isinstance(each, type):
            return None
        hints[name] = each
    return hints


def hints_of(function: Callable[..., Any], label: str) -> dict[str, Any]:
    """:func:`annotated` types; ConfigurationError in place of NameError."""
    try:
        return annotated(function)
    except NameError as error:
        raise ConfigurationError(
            f"{label}: its annotations name something that is not defined: {error}",
            code="tool/signature",
            hint="annotations are evaluated in the function's module: import or define them there, not in a function or under TYPE_CHECKING",
        ) from error


def _argument_model(name: str, fields: dict[str, Any], open: bool) -> type[BaseModel]:
    config = ConfigDict(extra="allow" if open else "forbid", arbitrary_types_allowed=True, title=name)
    return create_model("Arguments", __config__=config, **fields)


def _schema(model: type[BaseModel], label: str) -> dict[str, Any]:
    try:
        schema = model.model_json_schema()
    except PydanticUserError as error:
        raise ConfigurationError(
            f"{label}: a parameter's type has no JSON Schema: {clip(str(error), 300)}",
            code="tool/signature",
            hint="use types JSON can carry (str, int, float, bool, list, dict, pydantic models), or annotate Any",
        ) from error
    schema.pop("title", None)
    schema.setdefault("properties", {})
    for field in cast(dict[str, dict[str, Any]], schema["properties"]).values():
        field.pop("title", None)
    return schema


def is_plain(arguments: dict[str, Any]) -> bool:
    """Whether there are only texts, numbers and the like among ``arguments``."""
    return LEAVES.issuperset(map(type, arguments.values()))


async def plain_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """``arguments``, as a copy with names in place of symbols if there are lists or dicts, which a tool may change."""
    return arguments if is_plain(arguments) else (await in_slices(copied(arguments, _without_symbols, deepest=inf)))[0]


def _without_symbols(value: Any) -> Any:
    """One step of copying data: a list or dict of the parts of one, a symbol's name, anything else unchanged."""
    if isinstance(value, Symbol):
        return value.name
    if isinstance(value, dict):
        fields = cast(dict[Any, Any], value)
        return {key.name if isinstance(key, Symbol) else key: item for key, item in fields.items()}
    return list(cast(list[Any], value)) if isinstance(value, list) else value
