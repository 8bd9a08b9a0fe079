"""Who holds what on which node, as a person reads it."""

from __future__ import annotations

import pytest

from tfjob_controller.api.common.cluster import (
    Node,
    NodeStatus,
    ScheduledPod,
    ScheduledPodSpec,
    ScheduledPodStatus,
)
from tfjob_controller.api.gang import (
    GANG_LABEL,
    MEMBER_LABEL,
    Gang,
    GangMeta,
    GangSpec,
    GangStatus,
    Member,
    NodePlacement,
)
from tfjob_controller.client.kinds import KINDS
from tfjob_controller.client.text import replica_ranges
from tfjob_controller.client.usage import by_zone, cluster_usage
from tfjob_controller.kube.meta import ObjectMeta, OwnerReference
from tfjob_controller.kubectl.commands.top import rows_of

GPU = "nvidia.com/gpu"


def pod(
    name: str, node: str, *, job: str = "", phase: str = "Running", namespace: str = "team", runtime_id: str = "ab12"
) -> ScheduledPod:
    role, _, index = name.rpartition("-")
    labels = (
        {"tf_job_name": job, "job_type": role.upper(), "task_index": index, "runtime_id": runtime_id} if job else {}
    )
    requests = {"cpu": 500, "memory": 2**30, "pods": 1, **({GPU: 1} if job else {})}
    return ScheduledPod(
        ObjectMeta(name=f"{job}-{name}", namespace=namespace, labels=labels),
        ScheduledPodSpec(node_name=node),
        ScheduledPodStatus(phase=phase),
        requests,
    )


def node(name: str, zone: str = "") -> Node:
    allocatable = {"cpu": "4", "memory": "8Gi", "pods": "10", GPU: "2"}
    labels = {"topology.kubernetes.io/zone": zone} if zone else {}
    return Node(ObjectMeta(name=name, labels=labels), status=NodeStatus(allocatable=allocatable))


def v1_pod(owner: str) -> ScheduledPod:
    labels = {
        "training.kubeflow.org/operator-name": "pytorchjob-controller",
        "training.kubeflow.org/job-name": "train",
        "training.kubeflow.org/replica-type": "worker",
        "training.kubeflow.org/replica-index": "3",
    }
    owners = (OwnerReference(kind="PyTorchJob", name="train", uid=owner, controller=True),)
    meta = ObjectMeta(name="train-worker-3", namespace="team", labels=labels, owner_references=owners)
    return ScheduledPod(meta, ScheduledPodSpec(node_name="n1"), ScheduledPodStatus(phase="Running"), {"cpu": 500})


PODS = [
    pod("worker-0", "n1", job="train"),
    pod("worker-1", "n1", job="train"),
    pod("worker-2", "n2", job="train"),
    pod("worker-3", "", job="train"),
    pod("worker-4", "n2", job="train", phase="Succeeded"),
    pod("dns-0", "n1", namespace="kube-system"),
]


def test_each_node_has_its_jobs_the_rest_and_what_is_free() -> None:
    headers, rows = rows_of(cluster_usage(PODS, "team", [node("n2"), node("n1")]), with_namespace=False)
    assert headers == ["Node", "Job", "CPU", "Memory", GPU, "Replicas"]
    assert rows == [
        ["n1", "tfjob/train", "1", "2048Mi", "2", "worker-0..1"],
        ["n1", "(other pods)", "500m", "1024Mi", "0", "1 pod"],
        ["n1", "(free)", "2500m", "5120Mi", "0", "7 pods"],
        ["n2", "tfjob/train", "500m", "1024Mi", "1", "worker-2"],
        ["n2", "(other pods)", "0", "0", "0", "0 pods"],
        ["n2", "(free)", "3500m", "7168Mi", "1", "9 pods"],
    ]


def test_what_replicas_use_has_columns_if_it_is_known() -> None:
    used = {("team", "train-worker-0"): (250, 2**20), ("team", "train-worker-1"): (1, 2**21), ("other", "x"): (1, 1)}
    headers, rows = rows_of(cluster_usage(PODS, "team", [node("n1")], used=used), with_namespace=False)
    assert headers == ["Node", "Job", "CPU", "Memory", GPU, "CPU used", "Memory used", "Replicas"]
    assert rows[:2] == [
        ["n1", "tfjob/train", "1", "2048Mi", "2", "251m", "3Mi", "worker-0..1"],
        ["n1", "(other pods)", "500m", "1024Mi", "0", "", "", "1 pod"],
    ]


def test_the_job_of_a_pod_without_a_child_job_is_its_owner() -> None:
    jobs = {"pytorchjob": {("team", "pytorchjob/train", "new")}}
    for owner, job in (("new", "pytorchjob/train"), ("old", "pytorchjob/train (deleted)")):
        usage = cluster_usage([v1_pod(owner)], "team", None, jobs=jobs, kinds=KINDS)
        assert rows_of(usage, with_namespace=False)[1] == [["n1", job, "500m", "0", "worker-3"]]
    assert cluster_usage([v1_pod("new")], "team", None, jobs=jobs).holdings == []


def test_pods_of_a_deleted_job_do_not_count_as_those_of_a_new_job_with_its_name() -> None:
    old, new = (
        pod("worker-0", "n1", job="train", runtime_id="old1"),
        pod("worker-1", "n1", job="train", runtime_id="new1"),
    )
    jobs = {"tfjob": {("team", "tfjob/train", "new1")}}
    _, rows = rows_of(cluster_usage([old, new], "team", None, jobs=jobs), with_namespace=False)
    assert [(row[1], row[-1]) for row in rows] == [("tfjob/train", "worker-1"), ("tfjob/train (deleted)", "worker-0")]
    _, rows = rows_of(cluster_usage([old], "team", None), with_namespace=False)
    assert [row[1] for row in rows] == ["tfjob/train"]


def gang_pod(name: str, node: str) -> ScheduledPod:
    labels = {GANG_LABEL: "train-ab12", MEMBER_LABEL: name}
    return ScheduledPod(
        ObjectMeta(name=name, namespace="team", labels=labels), ScheduledPodSpec(node_name=node), requests={"pods": 1}
    )


@pytest.mark.parametrize(
    ("phase", "pods", "reserved", "free"),
    [
        pytest.param("Admitted", [], "2", "0", id="no pod yet"),
        pytest.param("Bound", [gang_pod("worker-0", "n1")], "1", "1", id="a pod is there"),
        pytest.param("Bound", [gang_pod("worker-0", "n1"), gang_pod("worker-1", "n2")], "0", "2", id="all are"),
        pytest.param("Waiting", [], "0", "2", id="not admitted"),
    ],
)
def test_capacity_of_members_without_a_pod_is_reserved_and_not_free(
    phase: str, pods: list[ScheduledPod], reserved: str, free: str
) -> None:
    placement = (NodePlacement("n1", ("worker-0", "worker-1", "gone-7")),)
    gang = Gang(
        GangMeta(name="train-ab12", namespace="team"),
        GangSpec(members=(Member("worker", 2, {GPU: "1", "cpu": "no quantity"}),)),
        GangStatus(phase=phase, placement=placement),
    )
    found = cluster_usage(pods, "", [node("n1")], [gang])
    (usage,) = found.nodes or ()
    assert (usage.reserved.get(GPU, "0"), usage.free[GPU]) == (reserved, free)
    _, rows = rows_of(found, with_namespace=False)
    assert [row[1] for row in rows] == ["(other pods)", *(["(reserved)"] if reserved != "0" else []), "(free)"]


def test_nodes_are_grouped_by_zone_those_without_one_first() -> None:
    nodes = [node("n3", "b"), node("n2", "a"), node("n4"), node("n1", "b")]
    assert by_zone(cluster_usage(PODS, "", nodes)) == [("", ["n4"]), ("a", ["n2"]), ("b", ["n1", "n3"])]
    assert by_zone(cluster_usage(PODS, "", None)) == [("", ["n1", "n2"])]


def test_without_nodes_only_the_requested_jobs_are_shown() -> None:
    found = cluster_usage([*PODS, pod("worker-0", "n3", job="other", namespace="others")], "team", None)
    assert [each.node for each in found.holdings] == ["n1", "n2"]
    assert found.nodes is None
    every, rows = rows_of(cluster_usage([pod("master-0", "n1", job="x")], "", None), with_namespace=True)
    assert every[:3] == ["Node", "Namespace", "Job"]
    assert rows[0][:3] == ["n1", "team", "tfjob/x"]


@pytest.mark.parametrize(
    ("replicas", "expected"),
    [
        ([], ""),
        (["master-0"], "master-0"),
        (["worker-0", "worker-1", "worker-2", "worker-5"], "worker-0..2, worker-5"),
        (["data-set-0", "worker-0"], "data-set-0, worker-0"),
        (["launcher", "worker-0", "worker-1"], "launcher, worker-0..1"),
    ],
)
def test_replicas_in_a_row_are_one_word(replicas: list[str], expected: str) -> None:
    assert replica_ranges(replicas) == expected
