"""Which checkpoint is restored, and what a hostile storage cannot do."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from helpers.checkpoints import contents, restore, resumed, save, write
from tfjob_controller.storage.checkpoints.layout import MOST_MANIFEST_BYTES
from tfjob_controller.storage.checkpoints.localstore import LocalStore
from tfjob_controller.storage.errors import StorageError

OLD = {"model": b"old", "sub/x": b"1"}
NEW = {"model": b"new", "sub/x": os.urandom(10_000)}


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A storage with two checkpoints."""
    work = tmp_path / "work"
    write(work / "c-1", OLD)
    write(work / "c-2", NEW)
    for name in ("c-1", "c-2"):
        save(LocalStore(str(tmp_path / "store")), work, name)
    return tmp_path / "store"


@pytest.fixture
def new(tmp_path: Path) -> Path:
    return tmp_path / "new"


def newest_manifest(stored: Path) -> Path:
    return max((stored / "manifests").iterdir())


def change_manifest(stored: Path, **changes: Any) -> None:
    path = newest_manifest(stored)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def test_the_newest_is_restored(stored: Path, new: Path) -> None:
    found = restore(LocalStore(str(stored)), new)
    assert found.manifest is not None
    assert (found.manifest.name, found.skipped) == ("c-2", ())
    assert os.readlink(new / ".resume-from") == "c-2"
    assert contents(new) == {f"c-2/{name}": content for name, content in NEW.items()}


def test_without_a_checkpoint_a_stale_link_goes_and_all_else_stays(tmp_path: Path, new: Path) -> None:
    write(new, {"c-9/x": b"mine"})
    (new / ".resume-from").symlink_to("c-9")
    assert restore(LocalStore(str(tmp_path / "nothing")), new).manifest is None
    assert not (new / ".resume-from").is_symlink()
    assert contents(new) == {"c-9/x": b"mine"}


@pytest.mark.parametrize(
    "damage",
    [
        "missing file",
        "wrong hash",
        "shorter",
        "longer",
        "unreadable manifest",
        "huge manifest",
        "names that leave",
        "hash of another",
    ],
)
def test_a_broken_checkpoint_is_skipped_for_the_one_before_it(damage: str, stored: Path, new: Path) -> None:
    (content,) = (stored / "data/c-2").iterdir()
    match damage:
        case "missing file":
            (content / "sub/x").unlink()
        case "wrong hash":
            (content / "sub/x").write_bytes(os.urandom(10_000))
        case "shorter":
            (content / "sub/x").write_bytes(b"")
        case "longer":
            (content / "sub/x").write_bytes(os.urandom(10_001))
        case "unreadable manifest":
            newest_manifest(stored).write_bytes(b"{")
        case "huge manifest":
            with newest_manifest(stored).open("wb") as file:
                file.truncate(MOST_MANIFEST_BYTES + 1)
        case "names that leave":
            files = [{"name": "../../escaped", "size": 0, "sha256": "0" * 64}]
            change_manifest(stored, files=files, bytes=0)
        case "hash of another":
            change_manifest(stored, uploadId="0" * 32)
    found = restore(LocalStore(str(stored)), new)
    assert found.manifest is not None
    assert found.manifest.name == "c-1"
    assert len(found.skipped) == 1
    assert resumed(new) == OLD
    assert not (new.parent / "escaped").exists()
    assert sorted(os.listdir(new)) == [".resume-from", "c-1"]


def test_if_all_are_broken_nothing_is_restored(stored: Path, new: Path) -> None:
    shutil.rmtree(stored / "data")
    found = restore(LocalStore(str(stored)), new)
    assert found.manifest is None
    assert [each.name for each in found.skipped] == ["c-2", "c-1"]
    assert resumed(new) is None


def test_content_that_is_there_is_kept(stored: Path, new: Path) -> None:
    restore(LocalStore(str(stored)), new)
    before = (new / "c-2/model").stat().st_ino
    restore(LocalStore(str(stored)), new)
    assert (new / "c-2/model").stat().st_ino == before


@pytest.mark.parametrize("there", ["half of it", "more than it", "a file", "a link", "other content"])
def test_what_else_has_the_name_is_replaced(there: str, stored: Path, new: Path, tmp_path: Path) -> None:
    write(tmp_path, {"elsewhere/model": b"not ours"})
    match there:
        case "half of it":
            write(new, {"c-2/model": b"new"})
        case "more than it":
            write(new / "c-2", {**NEW, "surplus": b""})
        case "a file":
            write(new, {"c-2": b"x"})
        case "a link":
            new.mkdir()
            (new / "c-2").symlink_to(tmp_path / "elsewhere")
        case "other content":
            write(new / "c-2", {**NEW, "model": b"NEW"})
    restore(LocalStore(str(stored)), new)
    assert resumed(new) == NEW
    assert not (new / "c-2").is_symlink()
    assert contents(tmp_path / "elsewhere") == {"model": b"not ours"}
    assert sorted(os.listdir(new)) == [".resume-from", "c-2"]


def test_a_restore_that_was_killed_is_continued_and_what_others_left_goes(stored: Path, new: Path) -> None:
    upload_id = json.loads(newest_manifest(stored).read_text())["uploadId"]
    write(new, {f".tfjob-restore-{upload_id}/model": b"damaged", ".tfjob-restore-other/x": b"1"})
    restore(LocalStore(str(stored)), new)
    assert resumed(new) == NEW
    assert sorted(os.listdir(new)) == [".resume-from", "c-2"]


def test_a_planted_link_does_not_lead_the_restore_elsewhere(stored: Path, new: Path, tmp_path: Path) -> None:
    upload_id = json.loads(newest_manifest(stored).read_text())["uploadId"]
    (tmp_path / "elsewhere").mkdir()
    new.mkdir()
    (new / f".tfjob-restore-{upload_id}").symlink_to(tmp_path / "elsewhere")
    restore(LocalStore(str(stored)), new)
    assert resumed(new) == NEW
    assert contents(tmp_path / "elsewhere") == {}


def test_a_disk_that_is_full_ends_the_restore_rather_than_to_go_back(
    stored: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(1, 1, 1))  # type: ignore[attr-defined]
    with pytest.raises(StorageError, match="the disk is full"):
        restore(LocalStore(str(stored)), new)


def test_a_link_in_the_storage_is_not_followed(stored: Path, new: Path, tmp_path: Path) -> None:
    (content,) = (stored / "data/c-2").iterdir()
    write(tmp_path, {"same": NEW["sub/x"]})
    (content / "sub/x").unlink()
    (content / "sub/x").symlink_to(tmp_path / "same")
    found = restore(LocalStore(str(stored)), new)
    assert found.manifest is not None
    assert found.manifest.name == "c-1"
