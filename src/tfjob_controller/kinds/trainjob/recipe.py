"""A TrainJob with everything that it refers to, and its setting for the framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tfjob_controller.api.controllerconfig import ControllerConfig
from tfjob_controller.api.trainjob.defaults import bounds_of, num_proc_per_node_of, present_nodes_of
from tfjob_controller.api.trainjob.runtime import RuntimeSpec
from tfjob_controller.api.trainjob.types import TrainJob
from tfjob_controller.jobs.frameworks.base import NODE, ElasticSetting, Framework, Setting
from tfjob_controller.jobs.naming import child_name, gang_name, runtime_id_of
from tfjob_controller.jobs.plan.gangterms import NO_GANGS, GangPolicy
from tfjob_controller.jobs.plan.model import UnplannableError
from tfjob_controller.jobs.podtemplate.progressreport import ProgressServer
from tfjob_controller.kinds.trainjob.podtemplate import node_resources


@dataclass(frozen=True, slots=True)
class Recipe:
    """A *valid* job with everything that it refers to. `runtime` is None if the job has none."""

    job: TrainJob
    framework: Framework
    runtime: RuntimeSpec | None
    config: ControllerConfig
    gangs: GangPolicy = NO_GANGS
    restart_rules: bool = False
    # None if programs cannot report progress.
    progress_server: ProgressServer | None = None

    @property
    def runtime_id(self) -> str:
        return runtime_id_of(self.job.metadata.uid)

    @property
    def setting(self) -> Setting:
        spec = self.job.spec
        count = present_nodes_of(self.job, self.runtime)
        accelerators, cpus = self._node_resources()
        return Setting(
            job_name=self.job.metadata.name,
            num_nodes=count,
            nodes=tuple(self._address(index) for index in range(count)),
            num_proc_per_node=str(num_proc_per_node_of(spec, self.runtime)),
            gpus=sum(accelerators.values()),
            cpus=cpus,
            accelerators=tuple(accelerators),
            elastic=self._elastic,
        )

    @property
    def _elastic(self) -> ElasticSetting | None:
        bounds = bounds_of(self.job.spec)
        if bounds is None:
            return None
        return ElasticSetting(*bounds, self.job.metadata.uid, self.name(NODE, 0))

    def _node_resources(self) -> tuple[dict[str, int], float]:
        try:
            return node_resources(self.job.spec, self.base_of(NODE), self.config.accelerators)
        # The CRD does not validate the templates of a runtime.
        except ValueError as error:
            raise UnplannableError(f"the pods of {NODE}: {error}") from error

    def name(self, role: str, index: int) -> str:
        return child_name(self.job.metadata.name, role, self.runtime_id, index)

    def _address(self, index: int) -> str:
        """Returns the DNS name of a node's pod in the Service of all nodes."""
        return f"{self.name(NODE, index)}.{self.service_name}" if self.framework.port else self.name(NODE, index)

    @property
    def service_name(self) -> str:
        return gang_name(self.job.metadata.name, self.runtime_id)

    def base_of(self, role: str) -> Mapping[str, Any]:
        return (self.runtime.templates.get(role) or {}) if self.runtime is not None else {}
