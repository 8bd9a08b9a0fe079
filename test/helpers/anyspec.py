"""Specs of TFJobs for property tests, from random to valid ones."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from helpers.manifests import container, master, parameter_servers, pod_template, tfjob, workers
from tfjob_controller.api.tfjob.types import MAX_REPLICAS

GPU = "nvidia.com/gpu"

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-2, 70000)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=3)
)
# Known field names make it likely that unusual values reach code that reads them.
NAMES = [
    "RuntimeId", "replicaSpecs", "tfReplicaType", "replicas", "tfPort", "template", "spec", "containers", "name", "env",
    "resources", "limits", GPU, "volumes", "metadata", "labels", "terminationPolicy", "chief", "replicaName",
    "replicaIndex", "workerReplicas", "suspend", "restartPolicy", "conditions", "phase", "gang", "autoscaling",
    "minWorkers", "maxWorkers", "resize", "totalSteps", "progress", "pattern",
    "checkpoint", "storageUri", "perNode",
]  # fmt: skip
names = st.sampled_from(NAMES) | st.text(max_size=2)
words = st.sampled_from(["MASTER", "WORKER", "PS", "tensorflow", "Always", "Never"])
anything = st.recursive(
    scalars | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=25,
)
containers = st.fixed_dictionaries(
    {"name": st.just("tensorflow") | anything},
    optional={"env": anything, "volumeMounts": anything, "resources": anything},
)
templates = st.fixed_dictionaries(
    {"spec": st.fixed_dictionaries({"containers": st.lists(containers, max_size=2)}, optional={"volumes": anything})},
    optional={"metadata": anything},
)
entries = st.fixed_dictionaries(
    {},
    optional={
        "tfReplicaType": words | anything,
        "replicas": st.integers(-1, 3) | anything,
        "tfPort": st.integers(0, 65536) | anything,
        "template": templates | anything,
    },
)
good_templates = st.builds(
    lambda names: pod_template(*(container(name) for name in names)),
    st.permutations(["tensorflow", "log"]) | st.just(["tensorflow"]),
)
good_jobs = st.builds(
    lambda template, port, count, servers, override: tfjob(
        master(template=template, tfPort=port),
        workers(count, template=template),
        parameter_servers(servers),
        **({} if override is None else {"workerReplicas": override}),
    ),
    good_templates,
    st.integers(1, 65535),
    st.integers(0, MAX_REPLICAS),
    st.integers(0, MAX_REPLICAS),
    st.none() | st.integers(0, MAX_REPLICAS),
)


def with_odd_part(whole: Any, way: list[int], part: Any) -> Any:
    """Returns `whole` with one nested value replaced; `way` chooses the branch at each level."""
    if not way or not isinstance(whole, dict | list) or not whole:
        return part
    turn, rest = way[0], way[1:]
    if isinstance(whole, list):
        at = turn % len(whole)
        return [*whole[:at], with_odd_part(whole[at], rest, part), *whole[at + 1 :]]
    name = list(whole)[turn % len(whole)]
    return {**whole, name: with_odd_part(whole[name], rest, part)}


# Parts of patterns on which the API server and the controller could disagree.
_PIECES = "step", " ", "(", ")", "[0-9]", "[^]a]", "[a", "]", "+", "*", "?", "{2}", "{", "|", r"\d", r"\1", "^"
patterns = st.lists(st.sampled_from(_PIECES), max_size=6).map("".join)
autoscaling = st.fixed_dictionaries(
    {"maxWorkers": st.integers(-1, 4)},
    optional={
        "minWorkers": st.integers(-1, 4),
        "resize": st.sampled_from(["InPlace", "Restart", ""]) | anything,
        "totalSteps": st.integers(-1, 2**54) | anything,
        "progress": st.fixed_dictionaries({}, optional={"pattern": patterns | anything}),
    },
)

# From random values to jobs with one unusual part: about one in eight is valid.
specs = (
    anything
    | st.fixed_dictionaries(
        {"replicaSpecs": st.lists(entries, max_size=4)},
        optional={
            "workerReplicas": st.integers(-1, 3) | anything,
            "terminationPolicy": anything,
            "RuntimeId": anything,
        },
    )
    | st.builds(
        lambda count, scaling, gang: {"replicaSpecs": [workers(count)], "autoscaling": scaling, **gang},
        st.integers(0, 4),
        autoscaling | anything,
        st.just({}) | st.integers(0, 4).map(lambda least: {"gang": {"minWorkers": least}}),
    )
    | st.builds(
        with_odd_part,
        good_jobs.map(lambda manifest: manifest["spec"]),
        st.lists(st.integers(0, 5), min_size=2, max_size=9),
        anything,
    )
    | st.builds(
        lambda manifest, template: {
            "replicaSpecs": [*manifest["spec"]["replicaSpecs"][:1], {"tfReplicaType": "PS", "template": template}]
        },
        good_jobs,
        templates,
    )
)
