"""Tests of lab.checkpoints.auditor: each rule is violated once, on a folder as the storage."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from lab.checkpoints.auditor import Auditor
from lab.checkpoints.storages import FolderReader

JOB = "job"


@pytest.fixture
def auditor(tmp_path: Path) -> Auditor:
    (tmp_path / JOB).mkdir()
    return Auditor({JOB: FolderReader(tmp_path)})


def save(root: Path, sequence: int, step: int, content: bytes = b"weights") -> Path:
    """Writes a checkpoint with one file; returns the path of its manifest."""
    upload_id = f"{sequence:032x}"
    data = root / JOB / "data" / f"checkpoint-{step}" / upload_id
    data.mkdir(parents=True)
    (data / "w").write_bytes(content)
    files = [{"name": "w", "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}]
    manifest = root / JOB / "manifests" / f"{sequence:012d}-20260101T000000Z-{upload_id}.json"
    manifest.parent.mkdir(exist_ok=True)
    fields = {"name": f"checkpoint-{step}", "uploadId": upload_id, "step": step, "files": files}
    manifest.write_text(json.dumps(fields))
    return manifest


def rules(auditor: Auditor) -> list[str]:
    return [each["rule"] for each in auditor.violations]


def file_of(root: Path, step: int) -> Path:
    (found,) = (root / JOB / "data" / f"checkpoint-{step}").glob("*/w")
    return found


def test_whole_checkpoints_in_order_are_no_violation(auditor: Auditor, tmp_path: Path) -> None:
    save(tmp_path, 1, 10)
    auditor.look()
    save(tmp_path, 2, 20)
    auditor.look()
    auditor.judge_restore(JOB, 20, float("inf"))
    auditor.judge_end(JOB)
    auditor.judge_kept(JOB, 2)
    assert (auditor.saved, auditor.violations) == (2, [])


def test_a_file_with_other_bytes_is_broken_when_its_manifest_appears(auditor: Auditor, tmp_path: Path) -> None:
    save(tmp_path, 1, 10)
    file_of(tmp_path, 10).write_bytes(b"WEIGHTS")
    auditor.look()
    assert rules(auditor) == ["broken"]


def test_a_missing_file_is_broken_at_the_end(auditor: Auditor, tmp_path: Path) -> None:
    save(tmp_path, 1, 10)
    auditor.look()
    file_of(tmp_path, 10).unlink()
    auditor.judge_end(JOB)
    assert rules(auditor) == ["broken"]


def test_a_checkpoint_that_was_removed_is_not_broken(auditor: Auditor, tmp_path: Path) -> None:
    manifest = save(tmp_path, 1, 10)
    auditor.look()
    manifest.unlink()
    file_of(tmp_path, 10).unlink()
    auditor.judge_end(JOB)
    assert auditor.violations == []


def test_a_program_must_not_go_on_from_an_older_checkpoint(auditor: Auditor, tmp_path: Path) -> None:
    save(tmp_path, 1, 10)
    save(tmp_path, 2, 20)
    auditor.look()
    newest = auditor.newest(JOB)
    assert newest is not None
    auditor.judge_restore(JOB, 10, newest.seen_at)
    assert rules(auditor) == ["older"]


def test_a_checkpoint_that_was_saved_after_the_restore_began_need_not_be_restored(
    auditor: Auditor, tmp_path: Path
) -> None:
    save(tmp_path, 1, 10)
    auditor.look()
    newest = auditor.newest(JOB)
    assert newest is not None
    auditor.judge_restore(JOB, 0, newest.seen_at - 1)
    assert auditor.violations == []


def test_a_newer_checkpoint_must_not_have_a_lower_step(auditor: Auditor, tmp_path: Path) -> None:
    save(tmp_path, 1, 20)
    auditor.look()
    save(tmp_path, 2, 10)
    auditor.look()
    assert rules(auditor) == ["order"]


def test_no_more_than_the_kept_checkpoints_may_be_left(auditor: Auditor, tmp_path: Path) -> None:
    save(tmp_path, 1, 10)
    save(tmp_path, 2, 20)
    auditor.look()
    auditor.judge_kept(JOB, 1)
    assert set(rules(auditor)) == {"kept"}


def test_the_newest_checkpoints_must_be_those_that_are_left(auditor: Auditor, tmp_path: Path) -> None:
    save(tmp_path, 1, 10)
    manifest = save(tmp_path, 2, 20)
    auditor.look()
    manifest.unlink()
    file_of(tmp_path, 20).unlink()
    auditor.judge_kept(JOB, 1)
    assert rules(auditor) == ["kept"]


def test_files_of_no_checkpoint_must_not_be_left(auditor: Auditor, tmp_path: Path) -> None:
    save(tmp_path, 1, 10)
    save(tmp_path, 2, 20).unlink()
    auditor.look()
    auditor.judge_kept(JOB, 1)
    assert rules(auditor) == ["kept"]


def test_a_manifest_that_is_none_is_broken(auditor: Auditor, tmp_path: Path) -> None:
    save(tmp_path, 1, 10).write_text("{")
    auditor.look()
    assert rules(auditor) == ["broken"]
