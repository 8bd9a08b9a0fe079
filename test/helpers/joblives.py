"""Lives of jobs of all kinds for property tests: how a new job is made, and a history of its children."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st

from helpers import tfjobhistories, trainjobhistories
from helpers.clusterinmemory import World

Life = tuple[Callable[[], World], Sequence[Callable[[World], None]]]


def lives_of(kind: Any) -> st.SearchStrategy[Life]:
    """Returns the lives of the jobs of a kind; `kind` is the module with its histories."""
    worlds = st.builds(lambda options: functools.partial(kind.new_world, **options), kind.policies)
    return st.tuples(worlds, kind.histories)


lives = lives_of(tfjobhistories) | lives_of(trainjobhistories)
