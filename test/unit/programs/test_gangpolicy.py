"""What the flags make of gangs: who runs them, and which scheduler their pods name."""

from __future__ import annotations

import pytest

from tfjob_controller.options import resolve
from tfjob_controller.programs.gangpolicy import gang_policy
from tfjob_controller.trainer.podgroup.backends import BACKENDS


@pytest.mark.parametrize(
    ("flags", "backend", "scheduler"),
    [
        pytest.param({}, "", "gang-scheduler", id="our own"),
        pytest.param({"gang_backend": "volcano"}, "volcano", "volcano", id="volcano"),
        pytest.param(
            {"gang_backend": "coscheduling"}, "coscheduling", "scheduler-plugins-scheduler", id="coscheduling"
        ),
        pytest.param({"gang_backend": "kubernetes"}, "kubernetes", "", id="the cluster's own"),
        pytest.param({"gang_backend": "kueue"}, "kueue", "", id="whichever the job names"),
        pytest.param({"gang_backend": "volcano", "gang_scheduler_name": "batch"}, "volcano", "batch", id="renamed"),
        pytest.param({"gang_backend": "kueue", "gang_scheduling": "off"}, "", "gang-scheduler", id="no gangs at all"),
    ],
)
def test_the_flags_say_who_runs_gangs(flags: dict[str, str], backend: str, scheduler: str) -> None:
    policy = gang_policy(resolve(flags, {}))
    assert policy.backend is BACKENDS.get(backend)
    assert policy.scheduler_name == scheduler
