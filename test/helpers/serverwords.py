"""The messages of a real API server about an object, without kubectl, whose start takes longer than the request."""

from __future__ import annotations

import re
from typing import Any

from helpers.kubernetesversion import is_older_than
from localcluster.api import Api, RefusedError
from tfjob_controller.api.tfjob.types import TFJOBS
from tfjob_controller.api.trainjob.runtime import CLUSTER_TRAINING_RUNTIMES, TRAINING_RUNTIMES
from tfjob_controller.api.trainjob.types import TRAINJOBS
from tfjob_controller.kube.meta import Resource

Object = dict[str, Any]

_RESOURCES = {
    "TFJob": TFJOBS,
    "TrainJob": TRAINJOBS,
    "TrainingRuntime": TRAINING_RUNTIMES,
    "ClusterTrainingRuntime": CLUSTER_TRAINING_RUNTIMES,
}
# The options of kubectl: unknown fields are refused, and nothing is stored.
_STRICT = {"fieldValidation": "Strict"}
_DRY_RUN = {**_STRICT, "dryRun": "All"}
# A value that an error shows: a text, a number or null.
_VALUE_SHOWN = re.compile(r'(Invalid value: )(?:"(?:[^"\\]|\\.)*"|-?[0-9.]+|null): ')


def problems_of_creation(api: Api, namespace: str, manifest: Object) -> tuple[str, ...]:
    """Returns the server's errors for this object, one sentence for each problem; none if it accepts the object.

    Compare them with `comparable` expectations.
    """
    return _problems(api, "POST", _path(manifest, namespace), manifest, _DRY_RUN)


def problems_of_change(
    api: Api, namespace: str, before: Object, after: Object, status: Object | None = None
) -> tuple[str, ...]:
    """Stores `before`, with that status, and returns the server's errors for replacing it by `after`."""
    path = _path(before, namespace)
    created = api.request("POST", path, before, query=_STRICT)
    of_one = f"{path}/{created['metadata']['name']}"
    try:
        if status is not None:
            created = api.patch(f"{of_one}/status", {"status": status})
        version = {"resourceVersion": created["metadata"]["resourceVersion"]}
        return _problems(api, "PUT", of_one, {**after, "metadata": {**after["metadata"], **version}}, _STRICT)
    finally:
        api.delete(of_one)


def _problems(api: Api, method: str, path: str, body: Object, query: Object) -> tuple[str, ...]:
    try:
        api.request(method, path, body, query=query)
    except RefusedError as error:
        causes = error.body.get("details", {}).get("causes") or ()
        # kubectl prints each of them once in this form.
        found = dict.fromkeys(f"{each.get('field', '')}: {each['message']}" for each in causes)
        return tuple(map(comparable, found)) or (str(error),)
    return ()


def comparable(text: str) -> str:
    """Returns an error of the API server, or an expected one, without what an older version writes in another way.

    Since 1.35 it is the error itself. Before, a broken rule shows a type instead of the value, so shown values are left
    out; before 1.34 keys of lists are shown as Go writes them. The field and our own message always remain.
    """
    if is_older_than("1.35"):
        text = _VALUE_SHOWN.sub(r"\1", text)
    if is_older_than("1.34"):
        text = text.replace("map[string]interface {}{", "{")
    return text


def _path(manifest: Object, namespace: str) -> str:
    resource: Resource = _RESOURCES[manifest["kind"]]
    return resource.path("" if manifest["kind"] == "ClusterTrainingRuntime" else namespace)
