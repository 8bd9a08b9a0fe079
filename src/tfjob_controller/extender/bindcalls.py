"""What the bind calls' side speaks of: members, pods, what is to be done for them, and the words of a refusal.

The words are constant: kube-scheduler writes them into the pod's status, and each that differs from the last wakes it.
"""

from __future__ import annotations

from dataclasses import dataclass

NOT_ADMITTED = "the gang is not admitted"
OTHER_ATTEMPT = "the pod belongs to another attempt of its gang"
UNKNOWN_MEMBER = "the gang has no place for this member"
OTHER_NODE = "the gang's member is placed on another node"
SECOND_POD = "another pod of this member of the gang is there already"
POD_GONE = "the pod is gone"
GAVE_UP = "the gang goes back to the queue: it did not become complete in time"
NOT_COMPLETE = "not all members of the gang have come yet"
NO_ROOM = "a member of the gang has no room any more where it was to go"
CALLED_AGAIN = "the pod has come again"
STOPPING = "the gang scheduler stops"


@dataclass(frozen=True, slots=True)
class MemberOfGang:
    """Who a pod is, by its labels."""

    gang: str
    """namespace/name"""
    attempt: int
    member: str
    """Such as worker-3."""


@dataclass(frozen=True, slots=True)
class PodToBind:
    """A pod and the node that it goes to."""

    namespace: str
    name: str
    uid: str
    node: str


@dataclass(frozen=True, slots=True)
class BindAll:
    """Post a Binding for each of these, now, and say how each ended (`Barrier.result`)."""

    gang: str
    attempt: int
    pods: tuple[tuple[str, PodToBind], ...]
    """Member and pod."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Answer a call; no error means that its pod is bound."""

    call: int
    error: str = ""


@dataclass(frozen=True, slots=True)
class AllBound:
    """Every placed member is bound, for the first time in this attempt."""

    gang: str
    attempt: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The attempt is over: the gang goes back to Waiting, and its pods must go."""

    gang: str
    attempt: int


Output = BindAll | Answer | AllBound | GiveUp
