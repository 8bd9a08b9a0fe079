"""The settings and the jobs of a run of `make chaos-checkpoint`, chosen at random from one seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from lab.command import Settings, kinds_variable, seed_variable, variable
from lab.injection import Fault, random_fault

# Relative frequency of each kind of kill.
PROGRAM, SIDECAR, HALF_UPLOAD = "program killed", "sidecar killed", "upload killed halfway"
POD, POD_AT_ONCE, NODE = "pod deleted", "pod deleted at once", "node killed"
STORAGE = "storage away"
KILLS: Mapping[str, int] = {
    PROGRAM: 24,
    SIDECAR: 22,
    HALF_UPLOAD: 20,
    POD: 8,
    POD_AT_ONCE: 8,
    NODE: 3,
    STORAGE: 8,
}
# A claim is a disk of the nodes, which is never away.
_ONLY_BUCKET = {STORAGE}


@dataclass(frozen=True)
class CheckpointSettings(Settings):
    seed: int = seed_variable("CHAOS_SEED")
    jobs: int = variable("CHAOS_JOBS", 50, may_be_zero=False)
    kills: int = variable("CHAOS_KILLS", 200)
    parallel: int = variable("CHAOS_PARALLEL", 8, may_be_zero=False)
    kinds: tuple[str, ...] = kinds_variable(KILLS, "kills")
    patience_seconds: float = variable("CHAOS_PATIENCE", 300.0)


@dataclass(frozen=True, slots=True)
class JobPlan:
    """One job: it ends once its kills have happened and it has done its steps."""

    name: str
    is_bucket: bool
    """Whether its storage is a bucket; otherwise it is a folder of a claim."""
    is_folder: bool
    """Whether its checkpoints are folders with a marker; otherwise they are files that settle."""
    files: int
    file_bytes: int
    keep: int
    steps: int
    steps_per_checkpoint: int
    kills: tuple[Fault, ...]


def job_plans(settings: CheckpointSettings) -> list[JobPlan]:
    """Returns the jobs with their kills; the same for the same settings."""
    rng = random.Random(settings.seed)  # noqa: S311 -- to be repeated, not to be kept secret
    kills = [random_fault(rng, 0.0, KILLS, settings.kinds) for _ in range(settings.kills)]
    return [_job_plan(number, kills[number :: settings.jobs], rng) for number in range(settings.jobs)]


def _job_plan(number: int, kills: list[Fault], rng: random.Random) -> JobPlan:
    is_large = rng.random() < 0.1
    must_be_bucket = any(kill.kind in _ONLY_BUCKET for kill in kills)
    steps_per_checkpoint = rng.randint(3, 6)
    return JobPlan(
        name=f"job-{number:03d}",
        is_bucket=rng.random() < 0.3 or must_be_bucket,
        is_folder=rng.random() < 0.7,
        files=1 if is_large else rng.randint(2, 5),
        # More than one part of an S3 object, or one.
        file_bytes=17 * 2**20 if is_large else rng.randint(1_000, 200_000),
        keep=rng.randint(1, 3),
        steps=steps_per_checkpoint * 4 + rng.randint(0, 2),
        steps_per_checkpoint=steps_per_checkpoint,
        kills=tuple(kills),
    )
