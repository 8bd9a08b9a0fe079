"""The input of a simulation: jobs, random or of a trace file; policies; and the assumptions that all of them share.

Times of jobs are whole milliseconds, so that they compare exactly. A trace is CSV with the columns
`arrival,ps,workers,min,max,work,gpus per worker`, in any order. Times and work are in seconds (work: of a single
worker). Errors name the line and the column.

The model of speed is an assumption with parameters. One worker alone does one unit of work per second; w workers do `w
* doubling ** log2(w)`: each doubling keeps 90 % of its worth, since parameter servers and the network take their part
(0.9 was fixed before anything was simulated; DRAGON, Lin et al., CLOSER 2019, has no formula). A job whose pods are on
several nodes works at `spread` of that (0.75, likewise). A restart is half a minute without progress: pods end and
start, programs load, the checkpoint is read.
"""

from __future__ import annotations

import csv
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

SECOND = 1000


class SimulationError(Exception):
    """The simulation is not possible as requested; the message is one line."""


def ms(seconds: float) -> int:
    """Returns whole milliseconds."""
    return round(seconds * SECOND)


@dataclass(frozen=True, slots=True)
class SimJob:
    """One job. `work` is in seconds of a single worker; only workers have GPUs, `gpus` each.

    `is_indexed`: it is a TrainJob, whose nodes, here called workers, leave in the order of their indexes, the highest
    first. Any worker of a TFJob can leave.
    """

    name: str
    arrival_ms: int
    servers: int
    workers: int
    min_workers: int
    max_workers: int
    work: float
    gpus: int = 1
    is_indexed: bool = False
    namespace: str = "default"
    priority: int = 0

    @property
    def pods(self) -> int:
        return self.servers + self.workers


TFJOB, TRAINJOB = "TFJob", "TrainJob"
# The workloads behind the results in docs/simulator.md.
MEAN_ARRIVALS = (15.0, 30.0, 60.0, 120.0)
WORKERS = (1, 2, 4, 8)


# The two namespaces of a shared cluster, and every how many jobs of the second one is urgent.
FLOOD, TEAM = "flood", "team"
_URGENT_EVERY = 4


@dataclass(frozen=True, slots=True)
class RandomWorkload:
    """Poisson arrivals; each job has one of the numbers of `workers`, equally often, and a TFJob a parameter server.

    Its work is log-normal, and proportional to its workers: `work_median` seconds for each of them. Its minimum is half
    of its workers (at least one), its maximum twice as many. Equal seeds and numbers give equal jobs.

    `shared`: four fifths of the jobs are of a namespace `flood`, which submits them twice as fast, and the others, half
    as fast, of a namespace `team`, of which each fourth job has a higher priority.
    """

    jobs: int = 100
    mean_arrival_seconds: float = 30.0
    workers: tuple[int, ...] = WORKERS
    work_median: float = 120.0
    work_sigma: float = 0.8
    kind: str = TFJOB
    shared: bool = False

    def generate(self, seed: int) -> list[SimJob]:
        """Returns the jobs in the order of their arrivals."""
        if not self.shared:
            return list(self._jobs(random.Random(seed)))  # noqa: S311 -- a simulation
        few = max(self.jobs // 5, 1)
        flood = replace(self, jobs=self.jobs - few, mean_arrival_seconds=self.mean_arrival_seconds / 2)
        team = replace(self, jobs=few, mean_arrival_seconds=self.mean_arrival_seconds * 2)
        found = [*flood._of_namespace(FLOOD, seed), *team._of_namespace(TEAM, seed)]
        return sorted(found, key=lambda job: (job.arrival_ms, job.name))

    def _of_namespace(self, namespace: str, seed: int) -> Iterator[SimJob]:
        rng = random.Random(f"{seed}-{namespace}")  # noqa: S311 -- a simulation
        for number, job in enumerate(self._jobs(rng), start=1):
            is_urgent = namespace == TEAM and number % _URGENT_EVERY == 0
            yield replace(job, name=f"{namespace}-{job.name}", namespace=namespace, priority=int(is_urgent))

    def _jobs(self, rng: random.Random) -> Iterator[SimJob]:
        now = 0.0
        digits = len(str(self.jobs))
        for number in range(1, self.jobs + 1):
            now += rng.expovariate(1 / self.mean_arrival_seconds)
            workers = rng.choice(self.workers)
            work = workers * rng.lognormvariate(math.log(self.work_median), self.work_sigma)
            name = f"job-{number:0{digits}}"
            servers, is_indexed = (1, False) if self.kind == TFJOB else (0, True)
            least, most = max(workers // 2, 1), 2 * workers
            yield SimJob(name, ms(now), servers, workers, least, most, work, is_indexed=is_indexed)


# Traces

COLUMNS = ("arrival", "ps", "workers", "min", "max", "work", "gpus per worker")
# Larger values are mistakes, and would take forever.
_MOST_SECONDS = 1e9
_MOST_PODS = 10_000


def read_trace(path: str, kind: str = TFJOB) -> list[SimJob]:
    """Returns the jobs of a file, which are of this kind, in the order of their arrivals. Raises SimulationError."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SimulationError(f"cannot read the trace {path}: {error}") from None
    try:
        return parse_trace(text.splitlines(), kind)
    except SimulationError as error:
        raise SimulationError(f"{path}: {error}") from None


def parse_trace(lines: Iterable[str], kind: str = TFJOB) -> list[SimJob]:
    """Does the same from the file's lines."""
    reader = csv.reader(lines)
    columns = [name.strip() for name in next(reader, [])]
    _check_columns(columns)
    jobs = list(_jobs(reader, columns, lambda: reader.line_num, kind))
    if not jobs:
        raise SimulationError("line 2: the trace has no jobs")
    return sorted(jobs, key=lambda job: job.arrival_ms)


def _check_columns(columns: Sequence[str]) -> None:
    for name in columns:
        if name not in COLUMNS:
            raise SimulationError(f"line 1: {name!r} is not a column; the columns are {', '.join(COLUMNS)}")
        if columns.count(name) > 1:
            raise SimulationError(f"line 1: the column {name!r} appears twice")
    for name in COLUMNS:
        if name not in columns:
            raise SimulationError(f"line 1: the column {name!r} is missing")


def _jobs(
    rows: Iterable[Sequence[str]], columns: Sequence[str], line: Callable[[], int], kind: str
) -> Iterator[SimJob]:
    for number, row in enumerate((each for each in rows if any(each)), start=1):
        try:
            if len(row) != len(columns):
                raise SimulationError(f"{len(row)} values for {len(columns)} columns")
            yield _job(number, dict(zip(columns, row, strict=True)), kind)
        except SimulationError as error:
            raise SimulationError(f"line {line()}: {error}") from None


def _job(number: int, row: Mapping[str, str], kind: str) -> SimJob:
    workers = _count(row, "workers", 1)
    least, most = _count(row, "min", 1), _count(row, "max", 1)
    if least > workers:
        raise SimulationError(f"min: {least} is more than workers, {workers}")
    if most < workers:
        raise SimulationError(f"max: {most} is less than workers, {workers}")
    arrival, work = _seconds(row, "arrival"), _seconds(row, "work")
    if not ms(work):
        raise SimulationError("work: must be above zero")
    servers, gpus = _count(row, "ps", 0), _count(row, "gpus per worker", 1)
    if servers and kind == TRAINJOB:
        raise SimulationError(f"ps: {servers} is not 0: a TrainJob has no parameter servers")
    return SimJob(f"job-{number:05}", ms(arrival), servers, workers, least, most, work, gpus, kind == TRAINJOB)


def _seconds(row: Mapping[str, str], column: str) -> float:
    text = row[column].strip()
    try:
        value = float(text)
    except ValueError:
        raise SimulationError(f"{column}: {text!r} is not a number") from None
    if not math.isfinite(value) or value > _MOST_SECONDS:
        raise SimulationError(f"{column}: {text!r} cannot be simulated")
    if value < 0:
        raise SimulationError(f"{column}: {text} is negative")
    return value


def _count(row: Mapping[str, str], column: str, least: int) -> int:
    text = row[column].strip()
    try:
        value = int(text)
    except ValueError:
        raise SimulationError(f"{column}: {text!r} is not a whole number") from None
    if not least <= value <= _MOST_PODS:
        raise SimulationError(f"{column}: {text} is not from {least} to {_MOST_PODS}")
    return value


# Policies and assumptions

IN_PLACE, RESTART = "InPlace", "Restart"


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    """With `gang` the live queue and placement start all pods or none; otherwise pods are scheduled one by one.

    With `locality` a gang is placed on few nodes, and single pods on the fullest node (kube-scheduler's MostAllocated).
    Without it pods are spread (LeastAllocated), which the live code cannot do: that is the simulator's own baseline.
    With `autoscaling` the live rules resize jobs, with `fair` they order the queue by the shares of namespaces, and
    with `preemption` they preempt gangs of lower priority; they only know gangs.
    """

    name: str
    gang: bool = False
    locality: bool = False
    autoscaling: bool = False
    fair: bool = False
    preemption: bool = False


POLICIES = {
    each.name: each
    for each in (
        SchedulingPolicy("default"),
        SchedulingPolicy("locality", locality=True),
        SchedulingPolicy("gang", gang=True),
        SchedulingPolicy("gang+locality", gang=True, locality=True),
        SchedulingPolicy("gang+autoscaling", gang=True, autoscaling=True),
        SchedulingPolicy("gang+locality+autoscaling", gang=True, locality=True, autoscaling=True),
        SchedulingPolicy("gang+locality+fair", gang=True, locality=True, fair=True),
        SchedulingPolicy("gang+locality+preemption", gang=True, locality=True, preemption=True),
        SchedulingPolicy("gang+locality+fair+preemption", gang=True, locality=True, fair=True, preemption=True),
        SchedulingPolicy(
            "gang+locality+autoscaling+fair+preemption",
            gang=True,
            locality=True,
            autoscaling=True,
            fair=True,
            preemption=True,
        ),
    )
}
# Those for jobs of one namespace and one priority, and those for a cluster that several share.
OF_ONE_TENANT = tuple(name for name, each in POLICIES.items() if not each.fair and not each.preemption)
OF_SEVERAL = ("gang+locality", "gang+locality+autoscaling", *(name for name in POLICIES if name not in OF_ONE_TENANT))
# The policy that all others are compared with.
BASELINE = "default"


@dataclass(frozen=True, slots=True)
class SpeedModel:
    """The assumptions about speed, with the parameters of the module's text."""

    doubling: float = 0.9
    spread: float = 0.75
    restart_seconds: float = 30.0

    def speed(self, workers: int, nodes: int) -> float:
        """Returns the units of work per second of `workers` workers, with the job's pods on `nodes` nodes."""
        if workers < 1:
            return 0.0
        alone: float = workers * self.doubling ** math.log2(workers)
        return alone * self.spread if nodes > 1 else alone


@dataclass(frozen=True, slots=True)
class SimulationSettings:
    """The gang scheduler's flags of the same names, and assumptions about the cluster.

    `pod_seconds` is the time between the creations of two pods of a job: kube-controller-manager creates about ten a
    second with its default limits. `deadlock_timeout_seconds`: Kubernetes itself never ends a deadlock; after so long
    without progress the pods of the youngest job that holds GPUs are deleted and recreated. A job saves its work every
    `checkpoint_seconds`; one that is preempted loses what it has done since then, and starts again with a restart.
    """

    speed: SpeedModel = field(default_factory=SpeedModel)
    resize: str = IN_PLACE
    starvation_timeout_seconds: float = 30.0
    scale_down_after_seconds: float = 30.0
    scale_up_after_seconds: float = 60.0
    pod_seconds: float = 0.1
    deadlock_timeout_seconds: float = 600.0
    preempt_after_seconds: float = 10.0
    preemption_grace_seconds: float = 60.0
    checkpoint_seconds: float = 60.0

    @property
    def pause_seconds(self) -> float:
        """The pause that a resize costs."""
        return self.speed.restart_seconds if self.resize == RESTART else 0.0
