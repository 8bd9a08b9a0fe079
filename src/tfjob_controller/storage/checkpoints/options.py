"""The flags of `tfjob-controller checkpoint save` and `restore`; see `tfjob_controller.flags`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tfjob_controller.flags import COUNT, FILE, SWITCH, TEXT, ValueType, option, options_of, read_options
from tfjob_controller.storage.options import (
    STORAGE_URI,
    WORKSPACE,
    log_format_option,
    log_level_option,
    parallel_option,
)
from tfjob_controller.util.commandline import UsageError

CHECKPOINTS_FOLDER = f"{WORKSPACE}/checkpoints"
STORE_FOLDER = f"{WORKSPACE}/.checkpoint-store"
# The variable that Kubernetes sets in the pods of an Indexed Job.
_COMPLETION_INDEX = "JOB_COMPLETION_INDEX"


def _read_bandwidth(text: str) -> int:
    """Bytes per second; 0 for no limit."""
    if not text:
        return 0
    from tfjob_controller.api.common.quantity import milli_of

    try:
        found = milli_of(text) // 1000
    except ValueError:
        found = 0
    if found < 1:
        raise ValueError("must be a number of bytes per second such as 50Mi or 100M, or empty for no limit")
    return found


def _read_node(text: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > 6:
        raise ValueError("must be the index of a node, from 0 to 999999")
    return int(text)


_BANDWIDTH = ValueType("quantity", _read_bandwidth)
_NODE = ValueType("number", _read_node)


def _storage_uri() -> Any:
    return option(
        TEXT, "", "URI of the checkpoints: s3://, gs://, hf://, file:// or pvc://; also read from $STORAGE_URI."
    )


def _store_path() -> Any:
    return option(FILE, STORE_FOLDER, "Mount path of the folder of a pvc:// URI.")


def _path() -> Any:
    return option(FILE, CHECKPOINTS_FOLDER, "The folder with a file or folder for each checkpoint.")


def _node() -> Any:
    return option(_NODE, "", "Index of this node; empty for $JOB_COMPLETION_INDEX, or 0 without it.")


def _per_node() -> Any:
    return option(SWITCH, "false", "Each node has its own checkpoints; otherwise all nodes have those of node 0.")


def _retries() -> Any:
    return option(COUNT, "8", "Number of consecutive retries of a transfer without progress; the delays grow.")


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveOptions:
    """The options of `tfjob-controller checkpoint save`."""

    storage_uri: str = _storage_uri()
    store_path: str = _store_path()
    path: str = _path()
    keep: int = option(COUNT, "3", "Number of checkpoints that are kept in the storage.")
    settle_seconds: int = option(
        COUNT, "10", "Seconds without any change after which a checkpoint is complete, unless it has a .done marker."
    )
    leftover_seconds: int = option(
        COUNT, "3600", "Age in seconds at which files of uploads that were killed are removed; longer than an upload."
    )
    max_bandwidth: int = option(_BANDWIDTH, "", "Limit of an upload in bytes per second, such as 50Mi.")
    node: int | None = _node()
    per_node: bool = _per_node()
    grace_seconds: int = option(COUNT, "25", "Seconds after SIGTERM within which complete checkpoints are uploaded.")
    poll_seconds: int = option(COUNT, "2", "Seconds between two reads of the folder.")
    parallel: int = parallel_option("4")
    retries: int = _retries()
    log_format: str = log_format_option()
    log_level: str = log_level_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    """The options of `tfjob-controller checkpoint restore`."""

    storage_uri: str = _storage_uri()
    store_path: str = _store_path()
    path: str = _path()
    node: int | None = _node()
    per_node: bool = _per_node()
    parallel: int = parallel_option("4")
    retries: int = _retries()
    log_format: str = log_format_option()
    log_level: str = log_level_option()


SAVE_OPTIONS = options_of(SaveOptions)
RESTORE_OPTIONS = options_of(RestoreOptions)
_Options = TypeVar("_Options", SaveOptions, RestoreOptions)


def resolve_save(flags: Mapping[str, str], environ: Mapping[str, str]) -> SaveOptions:
    """Returns the options of `checkpoint save` from flags and environment. Raises UsageError."""
    return _completed(read_options(SaveOptions, flags, environ), environ)


def resolve_restore(flags: Mapping[str, str], environ: Mapping[str, str]) -> RestoreOptions:
    """Returns the options of `checkpoint restore` from flags and environment. Raises UsageError."""
    return _completed(read_options(RestoreOptions, flags, environ), environ)


def _completed(options: _Options, environ: Mapping[str, str]) -> _Options:
    uri = (options.storage_uri or environ.get(STORAGE_URI, "")).strip()
    if not uri:
        raise UsageError(f"there is no storage URI: set {STORAGE_URI} or --storage-uri")
    if uri.lower().startswith(("http://", "https://")):
        raise UsageError("checkpoints cannot be kept on a web server: use s3://, gs://, hf://, file:// or pvc://")
    node = options.node
    if node is None:
        try:
            node = _read_node(environ.get(_COMPLETION_INDEX, "")) or 0
        except ValueError as error:
            raise UsageError(f"{_COMPLETION_INDEX} {error}") from None
    return dataclasses.replace(options, storage_uri=uri, node=node)
