"""Tests of lab.programs: programs that are restarted whenever they end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.poll import eventually
from lab.programs import SupervisedProgram
from localcluster import process


class Sleeper:
    """A program that sleeps."""

    def __init__(self, folder: Path) -> None:
        self.identity: process.Identity | None = None
        self.starts = 0
        self._folder = folder

    def start(self) -> None:
        self.starts += 1
        self.identity = process.spawn(["sleep", "600"], log=self._folder / "log", mark=self._folder)


@pytest.fixture
def sleeper(tmp_path: Path) -> Sleeper:
    return Sleeper(tmp_path)


@pytest.fixture
def supervised(sleeper: Sleeper, tmp_path: Path) -> Iterator[SupervisedProgram]:
    supervised = SupervisedProgram(sleeper)
    supervised.start()
    yield supervised
    supervised.stop()
    assert process.marked(tmp_path) == []


def test_a_killed_program_is_restarted_after_the_delay(supervised: SupervisedProgram, sleeper: Sleeper) -> None:
    begin = time.monotonic()
    supervised.kill(0.4)
    assert not supervised.is_alive
    eventually(lambda: supervised.is_alive)
    assert time.monotonic() - begin >= 0.4
    assert (sleeper.starts, supervised.ended_by_itself) == (2, 0)


def test_a_program_that_exits_is_restarted_and_counted(supervised: SupervisedProgram, sleeper: Sleeper) -> None:
    assert sleeper.identity is not None
    process.end([sleeper.identity])
    eventually(lambda: sleeper.starts == 2 and supervised.is_alive)
    assert supervised.ended_by_itself == 1
