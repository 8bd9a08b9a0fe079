"""The defaults of the jobs of `kubeflow.org/v1`. Numbers in ids are those of the cases in the contract."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.v1manifests import decoded_v1, v1_job, v1_manifest, v1_replicas
from tfjob_controller.api.kubeflowv1.defaults import with_defaults
from tfjob_controller.api.kubeflowv1.types import V1_KINDS, V1Spec

# The kinds whose pods have a port.
SERVED = [kind for kind, row in V1_KINDS.items() if row.port]


def spec_of(kind: str, replicas: Any, **spec: Any) -> V1Spec:
    """Returns the specification of a job with its defaults."""
    return with_defaults(v1_job(kind, replicas, **spec)).spec


def ports_of(spec: V1Spec, type_: str = "Worker") -> list[Any]:
    """Returns the ports of each container of a type."""
    return [container.get("ports") for container in spec.replica_specs[type_].template["spec"]["containers"]]


@pytest.mark.parametrize(
    ("policy", "limits"),
    [
        pytest.param({}, (4, 4), id="75: no limit"),
        pytest.param({"minReplicas": 1}, (1, 1), id="76: minReplicas"),
        pytest.param({"maxReplicas": 2}, (2, 2), id="77: maxReplicas"),
        pytest.param({"minReplicas": 1, "maxReplicas": 2}, (1, 2), id="both"),
    ],
)
@pytest.mark.parametrize("kind", ["PyTorchJob", "PaddleJob"])
def test_absent_limits_of_an_elastic_policy(kind: str, policy: Any, limits: tuple[int, int]) -> None:
    elastic = spec_of(kind, {"Worker": 4}, elasticPolicy=policy).elastic_policy
    assert elastic is not None
    assert (elastic.min_replicas, elastic.max_replicas) == limits


def test_an_elastic_policy_without_workers_has_no_limits() -> None:
    elastic = spec_of("PaddleJob", {"Master": 1}, elasticPolicy={}).elastic_policy
    assert elastic is not None
    assert (elastic.min_replicas, elastic.max_replicas) == (None, None)


@pytest.mark.parametrize(
    ("kind", "spec", "nproc"),
    [
        pytest.param("PyTorchJob", {}, "auto", id="78: no elasticPolicy"),
        pytest.param("PyTorchJob", {"elasticPolicy": {}}, "auto", id="78: an elasticPolicy without nProcPerNode"),
        pytest.param("PyTorchJob", {"elasticPolicy": {"nProcPerNode": 2}}, None, id="nProcPerNode of elasticPolicy"),
        pytest.param("PyTorchJob", {"nprocPerNode": "gpu"}, "gpu", id="nprocPerNode"),
        pytest.param("TFJob", {}, None, id="another kind"),
    ],
)
def test_processes_of_a_pytorchjob(kind: str, spec: Any, nproc: str | None) -> None:
    assert spec_of(kind, {"Worker": 1}, **spec).nproc_per_node == nproc


@pytest.mark.parametrize(
    ("kind", "given", "types"),
    [
        pytest.param("TFJob", "WORKER", ["Worker"], id="79: WORKER"),
        pytest.param("TFJob", "ps", ["PS"], id="79: ps"),
        pytest.param("PyTorchJob", "master", ["Master"], id="79: master of a PyTorchJob"),
        pytest.param("TFJob", "Helper", ["Helper"], id="an unknown type"),
    ],
)
def test_the_case_of_replica_types(kind: str, given: str, types: list[str]) -> None:
    assert list(spec_of(kind, {given: 1}).replica_specs) == types


def test_replica_types_come_in_the_order_of_the_kind_and_unknown_ones_last() -> None:
    given = {"Zebra": 1, "EVALUATOR": 1, "worker": 1, "Alpha": 1, "PS": 1, "Chief": 1}
    assert list(spec_of("TFJob", given).replica_specs) == ["Chief", "PS", "Worker", "Evaluator", "Alpha", "Zebra"]


@pytest.mark.parametrize("kind", list(V1_KINDS))
def test_replicas_and_restart_policies(kind: str) -> None:
    first = V1_KINDS[kind].types[0]
    spec = spec_of(kind, {first: v1_replicas(kind)})
    policy = "OnFailure" if kind in ("PyTorchJob", "PaddleJob") else "Never"
    assert (spec.replica_specs[first].replicas, spec.replica_specs[first].restart_policy) == (1, policy)
    given = spec_of(kind, {first: v1_replicas(kind, 0, restartPolicy="ExitCode")})
    assert (given.replica_specs[first].replicas, given.replica_specs[first].restart_policy) == (0, "ExitCode")


def test_an_mpijob_without_a_number_of_workers_has_none() -> None:
    assert spec_of("MPIJob", {"Launcher": None, "Worker": None}).replica_specs["Worker"].replicas == 0


@pytest.mark.parametrize("kind", SERVED)
def test_a_port_is_added_to_the_training_container(kind: str) -> None:
    row = V1_KINDS[kind]
    added = {"name": row.port_name, "containerPort": row.port}
    assert ports_of(spec_of(kind, {"Worker": 1})) == [[added]]
    sidecar = {"name": "sidecar", "image": "s"}
    own = {"name": "metrics", "containerPort": 9}
    containers = [sidecar, {"name": row.container, "image": "i", "ports": [own]}]
    worker = {"template": {"spec": {"containers": containers}}}
    assert ports_of(spec_of(kind, {"Worker": worker})) == [None, [own, added]]


@pytest.mark.parametrize("kind", SERVED)
def test_a_port_of_the_name_of_the_kind_is_kept(kind: str) -> None:
    port = {"name": V1_KINDS[kind].port_name, "containerPort": 1234}
    containers = [{"name": V1_KINDS[kind].container, "image": "i", "ports": [port]}]
    assert ports_of(spec_of(kind, {"Worker": {"template": {"spec": {"containers": containers}}}})) == [[port]]


def test_without_a_training_container_the_first_one_gets_the_port() -> None:
    containers = [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]
    worker = {"template": {"spec": {"containers": containers}}}
    assert ports_of(spec_of("TFJob", {"Worker": worker})) == [[{"name": "tfjob-port", "containerPort": 2222}], None]
    assert spec_of("TFJob", {"Worker": {}}).replica_specs["Worker"].template == {}


def test_the_containers_of_an_mpijob_get_no_port() -> None:
    assert ports_of(spec_of("MPIJob", {"Worker": 1})) == [None]


@pytest.mark.parametrize(
    ("kind", "spec", "policy"),
    [
        pytest.param("MPIJob", {"cleanPodPolicy": "Running"}, "Running", id="137: of spec"),
        pytest.param("MPIJob", {"runPolicy": {"cleanPodPolicy": "All"}}, "All", id="138: of runPolicy"),
        pytest.param(
            "MPIJob", {"cleanPodPolicy": "Running", "runPolicy": {"cleanPodPolicy": "All"}}, "All", id="138: of both"
        ),
        pytest.param("MPIJob", {}, "None", id="139: none"),
        pytest.param("TFJob", {}, "None", id="none of another kind"),
        pytest.param("TFJob", {"cleanPodPolicy": "All"}, "None", id="of the spec of another kind"),
        pytest.param("TFJob", {"runPolicy": {"cleanPodPolicy": ""}}, "All", id="empty"),
        pytest.param("TFJob", {"runPolicy": {"cleanPodPolicy": "all"}}, "All", id="unknown"),
    ],
)
def test_the_policy_for_pods_of_ended_jobs(kind: str, spec: Any, policy: str) -> None:
    assert spec_of(kind, {"Worker": 1}, **spec).run_policy.clean_pod_policy == policy


def test_a_deadline_that_no_timer_takes_becomes_the_longest_one() -> None:
    assert (
        spec_of("TFJob", {"Worker": 1}, runPolicy={"activeDeadlineSeconds": 2**60}).run_policy
        == spec_of("TFJob", {"Worker": 1}, runPolicy={"activeDeadlineSeconds": 2**31 - 1}).run_policy
    )


@pytest.mark.parametrize("kind", list(V1_KINDS))
def test_defaults_change_neither_the_job_nor_themselves(kind: str) -> None:
    manifest = v1_manifest(kind, {"Worker": None})
    job = decoded_v1(manifest)
    defaulted = with_defaults(job)
    assert job == decoded_v1(manifest)
    assert with_defaults(defaulted) == defaulted
