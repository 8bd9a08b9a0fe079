"""Builds programs, images and the SDKs' environments before the tests, since that takes minutes on a cold cache.

Argument: `nodes` or none. It ignores what cannot be built: the tests report that themselves, or are skipped.
"""

from __future__ import annotations

import os
import sys

from environment import kubeflowsdk
from localcluster import binaries, foreigncrds, kubeflowtrainer, prometheus, stack
from localcluster.controlplane import check_platform
from localcluster.errors import LocalClusterError
from localcluster.report import to_stderr

_TOOLS = ("kubectl", "dockerfilelint", "helm", "jobchecks")
# Of tests that are marked `long`.
_TOOLS_OF_ALL = ("prometheus", "training-operator", "kueue", "metrics-server")


def main(wanted: list[str]) -> None:
    if stack.existing_kubeconfig() is not None:
        return
    check_platform()
    tools = _TOOLS + (_TOOLS_OF_ALL if os.environ.get("ALL") else ())
    if "nodes" in wanted and os.geteuid() == 0:
        from localcluster import images, nodes

        own = (images.CONTROLLER, images.INITIALIZER)
        # Of these two only the last layer changes with each change of the source: nodes start with those below it.
        stable = [parent for image in own if (parent := images.RECIPES[image].parent)]
        nodes.prepare(
            [*images.FRAMEWORKS, images.KUBE_SCHEDULER, images.KUBECTL_DELIVERY, *stable], to_stderr, tools=tools
        )
        for image in own:
            images.ensure(image, to_stderr)
        kubeflowsdk.kubeflow_sdk_python()
        kubeflowsdk.training_sdk_python()
    binaries.ensure_all([*binaries.CONTROL_PLANE, *tools], to_stderr)
    prometheus.ensure(to_stderr)
    foreigncrds.prepare()
    kubeflowtrainer.kubeflow_module()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except LocalClusterError as error:
        to_stderr(f"not prepared: {error}")
