"""A read-only dict and list: every attempt to change one raises an error that names the alternative."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

from agentflow.core.data.errors import DataError

K = TypeVar("K")
V = TypeVar("V")


class ReadOnlyDict(dict[K, V]):
    """A dict that only its owner changes, through :meth:`put` and :meth:`drop`. ``instead`` names the call for everyone
    else."""

    def __init__(self, what: str, instead: str) -> None:
        super().__init__()
        self._what = what
        self._instead = instead

    def put(self, key: K, value: V) -> None:
        """Set an entry: for the owner."""
        super().__setitem__(key, value)

    def drop(self, key: K) -> None:
        """Remove an entry, if there is one: for the owner."""
        super().pop(key, None)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy or pickle is a plain dict."""
        return dict, (dict(self),)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise _refusal(self._what, self._instead)

    __setitem__ = __delitem__ = __ior__ = update = setdefault = pop = popitem = clear = _refuse  # pyright: ignore


class ReadOnlyList(list[V]):
    """A list of ``items``. ``instead`` names the call that changes its contents."""

    def __init__(self, items: list[V], what: str, instead: str) -> None:
        super().__init__(items)
        self._what = what
        self._instead = instead

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy or pickle is a plain list."""
        return list, (list(self),)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise _refusal(self._what, self._instead)

    __setitem__ = __delitem__ = __iadd__ = __imul__ = _refuse  # pyright: ignore
    append = extend = insert = remove = pop = clear = sort = reverse = _refuse  # pyright: ignore


def _refusal(what: str, instead: str) -> DataError:
    return DataError(
        f"{what} can be read only: a change here would change nothing", code="data/read-only", hint=instead
    )
