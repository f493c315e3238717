"""Primitives that return a new value each time, and those that wait. Each is an effect of the run."""

from __future__ import annotations

from typing import Any

from agentflow.core.data.known_names import ASK, PUBLISH, SIGNAL
from agentflow.core.data.labels import box, stripped
from agentflow.core.data.mapping_records import is_dict
from agentflow.core.data.walk import Work, exact
from agentflow.core.events.effects import LONGEST_SIGNAL_NAME, AskHuman, AwaitSignal, Draw, Endorse, Publish, Timer
from agentflow.lang.abi import Runtime
from agentflow.lang.builtins.registry import primitive, wrong_type
from agentflow.lang.calling import begun

_LONGEST_S = 1e9
_LARGEST = 1 << 60


@primitive("now", usage="(now)", arity=(0, 0), is_async=True, size="number")
async def now(rt: Runtime, d: int) -> float:
    """The time, in seconds since the beginning of 1970 (UTC), as a float."""
    return await rt.perform(Draw("now"), None)


@primitive("random", usage="(random [n])", arity=(0, 1), is_async=True, size="number", takes="i")
async def random(rt: Runtime, d: int, *below: Any) -> float | int:
    """A random float from 0 up to, but not including, 1; with `n`, a random integer from 0 up to, but not including, n."""
    limit = below[0] if below else None
    if below and (type(limit) is not int or not 1 <= limit <= _LARGEST):
        wrong_type("random", 1, "a positive integer of at most 60 bits", limit)
    return await rt.perform(Draw("random", limit), None)


@primitive("uuid", usage="(uuid)", arity=(0, 0), is_async=True, size="text")
async def uuid(rt: Runtime, d: int) -> str:
    """A random UUID (version 4) as text: a globally unique name."""
    return await rt.perform(Draw("uuid"), None)


@primitive("sleep", usage="(sleep seconds)", arity=(1, 1), is_async=True, size="nil", takes="x")
async def sleep(rt: Runtime, d: int, seconds: Any) -> list[Any]:
    """Waits for that time and returns nil. A durable run that only waits takes no memory meanwhile."""
    seconds = exact(seconds)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < _LONGEST_S:
        wrong_type("sleep", 1, "seconds, as a number that is not negative,", seconds)
    return await rt.perform(Timer(float(seconds)), None)


@primitive(
    ASK,
    usage='(ask-human "question" [schema])',
    arity=(1, 2),
    is_async=True,
    size="data",
    takes="sd",
    asks=True,
)
async def ask_human(rt: Runtime, d: int, question: Any, *schema: Any) -> Any:
    """Asks a person and returns the answer, which has to match `schema`, a JSON Schema as a dict or fields by name.

    A durable run waits for the answer outside memory. The host chooses the person; without one, it is an error. A program
    run with `allow` needs the grant `ask-human`.
    """
    if not isinstance(question, str):
        wrong_type("ask-human", 1, "the question, as a string,", question)
    return await rt.perform(AskHuman(question, _schema("ask-human", schema)), None)


@primitive(
    SIGNAL,
    usage='(wait-for-signal "name" [schema])',
    arity=(1, 2),
    is_async=True,
    size="data",
    takes="sd",
    asks=True,
)
async def wait_for_signal(rt: Runtime, d: int, name: Any, *schema: Any) -> Any:
    """Waits for the next signal of this name and returns its value, which matches `schema`, a JSON Schema as a dict or fields by name.

    The host sends signals; one that was sent before is received at once, and each is received once. `timeout` ends the wait, and a
    durable run waits outside memory. A program run with `allow` needs the grant `wait-for-signal`.
    """
    if not isinstance(name, str) or not 1 <= len(name) <= LONGEST_SIGNAL_NAME:
        wrong_type(SIGNAL, 1, f"a name, as a string of 1 to {LONGEST_SIGNAL_NAME} characters,", name)
    return await rt.perform(AwaitSignal(name, _schema(SIGNAL, schema)), None)


def _schema(who: str, optional: tuple[Any, ...]) -> Any:
    """The schema of a value from outside; None for text, without one. Raises ``type/argument``."""
    if not optional:
        return None
    if not is_dict(optional[0]):
        wrong_type(who, 2, "a JSON Schema, as a dict,", optional[0], hint='for example {"type" "boolean"}')
    return optional[0]


@primitive(
    PUBLISH,
    usage='(publish-state "key" value)',
    arity=(2, 2),
    is_async=True,
    size="nil",
    takes="s.",
    asks=True,
)
async def publish_state(rt: Runtime, d: int, key: Any, value: Any) -> list[Any]:
    """Sets a key of the state of the run, which the host and its pages show while the run works and after it, and returns nil.

    The value is data; the last one counts. A program run with `allow` needs the grant `publish-state`.
    """
    if not isinstance(key, str):
        wrong_type(PUBLISH, 1, "the key, as a string,", key)
    return await rt.perform(Publish((key, value)), None)


@primitive("sources", usage="(sources value)", arity=(1, 1), sliced=True, size="data", flow="k")
def sources(rt: Runtime, value: Any) -> Any:
    """The sources of a value and its parts, as a sorted list of texts such as `"web"` and `"tool:fetch"`.

    The list is empty for values of the program and its user, and for every value in a flow without a policy. The list
    has these sources itself, since a source may contain a file name that another party chose.
    """
    return begun(_sources(value))


def _sources(value: Any) -> Work[Any]:
    _, origins = yield from stripped(value)
    return box(sorted(origins), origins)


@primitive("endorse", usage='(endorse value "reason")', arity=(2, 2), is_async=True, size="same", flow="k")
async def endorse(rt: Runtime, d: int, value: Any, reason: Any) -> Any:
    """The value without its sources, as if the user had entered it: the approver takes responsibility.

    Nothing else removes the sources of a value. The endorsement is recorded with its reason. A program run with `allow`
    needs the grant `endorse`, and each of its endorsements an approval.
    """
    await rt.perform(Endorse((value, reason)), None)
    return (await rt.work(stripped(value)))[0]
