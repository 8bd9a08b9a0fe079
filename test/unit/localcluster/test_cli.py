"""What the commands print where, and how they end."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from localcluster import cli


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)


@pytest.mark.parametrize(
    "arguments",
    [[], ["up", "--nodes", "x"], ["up", "--nodes", "99"]],
    ids=" ".join,
)
def test_wrong_usage_ends_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2


def test_other_systems_get_one_line_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cli.main(["status"]) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1
    assert "needs Linux" in printed.err
    assert "KUBECONFIG=" in printed.err


def test_a_wrong_name_ends_with_2_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["up", "--name", "No_Name"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_existing_cluster_is_taken_and_nothing_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config").touch()
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    assert cli.main(["up"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'config'}\n"


def test_a_command_says_what_to_do_next(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status"]) == 0
    assert "make cluster-up" in capsys.readouterr().err
    assert cli.main(["down"]) == 0
    assert "make cluster-up" in capsys.readouterr().err


def test_a_node_of_a_stack_without_nodes_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["node-kill", "2"]) == 1
    assert capsys.readouterr().err.startswith("error: this stack has no nodes")


def test_a_folder_that_cannot_be_written_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    assert cli.main(["up"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
