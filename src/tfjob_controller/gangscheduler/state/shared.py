"""State that the gang scheduler's threads share: the cluster view, and the gangs that the admission loop must process.

Theory of operation. The informers' handlers keep the view current. A thread that learns of a change which may affect a
gang marks the gang here and returns; the loop takes all marked gangs at once (`take`). Other threads therefore depend
on this module, and none depends on the loop: a gang's path leads from here to the loop (admission/loop.py), to Permit
(permit/permit.py) and to the binder (binding/binder.py), and back only through the marks.

`SharedState` also holds the pods of each gang (`gangpods`), and what Gangs and pods do not tell: `observedrequests`,
`rejectednodes` and `admittedclasses`.

Locks: `lock` guards the view, the gangs' pods and the usage of quotas. It is held while a pass computes, never during
I/O, and kube-scheduler's filter calls do not wait for it. The marks have a lock of their own, which is held briefly.
Threads: any, but only the loop calls `take` and `wait`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tfjob_controller.api.common.cluster import ScheduledPod
from tfjob_controller.api.common.podrequests import amounts_of, requests_of
from tfjob_controller.api.gang import (
    ADMITTED,
    ATTEMPT_LABEL,
    Gang,
    gang_key_of,
    kind_of,
    member_of,
    parse_index,
)
from tfjob_controller.gangscheduler.bindrequests import GangMember
from tfjob_controller.gangscheduler.state.admittedclasses import AdmittedClasses
from tfjob_controller.gangscheduler.state.gangpods import GangPods
from tfjob_controller.gangscheduler.state.observedrequests import ObservedRequests
from tfjob_controller.gangscheduler.state.rejectednodes import RejectedNodes
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.meta import controller_of, key_of
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.decisions import NominatedNodes
from tfjob_controller.scheduling.quota import PodUsage
from tfjob_controller.util.clock import Clock


class SharedState:
    """The view, what is known beyond Gangs and pods, and the marks for the loop."""

    def __init__(self, gangs: Store[Gang], clock: Clock) -> None:
        self.view = ClusterView()
        self.gang_pods = GangPods()
        self.pod_usage = PodUsage()
        self.lock = threading.Lock()
        self.observed_requests = ObservedRequests(clock)
        self.rejected_nodes = RejectedNodes(clock)
        self.admitted_classes = AdmittedClasses()
        # The value is immutable, so it is read without the lock.
        self.nominated: NominatedNodes | None = None
        self._gangs = gangs
        self._clock = clock
        self._changed = threading.Condition()
        self._marked: set[str] = set()
        self._is_woken = False
        self._rejected_attempts: dict[str, int] = {}

    # Marks, from any thread

    def enqueue(self, gang_key: str) -> None:
        """Mark a gang that changed, or whose pods changed."""
        with self._changed:
            self._marked.add(gang_key)
            self._changed.notify_all()

    def capacity_changed(self) -> None:
        """Wake the loop because a node or pod changed so that a waiting gang may fit."""
        self.wake()

    def wake(self) -> None:
        """Wake the loop without marking a gang: capacity changed, a status write ended, or the loop is to stop."""
        with self._changed:
            self._is_woken = True
            self._changed.notify_all()

    def node_degraded(self, node: str) -> None:
        """Mark admitted gangs with members on a node that may have become unsuitable."""
        for gang in self._gangs.list():
            if gang.status.phase == ADMITTED and any(placement.node == node for placement in gang.status.placement):
                self.enqueue(key_of(gang))

    def node_rejected(self, member: GangMember, node: str) -> None:
        """Record that kube-scheduler's filters rejected the member's node."""
        if self.rejected_nodes.add(member, node):
            self.enqueue(member.gang)

    def attempt_rejected(self, gang: str, attempt: int) -> None:
        """Record that Permit rejected an attempt, of which no Binding is in flight."""
        with self._changed:
            self._rejected_attempts[gang] = attempt
        self.enqueue(gang)

    def note_created(self, pod: ScheduledPod, note: Callable[[str, int, str], None]) -> None:
        """Call `note(gang, attempt, member)` if the pod counts as progress of its gang.

        It must request what the Gang states for its member, and have a controller if the Gang has one. The caller
        checks attempt and member.
        """
        key = gang_key_of(pod.metadata)
        gang = self._gangs.get(key)
        attempt = parse_index(pod.metadata.labels.get(ATTEMPT_LABEL, ""))
        member = member_of(pod.metadata)
        if gang is not None and attempt is not None and _is_as_declared(gang, member, pod):
            note(key, attempt, member)

    # For the loop

    def wait(self, seconds: float) -> None:
        """Wait for a mark or `wake`, for at most `seconds`."""
        with self._changed:
            if not self._marked and not self._is_woken:
                self._clock.wait(self._changed, seconds)

    def take(self) -> set[str]:
        """Take all marked gangs."""
        with self._changed:
            marked, self._marked, self._is_woken = self._marked, set(), False
        return marked

    def is_attempt_rejected(self, gang: Gang) -> bool:
        """Reports whether Permit rejected the gang's current attempt."""
        return self._rejected_attempts.get(key_of(gang)) == gang.status.attempt

    def forget(self, gang_key: str) -> None:
        """Forget a Gang that was deleted or recreated."""
        self.rejected_nodes.forget(gang_key)
        self.observed_requests.forget(gang_key)
        self._rejected_attempts.pop(gang_key, None)


def _is_as_declared(gang: Gang, member: str, pod: ScheduledPod) -> bool:
    declared = next((group for group in gang.spec.members if group.name == kind_of(member)), None)
    if declared is None or (controller_of(gang) is not None and controller_of(pod) is None):
        return False
    try:
        amounts = requests_of(pod)
        return all(amounts.get(name, 0) >= amount for name, amount in amounts_of(declared).items())
    except ValueError:
        return False
