"""What most tests of the gang scheduler begin with."""

from __future__ import annotations

import pytest

from helpers.gangworld import GangWorld


@pytest.fixture
def world() -> GangWorld:
    """Two empty nodes of four CPUs."""
    world = GangWorld()
    world.put_node("a", 4)
    world.put_node("b", 4)
    return world
