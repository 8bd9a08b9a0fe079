"""The flags of `tfjob-controller initialize` and `export`; see `tfjob_controller.flags`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tfjob_controller.flags import COUNT, FILE, SWITCH, TEXT, choice, option, options_of, read_options
from tfjob_controller.util.commandline import UsageError

# The variable and the paths of Kubeflow's Trainer.
STORAGE_URI = "STORAGE_URI"
WORKSPACE = "/workspace"
OUTPUT_FOLDER, MODEL_FOLDER = f"{WORKSPACE}/output", f"{WORKSPACE}/model"


def parallel_option(default: str) -> Any:
    return option(COUNT, default, "Number of files that are transferred at the same time.")


def _retries() -> Any:
    return option(
        COUNT, "8", "Number of consecutive retries without progress before the command fails; the delays grow."
    )


def log_format_option() -> Any:
    return option(choice("json", "console"), "json", "Format of log lines.")


def log_level_option() -> Any:
    return option(choice("debug", "info", "warning", "error"), "info", "Lowest level that is logged.")


@dataclass(frozen=True, slots=True, kw_only=True)
class InitializeOptions:
    """The options of `tfjob-controller initialize`."""

    storage_uri: str = option(
        TEXT,
        "",
        "URI of the files: s3://, gs://, hf://, http(s)://, file:// or pvc://; also read from $STORAGE_URI.",
    )
    target: str = option(FILE, "", f"The folder that is filled; empty for {WORKSPACE}/dataset or {WORKSPACE}/model.")
    parallel: int = parallel_option("8")
    retries: int = _retries()
    verify_hash: bool = option(
        SWITCH, "true", "Compare hashes where the source reports them; false for S3 servers whose ETags are not hashes."
    )
    log_format: str = log_format_option()
    log_level: str = log_level_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """The options of `tfjob-controller export`."""

    storage_uri: str = option(
        TEXT, "", "URI of the destination: s3://, gs://, hf://, file:// or pvc://; also read from $STORAGE_URI."
    )
    source: str = option(
        FILE,
        "",
        f"The folder whose files are exported; empty for {OUTPUT_FOLDER} if there is one, else {MODEL_FOLDER}.",
    )
    parallel: int = parallel_option("4")
    retries: int = _retries()
    log_format: str = log_format_option()
    log_level: str = log_level_option()


INITIALIZE_OPTIONS = options_of(InitializeOptions)
EXPORT_OPTIONS = options_of(ExportOptions)
StorageOptions = TypeVar("StorageOptions", InitializeOptions, ExportOptions)


def resolve_initialize(what: str, flags: Mapping[str, str], environ: Mapping[str, str]) -> InitializeOptions:
    """Returns the options of `initialize dataset|model` from flags and environment. Raises UsageError."""
    options = _with_uri(read_options(InitializeOptions, flags, environ), environ)
    return options if options.target else dataclasses.replace(options, target=f"{WORKSPACE}/{what}")


def resolve_export(flags: Mapping[str, str], environ: Mapping[str, str]) -> ExportOptions:
    """Returns the options of `export` from flags and environment. Raises UsageError."""
    return _with_uri(read_options(ExportOptions, flags, environ), environ)


def _with_uri(options: StorageOptions, environ: Mapping[str, str]) -> StorageOptions:
    uri = options.storage_uri or environ.get(STORAGE_URI, "")
    if not uri.strip():
        raise UsageError(f"there is no storage URI: set {STORAGE_URI} or --storage-uri")
    return dataclasses.replace(options, storage_uri=uri.strip())
