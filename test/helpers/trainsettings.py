"""Settings of TrainJobs, the input of frameworks."""

from __future__ import annotations

from typing import Any

from tfjob_controller.jobs.frameworks.base import Setting
from tfjob_controller.jobs.naming import child_name, gang_name

RUNTIME_ID = "a6no"


def setting_of(num_nodes: int = 3, job_name: str = "mnist", **values: Any) -> Setting:
    """Returns the setting of a job whose nodes have the names that the controller gives them."""
    service = gang_name(job_name, RUNTIME_ID)
    nodes = tuple(f"{child_name(job_name, 'node', RUNTIME_ID, index)}.{service}" for index in range(num_nodes))
    return Setting(job_name, num_nodes, nodes, **values)
