"""The cluster of a reader of the docs: two nodes with logs, a controller for all namespaces, the built-in runtimes, and
the CRDs of the Prometheus operator.

It is a control plane of the pytest worker's own, because pages install and delete objects that a cluster has only once.
`PAGES` has the further preconditions of a page; most pages only require that there is no job.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from structlog.processors import JSONRenderer

from helpers.cluster import Cluster, clear_jobs, clear_nodes
from helpers.controller import running_controller
from helpers.kubectl import MANIFESTS, Kubectl
from helpers.logkubelet import Kubelet
from helpers.poll import eventually, until
from helpers.renderings import SYSTEM
from localcluster.api import Api
from localcluster.crds import install_crds
from localcluster.fakekubelet import DEFAULT_RESOURCES, FakeKubelet
from localcluster.foreigncrds import install_monitoring_crds
from localcluster.podstatus import Outcome
from tfjob_controller.jobs.naming import replica_id_of

NODES = ("node-1", "node-2")
RESOURCES = {**DEFAULT_RESOURCES, "nvidia.com/gpu": "1000"}
# This limit only ends operations that hang.
PATIENCE_SECONDS = 300.0
_NAMESPACES = "/api/v1/namespaces"
_RBAC = "/apis/rbac.authorization.k8s.io/v1"
# Objects that a page may leave and that are not deleted with a namespace.
_CLUSTER_WIDE = (
    f"{_RBAC}/clusterroles",
    f"{_RBAC}/clusterrolebindings",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
)
_LOOK = ("get", "gangs,tfjobs,trainjobs,trainingruntimes")

Object = dict[str, Any]

_SAMPLES = "manifests/samples"
_EXAMPLE = f"{_SAMPLES}/example-job.yaml"
_STANDALONE = "manifests/overlays/standalone"
_TORCH = f"{_SAMPLES}/trainjob-torch.yaml"


@dataclass(frozen=True, slots=True)
class Page:
    """`given` are manifests or folders that were applied, `replaced` has the values for the reader's placeholders.

    `log` is the log of every pod; the replicas of `fails_once` have failed once and were restarted.
    """

    given: tuple[str, ...] = ()
    replaced: Mapping[str, str] = field(default_factory=dict)
    log: str = ""
    fails_once: tuple[str, ...] = ()


# A log line of the programs, by the same renderer.
_LINE_OF_A_SYNC = f"{JSONRenderer()(None, '', {'event': 'synced', 'key': 'default/example-job'})!s}\n"

PAGES: Mapping[str, Page] = {
    "README.md": Page((_EXAMPLE, _TORCH, f"{_SAMPLES}/gang-job.yaml")),
    "docs/autoscaling.md": Page((_STANDALONE,)),
    "docs/kubectl.md": Page(replaced={"--timeout 2h": "--timeout 1s"}, fails_once=("worker-1",)),
    "docs/monitoring.md": Page((_STANDALONE,), log=_LINE_OF_A_SYNC),
    # Unchanged, the command would simulate a hundred jobs ten times.
    "docs/simulator.md": Page(replaced={"--mean-arrival=2m": "--mean-arrival=2m --jobs=6 --seeds=2"}),
    "docs/tfjob.md": Page((_EXAMPLE,)),
    "docs/trainjob.md": Page(replaced={" NAME": " first"}),
    "docs/troubleshooting.md": Page((_EXAMPLE,), {" train": " example-job"}),
    "docs/training-metrics.md": Page((_TORCH,), {" NAME": " trainjob-torch"}),
}


def page_of(path: str) -> Page:
    return PAGES.get(path, Page())


@dataclass(slots=True)
class Stage:
    """`page` is the one that is being read."""

    cluster: Cluster
    kubectl: Kubectl
    kubelets: tuple[Kubelet, ...]
    page: Page = field(default_factory=Page)

    @contextlib.contextmanager
    def reading(self, page: Page) -> Iterator[None]:
        """Creates the preconditions of the page; afterwards deletes what its commands have created."""
        before = {path: _names(self.cluster.api, path) for path in (_NAMESPACES, *_CLUSTER_WIDE)}
        self.page = page
        for each in self.kubelets:
            each.every_log = page.log
        for given in page.given:
            self._apply(MANIFESTS.parent / given)
        try:
            # Each page has a controller of its own, since some pages delete its kinds.
            with running_controller(self.cluster.kubeconfig, "", leader_elect=True):
                yield
        finally:
            self._restore(before)

    def behaviour(self, pod: Object, attempt: int) -> Outcome:
        """Every pod runs, except those that should fail once on this page."""
        replica = replica_id_of(pod["metadata"].get("labels", {}))
        fails = replica in self.page.fails_once and attempt == 0
        return Outcome(after_seconds=0.1, exit_code=137) if fails else Outcome()

    def _apply(self, path: Path) -> None:
        """Applies a manifest, or a folder: an overlay, which sets its namespace itself."""
        if path.is_dir():
            replace(self.kubectl, namespace=SYSTEM).must("apply", "-k", str(path))
        else:
            self.kubectl.must("apply", "-f", str(path))

    def _restore(self, before: dict[str, set[str]]) -> None:
        api = self.cluster.api
        install_kinds(self.kubectl, api)
        clear_jobs(api)
        made = {path: sorted(_names(api, path) - names) for path, names in before.items()}
        for path, names in made.items():
            for name in names:
                api.delete(f"{path}/{name}")
        self.kubectl.must("delete", "configmaps,services,persistentvolumeclaims", "--all", "--wait=false")
        eventually(lambda: not _names(api, _NAMESPACES) & set(made[_NAMESPACES]), PATIENCE_SECONDS, 0.05)
        until(self._remaining_pods, lambda pods: not pods, PATIENCE_SECONDS, 0.2)

    def _remaining_pods(self) -> list[Object]:
        """Deletes the pods that are left, and their owners, since a write may come late; returns those that remain."""
        clear_jobs(self.cluster.api)
        return [{**pod["metadata"], "managedFields": None} for pod in self.cluster.api.list("/api/v1/pods")]


def install_kinds(kubectl: Kubectl, api: Api) -> None:
    """Installs the CRDs and the built-in runtimes if one of them is missing; returns when they are served."""
    if kubectl.run("get", "clustertrainingruntimes", "torch-distributed").code or kubectl.run(*_LOOK).code:
        install_crds(api)
        kubectl.must("apply", "-k", str(MANIFESTS / "base" / "runtimes"))


@contextlib.contextmanager
def running_stage(plane: Cluster, scratch: Path, certificate: tuple[Path, Path]) -> Iterator[Stage]:
    api = plane.api
    clear_jobs(api)
    clear_nodes(api)
    kubectl = Kubectl(plane.kubeconfig, scratch / "cache")
    install_kinds(kubectl, api)
    install_monitoring_crds(api)
    with contextlib.ExitStack() as stack:
        kubelets = tuple(stack.enter_context(Kubelet(api, name, certificate)) for name in NODES)
        stage = Stage(plane, kubectl, kubelets)
        own = Api.from_kubeconfig(plane.kubeconfig)
        stack.enter_context(FakeKubelet(own, nodes=NODES, resources=RESOURCES, behaviour=stage.behaviour))
        for name in NODES:
            api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": None, "taints": None}})
        yield stage


def _names(api: Api, path: str) -> set[str]:
    return {each["metadata"]["name"] for each in api.list(path)}
