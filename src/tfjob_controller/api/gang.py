"""Gang `scheduling.kubeflow.org/v1alpha1` as data: pods that all run together or not at all.

A Gang is the whole contract between an owner that creates pods (the TFJob controller or any other) and the gang
scheduler. The owner writes `spec` and creates no pod before `status.phase` is Admitted; the gang scheduler writes
`status`. A member is a set of equal pods, named `<member>-<index>`, such as `worker-3`. The pods' labels have this name
and the attempt that they were created for. Pods of an Indexed Job, which share one template, have the kind as a label
instead, and their completion index completes the name (`member_of`).

Source: the design is DRAGON's (all replicas at once, on few nodes); the terms are kube-scheduler's.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, TypeAlias

import msgspec

from tfjob_controller.api.common.schema import INT32_MAX, describe
from tfjob_controller.api.common.sizes import large_parts, size_problem
from tfjob_controller.kube import nesting
from tfjob_controller.kube.kept import Owns, anybody, kept_decoder
from tfjob_controller.kube.meta import ObjectMeta, Resource

# Labels of the pods of a gang.
GANG_LABEL = "scheduling.kubeflow.org/gang"
MEMBER_LABEL = "scheduling.kubeflow.org/member"
# Instead of the member's name: its kind. The Job controller sets the completion index of each pod of an Indexed Job.
MEMBER_KIND_LABEL = "scheduling.kubeflow.org/member-kind"
COMPLETION_INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
ATTEMPT_LABEL = "scheduling.kubeflow.org/attempt"
# Set to the new node on a pod that was reassigned, so that kube-scheduler retries it.
NODE_ANNOTATION = "scheduling.kubeflow.org/node"
# Set by the owner on its Gang: when the last checkpoint of its pods was completed, as an RFC 3339 time. Of gangs of
# equal rank, those that lose least work are shrunk and preempted first.
CHECKPOINT_TIME_ANNOTATION = "scheduling.kubeflow.org/checkpoint-time"
# A scheduling gate of pods that share a template in mode affinity: the gang scheduler pins each one and removes it.
PLACEMENT_GATE = "scheduling.kubeflow.org/placement"
REQUIRED_NODE_AFFINITY = "requiredDuringSchedulingIgnoredDuringExecution"

PHASES = WAITING, ADMITTED, BOUND, RELEASED, UNSCHEDULABLE = (
    "Waiting",
    "Admitted",
    "Bound",
    "Released",
    "Unschedulable",
)
# The states of a preemption: the owner is to delete the pods; they are gone; they could not be deleted in time.
PREEMPTION_STATES = REQUESTED, PREEMPTED, NOT_FOLLOWED = ("Requested", "Preempted", "NotFollowed")
ON_TIMEOUT = ON_TIMEOUT_WAIT, ON_TIMEOUT_FAIL, ON_TIMEOUT_SUSPEND = ("Wait", "Fail", "Suspend")

# The placement is part of one object, which etcd limits to 1.5 MB.
MAX_MEMBERS = 10_000
MAX_KINDS = 16
# Bounds on one member: the filters of a node are evaluated for each node of the cluster.
MAX_TERMS, MAX_EXPRESSIONS, MAX_VALUES = 64, 64, 256
MAX_ENTRIES = 64
# More than members within these bounds have.
_MAX_SPEC_VALUES = 20_000

# An index in a member's name or a label, or an attempt in a label. Longer numbers do not fit into a status.
_INDEX = re.compile("0|[1-9][0-9]{0,8}")
# A kind in a label: what the CRD allows as a member's name.
_KIND = re.compile("[a-z](?:[-a-z0-9]{0,38}[a-z0-9])?")

# Validation messages of a Gang's spec; hack/generate/rules.py has the CEL rules.
MIN_ABOVE_COUNT = "minMembers must name a member, and be no more than its count"
MAX_BELOW_COUNT = "maxMembers must name a member, and be no less than its count"
TOO_MANY_MEMBERS = "a gang can have 10000 pods at most"
NODE_AFFINITY_TOO_LARGE = (
    f"nodeAffinity can have at most {MAX_TERMS} terms, {MAX_EXPRESSIONS} expressions and {MAX_VALUES} values"
)

# Gang fields of jobs of all kinds.
TimeoutSeconds: TypeAlias = Annotated[
    int | None,
    describe(
        "The seconds that the job may wait for capacity before onTimeout applies. Default: no limit.",
        format="int32",
        minimum=1,
        maximum=INT32_MAX,
    ),
]
OnTimeout: TypeAlias = Annotated[
    str,
    describe(
        "The action after timeoutSeconds without capacity: Wait (and report it), Fail, or Suspend (spec.suspend is "
        "set). Default: Wait.",
        enum=list(ON_TIMEOUT),
    ),
]
Priority: TypeAlias = Annotated[
    int | None,
    describe(
        "Jobs of higher priority get capacity first. Usually the value of the PriorityClass. Default: 0.",
        format="int32",
    ),
]


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all values here. Unknown fields are dropped on decoding."""


class Member(_Value, frozen=True):
    """A set of equal pods, with their requests and their requirements on nodes."""

    name: Annotated[
        str,
        describe(
            "The kind of the pods, such as worker. The pods are named worker-0, worker-1 and so on.",
            minLength=1,
            maxLength=40,
            pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$",
        ),
    ]
    count: Annotated[
        int, describe("The number of pods.", format="int32", minimum=0, maximum=MAX_MEMBERS, default=1)
    ] = 1
    resources: Annotated[
        dict[str, str],
        describe(
            "The requests of each pod, as quantities by resource name: the sum over its containers, as "
            "kube-scheduler counts it.",
            maxProperties=MAX_ENTRIES,
        ),
    ] = {}
    node_selector: Annotated[dict[str, str], describe("The nodeSelector of the pods.", maxProperties=MAX_ENTRIES)] = {}
    tolerations: Annotated[
        tuple[dict[str, Any], ...], describe("The tolerations of the pods.", maxItems=MAX_ENTRIES)
    ] = ()
    node_affinity: Annotated[
        dict[str, Any] | None,
        describe(
            "The required node affinity of the pods: the value of requiredDuringSchedulingIgnoredDuringExecution."
        ),
    ] = None
    priority_class_name: Annotated[str, describe("The PriorityClass of the pods.")] = ""
    indexed: Annotated[
        bool,
        describe(
            "If true, the pods are those of one Indexed Job, whose indexes have no gaps: when members are removed, the "
            "highest indexes are removed first."
        ),
    ] = False


class GangSpec(_Value, frozen=True):
    """The pods that must run together, and how long they may wait."""

    members: Annotated[
        tuple[Member, ...], describe("The pods of the gang, by kind.", minItems=1, maxItems=MAX_KINDS)
    ] = ()
    min_members: Annotated[
        dict[str, int],
        describe(
            "The minimum number of each member. Default: its count. A member that is named here and in maxMembers is "
            "elastic: the gang scheduler may request more or fewer of it (status.targetMembers)."
        ),
    ] = {}
    max_members: Annotated[
        dict[str, int],
        describe(
            "The maximum number of each member, for its count and for status.targetMembers. No more than count are "
            "placed. Default: its count."
        ),
    ] = {}
    priority: Annotated[
        int,
        describe(
            "The value of the job's PriorityClass. Gangs of higher priority are first in the queue.",
            format="int32",
            default=0,
        ),
    ] = 0
    queue: Annotated[str, describe("The name of a queue, for information.")] = ""
    timeout_seconds: Annotated[
        int | None,
        describe(
            "The seconds that the gang may wait before onTimeout applies. Default: no limit.",
            format="int32",
            minimum=0,
            maximum=INT32_MAX,
        ),
    ] = None
    on_timeout: Annotated[
        str,
        describe(
            "The action of the owner after timeoutSeconds: Wait (and report it), Fail or Suspend. Default: Wait.",
            enum=list(ON_TIMEOUT),
        ),
    ] = ""
    suspend: Annotated[
        bool, describe("If true, the gang is not considered, and an admitted gang releases its capacity.")
    ] = False


class NodePlacement(_Value, frozen=True):
    """The members on one node."""

    node: Annotated[str, describe("The node's name.")]
    members: Annotated[tuple[str, ...], describe("The pods that are assigned to it, such as worker-3.")] = ()


class Missing(_Value, frozen=True):
    """One resource that a waiting gang lacks."""

    resource: Annotated[str, describe("The resource's name.")]
    requested: Annotated[str, describe("The total request of all members.")] = ""
    available: Annotated[str, describe("The free amount on suitable nodes.")] = ""


class GangCondition(_Value, frozen=True, omit_defaults=False):
    """A standard condition (metav1.Condition)."""

    type: Annotated[str, describe("Scheduled, or Preempted.")]
    status: Annotated[str, describe("True, False or Unknown.")]
    reason: Annotated[str, describe("The reason of the status, as one CamelCase word.")]
    message: Annotated[str, describe("The reason of the status, as a sentence.")]
    last_transition_time: Annotated[str, describe("When the status last changed.", format="date-time")]
    observed_generation: Annotated[
        int, describe("The metadata.generation that the condition was computed from.", format="int64", minimum=0)
    ] = 0


class Preemption(_Value, frozen=True, omit_defaults=False):
    """The preemption of a gang, until it is admitted again."""

    by: Annotated[str, describe("The gang that gets the capacity, as namespace/name.")] = ""
    state: Annotated[
        str,
        describe(
            "Requested: the owner must delete all pods of the gang, with their grace period. Preempted: they are gone, "
            "and the gang waits for capacity again. NotFollowed: they could not be deleted in time, and the gang "
            "continues.",
            enum=list(PREEMPTION_STATES),
        ),
    ] = ""
    time: Annotated[str | None, describe("The time of the request.", format="date-time")] = None


class ProvisioningRequestReference(_Value, frozen=True, omit_defaults=False):
    """The ProvisioningRequest whose nodes the pods of an attempt use."""

    name: Annotated[str, describe("The name of the ProvisioningRequest, in the namespace of the gang.")] = ""
    class_name: Annotated[str, describe("Its provisioning class.")] = ""


class GangStatus(_Value, frozen=True):
    """The observed state of a gang."""

    phase: Annotated[
        str, describe("Waiting, Admitted, Bound, Released or Unschedulable; empty until the gang is processed.")
    ] = ""
    attempt: Annotated[
        int,
        describe(
            "The number of admissions. A label of the pods has the attempt for which they were created.", format="int32"
        ),
    ] = 0
    placement: Annotated[
        tuple[NodePlacement, ...], describe("The assignment of every member to a node, while Admitted or Bound.")
    ] = ()
    members: Annotated[str, describe("The number of assigned pods of all pods, such as 3/4, for `kubectl get`.")] = ""
    target_members: Annotated[
        dict[str, int],
        describe(
            "The requested number of a member, where it differs from its count: fewer, so that a waiting gang can "
            "start, or more, if the cluster has free capacity. It is between minMembers and maxMembers."
        ),
    ] = {}
    target_reason: Annotated[str, describe("The reason for targetMembers.")] = ""
    leaving: Annotated[
        tuple[str, ...],
        describe(
            "The members to remove, such as worker-3, to reach targetMembers. Once the count is lower, they are "
            "removed first, and then those with the highest indexes. For an indexed member they are those with the "
            "highest indexes."
        ),
    ] = ()
    position: Annotated[
        int, describe("The position in the queue, from 1; 0 while the gang does not wait.", format="int32")
    ] = 0
    missing: Annotated[tuple[Missing, ...], describe("The resources that the gang lacks.")] = ()
    message: Annotated[str, describe("A description of the state.")] = ""
    queued_time: Annotated[
        str | None,
        describe("The time at which the gang was queued first. Its age counts from then.", format="date-time"),
    ] = None
    requeue_time: Annotated[
        str | None,
        describe("The time at which the gang is considered again after a failed attempt.", format="date-time"),
    ] = None
    admitted_time: Annotated[str | None, describe("The time of the last admission.", format="date-time")] = None
    bound_time: Annotated[
        str | None, describe("The time at which all pods were bound first in this attempt.", format="date-time")
    ] = None
    last_resize_time: Annotated[
        str | None,
        describe(
            "The time at which members of the bound gang were last added or removed in this attempt.",
            format="date-time",
        ),
    ] = None
    preemption: Annotated[
        Preemption | None,
        describe("The preemption of the gang, from the request until the gang is admitted again."),
    ] = None
    provisioning_request: Annotated[
        ProvisioningRequestReference | None,
        describe(
            "The ProvisioningRequest by which a node autoscaler has provided the nodes of this attempt. The owner sets "
            "it as annotations of the pods, so that the autoscaler adds no others for them."
        ),
    ] = None
    observed_generation: Annotated[
        int, describe("The metadata.generation that this status was computed from.", format="int64")
    ] = 0
    conditions: Annotated[
        tuple[GangCondition, ...], describe("The conditions Scheduled and, once the gang was preempted, Preempted.")
    ] = ()


class GangAnnotations(msgspec.Struct, frozen=True, omit_defaults=True):
    """The annotations that the gang scheduler reads."""

    checkpoint_time: str = msgspec.field(default="", name=CHECKPOINT_TIME_ANNOTATION)


class GangMeta(ObjectMeta, frozen=True, rename="camel", omit_defaults=True):
    annotations: GangAnnotations = GangAnnotations()


class Gang(_Value, frozen=True):
    """One gang."""

    metadata: GangMeta
    spec: Annotated[GangSpec, describe("The pods that must run together.")] = GangSpec()
    status: Annotated[GangStatus, describe("The observed state of the gang. The gang scheduler writes it.")] = (
        GangStatus()
    )


def gang_decoder(labels: Collection[str] = (), *, owns: Owns = anybody) -> Callable[[bytes | msgspec.Raw], Gang]:
    """Returns a decoder of gangs that keeps these labels and is as `kube.kept.kept_decoder` in all else.

    It raises msgspec.DecodeError, also for a gang whose spec exceeds the bounds. The CRD has the same bounds; here they
    hold whatever CRD is installed, because evaluating one gang takes time from all others.
    """
    decode_kept = kept_decoder(Gang, labels, owns=owns)

    def decode(raw: bytes | msgspec.Raw) -> Gang:
        data = bytes(raw)
        if problem := nesting.decode_truncated(_size_problem, data):
            raise msgspec.ValidationError(problem)
        found = decode_kept(data)
        for member in found.spec.members:
            if problem := bounds_problem(member):
                raise msgspec.ValidationError(f"spec.members: {member.name}: {problem}")
        return found

    return decode


def _size_problem(data: bytes) -> str:
    parts = large_parts(data)
    return size_problem(parts, _MAX_SPEC_VALUES) if parts is not None else ""


def bounds_problem(member: Member) -> str:
    """Returns which bound a member exceeds; empty if it is within all."""
    terms = (member.node_affinity or {}).get("nodeSelectorTerms")
    requirements = [
        each
        for term in _objects(terms)
        for part in ("matchExpressions", "matchFields")
        for each in _objects(term.get(part))
    ]
    values = sum(
        len(requirement["values"]) for requirement in requirements if isinstance(requirement.get("values"), list)
    )
    if len(_objects(terms)) > MAX_TERMS or len(requirements) > MAX_EXPRESSIONS or values > MAX_VALUES:
        return NODE_AFFINITY_TOO_LARGE
    if max(len(member.tolerations), len(member.node_selector), len(member.resources)) > MAX_ENTRIES:
        return f"at most {MAX_ENTRIES} tolerations, {MAX_ENTRIES} labels in nodeSelector and {MAX_ENTRIES} resources"
    return ""


def _objects(value: object) -> list[Mapping[str, Any]]:
    """Node affinity has no schema: entries of another type are ignored."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


GANGS = Resource("scheduling.kubeflow.org", "v1alpha1", "gangs", "Gang", gang_decoder())


def wanted_members(gang: Gang) -> tuple[str, ...]:
    """Returns the names of the pods that a gang should have now, in the order of the spec, each kind by index.

    Members with an assignment come first, so that a resized gang keeps its members on their nodes: of each kind those
    that are not `leaving`, then those that are, by index, and at most `count` in all. Missing members get the lowest
    free indexes. Indexes may therefore have gaps (worker-0, worker-3); without a placement they are 0 to count - 1, and
    those of indexed kinds always are.
    """
    placed = _placed_indexes(gang.status)
    leaving = frozenset(gang.status.leaving)
    return tuple(
        f"{member.name}-{index}"
        for member in gang.spec.members
        for index in _wanted_indexes(member, placed.get(member.name, set()), leaving)
    )


def _placed_indexes(status: GangStatus) -> dict[str, set[int]]:
    """Returns the indexes by kind. Invalid names (a status can be edited by hand) are omitted."""
    found: dict[str, set[int]] = {}
    for member in (each for node in status.placement for each in node.members):
        index = index_of(member)
        if index is not None:
            found.setdefault(kind_of(member), set()).add(index)
    return found


def _wanted_indexes(member: Member, placed: set[int], leaving: frozenset[str]) -> list[int]:
    if member.indexed:
        return list(range(max(member.count, 0)))
    stay = sorted(placed, key=lambda index: (f"{member.name}-{index}" in leaving, index))[: max(member.count, 0)]
    free = (index for index in itertools.count() if index not in placed)
    return sorted([*stay, *itertools.islice(free, max(member.count - len(stay), 0))])


def gang_key_of(pod: ObjectMeta) -> str:
    """Returns the namespace/name of the Gang that a pod's label names; empty without the label."""
    name = pod.labels.get(GANG_LABEL, "")
    return f"{pod.namespace}/{name}" if name else ""


def member_of(pod: ObjectMeta) -> str:
    """Returns the name of the member that a pod is, such as `worker-3`, from its labels; empty if it is no member.

    Without a label for the name, it consists of the kind and the completion index. Users can edit labels: invalid ones
    name no member.
    """
    labels = pod.labels
    name = labels.get(MEMBER_LABEL)
    if name is not None:
        return name
    kind, index = labels.get(MEMBER_KIND_LABEL, ""), labels.get(COMPLETION_INDEX_LABEL, "")
    return f"{kind}-{index}" if _KIND.fullmatch(kind) and _INDEX.fullmatch(index) else ""


def kind_of(member_id: str) -> str:
    """Returns the kind in a member's name: `worker` of `worker-3`."""
    return member_id.rpartition("-")[0]


def index_of(member_id: str) -> int | None:
    """Returns the index in a member's name: 3 of `worker-3`; None for an invalid name."""
    return parse_index(member_id.rpartition("-")[2])


def parse_index(text: str) -> int | None:
    """Returns the index or attempt that a label holds; None if it is invalid, since users can edit labels."""
    return int(text) if _INDEX.fullmatch(text) else None


def placed_nodes(status: GangStatus) -> dict[str, str]:
    """Returns the node of each assigned member."""
    return {member: placement.node for placement in status.placement for member in placement.members}


def must_leave(gang: Gang) -> bool:
    """Returns whether the owner is to delete all pods of the gang, since another gang preempts it."""
    preemption = gang.status.preemption
    return gang.status.phase == BOUND and preemption is not None and preemption.state == REQUESTED


def required_on_node(required: Mapping[str, Any] | None, node: str) -> dict[str, Any]:
    """Returns a required node affinity that only this node meets, if it meets `required`.

    One of the terms has to match, so the node is added to each. An empty term matches no node, and stays as it is.
    """
    here = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = (required or {}).get("nodeSelectorTerms")
    if not terms:
        return {"nodeSelectorTerms": [{"matchFields": [here]}]}
    return {
        "nodeSelectorTerms": [
            {**term, "matchFields": [*(term.get("matchFields") or ()), here]} if any(term.values()) else term
            for term in terms
        ]
    }


def members_in_words(spec: GangSpec, placed: int) -> str:
    """Returns the value of `status.members`: `3/4`."""
    return f"{placed}/{sum(member.count for member in spec.members)}"
