"""`make bench-create`: how fast jobs become children and pods, and the cost of that.

- `tfjobs_pods_exist`: the controller is idle; seconds from the first POST of 200 jobs until all 1,000 pods (which the
  Job controller creates) and Services exist. Baseline: bare POSTs of the children, until the Job controller has created
  the pods: the remaining time if the controller had no cost. `tfjobs_cpu` and `tfjobs_rss` are what the controller has
  used from its start until then.
- `trainjobs_pods_exist`, `trainjobs_cpu`: the same for 100 TrainJobs of 8 nodes. Baseline: their Indexed Jobs alone;
  `trainjob_1x500_pods_exist` for one of 500 nodes.
- `trainjobs_rss`: resident set of the controller once 1,000 TrainJobs of 8 nodes run. Their kubelet is a fake one,
  which has no logs to follow.
- `first_child_p99`: from the response to the POST of a TFJob until a watch in another process delivers the first
  child; of 200 jobs one after another, nearest rank.

The controller has default flags except for `--qps=0`.
"""

from __future__ import annotations

import functools
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import msgspec

from bench import usage
from bench.bare import Post, send_all
from bench.jobs import JOBS, PODS, SERVICES, TFJOBS, TRAINJOBS, Object, children_of, tfjob, trainjob
from bench.report import Reach, alternate, rank, report, size
from bench.stage import Stage, controller, in_parallel, namespace, stage, unique, wait
from bench.watcher import Watcher
from localcluster.fakekubelet import FakeKubelet
from localcluster.ourprogram import OurProgram
from tfjob_controller.options import RunOptions

# The maximum number of concurrent requests of the controller: workers write as well (controller.writer).
THREADS = RunOptions().workers + RunOptions().concurrent_writes
LIMIT_SECONDS = 300.0
# Pause between two jobs, after which the previous one causes no more work.
REST_SECONDS = 0.3
_OURS = {"labelSelector": "kubeflow.org"}

_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Load:
    """The jobs of a round: where they are created, their number and size, and the manifest of each by name.

    `results` are the paths of the objects of which each replica has one in the end.
    """

    path: str
    jobs: int
    replicas: int
    manifest: Callable[[str, int], Object]
    results: tuple[str, ...]

    @property
    def count(self) -> int:
        return self.jobs * self.replicas


TFJOB_LOAD = Load(TFJOBS, size(200, tiny=3), size(5, tiny=2), tfjob, (PODS, SERVICES))
TRAINJOB_LOAD = Load(TRAINJOBS, size(100, tiny=3), size(8, tiny=2), trainjob, (PODS,))
LARGE_LOAD = Load(TRAINJOBS, 1, size(500, tiny=5), trainjob, (PODS,))
RUNNING_LOAD = Load(TRAINJOBS, size(1000, tiny=3), size(8, tiny=2), trainjob, (PODS,))


@dataclass(slots=True)
class Round:
    """A namespace of its own, with watches that end with it."""

    stage: Stage
    space: str
    load: Load
    open_: ExitStack
    watchers: list[Watcher] = field(default_factory=list)

    def watch(self, *paths: str) -> None:
        new = [Watcher(self.stage.kubeconfig, path.format(self.space), _OURS, "tf_job_name") for path in paths]
        self.watchers += [self.open_.enter_context(watcher) for watcher in new]

    def submit(self) -> Sequence[Object]:
        """Creates all jobs."""
        path, load = self.load.path.format(self.space), self.load
        return in_parallel(
            lambda number: self.stage.api.create(path, load.manifest(f"job-{number:04d}", load.replicas)),
            range(load.jobs),
        )

    def run_controller(self) -> OurProgram:
        return self.open_.enter_context(controller(self.stage.kubeconfig, f"--namespace={self.space}", "--qps=0"))

    def post_children(self, owners: Sequence[Object]) -> float:
        """Sends the Jobs, and the Services if the round waits for them; returns the time before the first one.

        Their owners exist, or they would be garbage collected.
        """
        sent = {path.format(self.space) for path in (JOBS, *self.load.results)}
        children = (child for owner in owners for child in children_of(owner))
        posts = [Post(path, msgspec.json.encode(body)) for path, body in children if path in sent]
        return send_all(self.stage.kubeconfig, posts, THREADS)

    def wait(self) -> float:
        """Waits until each watch has seen an object for each replica; returns the time of the last one."""
        return max(watcher.wait_for(self.load.count, LIMIT_SECONDS) for watcher in self.watchers)


@contextmanager
def new_round(stage: Stage, load: Load) -> Iterator[Round]:
    with namespace(stage.api, unique(f"bench-create-{next(_numbers)}")) as space, ExitStack() as open_:
        yield Round(stage, space, load, open_)


@dataclass(slots=True)
class Usage:
    """What the controllers of the rounds have used."""

    cpu_seconds: list[float] = field(default_factory=list)
    resident_megabytes: list[float] = field(default_factory=list)


def pods_by_controller(stage: Stage, load: Load, used: Usage) -> float:
    """Returns the seconds from the first POST of a job until all pods exist."""
    with new_round(stage, load) as this:
        this.watch(*load.results)
        running = this.run_controller()
        running.wait_ready()
        begin = time.monotonic()
        this.submit()
        last = this.wait()
        used.cpu_seconds.append(usage.cpu_seconds(running.pid))
        used.resident_megabytes.append(usage.resident_bytes(running.pid) / 1e6)
        return last - begin


def pods_by_posts(stage: Stage, load: Load) -> float:
    """Returns the seconds from the first bare POST of a child until the Job controller has created all pods."""
    with new_round(stage, load) as this:
        owners = this.submit()
        this.watch(*load.results)
        begin = this.post_children(owners)
        return this.wait() - begin


def report_pods(stage: Stage, name: str, load: Load, reach: Reach) -> tuple[bool, Usage]:
    """Prints `<name>_pods_exist`. Returns False if it missed its target, and what the controller has used."""
    used = Usage()
    by_controller = functools.partial(pods_by_controller, stage, load, used)
    values, posted = alternate(by_controller, functools.partial(pods_by_posts, stage, load))
    extra = {"jobs": load.jobs, "pods": load.count, "threads": THREADS}
    return report(f"{name}_pods_exist", "s", values, baselines=posted, reach=reach, **extra), used


def report_memory(stage: Stage) -> bool:
    """Prints `trainjobs_rss`. Returns False if it is too much."""
    with new_round(stage, RUNNING_LOAD) as this:
        this.open_.enter_context(FakeKubelet(stage.api, namespace=this.space))
        this.watch(PODS)
        running = this.run_controller()
        running.wait_ready()
        this.submit()
        this.wait()
        path = TRAINJOBS.format(this.space)
        wait(
            lambda: all(job.get("status", {}).get("phase") == "Running" for job in stage.api.list(path)),
            "not all run",
        )
        resident = usage.resident_bytes(running.pid) / 1e6
    load, reach = RUNNING_LOAD, Reach(max_value=150.0)
    return report("trainjobs_rss", "MB", [resident], reach=reach, jobs=load.jobs, nodes=load.replicas)


def report_first_child(stage: Stage) -> bool:
    """Prints `first_child_p99`. Returns False if it missed its target."""
    with new_round(stage, TFJOB_LOAD) as this:
        this.watch(JOBS)
        this.run_controller().wait_ready()
        delays = [_first_child(this, f"job-{number:03d}") for number in range(TFJOB_LOAD.jobs)]
    median, highest = (round(value * 1000, 1) for value in (rank(delays, 0.5), max(delays)))
    worst, reach = rank(delays, 0.99) * 1000, Reach(max_value=50.0)
    return report("first_child_p99", "ms", [worst], reach=reach, jobs=TFJOB_LOAD.jobs, median=median, highest=highest)


def _first_child(this: Round, name: str) -> float:
    this.stage.api.create(TFJOBS.format(this.space), tfjob(name, 4))
    begin = time.monotonic()
    seconds = this.watchers[0].wait_for_label(name, LIMIT_SECONDS) - begin
    time.sleep(REST_SECONDS)
    return max(0.0, seconds)


def main() -> int:
    """Prints all figures. Returns 1 if one missed its target."""
    with stage() as busy:
        ok, used = report_pods(busy, "tfjobs", TFJOB_LOAD, Reach(max_ratio=1.25))
        ok &= report("tfjobs_cpu", "s", used.cpu_seconds)
        ok &= report("tfjobs_rss", "MB", used.resident_megabytes)
        is_reached, used = report_pods(busy, "trainjobs", TRAINJOB_LOAD, Reach(max_ratio=1.6))
        ok &= is_reached
        ok &= report("trainjobs_cpu", "s", used.cpu_seconds, reach=Reach(max_value=2.5))
        ok &= report_pods(busy, "trainjob_1x500", LARGE_LOAD, Reach(max_ratio=1.3))[0]
        ok &= report_memory(busy)
        ok &= report_first_child(busy)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
