"""What workflow texts in Python find without an import, for editors and type checkers.

``from agentflow.workflow import task, pmap, fetch`` in a workflow text is read and means nothing: there is no such module when
it runs. Tasks and tools of the flow are imported from here under their own names, and are of any type.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, Literal, ParamSpec, TypeVar, overload

_A = TypeVar("_A")
_B = TypeVar("_B")
_P = ParamSpec("_P")
_T = TypeVar("_T")
_Effort = Literal["none", "low", "medium", "high", "max"]

class TaskError(Exception):
    """What a failed task or tool raises."""

    code: str
    message: str
    reason: str

class Outcome(Generic[_T]):
    """The result of a task or tool, which may have failed."""

    status: Literal["COMPLETE", "FAILED", "CONTINUATION"]
    content: str
    parsed_content: _T | None
    notes: Mapping[str, Any]

@overload
def task(function: Callable[_P, _T], /) -> Callable[_P, _T]: ...
@overload
def task(
    *,
    model: str = ...,
    system: str = ...,
    subtype: str = ...,
    description: str = ...,
    effort: _Effort = ...,
    reuse: str = ...,
    version: str = ...,
    prompt_cache: str = ...,
    max_turns: int = ...,
    max_output_tokens: int = ...,
    tools: Sequence[str] = ...,
    history: bool | Mapping[str, Any] = ...,
    context: Mapping[str, Any] = ...,
    settings: Mapping[str, Any] = ...,
    file_paths: Sequence[str] = ...,
    priority: int = ...,
    provider_tools: Sequence[Mapping[str, Any]] = ...,
) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Make a function a task: its body is the prompt, with ``{{parameter}}`` slots, and its result the type of the answer."""

@overload
def workflow(function: Callable[_P, _T], /) -> Callable[_P, _T]: ...
@overload
def workflow(*, allow: Sequence[str] = ...) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Declare ``main`` a workflow that can be saved and called; ``allow`` are the names that it may call."""

@overload
def parallel(*values: _T) -> list[_T]:
    """Runs its arguments at the same time."""

@overload
def parallel(*branches: Callable[[], _T], on: Literal["workers"]) -> list[_T]:
    """Has workers do each branch, as a run of its own."""

@overload
def pmap(f: Callable[[_A], _B], xs: Iterable[_A], /, limit: int | None = None) -> list[_B]:
    """Calls a function with each element at the same time, at most ``limit`` at once."""

@overload
def pmap(f: Callable[[_A], _B], xs: Iterable[_A], /, *, on: Literal["workers"]) -> list[_B]:
    """Has workers do each call, as a run of its own."""

@overload
def race(*values: _T) -> _T:
    """Runs its arguments at the same time; gives the first value, and stops the others."""

@overload
def race(*branches: Callable[[], _T], on: Literal["workers"]) -> _T:
    """Has workers do each branch; gives the first value, and stops the others."""

def timeout(seconds: float, value: _T, /) -> _T:
    """The value of its second argument, or TimeoutError after so many seconds."""

def retry(tries: int, value: _T, /) -> _T:
    """The value of its second argument, which is tried so often if it fails."""

def outcome(call: _T, /) -> Outcome[_T]:
    """The result of a task, tool or workflow, which is not raised when it failed."""

@overload
def ask(prompt: str, /) -> str: ...
@overload
def ask(prompt: str, /, *, output: type[_T]) -> _T:
    """Asks the model once; ``output`` is the type of the answer."""

@overload
def ask_human(question: str, /) -> Any: ...
@overload
def ask_human(question: str, /, output: type[_T]) -> _T:
    """Asks a person; ``output`` is the type of the answer."""

@overload
def wait_for_signal(name: str, /) -> Any: ...
@overload
def wait_for_signal(name: str, /, output: type[_T]) -> _T:
    """Waits for the next signal of this name; ``output`` is the type of its value."""

def publish_state(key: str, value: object, /) -> None:
    """Sets a key of the state of the run."""

def endorse(value: _T, reason: str, /) -> _T:
    """The value without its sources, as if the user had entered it: the approver takes responsibility."""

def sources(value: object, /) -> list[str]:
    """The sources of a value; empty for values from the program and its user."""

def solve(
    goal: str,
    /,
    *,
    allow: Sequence[str] = ...,
    max_rounds: int = 3,
    inputs: Mapping[str, Any] = ...,
    explore: bool = False,
) -> Outcome[Any]:
    """Lets a model write a program for the goal, checks it and runs it."""

def eval_program(
    text: str, /, *, bindings: Mapping[str, Any] = ..., allow: Sequence[str] = ..., max_steps: int = ...
) -> Any:
    """Checks and runs a text in Python."""

def director_evaluator_loop(
    max_iterations: int,
    first: Any,
    director: Callable[[Any, int], Any],
    executor: Callable[[Any, int], Any],
    evaluator: Callable[[Any, Any, int], Any],
    controller: Callable[[Any, Any, Any, int], tuple[str, Any]],
) -> Any:
    """Plans, executes, evaluates and decides, at most so often."""

def call_workflow(name: str, /, **parameters: Any) -> Any:
    """The value of a saved workflow; a failed one raises."""

def get_context(query: str, /, **options: Any) -> list[str]:
    """The paths of the files that a question is about, best first."""

def remember(text: str, /, *, key: str = ...) -> str:
    """Keeps a text for later runs."""

def recall(question: str, /, *, limit: int = ...) -> list[str]:
    """The remembered texts relevant to a question."""

def sleep(seconds: float, /) -> None:
    """Waits so many seconds."""

def now() -> float:
    """The time, in seconds since 1970 began (UTC)."""

@overload
def random() -> float: ...
@overload
def random(n: int, /) -> int:
    """A random float from 0 up to 1, or an integer from 0 up to n, without n."""

def uuid() -> str:
    """A name that nothing else has."""

def __getattr__(name: str) -> Any:  # pyright: ignore[reportIncompleteStub]
    """A task or tool of the flow."""
