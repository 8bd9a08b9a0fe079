"""Where a TrainJob's dataset and models come from and go to, as data."""

from __future__ import annotations

from typing import Annotated, Any, TypeAlias

import msgspec

from tfjob_controller.api.common.schema import A_NAME, describe

# Both name what is meant after the scheme. Nothing can be put to a web server.
INPUT_URI = "^((s3|hf|gs|https?|pvc)://[^/ ]|file:///[^/ ])"
OUTPUT_URI = "^((s3|hf|gs|pvc)://[^/ ]|file:///[^/ ])"
# hf:// has an @ of its own, in front of a revision.
LOGIN_IN_URI = "^((s3|gs|pvc|https?)://[^/?#]*@|hf://[^/]*:[^/]*@)"

WORKSPACE_PATH = "/workspace"
DATASET_PATH = "/workspace/dataset"
MODEL_PATH = "/workspace/model"
OUTPUT_PATH = "/workspace/output"

MAX_URI = 2048
# Limits for the API server, which refuses rules that could take too long on the longest list.
MAX_ENV = 256


class _Value(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all values here; unknown fields are dropped on decoding."""


class SecretRef(_Value, frozen=True):
    """A Secret in the job's namespace."""

    name: Annotated[str, describe("The Secret's name.", minLength=1, **A_NAME)]


# Of whatever is fetched.
FetchEnv: TypeAlias = Annotated[
    tuple[dict[str, Any], ...],
    describe("Environment variables of what fetches it, as in a container.", maxItems=MAX_ENV),
]
FetchSecret: TypeAlias = Annotated[
    SecretRef | None, describe("A Secret whose keys become environment variables of what fetches it.")
]


class StorageInput(_Value, frozen=True):
    """A model to begin with."""

    config: Annotated[
        str, describe("Another name for storageUri; both may stand there if they say the same.", maxLength=MAX_URI)
    ] = ""
    storage_uri: Annotated[
        str,
        describe(
            "Where it is: s3://, hf://, gs://, http://, https://, file:// or pvc://. It is brought to "
            "/workspace/model before the nodes start.",
            maxLength=MAX_URI,
        ),
    ] = ""
    env: FetchEnv = ()
    secret_ref: FetchSecret = None


class StorageOutput(_Value, frozen=True):
    """Where the trained model goes."""

    storage_uri: Annotated[
        str,
        describe(
            "Where it goes when all nodes have succeeded: s3://, hf://, gs://, file:// or pvc://. What stands in "
            "/workspace/output is taken there; so but for pvc://, the runtime must have a workspace.",
            minLength=1,
            maxLength=MAX_URI,
        ),
    ]
    env: Annotated[
        tuple[dict[str, Any], ...],
        describe("Environment variables of what takes it there, as in a container.", maxItems=MAX_ENV),
    ] = ()
    secret_ref: Annotated[
        SecretRef | None, describe("A Secret whose keys become environment variables of what takes it there.")
    ] = None


class ModelConfig(_Value, frozen=True):
    """The model before and after training."""

    input: Annotated[StorageInput | None, describe("A model to begin with.")] = None
    output: Annotated[StorageOutput | None, describe("Where the trained model goes.")] = None


class DatasetConfig(_Value, frozen=True):
    """What is trained on."""

    storage_uri: Annotated[
        str,
        describe(
            "Where it is: s3://, hf://, gs://, http://, https://, file:// or pvc://. It is brought to "
            "/workspace/dataset before the nodes start.",
            minLength=1,
            maxLength=MAX_URI,
        ),
    ]
    env: FetchEnv = ()
    secret_ref: FetchSecret = None
