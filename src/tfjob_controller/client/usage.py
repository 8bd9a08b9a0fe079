"""The requests of jobs on each node, what is reserved for gangs, and what is free.

Requests are computed by the function that the gang scheduler uses, as kube-scheduler counts them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import msgspec

from tfjob_controller.api.common.cluster import (
    FINISHED_PHASES,
    NODES,
    Node,
    ScheduledPod,
)
from tfjob_controller.api.common.core import PODS
from tfjob_controller.api.common.podrequests import requests_of
from tfjob_controller.api.common.quantity import amount_from, quantity_of
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
from tfjob_controller.client.kinds import OWN_KINDS
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
    runtime_id_of,
)
from tfjob_controller.kinds import job_resources
from tfjob_controller.kinds.clientkind import ClientKind
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.meta import ObjectMeta, Resource, controller_of
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
_HOLDING = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
_PATIENCE: dict[str, Any] = {"timeout_seconds": 30.0, "retry": False}
# Amounts by resource.
Amounts = Mapping[str, int]
# Namespace, `KIND/NAME`, and the runtime id, or the UID of a job that owns its pods: the job of a pod.
JobKey: TypeAlias = tuple[str, str, str]


class JobUsage(msgspec.Struct, frozen=True):
    """The total requests of one job's replicas on one node, as quantities by resource name.

    `deleted`: the job no longer exists, although a job with the same name may.
    """

    node: str
    namespace: str
    job: str
    replicas: list[str]
    requests: dict[str, str]
    deleted: bool = False


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
) -> ClusterUsage:
    """`pods` are those of all namespaces where `nodes` are given; `shown` is the namespace of the jobs, "" for all.

    `jobs` are the jobs that exist, by the word of their kind, as far as they are known; read after the pods. Pods of
    other kinds than `kinds` belong to no job.
    """
    owners = {kind.operator_name: kind.word for kind in kinds if kind.owns_pods}
    placed = [pod for pod in pods if pod.spec.node_name and pod.status.phase not in FINISHED_PHASES]
    groups: dict[tuple[str, JobKey], list[ScheduledPod]] = defaultdict(list)
    for pod in placed:
        job = _job_key(pod, owners)
        if job is not None and shown in ("", pod.metadata.namespace):
            groups[pod.spec.node_name, job].append(pod)
    holdings = [
        JobUsage(node, *key[:2], _replicas(own), _quantities(_sum(own)), _is_deleted(key, jobs))
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


def _is_deleted(key: JobKey, jobs: Mapping[str, Container[JobKey]]) -> bool:
    known = jobs.get(key[1].partition("/")[0])
    return known is not None and key not in known


def _reservations(gangs: Iterable[Gang], placed: Iterable[ScheduledPod]) -> Mapping[str, Amounts]:
    """The requests, by node, of assigned members that have no pod on any node."""
    there = {(gang_key_of(pod.metadata), member_of(pod.metadata)) for pod in placed}
    reservations: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for gang in gangs:
        if gang.status.phase not in (ADMITTED, BOUND):
            continue
        key = f"{gang.metadata.namespace}/{gang.metadata.name}"
        requests = {kind.name: member_requests(kind) for kind in gang.spec.members}
        for node in gang.status.placement:
            for member in node.members:
                if (key, member) not in there:
                    for resource, amount in requests.get(kind_of(member), {}).items():
                        reservations[node.node][resource] += amount
    return reservations


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
    requester: Requester, namespace: str, kinds: Sequence[ClientKind] = OWN_KINDS, *, finds_deleted: bool = True
) -> tuple[ClusterUsage, str]:
    """The usage by the jobs of a namespace ("" is all of them), and why nodes are missing. Raises `ApiError`.

    Unless it `finds_deleted` jobs, which reads all of them, no job counts as deleted.
    """
    of_v1 = [kind.resource for kind in kinds if kind.owns_pods]
    nodes, pods, why = _read(requester, namespace, (CHILD_SELECTOR, *([OPERATOR_NAME_LABEL] if of_v1 else [])))
    gangs = _read_gangs(requester) if nodes is not None else ()
    jobs = _read_jobs(requester, namespace, of_v1) if finds_deleted else {}
    return cluster_usage(pods, namespace, nodes, gangs, jobs, kinds), why


class _JobSpec(msgspec.Struct, frozen=True):
    runtime_id: str = msgspec.field(name="RuntimeId", default="")


class _JobIdentity(msgspec.Struct, frozen=True):
    """What identifies the children of a job of any kind."""

    metadata: ObjectMeta
    spec: _JobSpec = _JobSpec()


_decode_job = decoder_for(_JobIdentity)


def _key_of(job: _JobIdentity, word: str) -> JobKey:
    meta = job.metadata
    return meta.namespace, f"{word}/{name_value(meta.name)}", job.spec.runtime_id or runtime_id_of(meta.uid)


def _key_of_owner(job: _JobIdentity, word: str) -> JobKey:
    return job.metadata.namespace, f"{word}/{job.metadata.name}", job.metadata.uid


def _read_jobs(requester: Requester, namespace: str, of_v1: Sequence[Resource[Any]]) -> Mapping[str, Container[JobKey]]:
    """The jobs of a namespace by word; without a word if the user may not list all kinds whose pods it names.

    Jobs of `of_v1` own their pods.
    """
    resources = [*job_resources(), *of_v1]
    by_word: dict[str, set[JobKey]] = {resource.kind.lower(): set() for resource in resources}
    for resource in resources:
        word = resource.kind.lower()
        try:
            jobs = ResourceClient(requester, resource.with_decoder(_decode_job), **_PATIENCE).list(namespace)
        except ApiError as error:
            if error.is_forbidden:
                by_word.pop(word, None)
            elif not error.is_not_found:
                raise
            continue
        if word in by_word:
            key_of = _key_of_owner if resource in of_v1 else _key_of
            by_word[word].update(key_of(job, word) for job in jobs)
    return by_word


def _read_gangs(requester: Requester) -> Sequence[Gang]:
    """The gangs of all namespaces; none without that kind, or without the right to list it."""
    try:
        return ResourceClient(requester, GANGS, **_PATIENCE).list()
    except ApiError as error:
        if error.is_forbidden or error.is_not_found:
            return ()
        raise


def _read(
    requester: Requester, scope: str, selectors: Sequence[str]
) -> tuple[Sequence[Node] | None, Sequence[ScheduledPod], str]:
    """Nodes and the pods of all namespaces; without the right to list them, only the pods of jobs, and why.

    `selectors` select the pods of jobs.
    """
    pods = ResourceClient(requester, _PODS, **_PATIENCE)
    try:
        nodes = ResourceClient(requester, NODES, **_PATIENCE).list()
        return nodes, pods.list(field_selector=_HOLDING), ""
    except ApiError as error:
        if not error.is_forbidden:
            raise
        refusal = error
    try:
        of_jobs = [pod for selector in selectors for pod in pods.list(scope, selector)]
        return None, of_jobs, f"{refusal.message}: {cluster_role_remedy(CLUSTER_VIEWER)}"
    except ApiError as error:
        raise (refusal if error.is_forbidden and not scope else error) from None
