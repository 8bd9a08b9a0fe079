"""The command of kubectl that `list` names for a format which only kubectl has."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

import pytest

from helpers.jobserver import plugin_of
from helpers.memoryapi import MemoryApi
from tfjob_controller.kubectl.arguments import parse
from tfjob_controller.kubectl.commands.list import list_jobs
from tfjob_controller.kubectl.session import Session
from tfjob_controller.util.commandline import UsageError

TFJOBS, TRAINJOBS = "tfjobs.kubeflow.org", "trainjobs.kubeflow.org"


def error_of(line: str) -> str:
    parsed = parse(["list", *shlex.split(line)])
    with pytest.raises(UsageError) as caught:
        list_jobs(Session(parsed), parsed)
    return str(caught.value)


def command_of(line: str) -> argparse.Namespace:
    """What `kubectl get` understands of the command in the error."""
    start, _, command = error_of(line).removesuffix("`").partition("run `")
    assert start == "-o jsonpath is a format of kubectl get: "
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    parser.add_argument("objects", nargs="+")
    for flags in (("-n",), ("-l",), ("-o",), ("--field-selector",), ("--sort-by",), ("--context",)):
        parser.add_argument(*flags)
    for flag in ("-A", "--watch", "--no-headers"):
        parser.add_argument(flag, action="store_true")
    program, verb, *arguments = shlex.split(command)
    assert (program, verb) == ("kubectl", "get")
    parsed = parser.parse_args(arguments)
    _check_as_kubectl(parsed)
    return parsed


def _check_as_kubectl(parsed: argparse.Namespace) -> None:
    """Source: cli-runtime pkg/resource/builder.go, kubectl pkg/cmd/get/{get,sorter}.go."""
    first, *others = parsed.objects
    if "/" in first:
        assert all("/" in other and "," not in other for other in parsed.objects)
        assert not parsed.watch or not others
    else:
        assert not any("/" in other for other in others)
        # With several kinds every name is looked up among the objects of each of them.
        assert "," not in first or not (others or parsed.watch)
    assert parsed.sort_by is None or parsed.sort_by.strip("{}").startswith(".")


@pytest.mark.parametrize(
    ("line", "objects"),
    [
        ("", [f"{TFJOBS},{TRAINJOBS}"]),
        ("--show-labels --no-headers -l a=b", [f"{TFJOBS},{TRAINJOBS}"]),
        ("--kind tfjob a b", [TFJOBS, "a", "b"]),
        ("tfjob/a trainjob/b", [f"{TFJOBS}/a", f"{TRAINJOBS}/b"]),
        ("--kind trainjob trj/a", [TRAINJOBS, "a"]),
        ("tfjob/a --watch", [f"{TFJOBS}/a"]),
        ("--kind tfjob --watch", [TFJOBS]),
    ],
)
def test_the_command_names_the_same_jobs_as_kubectl_takes_them(line: str, objects: list[str]) -> None:
    assert command_of(f"-o jsonpath={{.items}} {line}").objects == objects


@pytest.mark.parametrize(
    ("names", "objects"),
    [
        ("a", [f"{TFJOBS}/a", f"{TRAINJOBS}/a"]),
        ("trainjob/b a", [f"{TRAINJOBS}/b {TFJOBS}/a", f"{TRAINJOBS}/b {TRAINJOBS}/a"]),
    ],
)
def test_a_name_that_may_be_of_any_kind_has_a_command_for_each(names: str, objects: list[str]) -> None:
    commands = [f"`kubectl get {text} -n team -o jsonpath=x`" for text in objects]
    assert error_of(f"{names} -n team -o jsonpath=x").endswith(f"kubectl get: run {' or '.join(commands)}")


@pytest.mark.parametrize(
    ("order", "field"),
    [
        ("age", ".metadata.creationTimestamp"),
        ("NAME", ".metadata.name"),
        (".status.startTime", ".status.startTime"),
        ("'{.spec.numNodes}'", "{.spec.numNodes}"),
    ],
)
def test_the_order_is_a_field_as_kubectl_takes_it(order: str, field: str) -> None:
    assert command_of(f"-o jsonpath={{.items}} --sort-by {order}").sort_by == field


def test_flags_that_choose_jobs_and_the_cluster_are_repeated() -> None:
    parsed = command_of("--context 'my own' -n team -o \"jsonpath={.items[*].metadata['name']}\" -l 'a in (b,c)'")
    assert (parsed.context, parsed.n, parsed.l) == ("my own", "team", "a in (b,c)")
    assert parsed.o == "jsonpath={.items[*].metadata['name']}"


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("--watch", "whose --watch takes one kind: add --kind"),
        ("--sort-by phase", "--sort-by phase: objects have no columns: name a field such as .metadata.name"),
        ("tfjob/a trainjob/b --watch", "--watch takes one NAME, or none"),
        ("--kind tfjob a -l a=b", "a NAME and a selector exclude each other"),
    ],
)
def test_what_kubectl_cannot_do_is_an_error_that_names_the_remedy(line: str, error: str) -> None:
    assert error in error_of(f"-o jsonpath={{.items}} {line}")


@pytest.mark.parametrize(
    ("line", "where", "words"),
    [
        ("list train -o yaml", "-n team", "`kubectl tfjob list {}` shows those that exist"),
        ("list train -o yaml -A", "-A", "`kubectl tfjob list {}` shows those that exist"),
        ("describe train", "-n team", "`kubectl tfjob list {}` shows those that exist"),
        ("list", "-n team", "try `kubectl get {}`"),  # the server in memory sends no tables
    ],
)
def test_the_command_in_an_error_looks_in_the_same_place(
    line: str, where: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with plugin_of(MemoryApi(), tmp_path, capsys) as plugin:
        code, _, error = plugin(*line.split())
    shown = f"--kubeconfig={tmp_path}/kubeconfig {f'{TFJOBS} ' if line == 'list' else ''}{where}"
    assert (code, words.format(shown) in error) == (1, True), error
