"""The pytest plugin: the fixtures ``flow``, ``script``, ``evaluate``, ``cassette`` and ``no_network``, and the mark ``cases``.

pytest loads it through its entry point. Our modules are imported inside the fixtures, so that test runs without them do
not pay for the imports.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Any, cast

import pytest

if TYPE_CHECKING:
    from agentflow.app import AgentFlow
    from agentflow.evals.cases import Case
    from agentflow.evals.report import EvaluationReport
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


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark ``cases``."""
    told = "cases(source): the cases of an evaluation, a file next to the test or a list; an argument 'case' gets one after the other"
    config.addinivalue_line("markers", told)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Call a test with the argument ``case`` once for each case of its mark."""
    if "case" in metafunc.fixturenames and metafunc.definition.get_closest_marker("cases") is not None:
        listed = _marked(metafunc.definition)
        metafunc.parametrize("case", listed, ids=[each.name for each in listed])


def _marked(item: Any) -> list[Case]:
    """The cases of the mark of a test."""
    from agentflow.evals.case_files import named, read_cases

    mark: pytest.Mark | None = item.get_closest_marker("cases")
    if mark is None or len(mark.args) != 1:
        pytest.fail(f"{item.name} has no cases: mark it @pytest.mark.cases('cases.jsonl'), or give them", pytrace=False)
    source = mark.args[0]
    return read_cases(item.path.parent / source) if isinstance(source, str) else named(read_cases(source))


_FIXTURES = frozenset({"flow", "script", "evaluate", "cassette", "no_network"})


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
    """A flow with model calls answered by ``script``, without network."""
    import asyncio

    from agentflow.app import AgentFlow

    with script.answers(AgentFlow(**flow_options)) as flow:
        yield flow
    # Not set as the thread's current loop, which would replace the one of an asyncio plugin.
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(flow.aclose())


@pytest.fixture
def evaluate(request: pytest.FixtureRequest) -> Callable[..., Awaitable[EvaluationReport]]:
    """Evaluates a program of a flow: ``report = await evaluate(flow, answer, scorers=[exact()], at_least={"exact": 0.9})``.

    The cases are those of the mark ``cases``, or the third argument; the other parameters are those of ``flow.evaluate``. The
    test fails, with the report, if the mean of a score is below ``at_least``.
    """

    async def evaluated(
        flow: AgentFlow, program: Any, cases: Any = None, *, at_least: Mapping[str, float] | None = None, **options: Any
    ) -> EvaluationReport:
        options["cases"] = _marked(request.node) if cases is None else cases
        report = cast(
            "EvaluationReport", await flow.evaluate(program, **options)
        )  # two overloads fit options of any kind
        if wrong := report.below(at_least or {}):
            pytest.fail("\n".join([*wrong, "", str(report)]), pytrace=False)
        return report

    return evaluated


@pytest.fixture
def cassette(request: pytest.FixtureRequest) -> Generator[Cassette]:
    """A cassette for this test, ``cassettes/MODULE/TEST.json`` next to its file; see ``--record-cassettes``."""
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
