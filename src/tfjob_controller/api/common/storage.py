"""The sources of a job's dataset and model, and the destinations of its model and checkpoints, as data."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec

from tfjob_controller.api.common.schema import A_NAME, INT32_MAX, PATTERN_MESSAGE, describe

# A name follows the scheme. A web server cannot be the target of an export.
INPUT_URI = "^((s3|hf|gs|https?|pvc)://[^/ ]|file:///[^/ ])"
OUTPUT_URI = "^((s3|hf|gs|pvc)://[^/ ]|file:///[^/ ])"
# In an hf:// URI, an @ precedes the revision.
LOGIN_IN_URI = "^((s3|gs|pvc|https?)://[^/?#]*@|hf://[^/]*:[^/]*@)"

WORKSPACE_PATH = "/workspace"
DATASET_PATH = "/workspace/dataset"
MODEL_PATH = "/workspace/model"
OUTPUT_PATH = "/workspace/output"

MAX_URI = 2048
MAX_PATH = 512
MAX_KEPT = 1000
# Limit of lists that CEL rules iterate over: the API server rejects rules whose estimated cost is too high.
MAX_ENV = 256


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all values here; unknown fields are dropped on decoding."""


class SecretRef(_Value, frozen=True):
    """A Secret in the job's namespace."""

    name: Annotated[str, describe("The Secret's name.", minLength=1, **A_NAME)]


# Fields of everything that an initializer fetches.
FetchEnv: TypeAlias = Annotated[
    tuple[dict[str, Any], ...],
    describe("Environment variables of the initializer, as in a container.", maxItems=MAX_ENV),
]
FetchSecret: TypeAlias = Annotated[
    SecretRef | None, describe("A Secret whose keys become environment variables of the initializer.")
]


class StorageInput(_Value, frozen=True):
    """The model to start with."""

    config: Annotated[
        str, describe("Another name for storageUri; if both are set, they must be equal.", maxLength=MAX_URI)
    ] = ""
    storage_uri: Annotated[
        str,
        describe(
            "The URI of the model: s3://, hf://, gs://, http://, https://, file:// or pvc://. An initializer fetches "
            "it to /workspace/model before the nodes start.",
            maxLength=MAX_URI,
        ),
    ] = ""
    env: FetchEnv = ()
    secret_ref: FetchSecret = None


class StorageOutput(_Value, frozen=True):
    """The target of the trained model."""

    storage_uri: Annotated[
        str,
        describe(
            "The URI to which /workspace/output is exported when all nodes have succeeded: s3://, hf://, gs://, "
            "file:// or pvc://. Except for pvc://, the runtime must have a workspace.",
            minLength=1,
            maxLength=MAX_URI,
        ),
    ]
    env: Annotated[
        tuple[dict[str, Any], ...],
        describe("Environment variables of the exporter, as in a container.", maxItems=MAX_ENV),
    ] = ()
    secret_ref: Annotated[
        SecretRef | None, describe("A Secret whose keys become environment variables of the exporter.")
    ] = None


class ModelConfig(_Value, frozen=True):
    """The model to start with, and the target of the trained model."""

    input: Annotated[StorageInput | None, describe("The model to start with.")] = None
    output: Annotated[StorageOutput | None, describe("The target of the trained model.")] = None


class DatasetConfig(_Value, frozen=True):
    """The dataset."""

    storage_uri: Annotated[
        str,
        describe(
            "The URI of the dataset: s3://, hf://, gs://, http://, https://, file:// or pvc://. An initializer fetches "
            "it to /workspace/dataset before the nodes start.",
            minLength=1,
            maxLength=MAX_URI,
        ),
    ]
    env: FetchEnv = ()
    secret_ref: FetchSecret = None


DEFAULT_CHECKPOINT_PATH = f"{WORKSPACE_PATH}/checkpoints"
DEFAULT_KEPT = 3
DEFAULT_SETTLE_SECONDS = 10


class Checkpoint(_Value, frozen=True):
    """Where the checkpoints of the training program are saved, and restored from when its pods start again."""

    storage_uri: Annotated[
        str,
        describe(
            "The URI below which checkpoints are saved: s3://, hf://, gs://, file:// or pvc://. Each job needs its "
            "own URI; a job that is created again with the URI of an earlier one continues from its last checkpoint.",
            minLength=1,
            maxLength=MAX_URI,
        ),
    ]
    path: Annotated[
        str,
        describe(
            "The folder in which the training program writes its checkpoints; each file or folder directly below it "
            f"is one. Default: {DEFAULT_CHECKPOINT_PATH}.",
            maxLength=MAX_PATH,
            pattern="^(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)+$",
            **{PATTERN_MESSAGE: f"must be an absolute path, such as {DEFAULT_CHECKPOINT_PATH}"},
        ),
    ] = DEFAULT_CHECKPOINT_PATH
    secret_ref: Annotated[
        SecretRef | None,
        describe("A Secret whose keys become environment variables of the containers that save and restore."),
    ] = None
    env: Annotated[
        tuple[dict[str, Any], ...],
        describe("Environment variables of the containers that save and restore.", maxItems=MAX_ENV),
    ] = ()
    keep: Annotated[
        int,
        describe(
            f"The number of checkpoints that are kept; older ones are deleted. Default: {DEFAULT_KEPT}.",
            format="int32",
            minimum=1,
            maximum=MAX_KEPT,
        ),
    ] = DEFAULT_KEPT
    settle_seconds: Annotated[
        int,
        describe(
            "The seconds for which a file or folder must not change to count as a complete checkpoint, unless it has "
            f"the marker .done. Default: {DEFAULT_SETTLE_SECONDS}.",
            format="int32",
            minimum=1,
            maximum=INT32_MAX,
        ),
    ] = DEFAULT_SETTLE_SECONDS
    max_bandwidth: Annotated[
        str,
        describe(
            "The maximum number of bytes per second for uploads, such as 50M. Default: no limit.",
            maxLength=20,
            pattern="^([1-9][0-9]*([kMGT]i?)?)?$",
            **{PATTERN_MESSAGE: "must be a number of bytes per second, such as 50M"},
        ),
    ] = ""
    per_node: Annotated[
        bool,
        describe(
            "True: each node saves and restores its own checkpoints. False: those of node 0 are saved, and restored "
            "on all nodes. Not allowed in TFJobs, whose chief saves. Default: false."
        ),
    ] = False
