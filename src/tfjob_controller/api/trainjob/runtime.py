"""TrainingRuntime and ClusterTrainingRuntime `kubeflow.org/v2alpha1` as data: what many TrainJobs share.

Both have the same spec. A TrainJob takes from its runtime what it leaves out; manifests/base/runtimes has the built-in
runtimes.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from tfjob_controller.api.common.schema import A_FRAMEWORK, A_NAME, describe
from tfjob_controller.api.decode import decoder_of
from tfjob_controller.api.trainjob.types import API_GROUP, CLUSTER_RUNTIME, MAX_NODES, NAMESPACED_RUNTIME
from tfjob_controller.kube.meta import ObjectMeta, Resource


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all values here; unknown fields are dropped on decoding."""


class VolumeClaim(_Value, frozen=True):
    """A PersistentVolumeClaim in the job's namespace."""

    claim_name: Annotated[str, describe("The claim's name.", minLength=1, **A_NAME)]


class Workspace(_Value, frozen=True):
    """The volume at /workspace."""

    persistent_volume_claim: Annotated[
        VolumeClaim,
        describe("A claim in the job's namespace that all its pods can mount at once. Each job has its own directory."),
    ]


class RuntimeSpec(_Value, frozen=True):
    """The settings that the jobs of a runtime share."""

    framework: Annotated[
        str,
        describe(
            "The framework, which determines how the nodes find each other: torch, tensorflow, jax, xgboost, mpi, "
            "plain (not at all), or an added one. Default: the job's.",
            **A_FRAMEWORK,
        ),
    ] = ""
    num_nodes: Annotated[
        int | None,
        describe("The default number of nodes of a job.", format="int32", minimum=1, maximum=MAX_NODES),
    ] = None
    num_proc_per_node: Annotated[
        int | str | None,
        describe("The default number of training processes on each node: auto, cpu, gpu or a number. Default: auto."),
    ] = None
    templates: Annotated[
        dict[str, dict[str, Any]],
        describe(
            "The PodTemplateSpecs of the steps: node, launcher, dataset-initializer, model-initializer and "
            "model-exporter. The container with the name of the step runs its program."
        ),
    ] = {}
    workspace: Annotated[
        Workspace | None,
        describe(
            "The volume at /workspace, which initializers and nodes share. Default: none; each node then fetches "
            "dataset and model itself."
        ),
    ] = None


class TrainingRuntime(_Value, frozen=True):
    """One runtime, of either kind: a ClusterTrainingRuntime has no namespace.

    `invalid` is not on the wire: the reason why the object cannot be decoded; the spec is then empty.
    """

    metadata: ObjectMeta
    spec: Annotated[RuntimeSpec, describe("The settings that the jobs of the runtime share.")] = RuntimeSpec()
    invalid: str = msgspec.field(name="_invalid", default="")


# For both kinds of runtimes.
_decode = decoder_of(TrainingRuntime)
TRAINING_RUNTIMES = Resource(API_GROUP, "v2alpha1", "trainingruntimes", NAMESPACED_RUNTIME, _decode)
CLUSTER_TRAINING_RUNTIMES = Resource(
    API_GROUP, "v2alpha1", "clustertrainingruntimes", CLUSTER_RUNTIME, _decode, namespaced=False
)
