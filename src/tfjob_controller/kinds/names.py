"""The kinds of jobs that the Python client, the plugin and the dashboard know, by their names, the newest one last.

This is the only list of them. Only the standard library is imported, because a command line is read before the types
of any kind are loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KindName:
    """The names of a kind, which kubectl accepts. The module `clientkind` of the folder `word` has all else."""

    kind: str
    """In manifests."""
    short: str

    @property
    def word(self) -> str:
        """In commands, in the singular."""
        return self.kind.lower()

    @property
    def plural(self) -> str:
        return f"{self.word}s"


KIND_NAMES: Sequence[KindName] = (KindName("TFJob", "tfj"), KindName("TrainJob", "trj"))
