"""Why pods of jobs of `kubeflow.org/v1` do not run yet: the statuses of these jobs have no field for it.

Only pods that wait are followed, and of each one a short text is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from tfjob_controller.api.common.core import PODS
from tfjob_controller.client.text import one_line
from tfjob_controller.dashboard.jobrows import identity_of
from tfjob_controller.dashboard.users import User
from tfjob_controller.jobs.naming import OPERATOR_NAME_LABEL, replica_id_of
from tfjob_controller.jobs.state.podreasons import why_pending
from tfjob_controller.kube.cache.informer import Informer, InformerGroup
from tfjob_controller.kube.meta import ObjectMeta, controller_of
from tfjob_controller.util.clock import Clock

_MAX_TEXT = 300


class WaitingPod(msgspec.Struct, frozen=True):
    """A pod with the UID of its job, and why it waits as the reason of a job of another kind says it."""

    metadata: ObjectMeta
    job: str
    reason: str


def _decode(raw: bytes | msgspec.Raw) -> WaitingPod:
    pod = PODS.decode(raw)
    owner, why = controller_of(pod), why_pending(pod)
    reason = f"{replica_id_of(pod.metadata.labels)}: {one_line(why[:_MAX_TEXT])}" if why else ""
    return WaitingPod(identity_of(pod.metadata), owner.uid if owner is not None else "", reason)


_PODS = PODS.with_decoder(_decode)


class WaitingPods:
    """The pods that wait, in a namespace ("" is all of them). Thread-safe.

    `changed` is called after each change. Without the right to list pods nothing is known.
    """

    def __init__(self, user: User, namespace: str, changed: Callable[[], None], clock: Clock) -> None:
        self._changed = changed
        self._informer = Informer(
            user.requester,
            _PODS,
            namespace=namespace,
            label_selector=OPERATOR_NAME_LABEL,
            field_selector="status.phase=Pending",
            clock=clock,
        )
        self._informer.add_handler(self)
        self._group = InformerGroup([self._informer], clock)

    def start(self) -> None:
        self._group.start()

    def stop(self, timeout_seconds: float) -> None:
        self._group.stop(timeout_seconds)

    def reasons(self) -> Mapping[str, str]:
        """By the UID of the job: why the first of its pods waits, by name."""
        pods = sorted(self._informer.store.list(), key=lambda pod: pod.metadata.name, reverse=True)
        return {pod.job: pod.reason for pod in pods if pod.reason}

    # Called by the thread of the informer.

    def on_add(self, obj: WaitingPod, is_initial: bool) -> None:
        self._changed()

    def on_update(self, old: WaitingPod, new: WaitingPod) -> None:
        if old.reason != new.reason:
            self._changed()

    def on_delete(self, obj: WaitingPod, final: bool) -> None:
        self._changed()
