"""Which pods are pinned and ungated: gated members of admitted gangs. Their node affinity only tightens."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from helpers.fakeclock import FakeClock
from helpers.gangs import a_node, workers
from helpers.memoryapi import MemoryApi
from tfjob_controller.api.common.cluster import ScheduledPod
from tfjob_controller.api.common.scheduledpods import SCHEDULED_PODS
from tfjob_controller.api.gang import GANGS, Gang, required_on_node
from tfjob_controller.gangscheduler.binding.ungater import Ungater
from tfjob_controller.gangscheduler.state.informers import BY_GANG, by_gang
from tfjob_controller.kube.cache.store import Store
from tfjob_controller.kube.client import ResourceClient
from tfjob_controller.scheduling.nodefilter import node_filter_of

PATH = "/api/v1/namespaces/ns/pods"
GATE = "scheduling.kubeflow.org/placement"
PREFIX = "scheduling.kubeflow.org"
NODES = {name: a_node(name, labels={"zone": zone}) for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b"))}

EXPRESSIONS = st.builds(
    lambda operator, zones: {"key": "zone", "operator": operator, "values": zones},
    st.sampled_from(["In", "NotIn"]),
    st.lists(st.sampled_from("ab"), min_size=1, max_size=2),
)
FIELDS = st.builds(
    lambda operator, node: {"key": "metadata.name", "operator": operator, "values": [node]},
    st.sampled_from(["In", "NotIn"]),
    st.sampled_from(sorted(NODES)),
)
TERMS = st.fixed_dictionaries(
    {}, optional={"matchExpressions": st.lists(EXPRESSIONS, max_size=2), "matchFields": st.lists(FIELDS, max_size=2)}
)
REQUIRED = st.none() | st.builds(lambda terms: {"nodeSelectorTerms": terms}, st.lists(TERMS, min_size=1, max_size=3))
MEMBERS = st.fixed_dictionaries(
    {},
    optional={
        f"{PREFIX}/member": st.sampled_from(["node-0", "node-9", "worker-0", ""]),
        f"{PREFIX}/member-kind": st.sampled_from(["node", "worker", "Node", ""]),
        "batch.kubernetes.io/job-completion-index": st.sampled_from(["0", "1", "9", "00", "x"]),
    },
)


def accepted(required: dict[str, Any] | None) -> set[str]:
    node_filter = node_filter_of(workers(1, node_affinity=required))
    return {name for name, node in NODES.items() if not node_filter.rejection(node)}


@given(REQUIRED, st.sampled_from(sorted(NODES)))
def test_a_pinned_pod_can_run_on_its_node_only_and_there_only_if_it_could_before(
    required: dict[str, Any] | None, node: str
) -> None:
    assert accepted(required_on_node(required, node)) == accepted(required) & {node}


@given(REQUIRED, st.sampled_from(sorted(NODES)))
def test_what_a_pod_requires_already_stays_as_the_api_server_demands(
    required: dict[str, Any] | None, node: str
) -> None:
    if required is None:
        return
    for old, new in zip(
        required["nodeSelectorTerms"], required_on_node(required, node)["nodeSelectorTerms"], strict=True
    ):
        assert new.get("matchExpressions") == old.get("matchExpressions")
        assert new.get("matchFields", [])[: len(old.get("matchFields", []))] == old.get("matchFields", [])
        if not any(old.values()):
            assert new == old


@given(
    phase=st.sampled_from(["Waiting", "Admitted", "Bound", "Released"]),
    is_suspended=st.booleans(),
    attempt=st.sampled_from(["1", "2", "x"]),
    members=MEMBERS,
    gates=st.lists(st.sampled_from([GATE, "a", "b"]), unique=True),
    required=REQUIRED,
)
def test_a_pod_is_patched_if_and_only_if_it_waits_for_its_placement(
    phase: str,
    is_suspended: bool,
    attempt: str,
    members: dict[str, str],
    gates: list[str],
    required: dict[str, Any] | None,
) -> None:
    api = MemoryApi()
    labels = {f"{PREFIX}/gang": "g", f"{PREFIX}/attempt": attempt, **members}
    affinity = {} if required is None else {"requiredDuringSchedulingIgnoredDuringExecution": required}
    pod = {
        "metadata": {"name": "p", "namespace": "ns", "uid": "u", "labels": labels},
        "spec": {"schedulingGates": [{"name": gate} for gate in gates], "affinity": {"nodeAffinity": affinity}},
    }
    api.request("POST", PATH, body=msgspec.json.encode(pod))
    gang = {
        "metadata": {"name": "g", "namespace": "ns", "resourceVersion": "1"},
        "spec": {"suspend": is_suspended},
        "status": {
            "phase": phase,
            "attempt": 2,
            "placement": [{"node": "n1", "members": ["node-0"]}, {"node": "n2", "members": ["node-1"]}],
        },
    }
    gangs: Store[Gang] = Store()
    gangs.upsert(GANGS.decode(msgspec.json.encode(gang)))
    pods: Store[ScheduledPod] = Store({BY_GANG: by_gang})
    pods.upsert(SCHEDULED_PODS.decode(msgspec.json.encode(api.objects[f"{PATH}/p"])))
    ungater = Ungater(gangs, pods, ResourceClient(api, SCHEDULED_PODS), FakeClock(), threads=1)
    assert ungater.ungate("ns/p") is None

    kind, index = members.get(f"{PREFIX}/member-kind"), members.get("batch.kubernetes.io/job-completion-index")
    name = members.get(f"{PREFIX}/member", f"{kind}-{index}")
    node = {"node-0": "n1", "node-1": "n2"}.get(name)
    is_placed = phase in ("Admitted", "Bound") and not is_suspended and attempt == "2" and node is not None
    after = api.objects[f"{PATH}/p"]
    if not (is_placed and GATE in gates):
        assert api.written("PATCH") == []
        return
    assert len(api.written("PATCH")) == 1
    assert [gate["name"] for gate in after["spec"]["schedulingGates"]] == [gate for gate in gates if gate != GATE]
    pinned = after["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert accepted(pinned) == accepted(required) & {node}
    assert after["metadata"]["labels"] == labels
