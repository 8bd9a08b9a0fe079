"""Simple owners of gangs, chosen at random from one seed, which create and delete pods as the contract requires.

Theory of operation. Two watches mirror gangs and pods (lab.mirror). A change puts the gang's name on a queue, from
which a few workers take one name each and perform the actions that are due (`Sync`), as a controller does. Delayed
actions are kept by a timer.

An owner creates pods only while its gang is admitted, only for placed members, and only once no pod of an earlier
attempt exists. It deletes all pods when the gang waits again, is suspended or preempted, and recreates pods that have
failed. It follows requests to resize the gang. When all pods have succeeded, the gang and its pods are deleted.

Threads: two watches, one timer and `workers`; all have ended after `stop`.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lab.injection import REQUEST_ERRORS
from lab.mirror import GANGS, PODS, PREFIX, Mirror, Object, name_of
from localcluster.api import Api, RefusedError
from localcluster.fakekubelet import EXIT_CODE, RUN_SECONDS
from localcluster.timer import Timer

# The PriorityClass of the pods of gangs with a priority.
URGENT = "chaos-urgent"
_RETRY_SECONDS = 0.2
_NOT_FOUND = 404
_JOIN_SECONDS = 10.0
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
    """The owners of all gangs of a run; `submit` adds a gang."""

    def __init__(self, api: Api, namespace: str, scheduler: str, workers: int = 6) -> None:
        self.api = api
        self.gangs_path = GANGS.format(namespace)
        self.pods_path = PODS.format(namespace)
        self.scheduler = scheduler
        # Gangs of which all pods have succeeded, and of these the ones whose pods and Gang have been deleted.
        self.ending: set[str] = set()
        self.finished: set[str] = set()
        self.counts: Counter[str] = Counter()
        self._plans: dict[str, GangPlan] = {}
        self._suspended: dict[str, bool] = {}
        self._gangs = Mirror(api, self.gangs_path, name_of, self.enqueue)
        self._pods = Mirror(api, self.pods_path, _gang_of, self.enqueue)
        self._changed = threading.Condition()
        self._names: dict[str, None] = {}
        self._busy: set[str] = set()
        self._timer = Timer("owner-timer")
        self._once: dict[tuple[str, str], float] = {}
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, name=f"owner-{number}", daemon=True) for number in range(workers)
        ]

    def start(self) -> None:
        for mirror in (self._gangs, self._pods):
            mirror.start()
        self._timer.start()
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        with self._changed:
            self._changed.notify_all()
        for mirror in (self._gangs, self._pods):
            mirror.stop()
        self._timer.stop()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)

    def submit(self, plan: GangPlan) -> None:
        """Creates a gang, unless it exists. Raises RefusedError, and urllib3's HTTPError."""
        limits = {"minMembers": dict(plan.min_members), "maxMembers": dict(plan.max_members)}
        spec = {"members": _kinds(plan, plan.members), "priority": plan.priority, **limits}
        self._plans[plan.name] = plan
        version = f"{PREFIX}/v1alpha1"
        self.api.create_if_missing(
            self.gangs_path, {"apiVersion": version, "kind": "Gang", "metadata": {"name": plan.name}, "spec": spec}
        )

    @property
    def unfinished(self) -> dict[str, str]:
        """The phase and message of each gang that has not completed."""
        statuses = {
            name: (self.observed(name)[0] or {}).get("status") or {}
            for name in sorted(self._plans.keys() - self.finished)
        }
        return {name: f"{status.get('phase', '')}: {status.get('message', '')}" for name, status in statuses.items()}

    def observed(self, name: str) -> tuple[Object | None, Mapping[str, Object]]:
        """Returns the gang and its pods, by name."""
        return self._gangs.of(name).get(name), self._pods.of(name)

    def plan(self, name: str) -> GangPlan:
        return self._plans[name]

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self._timer.later(seconds, action)

    def enqueue(self, name: str, after_seconds: float = 0.0) -> None:
        if after_seconds:
            self.later(after_seconds, lambda: self.enqueue(name))
            return
        with self._changed:
            self._names[name] = None
            self._changed.notify_all()

    def is_first(self, name: str, key: str) -> bool:
        """Returns True once for each gang and key."""
        with self._changed:
            is_first = (name, key) not in self._once
            self._once.setdefault((name, key), time.monotonic())
            return is_first

    def seconds_since_first(self, name: str, key: str) -> float:
        """Returns the seconds since the first call for this gang and key."""
        with self._changed:
            return time.monotonic() - self._once.setdefault((name, key), time.monotonic())

    def count(self, key: str) -> None:
        with self._changed:
            self.counts[key] += 1

    def suspend(self, name: str, *, value: bool) -> None:
        """Suspends or resumes a gang, with retries until the server accepts it. The last call counts."""
        self._suspended[name] = value
        self._write_suspend(name)

    def _write_suspend(self, name: str) -> None:
        body = {"spec": {"suspend": self._suspended[name]}}
        try:
            self.api.patch(f"{self.gangs_path}/{name}", body)
        except REQUEST_ERRORS as error:
            if not (isinstance(error, RefusedError) and error.status == _NOT_FOUND):
                self.later(_RETRY_SECONDS, lambda: self._write_suspend(name))

    def _work(self) -> None:
        while (name := self._take()) is not None:
            try:
                Sync(self, name).run()
            except REQUEST_ERRORS:
                self.enqueue(name, _RETRY_SECONDS)
            with self._changed:
                self._busy.discard(name)
                self._changed.notify_all()

    def _take(self) -> str | None:
        with self._changed:
            while not self._stopping.is_set():
                free = next((name for name in self._names if name not in self._busy), None)
                if free is not None:
                    del self._names[free]
                    self._busy.add(free)
                    return free
                self._changed.wait()
        return None


class Sync:
    """The actions that one gang requires now."""

    def __init__(self, owners: Owners, name: str) -> None:
        self._owners = owners
        self._name = name
        self._gang, self._pods = owners.observed(name)

    def run(self) -> None:
        """Performs the actions. After RefusedError and urllib3's HTTPError it must be called again."""
        if self._gang is None or self._name in self._owners.ending:
            self._end()
            return
        self._plan = self._owners.plan(self._name)
        status = self._gang.get("status") or {}
        self._attempt = str(status.get("attempt", 0))
        self._record(status)
        placed = [member for node in status.get("placement") or () for member in node["members"]]
        if (
            self._gang["spec"].get("suspend")
            or status.get("phase") not in ("Admitted", "Bound", "Released")
            or not placed
        ):
            self._delete(self._pods)
            return
        if _must_leave(status):
            self._leave(status)
            return
        self._resize(self._gang, status)
        old = {name: pod for name, pod in self._pods.items() if _label(pod, "attempt") != self._attempt}
        if old:
            self._delete(old)
            return
        self._run_members(placed)

    def _leave(self, status: Object) -> None:
        """Deletes all pods of a gang that is preempted, after the time that the plan says."""
        request = f"leave-{status['preemption']['time']}"
        if self._owners.is_first(self._name, request):
            self._owners.count("gangs preempted")
        left = self._plan.leave_seconds - self._owners.seconds_since_first(self._name, request)
        if left > 0:
            self._owners.enqueue(self._name, left)
        else:
            self._delete(self._pods)

    def _resize(self, gang: Object, status: Object) -> None:
        """Gives the gang the size that it is asked for; the gang scheduler then places or removes members."""
        meta, targets = gang["metadata"], status.get("targetMembers") or {}
        if not targets or status.get("observedGeneration") != meta["generation"] or status.get("phase") != "Bound":
            return
        counts = {kind["name"]: kind["count"] for kind in gang["spec"]["members"]} | targets
        body = {
            "metadata": {"resourceVersion": meta["resourceVersion"]},
            "spec": {"members": _kinds(self._plan, counts)},
        }
        self._owners.api.patch(f"{self._owners.gangs_path}/{self._name}", body)
        self._owners.count("resizes")

    def _run_members(self, placed: list[str]) -> None:
        removed = {name: pod for name, pod in self._pods.items() if _label(pod, "member") not in placed}
        if removed:
            self._delete(removed)
        by_member = {_label(pod, "member"): pod for pod in self._pods.values()}
        phases = {member: pod.get("status", {}).get("phase") for member, pod in by_member.items()}
        if all(phases.get(member) == "Succeeded" for member in placed):
            self._owners.ending.add(self._name)
            self._end()
            return
        failed = {name_of(pod): pod for member, pod in by_member.items() if phases[member] == "Failed"}
        self._delete(failed)
        self._create_pods([member for member in placed if member not in by_member])

    def _record(self, status: Object) -> None:
        phase, owners, plan = status.get("phase"), self._owners, self._plan
        if phase == "Bound" and owners.is_first(self._name, f"bound-{self._attempt}"):
            owners.count("gangs bound")
        if phase == "Waiting" and self._attempt != "0" and owners.is_first(self._name, f"returned-{self._attempt}"):
            owners.count("gangs returned")
        if phase in ("Admitted", "Bound") and plan.suspend_after is not None and owners.is_first(self._name, "suspend"):
            owners.count("gangs suspended")
            owners.later(plan.suspend_after, lambda: owners.suspend(self._name, value=True))
            end = plan.suspend_after + plan.suspend_seconds
            owners.later(end, lambda: owners.suspend(self._name, value=False))

    def _end(self) -> None:
        """Deletes the gang and its pods; repeated until all are deleted, since a response may be lost."""
        owners = self._owners
        if self._gang is not None:
            owners.api.delete(f"{owners.gangs_path}/{self._name}")
        self._delete(self._pods)
        if self._name in owners.ending:
            owners.finished.add(self._name)

    def _create_pods(self, missing: list[str]) -> None:
        """Creates missing pods, as many as the plan allows now."""
        plan, owners = self._plan, self._owners
        if plan.withheld and self._attempt == "1":
            missing = self._without_withheld(missing)
        for member in missing[: plan.batch]:
            self._create_pod(member)
        if len(missing) > plan.batch:
            owners.enqueue(self._name, plan.pause_seconds)

    def _without_withheld(self, missing: list[str]) -> list[str]:
        """Returns the missing members without those that are withheld for now, which are always the same."""
        seconds = self._owners.seconds_since_first(self._name, "withheld")
        if seconds >= self._plan.withheld_seconds:
            return missing
        self._owners.enqueue(self._name, self._plan.withheld_seconds - seconds)
        withheld = {f"worker-{number}" for number in range(min(self._plan.withheld, self._plan.members["worker"]))}
        return [member for member in missing if member not in withheld]

    def _create_pod(self, member: str) -> None:
        owners, plan = self._owners, self._plan
        is_replaced = not owners.is_first(self._name, f"pod-{self._attempt}-{member}")
        number = int(member.rpartition("-")[2])
        fails = number < plan.failures and member.startswith("worker") and not is_replaced
        labels = {"gang": self._name, "member": member, "attempt": self._attempt}
        body = pod(
            f"{self._name}-{member}-{self._attempt}",
            plan.cpu,
            owners.scheduler,
            plan.run_seconds,
            labels={f"{PREFIX}/{key}": value for key, value in labels.items()},
            exit_code=1 if fails else 0,
            priority_class=class_of(plan),
        )
        if owners.api.create_if_missing(owners.pods_path, body):
            owners.count("pods replaced" if is_replaced else "pods")

    def _delete(self, pods: Mapping[str, Object]) -> None:
        for name, pod in pods.items():
            precondition = {"uid": pod["metadata"]["uid"]}
            path = f"{self._owners.pods_path}/{name}"
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


def _must_leave(status: Object) -> bool:
    return status.get("phase") == "Bound" and (status.get("preemption") or {}).get("state") == "Requested"


def _label(pod: Object, name: str) -> str:
    return str(pod["metadata"]["labels"].get(f"{PREFIX}/{name}", ""))


def _gang_of(pod: Object) -> str | None:
    return (pod["metadata"].get("labels") or {}).get(f"{PREFIX}/gang")
