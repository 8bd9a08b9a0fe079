"""Words of the command line, and what they mean."""

from __future__ import annotations

import shlex
from argparse import ArgumentTypeError
from collections.abc import Callable

import pytest

from tfjob_controller.kubectl.arguments import (
    COMMANDS,
    Command,
    JobName,
    count_argument,
    duration_argument,
    job_argument,
    parse,
    positive_argument,
)
from tfjob_controller.util.commandline import UsageError


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("train", JobName("", "train")),
        ("tfjob/train", JobName("tfjob", "train")),
        ("tfjobs/train", JobName("tfjob", "train")),
        ("tfj/train", JobName("tfjob", "train")),
        ("trj/a.b-c", JobName("trainjob", "a.b-c")),
        ("trainjob.kubeflow.org/train", JobName("trainjob", "train")),
    ],
)
def test_a_job_is_named_with_or_without_its_kind(text: str, meant: JobName) -> None:
    assert job_argument(text) == meant


@pytest.mark.parametrize("text", ["", "pod/x", "a/b/c", "Train", "-x", "../x", "x/", "/x", "x" * 254, "x\n"])
def test_what_can_be_no_job_never_becomes_a_path(text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        job_argument(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("0", 0), ("90", 90), ("90s", 90), ("10m", 600), ("1h30m", 5400), ("0.5s", 0.5)]
)
def test_a_duration_is_written_as_in_go_or_in_plain_seconds(text: str, expected: float) -> None:
    assert duration_argument(text) == expected


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (duration_argument, ""),
        (duration_argument, "-1"),
        (duration_argument, "5 m"),
        (duration_argument, "1d"),
        (duration_argument, "m"),
        (count_argument, "-1"),
        (count_argument, "1.5"),
        (count_argument, "²"),
        (count_argument, "9" * 20),
        (positive_argument, "0"),
    ],
)
def test_what_is_no_number_is_refused(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(ArgumentTypeError):
        read(text)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_has_a_help_whose_examples_can_be_read(
    command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse([command.name, "--help"])
    shown = capsys.readouterr().out
    assert ended.value.code == 0
    examples = command.handler().examples.strip().splitlines()
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
    with pytest.raises(UsageError, match="only `submit` takes one"):
        parse(["list", "--", "x"])


@pytest.mark.parametrize("namespace", ["A", "a/b", "../x", "-"])
def test_a_namespace_that_cannot_be_is_refused(namespace: str) -> None:
    with pytest.raises(UsageError, match="namespace"):
        parse(["list", f"--namespace={namespace}"])


@pytest.mark.parametrize(
    "before",
    [("-n", "team"), ("--namespace", "team"), ("--namespace=team",), ("--context", "other", "-n", "team")],
    ids=" ".join,
)
def test_the_cluster_may_be_said_before_the_command_as_for_kubectl(before: tuple[str, ...]) -> None:
    parsed = parse([*before, "describe", "train", "-o", "json"])
    assert (parsed.command, str(parsed.job), parsed.namespace, parsed.output) == ("describe", "train", "team", "json")


@pytest.mark.parametrize("words", [("-n",), ("-n", "team"), ("-n", "list"), ("-x", "list")], ids=" ".join)
def test_flags_without_a_command_or_unknown_before_it_are_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="kubectl tfjob --help"):
        parse(words)
