"""Asks a node autoscaler for nodes: keeps the ProvisioningRequests of waiting gangs according to the rules (rules.py).

Theory of operation. A thread of its own reads once per second what the other parts have: the last decisions of the
admission loop, the caches of Gangs and quotas, and its own cache of requests. It deletes and creates requests, one
after the other, so an API server that is slow delays no admission. What the loop adds to the messages of gangs is
replaced as a whole after each pass, and the loop is woken if it changed.

Without the CRD or the rights nothing is requested. Gangs wait as without an autoscaler, the log reports what is
missing, and the cache retries. Only requests with this project's label are in the cache.

Threads: `note_of`, `granted`, `states` and `statistics` any; a pass runs in this module's thread.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import structlog

from tfjob_controller.api.gang import Gang, ProvisioningRequestReference
from tfjob_controller.api.provisioningrequest import (
    POD_TEMPLATES,
    PROVISIONING_REQUESTS,
    PodTemplate,
    ProvisioningRequest,
)
from tfjob_controller.gangscheduler.provisioning.bodies import MANAGED_BY_LABEL, MANAGER, RequestBodies
from tfjob_controller.gangscheduler.provisioning.rules import (
    EndedRequest,
    ProvisioningPolicy,
    RequestPlan,
    RequestPlanner,
    RequestState,
    request_state,
)
from tfjob_controller.gangscheduler.state.shared import SharedState
from tfjob_controller.gangscheduler.status.writer import reference_to
from tfjob_controller.kube.cache.informer import Informer, InformerGroup, InformerStatistics
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.events.recorder import EventRecorder
from tfjob_controller.kube.meta import key_of, namespace_of
from tfjob_controller.kube.requester import Requester
from tfjob_controller.kube.trace import new_trace
from tfjob_controller.scheduling.decisions import Decision
from tfjob_controller.scheduling.quota import QuotaLookup
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.threads import SupervisedThread

log = structlog.get_logger(__name__)

PERIOD_SECONDS = 1.0
# The results of `gang_provisioning_results_total`, besides the states of requests that are over.
CREATED, REFUSED = "created", "refused"


def request_informer(requester: Requester, clock: Clock) -> Informer[ProvisioningRequest]:
    """Returns the informer on the gang scheduler's requests."""
    selector = f"{MANAGED_BY_LABEL}={MANAGER}"
    return Informer(requester, PROVISIONING_REQUESTS, label_selector=selector, clock=clock)


class Provisioner:
    """See the module's docstring. `observe` counts results."""

    def __init__(
        self,
        requester: Requester,
        state: SharedState,
        gangs: Store[Gang],
        quotas_of: QuotaLookup,
        decisions: Callable[[], Sequence[Decision]],
        recorder: EventRecorder,
        observe: Callable[[str], None],
        clock: Clock,
        *,
        policy: ProvisioningPolicy,
    ) -> None:
        self._state = state
        self._gangs = gangs
        self._decisions = decisions
        self._recorder = recorder
        self._observe = observe
        self._clock = clock
        self._planner = RequestPlanner(policy, quotas_of)
        self._requests = request_informer(requester, clock)
        self._informers = InformerGroup([self._requests], clock)
        self._client = ResourceClient(requester, PROVISIONING_REQUESTS)
        self._templates = ResourceClient(requester, POD_TEMPLATES)
        self._notes: Mapping[str, str] = {}
        # By gang, the name of its request.
        self._current: Mapping[str, str] = {}
        # The uids of requests that were deleted and that the cache still has.
        self._deleted: set[str] = set()
        self._stop = threading.Event()
        self._thread = SupervisedThread("provisioner", self._run, stop=self._stop, clock=clock)

    def start(self) -> None:
        self._informers.start()
        self._thread.start()

    def stop(self, timeout_seconds: float) -> bool:
        """Write nothing any more, and wait for the threads. Returns False if one has not ended in time."""
        self._stop.set()
        return self._thread.join(timeout_seconds) & self._informers.stop(timeout_seconds)

    @property
    def restarts(self) -> dict[str, int]:
        """How often its threads were restarted, by name."""
        return {"provisioner": self._thread.restarts} | self._informers.restarts()

    def statistics(self) -> Mapping[str, InformerStatistics]:
        return self._informers.statistics()

    def states(self) -> Mapping[str, int]:
        """Returns the number of requests by state."""
        return Counter(request_state(request)[0].value for request in self._requests.store.list())

    def note_of(self, key: str) -> str:
        """Returns the note on a waiting gang's request; empty without one."""
        return self._notes.get(key, "")

    def granted(self, key: str) -> ProvisioningRequestReference | None:
        """Returns the request by which nodes were provided for a gang, if any, as the cache has it now."""
        name = self._current.get(key)
        request = self._requests.store.get(f"{namespace_of(key)}/{name}") if name else None
        if request is None or request_state(request)[0] is not RequestState.PROVISIONED:
            return None
        return ProvisioningRequestReference(request.metadata.name, request.spec.provisioning_class_name)

    def _run(self) -> None:
        while not self._clock.sleep(PERIOD_SECONDS, self._stop):
            self.run_once()

    def run_once(self) -> None:
        """Run one pass. It does nothing until the cache of requests is complete."""
        if not self._requests.is_synced:
            return
        known = self._requests.store.list()
        self._deleted &= {request.metadata.uid for request in known}
        nominated = self._state.nominated
        plan = self._planner.plan(
            self._gangs.list(),
            self._decisions(),
            [request for request in known if request.metadata.uid not in self._deleted],
            nominated.gang_key if nominated is not None else "",
            self._clock.monotonic(),
            self._clock.now(),
        )
        self._publish(plan)
        for ended in plan.ended:
            self._report_end(ended)
        for request in plan.deletes:
            self._delete(request)
        for gang, bodies in plan.creates:
            self._create(gang, bodies)

    def _publish(self, plan: RequestPlan) -> None:
        is_changed = self._notes != plan.notes
        self._notes, self._current = plan.notes, plan.current
        if is_changed:
            self._state.wake()

    def _report_end(self, ended: EndedRequest) -> None:
        self._observe(ended.state)
        self._event(ended.gang, "Warning", "ProvisioningFailed", ended.note)
        log.warning("provisioning request is over", key=key_of(ended.gang), state=ended.state, note=ended.note)

    def _create(self, gang: Gang, bodies: RequestBodies) -> None:
        if self._stop.is_set():
            return
        namespace = gang.metadata.namespace
        with new_trace(key_of(gang)):
            try:
                for template in bodies.templates:
                    self._create_template(namespace, template)
                self._requests.store.assume(self._client.create(namespace, bodies.request))
            except ApiError as error:
                # Templates that were created stay for the next attempt, or until the Gang is deleted.
                self._observe(REFUSED)
                self._planner.refused(gang, str(error), self._clock.monotonic(), self._clock.now())
                log.warning("provisioning request not created", key=key_of(gang), error=str(error))
                return
            self._observe(CREATED)
            note = f"Requested nodes for {bodies.pods} pods by ProvisioningRequest {bodies.name}"
            self._event(gang, "Normal", "ProvisioningRequested", note)
            log.info("provisioning request created", key=key_of(gang), request=bodies.name, pods=bodies.pods)

    def _create_template(self, namespace: str, template: dict[str, object]) -> None:
        try:
            self._templates.create(namespace, template)
        except ApiError as error:
            # The name contains a hash of the content.
            if not error.is_already_exists:
                raise

    def _delete(self, request: ProvisioningRequest) -> None:
        if self._stop.is_set():
            return
        meta = request.metadata
        # Whoever may write a request could name templates of others in it.
        own = f"{meta.name}-"
        templates = [pod_set.pod_template_ref.name for pod_set in request.spec.pod_sets]
        try:
            self._delete_one(self._client, meta.namespace, meta.name, meta.uid)
            self._deleted.add(meta.uid)
            for name in templates:
                if name.startswith(own):
                    self._delete_one(self._templates, meta.namespace, name)
        except ApiError as error:
            log.warning("provisioning request not deleted", key=key_of(request), error=str(error))
            return
        log.info("provisioning request deleted", key=key_of(request))

    def _delete_one(
        self,
        client: ResourceClient[ProvisioningRequest] | ResourceClient[PodTemplate],
        namespace: str,
        name: str,
        uid: str = "",
    ) -> None:
        try:
            client.delete(namespace, name, uid=uid)
        except ApiError as error:
            if not error.is_not_found:
                raise

    def _event(self, gang: Gang, type_: str, reason: str, note: str) -> None:
        self._recorder.event(reference_to(gang), type_, reason, note, "Provision")
