"""The rules of folder.py and part.py."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path

import pytest

from helpers.poll import never
from tfjob_controller.storage.errors import StorageError
from tfjob_controller.storage.files import GIT, MD5, Digest, RemoteFile
from tfjob_controller.storage.folder import JOURNAL, MARKER, FilledFolder, PartialFile
from tfjob_controller.storage.uris import parse

CONTENT = b"0123456789"
URI = parse("s3://bucket/x")


def described(
    name: str = "sub/a", identity: str = "one", *, content: bytes = CONTENT, hashed: bool = False
) -> RemoteFile:
    digest = Digest(MD5, hashlib.md5(content).hexdigest()) if hashed else None
    return RemoteFile(name, f"bucket/{name}", len(content), identity, digest)


def put(folder: FilledFolder, file: RemoteFile, content: bytes = CONTENT) -> None:
    with folder.part_of(file) as part:
        part.append(content)
        folder.accept(part, file)


def test_a_file_has_its_name_only_once_it_is_accepted(tmp_path: Path) -> None:
    with FilledFolder(tmp_path) as folder, folder.part_of(described()) as part:
        part.append(CONTENT)
        assert not (tmp_path / "sub/a").exists()
        folder.accept(part, described())
        assert (tmp_path / "sub/a").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("second", "is_whole"),
    [
        pytest.param(described(), True, id="the same"),
        pytest.param(described(identity="two"), False, id="another version"),
        pytest.param(described(identity="two", hashed=True), True, id="another version of the same hash"),
        pytest.param(described(content=CONTENT + b"x"), False, id="another size"),
        pytest.param(RemoteFile("sub/a", "", None, "one"), False, id="no size is told"),
        pytest.param(RemoteFile("sub/a", "", 10, ""), False, id="no version is told"),
        pytest.param(described("other"), False, id="not there"),
    ],
)
def test_only_a_whole_file_of_this_version_is_kept(second: RemoteFile, is_whole: bool, tmp_path: Path) -> None:
    with FilledFolder(tmp_path) as folder:
        put(folder, described())
    with FilledFolder(tmp_path) as again:
        assert again.is_whole(second) is is_whole


def test_a_file_that_was_cut_short_since_is_not_whole(tmp_path: Path) -> None:
    with FilledFolder(tmp_path) as folder:
        put(folder, described("a"))
        (tmp_path / "a").write_bytes(CONTENT[:5])
    with FilledFolder(tmp_path) as again:
        assert not again.is_whole(described("a"))


def test_a_file_that_somebody_else_put_there_counts_only_by_its_hash(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(CONTENT)
    with FilledFolder(tmp_path) as folder:
        assert not folder.is_whole(described("a"))
        assert folder.is_whole(described("a", hashed=True))
        assert not folder.is_whole(RemoteFile("a", "", 10, "one", Digest(MD5, "0" * 32)))


def test_two_runs_do_not_fill_a_folder_at_the_same_time(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with FilledFolder(tmp_path) as folder:
            order.append("second" if folder.is_filled_from(URI) else "too early")

    other = threading.Thread(target=second, daemon=True)
    with FilledFolder(tmp_path) as folder:
        other.start()
        never(lambda: order, 0.2)
        put(folder, described())
        folder.finish(URI, "dataset", [described()], 10)
    other.join(60.0)
    assert order == ["second"]


def test_a_torn_line_of_the_journal_is_ignored(tmp_path: Path) -> None:
    with FilledFolder(tmp_path) as folder:
        put(folder, described("a"))
        put(folder, described("b"))
    journal = tmp_path / JOURNAL
    journal.write_text(journal.read_text()[:-9])
    with FilledFolder(tmp_path) as again:
        assert again.is_whole(described("a"))
        assert not again.is_whole(described("b"))


def test_the_marker_comes_last_and_takes_journal_and_leftovers_away(tmp_path: Path) -> None:
    with FilledFolder(tmp_path) as folder:
        put(folder, described())
        with folder.part_of(described("sub/left")) as left:
            left.append(b"0")
        assert not folder.is_filled_from(URI)
        folder.finish(URI, "dataset", [described()], 10)
        assert folder.is_filled_from(URI)
        assert not folder.is_filled_from(parse("s3://bucket/y"))
    assert sorted(path.name for path in tmp_path.rglob("*")) == [MARKER, "a", "sub"]
    marker = json.loads((tmp_path / MARKER).read_text())
    assert (marker["files"], marker["bytes"], marker["uri"]) == (1, 10, "s3://bucket/x")


@pytest.mark.parametrize("text", ["{", "[]"], ids=["torn", "a list"])
def test_an_invalid_marker_is_ignored(text: str, tmp_path: Path) -> None:
    (tmp_path / MARKER).write_text(text)
    with FilledFolder(tmp_path) as folder:
        assert not folder.is_filled_from(URI)


@pytest.mark.parametrize("name", ["../x", "a/../x", "a//b", "", "a\0b"], ids=repr)
def test_no_name_leaves_the_folder(name: str, tmp_path: Path) -> None:
    with FilledFolder(tmp_path / "in") as folder, pytest.raises(StorageError, match="refused"):
        folder.part_of(described(name))
    assert [path.name for path in tmp_path.rglob("*")] == ["in"]


def test_nothing_is_written_through_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "in/sub").symlink_to(tmp_path / "out")
    with FilledFolder(tmp_path / "in") as folder, pytest.raises(StorageError, match="symbolic link"):
        folder.part_of(described("sub/deeper/a"))
    assert list((tmp_path / "out").iterdir()) == []


def test_a_link_in_a_files_place_is_replaced_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    outside = tmp_path / "outside"
    outside.write_bytes(b"kept")
    (tmp_path / "in/a").symlink_to(outside)
    with FilledFolder(tmp_path / "in") as folder:
        assert not folder.is_whole(described("a", content=b"kept", hashed=True))
        put(folder, described("a"))
    assert outside.read_bytes() == b"kept"
    assert (tmp_path / "in/a").read_bytes() == CONTENT


def test_a_link_in_a_parts_place_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"kept")
    link = tmp_path / ".tfjob-x.part"
    link.symlink_to(outside)
    with pytest.raises(OSError, match="symbolic"), PartialFile(link, described()):
        pass
    assert outside.read_bytes() == b"kept"


def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with FilledFolder(tmp_path / "link") as folder:
        put(folder, described())
    assert (tmp_path / "real/sub/a").read_bytes() == CONTENT


def test_a_folder_in_a_files_place_is_said(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with FilledFolder(tmp_path) as folder, pytest.raises(StorageError, match="has a folder of this name"):
        put(folder, described("a"))


@pytest.mark.parametrize(
    ("file", "kept"),
    [
        pytest.param(described(hashed=True), 7, id="its hash will tell"),
        pytest.param(described(), 3, id="no hash: what may not have been synced goes"),
        pytest.param(RemoteFile("a", "", 10, ""), 0, id="no version is told"),
        pytest.param(RemoteFile("a", "", 5, "one"), 0, id="longer than the file"),
    ],
)
def test_a_part_is_continued_as_far_as_it_can_be_trusted(file: RemoteFile, kept: int, tmp_path: Path) -> None:
    path = tmp_path / "part"
    path.write_bytes(CONTENT[:7])
    with PartialFile(path, file, sync_every_bytes=4) as part:
        assert part.size == kept
    assert path.read_bytes() == CONTENT[:kept]


@pytest.mark.parametrize("algorithm", [MD5, GIT], ids=str)
def test_the_hash_of_a_part_counts_what_was_there_before(algorithm: str, tmp_path: Path) -> None:
    value = hashlib.md5(CONTENT).hexdigest() if algorithm == MD5 else hashlib.sha1(b"blob 10\0" + CONTENT).hexdigest()
    file = RemoteFile("a", "", 10, "one", Digest(algorithm, value))
    path = tmp_path / "part"
    path.write_bytes(CONTENT[:4])
    with PartialFile(path, file) as part:
        assert not part.has_right_hash()
        part.append(CONTENT[4:])
        part.check_size()
        assert part.has_right_hash()
        part.restart()
        part.append(CONTENT)
        assert part.has_right_hash()


def test_a_part_that_grows_too_long_forgets_all(tmp_path: Path) -> None:
    with PartialFile(tmp_path / "part", described()) as part:
        part.append(CONTENT)
        with pytest.raises(StorageError, match="more than the 10 bytes"):
            part.append(b"x")
        assert part.size == 0
        with pytest.raises(StorageError, match="only 0 of 10 bytes"):
            part.check_size()


def test_two_versions_of_a_file_grow_apart(tmp_path: Path) -> None:
    with FilledFolder(tmp_path) as folder:
        paths = {folder.part_of(described(identity=identity)).path for identity in ("one", "two")}
        paths.add(folder.part_of(described(content=b"other")).path)
    assert len(paths) == 3
