"""The rules of commands.py: whatever happens, the end is one line and an exit code."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from tfjob_controller.storage import commands
from tfjob_controller.storage.options import ExportOptions, InitializeOptions

ENVIRON = {"HF_TOKEN": "5ecret-token"}


@pytest.fixture(autouse=True)
def _libraries_heard_again() -> Iterator[None]:
    """The commands turn the libraries' log off for a process that here goes on."""
    with warnings.catch_warnings():
        yield
    logging.disable(logging.NOTSET)


def test_the_last_line_names_command_and_uri_and_no_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = InitializeOptions(storage_uri="file:///nowhere/5ecret-token/x", target=str(tmp_path))
    assert commands.initialize("dataset", options, ENVIRON) == 1
    assert capsys.readouterr().err == (
        "tfjob-controller: initialize dataset: file:///nowhere/***/x: not found "
        "(there is no file or folder /nowhere/***/x)\n"
    )


def test_a_fault_that_does_not_name_the_uri_is_reported_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    options = InitializeOptions(storage_uri="hf://org/name", target=f"{tmp_path}/file")
    assert commands.initialize("model", options, {}) == 1
    said = f"tfjob-controller: initialize model: hf://org/name: {tmp_path}/file: File exists\n"
    assert capsys.readouterr().err == said


def test_a_copy_ends_with_code_0_and_without_a_last_line_of_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "source").mkdir()
    (tmp_path / "source/a").write_text("1")
    options = ExportOptions(storage_uri=f"file://{tmp_path}/target", source=f"{tmp_path}/source")
    assert commands.export(options, {}) == 0
    assert "tfjob-controller: " not in capsys.readouterr().err


def test_libraries_say_nothing_once_a_command_has_begun(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = InitializeOptions(storage_uri="pvc://claim", target=str(tmp_path))
    assert commands.initialize("dataset", options, {}) == 0
    capsys.readouterr()
    logging.getLogger("aiohttp").critical("Unclosed connection to https://host/?sig=5ecret")
    assert capsys.readouterr().err == ""


def test_in_a_container_the_last_line_alone_is_the_termination_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kubelet would take up to 2,048 bytes of log lines otherwise."""
    message = tmp_path / "termination-log"
    message.write_text("left by nobody")
    monkeypatch.setattr(commands, "TERMINATION_LOG", str(message))
    options = InitializeOptions(storage_uri="file:///nowhere/5ecret-token/x", target=str(tmp_path / "target"))
    assert commands.initialize("dataset", options, ENVIRON) == 1
    assert message.read_text() == capsys.readouterr().err.splitlines()[-1]


def test_without_a_kubelet_no_termination_message_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    message = tmp_path / "termination-log"
    monkeypatch.setattr(commands, "TERMINATION_LOG", str(message))
    options = InitializeOptions(storage_uri="file:///nowhere/x", target=str(tmp_path / "target"))
    assert commands.initialize("dataset", options, ENVIRON) == 1
    assert not message.exists()
