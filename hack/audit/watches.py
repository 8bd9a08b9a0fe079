"""Watches that resume after a failure and put all events on one queue.

If the server has compacted the version of a watch, objects that differ afterwards are delivered as RELISTED, since the
order of their changes is unknown. A deleted object counts as deleted at the begin of the gap, and a deleted gang at its
end, since its pods may have been deleted before it.

Threads: one for each kind; all have ended after `stop`.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

from audit.core import GANGS, NODES, PODS, QUOTAS, RELISTED
from audit.flags import Flag
from audit.order import Event
from localcluster.api import Api, Object
from localcluster.follower import Follower

_POLL_SECONDS = 0.05
_LIST_SECONDS = 60.0
PATHS: Mapping[str, str] = {
    PODS: "/api/v1/pods",
    NODES: "/api/v1/nodes",
    GANGS: "/apis/scheduling.kubeflow.org/v1alpha1/gangs",
    QUOTAS: "/api/v1/resourcequotas",
}


class Kind:
    """Converts what the watch of one kind delivers into events. See `localcluster.follower.Reader`."""

    def __init__(self, kind: str, events: queue.SimpleQueue[Event]) -> None:
        self._kind = kind
        self._events = events
        # The objects that exist, by uid, to find after a gap those that were deleted in it.
        self._present: dict[str, Event] = {}
        # During a list: the uids that it has contained so far.
        self._listed: set[str] | None = None
        self._was_listed = False

    def list_begins(self) -> None:
        self._listed = set()

    def take(self, change: str, obj: Object) -> None:
        event = Event(self._kind, change, obj, time.time())
        uid = obj["metadata"]["uid"]
        before = self._present.pop(uid, None)
        if change != "DELETED":
            self._present[uid] = event
        if self._listed is not None:
            self._listed.add(uid)
        if self._listed is not None and self._was_listed:
            if before is not None and before.version == event.version:
                return
            event = replace(event, change=RELISTED)
        self._events.put(event)

    def list_ends(self, bookmark: Object) -> None:
        """Puts an event for each object that was deleted during the gap."""
        for uid in self._present.keys() - (self._listed or set()):
            gone = self._present.pop(uid).obj
            if self._kind == GANGS:
                meta = {**gone["metadata"], "resourceVersion": bookmark["metadata"]["resourceVersion"]}
                gone = {**gone, "metadata": meta}
            self._events.put(Event(self._kind, "DELETED", gone, time.time()))
        self._listed = None
        self._was_listed = True


class Watches:
    """One watch for each kind in `paths`, with the queue that they fill."""

    def __init__(self, api: Api, paths: Mapping[str, str] = PATHS) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._followers = {kind: Follower(api, path, Kind(kind, self.events)) for kind, path in paths.items()}

    def start(self, stop: Flag) -> None:
        """Waits until every kind is listed, or `stop` is set. Raises TimeoutError if the cluster cannot be read."""
        began = time.time()
        for follower in self._followers.values():
            follower.start()
        while not (stop.is_set or all(follower.is_listed.is_set() for follower in self._followers.values())):
            if time.time() - began > _LIST_SECONDS:
                self.stop()
                problems = (f"{kind}: {follower.problem}" for kind, follower in self._followers.items())
                raise TimeoutError(f"cannot read the cluster: {', '.join(problems)}")
            time.sleep(_POLL_SECONDS)

    def arrived(self) -> Iterator[Event]:
        """Yields the events that wait on the queue."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self.events.get_nowait()

    def stop(self) -> None:
        for follower in self._followers.values():
            follower.stop()

    @property
    def gaps(self) -> int:
        """The number of times that the server had compacted a watch's version, so that changes were missed."""
        return sum(follower.gaps for follower in self._followers.values())
