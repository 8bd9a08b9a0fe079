"""The rules of controller/causes.py: a sync says what caused it."""

from __future__ import annotations

from typing import Any

import structlog

from tfjob_controller.api.core import Pod, PodMeta
from tfjob_controller.controller.causes import ADDED, DELETED, MAX_TOLD, Causes

POD = Pod(PodMeta(name="train-worker-0", namespace="team", resource_version="17"))


def told(causes: Causes, key: str) -> list[Any]:
    with structlog.testing.capture_logs() as logs:
        causes.tell(key)
    return logs


def test_what_came_together_is_told_once_and_forgotten() -> None:
    causes = Causes(enabled=True)
    causes.note("team/train", ADDED, POD)
    causes.note("team/other", ADDED, POD)
    causes.note("team/train", DELETED, POD)
    words = [f"{type_} Pod train-worker-0 resourceVersion=17" for type_ in (ADDED, DELETED)]
    line = {"event": "sync begins", "log_level": "debug", "causes_left_out": 0}
    assert told(causes, "team/train") == [{**line, "causes": words}]
    assert told(causes, "team/train") == [{**line, "causes": []}]


def test_of_a_swarm_the_first_are_told_and_the_rest_counted() -> None:
    causes = Causes(enabled=True)
    for _ in range(MAX_TOLD + 5):
        causes.note("team/train", ADDED, POD)
    (line,) = told(causes, "team/train")
    assert (len(line["causes"]), line["causes_left_out"]) == (MAX_TOLD, 5)


def test_nothing_is_noted_unless_it_is_asked_for() -> None:
    causes = Causes(enabled=False)
    causes.note("team/train", ADDED, POD)
    causes.note_timer("team/train", 3.0)
    assert told(causes, "team/train") == []
