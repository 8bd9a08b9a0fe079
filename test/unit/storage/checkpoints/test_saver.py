"""The sidecar: when it uploads, what it says, and how it ends. On a fake clock."""

from __future__ import annotations

import shutil
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from helpers.checkpoints import SidecarScene, write
from helpers.poll import eventually
from tfjob_controller.storage.checkpoints.report import UploadReport, Wanted
from tfjob_controller.storage.checkpoints.resumelink import RESUME_LINK
from tfjob_controller.storage.checkpoints.saver import Uploads


@pytest.fixture
def scene(tmp_path: Path) -> SidecarScene:
    return SidecarScene(tmp_path)


def finish(scene: SidecarScene, seconds: float = 60) -> None:
    """Ends the sidecar, while the time passes."""
    ending = threading.Thread(target=scene.saver.finish)
    ending.start()

    def moved() -> bool:
        scene.clock.advance(0.5)
        ending.join(0.005)
        return not ending.is_alive()

    eventually(moved)


@dataclass(slots=True)
class DroppingUploads:
    """Uploads that find their first candidates changed."""

    uploads: Uploads
    drops: int
    starts: int = 0
    dropped: list[Wanted] = field(default_factory=list)

    def start(self, candidates: list[Wanted], leftovers: list[str]) -> None:
        self.starts += 1
        self.dropped = candidates if self.starts <= self.drops else []
        if not self.dropped:
            self.uploads.start(candidates, leftovers)

    def poll(self) -> tuple[list[UploadReport], bool]:
        if self.dropped:
            return [UploadReport("dropped", each.name, each.fingerprint) for each in self.dropped], True
        return self.uploads.poll()

    def kill(self) -> None:
        self.uploads.kill()


def test_a_checkpoint_is_uploaded_once(scene: SidecarScene) -> None:
    scene.after(3)
    write(scene.folder, {"c-1/x": b"1"})
    scene.after(30)
    assert scene.saved == ["c-1"]
    assert len(scene.uploads.starts) == 1
    (line,) = scene.told
    assert set(line["checkpoint"]) == {"name", "step", "time", "bytes", "uri", "uploadId", "seconds"}
    assert line["checkpoint"]["step"] == 1


def test_a_checkpoint_that_is_written_again_is_uploaded_again(scene: SidecarScene) -> None:
    scene.after(3)
    for content in (b"1", b"22"):
        write(scene.folder, {"last.pt": content})
        scene.after(20)
    assert scene.saved == ["last.pt", "last.pt"]


def test_after_a_restart_nothing_is_uploaded_again(scene: SidecarScene) -> None:
    write(scene.folder, {"c-1/x": b"1"})
    scene.after(20)
    scene.start()
    scene.after(20)
    assert scene.saved == ["c-1"]
    assert "the storage has it" in scene.error.getvalue()


def test_an_older_one_never_follows_a_newer_one(scene: SidecarScene) -> None:
    scene.after(1)
    write(scene.folder, {"c-1/x": b"1"})
    scene.after(5)
    write(scene.folder, {"c-2/x": b"1", "c-2/.done": b""})
    scene.after(30)
    assert scene.saved == ["c-2"]
    assert "a newer checkpoint is" in scene.error.getvalue()


def test_a_checkpoint_that_the_program_removes_is_forgotten(scene: SidecarScene) -> None:
    scene.after(1)
    write(scene.folder, {"c-1/x": b"1"})
    scene.after(5)
    shutil.rmtree(scene.folder / "c-1")
    scene.after(30)
    assert scene.told == []


def test_a_new_checkpoint_does_not_wait_because_earlier_ones_were_dropped(scene: SidecarScene) -> None:
    scene.after(1)
    scene.saver.uploads = uploads = DroppingUploads(scene.saver.uploads, drops=8)
    for number in range(1, 10):
        shutil.rmtree(scene.folder / f"c-{number - 1}", ignore_errors=True)
        write(scene.folder, {f"c-{number}/x": b"1", f"c-{number}/.done": b""})
        scene.after(1)
    scene.after(1)
    assert (uploads.starts, scene.saved) == (9, ["c-9"])


def test_a_checkpoint_that_is_always_dropped_is_not_tried_at_each_look(scene: SidecarScene) -> None:
    scene.after(1)
    scene.saver.uploads = uploads = DroppingUploads(scene.saver.uploads, drops=1000)
    write(scene.folder, {"c-1/x": b"1", "c-1/.done": b""})
    scene.after(120)
    assert 2 <= uploads.starts <= 30


def test_a_storage_that_is_away_is_said_once_and_tried_again(scene: SidecarScene) -> None:
    """A file where the storage's folder should be, until it is removed."""
    (scene.path / "store").write_bytes(b"")
    scene.after(1)
    write(scene.folder, {"c-1/x": b"1"})
    scene.after(300)
    assert len(scene.failed) == 1
    assert scene.failed[0][0] == "c-1"
    assert 3 <= len(scene.uploads.starts) <= 12
    (scene.path / "store").unlink()
    scene.after(61)
    assert scene.saved == ["c-1"]


def test_what_cannot_be_saved_is_said_once(scene: SidecarScene) -> None:
    write(scene.folder, {"c-1/x": b"1", "a\nb": b""})
    (scene.folder / "c-1/link").symlink_to("/proc/self/environ")
    scene.after(60)
    assert sorted(name for name, _ in scene.failed) == ["a\nb", "c-1"]
    assert scene.saved == []


def test_at_the_end_what_stays_as_it_is_for_a_second_is_saved(scene: SidecarScene) -> None:
    scene.after(3)
    write(scene.folder, {"c-1/x": b"1"})
    finish(scene)
    assert scene.saved == ["c-1"]


def test_at_the_end_what_is_saved_needs_no_upload(scene: SidecarScene) -> None:
    write(scene.folder, {"c-1/x": b"1"})
    scene.after(20)
    finish(scene)
    assert len(scene.uploads.starts) == 1


def test_after_the_grace_period_it_says_what_is_not_saved(scene: SidecarScene) -> None:
    scene.after(3)
    write(scene.folder, {"c-1/x": b"1"})
    scene.uploads.is_slow = True
    finish(scene)
    assert scene.uploads.killed == 1
    ((name, reason),) = scene.failed
    assert name == "c-1"
    assert "the grace period of 25 s is over" in reason


def resumes_from(scene: SidecarScene) -> str:
    """The name of the checkpoint from which a restarted container would go on; empty if there is none."""
    link = scene.folder / RESUME_LINK
    return link.readlink().name if link.exists() else ""


def test_a_restarted_container_goes_on_from_the_newest_checkpoint_that_is_saved(scene: SidecarScene) -> None:
    for number in (1, 2):
        write(scene.folder, {f"c-{number}/x": b"1"})
        assert resumes_from(scene) == ("c-1" if number > 1 else "")
        scene.after(20)
        assert resumes_from(scene) == f"c-{number}"
    assert [each.name for each in scene.folder.iterdir() if each.name.startswith(".")] == [RESUME_LINK]


def test_what_the_storage_has_when_the_sidecar_starts_counts_as_saved(scene: SidecarScene) -> None:
    write(scene.folder, {"c-1/x": b"1"})
    scene.after(20)
    (scene.folder / RESUME_LINK).unlink()
    scene.start()
    scene.after(20)
    assert resumes_from(scene) == "c-1"


def test_if_the_program_has_removed_it_the_newest_complete_one_takes_its_place(scene: SidecarScene) -> None:
    write(scene.folder, {"c-1/x": b"1"})
    scene.after(20)
    scene.uploads.is_slow = True
    write(scene.folder, {"c-2/x": b"1"})
    shutil.rmtree(scene.folder / "c-1")
    scene.after(5)
    assert resumes_from(scene) == ""
    scene.after(10)
    assert (scene.saved, resumes_from(scene)) == (["c-1"], "c-2")


def test_a_folder_in_the_place_of_the_link_does_not_stop_the_saving(scene: SidecarScene) -> None:
    write(scene.folder, {f"{RESUME_LINK}/x": b"", "c-1/x": b"1"})
    scene.after(20)
    write(scene.folder, {"c-2/x": b"1"})
    scene.after(20)
    assert scene.saved == ["c-1", "c-2"]
    assert "will not resume from it" in scene.error.getvalue()
    assert [each.name for each in scene.folder.iterdir() if each.name.startswith(".")] == [RESUME_LINK]


def test_texts_are_bounded(scene: SidecarScene) -> None:
    scene.saver.log.failed("n" * 1000, "r" * 5000)
    ((name, reason),) = scene.failed
    assert (len(name), len(reason)) == (253, 1000)
