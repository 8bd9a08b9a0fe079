"""Simple owners of gangs, chosen at random from one seed, which create and delete pods as the contract requires.

Theory of operation. Two watches mirror gangs and pods (lab.mirror). The owner of each gang is a thread, which compares
both with its plan several times a second and performs the actions that are due. A request that fails is due again.

An owner creates pods only while its gang is admitted, only for placed members, and only once no pod of an earlier
attempt exists. It deletes all pods when the gang waits again, is suspended or preempted, and recreates pods that have
failed. It follows requests to resize the gang. When all pods have succeeded, the gang and its pods are deleted.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from lab.injection import REQUEST_ERRORS
from lab.mirror import GANGS, PODS, PREFIX, Mirror, Object, name_of
from localcluster.api import Api
from localcluster.fakekubelet import EXIT_CODE, RUN_SECONDS

# The PriorityClass of the pods of gangs with a priority.
URGENT = "chaos-urgent"
_POLL_SECONDS = 0.1
_JOIN_SECONDS = 10.0
_ADMITTED = ("Admitted", "Bound", "Released")
# Most gangs are small, and all sizes from 2 to 50 occur.
_MIN_PODS, _MAX_PODS = 2, 50
_POWER = 4


@dataclass(frozen=True, slots=True)
class GangPlan:
    """One gang and how its owner behaves.

    `batch` pods are created at a time, every `pause_seconds`. `withheld` pods of the first attempt are created only
    after `withheld_seconds`. The gang is suspended `suspend_after` seconds after its first admission (None: never), for
    `suspend_seconds`. `failures` of its pods fail and are recreated. With `max_members` the gang is elastic, and the
    owner resizes it as it is asked to. `leave_seconds` is how long the owner takes to delete the pods if the gang is
    preempted.
    """

    name: str
    members: Mapping[str, int]
    min_members: Mapping[str, int]
    max_members: Mapping[str, int]
    cpu: str
    priority: int
    run_seconds: float
    batch: int
    pause_seconds: float
    withheld: int
    withheld_seconds: float
    suspend_after: float | None
    suspend_seconds: float
    failures: int
    leave_seconds: float

    @property
    def size(self) -> int:
        return sum(self.members.values())


def gang_plan(number: int, rng: random.Random) -> GangPlan:
    size = _MIN_PODS + int((_MAX_PODS + 1 - _MIN_PODS) * rng.random() ** _POWER)
    servers = rng.choice((0, 0, 1, 2)) if size > 4 else 0
    members = {"worker": size - servers, **({"ps": servers} if servers else {})}
    is_slow, is_partial = rng.random() < 0.15, rng.random() < 0.1
    workers = members["worker"]
    may_be_smaller, is_elastic = rng.random() < 0.2, rng.random() < 0.5
    # Long enough to be preempted, or to shrink and grow.
    runs_long = rng.random() < 0.25
    # Small gangs find room without preemption.
    is_urgent = rng.random() < (0.5 if size > 12 else 0.1)
    return GangPlan(
        name=f"gang-{number:04d}",
        members=members,
        min_members={"worker": -(-workers // 2)} if may_be_smaller else {},
        max_members={"worker": workers + 2} if may_be_smaller and is_elastic else {},
        cpu=rng.choice(("500m", "1", "1", "2")),
        priority=10 if is_urgent else 0,
        run_seconds=rng.uniform(5.0, 15.0) if runs_long else rng.uniform(0.2, 2.0),
        batch=rng.randint(1, 4) if is_slow else _MAX_PODS,
        pause_seconds=rng.uniform(0.02, 0.3),
        withheld=rng.randint(1, size - 1) if is_partial else 0,
        withheld_seconds=rng.choice((1.0, 3.0, 20.0)),
        suspend_after=rng.uniform(0.0, 1.5) if rng.random() < 0.06 else None,
        suspend_seconds=rng.uniform(0.2, 3.0),
        failures=rng.randint(1, 2) if rng.random() < 0.05 else 0,
        leave_seconds=rng.choice((0.0, 0.0, 0.5, 3.0)),
    )


class Owners:
    """The owners of all gangs of a namespace; `submit` adds a gang. Thread-safe."""

    def __init__(self, api: Api, namespace: str, scheduler: str) -> None:
        self.api = api
        self.gangs_path, self.pods_path = GANGS.format(namespace), PODS.format(namespace)
        self.scheduler = scheduler
        self.counts: Counter[str] = Counter()
        self.stopping = threading.Event()
        self._mirrors = Mirror(api, self.gangs_path, name_of), Mirror(api, self.pods_path, _gang_of)
        self._owners: dict[str, _Owner] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        for mirror in self._mirrors:
            mirror.start()

    def stop(self) -> None:
        self.stopping.set()
        for mirror in self._mirrors:
            mirror.stop()
        for owner in self._owners.values():
            owner.thread.join(_JOIN_SECONDS)

    def submit(self, plan: GangPlan) -> None:
        """Creates a gang, unless it exists, and starts its owner. Raises RefusedError, and urllib3's HTTPError."""
        limits = {"minMembers": dict(plan.min_members), "maxMembers": dict(plan.max_members)}
        spec = {"members": _kinds(plan, plan.members), "priority": plan.priority, **limits}
        body = {"apiVersion": f"{PREFIX}/v1alpha1", "kind": "Gang", "metadata": {"name": plan.name}, "spec": spec}
        self.api.create_if_missing(self.gangs_path, body)
        owner = self._owners[plan.name] = _Owner(self, plan)
        owner.thread.start()

    @property
    def finished(self) -> int:
        return sum(owner.is_finished for owner in list(self._owners.values()))

    @property
    def unfinished(self) -> dict[str, str]:
        """The phase and message of each gang that has not completed."""
        unfinished = {}
        for name, owner in sorted(self._owners.items()):
            status = (self.observed(name)[0] or {}).get("status") or {}
            if not owner.is_finished:
                unfinished[name] = f"{status.get('phase', '')}: {status.get('message', '')}"
        return unfinished

    def observed(self, name: str) -> tuple[Object | None, Mapping[str, Object]]:
        """Returns the gang and its pods, by name."""
        gangs, pods = self._mirrors
        return gangs.of(name).get(name), pods.of(name)

    def count(self, key: str) -> None:
        with self._lock:
            self.counts[key] += 1


class _Owner:
    """The owner of one gang. For its thread alone, but for `is_finished`."""

    def __init__(self, owners: Owners, plan: GangPlan) -> None:
        self.is_finished = False
        self.thread = threading.Thread(target=self._run, name=plan.name, daemon=True)
        self._owners, self._plan = owners, plan
        self._path = f"{owners.gangs_path}/{plan.name}"
        self._is_ending = False
        self._attempt = ""
        self._next_batch_at = 0.0
        self._times: dict[str, float] = {}

    def _run(self) -> None:
        while not self.is_finished and not self._owners.stopping.wait(_POLL_SECONDS):
            with contextlib.suppress(*REQUEST_ERRORS):
                self._sync(*self._owners.observed(self._plan.name))

    def _seconds_since_first(self, key: str) -> float:
        """Returns the seconds since the first call with this key; 0 at the first one."""
        return time.monotonic() - self._times.setdefault(key, time.monotonic())

    def _count_once(self, key: str, counted: str) -> None:
        if key not in self._times:
            self._seconds_since_first(key)
            self._owners.count(counted)

    def _sync(self, gang: Object | None, pods: Mapping[str, Object]) -> None:
        """Performs the actions that are due. Raises REQUEST_ERRORS."""
        if gang is None or self._is_ending:
            self._end(gang, pods)
            return
        status = gang.get("status") or {}
        phase, self._attempt = status.get("phase"), str(status.get("attempt", 0))
        if phase == "Bound":
            self._count_once(f"bound-{self._attempt}", "gangs bound")
        if phase == "Waiting" and self._attempt != "0":
            self._count_once(f"returned-{self._attempt}", "gangs returned")
        self._suspend(gang["spec"], phase)
        placed = [member for node in status.get("placement") or () for member in node["members"]]
        if gang["spec"].get("suspend") or phase not in _ADMITTED or not placed:
            self._delete(pods.values())
            return
        if phase == "Bound" and (status.get("preemption") or {}).get("state") == "Requested":
            self._leave(status["preemption"]["time"], pods)
            return
        self._resize(gang, status)
        if old := [pod for pod in pods.values() if _label(pod, "attempt") != self._attempt]:
            self._delete(old)
            return
        self._run_members(placed, {_label(pod, "member"): pod for pod in pods.values()})

    def _suspend(self, spec: Object, phase: str | None) -> None:
        """Suspends the gang some time after its first admission, and resumes it."""
        plan = self._plan
        if plan.suspend_after is None or ("suspend" not in self._times and phase not in _ADMITTED[:2]):
            return
        self._count_once("suspend", "gangs suspended")
        seconds = self._seconds_since_first("suspend") - plan.suspend_after
        is_suspended = 0 <= seconds < plan.suspend_seconds
        if is_suspended != bool(spec.get("suspend")):
            self._owners.api.patch(self._path, {"spec": {"suspend": is_suspended}})

    def _leave(self, requested_at: str, pods: Mapping[str, Object]) -> None:
        """Deletes all pods of a gang that is preempted, after the time in the plan."""
        self._count_once(f"leave-{requested_at}", "gangs preempted")
        if self._seconds_since_first(f"leave-{requested_at}") >= self._plan.leave_seconds:
            self._delete(pods.values())

    def _resize(self, gang: Object, status: Object) -> None:
        """Gives the gang the requested size; the gang scheduler then places or removes members."""
        meta, targets = gang["metadata"], status.get("targetMembers") or {}
        if not targets or status.get("observedGeneration") != meta["generation"] or status.get("phase") != "Bound":
            return
        counts = {kind["name"]: kind["count"] for kind in gang["spec"]["members"]} | targets
        version, spec = {"resourceVersion": meta["resourceVersion"]}, {"members": _kinds(self._plan, counts)}
        self._owners.api.patch(self._path, {"metadata": version, "spec": spec})
        self._owners.count("resizes")

    def _run_members(self, placed: Sequence[str], pods: Mapping[str, Object]) -> None:
        """Creates and deletes pods; `pods` has the existing ones by their member."""
        self._delete(pod for member, pod in pods.items() if member not in placed)
        phases = {member: pod.get("status", {}).get("phase") for member, pod in pods.items()}
        if all(phases.get(member) == "Succeeded" for member in placed):
            self._is_ending = True
            return
        self._delete(pods[member] for member in placed if phases.get(member) == "Failed")
        if time.monotonic() < self._next_batch_at:
            return
        missing = [member for member in placed if member not in pods and not self._is_withheld(member)]
        for member in missing[: self._plan.batch]:
            self._create_pod(member)
        self._next_batch_at = time.monotonic() + self._plan.pause_seconds if len(missing) > self._plan.batch else 0.0

    def _is_withheld(self, member: str) -> bool:
        """Reports whether the member has no pod yet in the first attempt; it is always one of the same."""
        kind, _, number = member.rpartition("-")
        if self._attempt != "1" or kind != "worker" or int(number) >= self._plan.withheld:
            return False
        return self._seconds_since_first("withheld") < self._plan.withheld_seconds

    def _create_pod(self, member: str) -> None:
        owners, plan = self._owners, self._plan
        kind, _, number = member.rpartition("-")
        key = f"pod-{self._attempt}-{member}"
        is_replaced = key in self._times
        self._seconds_since_first(key)
        fails = int(number) < plan.failures and kind == "worker" and not is_replaced
        labels = {"gang": plan.name, "member": member, "attempt": self._attempt}
        body = pod(
            f"{plan.name}-{member}-{self._attempt}",
            plan.cpu,
            owners.scheduler,
            plan.run_seconds,
            labels={f"{PREFIX}/{key}": value for key, value in labels.items()},
            exit_code=1 if fails else 0,
            priority_class=class_of(plan),
        )
        if owners.api.create_if_missing(owners.pods_path, body):
            owners.count("pods replaced" if is_replaced else "pods")

    def _end(self, gang: Object | None, pods: Mapping[str, Object]) -> None:
        """Deletes the gang and its pods until all are deleted, since a response may be lost."""
        if gang is not None:
            self._owners.api.delete(self._path)
        self._delete(pods.values())
        self.is_finished = self._is_ending and gang is None and not pods

    def _delete(self, pods: Iterable[Object]) -> None:
        for pod in pods:
            precondition = {"uid": pod["metadata"]["uid"]}
            path = f"{self._owners.pods_path}/{name_of(pod)}"
            self._owners.api.delete(path, gracePeriodSeconds=0, preconditions=precondition)


def pod(
    name: str,
    cpu: str,
    scheduler: str,
    run_seconds: float,
    *,
    labels: Mapping[str, str] | None = None,
    exit_code: int = 0,
    priority_class: str = "",
) -> Object:
    """Returns the manifest of a pod that runs for that time and is not restarted."""
    container = {"name": "main", "image": "localhost/none", "resources": {"requests": {"cpu": cpu}}}
    notes = {RUN_SECONDS: str(run_seconds), EXIT_CODE: str(exit_code)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": dict(labels or {}), "annotations": notes},
        "spec": {
            "schedulerName": scheduler,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            **({"priorityClassName": priority_class} if priority_class else {}),
        },
    }


def class_of(plan: GangPlan) -> str:
    """Returns the PriorityClass of a gang's pods; empty for one of the default priority."""
    return URGENT if plan.priority else ""


def _kinds(plan: GangPlan, counts: Mapping[str, int]) -> list[Object]:
    return [
        {"name": name, "count": count, "resources": {"cpu": plan.cpu}, "priorityClassName": class_of(plan)}
        for name, count in counts.items()
    ]


def _label(pod: Object, name: str) -> str:
    return str(pod["metadata"]["labels"].get(f"{PREFIX}/{name}", ""))


def _gang_of(pod: Object) -> str | None:
    return (pod["metadata"].get("labels") or {}).get(f"{PREFIX}/gang")
