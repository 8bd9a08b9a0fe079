"""The composition root: makes every part, starts them in order and stops them in order.

Start: servers (so that probes get a response at once), the API server's version, caches, events, the lease; workers
last, once every cache is filled and the lease is held. The program does not exit for a missing CRD or permission: the
log and `/readyz` report it, and the request is retried. Jobs of other kinds do not wait for the CRD or the rights of
one kind.

Stop, within `STOP_SECONDS`: intake and workers (syncs in progress are finished), caches, events, servers, lease. The
lease comes last, so that the next leader starts after the last write of this process. If a request hangs for longer
than that, the process ends without releasing the lease, because a write may still be in progress. If the lease is lost,
the process ends at once, since another instance may lead by now.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import metadata
from typing import Any, TypeVar

import structlog

from tfjob_controller.api.controllerconfig import ConfigError as FileError
from tfjob_controller.api.controllerconfig import ControllerConfig, read_controller_config
from tfjob_controller.controller.caches import ControllerCaches
from tfjob_controller.controller.podevents import PodEvents
from tfjob_controller.controller.writer import Fanout
from tfjob_controller.httpserver.server import ListenError
from tfjob_controller.kinds.kindcontroller import KindController, Shared
from tfjob_controller.kinds.registry import KINDS
from tfjob_controller.kube.cache.watchrights import WatchRights
from tfjob_controller.kube.client import server_version
from tfjob_controller.kube.config.credentials import KubeconfigError
from tfjob_controller.kube.config.kubeconfig import Config, find_config
from tfjob_controller.kube.events.recorder import EventRecorder
from tfjob_controller.kube.http.responsestream import Connector
from tfjob_controller.kube.http.transport import Transport
from tfjob_controller.kube.leaderelection.elector import LeaderElector
from tfjob_controller.kube.leaderelection.otherleader import OtherLeader
from tfjob_controller.kube.names import SYSTEM_NAMESPACE
from tfjob_controller.kube.serverclock import ServerClock
from tfjob_controller.options import RunOptions
from tfjob_controller.programs.historykeeping import HistoryKeeping
from tfjob_controller.programs.kindcontrollers import KindControllers
from tfjob_controller.programs.policies import gang_policy, master_wait_of, workers_of_namespace
from tfjob_controller.programs.program import Part, StartError, answer_of, on_signals, run_until, servers
from tfjob_controller.programs.progressserving import ProgressServing
from tfjob_controller.telemetry import logging
from tfjob_controller.telemetry.metrics import Metrics
from tfjob_controller.util.clock import Clock, RealClock
from tfjob_controller.util.heaps import share_heaps

log = structlog.get_logger(__name__)

_T = TypeVar("_T")

NAME = "tfjob-controller"
DEBUG = "debug"

# Kubernetes gives 30 s by default, but a rollout should not take that long.
STOP_SECONDS = 9.0
# The time of that for syncs in progress; the rest is for the later steps.
_WORKERS_SECONDS = 5.0
_PART_SECONDS = 1.0
# The interval in which caches and lease are checked until both are ready.
_START_POLL_SECONDS = 0.02
# Connections beyond those of workers and writers: of each kind the lists of jobs and of what is its own; the lists of
# shared children, events, the version, logs, and one in reserve.
_LISTS, _MORE_CONNECTIONS = 3, 10
# The first Kubernetes version that restarts containers by rules on exit codes (beta, and on by default).
RESTART_RULES_SINCE = (1, 35)


def run(options: RunOptions) -> int:
    """Run until a signal; returns the exit code. Raises StartError. To be called in the main thread."""
    share_heaps()
    logging.configure(options.log_format, options.log_level)
    stop = threading.Event()
    try:
        controller_config = read_controller_config(options.controller_config_file)
        config = find_config(options.kubeconfig or None, options.context or None)
        manager = Manager(options, config, controller_config, stop=stop)
    except (KubeconfigError, FileError, ListenError) as error:
        raise StartError(str(error)) from None
    on_signals(stop)
    return manager.run()


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
        # A file that cannot be used is reported before anything starts.
        master_wait = master_wait_of(options)
        self._options = options
        self._stop = stop
        clock = clock or RealClock()
        self._exit_process = exit_process
        self._identity = f"{socket.gethostname()}_{secrets.token_hex(4)}"
        self._leading = threading.Event()
        self._starting = "starting"
        kinds = [kind for kind in KINDS if kind.is_enabled(options)]
        self._optional = [kind.resource for kind in kinds if kind.may_be_unserved(options)]
        self.metrics = Metrics(metadata.version(NAME), [kind.series for kind in KINDS])
        self.transport = Transport(
            config,
            qps=options.qps,
            burst=options.burst,
            pool_size=len(kinds) * (options.workers + _LISTS) + options.concurrent_writes + _MORE_CONNECTIONS,
            clock=clock,
            observer=self.metrics.requests,
            verbose=options.log_level == DEBUG,
        )
        self._clock = ServerClock(clock, self.transport.server_time)
        gangs = gang_policy(options)
        self.jobs = {
            kind.name: kind.new_caches(self.transport, options.namespace, self._clock, gangs) for kind in kinds
        }
        self.caches = ControllerCaches(
            self.transport,
            options.namespace,
            self._clock,
            list(self.jobs.values()),
            gangs=gangs.has_gangs,
            optional=[child for kind in kinds if kind.children_of is None for child in kind.optional_children],
            pod_groups=gangs.pod_groups,
        )
        self._rights = WatchRights(self.transport, self.caches.informers.watched, self._clock)
        self._fanout = Fanout(options.concurrent_writes)
        self._recorder = EventRecorder(self.transport, self._clock, NAME, self._identity)
        lease_namespace = options.leader_elect_lease_namespace or config.namespace
        self._elector = self._new_elector(lease_namespace) if options.leader_elect else None
        # A controller of one namespace, and the default installation itself, wait for no other.
        is_default = options.leader_elect and lease_namespace == SYSTEM_NAMESPACE
        self._other = (
            OtherLeader(self.transport, self._clock, SYSTEM_NAMESPACE, options.leader_elect_lease_name)
            if not (options.namespace or is_default)
            else None
        )
        self._shared = Shared(
            requester=self.transport,
            connector=Connector(config, self._clock, observer=self.metrics.requests),
            caches=self.caches,
            config=controller_config,
            metrics=self.metrics,
            recorder=self._recorder,
            fanout=self._fanout,
            clock=self._clock,
            gangs=gangs,
            events=PodEvents(self.transport, self._clock),
            most_of_namespace=workers_of_namespace(options),
            traces=options.log_level == DEBUG,
            kubectl_image=options.mpi_kubectl_delivery_image,
            master_wait=master_wait,
            kubeflow_v1_strict=options.kubeflow_v1_strict,
        )
        self._history = self._new_history(gangs.has_gangs)
        if self._history is not None:
            self._shared = replace(self._shared, history_of=self._history.of)
        controllers = [KindController(kind, self.jobs[kind.name], self._shared) for kind in kinds]
        self._kinds = KindControllers(controllers, self._clock)
        self._progress = self._new_progress_serving(config.namespace)
        self.metrics.collect_jobs(lambda series: self._led(lambda kind: kind.works_of(series)))
        self.metrics.collect_training(lambda: self._led(KindController.training))
        self.metrics.collect_checkpoints(lambda: self._led(KindController.checkpoints))
        self.metrics.collect_informers(self.caches.informers.statistics)
        self.metrics.collect_thread_restarts(self._restarts)
        self.servers = servers(options, self.problems, self.metrics.exposition, self._pages(), self._clock)
        log.info("manager initialized", version=metadata.version(NAME), server=config.host, credentials=config.origin)

    def run(self) -> int:
        """See `program.run_until`."""
        return run_until(self._stop, self._start, self._shut_down)

    def problems(self) -> list[str]:
        """Returns why the controller is not ready, one line each; nothing if it is ready."""
        informers = self.caches.informers
        return [self._starting] if self._starting else informers.problems(self._optional) or self._rights.problems()

    # Start

    def _start(self) -> None:
        for server in self.servers:
            server.start()
            log.info("serving", port=server.port)
        if self._elector is not None:
            self._elector.start()
        else:
            self._leading.set()
        version = self._answer("the API server's version is not known", lambda: server_version(self.transport))
        if version is None:
            return
        log.info("API server found", version=f"{version[0]}.{version[1]}")
        progress_server = None
        if self._progress is not None:
            progress_server = self._answer("the progress server has no certificate", self._progress.ensure_certificate)
            if progress_server is None:
                return
            self._progress.start()
        shared = replace(self._shared, restart_rules=version >= RESTART_RULES_SINCE, progress_server=progress_server)
        self._kinds.build(shared, self._options.workers)
        self._starting = ""
        self._recorder.start()
        self.caches.informers.start()
        self._rights.start()
        if self._wait_until_ready():
            if self._history is not None:
                self._history.start()
            self._kinds.start(self._stop)

    def _answer(self, problem: str, ask: Callable[[], _T]) -> _T | None:
        return answer_of(problem, ask, self._note_start, self._clock, self._stop)

    def _note_start(self, reason: str) -> None:
        self._starting = reason

    def _wait_until_ready(self) -> bool:
        """Wait until caches are synced and only this instance leads; returns False if `stop` is set first.

        Kinds that the API server refuses to list delay no others.
        """
        while not (self._leading.is_set() and self._has_synced()):
            if self._clock.sleep(_START_POLL_SECONDS, self._stop):
                return False
        return self._other is None or self._other.wait(self._note_start, self._stop)

    def _has_synced(self) -> bool:
        shared = self.caches.watched.values()
        return all(informer.is_synced for informer in shared) and self._kinds.can_start

    def _new_progress_serving(self, own_namespace: str) -> ProgressServing | None:
        options, address = self._options, self._options.progress_server_bind_address
        if not options.progress_server or address is None:
            return None
        observe, url = self.metrics.report_answered, options.progress_server_url
        return ProgressServing(self.transport, self.caches, address, url, own_namespace, observe, self._clock)

    def _new_history(self, gangs: bool) -> HistoryKeeping | None:
        """Returns what keeps the history. Raises StartError for a place that cannot be one."""
        if not self._options.history:
            return None
        return HistoryKeeping(self._options, self.transport, self.metrics, self._clock, gangs=gangs)

    def _new_elector(self, namespace: str) -> LeaderElector:
        options = self._options
        return LeaderElector(
            self.transport,
            self._clock,
            namespace,
            options.leader_elect_lease_name,
            self._identity,
            on_started=self._leading.set,
            on_stopped=partial(self._exit, "the lease is lost, another instance may lead by now: exiting at once"),
            lease_seconds=options.leader_elect_lease_duration,
            renew_deadline_seconds=options.leader_elect_renew_deadline,
            retry_seconds=options.leader_elect_retry_period,
            metrics=self.metrics.leadership,
        )

    # Stop

    def _shut_down(self) -> bool:
        log.info("stopping")
        watchdog = threading.Timer(
            STOP_SECONDS, self._exit, ["did not stop in time: exiting"], {"seconds": STOP_SECONDS}
        )
        watchdog.name, watchdog.daemon = "stop-watchdog", True
        watchdog.start()
        ended = self._stop_parts()
        if ended:
            watchdog.cancel()
            watchdog.join()
            log.info("stopped")
        return ended

    def _stop_parts(self) -> bool:
        ended = self._kinds.stop(_WORKERS_SECONDS, _PART_SECONDS)
        self._fanout.stop()
        progress = (self._progress,) if self._progress is not None else ()
        if self._history is not None:
            self._history.stop(_PART_SECONDS)
        parts: Sequence[Part] = (self._rights, self.caches.informers, self._recorder, *progress, *self.servers)
        for part in parts:
            part.stop(_PART_SECONDS)
        if ended and self._elector is not None:
            self._elector.stop(_PART_SECONDS)
        self.transport.close()
        return ended

    def _exit(self, reason: str, **figures: float) -> None:
        log.error(reason, **figures)
        sys.stderr.flush()
        self._exit_process(1)

    # Debug pages and metrics

    def _pages(self) -> dict[str, Callable[[], Any]]:
        return {
            **self._kinds.pages(),
            "caches": self.caches.informers.statistics,
            "events": self._recorder.statistics,
            "requests": self.transport.statistics,
            **({"history": self._history.statistics} if self._history is not None else {}),
        }

    def _led(self, of_kind: Callable[[KindController], Iterable[_T]]) -> Iterator[_T]:
        """Yields nothing while another instance leads: sums over all instances should count each job once."""
        if self._leading.is_set():
            yield from self._kinds.of_each(of_kind)

    def _restarts(self) -> dict[str, int]:
        return {
            **self.caches.informers.restarts(),
            **self._kinds.restarts(),
            "events": self._recorder.statistics().restarts,
            "watch-rights": self._rights.thread.restarts,
            **(self._progress.restarts() if self._progress is not None else {}),
            **(self._history.restarts() if self._history is not None else {}),
        }
