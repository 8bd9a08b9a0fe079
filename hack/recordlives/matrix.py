"""The inputs that are recorded: cases in which each possible pair of values occurs.

A value says what the pod of the *subject*, one replica of that role, consists of, and what happens to it.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from allpairspy import AllPairs

TFJOB_ROLES = ("chief", "worker", "ps")
NODE_ROLES = ("node", "elastic-node", "launcher")
DATA_ROLES = ("initializer", "exporter")
TRAINJOB_ROLES = (*NODE_ROLES, *DATA_ROLES)

# They need a whole node, so that cases with the same one of them share it.
NODE_EVENTS = ("drain", "reboot", "node-lost")

# The first value of each dimension is its default.
DIMENSIONS: Mapping[str, tuple[str, ...]] = {
    "event": (
        *("exit-0", "exit-1", "exit-130", "exit-137", "oom", "liveness-probe", "startup-probe"),
        *("delete-short", "delete-long", "evict-api", "evict-storage", *NODE_EVENTS, "image-gone", "no-command"),
    ),
    "composition": (
        *("alone", "sidecar-first-0", "sidecar-first-1", "sidecar-later-0", "sidecar-later-1", "sidecar-runs-on"),
        *("native-sidecar", "init-fails-1", "init-fails-137", "own-storage"),
    ),
    "role": (*TFJOB_ROLES, *TRAINJOB_ROLES),
    "restartPolicy": ("unset", "Never", "OnFailure"),
    "cleanPodPolicy": ("Running", "All", "None"),
    "failurePolicy": ("Default", "AnyReplica"),
    "limit": ("none", "1"),
    "checkpoint": ("off", "on"),
    "suspend": ("no", "meanwhile"),
}

# Values that do not occur together: TrainJobs have no such field, nodes always have the policy Never, only nodes fetch
# data into their own pods, and only replicas that train have checkpoints.
_IMPOSSIBLE: Sequence[Mapping[str, Sequence[str]]] = (
    {"role": TRAINJOB_ROLES, "cleanPodPolicy": ("All", "None")},
    {"role": TRAINJOB_ROLES, "failurePolicy": ("AnyReplica",)},
    {"role": NODE_ROLES, "restartPolicy": ("Never", "OnFailure")},
    {"role": (*TFJOB_ROLES, "launcher", *DATA_ROLES), "composition": ("own-storage",)},
    {"role": ("ps", "launcher", *DATA_ROLES), "checkpoint": ("on",)},
)


@dataclass(frozen=True, slots=True)
class Case:
    """One input, a value of each dimension."""

    values: tuple[str, ...]

    def __getitem__(self, dimension: str) -> str:
        return self.values[list(DIMENSIONS).index(dimension)]

    @property
    def name(self) -> str:
        """The path of its file without a suffix: role, event, composition, and the values that are no defaults."""
        rest = list(DIMENSIONS)[3:]
        others = [f"{each}={self[each]}" for each in rest if self[each] != DIMENSIONS[each][0]]
        return f"{self['role']}/{'_'.join([self['event'], self['composition'], *others])}"


@functools.cache
def cases() -> tuple[Case, ...]:
    """Returns the cases, always the same and in the same order."""
    rows = AllPairs(OrderedDict(DIMENSIONS), filter_func=is_possible)
    return tuple(Case(tuple(row)) for row in rows)


def is_possible(values: Sequence[str]) -> bool:
    """Reports whether the values of the first dimensions can occur together."""
    row = dict(zip(DIMENSIONS, values, strict=False))
    return not any(all(row.get(name) in excluded for name, excluded in rule.items()) for rule in _IMPOSSIBLE)
