"""The simulated cluster and its jobs as the gang scheduler sees them: Nodes and Gangs like those of a real cluster.

A node has 8 CPUs for each GPU; a worker requests 4 for each of its GPUs, a parameter server a tenth of one. So GPUs are
scarce, and parameter servers never keep workers out: without gangs those of a hundred jobs wait on their nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from tfjob_controller.api.common.cluster import Node, NodeCondition, NodeStatus
from tfjob_controller.api.gang import Gang, GangMeta, GangSpec, GangStatus, Member
from tfjob_controller.kube.meta import ObjectMeta
from tfjob_controller.scheduling.clusterview import ClusterView
from tfjob_controller.scheduling.placement import place
from tfjob_controller.scheduling.podsets import pod_sets_of
from tfjob_controller.simulator.model import SimJob, SimulationError
from tfjob_controller.util.timestamps import format_micro_time

GPU = "nvidia.com/gpu"
SERVER, WORKER = "ps", "worker"
# The wall clock at the start of every simulation.
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)

_NODE_CPUS = 8
_WORKER_CPUS = 4


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """The number of nodes, all equal, and of GPUs on each."""

    nodes: int = 4
    gpus_per_node: int = 4

    def __str__(self) -> str:
        return f"{self.nodes}x{self.gpus_per_node}"

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    def node_names(self) -> list[str]:
        digits = len(str(self.nodes))
        return [f"node-{number:0{digits}}" for number in range(1, self.nodes + 1)]

    def view(self) -> ClusterView:
        """Returns a view of the empty cluster."""
        view = ClusterView()
        cpus, gpus = str(_NODE_CPUS * self.gpus_per_node), str(self.gpus_per_node)
        for name in self.node_names():
            allocatable = {"cpu": cpus, "memory": "1Ti", "pods": "1000", GPU: gpus}
            status = NodeStatus(allocatable, (NodeCondition("Ready", "True"),))
            view.set_node(Node(ObjectMeta(name=name, labels={"kubernetes.io/hostname": name}), status=status))
        return view


def wall_time(now_ms: int) -> datetime:
    """Returns the wall clock of the simulated cluster."""
    return BEGINNING + timedelta(milliseconds=now_ms)


def key(job: SimJob) -> str:
    """Returns the key of the job's Gang."""
    return f"{job.namespace}/{job.name}"


def gang_of(job: SimJob, *, elastic: bool) -> Gang:
    """Returns the Gang as the controller writes it; it is queued since the job's arrival."""
    since = format_micro_time(wall_time(job.arrival_ms))
    spec = GangSpec(
        members=_members(job),
        min_members={WORKER: job.min_workers} if elastic else {},
        max_members={WORKER: job.max_workers} if elastic else {},
        priority=job.priority,
    )
    meta = GangMeta(name=job.name, namespace=job.namespace, uid=job.name, creation_timestamp=since)
    return Gang(meta, spec, GangStatus(queued_time=since))


def _members(job: SimJob) -> tuple[Member, ...]:
    requests = {"cpu": str(_WORKER_CPUS * job.gpus), GPU: str(job.gpus)}
    worker = Member(WORKER, job.workers, requests, indexed=job.is_indexed)
    return (Member(SERVER, job.servers, {"cpu": "100m"}), worker) if job.servers else (worker,)


def gpus_by_node(job: SimJob, node_of: Mapping[str, str]) -> dict[str, int]:
    """Returns the GPUs that these members of a job hold."""
    held: dict[str, int] = {}
    for member, node in node_of.items():
        if member.startswith(WORKER):
            held[node] = held.get(node, 0) + job.gpus
    return held


def check_fits(jobs: Iterable[SimJob], shape: ClusterShape) -> None:
    """Raises SimulationError for a job that does not fit an empty cluster: under some policies it would never end."""
    view = shape.view()
    seen: dict[tuple[int, int, int], bool] = {}
    for job in jobs:
        kind = (job.servers, job.workers, job.gpus)
        if kind not in seen:
            seen[kind] = place(view, pod_sets_of(gang_of(job, elastic=False).spec)) is not None
        if not seen[kind]:
            raise SimulationError(
                f"{job.name} does not fit an empty cluster of {shape.nodes} nodes with {shape.gpus_per_node} GPUs: "
                f"{job.servers} parameter servers, {job.workers} workers of {job.gpus} GPUs"
            )
