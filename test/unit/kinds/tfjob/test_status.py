"""A TFJob's status in the words of its API, and back. Each `World` also writes and reads all of its statuses."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from helpers.clusterinmemory import running_world
from helpers.manifests import master, parameter_servers, workers
from tfjob_controller.api.tfjob.status import ReplicaStatus, ScalingStatus, TFJobStatus
from tfjob_controller.jobs.trainingjob import RoleStatus, Scaling, TrainingStatus
from tfjob_controller.kinds.tfjob.status import from_wire, to_wire

NEW = TFJobStatus()


def test_a_new_job_has_an_empty_status() -> None:
    assert from_wire(NEW) == TrainingStatus()
    assert to_wire(TrainingStatus(), NEW) == NEW


def test_roles_have_the_names_and_texts_of_tf_operator() -> None:
    roles = (RoleStatus("worker", {"Running": 2, "Failed": 1}, 2), RoleStatus("ps", {}, 0))
    wire = to_wire(TrainingStatus(phase="Running", roles=roles), NEW)
    assert msgspec.to_builtins(wire) == {
        "phase": "Running",
        "replicaStatuses": (
            {"tf_replica_type": "WORKER", "state": "Failed", "ReplicasStates": {"Running": 2, "Failed": 1}},
            {"tf_replica_type": "PS", "state": "Unknown"},
        ),
        "ready": {"worker": "2/3", "ps": "0/0"},
    }
    assert from_wire(wire).roles == roles


def test_the_last_resize_comes_back() -> None:
    scaling = Scaling(3, 2, 4, "free capacity", "a gang waits", 5, 6)
    wire = to_wire(TrainingStatus(scaling=scaling, scaled_replicas=3, scaled_selector="a=b"), NEW)
    assert wire.scaling == ScalingStatus(3, 2, 4, "free capacity", "a gang waits", 5, 6)
    assert (wire.workers, wire.worker_selector) == (3, "a=b")
    assert from_wire(wire).scaling == scaling


@pytest.mark.parametrize("text", ["", "many", "-1/2", "٣/3", "9" * 5000])
def test_a_text_that_was_edited_by_hand_counts_as_no_ready_replica(text: str) -> None:
    edited = TFJobStatus(replica_statuses=(ReplicaStatus("PS", "?", {"Running": 1}),), ready={"ps": text, "x": "1/1"})
    status = from_wire(edited)
    assert status.roles == (RoleStatus("ps", {"Running": 1}, 0),)
    repaired = to_wire(status, edited)
    assert (repaired.replica_statuses[0].state, repaired.ready) == ("Running", {"ps": "0/1"})


def test_what_the_controller_does_not_decide_stays() -> None:
    assert to_wire(TrainingStatus(phase="Running"), replace(NEW, control_paused=True)).control_paused


def test_a_running_job_has_no_change_to_write() -> None:
    cluster = running_world(master(), workers(2), parameter_servers(1))
    assert to_wire(cluster.status, cluster.job.status) == cluster.job.status
