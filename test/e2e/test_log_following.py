"""Following the logs of real pods: a real kubelet rotates them, floods and ends."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from helpers.cluster import Cluster, pod_path
from helpers.poll import eventually
from tfjob_controller.api.core import Pod
from tfjob_controller.api.trainjob import DEFAULT_METRICS
from tfjob_controller.controller.logfollower import LogFollower
from tfjob_controller.kube.clock import RealClock
from tfjob_controller.kube.config import load_config
from tfjob_controller.kube.transport import Transport
from tfjob_controller.kube.trickle import Dialer

pytestmark = pytest.mark.nodes

# After a minute that is more than the 10 MiB at which a kubelet rotates, for which it looks every ten seconds; not so
# fast that the follower would leave something out.
ROTATES = """
import time
print('the beginning', flush=True)
for step in range(1, 1601):
    print(f'step={step} loss={1 / step:.4f} ' + 'x' * 9000, flush=True)
    time.sleep(0.05)
print('accuracy=0.75', end='', flush=True)
"""
# All that a program can print, for half a minute.
FLOODS = """
import time
end, step = time.monotonic() + 30, 0
while time.monotonic() < end:
    step += 1
    print(f'step={step} ' + 'x' * 1000)
print(f'step={step} accuracy=0.5')
"""


@pytest.fixture
def follower(nodes: Cluster) -> Iterator[LogFollower]:
    clock = RealClock()
    made = LogFollower(Dialer(load_config(str(nodes.kubeconfig)), clock), lambda key: None, clock)
    made.start()
    yield made
    assert made.stop(60.0)
    assert made.restarts == 0


class Program:
    """A pod with one, and a follower that is told of it as syncs would."""

    def __init__(self, cluster: Cluster, space: str, follower: LogFollower, name: str, program: str) -> None:
        self._cluster, self._space, self._follower, self._name = cluster, space, follower, name
        command = {"command": ["python3", "-c", program]}
        container = {"name": "trainer", "image": "localhost/base", "imagePullPolicy": "IfNotPresent", **command}
        spec = {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 0}
        cluster.api.create(f"/api/v1/namespaces/{space}/pods", {"metadata": {"name": name}, "spec": spec})

    def sync(self) -> dict[str, Any]:
        """The values by name."""
        pod = msgspec.convert(self._cluster.api.get(pod_path(self._space, self._name)), Pod)
        self._follower.follow(f"{self._space}/job", self._name, pod, "trainer", DEFAULT_METRICS)
        return {name: each.value for name, each in self._follower.metrics_of(self._name).items()}

    def step(self) -> int:
        return int(self.sync().get("step", "0"))

    def is_over(self) -> bool:
        self.sync()
        phase = self._cluster.api.get(pod_path(self._space, self._name))["status"]["phase"]
        return phase == "Succeeded" and self._follower.has_read_all(self._name)


def first_words(requester: Transport, space: str, pod: str) -> bytes:
    """Of the log as the kubelet has it now."""
    return requester.request("GET", f"{pod_path(space, pod)}/log", query={"limitBytes": "13"}, accept="*/*")


def test_a_log_that_is_rotated_is_followed_on_and_read_to_its_end(
    nodes: Cluster, space: str, follower: LogFollower
) -> None:
    program = Program(nodes, space, follower, "rotates", ROTATES)
    eventually(program.step, 120.0, 0.5)
    requester = Transport(load_config(str(nodes.kubeconfig)), qps=0)
    assert first_words(requester, space, "rotates") == b"the beginning"
    eventually(lambda: first_words(requester, space, "rotates") != b"the beginning", 120.0, 0.5)
    opened, then = follower.statistics().opened, program.step()
    eventually(lambda: program.step() > then + 100, 120.0, 0.5)
    assert follower.statistics().opened == opened, "the same answer goes on"
    eventually(program.is_over, 120.0, 0.5)
    assert program.sync() == {"step": "1600", "loss": "0.0006", "accuracy": "0.75"}
    requester.close()


def test_a_flood_is_kept_pace_with_and_its_last_line_counts(nodes: Cluster, space: str, follower: LogFollower) -> None:
    program = Program(nodes, space, follower, "floods", FLOODS)
    eventually(program.step, 120.0, 0.5)
    steps = [program.step()]

    def is_over() -> bool:
        steps.append(program.step())
        return program.is_over()

    eventually(is_over, 240.0, 0.5)
    assert program.sync()["accuracy"] == "0.5"
    assert len(set(steps)) > 3
    assert follower.statistics().jumps > 0
