"""Words of the command line, and what they mean."""

from __future__ import annotations

import shlex

import pytest

from tfjob_controller.kubectl.arguments import COMMANDS, parse
from tfjob_controller.kubectl.command import Command
from tfjob_controller.util.commandline import UsageError


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_a_help_whose_examples_can_be_read(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse([command.name, "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    examples = command.examples
    assert any(f"kubectl tfjob {command.name}" in example for example in examples)
    for example in examples:
        assert f"  {example}" in shown
        _, _, called = example.partition("kubectl tfjob ")
        words = shlex.split(called.split(" > ")[0].split(" && ")[0].rstrip(")"))
        assert parse(words).command in {each.name for each in COMMANDS}


def test_what_stands_behind_two_dashes_is_the_program_as_it_is() -> None:
    parsed = parse(["submit", "x", "--image", "i", "--", "python", "--help", "--", "-n", "5"])
    assert parsed.program == ["python", "--help", "--", "-n", "5"]
    assert parsed.namespace == ""
    with pytest.raises(UsageError, match="only `submit` accepts a command"):
        parse(["list", "--", "x"])


@pytest.mark.parametrize("namespace", ["A", "../x"])
def test_a_namespace_that_cannot_be_is_refused(namespace: str) -> None:
    with pytest.raises(UsageError, match="namespace"):
        parse(["list", f"--namespace={namespace}"])


@pytest.mark.parametrize(
    "before",
    [
        ("-n", "team"),
        ("-nteam",),
        ("-n=team",),
        ("--namespace=team",),
        ("--context", "other", "-n", "team"),
        ("--as", "a", "-v", "-n", "team"),
        ("-v6", "-nteam"),
        ("-v", "6", "-shttps://a", "-n", "team"),
    ],
    ids=" ".join,
)
def test_the_cluster_may_be_said_before_the_command_as_for_kubectl(before: tuple[str, ...]) -> None:
    parsed = parse([*before, "describe", "train", "-o", "json"])
    assert (parsed.command, str(parsed.job), parsed.namespace, parsed.output) == ("describe", "train", "team", "json")


@pytest.mark.parametrize(
    ("words", "level", "job"),
    [(["-v", "train"], 6, "train"), (["-v", "4", "train"], 4, "train"), (["train", "-v=9"], 9, "train")],
)
def test_a_level_of_verbosity_is_optional_and_never_the_next_word(words: list[str], level: int, job: str) -> None:
    parsed = parse(["explain", *words])
    assert (parsed.verbosity, str(parsed.job)) == (level, job)


@pytest.mark.parametrize(
    ("line", "flag"),
    [("-n team -x list", "-x"), ("-nteam --what=s list", "--what"), ("--token= -x3cr3t list", "--token")],
)
def test_an_unknown_flag_before_the_command_is_named_and_no_token(line: str, flag: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line.split())
    assert str(caught.value) == f"unknown flag: {flag} (see `kubectl tfjob --help`)"


@pytest.mark.parametrize("flag", ["--help", "-h"])
@pytest.mark.parametrize("before", [("-n", "team"), ("-nteam",), ("-v6", "--context=other")], ids=" ".join)
def test_help_is_shown_behind_flags_that_choose_a_cluster(
    before: tuple[str, ...], flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        parse([*before, flag])
    assert end.value.code == 0
    assert "describe" in capsys.readouterr().out
    assert parse([*before, "--version"]).show_version


@pytest.mark.parametrize(("flag", "level"), [("-v4", 4), ("-v=4", 4), ("-v", 6)])
def test_a_level_of_verbosity_may_precede_the_command(flag: str, level: int) -> None:
    assert parse([flag, "explain", "train"]).verbosity == level


@pytest.mark.parametrize("line", ["-n", "-nteam", "-n team", "-n list", "--token s3cret", "-v6 --context other"])
def test_flags_without_a_command_list_the_commands(line: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line.split())
    assert str(caught.value) == "a command is needed"
    assert {command.name for command in COMMANDS} <= set(caught.value.usage.split())
    assert "s3cret" not in caught.value.usage


def test_an_unknown_flag_before_a_command_is_refused() -> None:
    with pytest.raises(UsageError, match="kubectl tfjob --help"):
        parse(["-x", "list"])
