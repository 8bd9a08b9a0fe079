"""The default server's template, and its script, run as it is, with a stand-in for TensorFlow."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers.manifests import container, pod_template
from tfjob_controller.kinds.tfjob.parameterserver import SCRIPT, default_server_template

RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in RESTRICTED.items() if name not in names}


def server_of(template: dict[str, Any]) -> dict[str, Any]:
    """The container of the default server in this template; others come before it."""
    server: dict[str, Any] = default_server_template(template, "localhost/tf", "cm")["spec"]["containers"][-1]
    return server


def test_the_default_server_is_restricted_and_the_containers_beside_it_are_as_written() -> None:
    beside = container("log", resources={"limits": {"cpu": "1"}})
    template = default_server_template(pod_template(beside), "localhost/tf", "cm")
    assert template["spec"]["containers"][0] == beside
    assert template["spec"]["containers"][1]["securityContext"] == RESTRICTED
    assert "securityContext" not in template["spec"]


@pytest.mark.parametrize("image", [{}, {"image": ""}, {"image": None}], ids=str)
def test_a_container_without_an_image_runs_the_server_and_keeps_its_other_fields(image: dict[str, Any]) -> None:
    own = {
        "resources": {"limits": {"cpu": "1"}},
        "env": [{"name": "A", "value": "b"}],
        "imagePullPolicy": "Always",
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    server = server_of(pod_template({"name": "tensorflow", **image, **own}))
    assert server["image"] == "localhost/tf"
    assert server["command"][-1].endswith("/ps-server/grpc_tensorflow_server.py")
    assert {name: server[name] for name in own if name != "volumeMounts"} == {
        name: value for name, value in own.items() if name != "volumeMounts"
    }
    assert [mount["mountPath"] for mount in server["volumeMounts"]] == ["/data", "/ps-server"]


@pytest.mark.parametrize(
    ("pod", "own", "expected"),
    [
        pytest.param({"runAsUser": 1000}, {}, without("runAsUser"), id="the pod's user"),
        pytest.param({}, {"runAsUser": 1000}, {**RESTRICTED, "runAsUser": 1000}, id="the container's user"),
        pytest.param({"runAsUser": None}, None, RESTRICTED, id="null is as good as absent"),
        pytest.param({"runAsNonRoot": True}, {}, without("runAsNonRoot"), id="a user that is not root"),
        pytest.param({"runAsUser": 0}, {}, without("runAsUser", "runAsNonRoot"), id="root by its number"),
        pytest.param({"runAsNonRoot": False}, {}, without("runAsUser", "runAsNonRoot"), id="the image's user"),
        pytest.param(
            {"runAsUser": 1000},
            {"runAsUser": 0},
            {**without("runAsNonRoot"), "runAsUser": 0},
            id="the container's user wins over the pod's",
        ),
        pytest.param(
            {},
            {"privileged": True},
            {**without("allowPrivilegeEscalation"), "privileged": True},
            id="privileged, which the API server takes only without the contrary",
        ),
        pytest.param(
            {"seccompProfile": {"type": "Unconfined"}, "fsGroup": 5},
            {"capabilities": {"add": ["NET_ADMIN"]}},
            {**without("seccompProfile"), "capabilities": {"add": ["NET_ADMIN"]}},
            id="other fields",
        ),
    ],
)
def test_what_the_pod_or_the_container_says_about_security_wins(
    pod: dict[str, Any], own: dict[str, Any] | None, expected: dict[str, Any]
) -> None:
    template = pod_template({"name": "tensorflow", "securityContext": own}, securityContext=pod)
    assert server_of(template)["securityContext"] == expected


TF_CONFIG = json.dumps({"cluster": {"ps": ["a:2222", "b:2222"]}, "task": {"type": "ps", "index": 1}})

_SERVER = """
class Server:
    def __init__(self, cluster, job_name, task_index):
        assert cluster == {"ps": ["a:2222", "b:2222"]}, cluster
        self.target = "grpc://%s:%d" % (job_name, task_index)
"""
TENSORFLOW_2 = f"class distribute:\n    pass\n{_SERVER}\ndistribute.Server = Server\n"
TENSORFLOW_1 = f"class train:\n    pass\n{_SERVER}\ntrain.Server = Server\n"


def started(folder: Path, tensorflow: str) -> subprocess.Popen[str]:
    """The script as a process that imports this TensorFlow."""
    (folder / "tensorflow.py").write_text(tensorflow)
    (folder / "server.py").write_text(SCRIPT)
    environment = {**os.environ, "TF_CONFIG": TF_CONFIG, "PYTHONPATH": str(folder)}
    command = [sys.executable, str(folder / "server.py")]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    "tensorflow", [pytest.param(TENSORFLOW_1, id="TensorFlow 1"), pytest.param(TENSORFLOW_2, id="TensorFlow 2")]
)
def test_it_serves_until_sigterm_and_then_ends_with_a_retryable_code(tensorflow: str, tmp_path: Path) -> None:
    with started(tmp_path, tensorflow) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "serving as /job:ps/task:1 at grpc://ps:1\n"
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=20) == 143


def test_a_sigterm_during_the_import_ends_it_too(tmp_path: Path) -> None:
    """TensorFlow takes seconds to import, and the first process of a container ignores a SIGTERM without a handler."""
    importing = "import time\nprint('importing', flush=True)\nwhile True:\n    time.sleep(0.1)\n"
    with started(tmp_path, importing) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "importing\n"
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=300) == 143
