"""The policies that follow from flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from tfjob_controller.api.controllerconfig import ConfigError
from tfjob_controller.api.masterwait import default_wait
from tfjob_controller.jobs.plan.podgroupbackends import BACKENDS
from tfjob_controller.options import resolve
from tfjob_controller.programs.policies import gang_policy, master_wait_of, workers_of_namespace


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
def test_the_flags_select_the_gang_scheduler(flags: dict[str, str], backend: str, scheduler: str) -> None:
    policy = gang_policy(resolve(flags, {}))
    assert policy.backend is BACKENDS.get(backend)
    assert policy.scheduler_name == scheduler


@pytest.mark.parametrize(("workers", "most"), [("10", 8), ("4", 3), ("2", 1), ("1", 1), ("100", 80)])
def test_a_namespace_leaves_workers_to_the_others(workers: str, most: int) -> None:
    assert workers_of_namespace(resolve({"workers": workers}, {})) == most


def test_the_only_namespace_has_all_workers() -> None:
    assert workers_of_namespace(resolve({"namespace": "team"}, {})) is None


def test_a_template_is_read_only_for_pytorchjobs(tmp_path: Path) -> None:
    path = tmp_path / "template.yaml"
    path.write_text("no containers")
    flags = {"pytorch_init_container_template_file": str(path)}
    assert master_wait_of(resolve(flags | {"kubeflow_v1_api": "TFJob"}, {})) == default_wait()
    with pytest.raises(ConfigError, match="must be a list of containers"):
        master_wait_of(resolve(flags | {"kubeflow_v1_api": "TFJob,PyTorchJob"}, {}))
