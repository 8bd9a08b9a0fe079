"""Decides how the pods of jobs end: by their job's plan, however often they are recreated."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from chaos.jobs.plan import KILLED, JobPlan, Part
from localcluster.fakekubelet import by_annotations
from localcluster.podstatus import Outcome
from tfjob_controller.jobs.naming import replica_id_of

Object = dict[str, Any]


class PodOutcomes:
    """The behaviour of a fake kubelet (see the module); `plan_of` gets a job's name. Thread-safe."""

    def __init__(self, plan_of: Callable[[str], JobPlan | None]) -> None:
        self._plan_of = plan_of
        self._lock = threading.Lock()
        self._starts: dict[tuple[str, str, str], int] = defaultdict(int)

    def __call__(self, pod: Object, attempt: int) -> Outcome:
        labels = pod["metadata"].get("labels") or {}
        job = labels.get("tf_job_name") or labels.get("train_job_name") or ""
        plan = self._plan_of(job)
        part = next((each for each in plan.parts if each.role == labels.get("job_type")), None) if plan else None
        if part is None:
            return by_annotations(pod, attempt)
        return self._outcome(part, (job, part.role, replica_id_of(labels).rpartition("-")[2]))

    def _outcome(self, part: Part, key: tuple[str, str, str]) -> Outcome:
        with self._lock:
            starts = self._starts[key]
            self._starts[key] += 1
        if key[2] == "0" and starts < part.failures:
            return Outcome(after_seconds=min(1.0, part.run_seconds or 1.0), exit_code=KILLED)
        return Outcome(after_seconds=part.run_seconds, exit_code=part.exit_code)
