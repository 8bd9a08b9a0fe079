"""Gang `scheduling.kubeflow.org/v1alpha1` as data: pods that run all together or not at all.

A Gang is the whole contract between whoever creates pods (the TFJob controller, or anybody else) and the gang
scheduler. The owner writes `spec` and creates no pod before `status.phase` is Admitted; the gang scheduler writes
`status`. A member is a set of like pods; its pods are called `<member>-<index>`, such as `worker-3`, and say so in
their labels, with the attempt that they were created for.

Source: the design is DRAGON's (all replicas at once, on few nodes); the words are those of Kubernetes' own scheduling.
"""

from __future__ import annotations

import itertools
import re
from typing import Annotated, Any

import msgspec

from tfjob_controller.api.describe import INT32_MAX, says
from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.meta import ObjectMeta, Resource

GANGS = Resource("scheduling.kubeflow.org", "v1alpha1", "gangs", "Gang")

# Labels of the pods of a gang.
GANG_LABEL = "scheduling.kubeflow.org/gang"
MEMBER_LABEL = "scheduling.kubeflow.org/member"
ATTEMPT_LABEL = "scheduling.kubeflow.org/attempt"
# Set on a pod that got another node, so that kube-scheduler looks at it again; says which.
NODE_ANNOTATION = "scheduling.kubeflow.org/node"

PHASES = WAITING, ADMITTED, BOUND, RELEASED, UNSCHEDULABLE = (
    "Waiting",
    "Admitted",
    "Bound",
    "Released",
    "Unschedulable",
)
ON_TIMEOUT = ON_TIMEOUT_WAIT, ON_TIMEOUT_FAIL, ON_TIMEOUT_SUSPEND = ("Wait", "Fail", "Suspend")

# The placement stands in one object, which etcd limits to 1.5 MB.
MAX_MEMBERS = 10_000
MAX_KINDS = 16

# The index of a member, as it stands in its name.
_INDEX = re.compile("0|[1-9][0-9]{0,8}")

# Rules of a Gang's spec; hack/generate/rules.py says them in CEL.
MIN_ABOVE_COUNT = "minMembers must name a member, and be no more than its count"
MAX_BELOW_COUNT = "maxMembers must name a member, and be no less than its count"
TOO_MANY_MEMBERS = "a gang can have 10000 pods at most"


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all values here; unknown fields are dropped on decoding."""


class Member(_Value, frozen=True):
    """A set of like pods, with all that decides where they can run."""

    name: Annotated[
        str,
        says(
            "What these pods are, such as worker; the pods are called worker-0, worker-1 and so on.",
            minLength=1,
            maxLength=40,
            pattern="^[a-z]([-a-z0-9]*[a-z0-9])?$",
        ),
    ]
    count: Annotated[int, says("How many of them.", format="int32", minimum=0, maximum=MAX_MEMBERS, default=1)] = 1
    resources: Annotated[
        dict[str, str],
        says(
            "What each of them requests, as quantities by resource name: the sum over its containers, as "
            "kube-scheduler counts it."
        ),
    ] = {}
    node_selector: Annotated[dict[str, str], says("The nodeSelector of the pods.")] = {}
    tolerations: Annotated[tuple[dict[str, Any], ...], says("The tolerations of the pods.")] = ()
    node_affinity: Annotated[
        dict[str, Any] | None,
        says(
            "The required node affinity of the pods: what stands under requiredDuringSchedulingIgnoredDuringExecution."
        ),
    ] = None
    priority_class_name: Annotated[str, says("The PriorityClass of the pods.")] = ""


class GangSpec(_Value, frozen=True):
    """What must run together, and how long it may wait."""

    members: Annotated[tuple[Member, ...], says("The pods of the gang, by kind.", minItems=1, maxItems=MAX_KINDS)] = ()
    min_members: Annotated[
        dict[str, int],
        says(
            "The least of each member that may start and stay. Default: its count. A member that is named here and in "
            "maxMembers is elastic: the gang scheduler may ask its owner for more or fewer (status.targetMembers)."
        ),
    ] = {}
    max_members: Annotated[
        dict[str, int],
        says(
            "The most of each member that may be used: as far as its count, which is what is asked for now, and "
            "status.targetMembers may go. No more than count is ever placed. Default: its count."
        ),
    ] = {}
    priority: Annotated[
        int, says("Value of the job's PriorityClass: gangs of a higher one come first.", format="int32", default=0)
    ] = 0
    queue: Annotated[str, says("Name of a queue, for people.")] = ""
    timeout_seconds: Annotated[
        int | None,
        says(
            "Seconds that the gang may wait before onTimeout applies. Default: no limit.",
            format="int32",
            minimum=0,
            maximum=INT32_MAX,
        ),
    ] = None
    on_timeout: Annotated[
        str,
        says(
            "What its owner does after timeoutSeconds: Wait (says so, and waits on), Fail or Suspend. Default: Wait.",
            enum=list(ON_TIMEOUT),
        ),
    ] = ""
    suspend: Annotated[bool, says("True: the gang is not considered, and an admitted one gives its room back.")] = False


class NodePlacement(_Value, frozen=True):
    """The members on one node."""

    node: Annotated[str, says("The node's name.")]
    members: Annotated[tuple[str, ...], says("The pods that it takes, such as worker-3.")] = ()


class Missing(_Value, frozen=True):
    """What a waiting gang lacks of one resource."""

    resource: Annotated[str, says("The resource's name.")]
    requested: Annotated[str, says("What all members request together.")] = ""
    available: Annotated[str, says("What the nodes that suit them have left.")] = ""


class GangCondition(_Value, frozen=True, omit_defaults=False):
    """A standard condition (metav1.Condition)."""

    type: Annotated[str, says("Scheduled.")]
    status: Annotated[str, says("True, False or Unknown.")]
    reason: Annotated[str, says("Why, in one word for programs.")]
    message: Annotated[str, says("Why, in words for people.")]
    last_transition_time: Annotated[str, says("When the status last changed.", format="date-time")]
    observed_generation: Annotated[
        int, says("The metadata.generation that the condition was computed from.", format="int64", minimum=0)
    ] = 0


class GangStatus(_Value, frozen=True):
    """What the gang scheduler says."""

    phase: Annotated[str, says("Waiting, Admitted, Bound, Released or Unschedulable; empty before it was seen.")] = ""
    attempt: Annotated[
        int,
        says("Rises with each admission; pods carry the one they were created for as a label.", format="int32"),
    ] = 0
    placement: Annotated[tuple[NodePlacement, ...], says("The node of every member, while Admitted or Bound.")] = ()
    members: Annotated[str, says("Pods that have a node, of all, such as 3/4. For `kubectl get`.")] = ""
    target_members: Annotated[
        dict[str, int],
        says(
            "How many of each member the owner should have now, where that is not its count: fewer, so that a gang "
            "that waits can start, or more, where the cluster has room. Between minMembers and maxMembers."
        ),
    ] = {}
    target_reason: Annotated[str, says("Why, while there are targetMembers.")] = ""
    leaving: Annotated[
        tuple[str, ...],
        says(
            "Members that should go, such as worker-3, so that targetMembers are left. Once the count is lower, these "
            "are the first to leave; after them, and where none are named, those of the highest index."
        ),
    ] = ()
    position: Annotated[int, says("Place in the queue, from 1; 0 while it does not wait.", format="int32")] = 0
    missing: Annotated[tuple[Missing, ...], says("What it lacks, by resource.")] = ()
    message: Annotated[str, says("The same in words.")] = ""
    queued_time: Annotated[
        str | None, says("When it came into the queue; its age there counts from then.", format="date-time")
    ] = None
    requeue_time: Annotated[
        str | None, says("It is not considered before then, after an attempt that failed.", format="date-time")
    ] = None
    admitted_time: Annotated[str | None, says("When it was admitted last.", format="date-time")] = None
    bound_time: Annotated[
        str | None, says("When all of its pods were bound first, in this attempt.", format="date-time")
    ] = None
    last_resize_time: Annotated[
        str | None, says("When members of the bound gang came or went last, in this attempt.", format="date-time")
    ] = None
    observed_generation: Annotated[
        int, says("The metadata.generation that this status was computed from.", format="int64")
    ] = 0
    conditions: Annotated[tuple[GangCondition, ...], says("Scheduled, as a standard condition.")] = ()


class Gang(_Value, frozen=True):
    """One gang."""

    metadata: ObjectMeta
    spec: Annotated[GangSpec, says("What must run together.")] = GangSpec()
    status: Annotated[GangStatus, says("What the gang scheduler says.")] = GangStatus()


decode_gang = decoder_for(Gang)


def member_ids(spec: GangSpec) -> tuple[str, ...]:
    """The names of all pods of a gang that has no placement, in the order of the spec; see also `wanted_members`."""
    return tuple(f"{member.name}-{index}" for member in spec.members for index in range(member.count))


def wanted_members(gang: Gang) -> tuple[str, ...]:
    """The names of the pods that a gang should have now, in the order of the spec, each kind by index.

    What it has a place for comes first, so that a gang that is resized keeps its members where they are: of each kind
    those of its placement that are not `leaving`, then those that are, each by index and no more than `count` in all.
    What is lacking is made up by the lowest free indexes. So a gang may have holes (worker-0, worker-3); without a
    placement it is worker-0 to worker-<count - 1>.
    """
    placed = _placed_indexes(gang.status)
    leaving = frozenset(gang.status.leaving)
    return tuple(
        f"{member.name}-{index}"
        for member in gang.spec.members
        for index in _wanted_indexes(member, placed.get(member.name, set()), leaving)
    )


def _placed_indexes(status: GangStatus) -> dict[str, set[int]]:
    """By kind. What is no name of a member (a status can be edited by hand) is left out."""
    found: dict[str, set[int]] = {}
    for member in (each for node in status.placement for each in node.members):
        kind, _, index = member.rpartition("-")
        if _INDEX.fullmatch(index):
            found.setdefault(kind, set()).add(int(index))
    return found


def _wanted_indexes(member: Member, placed: set[int], leaving: frozenset[str]) -> list[int]:
    stay = sorted(placed, key=lambda index: (f"{member.name}-{index}" in leaving, index))[: max(member.count, 0)]
    free = (index for index in itertools.count() if index not in placed)
    return sorted([*stay, *itertools.islice(free, max(member.count - len(stay), 0))])


def gang_key_of(pod: ObjectMeta) -> str:
    """Returns the namespace/name of the Gang that a pod's label names; empty without the label."""
    name = pod.labels.get(GANG_LABEL, "")
    return f"{pod.namespace}/{name}" if name else ""


def kind_of(member_id: str) -> str:
    """`worker` of `worker-3`."""
    return member_id.rpartition("-")[0]


def placed_nodes(status: GangStatus) -> dict[str, str]:
    """The node of each member that has one."""
    return {member: each.node for each in status.placement for member in each.members}


def members_in_words(spec: GangSpec, placed: int) -> str:
    """What `status.members` says when so many of its pods have a node: `3/4`."""
    return f"{placed}/{sum(member.count for member in spec.members)}"
