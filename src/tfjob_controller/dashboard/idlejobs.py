"""Which jobs have left all of their GPUs unused for half an hour, for the page of all jobs. Pure.

The pods that report GPUs are told apart by their names, which contain the runtime id of a job, or the name of a job
that owns its pods. Pods that are not read cost the API server nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from tfjob_controller.client.liveuse.gpus import IDLE_MINUTES
from tfjob_controller.client.liveuse.jobuse import is_before
from tfjob_controller.client.liveuse.podmetrics import PodKey
from tfjob_controller.dashboard.jobrows import JobRow

# `jobs.naming.child_name`, and what the Job controller adds; the runtime id is the group.
_OF_CHILD_JOB = re.compile(r".+-([a-z][0-9a-z]{3})-[0-9]+-[0-9a-z]{5}")
# The pods that a job owns; its name is the group.
_OF_OWNER = re.compile(r"(.+)-[a-z]+-[0-9]+")


@dataclass(frozen=True, slots=True)
class IdleJobs:
    """`keys` are namespaces, with what the names of a job's pods contain."""

    keys: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def of(cls, peaks_of_pods: Mapping[PodKey, float]) -> IdleJobs:
        """From the highest utilization of the GPUs of each pod."""
        peaks: dict[tuple[str, str], float] = {}
        for (namespace, pod), peak in peaks_of_pods.items():
            match = _OF_CHILD_JOB.fullmatch(pod) or _OF_OWNER.fullmatch(pod)
            if match is not None:
                key = namespace, match[1]
                peaks[key] = max(peak, peaks.get(key, 0.0))
        return cls(frozenset(key for key, peak in peaks.items() if peak == 0))

    def includes(self, row: JobRow, now: datetime) -> bool:
        """Whether none of the GPUs of a job that runs was used in the last half hour.

        Pods that a job owns may have the names of those of an earlier job.
        """
        meta = row.metadata
        if (meta.namespace, row.children) not in self.keys:
            return False
        begin = now - timedelta(minutes=IDLE_MINUTES)
        return row.children != meta.name or is_before(meta.creation_timestamp or "", begin)
