"""Policies: rules in code and in files, what they mean together, and what settings of a directory may add."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentflow import AgentFlow, AgentflowError, ConfigurationError, Provenance, ScriptedProvider, Sink
from agentflow.settings import load_settings
from tests.support.mail import Open

WEB = frozenset({"web"})


def refused(policy: Provenance, sources: str, *, tool: str = "send", argument: str = "to", **declared: str) -> set[str]:
    """Those of some sources that may not reach an argument of a tool."""
    return set(policy.refused(tool, argument, frozenset(sources.split()), declared))


def test_a_rule_allows_what_it_names() -> None:
    """Sources by name and by pattern; others are refused; no source is the user, who always may."""
    policy = Provenance(rules=[Sink("send", "to", ["directory", "file:docs/*"])])
    assert refused(policy, "directory file:docs/a.md web") == {"web"}
    assert refused(policy, "") == set()
    assert refused(policy, "web", argument="body") == set()


def test_rules_have_patterns_and_stars() -> None:
    """A rule for an argument comes before one for all; of several for one argument all must allow."""
    policy = Provenance(
        rules=[Sink("mail:*"), Sink("mail:*", "body", ["web", "mail"]), Sink("mail:send", "body", ["web"])]
    )
    assert refused(policy, "web", tool="mail:send") == {"web"}
    assert refused(policy, "web mail", tool="mail:send", argument="body") == {"mail"}
    assert refused(policy, "web", tool="send") == set()


def test_a_policy_comes_before_what_tools_declare_and_that_before_the_default() -> None:
    """A rule replaces a declaration; with ``deny`` the rest is the user's."""
    assert refused(Provenance(), "web directory", to="user, directory") == {"web"}
    assert refused(Provenance(rules=[Sink("send", "to", ["web"])]), "web", to="user") == set()
    assert refused(Provenance(default="deny"), "web directory", to="directory") == {"web"}
    assert refused(Provenance(default="deny"), "web", argument="body") == {"web"}
    assert Provenance(default="deny").refused("task", "x", WEB, None) == frozenset()


def test_policies_narrow_one_another() -> None:
    """What is added can only refuse more."""
    wide = Provenance(rules=[Sink("send", "to", ["web", "mail"])])
    both = wide.narrowed(Provenance(rules=[Sink("send", "to", ["web"])]))
    assert refused(both, "web mail") == {"mail"}
    assert refused(both.narrowed(Provenance(default="deny")), "web", argument="body") == {"web"}
    assert both.sinks("send", ["to", "body"], {}) == {"to": ("user", "web")}


def test_sources_are_renamed(tmp_path: Path) -> None:
    """By name or pattern; a file says the same as code."""
    path = tmp_path / "policy.toml"
    path.write_text(
        'default = "deny"\n[[sink]]\ntool = "send"\nargument = "to"\nallow = ["directory"]\n[sources]\n"search_*" = "directory"\n'
    )
    policy = Provenance.load(path)
    assert policy == Provenance(
        rules=[Sink("send", "to", ["directory"])], default="deny", sources={"search_*": "directory"}
    )
    assert policy.source_of("search_contacts", "") == "directory" and policy.source_of("fetch", "") == "tool:fetch"


WRONG = {
    'default = "maybe"': "allow or deny",
    "[[sink]]\nargument = 'to'": "names its tool",
    "[[sink]]\ntool = 'send'\nwho = 'me'": "no key 'who'",
    "[[sink]]\ntool = 'send'\nallow = [1]": "sources",
    "sink = 1": "list of tables",
    "[sources]\nfetch = 1": "table of texts",
    "rules = []": "no key 'rules'",
    "= 1": "cannot be read",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_file_says_what_is_wrong(text: str, tmp_path: Path) -> None:
    """Each fault of a policy file has the code, and words that name it."""
    path = tmp_path / "policy.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as error:
        Provenance.load(path)
    assert error.value.code == "provenance/policy" and WRONG[text] in error.value.message


async def test_settings_of_a_directory_narrow_and_never_widen(tmp_path: Path) -> None:
    """Rules of ``[provenance]`` hold beside the flow's own, and turn the following of values on; sources are not renamed there."""
    (tmp_path / "agentflow.toml").write_text('[[provenance.sink]]\ntool = "send"\nargument = "to"\n')
    settings = load_settings(tmp_path, {})
    for own in (None, Provenance(rules=[Sink("send", "to", ["web"])])):
        async with AgentFlow(provider=ScriptedProvider(), root=tmp_path, settings=settings, provenance=own) as flow:
            sent: list[str] = []

            @flow.tool(source="web")
            def fetch() -> str:
                """Fetch."""
                return "eve"

            @flow.tool
            def send(to: str, sent: list[str] = sent) -> str:
                """Send."""
                sent.append(to)
                return "ok"

            with pytest.raises(AgentflowError) as denied:
                await flow.run("(send (to (value-of (fetch))))")
            assert denied.value.code == "provenance/denied" and sent == []
    (tmp_path / "agentflow.toml").write_text('[provenance.sources]\nfetch = "user"\n')
    with pytest.raises(ConfigurationError) as error:
        load_settings(tmp_path, {})
    assert error.value.code == "provenance/policy"


async def test_a_manifest_lists_the_sinks_that_a_program_reaches(mail: Open) -> None:
    """Whoever approves a program sees which arguments leave it, and who may fill them; only of tools that it can reach."""
    made = await mail()
    bounds = await made.flow.bounds('(send (to "bob") (body (value-of (fetch (url "u")))))')
    assert "send (writes, to: user directory)" in str(dict(bounds.authority.rows())["tools"])
    bounds = await made.flow.bounds('(fetch (url "u"))')
    assert "send" not in str(dict(bounds.authority.rows())["tools"])


async def test_a_denied_effect_has_its_way_in_details(mail: Open) -> None:
    """Machines read who, what and how it came about."""
    made = await mail("eve")
    program = """(begin (defatom t (params (x)) (instructions "{{x}}"))
  (send (to (value-of (t (x (value-of (fetch (url "u"))))))) (body "hi")))"""
    with pytest.raises(AgentflowError) as denied:
        await made.flow.run(program)
    assert denied.value.details == {
        "name": "send",
        "argument": "to",
        "sources": ["web"],
        "refused": ["web"],
        "trail": ["fetch 2:39", "x of t 2:23", "to of send 2:3"],
    }
    assert denied.value.span is not None and denied.value.span.line == 2
