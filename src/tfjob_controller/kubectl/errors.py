"""What ends a command of the plugin: one line, with the remedy."""

from __future__ import annotations

from tfjob_controller.kube.errors import ApiError

NOT_FOUND_REASON = "NotFound"


class CommandError(Exception):
    """The command cannot be carried out; the message is one line, made to be shown as it is."""


def in_words(error: ApiError, server: str) -> str:
    """What the server said, and what to do about it. `server` says where it is, and how that is known."""
    return f"{error.message}: {_remedy(error, server)}" if _remedy(error, server) else error.message


def _remedy(error: ApiError, server: str) -> str:
    if error.is_no_response:
        return f"is the API server of {server} up?"
    if error.is_unauthorized:
        return f"{server} does not know you (any more): log in again"
    if error.is_forbidden:
        return "ask for the role `view` in that namespace"
    if not error.is_not_found:
        return ""
    if error.reason == NOT_FOUND_REASON and '"' in error.message:
        return "`kubectl tfjob list -A` shows those that exist"
    return "the cluster knows no TFJobs: `kubectl apply -f manifests/base/crds` (or --context of another cluster)"
