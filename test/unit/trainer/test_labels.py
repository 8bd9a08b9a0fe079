"""Labels of children."""

from __future__ import annotations

from tfjob_controller.trainer.labels import job_labels, name_value, replica_labels, selector_string


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
