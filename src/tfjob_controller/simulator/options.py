"""The flags of `tfjob-controller simulate`; see `tfjob_controller.flags`."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tfjob_controller.flags import (
    COUNT,
    DURATION,
    FILE,
    SWITCH,
    ValueType,
    choice,
    option,
    options_of,
    read_options,
)
from tfjob_controller.simulator.model import IN_PLACE, OF_ONE_TENANT, OF_SEVERAL, POLICIES, RESTART, TFJOB, TRAINJOB
from tfjob_controller.util.commandline import UsageError

TABLE, JSON = "table", "json"


def _share(value: str) -> float:
    number = _float(value)
    if not 0 < number <= 1:
        raise ValueError("must be a number above 0, and 1 at most")
    return number


def _sigma(value: str) -> float:
    number = _float(value)
    if not 0 <= number <= 5:
        raise ValueError("must be a number from 0 to 5")
    return number


def _float(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        return math.nan


# Names of several policies.
_NAMED = {"all": OF_ONE_TENANT, "shared": OF_SEVERAL}


def _policies(value: str) -> tuple[str, ...]:
    names = _NAMED.get(value) or tuple(name.strip() for name in value.split(","))
    if len(set(names)) < len(names) or not set(names) <= set(POLICIES):
        raise ValueError(f"must be all, shared, or some of {', '.join(POLICIES)}, separated by commas")
    return names


def _counts(value: str) -> tuple[int, ...]:
    if not re.fullmatch(r"[1-9]\d{0,3}(,[1-9]\d{0,3})*", value):
        raise ValueError("must be whole numbers from 1 to 9999, separated by commas")
    return tuple(map(int, value.split(",")))


def _processes(value: str) -> int:
    if value == "auto":
        return os.cpu_count() or 1
    if not re.fullmatch(r"[1-9]\d{0,2}", value):
        raise ValueError("must be auto or a whole number from 1 to 999")
    return int(value)


_SHARE = ValueType("number", _share)
_SIGMA = ValueType("number", _sigma)
_POLICIES = ValueType("names", _policies)
_COUNTS = ValueType("numbers", _counts)
_PROCESSES = ValueType("auto|number", _processes)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulateOptions:
    """The flags of `tfjob-controller simulate`. Times are seconds."""

    nodes: int = option(COUNT, "4", "Number of nodes of the cluster.")
    gpus_per_node: int = option(COUNT, "4", "Number of GPUs of each node.")
    grid: bool = option(
        SWITCH, "false", "Simulates 2, 4 and 8 nodes of 4 GPUs, each with mean arrivals of 15, 30, 60 and 120 s."
    )
    policies: tuple[str, ...] = option(
        _POLICIES,
        "all",
        f"Policies to compare, separated by commas: {', '.join(POLICIES)}; all for those of one namespace, or shared "
        "for those of a cluster that several share.",
    )
    trace: str = option(
        FILE,
        "",
        "CSV file of jobs that replace the random ones; columns arrival, ps, workers, min, max, work, gpus per worker. "
        "Times and work are in seconds; work is the time of a single worker.",
    )
    kind: str = option(
        choice(TFJOB, TRAINJOB),
        TFJOB,
        "Kind of the jobs. Any worker of a TFJob can leave; a TrainJob has no parameter servers, and its nodes with "
        "the highest indexes leave first.",
    )
    jobs: int = option(COUNT, "100", "Number of random jobs.")
    mean_arrival: float = option(DURATION, "30s", "Mean time between two arrivals (Poisson).")
    job_workers: tuple[int, ...] = option(
        _COUNTS,
        "1,2,4,8",
        "Numbers of workers that jobs request, equally often. A job needs half and can use twice as many.",
    )
    work_median: float = option(
        DURATION, "2m", "Median work for each requested worker, as the time of a single worker."
    )
    work_sigma: float = option(_SIGMA, "0.8", "Sigma of the log-normal distribution of work.")
    shared: bool = option(
        SWITCH,
        "false",
        "Random jobs of two namespaces: flood submits four fifths of them, twice as fast; team the others, half as "
        "fast, and each fourth one with a higher priority.",
    )
    seeds: int = option(COUNT, "10", "Number of runs of each policy, with different jobs; one for a trace.")
    first_seed: int = option(COUNT, "1", "The seed of the first run; the others follow.")
    resize: str = option(
        choice(IN_PLACE, RESTART),
        IN_PLACE,
        "Cost of a resize: none (InPlace) or a restart of the whole job (Restart).",
    )
    restart: float = option(DURATION, "30s", "Duration of a restart.")
    doubling_factor: float = option(
        _SHARE,
        "0.9",
        "Speed of w workers: w times this share to the power of log2(w).",
    )
    spread_factor: float = option(_SHARE, "0.75", "Speed of a job whose pods are on several nodes, as a share.")
    starvation_timeout: float = option(DURATION, "30s", "The same as for `tfjob-controller extender`.")
    scale_down_after: float = option(DURATION, "30s", "The same as for `tfjob-controller extender`.")
    scale_up_after: float = option(DURATION, "60s", "The same as for `tfjob-controller extender`.")
    pod_interval: float = option(
        DURATION, "100ms", "Time between the creations of two pods of a job: about ten a second by default."
    )
    deadlock_timeout: float = option(
        DURATION,
        "10m",
        "Without gangs, the pods of the youngest job that holds GPUs are deleted after this time without progress, as "
        "by an administrator. Kubernetes itself never deletes them.",
    )
    preempt_after: float = option(DURATION, "10s", "The same as for `tfjob-controller extender`.")
    preemption_grace: float = option(DURATION, "60s", "The same as for `tfjob-controller extender`.")
    checkpoint_interval: float = option(
        DURATION, "60s", "Time between two checkpoints of a job; a preempted job loses its work since the last one."
    )
    output: str = option(choice(TABLE, JSON), TABLE, "Format of the result on standard output; -o for short.")
    plots: str = option(FILE, "", "Folder for plots, PNG and SVG; needs matplotlib. Empty for none.")
    parallel: int = option(_PROCESSES, "auto", "Number of processes; auto for the number of cores.")


SIMULATE_OPTIONS = options_of(SimulateOptions)


def resolve_simulate(flags: Mapping[str, str], environ: Mapping[str, str]) -> SimulateOptions:
    """Returns the options of `simulate` from flags and environment. Raises UsageError."""
    options = read_options(SimulateOptions, flags, environ)
    if options.grid and options.trace:
        raise UsageError("--grid and --trace cannot be combined: the grid consists of random jobs")
    return options
