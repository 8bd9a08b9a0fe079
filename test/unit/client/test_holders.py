"""Who holds what a waiting gang lacks, when they end, and when the gang may start."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from helpers.memoryapi import Fault, MemoryApi, refusal
from tfjob_controller.api.common.cluster import Node, NodeSpec, NodeStatus, ScheduledPod, ScheduledPodSpec
from tfjob_controller.api.gang import Gang, GangMeta, GangSpec, GangStatus, Member, Missing, NodePlacement
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.client.holders import Wait, end_text, start_text, waits_of
from tfjob_controller.client.jobtimes import JobTimes, read_jobs
from tfjob_controller.client.kinds import OWN_KINDS
from tfjob_controller.client.usage import HeldCapacity, Holding, holdings_of
from tfjob_controller.jobs.naming import runtime_id_of
from tfjob_controller.kube.meta import ObjectMeta, OwnerReference
from tfjob_controller.scheduling.quota import WAITS_FOR_QUOTA

GPU = "nvidia.com/gpu"
NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
STARTED = "2026-01-01T11:00:00Z"
GPU_NODES = {"pool": "gpu"}


def waiting(requested: str = "8", available: str = "2", **fields: Any) -> Gang:
    status = {"phase": "Waiting", "position": 1, "missing": (Missing(GPU, requested, available),), **fields}
    spec = GangSpec(members=(Member("node", 8, {GPU: "1"}, node_selector=GPU_NODES),))
    return Gang(GangMeta(name="waits", namespace="team"), spec, GangStatus(**status))


def node(name: str, gpus: str = "8", **spec: Any) -> Node:
    return Node(
        ObjectMeta(name=name, labels=GPU_NODES), NodeSpec(**spec), NodeStatus(allocatable={GPU: gpus, "pods": "110"})
    )


NODES = (node("n1"), node("n2"))


def held(job: str, amount: int, node_name: str = "n1", namespace: str = "team") -> Holding:
    key = (namespace, f"trainjob/{job}", f"id-of-{job}") if job else None
    return Holding(namespace, node_name, key, {GPU: amount}, "2026-01-01T10:00:00Z")


def limited(*jobs: tuple[str, int | None], namespace: str = "team") -> dict[Any, JobTimes]:
    """Jobs that have run for an hour, with their limits in seconds."""
    return {
        (namespace, f"trainjob/{name}", f"id-of-{name}"): JobTimes(name, STARTED, seconds) for name, seconds in jobs
    }


def capacity(*holdings: Holding, times: Any = (), nodes: Any = NODES) -> HeldCapacity:
    return HeldCapacity({}, nodes, holdings, dict(times), requested=holdings)


def alone(gang: Gang, state: HeldCapacity) -> Wait | None:
    """What a gang waits for if none is ahead of it."""
    key = gang.metadata.namespace, gang.metadata.name
    return waits_of(replace(state, gangs={key: gang}), "", NOW).get(key)


def shown(gang: Gang, state: HeldCapacity) -> Wait:
    wait = alone(gang, state)
    assert wait is not None
    return wait


def test_holders_come_largest_first_with_their_sums_over_nodes_and_are_bounded() -> None:
    many = [held(f"small-{index}", 1) for index in range(6)]
    state = capacity(held("large", 2), held("large", 3, "n2"), *many, held("", 1, namespace="kube-system"))
    (lack,) = shown(waiting(), state).lacks
    assert [(holder.job, holder.amount) for holder in lack.holders[:2]] == [
        ("trainjob/large", "5"),
        ("trainjob/small-0", "1"),
    ]
    assert (len(lack.holders), lack.more, lack.others) == (5, 2, "1")
    assert (lack.lacking, lack.percent) == ("6", 25.0)


def test_only_nodes_that_accept_the_pods_of_the_gang_count() -> None:
    other = Node(ObjectMeta(name="n2"))
    state = capacity(held("a", 2), held("b", 3, "n2"), held("c", 4, "n3"), nodes=[node("n1"), other])
    (lack,) = shown(waiting(), state).lacks
    assert [holder.job for holder in lack.holders] == ["trainjob/a"]
    cordoned = capacity(held("a", 2), nodes=[node("n1", unschedulable=True)])
    assert not shown(waiting(), cordoned).lacks[0].holders


def test_a_gang_that_waits_for_quota_waits_for_the_jobs_of_its_namespace() -> None:
    gang = waiting(message=f"{WAITS_FOR_QUOTA}: 8 GPUs, 2 left")
    state = capacity(held("mine", 2, "any"), held("theirs", 9, namespace="other"))
    (lack,) = shown(gang, state).lacks
    assert [holder.job for holder in lack.holders] == ["trainjob/mine"]


def test_a_gang_may_start_when_enough_has_reached_its_limit() -> None:
    times = limited(("soon", 3660), ("later", 7200), ("last", 9000), ("endless", None))
    holdings = held("soon", 2), held("later", 4), held("last", 4), held("endless", 1)
    state = capacity(*holdings, times=times, nodes=[node("n1", "13")])
    wait = shown(waiting(), state)
    assert (wait.start.time, wait.start.basis) == ("2026-01-01T13:00:00Z", "limit")
    assert start_text(wait.start, NOW) == "in 60m, by the limits of jobs"
    ends = {holder.job: end_text(holder, NOW) for holder in wait.lacks[0].holders}
    assert ends["trainjob/soon"] == "in 60s (limit)"
    assert ends["trainjob/endless"] == "unknown: it has no limit and no estimate"


def test_without_enough_limits_the_start_is_unknown_and_the_largest_holders_are_named() -> None:
    times = limited(("limited", 7200), *((f"endless-{index}", None) for index in range(5)))
    endless = [held(f"endless-{index}", 9 - index) for index in range(5)]
    wait = shown(waiting(), capacity(held("limited", 5), *endless, times=times, nodes=[node("n1", "40")]))
    assert start_text(wait.start, NOW) == (
        "unknown: no limit or estimate of trainjob/endless-0, trainjob/endless-1, trainjob/endless-2 and 2 more"
    )


@pytest.mark.parametrize(
    ("seconds", "limit", "text"),
    [
        pytest.param(1800, None, "in 30m (estimate)", id="estimate"),
        pytest.param(1800, 3660, "in 60s (limit)", id="the limit is earlier"),
        pytest.param(1800, 7200, "in 30m (estimate)", id="the estimate is earlier"),
        pytest.param(0, 7200, "in 60m (limit)", id="an estimate that has passed"),
        pytest.param(0, None, "unknown: it has no limit and no estimate", id="nothing but a past estimate"),
        pytest.param(None, 60, "in 0s (limit)", id="a limit that is due"),
        pytest.param(None, 10**15, "unknown: it has no limit and no estimate", id="later than any date"),
    ],
)
def test_a_job_ends_at_the_earlier_one_of_its_limit_and_its_estimate(
    seconds: int | None, limit: int | None, text: str
) -> None:
    times = {
        ("team", "trainjob/a", "id-of-a"): JobTimes("a", STARTED, limit, "2026-01-01T12:00:00Z", seconds),
    }
    (lack,) = shown(waiting(), capacity(held("a", 6), times=times)).lacks
    assert end_text(lack.holders[0], NOW) == text


def test_a_start_that_depends_on_an_estimate_says_so() -> None:
    times = {
        **limited(("limited", 7200)),
        ("team", "trainjob/a", "id-of-a"): JobTimes("a", STARTED, None, "2026-01-01T12:00:00Z", 600),
    }
    wait = shown(waiting(), capacity(held("a", 2), held("limited", 4), times=times, nodes=NODES[:1]))
    assert start_text(wait.start, NOW) == "in about 60m, by estimates"


def test_who_may_not_see_other_namespaces_is_told_nothing_of_the_start() -> None:
    times = limited(("mine", 7200))
    wait = shown(waiting(), capacity(held("mine", 2), times=times, nodes=None))
    assert wait.is_partial
    assert [holder.job for holder in wait.lacks[0].holders] == ["trainjob/mine"]
    assert start_text(wait.start, NOW) == "unknown: you may not list the nodes and the pods of all namespaces"


def test_a_holder_whose_job_may_not_be_read_has_no_end() -> None:
    wait = shown(waiting(), capacity(held("theirs", 6, namespace="other"), nodes=NODES[:1]))
    assert wait.lacks[0].holders[0].unknown == "you may not read its limits"
    assert start_text(wait.start, NOW) == "unknown: you may not read the limit of trainjob/theirs"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        pytest.param({"phase": ""}, "no gang scheduler has processed it yet", id="new"),
        pytest.param({"phase": "Unschedulable"}, "it does not fit even on an empty cluster", id="too large"),
        pytest.param({"missing": ()}, "the gang scheduler names no resource that it lacks", id="nothing is named"),
        pytest.param({"missing": (Missing(GPU, "many", "1"),)}, "the gang scheduler names no resource", id="no amount"),
        pytest.param({}, "the ends of jobs do not free enough nvidia.com/gpu on the nodes", id="nobody holds it"),
        pytest.param({"position": 2, "missing": ()}, "gangs ahead of it come first", id="ahead"),
    ],
)
def test_a_start_that_cannot_be_known_has_a_reason(fields: dict[str, Any], why: str) -> None:
    assert why in start_text(shown(waiting(**fields), capacity(nodes=[node("n1", "2")])).start, NOW)


def test_free_capacity_is_no_promise() -> None:
    assert "seem to have enough capacity now" in start_text(shown(waiting(), capacity()).start, NOW)


def queued(name: str, position: int, **fields: Any) -> Gang:
    gang = waiting(position=position, **fields)
    return replace(gang, metadata=replace(gang.metadata, name=name))


def starts_of(state: HeldCapacity, *gangs: Gang) -> list[str]:
    by_name = {(gang.metadata.namespace, gang.metadata.name): gang for gang in gangs}
    waits = waits_of(replace(state, gangs=by_name), "", NOW)
    return [start_text(wait.start, NOW) for wait in waits.values()]


def test_a_gang_behind_another_one_starts_no_earlier_and_not_at_all_if_that_is_unknown() -> None:
    times = limited(("soon", 3660), ("later", 7200), ("endless", None))
    first, second = queued("a", 1), queued("b", 2)
    state = capacity(held("soon", 8), held("later", 8, "n2"), times=times)
    assert starts_of(state, first, second) == ["in 60s, by the limits of jobs", "in 60m, by the limits of jobs"]
    behind = "unknown: gangs ahead of it come first, and their start is unknown"
    # The first one takes what is freed.
    state = capacity(held("soon", 8), times=times, nodes=NODES[:1])
    assert starts_of(state, first, second)[1] == "unknown: gangs ahead of it take what is freed"
    large = replace(first, spec=GangSpec(members=(Member("node", 16, {GPU: "1"}, node_selector=GPU_NODES),)))
    state = capacity(held("soon", 8), held("endless", 8, "n2"), times=times)
    assert starts_of(state, large, second) == ["unknown: no limit or estimate of trainjob/endless", behind]
    elsewhere = replace(large, spec=GangSpec(members=(Member("node", 16, {GPU: "1"}, node_selector={"pool": "x"}),)))
    assert starts_of(state, elsewhere, second)[1] == "in 60s, by the limits of jobs"
    # One that may not be seen.
    assert starts_of(state, second) == [behind]


def test_capacity_counts_on_each_node() -> None:
    """Less than a pod requests is free on each of two nodes, and what is freed on one of them does not add up."""
    times = limited(("soon", 3660), ("later", 7200))
    pair = GangSpec(members=(Member("node", 1, {GPU: "6"}, node_selector=GPU_NODES),))
    gang = replace(waiting("6", "0"), spec=pair)
    state = capacity(held("soon", 1), held("endless", 3), held("later", 3, "n2"), times=times)
    wait = shown(gang, state)
    assert start_text(wait.start, NOW) == "in 60m, by the limits of jobs"
    assert wait.lacks[0].room == "room for 0 of 1 pod"


def test_quota_counts_pods_without_a_node_and_promises_no_node() -> None:
    labels = {"train_job_name": "mine", "runtime_id": "id-of-mine"}
    pod = ScheduledPod(ObjectMeta(name="p", namespace="team", labels=labels), requests={GPU: 6})
    state = capacity(times=limited(("mine", 3660)), nodes=None)
    state = replace(state, requested=holdings_of([pod], [], with_unplaced=True))
    assert not holdings_of([pod], [])
    gang = waiting(message=f"{WAITS_FOR_QUOTA}: 8 GPUs, 2 left")
    wait = shown(gang, state)
    assert [holder.amount for holder in wait.lacks[0].holders] == ["6"]
    assert start_text(wait.start, NOW) == "in 60s, by the limits of jobs, if a node has capacity then"
    behind = queued("z", 2, message=gang.status.message)
    assert starts_of(state, gang, behind)[1] == "unknown: no job holds the nvidia.com/gpu that it lacks"


def test_a_job_that_no_longer_exists_ends_with_its_pods() -> None:
    gone = Holding("team", "n1", ("team", "trainjob/a", "id"), {GPU: 6}, STARTED, "2026-01-01T12:00:20Z")
    state = replace(capacity(gone, nodes=NODES[:1]), known={"": frozenset({"trainjob"})})
    wait = shown(waiting(), state)
    assert end_text(wait.lacks[0].holders[0], NOW) == "in 20s (deletion)"
    assert start_text(wait.start, NOW) == "in 20s, when deleted pods have ended"
    for deletion, why in (("", "it is being deleted"), ("2026-01-01T11:00:00Z", "its pods have not ended in time")):
        state = replace(state, holdings=[replace(gone, deletion=deletion)])
        assert why in end_text(shown(waiting(), state).lacks[0].holders[0], NOW)
    hidden = replace(state, known={"other": frozenset({"trainjob"})})
    assert shown(waiting(), hidden).lacks[0].holders[0].unknown == "you may not read its limits"


def test_the_deletion_of_pods_is_known_once_all_are_being_deleted() -> None:
    labels = {"train_job_name": "a", "runtime_id": "id"}
    late, soon = (
        ScheduledPod(
            ObjectMeta(
                name=f"p{second}", namespace="team", labels=labels, deletion_timestamp=f"2026-01-01T12:00:{second}Z"
            ),
            ScheduledPodSpec(node_name="n1"),
            requests={GPU: 1},
        )
        for second in (30, 10)
    )
    assert [each.deletion for each in holdings_of([late, soon], [])] == ["2026-01-01T12:00:30Z"]
    stays = replace(soon, metadata=replace(soon.metadata, deletion_timestamp=None))
    assert [each.deletion for each in holdings_of([late, stays], [])] == [""]


def test_gangs_that_do_not_wait_wait_for_nothing() -> None:
    for phase in ("Admitted", "Bound", "Released"):
        assert alone(waiting(phase=phase), capacity()) is None


def test_what_is_reserved_for_members_without_a_pod_is_held_by_the_job_of_their_gang() -> None:
    owner = OwnerReference(kind="TrainJob", name="starts", controller=True)
    placement = (NodePlacement("n1", ("node-0", "node-1")), NodePlacement("n2", ("node-2",)))
    gang = Gang(
        GangMeta(name="starts-ab12", namespace="team", owner_references=(owner,)),
        GangSpec(members=(Member("node", 3, {GPU: "2"}),)),
        GangStatus(phase="Admitted", placement=placement, admitted_time=STARTED),
    )
    labels = {
        "scheduling.kubeflow.org/gang": "starts-ab12",
        "scheduling.kubeflow.org/member": "node-0",
        "train_job_name": "starts",
        "runtime_id": "id-of-starts",
        "job_type": "NODE",
        "task_index": "0",
    }
    meta = ObjectMeta(name="starts-node-0", namespace="team", labels=labels, creation_timestamp=STARTED)
    pod = ScheduledPod(meta, ScheduledPodSpec(node_name="n1"), requests={GPU: 2})
    holdings = holdings_of([pod], [gang])
    assert sorted((holding.node, holding.amounts[GPU]) for holding in holdings) == [("n1", 2), ("n1", 2), ("n2", 2)]
    (lack,) = shown(waiting(), capacity(*holdings, times=limited(("starts", 7200)))).lacks
    (holder,) = lack.holders
    assert (holder.job, holder.amount, holder.ends) == ("trainjob/starts", "6", "2026-01-01T13:00:00Z")


def test_the_times_of_jobs_are_those_of_their_specs_and_statuses() -> None:
    job = {
        "metadata": {"name": "a", "namespace": "team", "uid": "1234-5678"},
        "spec": {"activeDeadlineSeconds": 60},
        "status": {
            "startTime": STARTED,
            "trainerStatus": {"estimatedRemainingSeconds": 30, "lastUpdatedTime": STARTED},
        },
    }
    api = MemoryApi()
    api.script.extend([Fault(), refusal(403, "Forbidden")])
    api.put("/apis/kubeflow.org/v2alpha1/namespaces/team/trainjobs", job)
    times, words = read_jobs(api, ["", "team"], OWN_KINDS)
    assert times == {("team", "trainjob/a", runtime_id_of("1234-5678")): JobTimes("a", STARTED, 60, STARTED, 30)}
    assert words == {"tfjob", "trainjob"}


def test_jobs_of_a_kind_are_known_even_if_another_kind_of_that_name_may_not_be_listed() -> None:
    api = MemoryApi()
    api.put(f"{TRAINJOBS.path('team')}", {"metadata": {"name": "a", "namespace": "team"}})
    api.fail(403, "Forbidden", part="trainer.kubeflow.org")
    times, words = read_jobs(api, ["team"], OWN_KINDS)
    assert [job.name for job in times.values()] == ["a"]
    assert words == {"tfjob"}
