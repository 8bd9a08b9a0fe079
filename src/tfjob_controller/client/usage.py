"""The requests of jobs on each node, what is reserved for gangs, and what is free.

Requests are computed by the function that the gang scheduler uses, as kube-scheduler counts them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec

from tfjob_controller.api.common.cluster import (
    FINISHED_PHASES,
    NODES,
    Node,
    ScheduledPod,
)
from tfjob_controller.api.common.core import PODS
from tfjob_controller.api.common.podrequests import requests_of
from tfjob_controller.api.common.quantity import CPU, MEMORY, amount_from, quantity_of
from tfjob_controller.api.common.scheduledpods import GANG_LABELS, scheduled_pod_decoder
from tfjob_controller.api.gang import (
    ADMITTED,
    BOUND,
    GANGS,
    Gang,
    Member,
    gang_key_of,
    index_of,
    kind_of,
    member_of,
)
from tfjob_controller.client.errors import CLUSTER_VIEWER, cluster_role_remedy
from tfjob_controller.client.jobtimes import PATIENCE, JobKey, JobTimes, listed, read_jobs
from tfjob_controller.client.kinds import OWN_KINDS
from tfjob_controller.client.liveuse.podmetrics import PodKey, pod_usage
from tfjob_controller.jobs.naming import (
    CHILD_SELECTOR,
    JOB_NAME_LABEL,
    JOB_TYPE,
    OPERATOR_NAME_LABEL,
    REPLICA_INDEX_LABEL,
    REPLICA_TYPE_LABEL,
    RUNTIME_ID,
    TASK_INDEX,
    name_value,
    replica_id_of,
)
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import controller_of
from tfjob_controller.kube.requester import Requester

_WORDS = {kind.name_label: kind.word for kind in OWN_KINDS}
_PODS = PODS.with_decoder(
    scheduled_pod_decoder(
        (
            *GANG_LABELS,
            *(*_WORDS, RUNTIME_ID, JOB_TYPE, TASK_INDEX),
            *(OPERATOR_NAME_LABEL, JOB_NAME_LABEL, REPLICA_TYPE_LABEL, REPLICA_INDEX_LABEL),
        )
    )
)
_ZONE = "topology.kubernetes.io/zone"
# Pods that have a node and have not ended.
_NOT_ENDED = "status.phase!=Succeeded,status.phase!=Failed"
_HOLDING = f"spec.nodeName!=,{_NOT_ENDED}"
# Amounts by resource.
Amounts = Mapping[str, int]


class JobUsage(msgspec.Struct, frozen=True):
    """The total requests of one job's replicas on one node, as quantities by resource name.

    `deleted`: the job no longer exists, although a job with the same name may. `used` is what the replicas use, as far
    as it is known.
    """

    node: str
    namespace: str
    job: str
    replicas: list[str]
    requests: dict[str, str]
    deleted: bool = False
    used: dict[str, str] = {}


class NodeUsage(msgspec.Struct, frozen=True, rename="camel"):
    """One node: its allocatable resources, the requests of pods of no job, and the free resources.

    `reserved` is for members of gangs that are assigned to the node and have no pod there yet; it is not free.
    `zone` is the value of the label `topology.kubernetes.io/zone`, or empty.
    """

    node: str
    allocatable: dict[str, str]
    others: dict[str, str]
    free: dict[str, str]
    zone: str = ""
    reserved: dict[str, str] = {}


class Holding(msgspec.Struct, frozen=True):
    """What one job holds on one node: the requests of its pods, and what is reserved for members without a pod.

    `key` is None for pods of no job. `since` is the creation of its oldest pod there, or empty. `deletion` is when all
    its pods there will have been deleted; empty unless all are being deleted.
    """

    namespace: str
    node: str
    key: JobKey | None
    amounts: Amounts
    since: str = ""
    deletion: str = ""


class HeldCapacity(msgspec.Struct, frozen=True):
    """Who holds the capacity of the cluster, as far as the viewer may read it.

    `nodes` is None if the viewer may not list nodes and the pods of all namespaces; `holdings` are then those of a
    namespace. `times` are those of the jobs that the viewer may list. `known` are the words of the kinds of which all
    jobs are among them, by namespace, and "" for all namespaces.

    `requested` are holdings as quotas count them: also those of pods without a node, whose node is empty.
    """

    gangs: Mapping[tuple[str, str], Gang]
    nodes: Sequence[Node] | None
    holdings: Sequence[Holding]
    times: Mapping[JobKey, JobTimes]
    known: Mapping[str, frozenset[str]] = {}
    requested: Sequence[Holding] = ()


class ClusterUsage(msgspec.Struct, frozen=True):
    """`nodes` is None if the viewer may not read nodes."""

    holdings: list[JobUsage]
    nodes: list[NodeUsage] | None


def cluster_usage(
    pods: Iterable[ScheduledPod],
    shown: str,
    nodes: Sequence[Node] | None,
    gangs: Iterable[Gang] = (),
    jobs: Mapping[str, Container[JobKey]] = {},
    kinds: Sequence[ClientKind] = OWN_KINDS,
    used: Mapping[PodKey, tuple[int, int]] = {},
) -> ClusterUsage:
    """`pods` are those of all namespaces where `nodes` are given; `shown` is the namespace of the jobs, "" for all.

    `jobs` are the jobs that exist, by the word of their kind, as far as they are known; read after the pods. Pods of
    other kinds than `kinds` belong to no job. `used` is the CPU and memory that pods use.
    """
    owners = _owner_words(kinds)
    placed = _placed(pods)
    groups: dict[tuple[str, JobKey], list[ScheduledPod]] = defaultdict(list)
    for pod in placed:
        job = _job_key(pod, owners)
        if job is not None and shown in ("", pod.metadata.namespace):
            groups[pod.spec.node_name, job].append(pod)
    holdings = [
        JobUsage(node, *key[:2], _replicas(own), _quantities(_sum(own)), _is_deleted(key, jobs), _used(own, used))
        for (node, key), own in sorted(groups.items())
    ]
    if nodes is None:
        return ClusterUsage(holdings, None)
    held = {(pod.metadata.namespace, pod.metadata.name) for members in groups.values() for pod in members}
    others = [pod for pod in placed if (pod.metadata.namespace, pod.metadata.name) not in held]
    reserved = _reservations(gangs, placed)
    return ClusterUsage(
        holdings,
        [
            _node_usage(node, placed, others, reserved.get(node.metadata.name, {}))
            for node in sorted(nodes, key=lambda node: node.metadata.name)
        ],
    )


def _used(pods: Iterable[ScheduledPod], used: Mapping[PodKey, tuple[int, int]]) -> dict[str, str]:
    keys = ((pod.metadata.namespace, pod.metadata.name) for pod in pods)
    known = [used[key] for key in keys if key in used]
    if not known:
        return {}
    return _quantities({CPU: sum(cpu for cpu, _ in known), MEMORY: sum(memory for _, memory in known)})


def _owner_words(kinds: Iterable[ClientKind]) -> Mapping[str, str]:
    return {kind.operator_name: kind.word for kind in kinds if kind.owns_pods}


def _placed(pods: Iterable[ScheduledPod]) -> list[ScheduledPod]:
    return [pod for pod in pods if pod.spec.node_name and pod.status.phase not in FINISHED_PHASES]


def holdings_of(
    pods: Iterable[ScheduledPod],
    gangs: Iterable[Gang],
    kinds: Sequence[ClientKind] = OWN_KINDS,
    *,
    with_unplaced: bool = False,
) -> list[Holding]:
    """Returns what each job holds on each node, and what the pods of no job hold there, by namespace.

    `with_unplaced` also counts pods without a node.
    """
    owners = _owner_words(kinds)
    placed = [pod for pod in pods if pod.status.phase not in FINISHED_PHASES] if with_unplaced else _placed(pods)
    groups: dict[tuple[str, str, JobKey | None], list[ScheduledPod]] = defaultdict(list)
    for pod in placed:
        groups[pod.metadata.namespace, pod.spec.node_name, _job_key(pod, owners)].append(pod)
    holdings = [
        Holding(*group, _sum(own), min(pod.metadata.creation_timestamp or "" for pod in own), _deletion(own))
        for group, own in groups.items()
    ]
    there = _members_with_pod(placed)
    for gang in gangs:
        reserved, key = _reserved_of(gang, there), _key_of_gang(gang)
        namespace, since = gang.metadata.namespace, gang.status.admitted_time or ""
        holdings += [Holding(namespace, node, key, amounts, since) for node, amounts in reserved.items()]
    return holdings


def _deletion(pods: Sequence[ScheduledPod]) -> str:
    times = [pod.metadata.deletion_timestamp or "" for pod in pods]
    return max(times) if all(times) else ""


def _key_of_gang(gang: Gang) -> JobKey | None:
    """The job that owns a gang; without the id of its pods, which a Gang does not have."""
    owner = controller_of(gang)
    if owner is None:
        return None
    return gang.metadata.namespace, f"{owner.kind.lower()}/{name_value(owner.name)}", ""


def _is_deleted(key: JobKey, jobs: Mapping[str, Container[JobKey]]) -> bool:
    known = jobs.get(key[1].partition("/")[0])
    return known is not None and key not in known


def _reservations(gangs: Iterable[Gang], placed: Iterable[ScheduledPod]) -> Mapping[str, Amounts]:
    """The requests, by node, of assigned members that have no pod on any node."""
    there = _members_with_pod(placed)
    reservations: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for gang in gangs:
        for node, amounts in _reserved_of(gang, there).items():
            for resource, amount in amounts.items():
                reservations[node][resource] += amount
    return reservations


def _members_with_pod(placed: Iterable[ScheduledPod]) -> Container[tuple[str, str]]:
    return {(gang_key_of(pod.metadata), member_of(pod.metadata)) for pod in placed}


def _reserved_of(gang: Gang, there: Container[tuple[str, str]]) -> Mapping[str, Amounts]:
    """The requests, by node, of the gang's assigned members that have no pod."""
    if gang.status.phase not in (ADMITTED, BOUND):
        return {}
    key = f"{gang.metadata.namespace}/{gang.metadata.name}"
    requests = {kind.name: member_requests(kind) for kind in gang.spec.members}
    reserved: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for node in gang.status.placement:
        for member in node.members:
            if (key, member) not in there:
                for resource, amount in requests.get(kind_of(member), {}).items():
                    reserved[node.node][resource] += amount
    return reserved


def member_requests(member: Member) -> Amounts:
    """The requests of each pod of a member. Invalid quantities, which the CRD allows, count as nothing."""
    amounts = {}
    for resource, text in member.resources.items():
        with suppress(ValueError):
            amounts[resource] = amount_from(resource, text)
    return amounts


def by_zone(usage: ClusterUsage) -> list[tuple[str, list[str]]]:
    """Returns each zone with the names of its nodes, those without a zone first.

    Without the right to list nodes, those that jobs use are known, and no zones.
    """
    if usage.nodes is None:
        return [("", sorted({holding.node for holding in usage.holdings}))]
    zones: dict[str, list[str]] = {}
    for node in sorted(usage.nodes, key=lambda node: (node.zone, node.node)):
        zones.setdefault(node.zone, []).append(node.node)
    return list(zones.items())


def _job_key(pod: ScheduledPod, owners: Mapping[str, str]) -> JobKey | None:
    """None for a pod of no job. A long name is shortened as in its label.

    `owners` are the words of the kinds whose jobs own their pods, by the label of these pods.
    """
    labels = pod.metadata.labels
    if (word := owners.get(labels.get(OPERATOR_NAME_LABEL, ""))) and (owner := controller_of(pod)):
        return pod.metadata.namespace, f"{word}/{labels.get(JOB_NAME_LABEL, owner.name)}", owner.uid
    job = next((f"{kind}/{labels[label]}" for label, kind in _WORDS.items() if label in labels), "")
    return (pod.metadata.namespace, job, labels.get(RUNTIME_ID, "")) if job else None


def _replicas(pods: Sequence[ScheduledPod]) -> list[str]:
    replicas = {replica_id_of(pod.metadata.labels) for pod in pods}
    return sorted(replicas, key=lambda replica: (kind_of(replica), index_of(replica) or 0))


def _node_usage(
    node: Node, placed: Sequence[ScheduledPod], others: Sequence[ScheduledPod], reserved: Amounts
) -> NodeUsage:
    name = node.metadata.name
    allocatable = {resource: amount_from(resource, text) for resource, text in node.status.allocatable.items()}
    taken = _sum(pod for pod in placed if pod.spec.node_name == name)
    free = {
        resource: amount - taken.get(resource, 0) - reserved.get(resource, 0)
        for resource, amount in allocatable.items()
    }
    return NodeUsage(
        name,
        _quantities(allocatable),
        _quantities(_sum(pod for pod in others if pod.spec.node_name == name)),
        _quantities(free),
        node.metadata.labels.get(_ZONE, ""),
        _quantities(reserved),
    )


def _sum(pods: Iterable[ScheduledPod]) -> dict[str, int]:
    total: dict[str, int] = defaultdict(int)
    for pod in pods:
        for resource, amount in requests_of(pod).items():
            total[resource] += amount
    return dict(total)


def _quantities(amounts: Amounts) -> dict[str, str]:
    return {resource: quantity_of(resource, amount) for resource, amount in sorted(amounts.items())}


def read_usage(
    requester: Requester,
    namespace: str,
    kinds: Sequence[ClientKind] = OWN_KINDS,
    *,
    finds_deleted: bool = True,
    with_used: bool = False,
) -> tuple[ClusterUsage, str]:
    """The usage by the jobs of a namespace ("" is all of them), and why nodes are missing. Raises `ApiError`.

    Unless it `finds_deleted` jobs, which reads all of them, no job counts as deleted.

    `with_used` also reads what their pods use, from metrics-server if there is one.
    """
    nodes, pods, why = _read(requester, namespace, kinds)
    gangs = _read_gangs(requester) if nodes is not None else ()
    used: dict[PodKey, tuple[int, int]] = {}
    for selector in _selectors(kinds) if with_used else ():
        used.update(pod_usage(requester, namespace, selector))
    jobs, words = read_jobs(requester, [namespace], kinds) if finds_deleted else ({}, ())
    return cluster_usage(pods, namespace, nodes, gangs, dict.fromkeys(words, jobs), kinds, used), why


def read_capacity(requester: Requester, namespace: str, kinds: Sequence[ClientKind] = OWN_KINDS) -> HeldCapacity:
    """Who holds the capacity of the cluster, or of a namespace if the user may not read more. Raises `ApiError`."""
    nodes, pods, _ = _read(requester, namespace, kinds, _NOT_ENDED)
    gangs = _read_gangs(requester) or (_read_gangs(requester, namespace) if namespace else ())
    times, words = read_jobs(requester, [""], kinds)
    known = {"": frozenset(words)}
    if namespace and len(words) < len(_words(kinds)):
        there, words = read_jobs(requester, [namespace], kinds)
        times, known[namespace] = {**times, **there}, frozenset(words)
    by_name = {(gang.metadata.namespace, gang.metadata.name): gang for gang in gangs}
    return HeldCapacity(
        by_name,
        nodes,
        holdings_of(pods, gangs, kinds),
        times,
        known,
        holdings_of(pods, gangs, kinds, with_unplaced=True),
    )


def _words(kinds: Sequence[ClientKind]) -> frozenset[str]:
    """The words of all kinds whose jobs are read."""
    return frozenset({*_WORDS.values(), *_owner_words(kinds).values()})


def _read_gangs(requester: Requester, namespace: str = "") -> Sequence[Gang]:
    """The gangs of a namespace, or of all; none without that kind, or without the right to list it."""
    return listed(requester, GANGS, [namespace]) or ()


def _selectors(kinds: Sequence[ClientKind]) -> Sequence[str]:
    """The label selectors of the pods of jobs."""
    return CHILD_SELECTOR, *([OPERATOR_NAME_LABEL] if any(kind.owns_pods for kind in kinds) else [])


def _read(
    requester: Requester, scope: str, kinds: Sequence[ClientKind], selected: str = _HOLDING
) -> tuple[Sequence[Node] | None, Sequence[ScheduledPod], str]:
    """Nodes and the pods of all namespaces; without the right to list them, only the pods of jobs, and why."""
    pods = ResourceClient(requester, _PODS, **PATIENCE)
    try:
        nodes = ResourceClient(requester, NODES, **PATIENCE).list()
        return nodes, pods.list(field_selector=selected), ""
    except ApiError as error:
        if not error.is_forbidden:
            raise
        refusal = error
    try:
        of_jobs = [pod for selector in _selectors(kinds) for pod in pods.list(scope, selector)]
        return None, of_jobs, f"{refusal.message}: {cluster_role_remedy(CLUSTER_VIEWER)}"
    except ApiError as error:
        raise (refusal if error.is_forbidden and not scope else error) from None
