"""Waits until the leader of another installation has stopped, before this program begins to work.

A Lease excludes other replicas of one installation. A second installation, and a program that runs without leader
election, know nothing of it: both write the same objects. So the Lease of the default installation is read before the
work begins. Leases in other namespaces are not trusted: the role `edit` lets tenants write them, who could thus stop
the program of the cluster. The default installation itself looks for no other.

A Lease counts as held until it has not changed for the duration that its holder promised, on the local clock, as in
`lease`. This is no lock: it protects from mistakes at the installation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec
import structlog

from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.leaderelection.lease import LEASES, LeaseRecord
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import Clock

log = structlog.get_logger(__name__)

POLL_SECONDS = 3.0
_DEFAULT_LEASE_SECONDS = 15


class _Lease(msgspec.Struct, frozen=True):
    spec: LeaseRecord = LeaseRecord()


class OtherLeader:
    """The holder of the Lease `namespace`/`name`."""

    def __init__(self, requester: Requester, clock: Clock, namespace: str, name: str) -> None:
        self._requester, self._clock, self._namespace, self._name = requester, clock, namespace, name
        self._seen: LeaseRecord | None = None
        self._seen_at = 0.0

    def wait(self, note: Callable[[str], None], stop: threading.Event) -> bool:
        """Returns True once the other does not lead, and False if `stop` is set first.

        Meanwhile `note` is called with the reason to wait, and at the end with "".
        """
        last = ""
        while (reason := self.reason()) and not stop.is_set():
            note(reason)
            if reason != last:
                log.warning("cannot start yet", problem=reason)
            last = reason
            self._clock.sleep(POLL_SECONDS, stop)
        note("")
        return not stop.is_set()

    def reason(self) -> str:
        """Why this program must not work now, with the remedy; empty if it may, also if it may not read the Lease."""
        where = f"{self._namespace}/{self._name}"
        try:
            answer = self._requester.request(
                "GET", LEASES.path(self._namespace, self._name), timeout_seconds=10.0, retry=False
            )
            record = msgspec.json.decode(answer, type=_Lease).spec
        except ApiError as error:
            if error.is_not_found or error.is_forbidden:
                return ""
            return f"the Lease {where} of the default installation cannot be read: {error}"
        except msgspec.MsgspecError:
            return ""
        if not self._is_held(record):
            return ""
        return (
            f"{record.holder_identity} holds the Lease {where} and does the same work: this program starts when that "
            f"one has stopped; to stop it: kubectl scale deployment {self._name} -n {self._namespace} --replicas=0"
        )

    def _is_held(self, record: LeaseRecord) -> bool:
        now = self._clock.monotonic()
        if record != self._seen:
            self._seen, self._seen_at = record, now
        return bool(record.holder_identity) and now < self._seen_at + (
            record.lease_duration_seconds or _DEFAULT_LEASE_SECONDS
        )
