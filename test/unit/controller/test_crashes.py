"""The controller dies at each of its writes in turn, before the server has seen it or after: the end is the same.

The same job lives the same life each time, and the auditor of jobs (hack/audit/jobs) looks on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from audit.jobs.history import CONFIG_MAPS, JOBS, PODS, SERVICES, TFJOBS, History
from audit.jobs.judge import Limits, final, pending
from audit.jobs.trim import trimmed
from helpers.controllerbench import JOB_PATH, POD_PATH, ControllerBench
from helpers.manifests import master, parameter_servers, workers

KINDS = (TFJOBS, JOBS, SERVICES, CONFIG_MAPS, PODS)
# Nothing else goes on meanwhile: whatever is to be done is done at once.
LIMITS = Limits(reaction_seconds=0.0)


class Crash(BaseException):
    """The process is gone: nothing may catch this."""


class Life:
    """A job from creation to the end of its time to live, with a controller that dies at write number `dies_at`."""

    def __init__(self, dies_at: int = 0, *, carried_out: bool = False) -> None:
        self.bench = ControllerBench()
        self.history = History()
        self.writes = 0
        self.deaths = 0
        self._dies_at = dies_at
        self._carried_out = carried_out
        for kind in KINDS:
            self.bench.api.watch(kind, self._recorder(kind))
        self._request = self.bench.api.request
        self.bench.api.request = self._write_or_die  # type: ignore[method-assign] # where a process ends

    def run(self) -> None:
        bench = self.bench
        bench.create(
            master(), workers(2), parameter_servers(1), tfImage="localhost/tensorflow", ttlSecondsAfterFinished=60
        )
        self._settle()
        for replica in ("master-0", "worker-0", "worker-1", "ps-0"):
            bench.runs(replica)
        self._settle()
        bench.exits("worker-0", 0)
        bench.exits("ps-0", 0)  # too early: made anew
        self._settle()
        self._lose_pod("ps-0")
        self._settle()
        bench.runs("ps-0")
        bench.exits("master-0", 0)
        self._settle()
        for replica in ("worker-1", "ps-0"):
            assert bench.api.objects[f"{JOB_PATH}/{bench.child(replica)}"]["spec"]["suspend"] is True
            self._lose_pod(replica)
        self._settle()

    def expire(self) -> None:
        self.bench.clock.advance(61)
        self._settle()

    def _settle(self) -> None:
        """Work until nothing is left to do, as one process after another."""
        while True:
            try:
                self.bench.settle_minor()
                return
            except Crash:
                self.deaths += 1
                self.bench.reconciler = self.bench.new_reconciler()

    def _write_or_die(self, *arguments: Any, **options: Any) -> bytes:
        self.writes += 1
        if self.writes != self._dies_at:
            return self._request(*arguments, **options)
        if self._carried_out:
            self._request(*arguments, **options)
        raise Crash

    def _lose_pod(self, replica: str) -> None:
        self.bench.api.remove(f"{POD_PATH}/{self.bench.child(replica)}-x")

    def _recorder(self, kind: str) -> Callable[[str, Any], None]:
        return lambda change, obj: self.history.record(kind, change, trimmed(kind, obj), self._now)

    @property
    def _now(self) -> float:
        return self.bench.clock.now().timestamp()

    def violations(self) -> list[str]:
        found = [*final(self.history, LIMITS, ()), *pending(self.history, LIMITS, self._now)]
        return [str(each) for each in found]


def undisturbed() -> Life:
    life = Life()
    life.run()
    return life


@pytest.mark.parametrize("carried_out", [pytest.param(False, id="not seen"), pytest.param(True, id="carried out")])
def test_a_death_at_any_write_changes_nothing_in_the_end(carried_out: bool) -> None:
    wanted = undisturbed()
    for number in range(1, wanted.writes + 1):
        life = Life(number, carried_out=carried_out)
        life.run()
        assert life.deaths == 1, number
        assert shape(life) == shape(wanted), number
        assert life.violations() == [], number
        life.expire()
        assert not life.bench.api.paths("/tfjobs/"), number


def shape(life: Life) -> dict[str, Any]:
    """What a job has come to, but for what differs from one life to the next."""
    bench = life.bench
    status = bench.status
    return {
        "children": [len(bench.api.paths(part)) for part in ("/jobs/", "/services/", "/configmaps/", "/pods/")],
        "status": {
            name: status.get(name)
            for name in (
                "phase",
                "state",
                "reason",
                "restarts",
                "succeededIndexes",
                "replicaStatuses",
                "workerReplicas",
            )
        },
        "conditions": {each["type"]: each["status"] for each in status["conditions"]},
    }
