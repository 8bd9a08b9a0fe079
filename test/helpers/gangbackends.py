"""A control plane of a test's own whose kube-scheduler runs PodGroups, as an administrator turns that on."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from helpers.cluster import Cluster
from localcluster import process, stack, state
from localcluster.api import Api
from localcluster.controlplane import ControlPlane
from localcluster.crds import install_crds
from localcluster.programs import Options

_GATES = "--feature-gates=GenericWorkload=true,GangScheduling=true"
# Alpha: both the gates and the group have to be turned on.
OPTIONS = Options(
    apiserver_flags=(_GATES, "--runtime-config=scheduling.k8s.io/v1alpha2=true"),
    # Its controller lets a deleted PodGroup go once its pods have.
    controller_manager_flags=(_GATES,),
    scheduler_flags=(_GATES,),
)


@contextlib.contextmanager
def gang_control_plane() -> Iterator[Cluster]:
    """With this project's kinds."""
    folder = state.stack_dir(f"{stack.TEST_PREFIX}{os.getpid()}-podgroups")
    with ControlPlane(folder, OPTIONS, owner=process.myself()) as plane:
        api = Api.from_kubeconfig(plane.kubeconfig)
        install_crds(api)
        yield Cluster(plane.kubeconfig, api, plane)
        api.close()
