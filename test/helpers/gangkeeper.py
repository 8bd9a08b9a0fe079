"""The owner of many gangs, one step at a time: a test decides when it acts, and for which gangs.

`look` reads all gangs and their pods; `tend` performs once the duties of an owner: it creates pods only after the gang
is admitted and when no pods of an older attempt exist, and deletes all pods when the gang waits again. Threads: one.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from helpers.gangowner import GANGS, pod
from helpers.poll import until
from localcluster.api import Api
from localcluster.gangscheduler import NAME

PREFIX = "scheduling.kubeflow.org/"
# A label of nodes that are only for one gang.
POOL = "pool"
_PLACED = ("Admitted", "Bound", "Released")

Object = dict[str, Any]


@dataclass(frozen=True, slots=True, repr=False)
class Seen:
    """A gang and its pods at one moment."""

    status: Object = field(default_factory=dict)
    pods: Mapping[str, Object] = field(default_factory=dict)
    """The pods of all attempts, by name."""

    @property
    def phase(self) -> str:
        return str(self.status.get("phase", ""))

    @property
    def attempt(self) -> int:
        return int(self.status.get("attempt", 0))

    @property
    def placed(self) -> dict[str, str]:
        """Returns the assigned node of each member."""
        return {member: each["node"] for each in self.status.get("placement") or () for member in each["members"]}

    @property
    def old(self) -> list[str]:
        """Returns the pods of other attempts."""
        return [name for name, each in self.pods.items() if _label(each, "attempt") != str(self.attempt)]

    @property
    def made(self) -> dict[str, str]:
        """Returns the node (empty if none) of each member that has a pod in the present attempt."""
        return {
            _label(each, "member"): each["spec"].get("nodeName", "")
            for name, each in self.pods.items()
            if name not in self.old
        }

    @property
    def bound(self) -> int:
        return sum(bool(node) for node in self.made.values())

    @property
    def is_whole(self) -> bool:
        """Whether the gang is bound, with every member on its assigned node, and without other pods."""
        return self.phase == "Bound" and self.made == self.placed and not self.old

    def __repr__(self) -> str:
        words = f"{self.phase} ({self.status.get('message', '')}), attempt {self.attempt}"
        return f"{words}, placed {self.placed}, made {self.made}, old {self.old}"


class Keeper:
    """See the module. `cpu` is the request of every pod."""

    def __init__(self, api: Api, namespace: str = "gangs", cpu: str = "1") -> None:
        self.api = api
        self.gangs_path = GANGS.format(namespace)
        self.pods_path = f"/api/v1/namespaces/{namespace}/pods"
        self._cpu = cpu
        self._pools: dict[str, str] = {}

    def submit(self, name: str, count: int, *, pool: str = "", **spec: Any) -> None:
        """Creates a gang of so many workers; with a `pool` only on its nodes."""
        member: Object = {"name": "worker", "count": count, "resources": {"cpu": self._cpu}}
        if pool:
            member["nodeSelector"] = {POOL: pool}
        self._pools[name] = pool
        body = {"apiVersion": "scheduling.kubeflow.org/v1alpha1", "kind": "Gang", "metadata": {"name": name}}
        self.api.create(self.gangs_path, {**body, "spec": {"members": [member], **spec}})

    def look(self) -> dict[str, Seen]:
        """Reads all gangs, by name, and then their pods, so that a Bound gang has all pods of its status."""
        gangs = {each["metadata"]["name"]: each for each in self.api.list(self.gangs_path)}
        pods: dict[str, dict[str, Object]] = {}
        for each in self.api.list(self.pods_path):
            pods.setdefault(_label(each, "gang"), {})[each["metadata"]["name"]] = each
        return {name: Seen(each.get("status") or {}, pods.get(name, {})) for name, each in gangs.items()}

    def seen(self, name: str) -> Seen:
        return self.look()[name]

    def await_phase(self, phase: str, *names: str, timeout: float = 20.0) -> dict[str, Seen]:
        """Waits until all of these gangs are in that phase; returns the gangs and pods of that moment."""
        return until(self.look, lambda gangs: all(gangs[name].phase == phase for name in names), timeout)

    def make(self, name: str, *members: str) -> None:
        """Creates these members' pods for the present attempt; without names, all missing ones."""
        seen = self.seen(name)
        for member in members or [each for each in seen.placed if each not in seen.made]:
            self.make_pod(name, member, seen.attempt)

    def make_pod(self, name: str, member: str, attempt: int, **spec: Any) -> None:
        body = self.pod_of(name, member, attempt)
        body["spec"] |= spec
        self.api.create(self.pods_path, body)

    def pod_of(self, name: str, member: str, attempt: int) -> Object:
        """Returns the member's pod for its creation."""
        labels = {f"{PREFIX}gang": name, f"{PREFIX}member": member, f"{PREFIX}attempt": str(attempt)}
        body = pod(pod_name(name, member, attempt), self._cpu, labels, NAME)
        if self._pools.get(name):
            body["spec"]["nodeSelector"] = {POOL: self._pools[name]}
        return body

    def delete_pod(self, name: str) -> None:
        self.api.delete(f"{self.pods_path}/{name}", gracePeriodSeconds=0)

    def tend(self, *, but: Collection[str] = ()) -> dict[str, Seen]:
        """Performs an owner's duties once for all gangs but these; returns the gangs and pods from before."""
        found = self.look()
        for name, seen in found.items():
            if name not in but:
                self._tend(name, seen)
        return found

    def tend_until_whole(self, *names: str, timeout: float = 60.0) -> dict[str, Seen]:
        """Calls `tend` until all of these gangs are whole."""
        return until(self.tend, lambda gangs: all(gangs[name].is_whole for name in names), timeout)

    def _tend(self, name: str, seen: Seen) -> None:
        goes = seen.old if seen.phase in _PLACED else seen.pods
        for each in goes:
            self.delete_pod(each)
        if seen.phase in ("Admitted", "Bound") and not goes:
            for member in seen.placed.keys() - seen.made.keys():
                self.make_pod(name, member, seen.attempt)


def pod_name(gang: str, member: str, attempt: int) -> str:
    return f"{gang}-{member}-{attempt}"


def _label(each: Object, name: str) -> str:
    return str((each["metadata"].get("labels") or {}).get(PREFIX + name, ""))
