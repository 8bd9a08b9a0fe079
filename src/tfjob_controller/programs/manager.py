"""The composition root: makes every part, starts them in order and stops them in order.

Start: servers (so that probes get a response at once), the API server's version, caches, events, the lease; workers
last, once every cache is filled and the lease is held. The program does not exit for a missing CRD or permission: the
log and `/readyz` report it, and the request is retried.

Stop, within `STOP_SECONDS`: intake and workers (syncs in progress are finished), caches, events, servers, lease. The
lease comes last, so that the next leader starts after the last write of this process. If a request hangs for longer
than that, the process ends without releasing the lease, because a write may still be in progress. If the lease is lost,
the process ends at once, since another instance may lead by now.
"""

from __future__ import annotations

import gc
import os
import random
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import structlog

from tfjob_controller.api.common.trainerstatus import TrainerStatus
from tfjob_controller.api.controllerconfig import ConfigError as FileError
from tfjob_controller.api.controllerconfig import ControllerConfig, parse_controller_config
from tfjob_controller.api.kubeflowtrainer.types import KUBEFLOW_TRAINJOBS
from tfjob_controller.api.tfjob.types import TFJOBS, TFJob
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.controller.adapters import trainjob_work
from tfjob_controller.controller.caches import ControllerCaches
from tfjob_controller.controller.handlers import TriggerLog
from tfjob_controller.controller.kubeflowtrainer import kubeflow_work
from tfjob_controller.controller.logs.follower import LogFollower
from tfjob_controller.controller.logs.progressreader import ProgressReader
from tfjob_controller.controller.podevents import PodEvents
from tfjob_controller.controller.reconciler import Reconciler
from tfjob_controller.controller.workers import Workers
from tfjob_controller.controller.writer import Fanout
from tfjob_controller.httpserver.server import ListenError
from tfjob_controller.kube.client import server_version
from tfjob_controller.kube.config.credentials import KubeconfigError
from tfjob_controller.kube.config.kubeconfig import Config, find_config
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.events.recorder import EventRecorder
from tfjob_controller.kube.flowcontrol import TokenBucket
from tfjob_controller.kube.http.responsestream import Connector
from tfjob_controller.kube.http.transport import Transport
from tfjob_controller.kube.leaderelection.elector import LeaderElector
from tfjob_controller.kube.meta import namespace_of
from tfjob_controller.kube.workqueue.queue import RateLimiter, RateLimitingQueue
from tfjob_controller.options import RunOptions
from tfjob_controller.programs.program import StartError, on_signals, run_until, servers
from tfjob_controller.programs.progressserving import ProgressServing
from tfjob_controller.programs.reconcilers import (
    Shared,
    gang_policy,
    kubeflow_trainjob_reconciler,
    tfjob_reconciler,
    trainjob_reconciler,
)
from tfjob_controller.telemetry import logging
from tfjob_controller.telemetry.jobmetrics import CheckpointOfJob, TrainingOfJob
from tfjob_controller.telemetry.metrics import Metrics
from tfjob_controller.trainer.plan import gangterms as terms
from tfjob_controller.trainer.state.observed import TrainingJob, is_finished
from tfjob_controller.trainer.status.checkpoints import unsaved_since
from tfjob_controller.trainer.status.kubeflowtrainer import recorded_status
from tfjob_controller.trainer.status.reported import reported_metrics
from tfjob_controller.trainer.status.trainjob import from_wire
from tfjob_controller.util.backoff import DecorrelatedBackoff
from tfjob_controller.util.clock import Clock, RealClock
from tfjob_controller.util.fairness import most_of_namespace
from tfjob_controller.util.heaps import share_heaps

log = structlog.get_logger(__name__)

_T = TypeVar("_T")

NAME = "tfjob-controller"
CONTROLLER, TRAIN_CONTROLLER, KUBEFLOW_CONTROLLER = "tfjob", "trainjob", "kubeflow-trainjob"
DEBUG = "debug"
# Jobs of both groups may have the same name.
_KUBEFLOW_KIND = f"{KUBEFLOW_TRAINJOBS.kind}.{KUBEFLOW_TRAINJOBS.group}"

# Kubernetes gives 30 s by default, but a rollout should not take that long.
STOP_SECONDS = 9.0
# The time of that for syncs in progress; the rest is for the later steps.
_WORKERS_SECONDS = 5.0
_PART_SECONDS = 1.0
# The interval in which caches and lease are checked until both are ready.
_START_POLL_SECONDS = 0.02
# The delays of one job's retries, and the rate of all retries. Both allow more retries than client-go's limits: with
# its cap of 1,000 s a job would notice only after a quarter of an hour that a quota has capacity again, and one quota
# can refuse hundreds of jobs at once.
_RETRY_BASE_SECONDS, _RETRY_CAP_SECONDS = 0.01, 60.0
_RETRY_RATE, _RETRY_BURST = 50.0, 200
# Connections beyond those of workers and writers: twelve lists, events, the version, logs, and one in reserve.
_MORE_CONNECTIONS = 16
# The first Kubernetes version that restarts containers by rules on exit codes (beta, and on by default).
RESTART_RULES_SINCE = (1, 35)


def run(options: RunOptions) -> int:
    """Run until a signal; returns the exit code. Raises StartError. To be called in the main thread."""
    share_heaps()
    logging.configure(options.log_format, options.log_level)
    stop = threading.Event()
    manager = _build(options, stop)
    on_signals(stop)
    return manager.run()


def _build(options: RunOptions, stop: threading.Event) -> Manager:
    try:
        controller_config = _read_controller_config(options.controller_config_file)
        config = find_config(options.kubeconfig or None, options.context or None)
        return Manager(options, config, controller_config, stop=stop)
    except (KubeconfigError, FileError, ListenError) as error:
        raise StartError(str(error)) from None


def _read_controller_config(path: str) -> ControllerConfig:
    if not path:
        return ControllerConfig()
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise FileError(f"cannot read {path}: {reason}") from None
    return parse_controller_config(text, path)


class Manager:
    """The whole controller. `run` blocks until `stop` is set; an object runs once.

    `exit_process` is called with an exit code when the process must end at once; it returns only in tests.
    """

    def __init__(
        self,
        options: RunOptions,
        config: Config,
        controller_config: ControllerConfig,
        *,
        stop: threading.Event,
        clock: Clock | None = None,
        exit_process: Callable[[int], None] = os._exit,
    ) -> None:
        self._options = options
        self._controller_config = controller_config
        self._stop = stop
        self._clock = clock or RealClock()
        self._exit_process = exit_process
        self._identity = f"{socket.gethostname()}_{secrets.token_hex(4)}"
        self._leading = threading.Event()
        self._starting = "starting"
        self.metrics = Metrics(metadata.version(NAME))
        self.transport = Transport(
            config,
            qps=options.qps,
            burst=options.burst,
            pool_size=2 * options.workers + options.concurrent_writes + _MORE_CONNECTIONS,
            clock=self._clock,
            observer=self.metrics.requests,
            verbose=options.log_level == DEBUG,
        )
        self._queue = self._new_queue(CONTROLLER)
        self._train_queue = self._new_queue(TRAIN_CONTROLLER)
        self._kubeflow_queue = self._new_queue(KUBEFLOW_CONTROLLER) if options.kubeflow_trainer_api else None
        self._triggers = {
            name: TriggerLog(enabled=options.log_level == DEBUG)
            for name in (CONTROLLER, TRAIN_CONTROLLER, KUBEFLOW_CONTROLLER)
        }
        self._gangs = gang_policy(options)
        self.caches = ControllerCaches(
            self.transport,
            options.namespace,
            self._clock,
            gangs=options.gang_scheduling != terms.OFF and self._gangs.backend is None,
            pod_groups=self._gangs.backend.resource if self._gangs.backend is not None else None,
            trainjobs=options.trainjobs,
            kubeflow_trainer=options.kubeflow_trainer_api,
        )
        self._fanout = Fanout(options.concurrent_writes)
        self._recorder = EventRecorder(self.transport, self._clock, NAME, self._identity)
        self._elector = self._new_elector(config.namespace) if options.leader_elect else None
        self._logs = ProgressReader(
            self.transport, self.caches.tfjobs.store, self.caches.pods.store, self._queue.add, self._clock
        )
        connector = Connector(config, self._clock, observer=self.metrics.requests)
        # One for each kind, since jobs of both kinds may have the same key.
        self._tfjob_follower = LogFollower(connector, self._queue.add, self._clock)
        self._follower = LogFollower(connector, self._train_queue.add, self._clock)
        self._progress = self._new_progress_serving(config.namespace) if options.progress_server else None
        self._workers: list[Workers] = []
        self._reconcilers: list[Reconciler[Any]] = []
        self.metrics.collect_jobs(self._jobs_led)
        self.metrics.collect_trainjobs(self._trainjobs_led)
        self.metrics.collect_training(self._training)
        self.metrics.collect_checkpoints(self._checkpoints)
        self.metrics.collect_informers(self.caches.informers.statistics)
        self.metrics.collect_thread_restarts(self._restarts)
        self.servers = servers(options, self.problems, self.metrics.exposition, self._pages(), self._clock)
        log.info("manager initialized", version=metadata.version(NAME), server=config.host, credentials=config.origin)

    def run(self) -> int:
        """See `program.run_until`."""
        return run_until(self._stop, self._start, self._shut_down)

    def problems(self) -> list[str]:
        """Returns why the controller is not ready, one line each; nothing if it is ready."""
        return [self._starting] if self._starting else self.caches.informers.problems()

    # Start

    def _start(self) -> None:
        for server in self.servers:
            server.start()
            log.info("serving", port=server.port)
        if self._elector is not None:
            self._elector.start()
        else:
            self._leading.set()
        version = self._retried("the API server's version is not known", lambda: server_version(self.transport))
        if version is None:
            return
        log.info("API server found", version=f"{version[0]}.{version[1]}")
        if self._progress is not None and not self._start_progress(self._progress):
            return
        self._workers = [*self._new_workers(restart_rules=version >= RESTART_RULES_SINCE)]
        self._starting = ""
        self._recorder.start()
        self.caches.informers.start()
        if self._wait_until_ready():
            # The queues are fed only now: while another instance leads, no worker here takes keys, and the keys of
            # created and deleted jobs would accumulate.
            self.caches.feed(self._queue, self._triggers[CONTROLLER])
            self.caches.feed_trainjobs(self._train_queue, self._triggers[TRAIN_CONTROLLER])
            if self._kubeflow_queue is not None:
                self.caches.feed_kubeflow_trainjobs(self._kubeflow_queue, self._triggers[KUBEFLOW_CONTROLLER])
            # Otherwise each full garbage collection visits all cached objects, while no sync can run: 50 ms at 100,000
            # objects.
            gc.collect()
            gc.freeze()
            for workers in self._workers:
                workers.start()
            self._logs.start()
            self._tfjob_follower.start()
            self._follower.start()
            log.info("workers started", jobs=len(self.caches.tfjobs.store), workers=self._options.workers)

    def _start_progress(self, progress: ProgressServing) -> bool:
        """Returns False if `stop` is set before there is a certificate."""

        def ensure() -> bool:
            progress.ensure_certificate()
            return True

        if not self._retried("the progress server has no certificate", ensure):
            return False
        progress.start()
        return True

    def _retried(self, problem: str, ask: Callable[[], _T]) -> _T | None:
        """Returns what the API server answers once it does; None if `stop` is set first."""
        backoff = DecorrelatedBackoff(self._clock, random.Random())  # noqa: S311 -- spreads load, guards nothing
        while not self._stop.is_set():
            try:
                return ask()
            except ApiError as error:
                found = f"{problem}: {error}"
                if found != self._starting:
                    log.warning("cannot start yet", problem=found)
                self._starting = found
                self._clock.sleep(backoff.next_seconds(error.retry_after_seconds or 0.0), self._stop)
        return None

    def _wait_until_ready(self) -> bool:
        """Wait until caches are synced and the lease is held; returns False if `stop` is set first."""
        while not (self.caches.informers.is_synced and self._leading.is_set()):
            if self._clock.sleep(_START_POLL_SECONDS, self._stop):
                return False
        return True

    def _new_queue(self, name: str) -> RateLimitingQueue[str]:
        limiter = RateLimiter(
            _RETRY_BASE_SECONDS, _RETRY_CAP_SECONDS, lambda: TokenBucket(_RETRY_RATE, _RETRY_BURST, self._clock)
        )
        # Namespaces take turns, so that many jobs in one do not delay those in others.
        return RateLimitingQueue(
            self._clock,
            limiter,
            name=name,
            metrics=self.metrics.queues,
            group_of=namespace_of,
            most_of_group=workers_of_namespace(self._options),
        )

    def _new_workers(self, *, restart_rules: bool) -> Iterator[Workers]:
        """Yields the workers of each kind."""
        shared = Shared(
            self.transport,
            self.caches,
            self._controller_config,
            self.metrics,
            self._recorder,
            self._fanout,
            self._clock,
            self._gangs,
            restart_rules,
            PodEvents(self.transport, self._clock),
            self._progress.address if self._progress is not None else None,
        )
        yield self._workers_for(
            tfjob_reconciler(shared, self._queue, self._logs, self._tfjob_follower), CONTROLLER, self._queue
        )
        if self.caches.trainjobs is not None:
            reconciler = trainjob_reconciler(shared, self.caches.trainjobs, self._train_queue, self._follower)
            yield self._workers_for(reconciler, TRAIN_CONTROLLER, self._train_queue)
        if self.caches.kubeflow is not None and self._kubeflow_queue is not None:
            kubeflow = kubeflow_trainjob_reconciler(shared, self.caches.kubeflow, self._kubeflow_queue)
            yield self._workers_for(kubeflow, KUBEFLOW_CONTROLLER, self._kubeflow_queue)

    def _workers_for(self, reconciler: Reconciler[Any], name: str, queue: RateLimitingQueue[str]) -> Workers:
        self._reconcilers.append(reconciler)
        return Workers(
            name,
            queue,
            reconciler.sync,
            count=self._options.workers,
            clock=self._clock,
            observer=self.metrics.syncs,
            triggers=self._triggers[name],
        )

    def _new_progress_serving(self, own_namespace: str) -> ProgressServing | None:
        options = self._options
        if options.progress_server_bind_address is None:
            return None
        return ProgressServing(
            self.transport,
            self.caches,
            options.progress_server_bind_address,
            options.progress_server_url,
            own_namespace,
            self.metrics.report_answered,
            self._clock,
        )

    def _new_elector(self, own_namespace: str) -> LeaderElector:
        options = self._options
        return LeaderElector(
            self.transport,
            self._clock,
            options.leader_elect_lease_namespace or own_namespace,
            options.leader_elect_lease_name,
            self._identity,
            on_started=self._leading.set,
            on_stopped=self._lost_lease,
            lease_seconds=options.leader_elect_lease_duration,
            renew_deadline_seconds=options.leader_elect_renew_deadline,
            retry_seconds=options.leader_elect_retry_period,
            metrics=self.metrics.leadership,
        )

    def _lost_lease(self) -> None:
        log.error("the lease is lost, another instance may lead by now: exiting at once")
        sys.stderr.flush()
        self._exit_process(1)

    # Stop

    def _shut_down(self) -> bool:
        log.info("stopping")
        watchdog = threading.Timer(STOP_SECONDS, self._give_up)
        watchdog.name, watchdog.daemon = "stop-watchdog", True
        watchdog.start()
        ended = self._stop_parts()
        if ended:
            watchdog.cancel()
            watchdog.join()
            log.info("stopped")
        return ended

    def _stop_parts(self) -> bool:
        self._queue.shut_down()
        self._train_queue.shut_down()
        if self._kubeflow_queue is not None:
            self._kubeflow_queue.shut_down()
        end = self._clock.monotonic() + _WORKERS_SECONDS
        # All workers are stopped, also if some of them do not end in time.
        stopped = [workers.stop(max(0.0, end - self._clock.monotonic())) for workers in self._workers]
        ended = all(stopped)
        self._logs.stop(_PART_SECONDS)
        self._tfjob_follower.stop(_PART_SECONDS)
        self._follower.stop(_PART_SECONDS)
        self._fanout.stop()
        self.caches.informers.stop(_PART_SECONDS)
        self._recorder.stop(_PART_SECONDS)
        if self._progress is not None:
            self._progress.stop(_PART_SECONDS)
        for server in self.servers:
            server.stop(_PART_SECONDS)
        if ended and self._elector is not None:
            self._elector.stop(_PART_SECONDS)
        self.transport.close()
        return ended

    def _give_up(self) -> None:
        log.error("did not stop in time: exiting", seconds=STOP_SECONDS)
        sys.stderr.flush()
        self._exit_process(1)

    # Debug pages and metrics

    def _pages(self) -> dict[str, Callable[[], Any]]:
        return {
            "queue": self._queue.statistics,
            "trainjobs": self._train_queue.statistics,
            **({"kubeflow-trainjobs": self._kubeflow_queue.statistics} if self._kubeflow_queue is not None else {}),
            "tfjob-logs": self._tfjob_follower.statistics,
            "logs": self._follower.statistics,
            "caches": self.caches.informers.statistics,
            "events": self._recorder.statistics,
            "requests": self.transport.statistics,
            "syncs": lambda: {"jobs_remembered": sum(reconciler.tracked_jobs for reconciler in self._reconcilers)},
        }

    def _jobs_led(self) -> Sequence[TFJob]:
        """Returns no jobs while another instance leads: sums over all instances should count each job once."""
        return self.caches.tfjobs.store.list() if self._leading.is_set() else ()

    def _trainjobs_led(self) -> Sequence[TrainingJob]:
        """Returns the TrainJobs of both API groups."""
        if not self._leading.is_set():
            return ()
        own, kubeflow = self.caches.trainjobs, self.caches.kubeflow
        return [
            *(trainjob_work(job) for job in (own.jobs.store.list() if own is not None else ())),
            *(kubeflow_work(job) for job in (kubeflow.jobs.store.list() if kubeflow is not None else ())),
        ]

    def _training(self) -> Iterator[TrainingOfJob]:
        """Yields the metrics of running TrainJobs of both API groups."""
        if not self._leading.is_set():
            return
        own, kubeflow = self.caches.trainjobs, self.caches.kubeflow
        for job in own.jobs.store.list() if own is not None else ():
            values = {each.name: each.value for each in job.status.metrics} | _progress_of(job.status.trainer_status)
            if values and job.status.completion_time is None:
                yield TRAINJOBS.kind, job.metadata.namespace, job.metadata.name, values
        for other in kubeflow.jobs.store.list() if kubeflow is not None else ():
            reported = other.status.trainer_status
            if reported is not None and not is_finished(recorded_status(other)):
                values = {name: each.value for name, each in reported_metrics(reported).items()}
                yield _KUBEFLOW_KIND, other.metadata.namespace, other.metadata.name, values | _progress_of(reported)

    def _checkpoints(self) -> Iterator[CheckpointOfJob]:
        """Yields since when the training of running jobs with checkpoints is not saved."""
        if not self._leading.is_set():
            return
        own = self.caches.trainjobs
        jobs = [
            *(
                (TFJOBS.kind, job.metadata, job.status)
                for job in self.caches.tfjobs.store.list()
                if job.spec.checkpoint
            ),
            *(
                (TRAINJOBS.kind, job.metadata, from_wire(job.status))
                for job in (own.jobs.store.list() if own is not None else ())
                if job.spec.checkpoint is not None
            ),
        ]
        for kind, meta, status in jobs:
            since = unsaved_since(status)
            if since is not None:
                yield kind, meta.namespace, meta.name, since

    def _restarts(self) -> dict[str, int]:
        return {
            **self.caches.informers.restarts(),
            **{name: count for workers in self._workers for name, count in workers.restarts().items()},
            "events": self._recorder.statistics().restarts,
            "logs": self._logs.restarts,
            "tfjob-logs-follow": self._tfjob_follower.restarts,
            "logs-follow": self._follower.restarts,
            **(self._progress.restarts() if self._progress is not None else {}),
        }


def workers_of_namespace(options: RunOptions) -> int | None:
    """Returns how many jobs of one namespace are reconciled at a time: some workers are left to the others.

    Large jobs are slow to write, and a namespace can have many. A controller for one namespace has no limit.
    """
    return None if options.namespace else most_of_namespace(options.workers)


def _progress_of(report: TrainerStatus | None) -> dict[str, str]:
    """The progress that a program reported, as a metric."""
    if report is None or report.progress_percentage is None:
        return {}
    return {"progress_percentage": str(report.progress_percentage)}
