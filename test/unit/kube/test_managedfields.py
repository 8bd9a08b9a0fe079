"""Who wrote a field last."""

from __future__ import annotations

from tfjob_controller.kube.codec import decoder_for
from tfjob_controller.kube.managedfields import ManagedObject, managers_of

OBJECT = b"""{"metadata": {"name": "a", "labels": {"x": "y"}, "managedFields": [
  {"manager": "first", "operation": "Update", "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1",
   "fieldsV1": {"f:spec": {"f:suspend": {}, "f:template": {"f:spec": {}}}}},
  {"manager": "second", "operation": "Apply", "time": "2026-01-01T00:00:05Z",
   "fieldsV1": {"f:spec": {".": {}, "f:suspend": {}}}},
  {"manager": "status", "operation": "Update", "subresource": "status", "time": "2026-01-01T00:00:09Z",
   "fieldsV1": {"f:status": {"f:active": {}}}}
]}, "spec": {"suspend": true}}"""


def test_the_last_writer_of_a_field_comes_first() -> None:
    found = decoder_for(ManagedObject)(OBJECT).metadata
    assert found.labels == {"x": "y"}
    assert managers_of(found.managed_fields, "spec.suspend") == ["second", "first"]
    assert managers_of(found.managed_fields, "spec.template.spec") == ["first"]
    assert managers_of(found.managed_fields, "spec.suspend.deeper") == []
    assert managers_of(found.managed_fields, "spec.parallelism") == []


def test_an_object_without_managed_fields_has_no_managers() -> None:
    found = decoder_for(ManagedObject)(b'{"metadata": {"name": "a"}}').metadata
    assert managers_of(found.managed_fields, "spec.suspend") == []
