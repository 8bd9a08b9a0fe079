"""Jobs as a table."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TypeAlias

from tfjob_controller.api.tfjob import TFJob
from tfjob_controller.client.ages import age
from tfjob_controller.client.job import Job
from tfjob_controller.client.tables import Table

Jobs: TypeAlias = Table[Job]


def job_table(jobs: Iterable[Job], now: datetime) -> Jobs:
    """`now`: when they were read."""
    return Table(
        jobs,
        {
            "Namespace": lambda job: job.namespace,
            "Kind": lambda job: job.kind,
            "Name": lambda job: job.name,
            "Phase": lambda job: job.phase,
            "Ready": _ready,
            "Age": lambda job: age(job.snapshot.metadata.creation_timestamp, now),
            "Reason": lambda job: job.reason,
        },
    )


def _ready(job: Job) -> str:
    """Replicas of each type that are ready, of those wanted."""
    found = job.snapshot.job
    if isinstance(found, TFJob):
        return ", ".join(f"{role} {count}" for role, count in found.status.ready.items())
    return f"node {found.status.nodes}" if found.status.nodes else ""
