"""The pytest plugin in test runs of users: real processes, with and without an asyncio plugin."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

PROGRAM = (
    '(defatom ask (params (q string)) (instructions "Answer: {{q}}")) (pmap (lambda (q) (value-of (ask (q q)))) qs)'
)


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """An empty project, whose pytest has no options of ours."""
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    return pytester


def run(project: pytest.Pytester, *options: str) -> pytest.RunResult:
    return project.runpytest_subprocess("-p", "no:cacheprovider", *options)


def test_a_run_without_fixtures_loads_nothing(project: pytest.Pytester) -> None:
    """pytest loads the plugin by itself; of the package only that is imported, and no library that pytest does without."""
    project.makepyfile(
        """
        import sys

        def test_nothing():
            ours = {name for name in sys.modules if name.partition(".")[0] == "agentflow"}
            assert ours == {"agentflow", "agentflow.testing", "agentflow.testing.plugin"}
            assert not {"pydantic", "httpx2", "openai", "anthropic", "anyio"} & set(sys.modules)
        """
    )
    run(project, "-p", "no:anyio", "-p", "no:asyncio", "-p", "no:hypothesispytest").assert_outcomes(passed=1)


def test_the_fixtures_of_a_flow(project: pytest.Pytester) -> None:
    """They serve async tests and plain ones, close their flow, yield to a project's own, and keep the network out."""
    project.makeini("[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n")
    project.makeconftest(
        """
        import pytest

        @pytest.fixture
        def flow_options(tmp_path):
            (tmp_path / "notes.txt").write_text("hidden treasure")
            return {"root": tmp_path}
        """
    )
    project.makepyfile(
        test_flows=f"""
        import asyncio
        import socket
        import pytest
        from agentflow.testing import NetworkForbidden

        PROGRAM = {PROGRAM!r}

        async def test_async(flow, script):
            script.on("ask", lambda request: request.messages[-1].text[-1])
            assert (await flow.run(PROGRAM, bindings={{"qs": ["a", "b"]}})).value == ["a", "b"]
            assert script.prompts("ask") == ["Answer: a", "Answer: b"]

        def test_plain(flow, script):
            script.otherwise("yes")
            assert asyncio.run(flow.run(PROGRAM, bindings={{"qs": ["a"]}})).value == ["yes"]

        async def test_files(flow):
            async with flow:
                assert (await flow.run("(length (get_context (query 'treasure)))")).value == 1

        def test_no_network(flow):
            with pytest.raises(NetworkForbidden):
                socket.create_connection(("api.example.com", 443))
        """,
        test_own="""
        import pytest

        @pytest.fixture
        def script():
            return "mine"

        def test_own_fixture(script):
            assert script == "mine"
        """,
    )
    result = run(project, "-W", "error")
    result.assert_outcomes(passed=5)


@pytest.mark.slow
@pytest.mark.parametrize("others", [["-p", "no:asyncio", "-p", "no:anyio"], []])
def test_async_tests_need_no_plugin(project: pytest.Pytester, others: list[str]) -> None:
    """An async test with a fixture of ours runs without any plugin for async tests, beside one that takes marked tests alone, and by one
    that has taken it; its failure is a failure, and a test with no fixture of ours is left to pytest.
    """
    project.makepyfile(
        test_them="""
        import asyncio
        import pytest

        async def test_ours(flow, script, tmp_path):
            script.otherwise("yes")
            assert await flow.ask("Well?") == "yes" and tmp_path.exists()

        async def test_wrong(script):
            await asyncio.sleep(0)
            assert script is None

        @pytest.mark.parametrize("how", ["a", "b"])
        async def test_many(script, how):
            assert how in "ab" and asyncio.get_running_loop()

        async def test_not_ours(tmp_path):
            assert tmp_path
        """
    )
    run(project, "-W", "ignore", *others).assert_outcomes(passed=3, failed=2)


@pytest.mark.slow
def test_cassettes_beside_the_tests(project: pytest.Pytester) -> None:
    """``--record-cassettes`` records what passes; without it a test replays, and says so where nothing is recorded."""
    project.makepyfile(
        test_ask="""
        import asyncio, json, os, threading
        from http.server import BaseHTTPRequestHandler, HTTPServer
        import httpx2
        import pytest

        class Answers(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b"re: " + body)

        @pytest.fixture
        def url():
            with HTTPServer(("127.0.0.1", 0), Answers) as server:
                if os.environ["SERVER"]:
                    threading.Thread(target=server.serve_forever, args=(0.01,)).start()
                yield f"http://127.0.0.1:{server.server_port}/v1/chat"
                if os.environ["SERVER"]:
                    server.shutdown()

        @pytest.mark.parametrize("question", ["good morning", "bad"])
        def test_ask(cassette, url, question):
            async def ask():
                async with httpx2.AsyncClient(transport=cassette.transport()) as client:
                    return (await client.post(url, json=question, headers={"authorization": "very-secret"})).text

            assert asyncio.run(ask()) == f're: "{question}"'
            assert question != "bad"
        """
    )
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("SERVER", "yes")
        run(project, "--record-cassettes").assert_outcomes(passed=1, failed=1)
        (recorded,) = (project.path / "cassettes" / "test_ask").iterdir()
        assert recorded.name == "test_ask-good-morning.json" and "very-secret" not in recorded.read_text("utf-8")
        environment.setenv("SERVER", "")
        result = run(project)
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["*there is no cassette*", "*--record-cassettes*"])
