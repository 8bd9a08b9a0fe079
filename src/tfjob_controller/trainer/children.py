"""Bodies of children, ready for JSON. Each call builds new dicts but shares what it takes over from the template."""

from __future__ import annotations

from typing import Any

from tfjob_controller.trainer.plan import Plan, Replica

Body = dict[str, Any]


def build_job(plan: Plan, replica: Replica, *, suspend: bool = False) -> Body:
    """The batch/v1 Job that runs one replica."""
    raise NotImplementedError


def build_service(plan: Plan, replica: Replica) -> Body:
    """The headless Service that gives one replica its name."""
    raise NotImplementedError


def build_config_map(plan: Plan) -> Body:
    """The ConfigMap with the default parameter server's script (`plan.config_map` is its name)."""
    raise NotImplementedError
