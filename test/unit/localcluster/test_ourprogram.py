"""A program of ours as a process: what its starter is told when it does not come up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcluster import ports, process
from localcluster.errors import LocalClusterError
from localcluster.ourprogram import METRICS, PROBES, OurProgram
from localcluster.programs import LOOPBACK


@contextlib.contextmanager
def without_a_cluster(folder: Path) -> Iterator[OurProgram]:
    """It ends as soon as it has looked for its kubeconfig."""
    with ports.reserve(2, LOOPBACK) as (probes, metrics):
        served = {PROBES: probes, METRICS: metrics}
        program = OurProgram("run", folder / "none", served, log=folder / "log", mark=folder)
        try:
            yield program
        finally:
            program.kill()


def test_one_that_ends_is_not_waited_for_and_its_log_is_named(tmp_path: Path) -> None:
    with without_a_cluster(tmp_path) as program:
        for _ in range(2):  # it may be started again
            program.start()
            with pytest.raises(LocalClusterError, match=f"^tfjob-controller run ended: see {tmp_path}/log$"):
                program.wait_ready()
            assert not program.is_ready()
    said = (tmp_path / "log").read_text().splitlines()
    assert len(said) == 2
    assert all(f"{tmp_path}/none" in line for line in said)


@pytest.mark.parametrize("grace_seconds", [0.0, 60.0])
def test_only_one_that_was_started_and_not_ended_has_a_process(grace_seconds: float, tmp_path: Path) -> None:
    with without_a_cluster(tmp_path) as program:
        program.end()
        with pytest.raises(LocalClusterError, match="tfjob-controller run does not run"):
            _ = program.pid
        program.start()
        identity = program.identity
        assert identity is not None
        assert program.pid == identity.pid
        program.end(grace_seconds=grace_seconds)
        assert program.identity is None
        assert not process.is_alive(identity)


def test_one_that_cannot_be_started_is_one_line(tmp_path: Path) -> None:
    with ports.reserve(1, LOOPBACK) as (probes,):
        program = OurProgram("run", tmp_path, {PROBES: probes}, log=tmp_path / "nowhere" / "log", mark=tmp_path)
        with pytest.raises(LocalClusterError, match="tfjob-controller run cannot be started: "):
            program.start()
