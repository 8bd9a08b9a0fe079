"""Rules that hold with schedulers of gangs of other projects, whatever they call their objects.

A module in test/interop gives a fixture `gangs`, with capacity for three replicas: nodes, or the quota of a queue. It
derives a class from those here whose rules hold, so that docs/interop.md has one row for a rule.
"""

from __future__ import annotations

from typing import Any, Protocol

from helpers.cluster import pod_path
from helpers.gangjobs import PATIENCE_SECONDS, PERIOD_SECONDS, GangJobs
from helpers.poll import eventually, never

CAPACITY = 3
# How long a scheduler that schedules once a second gets to break a rule.
WATCHED_SECONDS = 4


class Queue(Protocol):
    """A queue for three CPUs."""

    def used(self) -> str:
        """Returns the CPUs that count as used."""


class GangRules:
    """Of every scheduler."""

    def test_a_job_that_fits_runs_and_leaves_no_object_behind(self, gangs: GangJobs) -> None:
        gangs.submit("first", 2)
        gangs.await_running("first", 2)
        eventually(lambda: gangs.scheduled("first").get("reason") == "GangScheduled", PATIENCE_SECONDS)
        gangs.finish("first")
        gangs.await_no_groups()
        assert gangs.restarts("first") == 0

    def test_a_job_that_does_not_fit_starts_only_when_there_is_room_for_all_of_it(self, gangs: GangJobs) -> None:
        gangs.submit("first", 2)
        gangs.await_running("first", 2)
        gangs.submit("second", 2)
        gangs.await_reason("second", "waits for capacity")
        never(lambda: gangs.bound("second"), WATCHED_SECONDS, PERIOD_SECONDS)
        assert gangs.scheduled("second")["reason"] == "WaitingForCapacity"
        gangs.finish("first")
        gangs.await_running("second", 2)

    def test_two_jobs_that_do_not_fit_together_run_one_after_the_other(self, gangs: GangJobs) -> None:
        gangs.submit("first", CAPACITY)
        gangs.submit("second", CAPACITY)

        def counts() -> list[int]:
            return [len(gangs.bound(name)) for name in ("first", "second")]

        eventually(lambda: max(counts()) == CAPACITY, PATIENCE_SECONDS)
        before, after = ("first", "second") if gangs.bound("first") else ("second", "first")
        never(lambda: gangs.bound(after), WATCHED_SECONDS, PERIOD_SECONDS)
        gangs.await_running(before, CAPACITY)
        gangs.finish(before)
        gangs.await_running(after, CAPACITY)
        gangs.finish(after)

    def test_a_suspended_job_gives_its_capacity_back_and_queues_again_when_it_is_resumed(self, gangs: GangJobs) -> None:
        gangs.submit("first", 2)
        gangs.await_running("first", 2)
        gangs.suspend("first", True)
        gangs.await_stopped("first")
        gangs.submit("second", CAPACITY)
        gangs.await_running("second", CAPACITY)
        gangs.suspend("first", False)
        gangs.await_reason("first", "waits for capacity")
        never(lambda: gangs.bound("first"), WATCHED_SECONDS, PERIOD_SECONDS)
        gangs.finish("second")
        gangs.await_running("first", 2)

    def test_a_pod_that_is_deleted_is_replaced_and_runs_with_the_others(self, gangs: GangJobs) -> None:
        gangs.submit("first", CAPACITY)
        gangs.await_running("first", CAPACITY)
        lost = gangs.bound("first")[0]
        gangs.api.delete(pod_path(gangs.namespace, lost))
        eventually(lambda: lost not in gangs.pods("first"), PATIENCE_SECONDS)
        gangs.await_running("first", CAPACITY)


class MinimumRules:
    """Of schedulers that start a gang with a part of its pods."""

    def test_a_job_with_a_minimum_starts_with_those_that_fit_and_gets_the_rest_later(self, gangs: GangJobs) -> None:
        gangs.submit("first", 2)
        gangs.await_running("first", 2)
        gangs.submit("elastic", CAPACITY, minimum=1)
        eventually(lambda: len(gangs.bound("elastic")) == 1, PATIENCE_SECONDS)
        never(lambda: len(gangs.bound("elastic")) > 1, WATCHED_SECONDS, PERIOD_SECONDS)
        assert gangs.scheduled("elastic")["reason"] == "GangScheduled"
        gangs.finish("first")
        gangs.await_running("elastic", CAPACITY)


class QueueRules:
    """Of schedulers with queues. The module also gives a fixture `queue`."""

    def test_a_queue_counts_what_its_jobs_use_until_they_have_finished(self, gangs: GangJobs, queue: Queue) -> None:
        gangs.submit("first", 2)
        gangs.await_running("first", 2)
        eventually(lambda: queue.used() == "2", PATIENCE_SECONDS)
        gangs.finish("first")
        eventually(lambda: queue.used() == "0", PATIENCE_SECONDS)

    def test_a_job_whose_queue_does_not_exist_reports_it(self, gangs: GangJobs) -> None:
        gangs.submit("first", 1, queue="no-such-queue")
        gangs.await_reason("first", "no-such-queue")
        assert gangs.bound("first") == []


def a_job_that_is_preempted_stops_queues_again_and_continues(gangs: GangJobs, **high: Any) -> None:
    """`high` are the arguments that give a job the higher priority."""
    gangs.submit("low", 2)
    gangs.await_running("low", 2)
    gangs.submit("high", CAPACITY, **high)
    gangs.await_running("high", CAPACITY)
    gangs.await_stopped("low")
    gangs.await_reason("low", "waits for capacity")
    gangs.finish("high")
    gangs.await_running("low", 2)
