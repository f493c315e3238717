"""Which commands a policy lets through, and where a command text needs a shell."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentflow.core.data.errors import ConfigurationError
from agentflow.executors import git_hardening
from agentflow.executors.policy import CommandPolicy, CommandRule, split_command


@pytest.mark.parametrize(
    ("rule", "executable", "argv", "matches"),
    [
        ("git log *", "/usr/bin/git", ["git", "log"], True),
        ("git log *", "/usr/bin/git", ["git", "log", "-p", "x"], True),
        ("git log *", "/usr/bin/git", ["git", "push"], False),
        ("git log", "/usr/bin/git", ["git", "log", "-p"], False),
        ("ls", "/usr/bin/ls", ["ls"], True),
        ("ls", "/usr/bin/ls", ["/usr/bin/ls"], True),
        ("ls", "/srv/ls", ["./ls"], True),
        ("/usr/bin/ls *", "/srv/ls", ["./ls"], False),
        ("python3 *", "/usr/bin/python3.11", ["python3", "x.py"], True),
        ("mkfs.* *", "/sbin/mkfs.ext4", ["mkfs.ext4", "/dev/x"], True),
        ("cat *.md", "/bin/cat", ["cat", "a.md"], True),
        ("cat *.md", "/bin/cat", ["cat", "a.py"], False),
        ("sudo *", "/usr/bin/sudo", ["innocent", "x"], True),
    ],
)
def test_rules_match_program_and_arguments(rule: str, executable: str, argv: list[str], matches: bool) -> None:
    """The first word is the program, by name or path; the rest are patterns; a last * is any rest."""
    assert CommandRule(rule).matches(executable, argv) is matches


@pytest.mark.parametrize("rule", ["", "  ", "git 'log"])
def test_wrong_rules_are_refused(rule: str) -> None:
    """A rule that is not a command is a ConfigurationError."""
    with pytest.raises(ConfigurationError):
        CommandRule(rule)


def test_deny_comes_first() -> None:
    """Deny, then allow, else ask."""
    policy = CommandPolicy(allow=["rm *", "ls *"], deny=["rm *"])
    assert policy.judge("/bin/rm", ["rm", "x"])[0] == "deny"
    assert policy.judge("/bin/ls", ["ls"])[0] == "allow"
    assert policy.judge("/bin/cat", ["cat"])[0] == "ask"


@pytest.mark.parametrize(
    "argv", [["rm", "-rf", "/"], ["rm", "-r", "-f", "//"], ["rm", "--recursive", "/."], ["rm", "-Rf", "~"]]
)
def test_removing_everything_is_denied(argv: list[str]) -> None:
    """Whatever the rules say."""
    assert CommandPolicy(deny=[], allow=["rm *"]).judge("/bin/rm", argv)[0] == "deny"


@pytest.mark.parametrize(
    ("text", "argv", "operator"),
    [
        ("ls -l", ["ls", "-l"], None),
        ("echo 'a | b' \"c > d\" e\\;f", ["echo", "a | b", "c > d", "e;f"], None),
        ("echo 'a `b` $(c)'", ["echo", "a `b` $(c)"], None),
        ("echo $HOME *.py", ["echo", "$HOME", "*.py"], None),
        ("  ls\n", ["ls"], None),
        ("\nls", ["ls"], None),
        ("a | b", None, "|"),
        ("a>b", None, ">"),
        ("a && b", None, "&"),
        ('echo "$(b)"', None, "$("),
        ('echo "`b`"', None, "`"),
        ("a\nb", None, "a line end"),
        ("'a'|b", None, "|"),
        ("\"a\"'b'>c", None, ">"),
    ],
)
def test_splitting(text: str, argv: list[str] | None, operator: str | None) -> None:
    """Quoting is a POSIX shell's; an operator outside of quotes is found, one in quotes is text."""
    words, found = split_command(text)
    assert found == operator
    if argv is not None:
        assert words == argv


@given(
    st.lists(
        st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0"), max_size=20),
        min_size=1,
        max_size=5,
    )
)
def test_quoted_words_come_back(words: list[str]) -> None:
    """What shlex quotes is split into the same words, and holds no operator."""
    import shlex

    assert split_command(shlex.join(words)) == (words, None)


def test_git_options_that_undo_the_hardening_are_found() -> None:
    """They are found before the subcommand and after it, and nothing else is."""
    assert git_hardening.refused(["git", "-c", "a=b", "status"]) == "-c"
    assert git_hardening.refused(["git", "-ca=b", "status"]) == "-ca=b"
    assert git_hardening.refused(["git", "--exec-path=/x", "status"]) == "--exec-path=/x"
    assert git_hardening.refused(["git", "diff", "--ext-diff"]) == "--ext-diff"
    assert git_hardening.refused(["git", "fetch", "--upload-pack=/x"]) == "--upload-pack=/x"
    for plain in (["git", "commit", "-c", "HEAD"], ["git", "log", "-p"], ["git", "-C", "x", "status"], ["git"]):
        assert git_hardening.refused(plain) is None


@pytest.mark.parametrize(
    "text",
    [
        "fetch --upload-pa=/x", "ls-remote --upl /x", "push --rec=/x", "diff --ext-d", "show --textc", "grep -O less x",
        "grep -iOless x", "grep --open=less x", "grep --open-files-in-pager x", "clone -u /x a b", "clone -qu/x a b",
        "clone -c core.fsmonitor=x a b", "clone --conf core.pager=x a b", "init --templ=x", "rebase -x make", "rebase --ex make",
        "bisect run make", "submodule foreach ls", "difftool", "filter-branch", "archive --remote=. --exec=/x HEAD",
        "cat-file --filters HEAD:a", "--super-prefix -c status", "--attr-source x -c a=b log", "-C x -c a=b status",
        "--git-dir x --exec-path=/y status", "--config-env=a=b status", "--exec-path /x status", "-p log", "--list-cmds=x",
        "help log", "log -S -- --ext-diff", "log --grep --textconv",
    ],
)  # fmt: skip
def test_an_option_that_runs_a_program_is_found_however_it_is_written(text: str) -> None:
    """Abbreviated, clustered, with its value apart or joined, behind options that hide it: refused by name."""
    assert git_hardening.refused(["git", *text.split()]) is not None


@pytest.mark.parametrize(
    "text",
    [
        "grep -e O x", "grep -eO x", "grep -nI -A3 x", "diff --text", "clone -b main a b", "clone --filter=blob:none a b",
        "--git-dir=x --work-tree y status", "--no-pager log --oneline -5", "log --topo-order", "rebase main",
        "rebase -sours main", "format-patch --to=me@here -1", "commit -m --text", "--version", "-C -c status",
        "push --set-upstream origin main", "tag -l", "stash list", "checkout -b next", "log --format=%H --exclude=x",
    ],
)  # fmt: skip
def test_ordinary_git_commands_pass(text: str) -> None:
    """What people type every day is not mistaken for an option that runs something."""
    assert git_hardening.refused(["git", *text.split()]) is None


def test_git_subcommands_get_their_plain_options() -> None:
    """After the subcommand, before its own arguments."""
    assert git_hardening.arguments(["git", "-C", "x", "status", "-s"]) == (
        "git", "-C", "x", "status", "--ignore-submodules=all", "-s",
    )  # fmt: skip
    assert git_hardening.arguments(["git", "log"]) == ("git", "log", "--no-ext-diff", "--no-textconv")
    assert git_hardening.arguments(["git", "add", "."]) == ("git", "add", ".")
    assert git_hardening.arguments(["git"]) == ("git",)


def test_drivers_under_any_name_are_emptied() -> None:
    """Names found in a repository's configuration are overridden where they run something."""
    made = git_hardening.environment(["filter.odd name.clean", "diff.x.textconv", "user.name", "alias.st", "pager.log"])
    count = int(made["GIT_CONFIG_COUNT"])
    settings = {made[f"GIT_CONFIG_KEY_{n}"]: made[f"GIT_CONFIG_VALUE_{n}"] for n in range(count)}
    assert settings["filter.odd name.clean"] == "" and settings["diff.x.textconv"] == "cat"
    assert settings["core.hooksPath"] == "/dev/null" and settings["pager.log"] == "false"
    assert "user.name" not in settings and settings["alias.st"] == "st"
