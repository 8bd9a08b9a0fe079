"""A cluster in memory for the gang scheduler: its real admission loop and Permit, and simulated surroundings.

It simulates the API server (`MemoryApi`), the watches (`deliver`), kube-scheduler (`schedule`, which binds only pods
that fit by its own count, through Permit), and owners (`create_pods`, `delete_old_pods`). Nothing runs by itself: each
call is a step, and the time is a fake clock's, so that a test can choose any order. Statuses are written by a thread,
for which each step waits; `stop_writing` ends it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from helpers.answering import Answering, Request
from helpers.fakeclock import FakeClock
from helpers.memoryapi import MemoryApi
from helpers.poll import eventually
from tfjob_controller.api.common.cluster import (
    NODES,
    RESOURCE_QUOTAS,
    Node,
    PriorityClass,
    ResourceQuota,
    ScheduledPod,
)
from tfjob_controller.api.common.podrequests import requests_of
from tfjob_controller.api.common.scheduledpods import SCHEDULED_PODS
from tfjob_controller.api.gang import (
    ADMITTED,
    BOUND,
    GANGS,
    Gang,
    gang_key_of,
    index_of,
    kind_of,
    member_of,
    must_leave,
    placed_nodes,
    wanted_members,
)
from tfjob_controller.gangscheduler.admission.loop import AdmissionLoop
from tfjob_controller.gangscheduler.binding.binder import OnResult, RejectBinding
from tfjob_controller.gangscheduler.binding.evictor import Eviction
from tfjob_controller.gangscheduler.binding.prebind import PreBindCheck
from tfjob_controller.gangscheduler.bindrequests import BindRequest, GangMember
from tfjob_controller.gangscheduler.extender.verbs import GangPlacements
from tfjob_controller.gangscheduler.permit.permit import Permit
from tfjob_controller.gangscheduler.state.informers import BY_GANG, GangHandler, NodeHandler, PodHandler, by_gang
from tfjob_controller.gangscheduler.state.shared import SharedState
from tfjob_controller.gangscheduler.status.lifecycle import pods_by_member
from tfjob_controller.gangscheduler.status.writer import StatusWriter
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.kube.events.series import ObjectReference
from tfjob_controller.kube.meta import key_of, split_key
from tfjob_controller.scheduling.autoscaling.elasticgang import AutoscalingPolicy
from tfjob_controller.scheduling.decisions import AdmissionPolicy
from tfjob_controller.scheduling.preemption import PreemptionPolicy
from tfjob_controller.util.timestamps import format_micro_time

NAMESPACE = "team"
GANG_PATH = f"/apis/scheduling.kubeflow.org/v1alpha1/namespaces/{NAMESPACE}/gangs"
BIND_TIMEOUT_SECONDS, ADMITTED_TIMEOUT_SECONDS = 60.0, 600.0
SCALE_DOWN_SECONDS, SCALE_UP_SECONDS = 30.0, 60.0
_PREFIX = "scheduling.kubeflow.org"

Object = dict[str, Any]


class _Pods(Answering):
    """Accepts only the annotation that makes kube-scheduler retry a pod."""

    def __init__(self, pods: Mapping[str, ScheduledPod]) -> None:
        super().__init__()
        self._pods = pods
        self.woken: list[str] = []
        # By pod, the node that the annotation names.
        self.annotated: dict[str, str] = {}

    def answer(self, request: Request) -> bytes:
        name = request.path.rpartition("/")[2]
        found = self._pods.get(f"{request.path.split('/')[-3]}/{name}")
        if request.method != "PATCH" or found is None:
            raise ApiError(404, "NotFound", f"{request.path} not found")
        self.woken.append(name)
        self.annotated[name] = request.body["metadata"]["annotations"][f"{_PREFIX}/node"]
        return msgspec.json.encode(found)


class _Gate(Answering):
    """Requests for Gangs wait while it is closed: before the server gets them, or after."""

    def __init__(self, api: MemoryApi) -> None:
        super().__init__()
        self._api = api
        self._open = threading.Event()
        self._open.set()
        self._waiting = 0
        self.is_after = False

    @property
    def is_holding(self) -> bool:
        """Reports whether it is closed and a request waits."""
        return self._waiting > 0 and not self._open.is_set()

    def close(self, *, is_after: bool) -> None:
        self.is_after = is_after
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def request(self, method: str, path: str, **options: Any) -> bytes:
        is_after = self.is_after
        if not is_after:
            self._wait()
        try:
            return self._api.request(method, path, **options)
        finally:
            if is_after:
                self._wait()

    def _wait(self) -> None:
        self._waiting += 1
        self._open.wait()
        self._waiting -= 1


class _Events:
    """Records the object, reason and note of each event."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []

    def event(self, regarding: ObjectReference, type_: str, reason: str, note: str, action: str = "") -> None:
        self.told.append((regarding.name, reason, note))


class GangWorld:
    """See the module.

    Bindings fail while `is_binding_broken`, and stay in progress while `is_binding_slow`. While `is_binding_repeated`,
    each has failed before and is retried. The handler of pods is behind the store while `is_pod_handler_slow`, until
    `deliver_pods`. Statuses are written by one thread; a pass ends when all its writes have
    ended, or one of them waits because of `slow_writes`.
    """

    def __init__(self, *, is_indexed: bool = False, preemption: PreemptionPolicy | None = None) -> None:
        self.api = MemoryApi()
        self.preemption = preemption
        self.priority_classes: list[PriorityClass] = []
        self.clock = FakeClock()
        # Namespaces whose budgets refuse evictions, and the pods that were evicted, in order.
        self.protected: set[str] = set()
        self.evicted: list[str] = []
        # Whether evicted pods end only with another grace period than their own.
        self.is_ending_slow = False
        # Of the gangs and pods that are named.
        self.namespace = NAMESPACE
        self.nodes: dict[str, Node] = {}
        # `hard` of a ResourceQuota; the API server counts pods in `used` as soon as they exist.
        self.quota: dict[str, str] = {}
        self.pods: dict[str, ScheduledPod] = {}
        self.is_binding_broken = False
        self.is_binding_repeated = False
        self.is_binding_slow = False
        self.is_pod_handler_slow = False
        self.is_leading = True
        # Whether owners create pods of Indexed Jobs, whose labels have no member's name.
        self.is_indexed = is_indexed
        self._under_way: list[tuple[BindRequest, OnResult, RejectBinding]] = []
        # Pods by uid for which kube-scheduler waits for the response of a bind call.
        self._assumed: dict[str, tuple[str, int]] = {}
        self.events = _Events()
        self._gate = _Gate(self.api)
        self._versions = 0
        self._new_scheduler()

    @contextmanager
    def in_namespace(self, namespace: str) -> Iterator[None]:
        """Names are those of this namespace. The names of gangs are unique."""
        before, self.namespace = self.namespace, namespace
        try:
            yield
        finally:
            self.namespace = before

    @property
    def _gang_path(self) -> str:
        return f"/apis/scheduling.kubeflow.org/v1alpha1/namespaces/{self.namespace}/gangs"

    # The gang scheduler

    def start_scheduler(self) -> None:
        """Starts a new process, which knows only the API server's state. Requests that the last one has sent arrive."""
        self.end_writes()
        self.stop_writing()
        self._new_scheduler()

    def _new_scheduler(self) -> None:
        self.end_bindings()
        self._assumed.clear()
        self._pod_events: list[Callable[[], None]] = []
        self.gangs: Store[Gang] = Store()
        # The version of each Gang that was last delivered to the handler.
        self._told: dict[str, str] = {}
        self._pod_store: Store[ScheduledPod] = Store({BY_GANG: by_gang})
        self.state = SharedState(self.gangs, self.clock)
        check = PreBindCheck(self, self.gangs, self._pod_store, self.state, self.clock, lambda: self.is_leading)
        self.permit = Permit(
            check.submit,
            self.state,
            self.clock,
            http_timeout_seconds=300.0,
            bind_timeout_seconds=BIND_TIMEOUT_SECONDS,
            admitted_timeout_seconds=ADMITTED_TIMEOUT_SECONDS,
        )
        client = ResourceClient(self._gate, GANGS, retry=False)
        self.pod_api = _Pods(self.pods)
        self._writer = StatusWriter(
            self.gangs,
            client,
            ResourceClient(self.pod_api, SCHEDULED_PODS),
            lambda result, gang: None,
            self.events,
            self.state.wake,
            self.clock,
            threads=1,
        )
        self._writer.start()
        self.admission = AdmissionLoop(
            self.state,
            self.gangs,
            self._quotas_of,
            self._writer,
            self.permit,
            self.clock,
            policy=AdmissionPolicy(),
            scale_policy=AutoscalingPolicy(SCALE_DOWN_SECONDS, SCALE_UP_SECONDS),
            preemption_policy=self.preemption,
            priority_classes=lambda: self.priority_classes,
            evict=self._evict,
            rng=random.Random(1),
        )
        self.placements = GangPlacements(self.gangs, self.state, lambda: True)
        self._node_handler = NodeHandler(self.state)
        self._pod_handler = PodHandler(self.state, self.permit)
        self._gang_handler = GangHandler(self.state)
        for node in self.nodes.values():
            self._node_handler.on_add(node, True)
        for pod in self.pods.values():
            self._pod_store.upsert(pod)
            self._pod_handler.on_add(pod, True)
        self._pod_store.replace(list(self.pods.values()), self._versions)
        self.deliver()

    def submit(self, pods: Sequence[BindRequest], on_result: OnResult, rejection: RejectBinding) -> None:
        """Implements the binder: a result arrives in another thread, never during a pass of the loop."""
        self._under_way += [(pod, on_result, rejection) for pod in pods]
        if not self.is_binding_slow and not self.state.lock.locked():
            self.end_bindings()

    def end_bindings(self) -> None:
        """Completes the Bindings in progress."""
        under_way, self._under_way = self._under_way, []
        for pod, on_result, rejection in under_way:
            if self.is_binding_repeated and (words := rejection(pod)):
                on_result(pod, words)
                continue
            found = self.pods.get(f"{pod.namespace}/{pod.name}")
            if self.is_binding_broken or found is None:
                on_result(pod, "refused")
                continue
            with self.in_namespace(pod.namespace):
                self._change_pod(pod.name, node=pod.node, uid=pod.uid)
            on_result(pod, "")

    def deliver(self) -> None:
        """Delivers the watch events of Gangs."""
        seen = {key_of(gang): gang for gang in map(_gang, self.api.list("gangs"))}
        for old in self.gangs.list():
            if key_of(old) not in seen:
                self._versions += 1
                self.gangs.delete(key_of(old), 10**9 + self._versions, old)
                self._gang_handler.on_delete(old, True)
        for key, gang in seen.items():
            self.gangs.upsert(gang)
            if self._told.get(key) != gang.metadata.resource_version:
                self._told[key] = gang.metadata.resource_version
                self._gang_handler.on_update(gang, gang)

    def stop_writing(self) -> None:
        """The process stops writing, as on SIGTERM."""
        assert self._writer.stop(60.0)

    def slow_writes(self, *, is_after: bool = False) -> None:
        """From now on writes hang: before the API server gets them, or after it has processed them."""
        self._gate.close(is_after=is_after)

    def end_writes(self) -> None:
        """The writes that hang end, and so do those behind them. The watch shows them before the loop has run."""
        self._gate.open()
        self._await_writes()
        self.deliver()

    def _await_writes(self) -> None:
        def have_ended() -> bool:
            queue = self._writer.statistics()
            return self._gate.is_holding or queue.queued + queue.processing == 0

        eventually(have_ended, period=0.0002)

    def run(self, passes: int = 1) -> None:
        """Runs passes of the loop, and the timeouts of Permit that are due."""
        for _ in range(passes):
            self.permit.tick()
            self.run_pass()
            if not self.is_binding_slow:
                self.end_bindings()
            self.deliver()

    def run_pass(self) -> None:
        """Runs one pass of the loop. The outcomes of its writes are handled, unless they hang."""
        self.admission.run_once()
        self._await_writes()
        self.admission.handle_outcomes()

    def _evict(self, evictions: Sequence[Eviction]) -> None:
        """What the API server does with evictions, and the kubelets with these pods."""
        for each in evictions:
            namespace, name = split_key(each.key)
            if each.key not in self.pods or namespace in self.protected:
                continue
            self.evicted.append(name)
            with self.in_namespace(namespace):
                is_ended = each.grace_seconds is not None or not self.is_ending_slow
                (self.remove_pod if is_ended else self.end_pod)(name)

    # Nodes and pods

    def put_node(self, name: str, cpu: int, **spec: Any) -> None:
        self._versions += 1
        body = {
            "metadata": {"name": name, "resourceVersion": str(self._versions)},
            "spec": spec,
            "status": {
                "allocatable": {"cpu": str(cpu), "pods": "100"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
        node = self.nodes[name] = NODES.decode(msgspec.json.encode(body))
        self._node_handler.on_add(node, False)

    def remove_node(self, name: str) -> None:
        """Removes a node and its pods, as the pod garbage collector does."""
        node = self.nodes.pop(name)
        self._node_handler.on_delete(node, True)
        for pod in [pod for pod in self.pods.values() if pod.spec.node_name == name]:
            self.remove_pod(pod.metadata.name)

    def put_pod(
        self,
        name: str,
        labels: dict[str, str],
        cpu: int,
        *,
        node: str = "",
        uid: str = "",
        phase: str = "Pending",
        ends: str | None = None,
        unschedulable: bool = False,
        priority_class: str = "",
    ) -> None:
        """Adds or updates a pod; `ends` is the deletion deadline of a terminating pod."""
        self._versions += 1
        body = {
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "uid": uid or f"{name}-{self._versions}",
                "labels": labels,
                "resourceVersion": str(self._versions),
                "deletionTimestamp": ends,
            },
            "spec": {
                "nodeName": node,
                "priorityClassName": priority_class,
                "containers": [{"resources": {"requests": {"cpu": str(cpu)}}}],
            },
            "status": {
                "phase": phase,
                "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}][:unschedulable],
            },
        }
        pod = SCHEDULED_PODS.decode(msgspec.json.encode(body))
        old = self.pods.get(key_of(pod))
        self.pods[key_of(pod)] = pod
        self._pod_store.upsert(pod)
        if old is None:
            self._tell(lambda: self._pod_handler.on_add(pod, False))
        else:
            self._tell(lambda: self._pod_handler.on_update(old, pod))

    def reject_pod(self, name: str) -> None:
        """kube-scheduler reports that it found no node for the pod."""
        self._change_pod(name, node="", phase="Pending", unschedulable=True)

    def finish_pod(self, name: str, phase: str = "Succeeded") -> None:
        self._change_pod(name, phase=phase)

    def end_pod(self, name: str) -> None:
        """Deletes a pod, which keeps running until it is removed."""
        self._change_pod(name, ends=format_micro_time(self.clock.now()))

    def _change_pod(self, name: str, **changes: Any) -> None:
        pod = self.pods[f"{self.namespace}/{name}"]
        same = {
            "node": pod.spec.node_name,
            "uid": pod.metadata.uid,
            "phase": pod.status.phase,
            "priority_class": pod.spec.priority_class_name,
        }
        self.put_pod(name, pod.metadata.labels, _cpu_of(pod), **{**same, **changes})

    def remove_pod(self, name: str) -> None:
        pod = self.pods.pop(f"{self.namespace}/{name}")
        self._versions += 1
        self._pod_store.delete(key_of(pod), self._versions, pod)
        self._tell(lambda: self._pod_handler.on_delete(pod, True))

    def _tell(self, event: Callable[[], None]) -> None:
        """Delivers an event of a pod to the handler, or keeps it: on a busy machine the handler is behind the store."""
        self._pod_events.append(event)
        if not self.is_pod_handler_slow:
            self.deliver_pods()

    def deliver_pods(self) -> None:
        """Delivers the events of pods that the handler has not received."""
        events, self._pod_events = self._pod_events, []
        for event in events:
            event()

    def used(self, node: str) -> int:
        """Returns the CPUs that unfinished pods use on the node."""
        return sum(
            _cpu_of(pod)
            for pod in self.pods.values()
            if pod.spec.node_name == node and pod.status.phase not in ("Succeeded", "Failed")
        )

    def _quotas_of(self, namespace: str) -> list[ResourceQuota]:
        pods = [pod for pod in self.pods.values() if pod.status.phase not in ("Succeeded", "Failed")]
        cpus = str(sum(map(_cpu_of, pods)))
        used = {"cpu": cpus, "requests.cpu": cpus, "pods": str(len(pods))}
        body = {
            "metadata": {"name": "quota", "namespace": namespace},
            "spec": {"hard": self.quota},
            "status": {"hard": self.quota, "used": used},
        }
        return [RESOURCE_QUOTAS.decode(msgspec.json.encode(body))] if self.quota else []

    def coming(self, node: str) -> int:
        """Returns the CPUs of the pods whose Bindings to this node are in progress."""
        pods = [self.pods.get(f"{pod.namespace}/{pod.name}") for pod, *_ in self._under_way if pod.node == node]
        return sum(_cpu_of(pod) for pod in pods if pod is not None and not pod.spec.node_name)

    # Owners

    def add_gang(
        self,
        name: str,
        *,
        cpu: int = 1,
        priority: int = 0,
        priority_class: str = "",
        limits: tuple[int, int] | None = None,
        is_indexed: bool = False,
        **members: int,
    ) -> None:
        """Creates a gang; `limits` are the minimum and the maximum of its workers, and `is_indexed` allows no gaps."""
        least, most = ({}, {}) if limits is None else ({"worker": limits[0]}, {"worker": limits[1]})
        body = {
            "metadata": {
                "name": name,
                "namespace": self.namespace,
                "uid": f"gang-{self._next_version()}",
                "creationTimestamp": self.clock.now().isoformat(),
            },
            "spec": {
                "priority": priority,
                "minMembers": least,
                "maxMembers": most,
                "members": [
                    {
                        "name": kind,
                        "count": count,
                        "resources": {"cpu": str(cpu)},
                        "indexed": is_indexed,
                        "priorityClassName": priority_class,
                    }
                    for kind, count in members.items()
                ],
            },
        }
        self.api.put(self._gang_path, body)
        self.deliver()

    def change_gang(self, name: str, patch: Object) -> None:
        self.api.change(f"{self._gang_path}/{name}", patch)
        self.deliver()

    def resize(self, name: str, count: int, kind: str = "worker", cpu: int = 1) -> None:
        """Changes the number of members of a gang of one kind."""
        members = [{"name": kind, "count": count, "resources": {"cpu": str(cpu)}}]
        self.change_gang(name, {"spec": {"members": members}})

    def remove_gang(self, name: str) -> None:
        """Deletes the Gang and its pods."""
        self.remove_pods(name)
        self.delete_gang(name)

    def remove_pods(self, name: str) -> None:
        """Removes all pods of the gang."""
        for pod in self.pods_of(name):
            self.remove_pod(pod.metadata.name)

    def delete_gang(self, name: str) -> None:
        """Deletes the Gang; its pods stay."""
        self.api.remove(f"{self._gang_path}/{name}")
        self.deliver()

    def remake_gang(self, name: str) -> None:
        """Deletes and recreates a Gang with the same spec, between two watch events; its pods stay."""
        path = f"{self._gang_path}/{name}"
        old = self.api.objects[path]
        self.api.remove(path)
        metadata = {**old["metadata"], "uid": f"gang-{self._next_version()}"}
        self.api.put(self._gang_path, {"metadata": metadata, "spec": old["spec"]})
        self.deliver()

    def gang(self, name: str) -> Gang:
        return next(gang for gang in map(_gang, self.api.list("gangs")) if gang.metadata.name == name)

    def names(self) -> list[str]:
        return [each["metadata"]["name"] for each in self.api.list("gangs")]

    def phase(self, name: str) -> str:
        return self.gang(name).status.phase

    def nodes_of(self, name: str) -> set[str]:
        """Returns the nodes on which the gang is placed."""
        return set(placed_nodes(self.gang(name).status).values())

    def bound_pods(self, name: str) -> int:
        return sum(bool(pod.spec.node_name) for pod in self.pods_of(name))

    def pods_of(self, name: str) -> list[ScheduledPod]:
        return [pod for pod in self.pods.values() if gang_key_of(pod.metadata) == f"{self.namespace}/{name}"]

    def admit(self, name: str, workers: int, **spec: Any) -> None:
        """Adds a gang that has capacity, and admits it."""
        self.add_gang(name, worker=workers, **spec)
        self.run()
        assert self.phase(name) == ADMITTED

    def bind(self, name: str, *, cpu: int = 0) -> None:
        """Creates the missing pods of an admitted or bound gang, and binds them; `cpu` is as for `create_pods`."""
        self.run()
        self.create_pods(name, cpu=cpu)
        self.schedule()
        self.run()
        assert self.phase(name) == BOUND

    def start(self, name: str, workers: int, **spec: Any) -> None:
        """Adds a gang and binds its pods."""
        self.add_gang(name, worker=workers, **spec)
        self.bind(name)

    def create_pods(
        self, name: str, *, cpu: int = 0, members: Collection[str] = (), priority_class: str | None = None
    ) -> None:
        """Creates the missing pods of the present attempt: of `members`, or of all placed ones.

        `cpu` and `priority_class` replace what the Gang's spec says.
        """
        gang = self.gang(name)
        if gang.status.phase not in (ADMITTED, BOUND) or must_leave(gang):
            return
        there = pods_by_member(gang, self.pods_of(name))
        cpu = cpu or int(gang.spec.members[0].resources["cpu"])
        for member in members or placed_nodes(gang.status):
            if member not in there:
                labels = self._member_labels(member) | {
                    f"{_PREFIX}/gang": name,
                    f"{_PREFIX}/attempt": str(gang.status.attempt),
                }
                named = gang.spec.members[0].priority_class_name
                of_class = named if priority_class is None else priority_class
                self.put_pod(f"{name}-{member}-{gang.status.attempt}", labels, cpu, priority_class=of_class)

    def _member_labels(self, member: str) -> dict[str, str]:
        if not self.is_indexed:
            return {f"{_PREFIX}/member": member}
        return {
            f"{_PREFIX}/member-kind": kind_of(member),
            "batch.kubernetes.io/job-completion-index": str(index_of(member)),
        }

    def delete_old_pods(self, name: str) -> None:
        """Deletes pods as an owner does when its gang has lost its placement or must leave, or members were removed."""
        gang = self.gang(name)
        is_placed = gang.status.phase in (ADMITTED, BOUND) and not must_leave(gang)
        attempt = str(gang.status.attempt) if is_placed else ""
        wanted = wanted_members(gang)
        for pod in self.pods_of(name):
            if pod.metadata.labels[f"{_PREFIX}/attempt"] != attempt or member_of(pod.metadata) not in wanted:
                self.remove_pod(pod.metadata.name)

    # kube-scheduler

    def schedule(self, *, is_blind: bool = False) -> None:
        """Calls filter for every pod without a node or bind call, and bind for those that fit by its own count.

        `is_blind`: it has not seen the latest pods and changes of the nodes yet.
        """
        for pod in [pod for pod in self.pods.values() if gang_key_of(pod.metadata) and not pod.spec.node_name]:
            if pod.metadata.uid in self._assumed:
                continue
            attempt = int(pod.metadata.labels[f"{_PREFIX}/attempt"])
            who = GangMember(gang_key_of(pod.metadata), attempt, member_of(pod.metadata))
            node = self.placements.node_for(who.gang, who.attempt, who.name).node
            if not node:
                continue
            room = self._allocatable(node) - self.used(node) - self._assumed_on(node)
            if room < _cpu_of(pod) and not is_blind:
                self.state.node_rejected(who, node)
                continue
            self._assumed[pod.metadata.uid] = node, _cpu_of(pod)
            self._bring(who, BindRequest(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid, node))

    def _bring(self, who: GangMember, pod: BindRequest) -> None:
        """Sends a bind call. After the response the pod is bound, or kube-scheduler tries it again."""

        def on_response(error: str) -> None:
            self._assumed.pop(pod.uid, None)

        self.permit.request_bind(who, pod, on_response)

    def _assumed_on(self, node: str) -> int:
        bound = {pod.metadata.uid for pod in self.pods.values() if pod.spec.node_name}
        return sum(cpu for uid, (at, cpu) in self._assumed.items() if at == node and uid not in bound)

    def _next_version(self) -> int:
        self._versions += 1
        return self._versions

    def _allocatable(self, node: str) -> int:
        found = self.nodes.get(node)
        return int(found.status.allocatable["cpu"]) if found is not None and not found.spec.unschedulable else 0


def _gang(body: Object) -> Gang:
    return GANGS.decode(msgspec.json.encode(body))


def _cpu_of(pod: ScheduledPod) -> int:
    return requests_of(pod).get("cpu", 0) // 1000
