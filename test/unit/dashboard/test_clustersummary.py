"""The figures above the list of jobs."""

from __future__ import annotations

from tfjob_controller.client.gangqueue import GangQueue, WaitingGang
from tfjob_controller.client.usage import ClusterUsage, JobUsage, NodeUsage
from tfjob_controller.dashboard.clustersummary import cluster_summary

GPU, MIG = "nvidia.com/gpu", "nvidia.com/mig-1g.5gb"


def node(name: str, free: dict[str, str], reserved: dict[str, str] | None = None, **allocatable: str) -> NodeUsage:
    amounts = {"cpu": "8", GPU: "8"} | allocatable
    return NodeUsage(name, amounts, {}, amounts | free, reserved=reserved or {})


def holding(namespace: str, **requests: str) -> JobUsage:
    return JobUsage("n1", namespace, "tfjob/a", ["worker-0"], requests)


def gpus(count: int) -> dict[str, str]:
    return {GPU: str(count)}


def test_gpus_are_used_reserved_and_free() -> None:
    usage = ClusterUsage(
        [holding("a", **gpus(4)), holding("b", **gpus(1)), holding("a", **gpus(1))],
        [node("n1", gpus(2)), node("n2", gpus(5), reserved=gpus(3))],
    )
    summary = cluster_summary(usage, GangQueue([], 2))
    (found,) = summary.resources
    assert (found.name, found.used, found.reserved, found.free, found.total) == (GPU, 6, 3, 7, 16)
    assert (found.percent(found.used), found.percent(found.reserved)) == (37.5, 18.8)
    assert (summary.holders, summary.more_holders) == ([("a", 5), ("b", 1)], 0)
    assert (summary.waiting, summary.first) == (0, None)


def test_parts_of_gpus_are_shown_beside_them_and_other_resources_are_not() -> None:
    nodes = [node("n1", {}, **{MIG: "2", "example.com/licence": "9"})]
    assert [each.name for each in cluster_summary(ClusterUsage([], nodes), None).resources] == [GPU, MIG]


def test_a_cluster_without_gpus_shows_its_cpus() -> None:
    nodes = [NodeUsage("n1", {"cpu": "8"}, {}, {"cpu": "6500m"})]
    (found,) = cluster_summary(ClusterUsage([holding("a", cpu="1500m")], nodes), None).resources
    assert (found.name, found.text(found.used), found.text(found.total or 0)) == ("cpu", "1.5", "8")


def test_without_the_right_to_list_nodes_only_the_used_ones_are_known() -> None:
    summary = cluster_summary(ClusterUsage([holding("a", **gpus(4))], None), None)
    assert [(each.name, each.used, each.total) for each in summary.resources] == [(GPU, 4, None)]
    assert summary.waiting is None


def test_the_largest_holders_are_named_and_the_others_counted() -> None:
    usage = ClusterUsage([holding(f"team-{index}", **gpus(index)) for index in range(7)], None)
    summary = cluster_summary(usage, None)
    assert ([name for name, _ in summary.holders], summary.more_holders) == (
        ["team-6", "team-5", "team-4", "team-3"],
        2,
    )


def test_the_next_gang_of_the_queue_is_named() -> None:
    first = WaitingGang(1, "ns", "gang", "TFJob/a", 2, 0, "", "")
    assert cluster_summary(ClusterUsage([], []), GangQueue([first], 0)).first is first
