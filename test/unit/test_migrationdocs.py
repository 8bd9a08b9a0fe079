"""The pages on moving show jobs of others and what they become: as many pods, of the same image, which we can run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from helpers.clusterinmemory import decoded
from helpers.docs import Shown, shown
from helpers.trainworld import decoded_train
from tfjob_controller.api.tfjob import validation
from tfjob_controller.api.trainjob import validation as trainjobvalidation

OLD_KINDS = {"TFJob": "tfReplicaSpecs", "XGBoostJob": "xgbReplicaSpecs", "MPIJob": "mpiReplicaSpecs"}
SHOWN = shown("*migration.md", "TrainJob", *OLD_KINDS)
BEFORE = [each for each in SHOWN if OLD_KINDS.get(each.manifest["kind"]) in each.manifest["spec"]]

Object = dict[str, Any]


def after(before: Shown) -> Object:
    """Ours of the same name, on the same page."""
    name = before.manifest["metadata"]["name"]
    (found,) = (
        each.manifest
        for each in SHOWN
        if each.page == before.page and each not in BEFORE and each.manifest["metadata"]["name"] == name
    )
    return found


def old_roles(before: Shown) -> Iterator[tuple[int, str]]:
    """Of each role the replicas and the image; an MPIJob's launcher is none of the nodes."""
    roles = before.manifest["spec"][OLD_KINDS[before.manifest["kind"]]]
    for role, each in roles.items():
        if role != "Launcher":
            yield each["replicas"], each["template"]["spec"]["containers"][0]["image"]


def new_roles(job: Object) -> Iterator[tuple[int, str]]:
    if job["kind"] == "TFJob":
        for each in job["spec"]["replicaSpecs"]:
            yield each["replicas"], each["template"]["spec"]["containers"][0]["image"]
    else:
        yield job["spec"]["numNodes"], job["spec"]["trainer"]["image"]


@pytest.mark.parametrize("before", BEFORE, ids=lambda each: each.name)
def test_a_job_that_was_moved_has_as_many_pods_of_the_same_image(before: Shown) -> None:
    old, new = list(old_roles(before)), list(new_roles(after(before)))
    assert sum(count for count, _ in new) == sum(count for count, _ in old)
    assert {image for _, image in new} == {image for _, image in old}


@pytest.mark.parametrize("before", BEFORE, ids=lambda each: each.name)
def test_what_it_becomes_can_be_run(before: Shown) -> None:
    job = after(before)
    if job["kind"] == "TFJob":
        assert validation.validate(decoded(job)) is None
    else:
        assert trainjobvalidation.validate(decoded_train(job)) is None


def test_each_kind_that_is_spoken_of_is_shown() -> None:
    assert {each.manifest["kind"] for each in BEFORE} == OLD_KINDS.keys()
