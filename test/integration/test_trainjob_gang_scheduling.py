"""TrainJobs as gangs, with everything real but the kubelet: controller, gang scheduler, kube-scheduler, Job controller.

Two nodes with four CPUs each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from helpers.cluster import Cluster
from helpers.controller import Jobs, running_controller
from helpers.gangowner import GANGS, SMALL
from helpers.playground import CONFIG, Playground, Script, Trial, condition
from helpers.trainjobs import (
    await_ready,
    await_restart,
    nodes,
)
from localcluster.api import Api
from localcluster.fakekubelet import FakeKubelet
from tfjob_controller.jobs.naming import replica_id_of

pytestmark = pytest.mark.cluster

Object = dict[str, Any]
NewTrial = Callable[[], Trial]

TWO_CPUS: Object = {"resourcesPerNode": {"requests": {"cpu": "2"}}}
ON: Object = {"gang": {"enabled": True}, "trainer": TWO_CPUS}


@pytest.fixture
def new_trial(gang_scheduling: Cluster) -> Iterator[NewTrial]:
    script, trials = Script(), []
    api = Api.from_kubeconfig(gang_scheduling.kubeconfig)
    with (
        FakeKubelet(api, namespace="gangs", nodes=("node-a", "node-b"), resources=SMALL, behaviour=script),
        running_controller(gang_scheduling.kubeconfig, "gangs", config=CONFIG) as manager,
    ):
        playground = Playground(manager, Jobs(gang_scheduling.api, "gangs"), script)

        def new() -> Trial:
            trials.append(playground.new_train_trial())
            return trials[-1]

        yield new
        for trial in trials:
            trial.clear()


def waits_whole(trial: Trial) -> None:
    """Its status says for what, and nothing of it is there."""
    status = trial.await_reason("waits for capacity", "cpu")
    assert (condition(status, "Scheduled")["status"], "startTime" in status) == ("False", False)
    assert [trial.children(kind) for kind in ("jobs", "services", "pods")] == [{}, {}, {}]


def end_all(trial: Trial, count: int) -> None:
    for node in nodes(count):
        trial.end(node)
    assert trial.await_end()["state"] == "SUCCESS"


def placement(trial: Trial) -> dict[str, str]:
    """The node of each member, as its Gang says."""
    (gang,) = [each for each in trial.jobs.api.list(GANGS.format("gangs")) if trial.name in each["metadata"]["name"]]
    places = gang["status"]["placement"]
    return {member: each["node"] for each in places for member in each["members"]}


def whereabouts(trial: Trial) -> dict[str, str]:
    """The node of each member's pod."""
    pods = [pod for pod in trial.children("pods").values() if "deletionTimestamp" not in pod["metadata"]]
    return {replica_id_of(pod["metadata"]["labels"]): pod["spec"].get("nodeName", "") for pod in pods}


def test_of_two_jobs_that_do_not_fit_one_runs_whole_also_once_more_and_the_other_waits_whole(
    new_trial: NewTrial,
) -> None:
    first, second = new_trial(), new_trial()
    first.train(3, command=("torchrun",), **ON)
    await_ready(first, 3)
    before = placement(first)
    assert whereabouts(first) == before
    second.train(3, command=("torchrun",), **ON)
    waits_whole(second)
    first.end("node-1", 137)
    await_restart(first, 1, 3)
    assert whereabouts(first) == placement(first) == before
    waits_whole(second)
    end_all(first, 3)
    await_ready(second, 3)
    end_all(second, 3)


def test_a_launcher_and_its_nodes_start_together_or_not_at_all(new_trial: NewTrial) -> None:
    first, second = new_trial(), new_trial()
    first.train(4, **ON)
    await_ready(first, 4)
    second.train(2, command=("mpirun",), **ON)
    waits_whole(second)
    end_all(first, 4)
    await_ready(second)
    assert set(whereabouts(second)) == {"launcher-0", "node-0", "node-1"}
    assert whereabouts(second) == placement(second)
    second.end("launcher-0")
    assert second.await_end()["state"] == "SUCCESS"
