"""The settings and the jobs of a run of `make chaos-checkpoint`, chosen at random from one seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from chaos import command

# Relative frequency of each kind of kill.
PROGRAM, SIDECAR, HALF_UPLOAD = "program killed", "sidecar killed", "upload killed halfway"
POD, POD_AT_ONCE, NODE = "pod deleted", "pod deleted at once", "node killed"
STORAGE, CLOCK = "storage away", "clock skewed"
KILLS: Mapping[str, int] = {
    PROGRAM: 24,
    SIDECAR: 22,
    HALF_UPLOAD: 20,
    POD: 8,
    POD_AT_ONCE: 8,
    NODE: 3,
    STORAGE: 8,
    CLOCK: 7,
}
# A claim is a disk of the nodes, which is never away.
_ONLY_BUCKET = {STORAGE}
# These have a job of their own outside of the cluster: the nodes share one clock.
_OUTSIDE = {CLOCK}


@dataclass(frozen=True, slots=True)
class Settings:
    """See `chaos.checkpoints.__main__`."""

    jobs: int
    kills: int
    seed: int
    parallel: int
    kinds: tuple[str, ...]
    patience_seconds: float
    minutes: float
    """When no more kills happen and no more jobs are created; 0 for no limit."""

    @property
    def variables(self) -> str:
        """The variables that repeat the run, for the command line of make."""
        values = {"SEED": self.seed, "JOBS": self.jobs, "KILLS": self.kills, "PARALLEL": self.parallel}
        return command.variables({f"CHAOS_{name}": value for name, value in values.items()}, self.kinds)


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill: `chance` chooses its moment and duration."""

    kind: str
    chance: float


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
    kills: tuple[Kill, ...]


def settings_of(environ: Mapping[str, str]) -> Settings:
    """Returns the settings. Raises ValueError for an invalid number or an unknown kind of kill."""
    settings = Settings(
        jobs=int(environ.get("CHAOS_JOBS", "50")),
        kills=int(environ.get("CHAOS_KILLS", "200")),
        seed=command.seed(environ, "CHAOS_SEED"),
        parallel=int(environ.get("CHAOS_PARALLEL", "8")),
        kinds=command.kinds(environ, KILLS, "kills"),
        patience_seconds=command.number(environ, "CHAOS_PATIENCE", 300),
        minutes=command.number(environ, "CHAOS_MINUTES", 0),
    )
    if min(settings.jobs, settings.parallel) < 1 or settings.kills < 0:
        raise ValueError("there must be at least one job, and no negative number of kills")
    return settings


def job_plans(settings: Settings) -> tuple[list[JobPlan], list[Kill]]:
    """Returns the jobs with their kills, and the kills outside of the cluster; the same for the same settings."""
    rng = random.Random(settings.seed)  # noqa: S311 -- to be repeated, not to be kept secret
    weights = {kind: weight for kind, weight in KILLS.items() if not settings.kinds or kind in settings.kinds}
    chosen = rng.choices(list(weights), weights=list(weights.values()), k=settings.kills)
    kills = [Kill(kind, rng.random()) for kind in chosen]
    outside = [kill for kill in kills if kill.kind in _OUTSIDE]
    inside = [kill for kill in kills if kill.kind not in _OUTSIDE]
    of_job: list[list[Kill]] = [[] for _ in range(settings.jobs)]
    for number, kill in enumerate(inside):
        of_job[number % settings.jobs].append(kill)
    return [_job_plan(number, kills, rng) for number, kills in enumerate(of_job)], outside


def _job_plan(number: int, kills: list[Kill], rng: random.Random) -> JobPlan:
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
