"""Values of annotated types as data that can be stored, and back: one adapter per annotation for all inputs and outputs of
a durable run.

Values without a form in the encoding of programs (members of an Enum, dataclasses, models) are written by their annotation:
as JSON data by alias, else by field names, else with Python values inside. The first form that reads back as an equal value
is stored with its name, so a value is read as it was written.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import NoneType
from typing import Any, Final, Generic, TypeVar, cast, get_args, get_type_hints

import pydantic
from pydantic import BaseModel, PydanticUserError, Secret, SecretBytes, SecretStr, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError
from pydantic_core import PydanticSerializationError, SchemaValidator
from typing_extensions import is_typeddict

from agentflow.core.data.errors import ConfigurationError, JournalError, clip
from agentflow.core.data.known_names import OutputAdapter
from agentflow.core.data.models import validation_messages
from agentflow.core.data.results import TaskResult
from agentflow.core.data.walk import LEAVES
from agentflow.durable.values.codec import Codec, NotData, Shaped
from agentflow.lib.signature import annotated

R = TypeVar("R")

_FREE: Final = frozenset({Any, object, None, NoneType, TaskResult})
"""Annotations without information, or with types that the encoding of programs already preserves."""
_SECRETS = (SecretStr, SecretBytes, Secret)
_READS_NAMES: Final = tuple(map(int, pydantic.VERSION.split(".")[:2])) >= (2, 11)
"""Whether validators read data by the names of fields when asked to."""
_CODEC = Codec()


# By annotation, never pickle: reading must not run code (decision 41)
class DataAdapter(Generic[R]):
    """Writes values of the type ``kind`` as data, and reads them. ``secret`` names a secret type in it, or is None.
    ``checks``: data that needs no adapter is validated too, as for values with an unchecked annotation."""

    __slots__ = ("_adapter", "_named", "checks", "kind", "secret")

    def __init__(self, kind: Any, adapter: OutputAdapter, *, checks: bool) -> None:
        self.kind = kind
        self.checks = checks
        self.secret = None if kind is None else _secret_in(kind, set())
        self._adapter = adapter
        self._named: SchemaValidator | None = None

    def write(self, value: R) -> Any:
        """``value`` as a value of programs, or Shaped. Raises NotData for one that reading would not give again."""
        try:
            _CODEC.encode(value, strict=True)
        except NotData as what:
            return self._shaped(value, what)
        if not self.checks or type(value) is self.kind:
            return value
        return (
            value if self._gives(lambda: self.read(_CODEC.decode(_CODEC.encode(value))), value) else self._shaped(value)
        )

    def read(self, data: Any) -> R:
        """The value that :meth:`write` wrote as ``data``. Raises ValueError."""
        if type(data) is Shaped:
            return self._read(data.form, data.data)
        return data if not self.checks or type(data) is self.kind else self._adapter.validate_python(data)

    def _shaped(self, value: R, why: NotData | None = None) -> Shaped:
        for form in _FORMS if isinstance(self._adapter, TypeAdapter) else ("tagged",):
            try:
                data = _CODEC.decode(_CODEC.encode(self._dumped(form, value), strict=True))
            except (NotData, PydanticSerializationError, ValueError, TypeError, RecursionError):
                continue
            if self._gives(lambda form=form, data=data: self._read(form, data), value):
                return Shaped(form, data)
        said = f"{type(value).__module__}.{type(value).__qualname__}"
        raise NotData(f"a {said}, which its own data as {clip(_shown(self.kind), 120)} does not give again") from why

    def _dumped(self, form: str, value: Any) -> Any:
        if form == "tagged":
            return self._adapter.dump_python(value, mode="json", by_alias=True, warnings=False)
        adapter = cast("TypeAdapter[Any]", self._adapter)
        mode, by_alias = _FORMS[form]
        return adapter.dump_python(value, mode=mode, by_alias=by_alias, round_trip=True, warnings=False)

    def _read(self, form: str, data: Any) -> Any:
        if form == "tagged":
            return self._adapter.validate_python(data)
        adapter = cast("TypeAdapter[Any]", self._adapter)
        mode, by_alias = _FORMS[form]
        named: Any = {"by_alias": False, "by_name": True} if not by_alias and _READS_NAMES else {}
        reader = adapter if by_alias or _READS_NAMES else self._by_names(adapter)
        if mode == "json":
            try:
                return reader.validate_json(json.dumps(data), **named)
            except ValueError:  # JSON text has no form for halves of characters
                pass
        return reader.validate_python(data, **named)

    def _by_names(self, adapter: TypeAdapter[Any]) -> SchemaValidator:
        """A reader of data by field names, for versions of pydantic that need a separate schema for it."""
        if self._named is None:
            self._named = SchemaValidator(_without_aliases(adapter.core_schema))
        return self._named

    def _gives(self, read: Callable[[], Any], value: Any) -> bool:
        """Whether ``read()`` is ``value``, or the validated form of it."""
        try:
            read_back = read()
            return _is_same(read_back, value) or _is_same(read_back, self._adapter.validate_python(value))
        except (ValueError, TypeError, RecursionError):
            return False


_FORMS: Final[Mapping[str, tuple[Any, bool]]] = {
    "json": ("json", True),
    "names": ("json", False),
    "python": ("python", False),
}
"""How a value is dumped: the mode of pydantic, and whether by alias."""


@lru_cache(512)
def _kept(kind: Any, said: str, checks: bool) -> DataAdapter[Any] | None:
    return _made(kind, checks)


def _made(kind: Any, checks: bool) -> DataAdapter[Any] | None:
    try:
        return DataAdapter(kind, TypeAdapter(kind), checks=checks)
    except PydanticSchemaGenerationError:
        raise
    except PydanticUserError:
        return None


def adapter_for(kind: Any, *, checks: bool = True) -> DataAdapter[Any] | None:
    """The adapter of an annotation; None for one without information. Raises ConfigurationError (``durable/no-value``) for a type
    that pydantic cannot write and read."""
    try:
        if kind in _FREE:
            return None
        return _kept(kind, repr(kind), checks)
    except PydanticSchemaGenerationError:
        raise ConfigurationError(
            f"{clip(_shown(kind), 120)} is not a type whose values can be stored",
            code="durable/no-value",
            hint="annotate a type that pydantic writes and reads (models, dataclasses, built-in types), or pass the object to the run as a binding",
        ) from None
    except TypeError:  # an annotation without a hash
        return _made(kind, checks)


def adapter_of(function: Callable[..., Any], what: str, *, checks: bool) -> DataAdapter[Any] | None:
    """The adapter of a function's return annotation. Raises the errors of :func:`adapter_for`, before the function is
    called, and ConfigurationError (``durable/secret``) for a type that holds secrets; ``what`` names the function in it.
    """
    try:
        kind = annotated(function).get("return", Any)
    except (NameError, TypeError, AttributeError):  # of undeclared host code: it gives no information then
        return None
    if not checks and (kind in LEAVES or kind in (list, dict)):
        return None
    return checked(adapter_for, kind, what, checks)


def checked(
    make: Callable[..., DataAdapter[Any] | None], kind: Any, what: str, checks: bool
) -> DataAdapter[Any] | None:
    """An adapter of storable values. Raises the errors of :func:`adapter_of`."""
    try:
        adapter = make(kind, checks=checks)
    except ConfigurationError as error:
        raise ConfigurationError(f"{what}: {error.message}", code=error.code, hint=error.hint) from None
    if adapter is not None:
        refuse_secret(adapter, what)
    return adapter


def refuse_secret(adapter: DataAdapter[Any], what: str) -> None:
    """Raise ConfigurationError (``durable/secret``) if the return type of ``what`` holds secrets."""
    if adapter.secret is not None:
        raise ConfigurationError(
            f"{what} gives {clip(_shown(adapter.kind), 120)}, which holds a {adapter.secret}, and no secret is stored",
            code="durable/secret",
            hint="let it give a reference, such as the name of an environment variable, and read the secret where it is used",
        )


def unfit(what: str, path: str, error: ValueError) -> JournalError:
    """The error (``durable/mismatch``) for a record that its type takes no more."""
    problems = validation_messages(error) if isinstance(error, ValidationError) else [str(error)]
    return JournalError(
        f"the recorded value of {what} at {path} no longer matches its output class: {'; '.join(problems)}",
        code="durable/mismatch",
        hint="let the class accept the stored value, or run the effect again: agentflow runs fork RUN --at PATH",
        details={"path": path},
    )


def _secret_in(kind: Any, seen: set[int]) -> str | None:
    """The name of a type of secrets in an annotation, its arguments and the fields of its classes."""
    if id(kind) in seen:
        return None
    seen.add(id(kind))
    if isinstance(kind, type) and issubclass(kind, _SECRETS):
        return kind.__name__
    parts = [*get_args(kind), *_fields_of(kind)]
    return next((name for part in parts if (name := _secret_in(part, seen)) is not None), None)


def _fields_of(kind: Any) -> list[Any]:
    """The annotations of the fields of a class of data."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return [field.annotation for field in kind.model_fields.values()]
    shape = cast("Any", kind)
    if is_dataclass(shape) or is_typeddict(shape) or hasattr(shape, "_field_defaults"):
        with contextlib.suppress(NameError, TypeError):
            return list(get_type_hints(shape, include_extras=True).values())
    return []


def _without_aliases(schema: Any) -> Any:
    """A core schema of pydantic that reads every field by its own name."""
    if isinstance(schema, list):
        return [_without_aliases(each) for each in cast("list[Any]", schema)]
    if isinstance(schema, tuple):  # a choice of a union with its label
        return tuple([_without_aliases(each) for each in cast("tuple[Any, ...]", schema)])
    if not isinstance(schema, dict):
        return schema
    parts = cast("dict[str, Any]", schema)
    aliased = str(parts.get("type")).endswith("-field")
    return {
        key: each if key in _NO_SCHEMAS else _without_aliases(each)
        for key, each in parts.items()
        if not (aliased and key == "validation_alias")
    }


_NO_SCHEMAS: Final = frozenset({"cls", "default", "expected", "metadata", "serialization"})
"""Parts of a schema that hold values rather than schemas."""


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values are equal and of one type; values unequal to themselves, such as NaN, are compared by their
    representation."""
    if type(one) is not type(other):
        return False
    try:
        if bool(one == other):
            return True
    except Exception:  # noqa: BLE001 - comparing is code of the host's class
        return False
    if isinstance(one, float):
        return math.isnan(one) and math.isnan(other)
    if isinstance(one, dict):
        entries, others = cast("dict[Any, Any]", one), cast("dict[Any, Any]", other)
        return entries.keys() == others.keys() and all([_is_same(each, others[key]) for key, each in entries.items()])
    if isinstance(one, list | tuple):
        items, more = cast("list[Any]", one), cast("list[Any]", other)
        return len(items) == len(more) and all([_is_same(*pair) for pair in zip(items, more, strict=True)])
    if isinstance(one, BaseModel):
        return _is_same({**one.__dict__, "": one.model_extra}, {**other.__dict__, "": other.model_extra})
    if is_dataclass(one):
        return all([_is_same(getattr(one, each.name), getattr(other, each.name)) for each in fields(one)])
    is_nan = getattr(one, "is_nan", None)  # of a Decimal
    return is_nan is not None and is_nan() and other.is_nan() and str(one) == str(other)


def _shown(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)
