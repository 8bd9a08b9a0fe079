"""What most tests of the gang scheduler begin with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helpers.gangworld import GangWorld


@pytest.fixture(params=[pytest.param(False, id="named"), pytest.param(True, id="indexed")])
def world(request: pytest.FixtureRequest) -> Iterator[GangWorld]:
    """Two empty nodes of four CPUs. Owners create a Job for each member, or one Indexed Job for all."""
    world = GangWorld(is_indexed=request.param)
    world.put_node("a", 4)
    world.put_node("b", 4)
    yield world
    world.end_writes()
    world.stop_writing()
