"""What ResourceQuotas leave for gangs: scopes, what is used, and what is reserved for pods that do not exist yet."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tfjob_controller.api.common.cluster import (
    RESOURCE_QUOTAS,
    ResourceQuota,
    ScheduledPod,
)
from tfjob_controller.api.common.scheduledpods import SCHEDULED_PODS
from tfjob_controller.api.gang import GANGS, Gang
from tfjob_controller.scheduling.podsets import pod_sets_of
from tfjob_controller.scheduling.quota import NamespaceQuotas, PodUsage, QuotaShortage

GPU = "nvidia.com/gpu"


def a_quota(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> ResourceQuota:
    body = {
        "metadata": {"name": "quota", "namespace": "ns"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": used or {}} if used is not None else {},
    }
    return RESOURCE_QUOTAS.decode(msgspec.json.encode(body))


def a_gang(*members: dict[str, Any], name: str = "gang", minimum: dict[str, int] | None = None) -> Gang:
    body = {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"members": list(members), "minMembers": minimum or {}},
    }
    return GANGS.decode(msgspec.json.encode(body))


def workers(count: int, priority_class: str = "", **resources: str) -> dict[str, Any]:
    return {"name": "worker", "count": count, "resources": resources, "priorityClassName": priority_class}


def limit(quota: ResourceQuota, gang: Gang) -> dict[str, int] | str:
    """The counts that are allowed, or the message."""
    found = NamespaceQuotas(lambda namespace: [quota]).limit(gang, pod_sets_of(gang.spec))
    return found.message if isinstance(found, QuotaShortage) else {each.name: each.count for each in found}


def test_a_gang_that_fits_is_not_changed() -> None:
    gang = a_gang(workers(4, cpu="1"))
    assert limit(a_quota({"cpu": "4", "pods": "4"}, {}), gang) == {"worker": 4}
    assert limit(a_quota({"cpu": "8", "pods": "8"}, {"cpu": "4", "pods": "4"}), gang) == {"worker": 4}


def test_the_message_says_what_is_requested_and_left() -> None:
    gang = a_gang({"name": "worker", "count": 4, "resources": {GPU: "1", "memory": "1Gi"}})
    quota = a_quota({f"requests.{GPU}": "8", "requests.memory": "4Gi"}, {f"requests.{GPU}": "6"})
    assert limit(quota, gang) == f"waits for quota: 4 \u00d7 {GPU}, 2 left"
    quota = a_quota({"pods": "3", "memory": "2Gi"}, {"pods": "5"})
    assert limit(quota, gang) == "waits for quota: 4Gi \u00d7 memory, 2Gi left; 4 \u00d7 pods, 0 left"


@pytest.mark.parametrize(
    "hard",
    [
        *("cpu", "requests.memory", "pods", "count/pods", f"requests.{GPU}", "hugepages-2Mi"),
    ],
)
def test_each_request_counts(hard: str) -> None:
    resources = {"cpu": "1", "memory": "1", GPU: "1", "hugepages-2Mi": "2Mi", "ephemeral-storage": "1"}
    gang = a_gang(workers(2, **resources))
    assert "waits for quota" in limit(a_quota({hard: "1"}, {}), gang)
    assert limit(a_quota({hard: "1Gi"}, {}), gang) == {"worker": 2}


@pytest.mark.parametrize("hard", ["limits.cpu", "count/jobs.batch", "requests.storage"])
def test_what_is_no_request_of_pods_does_not_count(hard: str) -> None:
    assert limit(a_quota({hard: "0"}, {}), a_gang(workers(2, cpu="1"))) == {"worker": 2}


def test_a_quota_of_which_the_gang_wants_nothing_may_be_exceeded() -> None:
    quota = a_quota({"cpu": "8", f"requests.{GPU}": "1"}, {f"requests.{GPU}": "2"})
    assert limit(quota, a_gang(workers(2, cpu="1"))) == {"worker": 2}


def test_a_quota_that_was_not_counted_yet_and_one_that_cannot_be_read() -> None:
    assert limit(a_quota({"cpu": "1"}), a_gang(workers(2, cpu="1"))) == "waits for quota: 2 \u00d7 cpu, 1 left"
    assert limit(a_quota({"cpu": "much"}, {}), a_gang(workers(2, cpu="1"))) == {"worker": 2}


def scoped(scope: str, operator: str = "Exists", *values: str) -> dict[str, Any]:
    return {"scopeSelector": {"matchExpressions": [{"scopeName": scope, "operator": operator, "values": values}]}}


@pytest.mark.parametrize(
    ("spec", "gang", "counts"),
    [
        ({"scopes": ["BestEffort"]}, a_gang(workers(2)), True),
        ({"scopes": ["BestEffort"]}, a_gang(workers(2, cpu="1")), False),
        ({"scopes": ["NotBestEffort"]}, a_gang(workers(2, memory="1")), True),
        ({"scopes": ["NotBestEffort"]}, a_gang(workers(2)), False),
        ({"scopes": ["NotTerminating"]}, a_gang(workers(2)), True),
        ({"scopes": ["Terminating"]}, a_gang(workers(2)), False),
        ({"scopes": ["CrossNamespacePodAffinity"]}, a_gang(workers(2)), False),
        ({"scopes": ["NotTerminating", "BestEffort"]}, a_gang(workers(2, cpu="1")), False),
        ({"scopes": ["PriorityClass"]}, a_gang(workers(2, "high")), True),
        ({"scopes": ["PriorityClass"]}, a_gang(workers(2)), False),
        (scoped("PriorityClass", "In", "high", "low"), a_gang(workers(2, "high")), True),
        (scoped("PriorityClass", "In", "high"), a_gang(workers(2, "low")), False),
        (scoped("PriorityClass", "NotIn", "high"), a_gang(workers(2, "low")), True),
        (scoped("PriorityClass", "NotIn", "high"), a_gang(workers(2, "high")), False),
        (scoped("PriorityClass", "DoesNotExist"), a_gang(workers(2, "high")), False),
        (scoped("BestEffort"), a_gang(workers(2)), True),
    ],
)
def test_a_quota_counts_for_pods_of_all_its_scopes(spec: dict[str, Any], gang: Gang, counts: bool) -> None:
    found = limit(a_quota({"pods": "1"}, {}, **spec), gang)
    assert found == ("waits for quota: 2 \u00d7 pods, 1 left" if counts else {"worker": 2})


def test_an_elastic_gang_gets_as_many_as_the_quota_allows() -> None:
    gang = a_gang({"name": "ps", "resources": {"cpu": "1"}}, workers(8, cpu="1"), minimum={"worker": 2})
    assert limit(a_quota({"cpu": "5"}, {}), gang) == {"ps": 1, "worker": 4}
    assert limit(a_quota({"cpu": "2"}, {}), gang) == "waits for quota: 3 \u00d7 cpu, 2 left"


def test_what_is_reserved_counts_until_it_is_given_back() -> None:
    quotas = NamespaceQuotas(lambda namespace: [a_quota({"cpu": "4"}, {})] if namespace == "ns" else [])
    first, second = a_gang(workers(3, cpu="1"), name="first"), a_gang(workers(2, cpu="1"), name="second")
    pod_sets = pod_sets_of(second.spec)
    quotas.reserve(first, pod_sets_of(first.spec), {"worker": 3})
    found = quotas.limit(second, pod_sets)
    assert isinstance(found, QuotaShortage)
    assert found.message == "waits for quota: 2 \u00d7 cpu, 1 left"
    assert quotas.allows(second, pod_sets[0])
    quotas.add(second, pod_sets[0])
    assert not quotas.allows(second, pod_sets[0])
    quotas.reserve(first, pod_sets_of(first.spec), {"worker": 1})
    assert quotas.limit(second, pod_sets) == pod_sets
    quotas.unreserve("ns/first")
    quotas.unreserve("ns/second")
    assert quotas.limit(second, pod_sets) is not None


def test_a_quota_that_changes_counts_after_a_refresh() -> None:
    hard = {"cpu": "1"}
    quotas = NamespaceQuotas(lambda namespace: [a_quota(hard, {})])
    gang = a_gang(workers(2, cpu="1"))
    assert isinstance(quotas.limit(gang, pod_sets_of(gang.spec)), QuotaShortage)
    hard["cpu"] = "2"
    quotas.refresh()
    assert quotas.limit(gang, pod_sets_of(gang.spec)) == pod_sets_of(gang.spec)


def test_several_quotas_hold_at_once() -> None:
    tight = [a_quota({"pods": "9"}, {}), a_quota({"cpu": "3"}, {}), a_quota({"cpu": "2"}, {})]
    gang = a_gang(workers(4, cpu="1"))
    found = NamespaceQuotas(lambda namespace: tight).limit(gang, pod_sets_of(gang.spec))
    assert isinstance(found, QuotaShortage)
    assert found.message == "waits for quota: 4 \u00d7 cpu, 2 left"


def a_pod(name: str, cpu: str = "1", *, phase: str = "Pending", node: str = "", deleted: str = "") -> ScheduledPod:
    body = {
        "metadata": {"name": name, "namespace": "ns", **({"deletionTimestamp": deleted} if deleted else {})},
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}]},
        "status": {"phase": phase},
    }
    return SCHEDULED_PODS.decode(msgspec.json.encode(body))


def test_pods_that_a_quota_does_not_count_yet_count_as_used() -> None:
    """The watch of pods may be ahead of that of quotas, and behind it."""
    usage = PodUsage()
    for number in range(3):
        usage.set_pod(a_pod(f"pod-{number}"))
    quotas = NamespaceQuotas(lambda namespace: [a_quota({"cpu": "4"}, {"cpu": "1"})], usage.of)
    gang = a_gang(workers(2, cpu="1"))
    found = quotas.limit(gang, pod_sets_of(gang.spec))
    assert isinstance(found, QuotaShortage)
    assert found.message == "waits for quota: 2 \u00d7 cpu, 1 left"
    usage.remove_pod("ns/pod-0")
    quotas.refresh()
    assert quotas.limit(gang, pod_sets_of(gang.spec)) == pod_sets_of(gang.spec)


def test_what_is_reserved_counts_in_addition_to_the_pods() -> None:
    usage = PodUsage()
    usage.set_pod(a_pod("pod-0"))
    quotas = NamespaceQuotas(lambda namespace: [a_quota({"cpu": "4"}, {})], usage.of)
    first, second = a_gang(workers(2, cpu="1"), name="first"), a_gang(workers(2, cpu="1"), name="second")
    quotas.reserve(first, pod_sets_of(first.spec), {"worker": 2})
    found = quotas.limit(second, pod_sets_of(second.spec))
    assert isinstance(found, QuotaShortage)
    assert found.message == "waits for quota: 2 \u00d7 cpu, 1 left"


def test_known_pods_do_not_count_in_a_quota_with_scopes() -> None:
    """It counts only some of them."""
    usage = PodUsage()
    usage.set_pod(a_pod("pod-0", cpu="9"))
    quotas = NamespaceQuotas(lambda namespace: [a_quota({"cpu": "4"}, {}, scopes=["NotBestEffort"])], usage.of)
    gang = a_gang(workers(4, cpu="1"))
    assert quotas.limit(gang, pod_sets_of(gang.spec)) == pod_sets_of(gang.spec)


def test_the_usage_follows_the_pods() -> None:
    usage = PodUsage()
    usage.set_pod(a_pod("one", cpu="1500m"))
    usage.set_pod(a_pod("two", node="node-1"))
    assert usage.of("ns") == {"cpu": 2500, "pods": 2}
    usage.set_pod(a_pod("one", cpu="2", node="node-1", phase="Running"))
    assert usage.of("ns") == {"cpu": 3000, "pods": 2}
    usage.set_pod(a_pod("one", cpu="2", node="node-1", phase="Failed"))
    assert usage.of("ns") == {"cpu": 1000, "pods": 1}
    usage.set_pod(a_pod("two", node="node-1", deleted="2026-01-01T00:00:00Z"))
    assert usage.of("ns") == {}
    usage.set_pod(a_pod("three", cpu="nonsense"))
    usage.remove_pod("ns/unknown")
    assert usage.of("ns") == usage.of("other") == {}
