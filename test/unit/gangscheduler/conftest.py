"""What most tests of the gang scheduler begin with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.gangworld import GangWorld


@pytest.fixture
def is_indexed() -> bool:
    """Whether owners create one Indexed Job for all members. Tests of what is done by the member of a pod set it."""
    return False


@pytest.fixture
def world(is_indexed: bool) -> Iterator[GangWorld]:
    """Two empty nodes of four CPUs."""
    world = GangWorld(is_indexed=is_indexed)
    world.put_node("a", 4)
    world.put_node("b", 4)
    yield world
    world.end_writes()
    world.stop_writing()
