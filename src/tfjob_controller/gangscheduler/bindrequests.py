"""Bind requests: a gang member, a pod and its node, and the errors with which bind calls are answered.

The errors are constant. kube-scheduler writes them into the pod's status, and each change wakes the pod.
"""

from __future__ import annotations

from dataclasses import dataclass

NOT_ADMITTED = "the gang is not admitted"
WRONG_ATTEMPT = "the pod belongs to another attempt of its gang"
UNKNOWN_MEMBER = "the gang has no such member"
WRONG_NODE = "the gang's member is placed on another node"
SECOND_POD = "another pod of this member already exists"
POD_DELETED = "the pod is deleted"
REJECTED = "the gang returns to the queue: its members did not all arrive in time"
NOT_COMPLETE = "waiting for the other members of the gang"
NO_CAPACITY = "a member of the gang no longer fits on its node"
SUPERSEDED = "superseded by a newer call of the pod"
STOPPING = "the gang scheduler is stopping"


@dataclass(frozen=True, slots=True)
class GangMember:
    """A pod's membership, from its labels."""

    gang: str
    """namespace/name"""
    attempt: int
    name: str
    """Such as worker-3."""


@dataclass(frozen=True, slots=True)
class BindRequest:
    """A pod and the node to bind it to."""

    namespace: str
    name: str
    uid: str
    node: str

    @property
    def key(self) -> str:
        """namespace/name"""
        return f"{self.namespace}/{self.name}"
