"""`make bench-kubeflow-v1`: this controller against training-operator 1.9.4, with TFJobs of kubeflow.org/v1.

The rounds of both contenders alternate, each on its own control plane (`v1contenders`); a cluster that KUBECONFIG names
is not used.

- `v1_pods_exist`: seconds from the first POST of 200 jobs of 5 until all 1,000 pods and Services exist. Baseline:
  training-operator. `v1_pods_exist_bare`: baseline are bare POSTs of the same pods and Services.
- `v1_create_cpu`: CPU of the controller's process for that, until nothing is written any more.
- `v1_writes`: writes of the controller for each job of 5 whose pods run and succeed, events included. `v1_all_writes`
  has those of all clients: the user, the scheduler, kubelets and Kubernetes' controllers as well.
- `v1_life_cpu`: CPU of the controller's process for all of these jobs.
- `v1_takeover_child_writes`, `v1_takeover_status_writes`, `v1_takeover_seconds`: 500 running jobs of training-operator,
  which has stopped; this controller's writes to pods and Services, the most writes to one job, and the seconds from its
  start until it has synced all of them.
"""

from __future__ import annotations

import functools
import itertools
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from bench import usage
from bench.bare import Post, send_all
from bench.create import LIMIT_SECONDS, THREADS
from bench.gangplane import Plane
from bench.jobs import PODS, SERVICES
from bench.report import ROUNDS, Reach, progress, report, size
from bench.stage import in_parallel, rest, wait
from bench.v1contenders import TFJOBS, Contender, our_contender, our_controller, run_theirs, their_contender
from bench.watcher import Watcher
from localcluster.fakekubelet import RUN_SECONDS, FakeKubelet
from localcluster.ourprogram import METRICS, OurProgram
from tfjob_controller.api.kubeflowv1.defaults import with_defaults
from tfjob_controller.api.kubeflowv1.types import TF_JOB, V1_RESOURCES
from tfjob_controller.jobs.actions.children import build_pod, build_service
from tfjob_controller.jobs.naming import JOB_NAME_LABEL
from tfjob_controller.kinds.kubeflowv1.plan import build_v1_plan

JOBS, REPLICAS = size(200, tiny=3), size(5, tiny=2)
LIVES, SECONDS_BETWEEN = size(40, tiny=2), 0.25
TAKEN, TAKEN_REPLICAS = size(500, tiny=3), 2
# Workers end before the chief, which decides.
_WORKER_SECONDS, _CHIEF_SECONDS = 2.0, 3.0
_LIFE, _TAKEOVER = "bench-life-{}", "bench-takeover"
_LOGGED = (*(_LIFE.format(number) for number in range(ROUNDS)), _TAKEOVER)
_CHILDREN = ("pods", "services")

Object = dict[str, Any]
_numbers = itertools.count()


@dataclass(slots=True)
class Figures:
    """What the rounds of a contender have shown."""

    seconds: list[float] = field(default_factory=list)
    create_cpu: list[float] = field(default_factory=list)
    writes: list[float] = field(default_factory=list)
    all_writes: list[float] = field(default_factory=list)
    life_cpu: list[float] = field(default_factory=list)


def tfjob(name: str, replicas: int, *, ends: bool = False) -> Object:
    """Returns a job with one chief, the rest workers; by default its pods run until they are deleted."""
    container = {"name": "tensorflow", "image": "localhost/trainer:1", "args": ["python", "train.py"]}

    def entry(count: int, seconds: float) -> Object:
        metadata = {"annotations": {RUN_SECONDS: str(seconds)}} if ends else {}
        return {"replicas": count, "template": {"metadata": metadata, "spec": {"containers": [container]}}}

    specs = {"Chief": entry(1, _CHIEF_SECONDS), "Worker": entry(replicas - 1, _WORKER_SECONDS)}
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": TF_JOB,
        "metadata": {"name": name},
        "spec": {"tfReplicaSpecs": specs},
    }


def children_of(created: Object) -> Iterator[tuple[str, Object]]:
    """Yields path and body of each pod and Service of a job, from an API server's response."""
    job = V1_RESOURCES[TF_JOB].decode(msgspec.json.encode(created))
    plan, namespace = build_v1_plan(with_defaults(job)), created["metadata"]["namespace"]
    for replica in plan.replicas.by_name.values():
        if plan.carrier is not None:
            yield PODS.format(namespace), build_pod(plan, plan.carrier, replica)
        yield SERVICES.format(namespace), build_service(plan, replica)


def submit(plane: Plane, namespace: str, jobs: int, replicas: int) -> Sequence[Object]:
    path = TFJOBS.format(namespace)
    return in_parallel(lambda number: plane.api.create(path, tfjob(f"job-{number:04d}", replicas)), range(jobs))


def await_children(watchers: Sequence[Watcher], count: int) -> float:
    """Returns when the last of so many pods and Services has appeared."""
    return max(watcher.wait_for(count, LIMIT_SECONDS) for watcher in watchers)


def cpu_since(pid: int, before: float) -> float:
    """Returns the CPU time since then, and at least the step in which the kernel counts."""
    return max(usage.cpu_seconds(pid) - before, 0.01)


def watcher_of(plane: Plane, path: str) -> Watcher:
    return Watcher(plane.control.kubeconfig, path, {"labelSelector": JOB_NAME_LABEL}, JOB_NAME_LABEL)


def children_by(contender: Contender, figures: Figures) -> None:
    """Creates jobs, and measures until all children exist, and the CPU until nothing is written any more."""
    plane, name = contender.plane, f"bench-v1-{next(_numbers)}"
    with (
        plane.namespace(TFJOBS, PODS, SERVICES, name=name),
        contender.run(name) as pid,
        watcher_of(plane, PODS.format(name)) as pods,
        watcher_of(plane, SERVICES.format(name)) as services,
    ):
        rest(plane.api)
        used, begin = usage.cpu_seconds(pid), time.monotonic()
        submit(plane, name, JOBS, REPLICAS)
        figures.seconds.append(await_children((pods, services), JOBS * REPLICAS) - begin)
        rest(plane.api)
        figures.create_cpu.append(cpu_since(pid, used))


def children_by_posts(plane: Plane) -> float:
    """Returns the seconds for bare POSTs of the same children. Their jobs exist, and nothing runs these."""
    name = f"bench-v1-{next(_numbers)}"
    with plane.namespace(TFJOBS, PODS, SERVICES, name=name):
        owners = submit(plane, name, JOBS, REPLICAS)
        posts = [Post(path, msgspec.json.encode(body)) for owner in owners for path, body in children_of(owner)]
        with watcher_of(plane, PODS.format(name)) as pods, watcher_of(plane, SERVICES.format(name)) as services:
            rest(plane.api)
            begin = send_all(plane.control.kubeconfig, posts, THREADS)
            return await_children((pods, services), JOBS * REPLICAS) - begin


def lives_under(contender: Contender, number: int, figures: Figures) -> None:
    """Lets jobs run and succeed, one after another, and counts writes and CPU until nothing is written any more."""
    plane, name = contender.plane, _LIFE.format(number)
    path = TFJOBS.format(name)
    with (
        plane.namespace(TFJOBS, PODS, SERVICES, name=name),
        FakeKubelet(plane.api, namespace=name),
        contender.run(name) as pid,
    ):
        rest(plane.api)
        offset, used = contender.logged(), usage.cpu_seconds(pid)
        for life in range(LIVES):
            plane.api.create(path, tfjob(f"job-{life:04d}", REPLICAS, ends=True))
            time.sleep(SECONDS_BETWEEN)
        wait(functools.partial(are_in_state, plane, path, "Succeeded"), "not all jobs have succeeded")
        rest(plane.api)
        figures.life_cpu.append(cpu_since(pid, used))
        writes = contender.writes(offset, name)
    own = [write for write in writes if write.is_of_operator]
    progress(f"{contender.agent}: {Counter(f'{write.verb} {write.resource}' for write in own)}")
    figures.writes.append(len(own) / LIVES)
    figures.all_writes.append(len(writes) / LIVES)


def are_in_state(plane: Plane, path: str, state: str) -> bool:
    """Reports whether the last condition of all jobs has this type."""
    conditions = [(job.get("status") or {}).get("conditions") or [{"type": ""}] for job in plane.api.list(path)]
    return all(of_job[-1]["type"] == state for of_job in conditions)


def report_takeover(ours: Contender) -> bool:
    """Prints the figures of a takeover. Returns False if one missed its target."""
    plane = ours.plane
    path = TFJOBS.format(_TAKEOVER)
    with plane.namespace(TFJOBS, PODS, SERVICES, name=_TAKEOVER), FakeKubelet(plane.api, namespace=_TAKEOVER):
        with run_theirs(plane, _TAKEOVER):
            submit(plane, _TAKEOVER, TAKEN, TAKEN_REPLICAS)
            wait(functools.partial(are_in_state, plane, path, "Running"), "not all jobs run")
            rest(plane.api)
        rest(plane.api)
        offset, begin = ours.logged(), time.monotonic()
        with our_controller(ours, _TAKEOVER) as program:
            program.wait_ready()
            wait(functools.partial(has_synced, program, TAKEN), "not all jobs are synced")
            seconds = time.monotonic() - begin
            rest(plane.api)
            writes = [write for write in ours.writes(offset, _TAKEOVER) if write.is_of_operator]
    of_jobs = Counter(write.name for write in writes if write.resource.startswith("tfjobs"))
    to_children = sum(write.resource.partition("/")[0] in _CHILDREN for write in writes)
    ok = report("v1_takeover_child_writes", "writes", [to_children], reach=Reach(max_value=0.0), jobs=TAKEN)
    most = max(of_jobs.values(), default=0)
    ok &= report("v1_takeover_status_writes", "writes per job", [most], reach=Reach(max_value=1.0), jobs=TAKEN)
    return report("v1_takeover_seconds", "s", [seconds], reach=Reach(max_value=30.0), jobs=TAKEN) and ok


def has_synced(program: OurProgram, jobs: int) -> bool:
    """Reports whether the controller has synced so many jobs, and none waits for its turn."""
    samples = [
        sample
        for family in text_string_to_metric_families(program.page(METRICS, "/metrics"))
        for sample in family.samples
    ]
    synced = sum(sample.value for sample in samples if sample.name == "controller_runtime_reconcile_total")
    waiting = sum(sample.value for sample in samples if sample.name == "workqueue_depth")
    return synced >= jobs and not waiting


def report_children(ours: Figures, theirs: Figures, posted: Sequence[float]) -> bool:
    extra = {"jobs": JOBS, "replicas": REPLICAS, "threads": THREADS}
    ok = report("v1_pods_exist", "s", ours.seconds, baselines=theirs.seconds, reach=Reach(max_ratio=0.8), **extra)
    ok &= report("v1_pods_exist_bare", "s", ours.seconds, baselines=posted, reach=Reach(max_ratio=1.1), **extra)
    cpu = report("v1_create_cpu", "s", ours.create_cpu, baselines=theirs.create_cpu, reach=Reach(max_ratio=0.8))
    return cpu and ok


def report_lives(ours: Figures, theirs: Figures) -> bool:
    extra: Object = {"jobs": LIVES, "replicas": REPLICAS}
    most = Reach(max_value=2 * REPLICAS + 8)
    ok = report("v1_writes", "writes per job", ours.writes, baselines=theirs.writes, reach=most, **extra)
    ok &= report("v1_all_writes", "writes per job", ours.all_writes, baselines=theirs.all_writes, **extra)
    cpu = report("v1_life_cpu", "s", ours.life_cpu, baselines=theirs.life_cpu, reach=Reach(max_ratio=0.8), **extra)
    return cpu and ok


def main() -> int:
    """Prints all figures. Returns 1 if one missed its target."""
    with our_contender(_LOGGED) as ours, their_contender(_LOGGED) as theirs:
        of_ours, of_theirs = Figures(), Figures()
        posted: list[float] = []
        for number in range(1, ROUNDS + 1):
            posted.append(children_by_posts(ours.plane))
            children_by(theirs, of_theirs)
            children_by(ours, of_ours)
            progress(
                f"children, round {number} of {ROUNDS}: {of_ours.seconds[-1]:.4g} s, "
                f"training-operator {of_theirs.seconds[-1]:.4g} s, bare {posted[-1]:.4g} s"
            )
        ok = report_children(of_ours, of_theirs, posted)
        # Only now there are nodes.
        for number in range(ROUNDS):
            lives_under(theirs, number, of_theirs)
            lives_under(ours, number, of_ours)
        ok &= report_lives(of_ours, of_theirs)
        ok &= report_takeover(ours)
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
