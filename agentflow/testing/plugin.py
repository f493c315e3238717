"""The pytest plugin: the fixtures ``flow``, ``script``, ``cassette`` and ``no_network``.

pytest loads it through its entry point. Our modules are imported inside the fixtures, so that test runs without them do
not pay for the imports.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from agentflow.app import AgentFlow
    from agentflow.testing.cassette import Cassette
    from agentflow.testing.script import Script


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--record-cassettes``."""
    group = parser.getgroup("agentflow")
    group.addoption(
        "--record-cassettes",
        action="store_true",
        default=False,
        help="let the fixture `cassette` record real model calls anew, with a key and the network, instead of replaying",
    )


_FIXTURES = frozenset({"flow", "script", "cassette", "no_network"})


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test that uses one of our fixtures on a loop of its own, unless an async plugin already runs it."""
    test: Any = pyfuncitem.obj
    if not inspect.iscoroutinefunction(test) or not _FIXTURES.intersection(pyfuncitem.fixturenames):
        return None
    import asyncio

    wanted = inspect.signature(test).parameters
    arguments = {name: value for name, value in pyfuncitem.funcargs.items() if name in wanted}
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(test(**arguments))
    return True


@pytest.fixture
def no_network() -> Iterator[None]:
    """Forbid network use within a test: an attempt raises NetworkForbidden."""
    from agentflow.testing.network import forbid_network

    with forbid_network():
        yield


@pytest.fixture
def script() -> Script:
    """The replies of models in this test, by task; attached to the fixture ``flow`` only."""
    from agentflow.testing.script import Script

    return Script()


@pytest.fixture
def flow_options() -> Mapping[str, Any]:
    """Arguments for the flow of the fixture ``flow``; override it to add tools, a root or limits."""
    return {}


@pytest.fixture
def flow(flow_options: Mapping[str, Any], script: Script, no_network: None) -> Generator[AgentFlow]:
    """A flow whose model calls are answered by ``script``, without network."""
    import asyncio

    from agentflow.app import AgentFlow

    with script.answers(AgentFlow(**flow_options)) as flow:
        yield flow
    # Not set as the thread's current loop, which would replace the one of an asyncio plugin.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(flow.aclose())


@pytest.fixture
def cassette(request: pytest.FixtureRequest) -> Generator[Cassette]:
    """A cassette for this test, ``cassettes/MODULE/TEST.json`` beside its file; see ``--record-cassettes``."""
    from agentflow.core.data.errors import DataError
    from agentflow.testing.cassette import Cassette

    name = re.sub(r"[^\w.-]+", "-", request.node.name).strip("-")
    path = request.path.parent / "cassettes" / request.path.stem / f"{name}.json"
    recording = request.config.getoption("--record-cassettes")
    failed = request.session.testsfailed
    try:
        cassette = Cassette(path, "record" if recording else "replay")
    except DataError as error:
        pytest.fail(error.render(), pytrace=False)
    yield cassette
    if request.session.testsfailed == failed:
        cassette.save()
