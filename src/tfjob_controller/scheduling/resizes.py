"""What the rules of scaling are told, and what they answer; see `scaling`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class ScalePolicy:
    """`topology_keys` as for placing: node labels, the widest first."""

    scale_down_after_seconds: float = 30.0
    scale_up_after_seconds: float = 60.0
    topology_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Resize:
    """What a gang should be told: to have `target` members of this kind, without those that are `leaving`."""

    key: str
    kind: str
    target: int
    leaving: tuple[str, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """Room on a node that counts as taken in the view, and will come free by itself: a pod that is ending."""

    node: str
    amounts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Kept:
    """Nodes that no other gang may be placed on until this one has started: `decide` is told.

    `given` is by node what it will take there, from when others have begun to give members away for it: that is not
    for pods of no gang either.
    """

    gang_key: str
    nodes: frozenset[str]
    given: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """All wishes that should stand now. `due`: when to ask again at the latest, though nothing has changed."""

    resizes: tuple[Resize, ...] = ()
    kept: Kept | None = None
    due: datetime | None = None
