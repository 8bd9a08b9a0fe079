"""One job at a time on an idle cluster: its requests, and the time until its first child exists.

- `requests_per_job`: the requests of the controller for one job of N replicas from its creation until it is Done,
  without events and watches, when every replica ends by itself. Counted in the audit log of the API server.
- `requests_per_trainjob`, `requests_per_tfjob`: all requests in the namespace of one TrainJob of 8 nodes, or one TFJob
  of 5 replicas, until its pods exist, of all clients and with events, but without watches. No kubelet runs, and the
  pods name a scheduler that does not exist.
- `requests_per_job_ps`: the same for a job whose parameter servers run until they are stopped.
- `first_child_p99`: from the response to the POST of a TFJob until a watch in the same process delivers the first
  child; of `JOB_COUNT` jobs one after another, nearest rank.
"""

from __future__ import annotations

import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from bench.auditlog import audit_log, entries_of
from bench.controller import controller
from bench.jobs import JOBS, PODS, TFJOBS, TRAINJOBS, Object, master_and_workers, replica_spec, tfjob, trainjob
from bench.report import ROUNDS, Reach, progress, rank, report, size
from bench.stage import Stage, namespace, stage, unique
from bench.watcher import Watcher
from localcluster import stack
from localcluster.api import Api
from localcluster.fakekubelet import RUN_SECONDS, FakeKubelet
from localcluster.programs import Options
from tfjob_controller.util.timestamps import format_micro_time

REPLICAS = size(10, tiny=2)
SERVERS = size(4, tiny=1)
ALLOWED_BEYOND_CHILDREN = 6
NODES = size(8, tiny=2)
TF_REPLICAS = size(5, tiny=2)
# A TrainJob's own object, statuses and events, and those of its Job.
ALLOWED_BEYOND_PODS = 12
JOB_COUNT = size(200, tiny=3)
# Pause between two jobs, after which the previous one causes no more work.
REST_SECONDS = 0.3
# Longer than the controller needs for any pending work.
AFTERWARDS_SECONDS = 2.0
LIMIT_SECONDS = 60.0

_numbers = itertools.count()


def report_single() -> bool:
    """Prints all figures. Returns False if one missed its target."""
    progress("single jobs")
    with _audited_stage() as (ready, audit):
        ok = report_first_child(ready)
        if audit is None:
            progress("requests are counted only on a control plane of the benchmark, with the API server's audit log")
            return ok
        ok &= report_requests_until_pods(ready, audit)
        with FakeKubelet(ready.api):
            return ok & report_requests(ready, audit)


def report_first_child(stage: Stage) -> bool:
    with (
        namespace(stage.api, unique("bench-first-child")) as space,
        Watcher(stage.api, JOBS.format(space)) as watcher,
        controller(stage.kubeconfig, f"--namespace={space}") as running,
    ):
        running.wait_ready()
        delays = [_first_child(stage.api, space, watcher, f"job-{number:03d}") for number in range(JOB_COUNT)]
    median, highest = (round(value * 1000, 1) for value in (rank(delays, 0.5), max(delays)))
    worst, reach = rank(delays, 0.99) * 1000, Reach(max_value=50.0)
    return report("first_child_p99", "ms", [worst], reach=reach, jobs=JOB_COUNT, median=median, highest=highest)


def report_requests_until_pods(stage: Stage, audit: Path) -> bool:
    train = trainjob("train", NODES)
    train["spec"]["podSpecOverrides"] = [{"targetJobs": [{"name": "node"}], "schedulerName": "none"}]
    counts = [_requests_until_pods(stage, audit, TRAINJOBS, train, NODES) for _ in range(ROUNDS)]
    reach = Reach(max_value=2 * NODES + ALLOWED_BEYOND_PODS)
    ok = report("requests_per_trainjob", "requests", counts, reach=reach, nodes=NODES)
    tf = master_and_workers("tf", TF_REPLICAS)
    for each in tf["spec"]["replicaSpecs"]:
        each["template"]["spec"]["schedulerName"] = "none"
    counts = [_requests_until_pods(stage, audit, TFJOBS, tf, TF_REPLICAS) for _ in range(ROUNDS)]
    return ok & report("requests_per_tfjob", "requests", counts, reach=Reach(max_value=39), replicas=TF_REPLICAS)


def _requests_until_pods(stage: Stage, audit: Path, path: str, manifest: Object, pods: int) -> float:
    with namespace(stage.api, unique(f"bench-until-pods-{next(_numbers)}")) as space, contextlib.ExitStack() as open_:
        watcher = open_.enter_context(Watcher(stage.api, PODS.format(space), "kubeflow.org"))
        running = open_.enter_context(controller(stage.kubeconfig, f"--namespace={space}"))
        running.wait_ready()
        # Not what the controllers of Kubernetes write into every new namespace.
        begin = format_micro_time(datetime.now(UTC))
        stage.api.create(path.format(space), manifest)
        watcher.wait_for(pods, LIMIT_SECONDS)
        time.sleep(AFTERWARDS_SECONDS)
    sent = [each for each in entries_of(audit, space, with_events=True) if each["requestReceivedTimestamp"] >= begin]
    counts = Counter(f"{each['verb']} {each['objectRef']['resource']}" for each in sent)
    progress(", ".join(f"{count} {what}" for what, count in counts.most_common()))
    return len(sent)


def report_requests(stage: Stage, audit: Path) -> bool:
    all_end = _counts(stage, audit, "ends", lambda name: _ending(master_and_workers(name, REPLICAS)))
    reach = Reach(max_value=2 * REPLICAS + ALLOWED_BEYOND_CHILDREN)
    ok = report("requests_per_job", "requests", all_end, reach=reach, replicas=REPLICAS)
    with_servers = _counts(stage, audit, "servers", _with_servers)
    return ok & report("requests_per_job_ps", "requests", with_servers, replicas=REPLICAS, servers=SERVERS)


def _first_child(api: Api, space: str, watcher: Watcher, name: str) -> float:
    api.create(TFJOBS.format(space), master_and_workers(name, 4))
    begin = time.monotonic()
    seconds = watcher.wait_for_job(name, LIMIT_SECONDS) - begin
    time.sleep(REST_SECONDS)
    return max(0.0, seconds)


def _counts(stage: Stage, audit: Path, label: str, manifest: Callable[[str], Object]) -> list[float]:
    """Returns the requests of one job after another, each with a newly started controller whose caches are filled."""
    counts: list[float] = []
    for number in range(ROUNDS):
        space = unique(f"bench-requests-{label}-{number}")
        with namespace(stage.api, space), controller(stage.kubeconfig, f"--namespace={space}") as running:
            running.wait_ready()
            stage.api.create(TFJOBS.format(space), manifest("job"))
            _wait_done(stage.api, f"{TFJOBS.format(space)}/job")
            # Requests after the end would count too.
            time.sleep(AFTERWARDS_SECONDS)
        sent = list(_sent(audit, space))
        counts.append(len(sent))
        progress(f"{label}: {len(sent)} requests, of them {_changes(sent)} for the TFJob itself")
    return counts


def _wait_done(api: Api, path: str) -> None:
    begin = time.monotonic()
    while (phase := api.get(path).get("status", {}).get("phase")) != "Done":
        if phase == "Failed" or time.monotonic() - begin > LIMIT_SECONDS:
            raise RuntimeError(f"the job is in phase {phase}")
        time.sleep(0.05)


def _sent(audit: Path, space: str) -> Iterator[Object]:
    """Returns the requests of the controller in that namespace, without events and watches."""
    return (each for each in entries_of(audit, space) if each.get("userAgent", "").startswith("tfjob-controller/"))


def _changes(sent: list[Object]) -> int:
    return sum(entry["objectRef"]["resource"] == "tfjobs" for entry in sent)


def _ending(manifest: Object) -> Object:
    """Lets the master end last, and its workers earlier."""
    for spec in manifest["spec"]["replicaSpecs"]:
        seconds = "2" if spec["tfReplicaType"] == "MASTER" else "1"
        spec["template"]["metadata"]["annotations"] = {RUN_SECONDS: seconds}
    return manifest


def _with_servers(name: str) -> Object:
    rest = REPLICAS - SERVERS - 1
    specs = [replica_spec("MASTER", 1), *([replica_spec("WORKER", rest)] if rest > 0 else [])]
    return tfjob(name, *_ending(tfjob(name, *specs))["spec"]["replicaSpecs"], replica_spec("PS", SERVERS))


@contextlib.contextmanager
def _audited_stage() -> Iterator[tuple[Stage, Path | None]]:
    """Yields a cluster and its audit log; no log for an existing cluster."""
    if stack.existing_kubeconfig() is not None:
        with stage() as ready:
            yield ready, None
        return
    with audit_log() as (audit, flags), stage(Options(apiserver_flags=flags)) as ready:
        yield ready, audit
