"""Three watches that go on where they stood when they break, and put all they see on one queue.

Where the server has forgotten that place (a *gap*: it was started again) all is listed anew. What is another then than
before comes as RELISTED: it is so, but nobody saw in which order it became so. What has gone went at the begin of the
gap, as far as anybody can tell: a gang at its end, since its pods may have come before.

Threads: one for each kind, gone after `stop`.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from dataclasses import replace

import urllib3

from audit.core import GANGS, NODES, PODS, RELISTED
from audit.order import Event
from localcluster.api import Api, RefusedError, Watch

PATHS: Mapping[str, str] = {
    PODS: "/api/v1/pods",
    NODES: "/api/v1/nodes",
    GANGS: "/apis/scheduling.kubeflow.org/v1alpha1/gangs",
}
_RETRY_SECONDS = 0.1
_JOIN_SECONDS = 5.0
_LIST_ENDS = "k8s.io/initial-events-end"
_GONE = 410


class Follower:
    """One kind. `is_listed` once all that was there at the start is on the queue."""

    def __init__(self, api: Api, kind: str, events: queue.SimpleQueue[Event], stopping: threading.Event) -> None:
        self.kind = kind
        self.is_listed = threading.Event()
        self.problem = ""
        self.gaps = 0
        self.thread = threading.Thread(target=self._run, name=f"audit-{kind}", daemon=True)
        self._api = api
        self._events = events
        self._stopping = stopping
        self._open: Watch | None = None
        self._version = ""
        # What is there, by uid: to know after a gap what has gone in it.
        self._present: dict[str, Event] = {}
        self._listed: set[str] | None = None

    def close(self) -> None:
        if self._open is not None:
            self._open.close()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except RefusedError as error:
                self.problem = str(error)
                if error.status == _GONE:
                    self.gaps += 1
                    self._version = ""
                self._stopping.wait(_RETRY_SECONDS)
            except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
                self.problem = str(error)
                self._stopping.wait(_RETRY_SECONDS)

    def _follow(self) -> None:
        if not self._version:
            self.begin_list()
        resumed = {"resourceVersion": self._version, "sendInitialEvents": "false"} if self._version else {}
        self._open = self._api.watch(PATHS[self.kind], resumed)
        if self._stopping.is_set():
            self._open.close()
        for change, obj in self._open:
            if change == "ERROR":
                raise RefusedError(int(obj.get("code", 500)), obj)
            self.take(Event(self.kind, change, obj, time.time()))

    def begin_list(self) -> None:
        """What is taken from now on, until a bookmark ends it, is all that there is."""
        self._listed = set()

    def take(self, event: Event) -> None:
        """One event of the watch, which is no ERROR."""
        meta = event.obj["metadata"]
        if event.change != "BOOKMARK":
            self._put(event)
        elif self._listed is not None and _LIST_ENDS in (meta.get("annotations") or {}):
            self._end_list(event)
        if self._listed is None:
            self._version = meta["resourceVersion"]

    def _put(self, event: Event) -> None:
        uid = event.obj["metadata"]["uid"]
        before = self._present.pop(uid, None)
        if event.change != "DELETED":
            self._present[uid] = event
        if self._listed is not None:
            self._listed.add(uid)
        if self._listed is not None and self.is_listed.is_set():
            if before is not None and before.version == event.version:
                return
            event = replace(event, change=RELISTED)
        self._events.put(event)

    def _end_list(self, bookmark: Event) -> None:
        """What is not in the list has gone while nobody looked."""
        for uid in self._present.keys() - (self._listed or set()):
            gone = self._present.pop(uid).obj
            if self.kind == GANGS:
                meta = {**gone["metadata"], "resourceVersion": bookmark.obj["metadata"]["resourceVersion"]}
                gone = {**gone, "metadata": meta}
            self._events.put(Event(self.kind, "DELETED", gone, bookmark.at))
        self._listed = None
        self.is_listed.set()


class Watches:
    """All three, with the queue that they fill."""

    def __init__(self, api: Api) -> None:
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._followers = [Follower(api, kind, self.events, self._stopping) for kind in PATHS]

    def start(self) -> None:
        for follower in self._followers:
            follower.thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for follower in self._followers:
            follower.close()
        for follower in self._followers:
            follower.thread.join(_JOIN_SECONDS)

    @property
    def is_listed(self) -> bool:
        return all(follower.is_listed.is_set() for follower in self._followers)

    @property
    def gaps(self) -> int:
        """How often the server had forgotten where a watch stood: instants that nobody saw."""
        return sum(follower.gaps for follower in self._followers)

    @property
    def problems(self) -> list[str]:
        return [f"{follower.kind}: {follower.problem}" for follower in self._followers if follower.problem]
