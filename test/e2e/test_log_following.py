"""Following the logs of real pods: a real kubelet rotates them and ends."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from helpers.cluster import Cluster, pod_path
from helpers.kubectl import Kubectl
from helpers.poll import eventually
from tfjob_controller.api.common.core import Pod
from tfjob_controller.api.trainjob.types import DEFAULT_METRICS
from tfjob_controller.controller.logs.follower import LogFollower
from tfjob_controller.kube.config.kubeconfig import load_config
from tfjob_controller.kube.http.responsestream import Connector
from tfjob_controller.kube.http.transport import Transport
from tfjob_controller.util.clock import RealClock

pytestmark = pytest.mark.nodes

# A kubelet looks every ten seconds for logs of more than 10 MiB, and rotates them. The program prints nearly that much
# at first, of which no follower reads more than the last 1000 lines, which are short. It prints the rest when it is
# told to, slowly enough for a follower on a busy machine.
ROTATES = """
import itertools, os, time
print('the beginning', flush=True)
for line in range(1125):
    print('x' * 9000)
for line in range(1000):
    print('short', flush=True)
for step in itertools.count(1):
    print(f'step={step} loss={1 / step:.4f} ' + 'x' * 2000 * os.path.exists('/go'), flush=True)
    if os.path.exists('/enough'):
        break
    time.sleep(0.05)
print('accuracy=0.75', end='', flush=True)
"""


@pytest.fixture
def follower(nodes: Cluster) -> Iterator[LogFollower]:
    clock = RealClock()
    made = LogFollower(Connector(load_config(str(nodes.kubeconfig)), clock), lambda key: None, clock)
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
    nodes: Cluster, space: str, follower: LogFollower, kubectl: Kubectl
) -> None:
    program = Program(nodes, space, follower, "rotates", ROTATES)
    eventually(program.step, 120.0)
    requester = Transport(load_config(str(nodes.kubeconfig)), qps=0)
    assert first_words(requester, space, "rotates") == b"the beginning"
    kubectl.must("exec", "rotates", "--", "touch", "/go")
    eventually(lambda: program.step() and first_words(requester, space, "rotates") != b"the beginning", 120.0)
    opened, then = follower.statistics().opened, program.step()
    eventually(lambda: program.step() > then + 100, 120.0)
    assert follower.statistics().opened == opened, "the same answer goes on"
    kubectl.must("exec", "rotates", "--", "touch", "/enough")
    eventually(program.is_over, 120.0)
    last = re.findall(r"^step=(\d+) loss=(\S+) ", kubectl.must("logs", "rotates"), re.MULTILINE)[-1]
    assert program.sync() == {"step": last[0], "loss": last[1], "accuracy": "0.75"}
    requester.close()
