"""The default server's script, run as it is, with a stand-in for TensorFlow."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tfjob_controller.trainer.podtemplate.parameterserver import SCRIPT

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
    importing = "import signal\nprint('importing', flush=True)\nsignal.pause()\n"
    with started(tmp_path, importing) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "importing\n"
        server.send_signal(signal.SIGTERM)
        assert server.wait(timeout=60) == 143
