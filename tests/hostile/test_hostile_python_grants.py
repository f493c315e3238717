"""What a Python text was not granted it cannot do, whichever form it writes: the twins of the S-expression cases."""

from __future__ import annotations

import pytest

from agentflow.core.data.errors import AgentflowError
from agentflow.core.events.effects import LogMessage
from tests.support.python_texts import run_text
from tests.support.world import World

PHASES = "lambda x, i: x, lambda x, p, i: x, lambda f, p, r, i: ('stop', f)"
UNGRANTED: dict[str, tuple[str, ...]] = {
    "shout(text='x')": (),
    "await shout(text='x')": (),
    "shout(**{'text': 'x'})": (),
    "outcome(shout(text='x'))": (),
    "f = shout\nf('x')": (),
    "pmap(shout, ['x'])": (),
    "map(shout, ['x'])": (),
    "sorted(['x'], key=shout)": (),
    "parallel(shout(text='x'))": (),
    "parallel(*[shout(text=x) for x in 'ab'])": (),
    "race(shout(text='x'))": (),
    "timeout(1, shout(text='x'))": (),
    "asyncio.wait_for(shout(text='x'), 1)": (),
    "retry(2, shout(text='x'))": (),
    "try:\n    shout(text='x')\nexcept:\n    pass": (),
    "try:\n    pass\nfinally:\n    shout(text='x')": (),
    "[shout(text=x) for x in 'a']": (),
    "any(shout(text=x) for x in 'a')": (),
    "lambda: shout(text='x')": (),
    "def f(x=1):\n    return shout(text='x')\n1": (),
    "f'{shout(text=1)}'": (),
    "assert shout(text='x')": (),
    "print(shout(text='x'))": (),
    "system.read_files(file_paths=['x'])": (),
    "ask('x')": (),
    "ask('x', output=int)": ("shout",),
    "ask_human('x')": ("shout",),
    "wait_for_signal('x')": ("shout", "ask-human"),
    "publish_state('k', 1)": ("shout", "ask-human"),
    "(lambda: ask_human('x', output=str))()": (),
    "remember('x')": (),
    "recall('x')": ("remember",),
    "get_context('x')": (),
    "solve('x')": (),
    "solve('x', allow=['shout'])": ("shout",),
    "call_workflow('w')": (),
    "call_workflow('w', x=1)": ("shout",),
    "@task\ndef t(a):\n    'x {{a}}'\nt('x')": ("shout",),
    "@task(file_paths=['/etc/passwd'])\ndef t(a):\n    'x {{a}}'\nt('x')": ("defatom",),
    "@task(settings={'temperature': 9})\ndef t(a):\n    'x {{a}}'\nt('x')": ("defatom",),
    "@task(priority=1000)\ndef t(a):\n    'x {{a}}'\nt('x')": ("defatom",),
    "@task(provider_tools=[{'type': 'web_search'}])\ndef t(a):\n    'x {{a}}'\nt('x')": ("defatom",),
    "eval_program('shout(text=1)')": ("shout",),
    "eval_program('shout(text=1)', allow=['shout'])": (),
    "eval_program(\"eval_program('shout(text=1)', allow=['shout'])\", allow=[])": ("shout",),
    "eval_program('ask_human(1)', allow=['ask-human'])": (),
    "eval_program('f()', bindings={'f': lambda: shout(text='x')}, allow=['shout'])": (),
    f"director_evaluator_loop(1, 0, lambda x, i: shout(text='x'), {PHASES})": (),
    f"director_evaluator_loop(1, 'x', 'shout', {PHASES})": (),
    f"director_evaluator_loop(1, 'x', shout, {PHASES})": (),
}


@pytest.mark.parametrize("text", UNGRANTED)
async def test_a_text_has_its_grants_and_no_more(text: str) -> None:
    """An error with a code, and no effect but messages of the log was reached."""
    world = World()
    with pytest.raises(AgentflowError) as caught:
        await run_text(f"print('first')\n{text}", world=world, allow=["broken", *UNGRANTED[text]])
    assert "/" in caught.value.code
    assert [each for each in world.effects if not isinstance(each, LogMessage)] == []
