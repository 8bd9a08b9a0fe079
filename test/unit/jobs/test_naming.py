"""What children are called.

Labels of children.
"""

from __future__ import annotations

import random
import re
import string
import uuid

import pytest

from tfjob_controller.jobs.naming import (
    child_name,
    config_map_name,
    gang_name,
    job_labels,
    name_value,
    new_runtime_id,
    replica_id,
    replica_labels,
    runtime_id_of,
    selector_string,
)


@pytest.mark.parametrize(
    ("job_name", "name"),
    [
        pytest.param("example-job", "example-job-ps-76no-1", id="the tutorial's job"),
        pytest.param("a" * 60, "a" * 40 + "-ps-76no-1", id="a long name is cut to 40 characters"),
        pytest.param("a" * 39 + "-bc", "a" * 39 + "-ps-76no-1", id="a cut that ends in a dash loses it"),
        pytest.param("my.own.job", "my-own-job-ps-76no-1", id="a Service has no dots"),
        pytest.param("1st", "j1st-ps-76no-1", id="a Service begins with a letter"),
        pytest.param("1" + "a" * 50, "j1" + "a" * 38 + "-ps-76no-1", id="the letter is put before the cut"),
    ],
)
def test_a_child_is_named_after_job_type_runtime_id_and_index(job_name: str, name: str) -> None:
    assert child_name(job_name, "ps", "76no", 1) == name


@pytest.mark.parametrize(
    ("job_name", "name"),
    [("example-job", "example-job-76no"), ("a" * 60, "a" * 40 + "-76no"), ("1.st", "j1-st-76no")],
    ids=["the tutorial's job", "a long name", "no label"],
)
def test_a_gang_is_named_after_job_and_runtime_id(job_name: str, name: str) -> None:
    assert gang_name(job_name, "76no") == name


def test_a_long_role_takes_its_room_from_the_job_name() -> None:
    name = child_name("a" * 60, "dataset-initializer", "76no", 12345)
    assert len(name) == 63
    assert name.endswith("-dataset-initializer-76no-12345")


def test_replicas_and_config_map_have_their_names() -> None:
    assert replica_id("worker", 3) == "worker-3"
    assert config_map_name("76no") == "cm-ps-76no"


def test_a_runtime_id_is_a_letter_and_three_more_of_0_to_9_and_a_to_z() -> None:
    rng = random.Random(1)
    assert all(re.fullmatch("[a-z][0-9a-z]{3}", new_runtime_id((), rng)) for _ in range(500))


def test_a_runtime_id_that_is_taken_is_not_given_again() -> None:
    first = new_runtime_id((), random.Random(1))
    assert new_runtime_id({first}, random.Random(1)) != first


def test_a_runtime_id_that_follows_from_the_uid_is_always_the_same_one() -> None:
    assert runtime_id_of("8c1f1a5e-6f4c-4a27-9b4f-0c3f7c0b8d11") == "t3tn"
    assert runtime_id_of("uid-job") != runtime_id_of("uid-job-2")


def test_runtime_ids_of_uids_have_the_same_form_and_spread_over_all() -> None:
    rng = random.Random(1)
    made = {runtime_id_of(str(uuid.UUID(int=rng.getrandbits(128)))) for _ in range(2000)}
    assert all(re.fullmatch("[a-z][0-9a-z]{3}", each) for each in made)
    # Of 1.2 million. 2000 draws meet some 2 times.
    assert len(made) > 1980
    assert {each[0] for each in made} == set(string.ascii_lowercase)
    assert {each[3] for each in made} == set(string.digits + string.ascii_lowercase)


def test_labels_are_upstreams() -> None:
    assert replica_labels(job_labels("example-job", "76no"), "WORKER", 3) == {
        "kubeflow.org": "",
        "job_type": "WORKER",
        "runtime_id": "76no",
        "tf_job_name": "example-job",
        "task_index": "3",
    }


def test_a_label_value_is_cut_to_63_and_ends_alphanumeric() -> None:
    assert name_value("a" * 62 + ".-b" + "c" * 100) == "a" * 62
    assert name_value("a" * 63) == "a" * 63


def test_a_selector_names_all_labels_in_order() -> None:
    assert selector_string({"b": "2", "a": ""}) == "a=,b=2"
