"""Which program wrote a status, when, and whether that program still runs.

A status stays when the program that wrote it has stopped, and is out of date then. Each program renews a Lease while it
works, so a Lease that is not renewed any more shows that its program has stopped. All times are the API server's, which
sets `managedFields` and dates its responses, because the clocks of nodes and clients may be wrong.

Only what is in the namespace of the installation counts, because the role `edit` lets tenants write Leases and pods in
theirs. A Lease can be left over from an installation that was removed, or that elected a leader before. So no program
counts as stopped whose status was written after the Lease expired, or which has a ready pod. The role `view` does not
include Leases; whoever cannot read them is told who reported a status and how old it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from tfjob_controller.api.common.core import PODS
from tfjob_controller.client.kinds import Snapshot
from tfjob_controller.client.text import ago
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.leaderelection.lease import LEASES, LeaseRecord
from tfjob_controller.kube.managedfields import ManagedFieldsEntry, ManagedObject
from tfjob_controller.kube.meta import ObjectMeta
from tfjob_controller.kube.names import SYSTEM_NAMESPACE
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.timestamps import parse_time_or_none

# The programs that report, by the name of their Lease and Deployment, which is also their pods' label `app`.
CONTROLLER, GANG_SCHEDULER = "tfjob-controller", "gang-scheduler"
_TITLES = {CONTROLLER: "the controller", GANG_SCHEDULER: "the gang scheduler"}
# Lower bound of the time after which a program whose Lease is not renewed counts as stopped: another leader takes over
# within less, and another API server's clock may be a few seconds off.
GRACE_SECONDS = 60.0
RUNNING, STOPPED, NO_LEASE, UNKNOWN = "running", "stopped", "no lease", "unknown"
_PATIENCE: dict[str, Any] = {"timeout_seconds": 10.0, "retry": False}


class StatusReport(msgspec.Struct, frozen=True):
    """A status: the program that wrote it, when it last changed, and whether the program runs.

    `state` is `RUNNING`; `STOPPED`: the Lease in `namespace` was `renewed` last at that time; `NO_LEASE`: there is
    neither a Lease nor a ready pod; or `UNKNOWN`: the Lease cannot be read, something else shows that a program may
    run, or the API server's time is not known. Times are RFC 3339, or empty. In all texts
    `now` is the API server's time.
    """

    by: str
    time: str
    state: str
    renewed: str = ""
    namespace: str = ""

    @property
    def title(self) -> str:
        """Such as `the controller`."""
        return _TITLES[self.by]

    @property
    def remedy(self) -> str:
        """What to check if the program may not run."""
        if self.state == STOPPED:
            return f"check its Deployment: kubectl get deployment {self.by} -n {self.namespace}"
        return f"check that it runs: kubectl get pods -A -l app={self.by}"

    def stop(self, now: datetime) -> str:
        """Returns a text such as `the controller stopped 12m ago`; empty unless it has stopped."""
        return f"{self.title} stopped {ago(self.renewed, now)}" if self.state == STOPPED else ""

    def origin(self, now: datetime) -> str:
        """Returns a text such as `reported by the controller 12m ago`."""
        return f"reported by {self.title} {ago(self.time, now)}".rstrip()

    def notice(self, now: datetime) -> str:
        """A sentence for what is shown with this report; empty while the program runs, or if that is unknown."""
        if stop := self.stop(now):
            return f"{stop[:1].upper()}{stop[1:]}; its last report may be out of date; {self.remedy}"
        if self.state == NO_LEASE:
            return f"No Lease and no pod shows that {self.title} runs; {self.remedy}"
        return ""


class _LeaseMeta(ObjectMeta, frozen=True, rename="camel"):
    managed_fields: tuple[ManagedFieldsEntry, ...] = ()


class _Lease(msgspec.Struct, frozen=True):
    metadata: _LeaseMeta = _LeaseMeta()
    spec: LeaseRecord = LeaseRecord()

    @property
    def renewed(self) -> str:
        return max((entry.time for entry in self.metadata.managed_fields), default="") or self.spec.renew_time or ""


_decode_managed = decoder_for(ManagedObject)
_decode_lease = decoder_for(_Lease)


def status_time(item: bytes | msgspec.Raw) -> str:
    """When the status of an object last changed, RFC 3339; empty if it has none."""
    return _status_time(_decode_managed(item))


def _status_time(managed: ManagedObject) -> str:
    return max((entry.time for entry in managed.metadata.managed_fields if "f:status" in entry.fields_v1), default="")


def job_reports(
    requester: Requester, snapshot: Snapshot, gangs: Iterable[Any], controller_namespace: str = SYSTEM_NAMESPACE
) -> Mapping[str, StatusReport]:
    """The report of the controller, and that of the gang scheduler if the job has Gangs, which are plain JSON."""
    times = {CONTROLLER: status_time(snapshot.body)}
    managed = [_status_time(msgspec.convert(gang, ManagedObject)) for gang in gangs]
    if managed:
        times[GANG_SCHEDULER] = max(managed)
    return {name: read_report(requester, name, time, controller_namespace) for name, time in times.items()}


def read_report(requester: Requester, program: str, time: str, namespace: str = SYSTEM_NAMESPACE) -> StatusReport:
    """The report of a program, installed in `namespace`, whose status changed last at `time`.

    Raises nothing: what fails is unknown, and so is whether a program in another namespace runs.
    """
    try:
        lease = _lease(requester, program, namespace)
        if lease is None:
            return StatusReport(program, time, _state_without_lease(requester, program, namespace))
        state = _state(lease, time, requester.server_time())
        # Without the time of a status, only a pod elsewhere shows that the Lease is a leftover.
        if state == STOPPED and _may_have_ready_pod(requester, program, namespace if time else ""):
            state = UNKNOWN
    except ApiError:
        return StatusReport(program, time, UNKNOWN)
    evidence = (lease.renewed, namespace) if state == STOPPED else ()
    return StatusReport(program, time, state, *evidence)


def _lease(requester: Requester, name: str, namespace: str) -> _Lease | None:
    client = ResourceClient(requester, LEASES.with_decoder(_decode_lease), **_PATIENCE)
    try:
        return client.get(namespace, name)
    except ApiError as error:
        if error.is_not_found:
            return None
        raise


def _state(lease: _Lease, status_changed: str, now: datetime | None) -> str:
    renewed, written = parse_time_or_none(lease.renewed), parse_time_or_none(status_changed)
    if renewed is None or now is None:
        return UNKNOWN
    expiry = renewed + timedelta(seconds=max(GRACE_SECONDS, lease.spec.lease_duration_seconds or 0))
    if now <= expiry:
        return RUNNING
    return STOPPED if written is None or written <= expiry else UNKNOWN


def _state_without_lease(requester: Requester, name: str, namespace: str) -> str:
    """A program without leader election has no Lease. A pod of that label elsewhere may be a tenant's, or its own."""
    if _has_ready_pod(requester, name, namespace):
        return RUNNING
    return UNKNOWN if _has_ready_pod(requester, name, "") else NO_LEASE


def _may_have_ready_pod(requester: Requester, name: str, namespace: str) -> bool:
    """A user who may not list the pods is told what the Lease shows."""
    try:
        return _has_ready_pod(requester, name, namespace)
    except ApiError as error:
        if error.is_forbidden:
            return False
        raise


def _has_ready_pod(requester: Requester, name: str, namespace: str) -> bool:
    pods = ResourceClient(requester, PODS, **_PATIENCE).list(namespace, f"app={name}")
    conditions = [condition for pod in pods for condition in pod.status.conditions]
    return any(condition.type == "Ready" and condition.status == "True" for condition in conditions)
