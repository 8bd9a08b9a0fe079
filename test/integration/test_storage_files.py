"""The rules of initializers and the exporter with files of this machine, and with disks that are full."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.storagecommand import MARKER, content_of, export, initialize, run_afresh

FILES = {"a": b"1", "sub/b": b"22", "sub/deeper/c d": os.urandom(100_000)}


def fill(folder: Path) -> Path:
    for name, content in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MiB."""
    if os.geteuid() != 0 or sys.platform != "linux":
        pytest.skip("a disk of a certain size needs root on Linux")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk], check=False, capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("this machine lets nobody mount a disk of a certain size")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_a_folder_is_copied(tmp_path: Path) -> None:
    source = fill(tmp_path / "source")
    (source / "link").symlink_to("a")
    (source / "folder").symlink_to("sub")
    ended = initialize("dataset", source.as_uri(), tmp_path / "target")
    assert ended.code == 0, ended.said
    assert content_of(tmp_path / "target") == {**FILES, "link": b"1"}
    assert ended.event("a link to a folder is skipped")["link"] == str(source / "folder")


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        pytest.param("file://{tmp}/empty", "nothing is there", id="an empty folder"),
        pytest.param("file://{tmp}", "must not contain each other", id="the target within the source"),
    ],
)
def test_what_cannot_be_copied_is_a_permanent_error(uri: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ended = initialize("dataset", uri.format(tmp=tmp_path), tmp_path / "target")
    assert ended.code == 1
    assert words in ended.last_line


@pytest.mark.parametrize("command", ["initialize", "export"])
def test_a_claim_is_mounted_and_needs_nothing(command: str, tmp_path: Path) -> None:
    ended = initialize("model", "pvc://c/x", tmp_path) if command == "initialize" else export(tmp_path, "pvc://c/x")
    assert ended.code == 0
    assert "the volume is mounted" in ended.said


def test_a_disk_without_room_is_said_before_anything_is_fetched(small_disk: Path, tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(os.urandom(5_000_000))
    ended = initialize("dataset", f"file://{tmp_path}/big", small_disk)
    assert ended.code == 1
    assert f"the disk is full: {small_disk} has 4.2 MB free, and 5.0 MB are needed" in ended.last_line
    assert content_of(small_disk) == {}


def test_a_disk_that_fills_up_on_the_way_is_a_permanent_error(small_disk: Path, tmp_path: Path) -> None:
    """An existing file will be replaced, so the free space seems to be sufficient."""
    source = tmp_path / "source"
    source.mkdir()
    for name in "ab":
        (source / name).write_bytes(os.urandom(2_500_000))
    (small_disk / "a").write_bytes(os.urandom(2_000_000))
    ended = initialize("dataset", source.as_uri(), small_disk)
    assert ended.code == 1
    assert "the disk is full" in ended.last_line
    assert not (small_disk / MARKER).exists()
    assert "b" not in content_of(small_disk)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        pytest.param("empty", "nothing is there", id="an empty folder"),
        pytest.param("evil", "is a link that leads out of", id="a link to elsewhere"),
    ],
)
def test_what_cannot_be_exported_is_a_permanent_error(source: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil/environ").symlink_to("/proc/self/environ")
    ended = export(tmp_path / source, f"file://{tmp_path}/trained")
    assert ended.code == 1
    assert words in ended.last_line
    assert not (tmp_path / "trained/environ").exists()


@pytest.mark.parametrize(("scheme", "package"), [("s3", "s3fs"), ("gs", "gcsfs"), ("hf", "huggingface_hub")])
def test_a_package_that_is_missing_is_named_with_the_extra(scheme: str, package: str, tmp_path: Path) -> None:
    """As in the controller's own image."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / f"{package}.py").write_text(f"raise ModuleNotFoundError('not here', name={package!r})")
    environ = {"PYTHONPATH": str(hidden), "STORAGE_URI": f"{scheme}://org/name", "AWS_ACCESS_KEY_ID": "k"}
    ended = run_afresh(["initialize", "model", f"--target={tmp_path}/t"], environ)
    assert ended.code == 1
    assert f"the package {package} is missing; in a clone of the project: pip install '.[storage]'" in ended.last_line


def test_a_copy_is_readable_by_everybody(tmp_path: Path) -> None:
    """The training runs as another user."""
    source = fill(tmp_path / "source")
    shutil.rmtree(tmp_path / "target", ignore_errors=True)
    before = os.umask(0o022)
    try:
        assert initialize("dataset", source.as_uri(), tmp_path / "target").code == 0
    finally:
        os.umask(before)
    assert oct((tmp_path / "target/sub/b").stat().st_mode)[-3:] == "644"
    assert oct((tmp_path / "target/sub").stat().st_mode)[-3:] == "755"
