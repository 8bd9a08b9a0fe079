"""A job of Kubeflow Trainer with the runtime that it references: its framework, its nodes, and their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfjob_controller.api.common.accelerators import accelerators_in
from tfjob_controller.api.common.quantity import CPU, milli_of
from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.api.kubeflowtrainer.runtime import NODE, TRAINER, KubeflowRuntimeSpec, ReplicatedJob
from tfjob_controller.api.kubeflowtrainer.types import KubeflowTrainJob
from tfjob_controller.api.kubeflowtrainer.validation import ancestor_of
from tfjob_controller.jobs.frameworks import mpi
from tfjob_controller.jobs.frameworks.base import Framework, Setting
from tfjob_controller.jobs.frameworks.environment import JAX, PLAIN, TORCH, XGBOOST
from tfjob_controller.jobs.naming import runtime_id_of
from tfjob_controller.jobs.plan.gangterms import NO_GANGS, GangPolicy
from tfjob_controller.jobs.plan.model import UnplannableError
from tfjob_controller.jobs.podtemplate.merge import Part, container_of, spec_of
from tfjob_controller.jobs.podtemplate.progressreport import ProgressServer
from tfjob_controller.kinds.kubeflowtrainer.torchtune import ENTRYPOINT

# The variables that upstream sets, by framework. The frameworks set some more for jobs of this project's own kind.
TORCH_VARIABLES = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")
JAX_VARIABLES = ("JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_ADDRESS")
# Upstream refuses jobs that set variables of these frameworks themselves.
RESERVED: Mapping[str, frozenset[str]] = {
    TORCH.name: frozenset(TORCH_VARIABLES),
    XGBOOST.name: XGBOOST.reserved,
    mpi.FRAMEWORK.name: mpi.FRAMEWORK.reserved,
}
VARIABLES: Mapping[str, frozenset[str]] = {**RESERVED, JAX.name: frozenset(JAX_VARIABLES), PLAIN.name: frozenset()}


@dataclass(frozen=True, slots=True)
class KubeflowRecipe:
    """A *valid* job with its valid runtime.

    `started_nodes` is the number of nodes that the job was started with, whatever its runtime has now; 0 before that.
    """

    job: KubeflowTrainJob
    runtime: KubeflowRuntimeSpec
    config: ControllerConfig
    gangs: GangPolicy = NO_GANGS
    restart_rules: bool = False
    started_nodes: int = 0
    # None if programs cannot report progress.
    progress_server: ProgressServer | None = None

    @property
    def name(self) -> str:
        return self.job.metadata.name

    @property
    def runtime_id(self) -> str:
        return runtime_id_of(self.job.metadata.uid)

    @property
    def framework(self) -> Framework:
        policy = self.runtime.ml_policy
        given: tuple[tuple[Framework, object], ...] = (
            (TORCH, policy.torch),
            (mpi.FRAMEWORK, policy.mpi),
            (JAX, policy.jax),
            (XGBOOST, policy.xgboost),
        )
        return next((framework for framework, section in given if section is not None), PLAIN)

    @property
    def is_tuning(self) -> bool:
        """Reports whether the nodes run torchtune, whose recipe and config the controller chooses."""
        return self.framework is TORCH and self.job.spec.trainer.command == ENTRYPOINT

    @property
    def jobs(self) -> tuple[ReplicatedJob, ...]:
        return self.runtime.template.spec.replicated_jobs

    @property
    def nodes(self) -> ReplicatedJob:
        """The job whose pods are the training nodes."""
        if self.runtime.ml_policy.mpi is not None:
            return next(job for job in self.jobs if job.name == NODE)
        return next(job for job in self.jobs if ancestor_of(job) == TRAINER)

    @property
    def subdomain(self) -> str:
        """The name of the Service of all pods."""
        return self.runtime.template.spec.network.subdomain or self.name

    @property
    def num_nodes(self) -> int:
        """The number of pods of the training nodes, without an MPI launcher that is a node as well."""
        if self.started_nodes:
            return self.started_nodes
        policy = self.runtime.ml_policy
        count = self.job.spec.trainer.num_nodes or policy.num_nodes or self.nodes.template.spec.get("parallelism") or 1
        return max(count - 1, 1) if policy.mpi is not None and policy.mpi.run_launcher_as_node else count

    def job_name(self, job: str) -> str:
        """The name of a replicated job's Job, as JobSet names it."""
        return f"{self.name}-{job}-0"

    def host(self, job: str, index: int) -> str:
        return f"{self.job_name(job)}-{index}.{self.subdomain}"

    @property
    def setting(self) -> Setting:
        count = self.num_nodes
        accelerators, cpus = _node_resources(self)
        return Setting(
            job_name=self.name,
            num_nodes=count,
            nodes=tuple(self.host(self.nodes.name, index) for index in range(count)),
            num_proc_per_node=_processes(self),
            gpus=sum(accelerators.values()),
            cpus=cpus,
            accelerators=tuple(accelerators),
        )


def _processes(recipe: KubeflowRecipe) -> str:
    """Returns the number of processes per node: the job's, else the runtime's; frameworks without it get none."""
    policy, given = recipe.runtime.ml_policy, recipe.job.spec.trainer.num_proc_per_node
    if policy.torch is not None:
        return str(given or policy.torch.num_proc_per_node or "")
    if policy.mpi is not None:
        # The default of 1 stands for the number of GPUs.
        of_runtime = policy.mpi.num_proc_per_node
        return str(given or (of_runtime if of_runtime not in (None, 1) else ""))
    return ""


def _node_resources(recipe: KubeflowRecipe) -> tuple[dict[str, int], float]:
    """Returns accelerators and CPUs of a node: what the job requests, or else the runtime, as upstream reads them."""
    wanted = recipe.job.spec.trainer.resources_per_node
    pod_spec = spec_of(recipe.nodes.template.spec["template"])
    own: Part = (container_of(pod_spec, NODE) or {}).get("resources") or {}
    requests = wanted.requests if wanted is not None else own.get("requests") or {}
    limits = wanted.limits if wanted is not None else own.get("limits") or {}
    try:
        configured = recipe.config.accelerators
        accelerators = accelerators_in(requests, configured) or accelerators_in(limits, configured)
        cpus = _milli(requests.get(CPU)) or _milli(limits.get(CPU))
    # The CRD does not validate the templates of a runtime.
    except ValueError as error:
        raise UnplannableError(f"the pods of {recipe.nodes.name}: {error}") from error
    return accelerators, cpus / 1000


def _milli(quantity: object) -> int:
    return milli_of(str(quantity)) if quantity is not None else 0
