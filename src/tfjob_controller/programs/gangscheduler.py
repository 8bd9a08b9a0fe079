"""The composition root of the gang scheduler, `tfjob-controller extender`, which runs beside a kube-scheduler.

Start order: servers (so that probes get a response at once), caches, then Permit and the admission loop once every
cache is synced and every handler has processed the initial state: reservations are restored before the first decision.
The extender's verbs respond with 503 until then.

Stop order: the extender's server (waiting bind calls get an error, and kube-scheduler retries), Permit and binder, the
ungater of mode affinity, the requests to a node autoscaler, the status writer, evictions, the loop, events, caches,
other servers. Nothing is lost: admissions are in the Gangs' statuses.
"""

from __future__ import annotations

import gc
import os
import socket
import sys
import threading
from collections.abc import Callable
from importlib import metadata
from typing import Any, Protocol

import structlog

from tfjob_controller.api.common.scheduledpods import SCHEDULED_PODS
from tfjob_controller.api.gang import GANGS
from tfjob_controller.gangscheduler.admission.loop import AdmissionLoop
from tfjob_controller.gangscheduler.admission.queue import partly_bound_seconds, waiting_gangs
from tfjob_controller.gangscheduler.binding.binder import Binder
from tfjob_controller.gangscheduler.binding.evictor import Evictor
from tfjob_controller.gangscheduler.binding.prebind import PreBindCheck
from tfjob_controller.gangscheduler.binding.ungater import GatedPodHandler, PlacedGangHandler, Ungater
from tfjob_controller.gangscheduler.extender.server import TlsFiles, new_server
from tfjob_controller.gangscheduler.extender.verbs import ExtenderVerbs, GangPlacements
from tfjob_controller.gangscheduler.leadership import LeaseFollower
from tfjob_controller.gangscheduler.permit.permit import Permit
from tfjob_controller.gangscheduler.provisioning.provisioner import Provisioner
from tfjob_controller.gangscheduler.provisioning.rules import ProvisioningPolicy
from tfjob_controller.gangscheduler.state.informers import (
    BY_GANG,
    GangHandler,
    NamespaceHandler,
    NodeHandler,
    PodHandler,
    PriorityClassHandler,
    QuotaHandler,
    SchedulerCaches,
)
from tfjob_controller.gangscheduler.state.shared import SharedState
from tfjob_controller.gangscheduler.status.writer import StatusWriter
from tfjob_controller.httpserver.server import HttpServer, ListenError
from tfjob_controller.kube.cache.informer import HandlerProcessor
from tfjob_controller.kube.cache.watchrights import WatchRights
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.config.credentials import KubeconfigError
from tfjob_controller.kube.config.kubeconfig import Config, find_config
from tfjob_controller.kube.events.recorder import EventRecorder
from tfjob_controller.kube.http.transport import Transport
from tfjob_controller.kube.meta import key_of
from tfjob_controller.kube.serverclock import ServerClock
from tfjob_controller.options import ExtenderOptions
from tfjob_controller.programs.program import StartError, on_signals, run_until, servers
from tfjob_controller.scheduling.autoscaling.elasticgang import AutoscalingPolicy
from tfjob_controller.scheduling.decisions import AdmissionPolicy
from tfjob_controller.scheduling.preemption import PreemptionPolicy
from tfjob_controller.telemetry import logging
from tfjob_controller.telemetry.gangmetrics import GangMetrics, Underway
from tfjob_controller.telemetry.metrics import Metrics
from tfjob_controller.util.clock import Clock, RealClock
from tfjob_controller.util.heaps import share_heaps

log = structlog.get_logger(__name__)

# The reporting controller of events.
NAME = "gang-scheduler"
STOP_SECONDS = 9.0
_PART_SECONDS = 2.0
_START_POLL_SECONDS = 0.02
# How long one thread may keep the interpreter while another wants it. kube-scheduler schedules nothing during a filter
# call, and Python's 5 ms would be most of it while a pass computes.
SWITCH_SECONDS = 0.0002
# Evictions are rare; a budget that refuses some must not delay others for long.
_EVICTING_THREADS = 4
# Connections beyond those of writer and binder: four watches, evictions, and some in reserve.
_MORE_CONNECTIONS = 8 + _EVICTING_THREADS


def run(options: ExtenderOptions) -> int:
    """Run until a signal; returns the exit code. Raises StartError. Called in the main thread."""
    share_heaps()
    sys.setswitchinterval(SWITCH_SECONDS)
    logging.configure(options.log_format, options.log_level)
    stop = threading.Event()
    try:
        config = find_config(options.kubeconfig or None, options.context or None)
        scheduler = GangScheduler(options, config, stop=stop)
    except (KubeconfigError, ListenError) as error:
        raise StartError(str(error)) from None
    on_signals(stop)
    return scheduler.run()


class _Part(Protocol):
    """What works once the caches are synced."""

    def start(self) -> None: ...

    def stop(self, timeout_seconds: float) -> bool: ...


class GangScheduler:
    """The program's parts. `run` blocks until `stop` is set; an instance runs once."""

    def __init__(
        self,
        options: ExtenderOptions,
        config: Config,
        *,
        stop: threading.Event,
        clock: Clock | None = None,
        exit_process: Callable[[int], object] = os._exit,
    ) -> None:
        self._options = options
        self._stop = stop
        clock = clock or RealClock()
        self._exit_process = exit_process
        self._is_working = threading.Event()
        self.metrics = Metrics(metadata.version("tfjob-controller"), of_controller=False)
        self.gang_metrics = GangMetrics(self.metrics.registry)
        self.transport = Transport(
            config,
            qps=options.qps,
            burst=options.burst,
            pool_size=2 * options.concurrent_writes + _MORE_CONNECTIONS,
            clock=clock,
            observer=self.metrics.requests,
            verbose=options.log_level == "debug",
        )
        self._clock = ServerClock(clock, self.transport.server_time)
        self.caches = SchedulerCaches(
            self.transport,
            self._clock,
            with_priorities=options.preemption == "on",
            with_weights=options.queue_order == "fair",
        )
        self._rights = WatchRights(self.transport, self.caches.informers.watched, self._clock)
        self._binder = Binder(
            self.transport, self._clock, threads=options.concurrent_writes, observe=self.gang_metrics.binding_ended
        )
        self.state = SharedState(self.caches.gangs.store, self._clock)
        self._permit = self._new_permit()
        self._recorder = EventRecorder(self.transport, self._clock, NAME, socket.gethostname())
        self._pod_client = ResourceClient(self.transport, SCHEDULED_PODS)
        self._ungater = self._new_ungater()
        self._writer = self._new_writer()
        self._evictor = Evictor(self.transport, self._clock, threads=_EVICTING_THREADS)
        self._provisioner = self._new_provisioner()
        self.admission = self._new_admission()
        self.extender = self._new_extender()
        self._follower = self._new_follower()
        # They start and stop in this order.
        parts = (
            self._permit,
            self._binder,
            self._ungater,
            self._provisioner,
            self._writer,
            self._evictor,
            self.admission,
        )
        self._parts: list[_Part] = [part for part in parts if part is not None]
        self._collect_metrics()
        self.servers = servers(options, self.problems, self.metrics.exposition, self._pages(), self._clock)
        log.info("gang scheduler initialized", server=config.host, credentials=config.origin, mode=options.mode)

    def run(self) -> int:
        """See `program.run_until`."""
        return run_until(self._stop, self._start, self._shut_down)

    def problems(self) -> list[str]:
        """Returns why the gang scheduler is not ready, one line each; nothing if it works or is a follower."""
        if self._is_working.is_set() or not self._is_leading:
            return self.caches.informers.problems() or self._rights.problems()
        return self.caches.informers.problems() or ["the admission loop has not started"]

    def _start(self) -> None:
        for server in self.servers:
            server.start()
            log.info("serving", port=server.port)
        if self.extender is not None:
            self.extender.start()
            log.info("serving kube-scheduler", port=self.extender.port)
        registrations = self._add_handlers()
        self.caches.informers.start()
        self._rights.start()
        if self._follower is not None:
            self._follower.start()
        while not (
            self._is_leading
            and self.caches.informers.is_synced
            and all(registration.has_synced for registration in registrations)
        ):
            if self._clock.sleep(_START_POLL_SECONDS, self._stop):
                return
        # Otherwise each full collection visits all cached objects while kube-scheduler waits for a filter call.
        gc.collect()
        gc.freeze()
        self._recorder.start()
        for part in self._parts:
            part.start()
        self._is_working.set()
        if self._follower is not None:
            self.metrics.leadership.on(self._options.leader_lease_name)
        log.info("workers started", nodes=len(self.caches.nodes.store), gangs=len(self.caches.gangs.store))

    def _add_handlers(self) -> list[HandlerProcessor[Any]]:
        registrations: list[HandlerProcessor[Any]] = [
            self.caches.nodes.add_handler(NodeHandler(self.state)),
            self.caches.pods.add_handler(PodHandler(self.state, self._permit)),
            self.caches.quotas.add_handler(QuotaHandler(self.state)),
            self.caches.gangs.add_handler(GangHandler(self.state)),
        ]
        if self.caches.namespaces is not None:
            registrations.append(self.caches.namespaces.add_handler(NamespaceHandler(self.state)))
        if self.caches.priority_classes is not None:
            registrations.append(self.caches.priority_classes.add_handler(PriorityClassHandler(self.state)))
        if self._ungater is not None:
            registrations += [
                self.caches.pods.add_handler(GatedPodHandler(self._ungater)),
                self.caches.gangs.add_handler(PlacedGangHandler(self._ungater)),
            ]
        return registrations

    @property
    def _is_leading(self) -> bool:
        return self._follower is None or self._follower.held.is_set()

    def _new_follower(self) -> LeaseFollower | None:
        options = self._options
        if not options.leader_lease_name:
            return None
        self.metrics.leadership.off(options.leader_lease_name)
        return LeaseFollower(
            self.transport,
            self._clock,
            options.leader_lease_namespace,
            options.leader_lease_name,
            socket.gethostname(),
            self._lost_lease,
        )

    def _lost_lease(self) -> None:
        """Exit at once: another replica may reserve capacity by now."""
        sys.stderr.flush()
        self._exit_process(1)

    def _new_permit(self) -> Permit:
        options, caches = self._options, self.caches
        check = PreBindCheck(
            self._binder,
            caches.gangs.store,
            caches.pods.store,
            self.state,
            self._clock,
            lambda: self._follower is None or self._follower.is_renewed,
        )
        return Permit(
            check.submit,
            self.state,
            self._clock,
            http_timeout_seconds=options.extender_http_timeout,
            bind_timeout_seconds=options.bind_timeout,
            admitted_timeout_seconds=options.admitted_timeout,
        )

    @property
    def _is_affinity(self) -> bool:
        return self._options.mode == "affinity"

    def _new_ungater(self) -> Ungater | None:
        if not self._is_affinity:
            return None
        stores = self.caches.gangs.store, self.caches.pods.store
        return Ungater(*stores, self._pod_client, self._clock, threads=self._options.concurrent_writes)

    def _new_writer(self) -> StatusWriter:
        return StatusWriter(
            self.caches.gangs.store,
            ResourceClient(self.transport, GANGS),
            None if self._is_affinity else self._pod_client,
            self.gang_metrics.written,
            self._recorder,
            self.state.wake,
            self._clock,
            threads=self._options.concurrent_writes,
        )

    def _new_admission(self) -> AdmissionLoop:
        options = self._options
        topology = tuple(key for key in (part.strip() for part in options.topology_key.split(",")) if key)
        preempts = options.preemption == "on"
        return AdmissionLoop(
            self.state,
            self.caches.gangs.store,
            self.caches.quotas_of,
            self._writer,
            self._permit,
            self._clock,
            policy=AdmissionPolicy(topology, options.starvation_timeout, is_fair=options.queue_order == "fair"),
            scale_policy=AutoscalingPolicy(options.scale_down_after, options.scale_up_after, topology),
            preemption_policy=PreemptionPolicy(options.preempt_after, options.preemption_grace, topology)
            if preempts
            else None,
            priority_classes=self.caches.list_priority_classes,
            weight_of=self.caches.weight_of,
            node_requests=self._provisioner,
            evict=self._evictor.evict,
        )

    def _new_provisioner(self) -> Provisioner | None:
        options = self._options
        if not options.provisioning_class:
            return None
        return Provisioner(
            self.transport,
            self.state,
            self.caches.gangs.store,
            self.caches.quotas_of,
            lambda: self.admission.decisions,
            self._recorder,
            self.gang_metrics.provisioned,
            self._clock,
            policy=ProvisioningPolicy(options.provisioning_class, options.provision_after),
        )

    def _new_extender(self) -> HttpServer | None:
        options = self._options
        if self._is_affinity or options.extender_bind_address is None:
            return None
        placements = GangPlacements(self.caches.gangs.store, self.state, self._is_working.is_set)
        files = TlsFiles(
            options.extender_tls_cert_file,
            options.extender_tls_key_file,
            options.extender_client_ca_file,
            options.extender_client_name,
        )
        return new_server(
            options.extender_bind_address,
            ExtenderVerbs(placements, self._permit, self.state),
            self._clock,
            tls=files if files.certificate else None,
            observe=self.gang_metrics.answered,
        )

    def _shut_down(self) -> bool:
        log.info("stopping")
        ended = self.extender.stop(_PART_SECONDS) if self.extender is not None else True
        for part in self._parts:
            ended &= part.stop(_PART_SECONDS)
        self._recorder.stop(_PART_SECONDS)
        self._rights.stop(_PART_SECONDS)
        ended &= self.caches.informers.stop(_PART_SECONDS)
        ended &= self._follower.stop(_PART_SECONDS) if self._follower is not None else True
        for server in self.servers:
            server.stop(_PART_SECONDS)
        self.transport.close()
        log.info("stopped" if ended else "not all parts stopped in time")
        sys.stderr.flush()
        return ended

    # Debug pages and metrics

    def _pages(self) -> dict[str, Callable[[], Any]]:
        return {
            "caches": self.caches.informers.statistics,
            "permit": self._permit.statistics,
            "requests": self.transport.statistics,
            "writer": self._writer.statistics,
            "evictor": self._evictor.statistics,
            **({"ungater": self._ungater.statistics} if self._ungater is not None else {}),
            **({"provisioning": self._provisioner.statistics} if self._provisioner is not None else {}),
        }

    def _collect_metrics(self) -> None:
        self.metrics.collect_informers(self.caches.informers.statistics)
        self.metrics.collect_thread_restarts(self._restarts)
        self.gang_metrics.collect(self.caches.gangs.store.list, self._reserved, self.state.view.utilization)
        self.gang_metrics.collect_underway(self._underway)
        if self._provisioner is not None:
            self.gang_metrics.collect_provisioning(self._provisioner.states)

    def _restarts(self) -> dict[str, int]:
        own = {
            "admission": self.admission.restarts,
            "permit": self._permit.restarts,
            "binder": self._binder.restarts,
            "gang-writer": self._writer.restarts,
            "evictor": self._evictor.restarts,
            "events": self._recorder.statistics().restarts,
            "watch-rights": self._rights.thread.restarts,
        }
        server = {"extender-http": self.extender.restarts} if self.extender is not None else {}
        ungater = {"ungater": self._ungater.restarts} if self._ungater is not None else {}
        provisioner = self._provisioner.restarts if self._provisioner is not None else {}
        return self.caches.informers.restarts() | own | server | ungater | provisioner

    def _reserved(self) -> dict[str, int]:
        with self.state.lock:
            return dict(self.state.view.statistics().reserved)

    def _underway(self) -> Underway | None:
        if not self._is_working.is_set():
            return None
        gangs, pods, now = self.caches.gangs.store.list(), self.caches.pods.store, self._clock.now()
        return Underway(
            [*waiting_gangs(gangs, self.admission.decisions, now)],
            [*partly_bound_seconds(gangs, lambda gang: pods.by_index(BY_GANG, key_of(gang)), now)],
        )
