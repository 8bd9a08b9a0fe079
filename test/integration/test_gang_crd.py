"""The Gang on a real API server: which objects it refuses, which fields it keeps, and what kubectl shows."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from helpers.cluster import Cluster
from helpers.kubectl import Kubectl
from localcluster.api import Api, RefusedError
from tfjob_controller.api.gang import (
    GANGS,
    MAX_BELOW_COUNT,
    MAX_MEMBERS,
    MIN_ABOVE_COUNT,
    NODE_AFFINITY_TOO_LARGE,
    TOO_MANY_MEMBERS,
    placed_nodes,
)

pytestmark = pytest.mark.cluster

Object = dict[str, Any]

WORKERS = {"name": "worker", "count": 3}


def gang(*members: Object, **spec: Any) -> Object:
    given = list(members) or [{"name": "master"}, WORKERS]
    return {
        "apiVersion": "scheduling.kubeflow.org/v1alpha1",
        "kind": "Gang",
        "metadata": {"name": "g"},
        "spec": {"members": given, **spec},
    }


@pytest.mark.parametrize(
    ("manifest", "words"),
    [
        pytest.param(
            {**gang(), "metadata": {"name": 64 * "g"}}, "metadata.name: Too long", id="a name that is no label"
        ),
        pytest.param({**gang(), "spec": {}}, "spec.members: Required value", id="no members"),
        pytest.param({**gang(), "spec": {"members": []}}, "spec.members: Invalid value", id="an empty list"),
        pytest.param(gang(WORKERS, WORKERS), "spec.members[1]: Duplicate value", id="a member twice"),
        pytest.param(gang({"name": "worker", "count": -1}), "greater than or equal to 0", id="a negative count"),
        pytest.param(gang({"name": "worker", "count": 100_000}), "less than or equal to 10000", id="a huge count"),
        pytest.param(
            gang({"name": "a", "count": 6000}, {"name": "b", "count": 6000}), TOO_MANY_MEMBERS, id="huge in sum"
        ),
        pytest.param(gang({"name": "Worker"}), "spec.members[0].name in body should match", id="a bad name"),
        pytest.param(gang({"name": "worker", "resources": {"cpu": "much"}}), "should match", id="no quantity"),
        pytest.param(gang(minMembers={"worker": 4}), MIN_ABOVE_COUNT, id="a minimum above the count"),
        pytest.param(gang(minMembers={"ps": 1}), MIN_ABOVE_COUNT, id="a minimum of no member"),
        pytest.param(gang(maxMembers={"worker": 2}), MAX_BELOW_COUNT, id="a maximum below the count"),
        pytest.param(gang(onTimeout="Cry"), "spec.onTimeout: Unsupported value", id="an unknown onTimeout"),
    ],
)
def test_what_cannot_be_a_gang_is_refused(api: Api, crd_namespace: str, manifest: Object, words: str) -> None:
    with pytest.raises(RefusedError, match=re.escape(words)):
        api.create(GANGS.path(crd_namespace), manifest)


def test_tolerations_and_affinity_are_kept_whole(kubectl: Kubectl) -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}
    tolerations = [{"key": "gpu", "operator": "Exists", "tolerationSeconds": 5}]
    member = {"name": "worker", "tolerations": tolerations, "nodeAffinity": terms, "resources": {"cpu": "1500m"}}
    kubectl.must("create", "-f", "-", manifest=gang(member))
    stored = kubectl.must("get", "gg", "g", "-o", "json")
    assert json.loads(stored)["spec"]["members"] == [{**member, "count": 1}]
    decoded = GANGS.decode(stored.encode()).spec.members[0]
    assert (decoded.node_affinity, decoded.tolerations) == (terms, tuple(tolerations))


def test_what_is_no_field_of_a_toleration_or_an_affinity_is_not_stored(api: Api, namespace: str) -> None:
    """The API server keeps the last versions of all Gangs in memory, where a megabyte of `{}` takes a hundred."""
    more = {"unknown": [{}, {}]}
    requirement = {"key": "a", "operator": "Exists"}
    member = {
        "name": "worker",
        "tolerations": [{"operator": "Exists", **more}],
        "nodeAffinity": {"nodeSelectorTerms": [{"matchExpressions": [{**requirement, **more}], **more}], **more},
    }
    stored = api.create(GANGS.path(namespace), gang(member))
    assert stored["spec"]["members"] == [
        {
            "name": "worker",
            "count": 1,
            "tolerations": [{"operator": "Exists"}],
            "nodeAffinity": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]},
        }
    ]


def test_columns(kubectl: Kubectl) -> None:
    kubectl.must("create", "-f", "-", manifest=gang(priority=7))
    status = {"phase": "Waiting", "members": "0/4", "position": 2, "message": "needs capacity"}
    status["placement"] = [{"node": "n1", "members": ["worker-0"]}]
    patch = json.dumps({"status": status})
    kubectl.must("patch", "gang", "g", "--subresource=status", "--type=merge", "-p", patch)
    head, row = kubectl.must("get", "gg").splitlines()
    assert head.split() == ["NAME", "PHASE", "MEMBERS", "PRIORITY", "POSITION", "MESSAGE", "AGE"]
    assert row.split()[:-1] == ["g", "Waiting", "0/4", "7", "2", "needs", "capacity"]


def affinity(terms: int, expressions: int, values: int) -> Object:
    requirement = {"key": "a", "operator": "In", "values": ["v"] * values}
    return {"nodeSelectorTerms": [{"matchExpressions": [requirement] * expressions}] * terms}


@pytest.mark.parametrize(
    ("member", "words"),
    [
        pytest.param({"nodeAffinity": affinity(65, 1, 1)}, "must have at most 64 items", id="terms"),
        pytest.param({"nodeAffinity": affinity(2, 33, 1)}, NODE_AFFINITY_TOO_LARGE, id="expressions"),
        pytest.param({"nodeAffinity": affinity(3, 1, 90)}, NODE_AFFINITY_TOO_LARGE, id="values"),
        pytest.param({"tolerations": [{"operator": "Exists"}] * 65}, "must have at most 64 items", id="tolerations"),
        pytest.param(
            {"nodeSelector": {f"k{number}": "v" for number in range(65)}}, "must have at most 64", id="nodeSelector"
        ),
    ],
)
def test_what_would_take_long_to_evaluate_is_refused(api: Api, crd_namespace: str, member: Object, words: str) -> None:
    with pytest.raises(RefusedError, match=words):
        api.create(GANGS.path(crd_namespace), gang({"name": "worker", **member}))


def test_the_largest_gang_is_taken_and_decoded(kubectl: Kubectl) -> None:
    members = [
        {
            "name": f"m{number}",
            "nodeAffinity": affinity(64, 1, 4),
            "tolerations": [{"key": f"k{each}", "operator": "Exists"} for each in range(64)],
            "nodeSelector": {f"k{each}": "v" for each in range(64)},
        }
        for number in range(16)
    ]
    kubectl.must("create", "-f", "-", manifest=gang(*members))
    stored = json.dumps(json.loads(kubectl.must("get", "gg", "g", "-o", "json")))
    assert len(GANGS.decode(stored.encode()).spec.members) == 16


@pytest.mark.parametrize(("count", "most_bytes"), [(5_000, 600_000), (MAX_MEMBERS, 1_100_000)])
def test_a_gang_on_thousands_of_nodes_with_long_names_is_far_below_the_limit_of_an_object(
    kubectl: Kubectl, control_plane: Cluster, count: int, most_bytes: int
) -> None:
    """etcd takes 1.5 MB. The owner of each field is a part of the object, so one for each node would double it."""
    manifest = gang({"name": "node", "count": count})
    kubectl.must("create", "-f", "-", manifest=manifest)
    placement = [{"node": f"n{index}".ljust(63, "x"), "members": [f"node-{index}"]} for index in range(count)]
    members = f"{count}/{count}"
    path = f"{GANGS.path(kubectl.namespace)}/g"
    status = {"phase": "Bound", "placement": placement, "members": members}
    control_plane.api.patch(f"{path}/status", {"status": status})
    stored = json.dumps(control_plane.api.get(path), separators=(",", ":")).encode()
    assert len(stored) < most_bytes
    assert len(placed_nodes(GANGS.decode(stored).status)) == count
    shown = kubectl.must("get", "gangs")
    assert members in shown
    assert max(map(len, shown.splitlines())) < 200
