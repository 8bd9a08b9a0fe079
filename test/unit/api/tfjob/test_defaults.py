"""The rules of api/tfjob/defaults.py."""

from typing import Any

import msgspec
import pytest

from helpers.manifests import master, parameter_servers, replica, tfjob, workers
from tfjob_controller.api.tfjob import defaults
from tfjob_controller.api.tfjob.types import Chief, TFJobSpec


def spec_of(*entries: Any, **fields: Any) -> TFJobSpec:
    return msgspec.convert(tfjob(*entries, **fields)["spec"], TFJobSpec)


@pytest.mark.parametrize(
    ("spec", "replicas"),
    [
        pytest.param(spec_of(master(), workers(3)), 3, id="the entry's own number"),
        pytest.param(spec_of(master(), workers(None)), 1, id="one where it says none"),
        pytest.param(spec_of(master(), workers(3), workerReplicas=5), 5, id="workerReplicas overrides it"),
        pytest.param(spec_of(master(), workers(3), workerReplicas=0), 0, id="also with zero"),
        pytest.param(spec_of(master(), workerReplicas=5), 0, id="a type that is not listed has none"),
    ],
)
def test_number_of_workers(spec: TFJobSpec, replicas: int) -> None:
    assert defaults.replicas_of(spec, "WORKER") == replicas


def test_worker_replicas_change_no_other_type() -> None:
    spec = spec_of(workerReplicas=7)
    assert (defaults.replicas_of(spec, "MASTER"), defaults.replicas_of(spec, "PS")) == (1, 2)


@pytest.mark.parametrize(
    ("spec", "chief"),
    [
        pytest.param(spec_of(), Chief("MASTER", 0), id="the master"),
        pytest.param(spec_of(workers(2), parameter_servers()), Chief("WORKER", 0), id="worker 0 without a master"),
        pytest.param(spec_of(parameter_servers()), Chief("MASTER", 0), id="the missing master without both"),
        pytest.param(spec_of(terminationPolicy={}), Chief("MASTER", 0), id="a policy that names none"),
        pytest.param(spec_of(workers(), terminationPolicy={"chief": {}}), Chief("MASTER", 0), id="an empty chief"),
        pytest.param(
            spec_of(terminationPolicy={"chief": {"replicaName": "WORKER", "replicaIndex": 2}}),
            Chief("WORKER", 2),
            id="as the job says",
        ),
    ],
)
def test_chief(spec: TFJobSpec, chief: Chief) -> None:
    assert defaults.chief_of(spec) == chief


def test_port_is_2222_unless_the_entry_says_otherwise() -> None:
    spec = spec_of(master(), workers(tfPort=8470))
    assert [defaults.port_of(entry) for entry in spec.replica_specs] == [2222, 8470]


def test_policies_have_defaults() -> None:
    assert defaults.clean_pod_policy_of(spec_of()) == "Running"
    assert defaults.failure_policy_of(spec_of()) == "Chief"
    given = spec_of(cleanPodPolicy="None", failurePolicy="AnyReplica")
    assert (defaults.clean_pod_policy_of(given), defaults.failure_policy_of(given)) == ("None", "AnyReplica")


def test_the_type_of_an_entry_is_master_where_none_is_given() -> None:
    entry = replica("MASTER")
    del entry["tfReplicaType"]
    assert defaults.replicas_of(spec_of(entry), "MASTER") == 1
