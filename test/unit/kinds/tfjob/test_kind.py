"""The rules of kinds/tfjob/kind.py."""

from __future__ import annotations

import random
from typing import Any

import pytest
from msgspec.structs import replace

from helpers.clusterinmemory import decoded
from helpers.manifests import container, master, tfjob, workers
from helpers.trainworld import CONFIG
from tfjob_controller.jobs.plan.model import UnplannableError
from tfjob_controller.kinds.tfjob.kind import TFJobAdapter
from tfjob_controller.kube.cache.store import Store


@pytest.mark.parametrize(
    ("pod_spec", "field"),
    [
        ({"containers": [container(), {"name": "checkpoint-restore", "image": "i"}]}, "containers[1]"),
        ({"containers": [container()], "volumes": [{"name": "checkpoints", "hostPath": {"path": "/"}}]}, "volumes[0]"),
    ],
)
def test_a_tfjob_whose_template_has_the_name_of_an_added_part_has_no_plan(pod_spec: Any, field: str) -> None:
    template = {"spec": pod_spec}
    job = decoded(tfjob(master(), workers(1, template=template), checkpoint={"storageUri": "s3://a"}, RuntimeId="a6no"))
    kind = TFJobAdapter(Store(), CONFIG, random.Random(1), restart_rules=True)
    with pytest.raises(UnplannableError) as refused:
        kind.plan(job)
    assert str(refused.value).startswith(f"spec.replicaSpecs[1].template.spec.{field}.name: checkpoint")
    assert kind.plan(replace(job, status=replace(job.status, phase="Running"))).replicas.all
