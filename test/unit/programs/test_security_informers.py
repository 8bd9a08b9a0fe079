"""Each informer of each program keeps kilobytes of an object, whatever its author has written into it.

`ROWS` is the table of all informers. A program that watches another kind requests a path that has no row, and fails.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

import tfjob_controller
from helpers.answering import Answering, Request
from helpers.poll import eventually
from helpers.worstobjects import SIZE, Body, owner, worst_objects
from tfjob_controller.controller.caches import ControllerCaches
from tfjob_controller.dashboard.feeds import JobFeed, JobWatch, Notifier, WatchedJob
from tfjob_controller.dashboard.users import User
from tfjob_controller.gangscheduler.provisioning.provisioner import request_informer
from tfjob_controller.gangscheduler.state.informers import SchedulerCaches
from tfjob_controller.jobs.plan.gangterms import NO_GANGS, ON_REQUEST, GangPolicy
from tfjob_controller.jobs.plan.podgroupbackends import BACKENDS
from tfjob_controller.kinds.registry import KINDS
from tfjob_controller.kinds.tfjob.clientkind import CLIENT_KIND as TFJOB
from tfjob_controller.kinds.trainjob.clientkind import CLIENT_KIND as TRAINJOB
from tfjob_controller.kube.cache.informer import InformerGroup
from tfjob_controller.util.clock import RealClock

CLOCK = RealClock()
END = (
    b'{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"9",'
    b'"annotations":{"k8s.io/initial-events-end":"true"}}}}'
)
KILOBYTES = 12 * 1024
# Threads and buffers.
SLACK = 256 * 1024
# Specs of jobs, runtimes and Gangs are what the programs are for, within the bounds of api/common/sizes.py.
OWN_KIND = 2_000_000
OWN_KINDS = ("TFJob", "TrainJob", "TrainingRuntime")
V1_PATH = "/apis/kubeflow.org/v1"
# What is needed in the meantime, for one object at a time.
PEAK = 10 * SIZE


class Running(Protocol):
    """What a program starts."""

    def start(self) -> None: ...
    def stop(self) -> object: ...
    @property
    def is_synced(self) -> bool: ...


class _Lines:
    """The lines of a watch, which then stays silent until it is closed."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = lines
        self._closed = threading.Event()

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[bytes]:
        yield from self._lines
        yield END
        self._closed.wait(30)

    def close(self) -> None:
        self._closed.set()


class OneKind(Answering):
    """Only the collection at `path` has objects."""

    def __init__(self, path: str = "", lines: Sequence[bytes] = ()) -> None:
        super().__init__()
        self._path, self._lines = path, lines
        self.requested: set[str] = set()

    def answer(self, request: Request) -> bytes:
        """It serves one kind of v1, of which all may be listed, for programs that ask."""
        if request.path == V1_PATH:
            return b'{"resources": [{"name": "pytorchjobs"}]}'
        return b'{"status": {"allowed": true}}'

    def stream(
        self, path: str, *, query: Mapping[str, str], read_timeout_seconds: float, max_line_bytes: int = 0
    ) -> _Lines:
        self.requested.add(path)
        return _Lines(self._lines if path == self._path else ())


@dataclass
class _Group:
    """Informers without the program around them. `caches` keeps them alive."""

    group: InformerGroup
    caches: object = None

    def start(self) -> None:
        self.group.start()

    def stop(self) -> object:
        return self.group.stop(20.0)

    @property
    def is_synced(self) -> bool:
        return self.group.is_synced


def controller(backend: str) -> Callable[[OneKind], Running]:
    def make(requester: OneKind) -> Running:
        groups = BACKENDS[backend].resource
        kinds = [kind.new_caches(requester, "", CLOCK, NO_GANGS) for kind in KINDS if kind.children_of is None]
        caches = ControllerCaches(requester, "", CLOCK, kinds, pod_groups=groups)
        return _Group(caches.informers, caches)

    return make


def kubeflow_v1(kind: str) -> Callable[[OneKind], Running]:
    """Kinds other than MPIJob differ only in names."""

    def make(requester: OneKind) -> Running:
        (row,) = (row for row in KINDS if row.children_of is not None and row.resource.kind == kind)
        caches = row.new_caches(requester, "", CLOCK, GangPolicy(ON_REQUEST))
        return _Group(InformerGroup(caches.all, CLOCK), caches)

    return make


def gang_scheduler(requester: OneKind) -> Running:
    caches = SchedulerCaches(requester, CLOCK, with_priorities=True, with_weights=True)
    return _Group(caches.informers, caches)


def provisioner(requester: OneKind) -> Running:
    return _Group(InformerGroup([request_informer(requester, CLOCK)], CLOCK))


def _user(requester: OneKind) -> User:
    return User("me", requester, "team", "there", CLOCK)


def dashboard(requester: OneKind) -> Running:
    return JobFeed(_user(requester), "", Notifier(asyncio.new_event_loop()), CLOCK)


def job_page(requester: OneKind) -> Running:
    job = WatchedJob(TRAINJOB, "team", "train", uid="u1", child_selector="runtime_id=ab12")
    return JobWatch(_user(requester), job, Notifier(asyncio.new_event_loop()), CLOCK)


KUBEFLOW_V1, MPI = "jobs of kubeflow.org/v1", "MPIJobs of kubeflow.org/v1"
PROGRAMS: Mapping[str, Callable[[OneKind], Running]] = {
    **{f"controller with {backend}": controller(backend) for backend in BACKENDS},
    KUBEFLOW_V1: kubeflow_v1("TFJob"),
    MPI: kubeflow_v1("MPIJob"),
    "gang scheduler": gang_scheduler,
    "provisioner": provisioner,
    "dashboard": dashboard,
    "dashboard's page of a job": job_page,
}

TFJOB_OWNER = owner("kubeflow.org/v1alpha1", "TFJob")
V1_OWNER = owner("kubeflow.org/v1", "TFJob")
JOB_OWNER = owner("batch/v1", "Job", name="train-worker-ab12-0")
GANG_OWNER = owner("scheduling.kubeflow.org/v1alpha1", "Gang")
CHILD = {"kubeflow.org": "", "runtime_id": "ab12"}
V1_CHILD = {"training.kubeflow.org/operator-name": "tfjob-controller"}
MPI_OWNER = owner("kubeflow.org/v1", "MPIJob")
MPI_CHILD = {"training.kubeflow.org/operator-name": "mpijob-controller"}
MEMBER = {"scheduling.kubeflow.org/gang": "train", "scheduling.kubeflow.org/member": "worker-0"}
MANAGED = {"app.kubernetes.io/managed-by": "gang-scheduler"}


@dataclass(frozen=True)
class Row:
    """One informer. `labels` and `controller` are those of a watched object, `kept` the bytes of one."""

    program: str
    kind: str
    path: str
    labels: Mapping[str, str]
    controller: Body | None = None
    kept: int = KILOBYTES

    @property
    def name(self) -> str:
        return f"{self.program}: {self.path}"


def _of_controller(backend: str) -> Iterator[Row]:
    name = f"controller with {backend}"
    if backend == "volcano":
        yield Row(name, "Job", "/apis/batch/v1/jobs", CHILD, TFJOB_OWNER)
        yield Row(name, "Service", "/api/v1/services", CHILD, TFJOB_OWNER)
        yield Row(name, "Pod", "/api/v1/pods", CHILD, JOB_OWNER)
        yield Row(name, "ConfigMap", "/api/v1/configmaps", CHILD, TFJOB_OWNER)
        autoscalers = "/apis/autoscaling/v2/horizontalpodautoscalers"
        yield Row(name, "HorizontalPodAutoscaler", autoscalers, CHILD, TFJOB_OWNER)
        yield Row(name, "Gang", "/apis/scheduling.kubeflow.org/v1alpha1/gangs", CHILD, TFJOB_OWNER, OWN_KIND)
        yield Row(name, "TFJob", TFJOB.resource.path(), {}, None, OWN_KIND)
        yield Row(name, "TrainJob", TRAINJOB.resource.path(), {}, None, OWN_KIND)
        for runtimes in ("trainingruntimes", "clustertrainingruntimes"):
            yield Row(name, "TrainingRuntime", f"/apis/kubeflow.org/v2alpha1/{runtimes}", {}, None, OWN_KIND)
            yield Row(name, "TrainingRuntime", f"/apis/trainer.kubeflow.org/v1alpha1/{runtimes}", {}, None, OWN_KIND)
        yield Row(name, "TrainJob", "/apis/trainer.kubeflow.org/v1alpha1/trainjobs", {}, None, OWN_KIND)
    groups = BACKENDS[backend].resource
    yield Row(name, groups.kind, groups.path(), CHILD, TFJOB_OWNER)


ROWS = [
    *(row for backend in BACKENDS for row in _of_controller(backend)),
    Row(KUBEFLOW_V1, "TFJob", "/apis/kubeflow.org/v1/tfjobs", {}, None, OWN_KIND),
    Row(KUBEFLOW_V1, "Pod", "/api/v1/pods", V1_CHILD, V1_OWNER),
    Row(KUBEFLOW_V1, "Service", "/api/v1/services", V1_CHILD, V1_OWNER),
    Row(KUBEFLOW_V1, "Gang", "/apis/scheduling.kubeflow.org/v1alpha1/gangs", V1_CHILD, V1_OWNER, OWN_KIND),
    Row(MPI, "TFJob", "/apis/kubeflow.org/v1/mpijobs", {}, None, OWN_KIND),
    Row(MPI, "Pod", "/api/v1/pods", MPI_CHILD, MPI_OWNER),
    Row(MPI, "ConfigMap", "/api/v1/configmaps", MPI_CHILD, MPI_OWNER),
    Row(MPI, "ServiceAccount", "/api/v1/serviceaccounts", MPI_CHILD, MPI_OWNER),
    Row(MPI, "Role", "/apis/rbac.authorization.k8s.io/v1/roles", MPI_CHILD, MPI_OWNER),
    Row(MPI, "RoleBinding", "/apis/rbac.authorization.k8s.io/v1/rolebindings", MPI_CHILD, MPI_OWNER),
    Row(MPI, "Gang", "/apis/scheduling.kubeflow.org/v1alpha1/gangs", MPI_CHILD, MPI_OWNER, OWN_KIND),
    Row("gang scheduler", "Pod", "/api/v1/pods", MEMBER, JOB_OWNER),
    Row("gang scheduler", "ResourceQuota", "/api/v1/resourcequotas", {}),
    Row("gang scheduler", "Namespace", "/api/v1/namespaces", {}),
    Row("gang scheduler", "PriorityClass", "/apis/scheduling.k8s.io/v1/priorityclasses", {}),
    Row("gang scheduler", "Gang", "/apis/scheduling.kubeflow.org/v1alpha1/gangs", {}, None, OWN_KIND),
    Row(
        "provisioner", "ProvisioningRequest", "/apis/autoscaling.x-k8s.io/v1/provisioningrequests", MANAGED, GANG_OWNER
    ),
    Row("dashboard", "TFJob", TFJOB.resource.path(), {}),
    Row("dashboard", "TrainJob", TRAINJOB.resource.path(), {}),
    # Kinds of v1 differ only in names.
    Row("dashboard", "TFJob", f"{V1_PATH}/pytorchjobs", {}),
    Row("dashboard", "Pod", "/api/v1/pods", V1_CHILD, V1_OWNER),
    Row("dashboard's page of a job", "Pod", "/api/v1/namespaces/team/pods", CHILD, JOB_OWNER),
    Row("dashboard's page of a job", "TrainJob", TRAINJOB.resource.path("team"), {}),
]
# Nodes are written by kubelets and administrators, and selectors of pods may name any of their labels.
TRUSTED = {("gang scheduler", "/api/v1/nodes")}


@pytest.mark.parametrize("program", PROGRAMS)
def test_each_informer_of_each_program_has_a_row(program: str) -> None:
    requester = OneKind()
    running = PROGRAMS[program](requester)
    running.start()
    eventually(lambda: running.is_synced, 10)
    running.stop()
    rows = {row.path for row in ROWS if row.program == program} | {path for name, path in TRUSTED if name == program}
    # What all controllers watch has its rows with the first of them.
    if program.startswith("controller"):
        rows |= {row.path for row in _of_controller("volcano") if row.kind != BACKENDS["volcano"].resource.kind}
    assert requester.requested == rows


def test_no_other_module_makes_informers() -> None:
    root = Path(tfjob_controller.__file__).parent
    makers = {str(path.relative_to(root)) for path in root.rglob("*.py") if "Informer(" in path.read_text("utf-8")}
    assert makers == {
        "controller/caches.py",
        "dashboard/feeds.py",
        "dashboard/waitingpods.py",
        "gangscheduler/provisioning/provisioner.py",
        "gangscheduler/state/informers.py",
        "kinds/kubeflowv1/kind.py",
        "kinds/runtimes.py",
        "kinds/tfjob/kind.py",
        "kube/cache/informer.py",
    }


def _memory(program: str, path: str, lines: Sequence[bytes]) -> tuple[int, int]:
    """What the program keeps once it is synced, and the most that it had until then."""
    gc.collect()
    tracemalloc.start()
    try:
        running = PROGRAMS[program](OneKind(path, lines))
        running.start()
        eventually(lambda: running.is_synced, 30)
        gc.collect()
        kept, peak = tracemalloc.get_traced_memory()
        running.stop()
    finally:
        tracemalloc.stop()
    return kept, peak


def _excess(row: Row, objects: Mapping[str, bytes], nothing: int) -> str:
    """The figures of these objects, if they keep too much or need too much while they are decoded."""
    kept, peak = (each - nothing for each in _memory(row.program, row.path, [*objects.values()]))
    allowed = SLACK + len(objects) * row.kept
    if kept <= allowed and peak <= allowed + PEAK:
        return ""
    return f"{', '.join(objects)}: keep {kept:,} of {allowed:,}, peak {peak:,} of {allowed + PEAK:,}"


@pytest.mark.parametrize(
    "row",
    [
        # Those of jobs are proved by test_decode.py, too, and take long under tracemalloc.
        pytest.param(row, id=row.name, marks=[pytest.mark.long] if row.kind in OWN_KINDS else [])
        for row in ROWS
    ],
)
def test_the_worst_objects_that_the_api_server_takes_leave_kilobytes(row: Row) -> None:
    """If they do not all together, those that keep more are named."""
    problems = _problems(row, dict(worst_objects(row.kind, dict(row.labels), row.controller)))
    assert not problems, problems


@pytest.mark.parametrize(
    "row",
    # One of each kind in each program. All rows have these objects in the test above.
    {(row.program, row.kind): row for row in ROWS if row.kind in OWN_KINDS}.values(),
    ids=lambda row: row.name,
)
def test_objects_nested_too_deep_are_refused_without_being_decoded(row: Row) -> None:
    """None needs a multiple of its bytes, whether its spec is too large as well or not."""
    problems = _problems(row, {name: line for name, line in worst_objects(row.kind, {}, None) if "deep" in name})
    assert not problems, problems


def _problems(row: Row, objects: Mapping[str, bytes]) -> str:
    nothing, _ = _memory(row.program, "", ())
    if not _excess(row, objects, nothing):
        return ""
    return "\n".join(problem for name, line in objects.items() if (problem := _excess(row, {name: line}, nothing)))
