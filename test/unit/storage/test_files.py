"""The rules of manifest.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.files import RemoteFile, check_free_space, human_size, manifest_of, size_of_folder


def files(*names: str) -> list[RemoteFile]:
    return [RemoteFile(name, name, 5, "") for name in names]


def test_our_own_marks_are_no_part_of_a_source() -> None:
    found = manifest_of(files("a", ".tfjob-initialized.json", "sub/.tfjob-0123.part"), "s3://b")
    assert [file.name for file in found.files] == ["a"]
    assert found.byte_count == 5


@pytest.mark.parametrize(
    ("names", "words"),
    [
        pytest.param([], "nothing is there", id="nothing"),
        pytest.param([".tfjob-initialized.json"], "nothing is there", id="a mark only"),
        pytest.param(["a/b/c", "a"], "'a' is a file and", id="file and folder"),
        pytest.param(["a", "../b"], "refused", id="a name that leaves the folder"),
    ],
)
def test_what_no_folder_can_hold_is_said_before_anything_moves(names: list[str], words: str) -> None:
    with pytest.raises(StorageError, match=words) as refused:
        manifest_of(files(*names), "s3://b")
    assert not refused.value.is_transient


def test_a_disk_that_is_too_small_is_said_before_anything_moves(tmp_path: Path) -> None:
    check_free_space(1, tmp_path)
    with pytest.raises(StorageError, match=r"the disk is full: .* free, and 1,000,000\.0 TB are needed"):
        check_free_space(10**18, tmp_path)


def test_the_bytes_of_a_folder_are_those_of_its_files(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a").write_bytes(b"12345")
    (tmp_path / "b").write_bytes(b"123")
    (tmp_path / "dangling").symlink_to("nowhere")
    assert size_of_folder(tmp_path) == 8 + len("nowhere")


@pytest.mark.parametrize(("count", "words"), [(999, "999 bytes"), (1500, "1.5 kB"), (3e15, "3,000.0 TB")])
def test_sizes_in_words(count: float, words: str) -> None:
    assert human_size(count) == words
