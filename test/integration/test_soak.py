"""`make soak` in a small size: jobs are created and deleted, each reaches its expected state, and no objects remain."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import labcommand

SMALL = {
    "SOAK_MINUTES": "0.1",
    "SOAK_EVERY": "1.5",
    "SOAK_TTL": "1",
    "SOAK_PATIENCE": "120",
    "SOAK_SEED": "2",
}
PROGRAMS = {
    "extender": ("rss", "threads", "fds", "sockets", "objects"),
    "controller": ("rss", "threads", "fds", "sockets", "objects", "remembered"),
}
NAMES = [f"soak_{program}_{figure}" for program, figures in PROGRAMS.items() for figure in figures]


@pytest.mark.long
@pytest.mark.cluster
def test_jobs_come_and_go_and_nothing_of_them_is_left(tmp_path: Path) -> None:
    samples = tmp_path / "samples.jsonl"
    *figures, rest, jobs = labcommand.play("lab.soak", {**SMALL, "SOAK_SAMPLES": str(samples)}, 280)
    assert [figure["name"] for figure in figures] == NAMES
    assert all(figure["too_short"] for figure in figures), "nobody should take it for a measurement"
    assert (rest["value"], rest["ok"]) == (0, True)
    assert (jobs["wrong"], jobs["left"], jobs["ok"]) == (0, {}, True)
    assert jobs["value"] > 0
    assert len(samples.read_text().splitlines()) > len(figures)
