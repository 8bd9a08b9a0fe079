"""Makes the reconciler of each kind of job, from the parts that all kinds share and those of the kind."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tfjob_controller.api.common.core import Scale
from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.api.decode import decode_kubeflow_trainjob, decode_tfjob, decode_trainjob
from tfjob_controller.api.kubeflowtrainer.types import KUBEFLOW_TRAINJOBS, KubeflowTrainJob
from tfjob_controller.api.tfjob.types import TFJOBS, TFJob
from tfjob_controller.api.trainjob.types import TRAINJOBS, TrainJob
from tfjob_controller.controller.adapters import TFJobAdapter, TrainJobAdapter
from tfjob_controller.controller.caches import ControllerCaches, TrainJobCaches
from tfjob_controller.controller.kubeflowtrainer import KubeflowTrainerCaches, KubeflowTrainJobAdapter
from tfjob_controller.controller.logs.follower import LogFollower
from tfjob_controller.controller.logs.progressreader import ProgressReader
from tfjob_controller.controller.podevents import PodEvents
from tfjob_controller.controller.reconciler import Reconciler
from tfjob_controller.controller.reporter import JobEventRecorder
from tfjob_controller.controller.writer import Fanout
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.requester import Requester
from tfjob_controller.kube.workqueue.queue import RateLimitingQueue
from tfjob_controller.options import RunOptions
from tfjob_controller.telemetry.metrics import Metrics
from tfjob_controller.trainer.plan.gangterms import OFF, GangPolicy
from tfjob_controller.trainer.plan.podgroupbackends import BACKENDS
from tfjob_controller.trainer.podtemplate.progressreport import ProgressServer
from tfjob_controller.util.clock import Clock

# The default schedulerName of gangs' pods, as in manifests/base/extender.
GANG_SCHEDULER = "gang-scheduler"


def gang_policy(options: RunOptions) -> GangPolicy:
    """Returns the gang policy of the flags.

    It has no backend if no job is a gang; then none of its kinds is watched.
    """
    backend = BACKENDS.get(options.gang_backend) if options.gang_scheduling != OFF else None
    own_name = backend.scheduler_name if backend is not None else GANG_SCHEDULER
    return GangPolicy(
        options.gang_scheduling,
        options.gang_scheduler_name or own_name,
        options.gang_mode == "affinity",
        options.autoscaling,
        backend,
    )


@dataclass(frozen=True, slots=True)
class Shared:
    """The parts that the reconcilers of all kinds share. `restart_rules`: see `trainer.actions.children`."""

    requester: Requester
    caches: ControllerCaches
    config: ControllerConfig
    metrics: Metrics
    recorder: JobEventRecorder
    fanout: Fanout
    clock: Clock
    gangs: GangPolicy
    restart_rules: bool
    events: PodEvents
    progress_server: ProgressServer | None = None


def tfjob_reconciler(
    shared: Shared, queue: RateLimitingQueue[str], logs: ProgressReader, follower: LogFollower
) -> Reconciler[TFJob]:
    """Syncs TFJobs; `queue` says whether other jobs wait for a worker."""
    store = shared.caches.tfjobs.store
    kind = TFJobAdapter(
        store,
        shared.config,
        shared.metrics.jobs,
        random.Random(),  # noqa: S311 -- RuntimeIds are names, not secrets
        restart_rules=shared.restart_rules,
        gangs=shared.gangs,
        follower=follower,
    )
    return Reconciler(
        kind,
        ResourceClient(shared.requester, TFJOBS, decode_tfjob),
        store,
        shared.caches.snapshots(logs.readings_of),
        shared.caches.writer(shared.fanout),
        shared.recorder,
        shared.clock,
        is_busy=lambda: len(queue) > 0,
        warnings_of=shared.events.warnings_of,
        scales=ResourceClient(shared.requester, TFJOBS, decoder_for(Scale)),
    )


def kubeflow_trainjob_reconciler(
    shared: Shared, caches: KubeflowTrainerCaches, queue: RateLimitingQueue[str]
) -> Reconciler[KubeflowTrainJob]:
    """Syncs TrainJobs of Kubeflow Trainer; `queue` says whether other jobs wait for a worker."""
    kind = KubeflowTrainJobAdapter(
        caches.namespaced.store,
        caches.cluster.store,
        shared.config,
        shared.metrics.trainjobs,
        shared.clock,
        restart_rules=shared.restart_rules,
        gangs=shared.gangs,
        progress_server=shared.progress_server,
    )
    return Reconciler(
        kind,
        ResourceClient(shared.requester, KUBEFLOW_TRAINJOBS, decode_kubeflow_trainjob),
        caches.jobs.store,
        shared.caches.snapshots(),
        shared.caches.writer(shared.fanout),
        shared.recorder,
        shared.clock,
        is_busy=lambda: len(queue) > 0,
        warnings_of=shared.events.warnings_of,
    )


def trainjob_reconciler(
    shared: Shared, caches: TrainJobCaches, queue: RateLimitingQueue[str], follower: LogFollower
) -> Reconciler[TrainJob]:
    """Syncs TrainJobs; `queue` says whether other jobs wait for a worker."""
    kind = TrainJobAdapter(
        caches.runtimes,
        shared.config,
        shared.metrics.trainjobs,
        follower,
        shared.clock,
        restart_rules=shared.restart_rules,
        gangs=shared.gangs,
        progress_server=shared.progress_server,
    )
    return Reconciler(
        kind,
        ResourceClient(shared.requester, TRAINJOBS, decode_trainjob),
        caches.jobs.store,
        shared.caches.snapshots(),
        shared.caches.writer(shared.fanout),
        shared.recorder,
        shared.clock,
        is_busy=lambda: len(queue) > 0,
        warnings_of=shared.events.warnings_of,
        scales=ResourceClient(shared.requester, TRAINJOBS, decoder_for(Scale)),
    )
