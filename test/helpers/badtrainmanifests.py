"""Invalid TrainJobs and runtimes, with the errors of the API server and of the controller for each.

One table for both, as for TFJobs: test_train_crd.py applies each with kubectl, api/trainjob/test_validation.py decodes and
validates each.
"""
# ruff: noqa: E501  the sentences stand here as they are said, each on one line

from __future__ import annotations

from helpers.badmanifests import SKIPPED, Bad
from helpers.trainmanifests import Manifest, override, role_template, runtime, trainjob


def _mounted(kind: str, container: str, path: str) -> Manifest:
    """Returns an override that mounts a volume at a path."""
    return override(**{kind: [{"name": container, "volumeMounts": [{"name": "v", "mountPath": path}]}]})


BAD_TRAINJOBS = (
    Bad(
        "no-nodes",
        trainjob(nodes=0),
        "spec.numNodes: must be from 1 to 5000, is 0",
        ("spec.numNodes: Invalid value: 0: spec.numNodes in body should be greater than or equal to 1",),
    ),
    Bad(
        "too-many-nodes",
        trainjob(nodes=5001),
        "spec.numNodes: must be from 1 to 5000, is 5001",
        ("spec.numNodes: Invalid value: 5001: spec.numNodes in body should be less than or equal to 5000",),
    ),
    Bad(
        "nodes-as-text",
        trainjob(nodes="2"),
        "spec.numNodes: expected int, got str",
        (
            'spec.numNodes: Invalid value: "string": spec.numNodes in body must be of type integer: "string"',
            # Of the scale subresource.
            ".spec.numNodes: Invalid value: 0: .spec.numNodes accessor error: 2 is of the type string, expected int64",
            SKIPPED,
        ),
    ),
    Bad(
        "nodes-twice",
        trainjob(nodes=2, trainer={"numNodes": 3}),
        "spec: numNodes and trainer.numNodes say different things: leave one of them out",
        ("spec: Invalid value: numNodes and trainer.numNodes say different things: leave one of them out",),
    ),
    Bad(
        "elastic-bounds-crossed",
        trainjob(elasticPolicy={"minNodes": 3, "maxNodes": 2}),
        "spec.elasticPolicy: minNodes must not be more than maxNodes: lower it, or raise maxNodes",
        ("spec.elasticPolicy: Invalid value: minNodes must not be more than maxNodes: lower it, or raise maxNodes",),
    ),
    Bad(
        "elastic-without-a-maximum",
        trainjob(elasticPolicy={"minNodes": 3}),
        "spec.elasticPolicy: object missing required field maxNodes",
        ("spec.elasticPolicy.maxNodes: Required value", SKIPPED),
    ),
    Bad(
        "elastic-up-to-too-many",
        trainjob(elasticPolicy={"minNodes": 1, "maxNodes": 5001}),
        "spec.elasticPolicy.maxNodes: must be from 1 to 5000, is 5001",
        (
            "spec.elasticPolicy.maxNodes: Invalid value: 5001: spec.elasticPolicy.maxNodes in body should be less than or equal to 5000",
        ),
    ),
    Bad(
        "elastic-outside-of-its-bounds",
        trainjob(nodes=5, elasticPolicy={"minNodes": 1, "maxNodes": 4}),
        "spec: numNodes must be from elasticPolicy.minNodes to maxNodes: ask for as many, or widen elasticPolicy",
        (
            "spec: Invalid value: numNodes must be from elasticPolicy.minNodes to maxNodes: ask for as many, or widen elasticPolicy",
        ),
    ),
    Bad(
        "elastic-under-another-name",
        trainjob(nodes=None, trainer={"numNodes": 2}, elasticPolicy={"minNodes": 1, "maxNodes": 4}),
        "spec: trainer.numNodes cannot be resized: in a job with elasticPolicy set numNodes instead",
        ("spec: Invalid value: trainer.numNodes cannot be resized: in a job with elasticPolicy set numNodes instead",),
    ),
    Bad(
        "elastic-of-another-framework",
        trainjob(framework="jax", elasticPolicy={"minNodes": 1, "maxNodes": 4}),
        "spec: elasticPolicy is for framework torch only, since programs of others must know all nodes from the start: leave it out, or use torch",
        (
            "spec: Invalid value: elasticPolicy is for framework torch only, since programs of others must know all nodes from the start: leave it out, or use torch",
        ),
    ),
    Bad(
        "trainer-without-nodes",
        trainjob(nodes=None, trainer={"numNodes": 0}),
        "spec.trainer.numNodes: must be from 1 to 5000, is 0",
        (
            "spec.trainer.numNodes: Invalid value: 0: spec.trainer.numNodes in body should be greater than or equal to 1",
        ),
    ),
    Bad(
        "command-as-text",
        trainjob(trainer={"command": "torchrun train.py"}),
        "spec.trainer.command: expected array, got str",
        (
            'spec.trainer.command: Invalid value: "string": spec.trainer.command in body must be of type array: "string"',
            SKIPPED,
        ),
    ),
    Bad(
        "command-with-a-number",
        trainjob(trainer={"command": ["train", 1]}),
        "spec.trainer.command[1]: expected str, got int",
        (
            'spec.trainer.command[1]: Invalid value: "integer": spec.trainer.command[1] in body must be of type string: "integer"',
            SKIPPED,
        ),
    ),
    Bad(
        "args-as-text",
        trainjob(trainer={"args": "--epochs=3"}),
        "spec.trainer.args: expected array, got str",
        (
            'spec.trainer.args: Invalid value: "string": spec.trainer.args in body must be of type array: "string"',
            SKIPPED,
        ),
    ),
    Bad(
        "env-of-torch",
        trainjob(trainer={"env": [{"name": "A", "value": "b"}, {"name": "PET_NNODES", "value": "2"}]}),
        "spec.trainer.env[1]: PET_NNODES is set by the controller: leave it out",
        ("spec.trainer.env[1]: Forbidden: PET_NNODES is set by the controller: leave it out",),
    ),
    Bad(
        "env-of-tensorflow",
        trainjob(trainer={"env": [{"name": "TF_CONFIG", "value": "{}"}]}),
        "spec.trainer.env[0]: TF_CONFIG is set by the controller: leave it out",
        ("spec.trainer.env[0]: Forbidden: TF_CONFIG is set by the controller: leave it out",),
    ),
    Bad(
        "env-of-mpi",
        trainjob(trainer={"env": [{"name": "OMPI_MCA_plm_rsh_args"}]}),
        "spec.trainer.env[0]: OMPI_MCA_plm_rsh_args is set by the controller: leave it out",
        ("spec.trainer.env[0]: Forbidden: OMPI_MCA_plm_rsh_args is set by the controller: leave it out",),
    ),
    Bad(
        "env-of-jax-in-an-override",
        trainjob(
            podSpecOverrides=[override(containers=[{"name": "node", "env": [{"name": "PROCESS_ID", "value": "0"}]}])]
        ),
        "spec.podSpecOverrides[0].containers[0].env[0]: PROCESS_ID is set by the controller: leave it out",
        (
            "spec.podSpecOverrides[0].containers[0].env[0]: Forbidden: PROCESS_ID is set by the controller: leave it out",
        ),
    ),
    Bad(
        "env-with-a-number",
        trainjob(trainer={"env": [{"name": "A", "value": 1}]}),
        "spec.trainer.env[0].value: must be text: put it in quotation marks",
        (
            'spec.trainer.env[0].value: Invalid value: "integer": spec.trainer.env[0].value in body must be of type string: "integer"',
            SKIPPED,
        ),
    ),
    Bad(
        "env-without-a-name",
        trainjob(trainer={"env": [{"value": "1"}]}),
        "spec.trainer.env[0].name: is required, as text",
        (
            "spec.trainer.env[0].name: Required value",
            SKIPPED,
        ),
    ),
    Bad(
        "env-twice",
        trainjob(trainer={"env": [{"name": "A"}, {"name": "A"}]}),
        "spec.trainer.env[1].name: A is listed twice: leave one of them out",
        ('spec.trainer.env[1]: Duplicate value: {"name":"A"}',),
    ),
    Bad(
        "env-from-text",
        trainjob(trainer={"env": [{"name": "A", "valueFrom": "secret"}]}),
        "spec.trainer.env[0].valueFrom: expected an object",
        (
            'spec.trainer.env[0].valueFrom: Invalid value: "string": spec.trainer.env[0].valueFrom in body must be of type object: "string"',
            SKIPPED,
        ),
    ),
    Bad(
        "processes-as-text",
        trainjob(trainer={"numProcPerNode": "4"}),
        "spec.trainer.numProcPerNode: must be auto, cpu, gpu or a number from 1 to 1024",
        ('spec.trainer.numProcPerNode: Invalid value: "4": must be auto, cpu, gpu or a number from 1 to 1024',),
    ),
    Bad(
        "no-processes",
        trainjob(trainer={"numProcPerNode": 0}),
        "spec.trainer.numProcPerNode: must be auto, cpu, gpu or a number from 1 to 1024",
        ("spec.trainer.numProcPerNode: Invalid value: 0: must be auto, cpu, gpu or a number from 1 to 1024",),
    ),
    Bad(
        "half-a-process",
        trainjob(trainer={"numProcPerNode": 1.5}),
        "spec.trainer.numProcPerNode: expected int or str, got float",
        (
            'spec.trainer.numProcPerNode: Invalid value: "number": spec.trainer.numProcPerNode in body must be of type integer,string: "number"',
            SKIPPED,
        ),
    ),
    Bad(
        "no-quantity",
        trainjob(trainer={"resourcesPerNode": {"requests": {"cpu": "much"}}}),
        "spec.trainer.resourcesPerNode.requests.cpu: must be a quantity such as 500m, 2 or 16Gi, and not negative",
        (
            'spec.trainer.resourcesPerNode.requests[cpu]: Invalid value: "much": must be a quantity such as 500m, 2 or 16Gi, and not negative',
        ),
    ),
    Bad(
        "a-negative-quantity",
        trainjob(trainer={"resourcesPerNode": {"limits": {"cpu": -1}}}),
        "spec.trainer.resourcesPerNode.limits.cpu: must be a quantity such as 500m, 2 or 16Gi, and not negative",
        (
            "spec.trainer.resourcesPerNode.limits[cpu]: Invalid value: -1: must be a quantity such as 500m, 2 or 16Gi, and not negative",
        ),
    ),
    Bad(
        "a-negative-quantity-as-text",
        trainjob(trainer={"resourcesPerNode": {"limits": {"cpu": "-1"}}}),
        "spec.trainer.resourcesPerNode.limits.cpu: must be a quantity such as 500m, 2 or 16Gi, and not negative",
        (
            'spec.trainer.resourcesPerNode.limits[cpu]: Invalid value: "-1": must be a quantity such as 500m, 2 or 16Gi, and not negative',
        ),
    ),
    Bad(
        "an-unknown-scheme",
        trainjob(datasetConfig={"storageUri": "ftp://host/data"}),
        "spec.datasetConfig.storageUri: must begin with s3://, hf://, gs://, http://, https://, file:/// or pvc:// and say what is there",
        (
            "spec.datasetConfig.storageUri: Invalid value: must begin with s3://, hf://, gs://, http://, https://, file:/// or pvc:// and say what is there",
        ),
    ),
    Bad(
        "no-scheme",
        trainjob(datasetConfig={"storageUri": "/data"}),
        "spec.datasetConfig.storageUri: must begin with s3://, hf://, gs://, http://, https://, file:/// or pvc:// and say what is there",
        (
            "spec.datasetConfig.storageUri: Invalid value: must begin with s3://, hf://, gs://, http://, https://, file:/// or pvc:// and say what is there",
        ),
    ),
    Bad(
        "a-scheme-in-upper-case",
        trainjob(datasetConfig={"storageUri": "S3://bucket"}),
        "spec.datasetConfig.storageUri: must begin with s3://, hf://, gs://, http://, https://, file:/// or pvc:// and say what is there",
        (
            "spec.datasetConfig.storageUri: Invalid value: must begin with s3://, hf://, gs://, http://, https://, file:/// or pvc:// and say what is there",
        ),
    ),
    Bad(
        "a-scheme-alone",
        trainjob(datasetConfig={"storageUri": "s3://"}),
        "spec.datasetConfig.storageUri: must begin with s3://, hf://, gs://, http://, https://, file:/// or pvc:// and say what is there",
        (
            "spec.datasetConfig.storageUri: Invalid value: must begin with s3://, hf://, gs://, http://, https://, file:/// or pvc:// and say what is there",
        ),
    ),
    Bad(
        "a-file-without-a-path",
        trainjob(datasetConfig={"storageUri": "file://data"}),
        "spec.datasetConfig.storageUri: must begin with s3://, hf://, gs://, http://, https://, file:/// or pvc:// and say what is there",
        (
            "spec.datasetConfig.storageUri: Invalid value: must begin with s3://, hf://, gs://, http://, https://, file:/// or pvc:// and say what is there",
        ),
    ),
    Bad(
        "a-dataset-without-uri",
        trainjob(datasetConfig={}),
        "spec.datasetConfig: object missing required field storageUri",
        (
            "spec.datasetConfig.storageUri: Required value",
            SKIPPED,
        ),
    ),
    Bad(
        "a-dataset-with-an-empty-uri",
        trainjob(datasetConfig={"storageUri": ""}),
        "spec.datasetConfig.storageUri: must not be empty",
        (
            'spec.datasetConfig.storageUri: Invalid value: "": spec.datasetConfig.storageUri in body should be at least 1 chars long',
            "spec.datasetConfig.storageUri: Invalid value: must begin with s3://, hf://, gs://, http://, https://, file:/// or pvc:// and say what is there",
        ),
    ),
    Bad(
        "a-password-in-a-uri",
        trainjob(datasetConfig={"storageUri": "s3://key:secret@bucket/data"}),
        "spec.datasetConfig.storageUri: must not hold a user or password: put them into a Secret and name that in secretRef",
        (
            "spec.datasetConfig.storageUri: Invalid value: must not hold a user or password: put them into a Secret and name that in secretRef",
        ),
    ),
    Bad(
        "a-model-without-uri",
        trainjob(modelConfig={"input": {}}),
        "spec.modelConfig.input: storageUri is required (or config, its other name)",
        ("spec.modelConfig.input: Required value: storageUri is required (or config, its other name)",),
    ),
    Bad(
        "a-model-with-two-uris",
        trainjob(modelConfig={"input": {"config": "hf://a/b", "storageUri": "hf://a/c"}}),
        "spec.modelConfig.input: config and storageUri say different things: leave one of them out",
        ("spec.modelConfig.input: Invalid value: config and storageUri say different things: leave one of them out",),
    ),
    Bad(
        "a-model-of-an-unknown-scheme",
        trainjob(modelConfig={"input": {"config": "llama"}}),
        "spec.modelConfig.input.config: must begin with s3://, hf://, gs://, http://, https://, file:/// or pvc:// and say what is there",
        (
            "spec.modelConfig.input.config: Invalid value: must begin with s3://, hf://, gs://, http://, https://, file:/// or pvc:// and say what is there",
        ),
    ),
    Bad(
        "a-password-in-config",
        trainjob(modelConfig={"input": {"config": "https://me:secret@host/model"}}),
        "spec.modelConfig.input.config: must not hold a user or password: put them into a Secret and name that in secretRef",
        (
            "spec.modelConfig.input.config: Invalid value: must not hold a user or password: put them into a Secret and name that in secretRef",
        ),
    ),
    Bad(
        "a-model-put-to-a-web-server",
        trainjob(modelConfig={"output": {"storageUri": "https://host/model"}}),
        "spec.modelConfig.output.storageUri: must begin with s3://, hf://, gs://, file:/// or pvc:// and say where there",
        (
            "spec.modelConfig.output.storageUri: Invalid value: must begin with s3://, hf://, gs://, file:/// or pvc:// and say where there",
        ),
    ),
    Bad(
        "a-password-in-the-output",
        trainjob(modelConfig={"output": {"storageUri": "s3://key:secret@bucket"}}),
        "spec.modelConfig.output.storageUri: must not hold a user or password: put them into a Secret and name that in secretRef",
        (
            "spec.modelConfig.output.storageUri: Invalid value: must not hold a user or password: put them into a Secret and name that in secretRef",
        ),
    ),
    Bad(
        "an-output-without-uri",
        trainjob(modelConfig={"output": {}}),
        "spec.modelConfig.output: object missing required field storageUri",
        (
            "spec.modelConfig.output.storageUri: Required value",
            SKIPPED,
        ),
    ),
    Bad(
        "a-secret-whose-name-cannot-be",
        trainjob(datasetConfig={"storageUri": "s3://a", "secretRef": {"name": "My Secret"}}),
        "spec.datasetConfig.secretRef.name: must be of lower-case letters, digits, - and . and begin and end with a letter or digit",
        (
            'spec.datasetConfig.secretRef.name: Invalid value: "My Secret": must be of lower-case letters, digits, - and . and begin and end with a letter or digit',
        ),
    ),
    Bad(
        "a-secret-without-a-name",
        trainjob(datasetConfig={"storageUri": "s3://a", "secretRef": {}}),
        "spec.datasetConfig.secretRef: object missing required field name",
        (
            "spec.datasetConfig.secretRef.name: Required value",
            SKIPPED,
        ),
    ),
    Bad(
        "a-secret-as-text",
        trainjob(modelConfig={"output": {"storageUri": "s3://a", "secretRef": "keys"}}),
        "spec.modelConfig.output.secretRef: expected object, got str",
        (
            'spec.modelConfig.output.secretRef: Invalid value: "string": spec.modelConfig.output.secretRef in body must be of type object: "string"',
            SKIPPED,
        ),
    ),
    Bad(
        "a-runtime-of-another-kind",
        trainjob(runtimeRef={"name": "x", "kind": "Runtime"}),
        "spec.runtimeRef.kind: must be one of TrainingRuntime, ClusterTrainingRuntime, is Runtime",
        (
            'spec.runtimeRef.kind: Unsupported value: "Runtime": supported values: "TrainingRuntime", "ClusterTrainingRuntime"',
            SKIPPED,
        ),
    ),
    Bad(
        "a-runtime-of-another-group",
        trainjob(runtimeRef={"name": "x", "apiGroup": "trainer.kubeflow.org"}),
        "spec.runtimeRef.apiGroup: must be one of kubeflow.org, is trainer.kubeflow.org",
        (
            'spec.runtimeRef.apiGroup: Unsupported value: "trainer.kubeflow.org": supported values: "kubeflow.org"',
            SKIPPED,
        ),
    ),
    Bad(
        "a-runtime-without-a-name",
        trainjob(runtimeRef={}),
        "spec.runtimeRef: object missing required field name",
        (
            "spec.runtimeRef.name: Required value",
            SKIPPED,
        ),
    ),
    Bad(
        "a-framework-in-upper-case",
        trainjob(framework="PyTorch"),
        "spec.framework: must be of lower-case letters, digits and -, begin with a letter and not end with -",
        (
            'spec.framework: Invalid value: "PyTorch": must be of lower-case letters, digits and -, begin with a letter and not end with -',
        ),
    ),
    Bad(
        "checkpoints-on-a-web-server",
        trainjob(checkpoint={"storageUri": "https://host/a"}),
        "spec.checkpoint.storageUri: must begin with s3://, hf://, gs://, file:/// or pvc:// and say where there",
        (
            "spec.checkpoint.storageUri: Invalid value: must begin with s3://, hf://, gs://, file:/// or pvc:// and say where there",
        ),
    ),
    Bad(
        "checkpoints-nowhere",
        trainjob(checkpoint={"keep": 2}),
        "spec.checkpoint: object missing required field storageUri",
        (
            "spec.checkpoint.storageUri: Required value",
            SKIPPED,
        ),
    ),
    Bad(
        "checkpoints-in-a-relative-folder",
        trainjob(checkpoint={"storageUri": "s3://a", "path": "checkpoints"}),
        "spec.checkpoint.path: must be an absolute path, such as /workspace/checkpoints",
        (
            'spec.checkpoint.path: Invalid value: "checkpoints": must be an absolute path, such as /workspace/checkpoints',
        ),
    ),
    Bad(
        "checkpoints-above-their-folder",
        trainjob(checkpoint={"storageUri": "s3://a", "path": "/a/../etc"}),
        "spec.checkpoint.path: must be an absolute path, such as /workspace/checkpoints",
        ('spec.checkpoint.path: Invalid value: "/a/../etc": must be an absolute path, such as /workspace/checkpoints',),
    ),
    Bad(
        "no-checkpoint-is-kept",
        trainjob(checkpoint={"storageUri": "s3://a", "keep": 0}),
        "spec.checkpoint.keep: must be from 1 to 1000, is 0",
        ("spec.checkpoint.keep: Invalid value: 0: spec.checkpoint.keep in body should be greater than or equal to 1",),
    ),
    Bad(
        "a-bandwidth-without-a-number",
        trainjob(checkpoint={"storageUri": "s3://a", "maxBandwidth": "fast"}),
        "spec.checkpoint.maxBandwidth: must be a number of bytes per second, such as 50M",
        ('spec.checkpoint.maxBandwidth: Invalid value: "fast": must be a number of bytes per second, such as 50M',),
    ),
    Bad(
        "manager-without-a-domain",
        trainjob(managedBy="me"),
        "spec.managedBy: must be a name with a domain in front, such as kueue.x-k8s.io/multikueue",
        (
            'spec.managedBy: Invalid value: "me": must be a name with a domain in front, such as kueue.x-k8s.io/multikueue',
        ),
    ),
    Bad(
        "a-negative-time-to-live",
        trainjob(ttlSecondsAfterFinished=-1),
        "spec.ttlSecondsAfterFinished: must be from 0 to 2147483647, is -1",
        (
            "spec.ttlSecondsAfterFinished: Invalid value: -1: spec.ttlSecondsAfterFinished in body should be greater than or equal to 0",
        ),
    ),
    Bad(
        "a-negative-deadline",
        trainjob(activeDeadlineSeconds=-1),
        "spec.activeDeadlineSeconds: must be from 0 to 2147483647, is -1",
        (
            "spec.activeDeadlineSeconds: Invalid value: -1: spec.activeDeadlineSeconds in body should be greater than or equal to 0",
        ),
    ),
    Bad(
        "negative-restarts",
        trainjob(maxRestarts=-1),
        "spec.maxRestarts: must be from 0 to 2147483647, is -1",
        ("spec.maxRestarts: Invalid value: -1: spec.maxRestarts in body should be greater than or equal to 0",),
    ),
    Bad(
        "too-many-metrics",
        trainjob(metrics={"names": [f"metric{each}" for each in range(21)]}),
        "spec.metrics.names: must have at most 20 entries, has 21",
        (
            "spec.metrics.names: Too many: 21: must have at most 20 items",
            SKIPPED,
        ),
    ),
    Bad(
        "a-metric-with-a-space",
        trainjob(metrics={"names": ["a b"]}),
        "spec.metrics.names[0]: must be of letters, digits, _, ., / and -, begin with a letter or _, and have at most 63 characters",
        (
            'spec.metrics.names[0]: Invalid value: "a b": must be of letters, digits, _, ., / and -, begin with a letter or _, and have at most 63 characters',
        ),
    ),
    Bad(
        "a-metric-twice",
        trainjob(metrics={"names": ["loss", "loss"]}),
        "spec.metrics.names[1]: loss is listed twice: leave one of them out",
        ('spec.metrics.names[1]: Duplicate value: "loss"',),
    ),
    Bad(
        "a-label-with-a-space",
        trainjob(labels={"team": "my team"}),
        "spec.labels.team: must be of at most 63 letters, digits, -, _ and . and begin and end with a letter or digit",
        (
            'spec.labels[team]: Invalid value: "my team": must be of at most 63 letters, digits, -, _ and . and begin and end with a letter or digit',
        ),
    ),
    Bad(
        "a-label-with-a-number",
        trainjob(labels={"team": 1}),
        "spec.labels[...]: expected str, got int",
        (
            'spec.labels.team: Invalid value: "integer": spec.labels.team in body must be of type string: "integer"',
            SKIPPED,
        ),
    ),
    Bad(
        "an-unknown-on-timeout",
        trainjob(gang={"onTimeout": "Cry"}),
        "spec.gang.onTimeout: must be one of Wait, Fail, Suspend, is Cry",
        (
            'spec.gang.onTimeout: Unsupported value: "Cry": supported values: "Wait", "Fail", "Suspend"',
            SKIPPED,
        ),
    ),
    Bad(
        "no-time-for-the-gang",
        trainjob(gang={"timeoutSeconds": 0}),
        "spec.gang.timeoutSeconds: must be from 1 to 2147483647, is 0",
        (
            "spec.gang.timeoutSeconds: Invalid value: 0: spec.gang.timeoutSeconds in body should be greater than or equal to 1",
        ),
    ),
    Bad(
        "an-unknown-target",
        trainjob(podSpecOverrides=[override("worker")]),
        "spec.podSpecOverrides[0].targetJobs[0].name: must be one of node, launcher, dataset-initializer, model-initializer, model-exporter, is worker",
        (
            'spec.podSpecOverrides[0].targetJobs[0].name: Unsupported value: "worker": supported values: "node", "launcher", "dataset-initializer", "model-initializer", "model-exporter"',
            SKIPPED,
        ),
    ),
    Bad(
        "an-override-without-target",
        trainjob(podSpecOverrides=[{"nodeSelector": {"disk": "fast"}}]),
        "spec.podSpecOverrides[0]: object missing required field targetJobs",
        (
            "spec.podSpecOverrides[0].targetJobs: Required value",
            SKIPPED,
        ),
    ),
    Bad(
        "an-override-with-no-target",
        trainjob(podSpecOverrides=[{"targetJobs": []}]),
        "spec.podSpecOverrides[0].targetJobs: at least one entry is required",
        (
            "spec.podSpecOverrides[0].targetJobs: Invalid value: 0: spec.podSpecOverrides[0].targetJobs in body should have at least 1 items",
        ),
    ),
    Bad(
        "too-many-overrides",
        trainjob(podSpecOverrides=[override()] * 17),
        "spec.podSpecOverrides: must have at most 16 entries, has 17",
        (
            "spec.podSpecOverrides: Too many: 17: must have at most 16 items",
            SKIPPED,
        ),
    ),
    Bad(
        "a-volume-without-a-name",
        trainjob(podSpecOverrides=[override(volumes=[{"emptyDir": {}}])]),
        "spec.podSpecOverrides[0].volumes[0].name: is required, as text",
        (
            "spec.podSpecOverrides[0].volumes[0].name: Required value",
            SKIPPED,
        ),
    ),
    Bad(
        "a-mount-without-a-path",
        trainjob(podSpecOverrides=[override(containers=[{"name": "node", "volumeMounts": [{"name": "v"}]}])]),
        "spec.podSpecOverrides[0].containers[0].volumeMounts[0].mountPath: is required, as text",
        (
            "spec.podSpecOverrides[0].containers[0].volumeMounts[0].mountPath: Required value",
            SKIPPED,
        ),
    ),
    Bad(
        "a-container-without-a-name",
        trainjob(podSpecOverrides=[override(containers=[{}])]),
        "spec.podSpecOverrides[0].containers[0]: object missing required field name",
        (
            "spec.podSpecOverrides[0].containers[0].name: Required value",
            SKIPPED,
        ),
    ),
    Bad(
        "a-mount-over-the-dataset",
        trainjob(
            datasetConfig={"storageUri": "s3://a"},
            podSpecOverrides=[_mounted("containers", "node", "/workspace/dataset/")],
        ),
        "spec.podSpecOverrides: volumeMounts must not cover /workspace/dataset, where datasetConfig puts the dataset: mount it elsewhere",
        (
            "spec.podSpecOverrides: Forbidden: volumeMounts must not cover /workspace/dataset, where datasetConfig puts the dataset: mount it elsewhere",
        ),
    ),
    Bad(
        "a-mount-over-the-workspace",
        trainjob(
            modelConfig={"output": {"storageUri": "s3://a"}},
            podSpecOverrides=[_mounted("containers", "launcher", "/workspace")],
        ),
        "spec.podSpecOverrides: volumeMounts must not cover /workspace/model, which modelConfig is about: mount it elsewhere",
        (
            "spec.podSpecOverrides: Forbidden: volumeMounts must not cover /workspace/model, which modelConfig is about: mount it elsewhere",
        ),
    ),
    Bad(
        "a-mount-over-the-model",
        trainjob(
            modelConfig={}, podSpecOverrides=[_mounted("initContainers", "model-initializer", "/workspace/model")]
        ),
        "spec.podSpecOverrides: volumeMounts must not cover /workspace/model, which modelConfig is about: mount it elsewhere",
        (
            "spec.podSpecOverrides: Forbidden: volumeMounts must not cover /workspace/model, which modelConfig is about: mount it elsewhere",
        ),
    ),
)

BAD_RUNTIMES = (
    Bad(
        "a-template-without-its-container",
        runtime(templates={"node": role_template("trainer")}),
        "spec.templates.node: needs a container named node: it does the work",
        ("spec.templates.node: Required value: needs a container named node: it does the work",),
    ),
    Bad(
        "an-empty-template",
        runtime(templates={"launcher": {}}),
        "spec.templates.launcher: needs a container named launcher: it does the work",
        ("spec.templates.launcher: Required value: needs a container named launcher: it does the work",),
    ),
    Bad(
        "a-template-as-text",
        runtime(templates={"node": "torch"}),
        "spec.templates[...]: expected object, got str",
        (
            'spec.templates.node: Invalid value: "string": spec.templates.node in body must be of type object: "string"',
            SKIPPED,
        ),
    ),
    Bad(
        "a-nameless-container",
        runtime(templates={"node": {"spec": {"containers": [{"image": "x"}]}}}),
        "spec.templates.node.spec.containers[0].name: a name is required",
        (
            "spec.templates.node.spec.containers[0].name: Required value",
            SKIPPED,
        ),
    ),
    Bad(
        "processes-in-words",
        runtime(numProcPerNode="many"),
        "spec.numProcPerNode: must be auto, cpu, gpu or a number from 1 to 1024",
        ('spec.numProcPerNode: Invalid value: "many": must be auto, cpu, gpu or a number from 1 to 1024',),
    ),
    Bad(
        "no-nodes-of-a-runtime",
        runtime(numNodes=0, namespaced=True),
        "spec.numNodes: must be from 1 to 5000, is 0",
        ("spec.numNodes: Invalid value: 0: spec.numNodes in body should be greater than or equal to 1",),
    ),
    Bad(
        "a-framework-with-a-space",
        runtime(framework="my framework", namespaced=True),
        "spec.framework: must be of lower-case letters, digits and -, begin with a letter and not end with -",
        (
            'spec.framework: Invalid value: "my framework": must be of lower-case letters, digits and -, begin with a letter and not end with -',
        ),
    ),
    Bad(
        "a-workspace-of-nothing",
        runtime(workspace={}),
        "spec.workspace: object missing required field persistentVolumeClaim",
        (
            "spec.workspace.persistentVolumeClaim: Required value",
            SKIPPED,
        ),
    ),
    Bad(
        "a-claim-whose-name-cannot-be",
        runtime(workspace={"persistentVolumeClaim": {"claimName": "My Claim"}}),
        "spec.workspace.persistentVolumeClaim.claimName: must be of lower-case letters, digits, - and . and begin and end with a letter or digit",
        (
            'spec.workspace.persistentVolumeClaim.claimName: Invalid value: "My Claim": must be of lower-case letters, digits, - and . and begin and end with a letter or digit',
        ),
    ),
)
