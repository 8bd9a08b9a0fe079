"""Plays cases: creates their jobs, does what their programs cannot do themselves, and writes their files."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from localcluster import nodes, stack
from localcluster.api import Api, RefusedError
from localcluster.report import silent
from recordlives.manifests import SAFE, VICTIM, Place, container_of, image, manifests, own_image, subject_of
from recordlives.matrix import DIMENSIONS, Case
from recordlives.recorder import Recording

LIMIT_SECONDS = 240.0
# A job whose image is gone waits for it for ever.
_IMAGE_GONE_SECONDS = 90.0
# Nothing more is expected when nothing has changed for so long after the end of the job.
_QUIET_SECONDS = 10.0
_START_SECONDS = 40.0
_SUSPENDED_SECONDS = 6.0
_REBOOT_SECONDS = 3.0
# Longer than it takes until the node is NotReady and its pods are given up.
_LOST_SECONDS = 75.0
_DRAIN_SECONDS = 15.0
_POLL_SECONDS = 0.2
_ENDED = ("Done", "Failed")


@dataclass(frozen=True, slots=True)
class Life:
    """A case that is played. `path` is that of its job, it may take `limit` s; `deadline` is monotonic."""

    case: Case
    place: Place
    path: str
    recording: Recording
    limit: float
    deadline: float

    def is_running(self) -> bool:
        """Reports whether the program of the subject runs."""
        pod = self.recording.pod(subject_of(self.case)) or {}
        statuses = (pod.get("status") or {}).get("containerStatuses") or ()
        return any(each["name"] == container_of(self.case) and "running" in each["state"] for each in statuses)


@dataclass(frozen=True, slots=True)
class Player:
    """Plays cases in one namespace of a stack with two nodes; `folder` is the stack's. Thread-safe.

    `marks` is a folder on the nodes, and `output` gets the files.
    """

    api: Api
    folder: Path
    namespace: str
    marks: Path
    output: Path
    recordings: dict[str, Recording] = field(default_factory=dict)
    stopping: threading.Event = field(default_factory=threading.Event)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def play(self, cases: Sequence[Case]) -> list[str]:
        """Plays cases to which the same thing happens at the same time; returns a line for each."""
        lives = [self._begin(case) for case in cases]
        self._await(lives, _START_SECONDS, lambda life: life.is_running() or self._phase(life) in _ENDED)
        time.sleep(1.0)
        if (act := _ACTS.get(cases[0]["event"])) is not None:
            act(self, lives)
        self._suspend([life for life in lives if life.case["suspend"] == "meanwhile"])
        self._await(lives, LIMIT_SECONDS, self._is_over)
        return [self._end(life) for life in lives]

    def _begin(self, case: Case) -> Life:
        name = f"life-{next(self.numbers)}"
        place = Place(name, str(self.marks / name))
        if own_image(case, place) != image(case):
            nodes.tag_image(self.folder, image(case), own_image(case, place), silent)
        # The recording begins before the first child can appear.
        recording = self.recordings[name] = Recording(datetime.now(UTC))
        path = ""
        with recording.lock:
            for body in manifests(case, place):
                path = f"/apis/{body['apiVersion']}/namespaces/{self.namespace}/{body['kind'].lower()}s"
                created = self.api.create(path, body)["metadata"]["creationTimestamp"]
                recording.created = datetime.fromisoformat(created)
        limit = _IMAGE_GONE_SECONDS if case["event"] == "image-gone" else LIMIT_SECONDS
        return Life(case, place, f"{path}/{name}", recording, limit, time.monotonic() + limit)

    def _await(self, lives: Sequence[Life], seconds: float, condition: Callable[[Life], bool]) -> None:
        deadline = time.monotonic() + seconds
        for life in lives:
            while time.monotonic() < min(deadline, life.deadline) and not condition(life):
                if self.stopping.wait(_POLL_SECONDS):
                    raise InterruptedError("interrupted")

    def _phase(self, life: Life) -> str:
        return str((self.api.get(life.path).get("status") or {}).get("phase", ""))

    def _is_over(self, life: Life) -> bool:
        return time.monotonic() - life.recording.changed_at > _QUIET_SECONDS and self._phase(life) in _ENDED

    def _suspend(self, lives: Sequence[Life]) -> None:
        for is_suspended in (True, False) if lives else ():
            _note(lives, "suspend" if is_suspended else "resume")
            for life in lives:
                self.api.patch(life.path, {"spec": {"suspend": is_suspended}})
            time.sleep(_SUSPENDED_SECONDS if is_suspended else 0.0)

    def _end(self, life: Life) -> str:
        """Writes the file. A job that goes on is deleted."""
        phase = self._phase(life)
        life.recording.note(f"the job is in phase {phase}" + ("" if phase in _ENDED else f" after {life.limit:g} s"))
        if phase not in _ENDED:
            del self.recordings[life.place.name]
            self.api.delete(life.path, propagationPolicy="Background")
        path = self.output / f"{life.case.name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text_of(life.case, life.recording.lines))
        return f"{life.case.name}: {phase}, {len(life.recording.lines)} lines"

    # What is done to the subjects. The others are ended by programs, probes and limits.

    def delete(self, lives: Sequence[Life], **options: int) -> None:
        text = "".join(f", {name}={value}" for name, value in options.items())
        for path, _ in self._pods(lives, f"delete {{}}{text}"):
            self.api.delete(path, **options)

    def evict(self, lives: Sequence[Life]) -> None:
        for path, name in self._pods(lives, "evict {}"):
            meta = {"name": name, "namespace": self.namespace}
            # The pod may have ended meanwhile.
            with contextlib.suppress(RefusedError):
                self.api.create(f"{path}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta})

    def drain(self, lives: Sequence[Life]) -> None:
        node = f"/api/v1/nodes/{VICTIM}"
        self.api.patch(node, {"spec": {"unschedulable": True}})
        try:
            self.evict(lives)
            time.sleep(_DRAIN_SECONDS)
        finally:
            self.api.patch(node, {"spec": {"unschedulable": None}})

    def kill_node(self, lives: Sequence[Life], seconds: float) -> None:
        number = int(VICTIM.removeprefix(SAFE[:-1]))
        _note(lives, f"kill the node of {{}} for {seconds:g} s")
        stack.node_kill(self.folder, number, silent)
        try:
            time.sleep(seconds)
        finally:
            stack.node_start(self.folder, number, silent)
        _note(lives, "the node is Ready again")

    def remove_image(self, lives: Sequence[Life]) -> None:
        for life in lives:
            nodes.untag_image(self.folder, own_image(life.case, life.place), silent)
        _note(lives, "remove the image of {}")

    def _pods(self, lives: Sequence[Life], text: str) -> Iterator[tuple[str, str]]:
        for life in lives:
            if (pod := life.recording.pod(subject_of(life.case))) is not None:
                _note([life], text)
                name = pod["metadata"]["name"]
                yield f"/api/v1/namespaces/{self.namespace}/pods/{name}", name


_ACTS: dict[str, Callable[[Player, Sequence[Life]], None]] = {
    "delete-short": lambda player, lives: player.delete(lives, gracePeriodSeconds=1),
    "delete-long": Player.delete,
    "evict-api": Player.evict,
    "drain": Player.drain,
    "reboot": lambda player, lives: player.kill_node(lives, _REBOOT_SECONDS),
    "node-lost": lambda player, lives: player.kill_node(lives, _LOST_SECONDS),
    "image-gone": Player.remove_image,
}


def _note(lives: Sequence[Life], text: str) -> None:
    for life in lives:
        life.recording.note(text.replace("{}", subject_of(life.case)))


def text_of(case: Case, lines: Sequence[str]) -> str:
    """Returns the content of a file: the values of the case, and what was recorded."""
    values = [f"{name}: {case[name]}" for name in DIMENSIONS]
    head = "# Written by `make record-lives`; hack/recordlives/statuses.py has the format."
    return "\n".join([head, *values, "", *lines, ""])
