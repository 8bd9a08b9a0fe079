"""The default parameter server: a standard TensorFlow gRPC server, for a PS without an image of its own."""

from __future__ import annotations

from typing import Any

from tfjob_controller.api.tfjob.types import CONTAINER_NAME
from tfjob_controller.jobs.podtemplate.merge import Part, spec_of, with_container, with_mounts, with_volumes
from tfjob_controller.jobs.podtemplate.storage import RESTRICTED

VOLUME_NAME = "ps-config-volume"
MOUNT_PATH = "/ps-server"
SCRIPT_NAME = "grpc_tensorflow_server.py"

# Runs on Python 2.7 and 3 and on TensorFlow 1.x and 2.x. Python runs no signal handlers while the main thread is inside
# Server.join(), and a process with id 1 ignores SIGTERM without a handler, so the main thread sleeps. It does so for a
# second at a time: a signal that comes just before a sleep, or before signal.pause(), is noticed after it only.
SCRIPT = '''\
"""A standard TensorFlow server: takes part in the cluster of TF_CONFIG and serves until it is killed."""

import json
import os
import signal
import sys
import time

# What a shell reports of a process that was killed by SIGTERM; a retryable exit code.
TERMINATED = 128 + signal.SIGTERM

# Before the import, which takes seconds: without a handler the server would ignore a SIGTERM during that time.
signal.signal(signal.SIGTERM, lambda signum, frame: os._exit(TERMINATED))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")
import tensorflow as tf


def main():
    config = json.loads(os.environ["TF_CONFIG"])
    task = config["task"]
    distribute = getattr(tf, "distribute", None)
    server_class = getattr(distribute, "Server", None) or tf.train.Server
    server = server_class(config["cluster"], job_name=str(task["type"]), task_index=int(task["index"]))
    print("serving as /job:%s/task:%d at %s" % (task["type"], task["index"], server.target))
    sys.stdout.flush()
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main()
'''

# The interpreter that has TensorFlow is called `python` in some images and `python3` in others.
_COMMAND = ("sh", "-c", f"exec $(command -v python || command -v python3) {MOUNT_PATH}/{SCRIPT_NAME}")

# A user that the image need not know, in place of root, which most images for training name.
_USER = 65532
_SECURITY = {**RESTRICTED, "runAsUser": _USER}
# The user's choice that contradicts each of these fields: with both, no container would start.
_CONTRADICTIONS = {
    "runAsNonRoot": ("runAsUser", 0),
    "runAsUser": ("runAsNonRoot", False),
    "allowPrivilegeEscalation": ("privileged", True),
}


def default_server_template(template: Part, image: str, config_map: str) -> dict[str, Any]:
    """The user's pod template whose training container runs the default server. The user's fields win."""
    pod_security = _given(spec_of(template).get("securityContext"))

    def server(own: Part) -> dict[str, Any]:
        security = _security_context(_given(own.get("securityContext")), pod_security)
        return with_mounts(
            {
                "image": image,
                # Also for moving tags: all servers of a job should be the same, and images may exist only on the nodes.
                "imagePullPolicy": "IfNotPresent",
                "command": list(_COMMAND),
                **{name: value for name, value in own.items() if value},
                "securityContext": security,
            },
            [{"name": VOLUME_NAME, "mountPath": MOUNT_PATH}],
        )

    serving = with_container(template, CONTAINER_NAME, server)
    return with_volumes(serving, [{"name": VOLUME_NAME, "configMap": {"name": config_map}}])


def _security_context(own: Part, pod: Part) -> dict[str, Any]:
    """The container's own fields, and those of Pod Security `restricted` that neither it nor the pod contradicts."""
    effective = {**pod, **own}
    added = {
        name: value
        for name, value in _SECURITY.items()
        if name not in effective and _CONTRADICTIONS.get(name, ("", None)) not in effective.items()
    }
    return {**added, **own}


def _given(fields: Part | None) -> dict[str, Any]:
    return {name: value for name, value in (fields or {}).items() if value is not None}
