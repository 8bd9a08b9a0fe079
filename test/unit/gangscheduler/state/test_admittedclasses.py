"""Which PriorityClasses are remembered, of which namespaces."""

from __future__ import annotations

from tfjob_controller.gangscheduler.state.admittedclasses import AdmittedClasses


def test_a_class_is_known_in_the_namespaces_of_its_pods() -> None:
    classes = AdmittedClasses()
    assert classes.add("team", "high")
    assert not classes.add("team", "high")
    assert not classes.add("team", "")
    assert classes.has("team", "high")
    assert not classes.has("other", "high")
    assert not classes.has("team", "")


def test_a_namespace_with_very_many_classes_displaces_only_its_own() -> None:
    classes = AdmittedClasses()
    classes.add("team", "high")
    for number in range(10_000):
        classes.add("flood", f"class-{number}")
    assert classes.has("team", "high")
    known = sum(classes.has("flood", f"class-{number}") for number in range(10_000))
    assert known < 5_000
