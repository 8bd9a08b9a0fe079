"""storage/confined.py: what a program can put into the folder that the exporter sends."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from tfjob_controller.storage.confined import ConfinedSource
from tfjob_controller.storage.errors import StorageError

SECRET = b"the token of the exporter"


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/token").write_bytes(SECRET)
    (tmp_path / "workspace/output/sub").mkdir(parents=True)
    (tmp_path / "workspace/output/a").write_bytes(b"a")
    (tmp_path / "workspace/output/sub/b").write_bytes(b"b")
    return tmp_path / "workspace/output"


def sent(path: Path) -> dict[str, bytes]:
    source = ConfinedSource(str(path))
    return {file.name: b"".join(source.read(file, 0)) for file in source.files()}


def test_all_files_are_sent_by_their_names(output: Path) -> None:
    assert sent(output) == {"a": b"a", "sub/b": b"b"}
    assert sent(output / "sub/b") == {"b": b"b"}


@pytest.mark.parametrize("part", ["workspace/output", "workspace"])
def test_a_folder_that_is_or_goes_through_a_link_is_refused(output: Path, part: str) -> None:
    root = output.parent.parent
    (root / part).rename(root / "elsewhere")
    (root / part).symlink_to(root / "elsewhere")
    with pytest.raises(StorageError, match="goes through a symbolic link"):
        sent(output)


@pytest.mark.parametrize("to", ["/proc/self/environ", "../../secrets/token", "sub/../../../secrets/token"])
def test_a_link_that_leads_out_is_refused(output: Path, to: str) -> None:
    (output / "evil").symlink_to(to)
    with pytest.raises(StorageError, match="leads out of"):
        sent(output)


def test_links_within_the_folder_stand_for_files_and_other_things_are_left_out(output: Path) -> None:
    (output / "good").symlink_to("sub/b")
    (output / "dangling").symlink_to("nowhere")
    (output / "folder").symlink_to("sub")
    os.mkfifo(output / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(output / "s"))
        assert sent(output) == {"a": b"a", "sub/b": b"b", "good": b"b"}


@pytest.mark.parametrize("swapped", ["sub/b", "sub"])
def test_what_is_exchanged_for_a_link_after_it_was_listed_is_not_sent(output: Path, swapped: str) -> None:
    source = ConfinedSource(str(output))
    (file,) = [each for each in source.files() if each.name == "sub/b"]
    (output / swapped).rename(output.parent / "moved")
    target = output.parent.parent / "secrets"
    (target / "b").write_bytes(SECRET)
    (output / swapped).symlink_to(target / "b" if swapped == "sub/b" else target)
    with pytest.raises(StorageError), source.opened(file) as path:
        assert path.read_bytes() != SECRET


def test_whatever_the_program_does_meanwhile_no_byte_from_outside_is_read(output: Path) -> None:
    """A program that exchanges a file for a link and back, as fast as it can."""
    secret, name, over = output.parent.parent / "secrets/token", output / "a", threading.Event()

    def exchange() -> None:
        while not over.is_set():
            (output.parent / "link").symlink_to(secret)
            (output.parent / "link").rename(name)
            (output.parent / "file").write_bytes(b"a")
            (output.parent / "file").rename(name)

    thread = threading.Thread(target=exchange)
    thread.start()
    seen: set[bytes] = set()
    try:
        for _ in range(500):
            try:
                seen.update(sent(output).values())
            except (StorageError, FileNotFoundError):
                continue
    finally:
        over.set()
        thread.join()
    assert seen <= {b"a", b"b"}


def test_an_opened_file_stays_what_it_was(output: Path) -> None:
    source = ConfinedSource(str(output))
    files = source.files()
    with source.all_opened(files) as paths:
        (output / "a").unlink()
        (output / "a").symlink_to(output.parent.parent / "secrets/token")
        assert {name: path.read_bytes() for name, path in paths.items()} == {"a": b"a", "sub/b": b"b"}


def test_folders_without_an_end_are_refused(output: Path) -> None:
    deep = output
    for _ in range(150):
        deep /= "d"
    deep.mkdir(parents=True)
    with pytest.raises(StorageError, match="nested more than"):
        sent(output)
