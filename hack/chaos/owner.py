"""Plain owners of gangs: they write the Gangs, and make and delete pods as the contract asks. Anybody could be one.

Theory of operation. Two watches keep a small picture of gangs and pods (chaos.picture); what changes puts the gang's
name on a queue, a few workers take one name each and do what is to be done now (`Sync`), as a controller does. What has
to wait puts the name on a heap, by time.

An owner makes pods only while its gang is admitted, for placed members only, and only once no pod of an older attempt
is there; it deletes all of them when the gang waits again or is suspended. A pod that has failed is made anew. When all
have succeeded the gang and its pods are deleted.

Threads: two watches, one for the time, `workers`; all gone after `stop`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

import urllib3

from chaos.picture import GANGS, PODS, PREFIX, Mirror, Object
from chaos.plan import GangPlan
from chaos.timer import Timer
from localcluster.api import Api, RefusedError
from localcluster.fakekubelet import EXIT_CODE, RUN_SECONDS

_RETRY_SECONDS = 0.2
_NOT_FOUND = 404
_JOIN_SECONDS = 10.0


class Owners:
    """All of a run. `submit` gives one more gang to them."""

    def __init__(self, api: Api, namespace: str, scheduler: str, workers: int = 6) -> None:
        self.api = api
        self.gangs_path = GANGS.format(namespace)
        self.pods_path = PODS.format(namespace)
        self.scheduler = scheduler
        # All of their pods have succeeded; and then both gang and pods are deleted.
        self.ending: set[str] = set()
        self.finished: set[str] = set()
        self.counts = {"pods": 0, "gangs bound": 0, "gangs suspended": 0, "gangs returned": 0, "pods replaced": 0}
        self._plans: dict[str, GangPlan] = {}
        self._suspended: dict[str, bool] = {}
        self._gangs = Mirror(api, self.gangs_path, _name, self.look_at)
        self._pods = Mirror(api, self.pods_path, _gang_of, self.look_at)
        self._changed = threading.Condition()
        self._names: dict[str, None] = {}
        self._busy: set[str] = set()
        self._timer = Timer("owner-time")
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
        """May be said again. Raises RefusedError, and urllib3's HTTPError."""
        kinds = [{"name": name, "count": count, "resources": {"cpu": plan.cpu}} for name, count in plan.members.items()]
        spec = {"members": kinds, "minMembers": dict(plan.min_members), "priority": plan.priority}
        self._plans[plan.name] = plan
        version = f"{PREFIX}/v1alpha1"
        self.api.create_if_missing(
            self.gangs_path, {"apiVersion": version, "kind": "Gang", "metadata": {"name": plan.name}, "spec": spec}
        )

    @property
    def unfinished(self) -> dict[str, str]:
        """The phase and words of each gang that is not through."""
        statuses = {
            name: (self.picture(name)[0] or {}).get("status") or {}
            for name in sorted(self._plans.keys() - self.finished)
        }
        return {name: f"{each.get('phase', '')}: {each.get('message', '')}" for name, each in statuses.items()}

    def picture(self, name: str) -> tuple[Object | None, Mapping[str, Object]]:
        """The gang and its pods, by name."""
        return self._gangs.of(name).get(name), self._pods.of(name)

    def plan(self, name: str) -> GangPlan:
        return self._plans[name]

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self._timer.later(seconds, action)

    def look_at(self, name: str, after_seconds: float = 0.0) -> None:
        if after_seconds:
            self.later(after_seconds, lambda: self.look_at(name))
            return
        with self._changed:
            self._names[name] = None
            self._changed.notify_all()

    def is_first(self, name: str, what: str) -> bool:
        """True once for each gang and thing."""
        with self._changed:
            is_first = (name, what) not in self._once
            self._once.setdefault((name, what), time.monotonic())
            return is_first

    def seconds_since_first(self, name: str, what: str) -> float:
        """Since this was asked first for this gang and thing."""
        with self._changed:
            return time.monotonic() - self._once.setdefault((name, what), time.monotonic())

    def count(self, what: str, by: int = 1) -> None:
        with self._changed:
            self.counts[what] += by

    def suspend(self, name: str, *, value: bool) -> None:
        """Now, or as soon as the server lets it; what was said last counts."""
        self._suspended[name] = value
        self._write_suspend(name)

    def _write_suspend(self, name: str) -> None:
        body = {"spec": {"suspend": self._suspended[name]}}
        try:
            self.api.patch(f"{self.gangs_path}/{name}", body)
        except (RefusedError, urllib3.exceptions.HTTPError) as error:
            if not (isinstance(error, RefusedError) and error.status == _NOT_FOUND):
                self.later(_RETRY_SECONDS, lambda: self._write_suspend(name))

    def _work(self) -> None:
        while (name := self._take()) is not None:
            try:
                Sync(self, name).run()
            except (RefusedError, urllib3.exceptions.HTTPError, OSError):
                self.look_at(name, _RETRY_SECONDS)
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
    """What one gang needs now."""

    def __init__(self, owners: Owners, name: str) -> None:
        self._owners = owners
        self._name = name
        self._gang, self._pods = owners.picture(name)

    def run(self) -> None:
        """Raises RefusedError, and urllib3's HTTPError: then it is to be run again."""
        if self._gang is None or self._name in self._owners.ending:
            self._end()
            return
        self._plan = self._owners.plan(self._name)
        status = self._gang.get("status") or {}
        self._attempt = str(status.get("attempt", 0))
        self._note(status)
        placed = [member for each in status.get("placement") or () for member in each["members"]]
        if (
            self._gang["spec"].get("suspend")
            or status.get("phase") not in ("Admitted", "Bound", "Released")
            or not placed
        ):
            self._delete(self._pods)
            return
        old = {name: pod for name, pod in self._pods.items() if _label(pod, "attempt") != self._attempt}
        if old:
            self._delete(old)
            return
        self._serve(placed)

    def _serve(self, placed: list[str]) -> None:
        by_member = {_label(pod, "member"): pod for pod in self._pods.values()}
        phases = {member: pod.get("status", {}).get("phase") for member, pod in by_member.items()}
        if all(phases.get(member) == "Succeeded" for member in placed):
            self._owners.ending.add(self._name)
            self._end()
            return
        failed = {_name(pod): pod for member, pod in by_member.items() if phases[member] == "Failed"}
        self._delete(failed)
        self._make([member for member in placed if member not in by_member])

    def _note(self, status: Object) -> None:
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
        """Again and again until all is gone: an answer that was lost must not leave anything."""
        owners = self._owners
        if self._gang is not None:
            owners.api.delete(f"{owners.gangs_path}/{self._name}")
        self._delete(self._pods)
        if self._name in owners.ending:
            owners.finished.add(self._name)

    def _make(self, missing: list[str]) -> None:
        """As many as the owner's habits allow now."""
        plan, owners = self._plan, self._owners
        if plan.withheld and self._attempt == "1":
            missing = self._but_withheld(missing)
        for member in missing[: plan.batch]:
            self._make_one(member)
        if len(missing) > plan.batch:
            owners.look_at(self._name, plan.pause_seconds)

    def _but_withheld(self, missing: list[str]) -> list[str]:
        """Without those for which it is not time yet: always the same ones."""
        seconds = self._owners.seconds_since_first(self._name, "withheld")
        if seconds >= self._plan.withheld_seconds:
            return missing
        self._owners.look_at(self._name, self._plan.withheld_seconds - seconds)
        withheld = {f"worker-{number}" for number in range(min(self._plan.withheld, self._plan.members["worker"]))}
        return [member for member in missing if member not in withheld]

    def _make_one(self, member: str) -> None:
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
        )
        if owners.api.create_if_missing(owners.pods_path, body):
            owners.count("pods replaced" if is_replaced else "pods")

    def _delete(self, pods: Mapping[str, Object]) -> None:
        for name, each in pods.items():
            uid = each["metadata"]["uid"]
            self._owners.api.delete(
                f"{self._owners.pods_path}/{name}", gracePeriodSeconds=0, preconditions={"uid": uid}
            )


def pod(
    name: str,
    cpu: str,
    scheduler: str,
    run_seconds: float,
    *,
    labels: Mapping[str, str] | None = None,
    exit_code: int = 0,
) -> Object:
    """One that runs so long, and is not restarted."""
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
        },
    }


def _label(pod: Object, name: str) -> str:
    return str(pod["metadata"]["labels"].get(f"{PREFIX}/{name}", ""))


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def _gang_of(pod: Object) -> str | None:
    return (pod["metadata"].get("labels") or {}).get(f"{PREFIX}/gang")
