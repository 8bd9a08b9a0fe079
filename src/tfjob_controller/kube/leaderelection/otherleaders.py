"""Waits until no other installation of a program leads, before this one begins to work.

A Lease excludes other replicas of one installation. A second installation, and a program that runs without leader
election, know nothing of it: both write the same objects. So the Leases of the same name in all namespaces are read
before the work begins. A Lease counts as held until it has not changed for the duration that its holder promised, as
in `lease`. Of two installations, the one whose Lease was acquired first works; both read the same two times, so that
clocks may differ. A program without a Lease works if nobody else does.

This is no lock: it protects from mistakes at the installation. Whoever may not list Leases begins at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import msgspec
import structlog

from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.leaderelection.lease import LEASES, LeaseRecord
from tfjob_controller.kube.meta import ObjectMeta
from tfjob_controller.kube.requester import Requester
from tfjob_controller.util.clock import Clock
from tfjob_controller.util.timestamps import parse_time_or_none

log = structlog.get_logger(__name__)

POLL_SECONDS = 3.0
# A Lease that its holder renewed so long ago is not waited for, unless the clocks differ by that.
_ABANDONED_SECONDS = 600.0
_DEFAULT_LEASE_SECONDS = 15


class _Lease(msgspec.Struct, frozen=True):
    metadata: ObjectMeta
    spec: LeaseRecord = LeaseRecord()

    @property
    def order(self) -> tuple[str, str]:
        return self.spec.acquire_time or "", self.metadata.namespace


class _Leases(msgspec.Struct, frozen=True):
    items: tuple[_Lease, ...] = ()


class OtherLeaders:
    """The holders of the Leases `name` outside of `own_namespace`, which is empty for a program without a Lease."""

    def __init__(self, requester: Requester, clock: Clock, name: str, own_namespace: str) -> None:
        self._requester, self._clock, self._name, self._own_namespace = requester, clock, name, own_namespace
        # By namespace: the version that was seen last, and when it was seen first.
        self._seen: dict[str, tuple[str, float]] = {}

    def wait(self, note: Callable[[str], None], stop: threading.Event) -> bool:
        """Returns True once no other leads, and False if `stop` is set first. `note` gets the reason to wait, then "".

        Errors are not waited for.
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
        """Why this program must not work now, with the remedy; empty if it may."""
        try:
            found = self._leases()
        except (ApiError, msgspec.MsgspecError) as error:
            log.debug("leases of other namespaces are not known", error=str(error))
            return ""
        own = next((each for each in found if each.metadata.namespace == self._own_namespace), None)
        others = [each for each in found if each is not own and self._is_held(each)]
        first = min(others, key=lambda each: each.order, default=None)
        if first is None or (own is not None and own.order < first.order):
            return ""
        where = f"{first.metadata.namespace}/{self._name}"
        return (
            f"{first.spec.holder_identity} holds the Lease {where} and does the same work: this program starts when "
            f"that one has stopped; to stop it: kubectl scale deployment {self._name} -n {first.metadata.namespace} "
            "--replicas=0"
        )

    def _leases(self) -> Sequence[_Lease]:
        query = {"fieldSelector": f"metadata.name={self._name}"}
        answer = self._requester.request("GET", LEASES.path(), query=query, timeout_seconds=10.0, retry=False)
        return msgspec.json.decode(answer, type=_Leases).items

    def _is_held(self, lease: _Lease) -> bool:
        record, now = lease.spec, self._clock.monotonic()
        version, since = self._seen.get(lease.metadata.namespace, ("", now))
        if version != lease.metadata.resource_version:
            since = now
            self._seen[lease.metadata.namespace] = lease.metadata.resource_version, now
        renewed = parse_time_or_none(record.renew_time or "")
        if renewed is not None and abs((self._clock.now() - renewed).total_seconds()) > _ABANDONED_SECONDS:
            return False
        seconds = record.lease_duration_seconds or _DEFAULT_LEASE_SECONDS
        return bool(record.holder_identity) and now < since + seconds
