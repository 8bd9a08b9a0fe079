"""What the bind calls' side speaks of: members, pods, what is to be done for them, and the words of a refusal.

The words are constant: kube-scheduler writes them into the pod's status, and each that differs from the last wakes it.
"""

from __future__ import annotations

from dataclasses import dataclass

NOT_ADMITTED = "the gang is not admitted"
WRONG_ATTEMPT = "the pod belongs to another attempt of its gang"
UNKNOWN_MEMBER = "the gang has no place for this member"
WRONG_NODE = "the gang's member is placed on another node"
SECOND_POD = "another pod of this member of the gang is there already"
POD_DELETED = "the pod is gone"
REJECTED = "the gang goes back to the queue: it did not become complete in time"
NOT_COMPLETE = "not all members of the gang have come yet"
NO_CAPACITY = "a member of the gang has no room any more where it was to go"
SUPERSEDED = "the pod has come again"
STOPPING = "the gang scheduler stops"


@dataclass(frozen=True, slots=True)
class GangMember:
    """Who a pod is, by its labels."""

    gang: str
    """namespace/name"""
    attempt: int
    member: str
    """Such as worker-3."""


@dataclass(frozen=True, slots=True)
class BindRequest:
    """A pod and the node that it goes to."""

    namespace: str
    name: str
    uid: str
    node: str
