"""The gangs and faults of a run, chosen at random from one seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Most gangs are small, and all sizes from 2 to 50 occur.
_MIN_PODS, _MAX_PODS = 2, 50
_POWER = 4


@dataclass(frozen=True, slots=True)
class GangPlan:
    """One gang and how its owner behaves.

    `batch` pods are created at a time, every `pause_seconds`. `withheld` pods of the first attempt are created only
    after `withheld_seconds`. The gang is suspended `suspend_after` seconds after its first admission (None: never), for
    `suspend_seconds`. `failures` of its pods fail and are recreated. With `max_members` the gang is elastic, and the
    owner resizes it as it is asked to. `leave_seconds` is how long the owner takes to delete the pods if the gang is
    preempted.
    """

    name: str
    members: Mapping[str, int]
    min_members: Mapping[str, int]
    max_members: Mapping[str, int]
    cpu: str
    priority: int
    run_seconds: float
    batch: int
    pause_seconds: float
    withheld: int
    withheld_seconds: float
    suspend_after: float | None
    suspend_seconds: float
    failures: int
    leave_seconds: float

    @property
    def size(self) -> int:
        return sum(self.members.values())


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: its kind, the time since the previous one, and `chance` for its target and duration."""

    kind: str
    after_seconds: float
    chance: float


# Relative frequency of each kind. After a leader was killed there is no leader until its Lease of 15 s expires, so that
# frequent kills would leave time for little else.
FAULTS: Mapping[str, int] = {
    "foreign pods": 16,
    "foreign pods on our scheduler": 8,
    "node cordoned": 8,
    "node deleted": 6,
    "gang scheduler killed": 6,
    "kube-scheduler killed": 1,
    "kube-scheduler stopped": 2,
    "leader killed": 1,
    "leader stopped": 3,
    "kube-apiserver killed": 1,
    "etcd killed": 1,
    "connections cut": 3,
    "bindings 409": 4,
    "bindings 429": 4,
    "bindings 500": 4,
    "bindings cut before": 4,
    "bindings cut after": 6,
    "bindings late": 4,
    "bindings timed out": 2,
    "gang statuses refused": 6,
    "gang statuses cut after": 4,
    "gang statuses late": 4,
}


def gang_plan(number: int, rng: random.Random) -> GangPlan:
    size = _MIN_PODS + int((_MAX_PODS + 1 - _MIN_PODS) * rng.random() ** _POWER)
    servers = rng.choice((0, 0, 1, 2)) if size > 4 else 0
    members = {"worker": size - servers, **({"ps": servers} if servers else {})}
    is_slow, is_partial = rng.random() < 0.15, rng.random() < 0.1
    workers = members["worker"]
    may_be_smaller, is_elastic = rng.random() < 0.2, rng.random() < 0.5
    # Long enough to be preempted, or to shrink and grow.
    runs_long = rng.random() < 0.25
    # Small gangs find room without preemption.
    is_urgent = rng.random() < (0.5 if size > 12 else 0.1)
    return GangPlan(
        name=f"gang-{number:04d}",
        members=members,
        min_members={"worker": -(-workers // 2)} if may_be_smaller else {},
        max_members={"worker": workers + 2} if may_be_smaller and is_elastic else {},
        cpu=rng.choice(("500m", "1", "1", "2")),
        priority=10 if is_urgent else 0,
        run_seconds=rng.uniform(5.0, 15.0) if runs_long else rng.uniform(0.2, 2.0),
        batch=rng.randint(1, 4) if is_slow else _MAX_PODS,
        pause_seconds=rng.uniform(0.02, 0.3),
        withheld=rng.randint(1, size - 1) if is_partial else 0,
        withheld_seconds=rng.choice((1.0, 3.0, 20.0)),
        suspend_after=rng.uniform(0.0, 1.5) if rng.random() < 0.06 else None,
        suspend_seconds=rng.uniform(0.2, 3.0),
        failures=rng.randint(1, 2) if rng.random() < 0.05 else 0,
        leave_seconds=rng.choice((0.0, 0.0, 0.5, 3.0)),
    )


def fault(
    rng: random.Random, mean_seconds: float, only: Sequence[str] = (), table: Mapping[str, int] = FAULTS
) -> Fault:
    """Returns the next fault; only of the kinds in `only`, if there are any."""
    weights = {kind: weight for kind, weight in table.items() if not only or kind in only}
    kind = rng.choices(list(weights), weights=list(weights.values()))[0]
    return Fault(kind, rng.uniform(0.2, 1.8) * mean_seconds, rng.random())
