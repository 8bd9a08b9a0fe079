"""What is kept of a namespace: its bounds, and which jobs leave first."""

from __future__ import annotations

from tfjob_controller.client.history.record import Entry
from tfjob_controller.client.history.store import Contents
from tfjob_controller.programs.history.namespaceindex import HistoryLimits, NamespaceIndex

RECENT = "2026-01-01T00:00:30Z"


def entry(second: int) -> Entry:
    return Entry("team", "TFJob", f"job-{second}", f"uid-{second}", "Succeeded", f"2026-01-01T00:00:{second:02}Z")


def index(jobs: int = 3, size: int = 1000, sizes: dict[int, int] | None = None) -> NamespaceIndex:
    contents = Contents({entry(second): size for second, size in (sizes or {}).items()})
    return NamespaceIndex(contents, HistoryLimits(jobs, size), RECENT)


def removed(kept: NamespaceIndex) -> list[str]:
    return [each.name for each in kept.surplus()]


def test_beyond_the_number_of_jobs_the_oldest_leave() -> None:
    kept = index(jobs=2)
    for second in (3, 1, 2):
        kept.put(entry(second), 1, is_final=True)
    assert removed(kept) == ["job-1"]
    assert len(kept) == 2
    assert removed(kept) == []


def test_beyond_the_bytes_the_oldest_leave_also_those_that_were_there() -> None:
    kept = index(size=100, sizes={1: 60, 2: 30})
    assert removed(kept) == []
    kept.put(entry(3), 50, is_final=True)
    assert removed(kept) == ["job-1"]


def test_a_record_that_grows_counts_with_all_that_was_written() -> None:
    kept = index(size=100, sizes={1: 10})
    kept.put(entry(2), 40, is_final=False)
    kept.put(entry(2), 60, is_final=True)
    assert removed(kept) == ["job-1"]


def test_the_newest_record_stays_even_if_it_is_too_large() -> None:
    kept = index(size=100)
    kept.put(entry(1), 5000, is_final=True)
    assert removed(kept) == []
    kept.put(entry(2), 5000, is_final=True)
    assert removed(kept) == ["job-1"]


def test_a_job_older_than_all_that_is_kept_is_not_recorded_again() -> None:
    kept = index(jobs=2, sizes={5: 1, 6: 1})
    assert kept.would_remove(entry(4).ended, entry(4).uid)
    assert not kept.would_remove(entry(7).ended, entry(7).uid)
    assert not kept.would_remove(entry(5).ended, entry(5).uid)
    kept.put(entry(7), 1, is_final=True)
    assert removed(kept) == ["job-5"]
    assert kept.would_remove(entry(5).ended, entry(5).uid)


def test_a_recent_record_of_another_process_is_looked_at_once_more() -> None:
    kept = index(sizes={10: 1, 40: 1})
    assert kept.has("uid-10", is_final=True)
    assert kept.has("uid-40", is_final=False)
    assert not kept.has("uid-40", is_final=True)
    assert not kept.has("uid-50", is_final=False)
