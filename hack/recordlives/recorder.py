"""Follows the pods and child Jobs of one namespace, and records for each job what changes.

An object's name in a recording is its replica's and a number: `pod worker-0.2` is the second pod of worker 0.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from recordlives.statuses import changed_parts, job_status, pod_status

Object = dict[str, Any]

_JOB_LABELS = ("tf_job_name", "train_job_name")
_INDEX_LABELS = ("batch.kubernetes.io/job-completion-index", "task_index")
_FORMATS: dict[str, Callable[[Object, datetime], str]] = {"pod": pod_status, "job": job_status}


@dataclass(slots=True)
class Recording:
    """What happened to the children of a job that was created at `created`. Watches write, and any thread may read.

    `lock` is held until `created` is known.
    """

    created: datetime
    lines: list[str] = field(default_factory=list)
    changed_at: float = field(default_factory=time.monotonic)
    _names: dict[str, str] = field(default_factory=dict)
    _statuses: dict[str, str] = field(default_factory=dict)
    _pods: dict[str, Object] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, kind: str, change: str, obj: Object) -> None:
        """Records an object of a watch, unless nothing that is kept has changed."""
        with self.lock:
            uid = obj["metadata"]["uid"]
            name = self._names.setdefault(uid, "") or self._new_name(kind, obj)
            status, before = _FORMATS[kind](obj, self.created), self._statuses.get(uid, "")
            self._statuses[uid] = status
            if kind == "pod":
                self._pods[uid] = obj
            if status != before:
                self._append(f"{name} {changed_parts(before, status) if kind == 'pod' else status}")
            if change == "DELETED":
                self._append(f"{name} gone")
                self._pods.pop(uid, None)

    def note(self, text: str) -> None:
        """Adds a comment: what was done to the job."""
        with self.lock:
            self._append(f"# {text}")

    def pod(self, replica: str) -> Object | None:
        """Returns the newest pod of a replica such as worker-0, unless it was deleted."""
        with self.lock:
            pods = (pod for pod in reversed(self._pods.values()) if replica_of(pod) == replica)
            return next(pods, None)

    def _new_name(self, kind: str, obj: Object) -> str:
        stem = f"{kind} {replica_of(obj)}."
        name = f"{stem}{1 + sum(each.startswith(stem) for each in self._names.values())}"
        self._names[obj["metadata"]["uid"]] = name
        return name

    def _append(self, text: str) -> None:
        self.changed_at = time.monotonic()
        self.lines.append(f"{time.time() - self.created.timestamp():7.1f} {text}")


@dataclass(frozen=True, slots=True)
class Recorder:
    """A `localcluster.follower.Reader` of pods (`pod`) or Jobs (`job`), which serves the recordings of all jobs."""

    kind: str
    recordings: dict[str, Recording]

    def list_begins(self) -> None:
        """See Reader."""

    def take(self, change: str, obj: Object) -> None:
        labels = obj["metadata"].get("labels") or {}
        for name in (labels[label] for label in _JOB_LABELS if label in labels):
            if (recording := self.recordings.get(name)) is not None:
                recording.take(self.kind, change, obj)

    def list_ends(self, bookmark: Object) -> None:
        """See Reader."""


def replica_of(obj: Object) -> str:
    """Returns the type of a child's replica and its index, which the Indexed Job of all nodes lacks."""
    labels = obj["metadata"]["labels"]
    index = next((f"-{labels[label]}" for label in _INDEX_LABELS if label in labels), "")
    return f"{labels['job_type'].lower()}{index}"
