"""A control plane of a test's own whose kube-scheduler supports PodGroups, configured as by an administrator."""

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
# PodGroups are alpha: both the feature gates and the API group must be enabled.
OPTIONS = Options(
    apiserver_flags=(_GATES, "--runtime-config=scheduling.k8s.io/v1alpha2=true"),
    # Its controller removes the finalizer of a deleted PodGroup once its pods are deleted.
    controller_manager_flags=(_GATES,),
    scheduler_flags=(_GATES,),
)


@contextlib.contextmanager
def gang_control_plane() -> Iterator[Cluster]:
    """Starts a control plane with PodGroups and with this project's kinds."""
    folder = state.stack_dir(f"{stack.TEST_PREFIX}{os.getpid()}-podgroups")
    with ControlPlane(folder, OPTIONS, owner=process.myself()) as plane:
        api = Api.from_kubeconfig(plane.kubeconfig)
        install_crds(api)
        yield Cluster(plane.kubeconfig, api, plane)
        api.close()
