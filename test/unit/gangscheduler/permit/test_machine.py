"""The rules of gangscheduler/permit/machine.py, one test each."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence

import pytest

from tfjob_controller.gangscheduler.bindrequests import (
    NOT_ADMITTED,
    NOT_COMPLETE,
    POD_DELETED,
    REJECTED,
    SECOND_POD,
    STOPPING,
    SUPERSEDED,
    UNKNOWN_MEMBER,
    WRONG_ATTEMPT,
    WRONG_NODE,
    BindRequest,
    GangMember,
)
from tfjob_controller.gangscheduler.permit.machine import PermitMachine
from tfjob_controller.gangscheduler.permit.members import (
    AttemptRejected,
    BindResponse,
    GangBound,
    PermitOutput,
    PermitPhase,
    PostBindings,
)

GANG = "ns/gang"
NODES = {"worker-0": "n0", "worker-1": "n1", "worker-2": "n1"}
CALL_TIMEOUT, BIND_TIMEOUT, ADMITTED_TIMEOUT = 240.0, 60.0, 600.0
MEMBERS = list(NODES)


def pod(member: str, generation: int = 1, node: str = "") -> BindRequest:
    return BindRequest("ns", f"{member}-{generation}", f"uid-{member}-{generation}", node or NODES.get(member, "n0"))


class Trial:
    """A machine, its time, and calls that number themselves."""

    def __init__(self, nodes: dict[str, str] | None = None, attempt: int = 1) -> None:
        self.machine = PermitMachine(
            call_timeout_seconds=CALL_TIMEOUT,
            bind_timeout_seconds=BIND_TIMEOUT,
            admitted_timeout_seconds=ADMITTED_TIMEOUT,
        )
        self.now = 1000.0
        self.attempt = attempt
        self._calls = itertools.count(1)
        assert self.set_placement(nodes or NODES) == []

    def set_placement(self, nodes: dict[str, str], attempt: int | None = None, **options: object) -> list[PermitOutput]:
        return self.machine.set_placement(GANG, attempt or self.attempt, nodes, self.now, **options)  # type: ignore[arg-type]  # options of a test

    def request_bind(
        self, member: str, who: GangMember | None = None, at: BindRequest | None = None
    ) -> list[PermitOutput]:
        return self.machine.request_bind(
            next(self._calls), who or GangMember(GANG, self.attempt, member), at or pod(member), self.now
        )

    def request_bind_all(self, members: Iterable[str] = MEMBERS) -> list[PermitOutput]:
        """What came out of the last."""
        outputs: list[PermitOutput] = []
        for member in members:
            outputs = self.request_bind(member)
        return outputs

    def result(self, member: str, error: str = "", generation: int = 1) -> list[PermitOutput]:
        return self.machine.record_result(GANG, self.attempt, member, pod(member, generation).uid, error, self.now)

    def bound(self) -> Trial:
        self.request_bind_all()
        for member in MEMBERS:
            self.result(member)
        return self

    def later(self, seconds: float) -> list[PermitOutput]:
        self.now += seconds
        return self.machine.tick(self.now)


def posted(outputs: Sequence[PermitOutput]) -> list[str]:
    return [member for output in outputs if isinstance(output, PostBindings) for member, _ in output.pods]


def test_nothing_is_bound_before_the_last_member_has_come_and_then_all_are() -> None:
    trial = Trial()
    assert trial.request_bind("worker-2") == []
    assert trial.request_bind("worker-0") == []
    assert trial.machine.gangs[GANG].absent == {"worker-1"}
    pods = tuple((member, pod(member)) for member in MEMBERS)
    assert trial.request_bind("worker-1") == [PostBindings(GANG, 1, pods)]


def test_each_call_is_answered_when_its_pod_is_bound_and_the_last_says_so_of_the_gang() -> None:
    trial = Trial()
    trial.request_bind_all()
    assert trial.result("worker-1") == [BindResponse(2)]
    assert trial.result("worker-0") == [BindResponse(1)]
    assert trial.result("worker-2") == [BindResponse(3), GangBound(GANG, 1)]
    assert trial.machine.gangs[GANG].phase is PermitPhase.BOUND
    assert trial.later(10 * BIND_TIMEOUT) == []


Setup = Callable[[Trial], object]


@pytest.mark.parametrize(
    ("before", "who", "at", "error"),
    [
        pytest.param(None, GangMember("ns/other", 1, "worker-0"), pod("worker-0"), NOT_ADMITTED, id="unknown gang"),
        pytest.param(None, GangMember(GANG, 0, "worker-0"), pod("worker-0"), WRONG_ATTEMPT, id="old attempt"),
        pytest.param(None, GangMember(GANG, 2, "worker-0"), pod("worker-0"), WRONG_ATTEMPT, id="future attempt"),
        pytest.param(None, GangMember(GANG, 1, "worker-9"), pod("worker-9"), UNKNOWN_MEMBER, id="unknown member"),
        pytest.param(None, GangMember(GANG, 1, "worker-0"), pod("worker-0", node="n9"), WRONG_NODE, id="not its node"),
        pytest.param(
            lambda trial: trial.request_bind("worker-0"),
            GangMember(GANG, 1, "worker-0"),
            pod("worker-0", 2),
            SECOND_POD,
            id="second pod, the first waits",
        ),
        pytest.param(
            lambda trial: trial.request_bind_all(),
            GangMember(GANG, 1, "worker-0"),
            pod("worker-0", 2),
            SECOND_POD,
            id="second pod, the first is being bound",
        ),
        pytest.param(
            Trial.bound, GangMember(GANG, 1, "worker-0"), pod("worker-0", 2), SECOND_POD, id="the first is bound"
        ),
        pytest.param(
            lambda trial: trial.later(BIND_TIMEOUT),
            GangMember(GANG, 1, "worker-0"),
            pod("worker-0"),
            REJECTED,
            id="too late",
        ),
    ],
)
def test_a_pod_without_an_assignment_is_answered_at_once_and_changes_nothing(
    before: Setup | None, who: GangMember, at: BindRequest, error: str
) -> None:
    trial = Trial()
    if before is not None:
        before(trial)
    statistics = trial.machine.statistics()
    [answer] = trial.request_bind("", who, at)
    assert isinstance(answer, BindResponse)
    assert answer.error == error
    assert trial.machine.statistics() == statistics


def test_a_call_ends_before_kube_scheduler_loses_patience_and_its_member_counts_on() -> None:
    trial = Trial()
    trial.request_bind("worker-0")
    trial.machine.note_progress(GANG, 1, "worker-1", trial.now + CALL_TIMEOUT)
    assert trial.later(CALL_TIMEOUT - 1) == []
    assert trial.later(1) == [BindResponse(1, NOT_COMPLETE)]
    assert posted(trial.request_bind_all(["worker-1", "worker-2"])) == MEMBERS
    assert trial.result("worker-0") == []


def test_the_same_pod_may_come_again_and_only_its_newest_call_waits() -> None:
    trial = Trial()
    trial.request_bind("worker-0")
    assert trial.request_bind("worker-0") == [BindResponse(1, SUPERSEDED)]
    trial.request_bind_all(["worker-1", "worker-2"])
    assert trial.request_bind("worker-0") == [BindResponse(2, SUPERSEDED)]
    assert trial.result("worker-0") == [BindResponse(5)]
    assert trial.request_bind("worker-0") == [BindResponse(6)], "it is bound"


@pytest.mark.parametrize(
    "progress",
    [
        pytest.param(lambda trial: trial.request_bind("worker-1"), id="a call arrives"),
        pytest.param(lambda trial: trial.machine.note_progress(GANG, 1, "worker-2", trial.now), id="a pod is created"),
    ],
)
def test_a_gang_is_given_up_only_after_a_time_without_progress(progress: Setup) -> None:
    trial = Trial()
    trial.machine.note_progress(GANG, 1, "worker-1", trial.now)
    trial.request_bind("worker-0")
    assert trial.later(BIND_TIMEOUT - 1) == []
    progress(trial)
    assert trial.later(BIND_TIMEOUT - 1) == []
    assert AttemptRejected(GANG, 1) in trial.later(1)
    assert trial.later(BIND_TIMEOUT) == [], "it is said once"
    assert trial.machine.statistics().calls == 0


@pytest.mark.parametrize(
    "attempt",
    [
        pytest.param(lambda trial: trial.machine.note_progress(GANG, 1, "worker-0", trial.now), id="created again"),
        pytest.param(lambda trial: trial.machine.note_progress(GANG, 1, "worker-9", trial.now), id="no member"),
        pytest.param(lambda trial: trial.machine.note_progress(GANG, 2, "worker-1", trial.now), id="other attempt"),
        pytest.param(lambda trial: trial.request_bind("worker-1"), id="calls, and is not as the gang says"),
    ],
)
def test_each_member_makes_progress_once_and_others_make_none(attempt: Setup) -> None:
    trial = Trial()
    trial.machine.note_progress(GANG, 1, "worker-0", trial.now)
    trial.request_bind("worker-0")
    trial.machine.remove_pod(GANG, "worker-0", pod("worker-0").uid)
    trial.now += BIND_TIMEOUT - 1
    attempt(trial)
    assert AttemptRejected(GANG, 1) in trial.later(1)
    assert trial.machine.has_progress(GANG)


@pytest.mark.parametrize(("members", "factor"), [(20, 1), (4000, 2)])
def test_whatever_progress_a_gang_makes_it_is_not_admitted_for_ever(members: int, factor: int) -> None:
    trial = Trial({f"worker-{number}": "n0" for number in range(members)})
    for number in range(members):
        trial.machine.note_progress(GANG, 1, f"worker-{number}", trial.now)
        if trial.later(BIND_TIMEOUT - 1):
            break
    assert trial.now - 1000.0 == pytest.approx(factor * ADMITTED_TIMEOUT, abs=BIND_TIMEOUT)


def test_an_attempt_without_pods_has_no_progress() -> None:
    trial = Trial()
    trial.request_bind("worker-0")
    assert not trial.machine.has_progress(GANG)
    assert not trial.machine.has_progress("ns/other")


def test_a_gang_that_was_given_up_binds_nobody_until_its_next_attempt() -> None:
    trial = Trial()
    trial.later(BIND_TIMEOUT)
    assert trial.request_bind_all() == [BindResponse(3, REJECTED)]
    assert trial.set_placement(NODES) == []
    assert trial.request_bind("worker-0") == [BindResponse(4, REJECTED)]
    assert trial.set_placement(NODES, attempt=2) == []
    trial.attempt = 2
    assert posted(trial.request_bind_all()) == MEMBERS


def test_bindings_in_progress_end_before_a_gang_is_rejected_attempts() -> None:
    trial = Trial()
    trial.request_bind_all()
    assert trial.later(BIND_TIMEOUT) == []
    assert trial.result("worker-0") == [BindResponse(1)]
    assert trial.result("worker-1", "refused") == [BindResponse(2, "refused")]
    assert trial.request_bind("worker-1") == [BindResponse(4, REJECTED)]
    assert trial.result("worker-2") == [BindResponse(3), AttemptRejected(GANG, 1)]


def test_once_some_are_bound_a_failed_binding_is_tried_again_alone() -> None:
    trial = Trial()
    trial.request_bind_all()
    assert trial.result("worker-0", "no") == [BindResponse(1, "no")]
    assert trial.result("worker-1") == [BindResponse(2)]
    assert posted(trial.request_bind("worker-0")) == ["worker-0"]
    trial.result("worker-2")
    assert trial.result("worker-0") == [BindResponse(4), GangBound(GANG, 1)]


def test_a_pod_that_can_never_be_bound_does_not_keep_a_gang_half_bound() -> None:
    trial = Trial()
    trial.request_bind_all()
    trial.result("worker-1")
    trial.result("worker-2")
    rejected_attempts: list[PermitOutput] = []
    for _ in range(int(BIND_TIMEOUT)):
        rejected_attempts += trial.result("worker-0", "no")
        trial.request_bind("worker-0")
        rejected_attempts += trial.later(1.0)
    rejected_attempts += trial.result("worker-0", "no")
    assert AttemptRejected(GANG, 1) in rejected_attempts


def test_a_replacement_in_a_bound_gang_passes_at_once() -> None:
    trial = Trial().bound()
    assert trial.machine.remove_pod(GANG, "worker-1", pod("worker-1").uid) == []
    assert trial.later(10 * BIND_TIMEOUT) == [], "and may take its time"
    assert posted(trial.request_bind("worker-1", at=pod("worker-1", 2))) == ["worker-1"]
    assert trial.result("worker-1", generation=2) == [BindResponse(4)], "the gang was bound before"


def test_a_lost_pod_no_longer_waits_and_its_call_is_answered() -> None:
    trial = Trial()
    trial.request_bind("worker-0")
    assert trial.machine.remove_pod(GANG, "worker-0", "another") == []
    assert trial.machine.remove_pod(GANG, "worker-0", pod("worker-0").uid) == [BindResponse(1, POD_DELETED)]
    assert trial.request_bind_all(["worker-1", "worker-2"]) == []
    assert posted(trial.request_bind("worker-0", at=pod("worker-0", 2))) == MEMBERS


@pytest.mark.parametrize("error", ["", "no"], ids=["bound", "failed"])
def test_a_pod_lost_while_its_binding_is_in_progress_is_removed_when_the_binding_ends(error: str) -> None:
    trial = Trial()
    trial.request_bind_all()
    assert trial.machine.remove_pod(GANG, "worker-0", pod("worker-0").uid) == []
    assert trial.request_bind("worker-0", at=pod("worker-0", 2)) == [BindResponse(4, SECOND_POD)]
    assert trial.result("worker-0", error) == [BindResponse(1, error or POD_DELETED)]
    assert posted(trial.request_bind("worker-0", at=pod("worker-0", 2))) == ["worker-0"]


def test_a_moved_member_has_to_come_again_and_the_others_wait_on() -> None:
    trial = Trial()
    trial.request_bind_all(["worker-0", "worker-1"])
    moved = NODES | {"worker-1": "n5"}
    assert trial.set_placement(moved) == [BindResponse(2, WRONG_NODE)]
    assert trial.request_bind("worker-2") == []
    outputs = trial.request_bind("worker-1", at=pod("worker-1", node="n5"))
    assert posted(outputs) == MEMBERS


def test_a_member_that_is_placed_no_more_is_not_waited_for() -> None:
    trial = Trial()
    trial.request_bind_all(["worker-0", "worker-1"])
    two = {"worker-0": "n0", "worker-1": "n1"}
    assert posted(trial.set_placement(two)) == ["worker-0", "worker-1"]
    assert trial.request_bind("worker-2") == [BindResponse(3, UNKNOWN_MEMBER)]
    waiting = Trial()
    waiting.request_bind("worker-2")
    assert waiting.set_placement(two) == [BindResponse(1, UNKNOWN_MEMBER)]


def test_a_new_attempt_starts_without_waiting_members_and_ends_the_old_one() -> None:
    trial = Trial()
    trial.request_bind_all(["worker-0", "worker-1"])
    assert trial.set_placement(NODES, attempt=2) == [BindResponse(1, WRONG_ATTEMPT), BindResponse(2, WRONG_ATTEMPT)]
    assert trial.machine.gangs[GANG].absent == set(MEMBERS)
    assert trial.request_bind("worker-2") == [BindResponse(3, WRONG_ATTEMPT)]
    assert trial.set_placement(NODES, attempt=1) == [], "an older attempt is of no interest"
    assert trial.request_bind("worker-2", GangMember(GANG, 2, "worker-2")) == []


def test_forgotten_is_not_admitted() -> None:
    trial = Trial()
    trial.request_bind("worker-0")
    assert trial.machine.forget(GANG) == [BindResponse(1, NOT_ADMITTED)]
    assert trial.request_bind("worker-0") == [BindResponse(2, NOT_ADMITTED)]
    assert trial.machine.forget(GANG) == []


def test_after_a_restart_a_gang_that_is_partly_bound_goes_forward() -> None:
    trial = Trial()
    trial.machine.stop()
    assert trial.set_placement(NODES, bound={"worker-0": pod("worker-0").uid}) == []
    assert trial.machine.gangs[GANG].phase is PermitPhase.BINDING
    assert posted(trial.request_bind("worker-1")) == ["worker-1"]
    trial.result("worker-1")
    trial.request_bind("worker-2")
    assert GangBound(GANG, 1) in trial.result("worker-2")


def test_after_a_restart_a_gang_that_is_all_bound_is_said_to_be() -> None:
    trial = Trial()
    trial.machine.stop()
    assert trial.set_placement(NODES, bound={member: pod(member).uid for member in MEMBERS}) == [GangBound(GANG, 1)]
    assert trial.set_placement(NODES, bound={member: pod(member).uid for member in MEMBERS}) == []


def test_after_a_restart_a_gang_that_was_bound_only_awaits_replacements() -> None:
    trial = Trial()
    trial.machine.stop()
    trial.set_placement(NODES, bound={"worker-0": pod("worker-0").uid}, was_bound=True)
    assert trial.later(10 * BIND_TIMEOUT) == []
    assert posted(trial.request_bind("worker-1")) == ["worker-1"]


def test_a_pod_known_to_be_bound_answers_its_call() -> None:
    trial = Trial()
    trial.request_bind("worker-0")
    assert trial.set_placement(NODES, bound={"worker-0": pod("worker-0").uid}) == [BindResponse(1)]


def test_when_all_bindings_have_failed_the_members_wait_again() -> None:
    trial = Trial()
    trial.request_bind_all()
    for member in MEMBERS:
        trial.result(member, "no")
    assert trial.machine.gangs[GANG].phase is PermitPhase.WAITING
    assert posted(trial.request_bind_all(["worker-0", "worker-1"])) == []
    assert posted(trial.request_bind("worker-2")) == MEMBERS


def test_a_gang_of_which_the_only_bound_pod_is_pod_deleted_gathers_again() -> None:
    trial = Trial()
    trial.request_bind_all()
    trial.result("worker-0")
    trial.result("worker-1", "no")
    trial.result("worker-2", "no")
    trial.machine.remove_pod(GANG, "worker-0", pod("worker-0").uid)
    assert posted(trial.request_bind_all(["worker-1", "worker-2"])) == []


def test_a_bound_gang_that_was_wound_up_and_goes_on_binds_replacements() -> None:
    trial = Trial().bound()
    assert trial.machine.reject(GANG) == [AttemptRejected(GANG, 1)]
    trial.machine.remove_pod(GANG, "worker-0", pod("worker-0").uid)
    assert trial.request_bind("worker-0", at=pod("worker-0", 2)) == [BindResponse(4, REJECTED)]
    assert trial.set_placement(NODES, was_bound=True) == []
    assert posted(trial.request_bind("worker-0", at=pod("worker-0", 2))) == ["worker-0"]


@pytest.mark.parametrize(
    ("end", "error"),
    [
        pytest.param(lambda trial: trial.machine.forget(GANG), "", id="forgotten, bound"),
        pytest.param(lambda trial: trial.machine.forget(GANG), "no", id="forgotten, failed"),
        pytest.param(lambda trial: trial.set_placement(NODES, attempt=2), "", id="a new attempt"),
        pytest.param(lambda trial: trial.set_placement(NODES | {"worker-0": "n5"}), "", id="placed elsewhere"),
        pytest.param(
            lambda trial: trial.set_placement({"worker-1": "n1", "worker-2": "n1"}), "no", id="placed no more"
        ),
    ],
)
def test_a_call_whose_binding_is_in_progress_is_answered_by_its_outcome_alone(
    end: Callable[[Trial], list[PermitOutput]], error: str
) -> None:
    """Else kube-scheduler would take the room for free, and put somebody there."""
    trial = Trial()
    trial.request_bind_all()
    assert end(trial) == []
    assert trial.result("worker-0", error) == [BindResponse(1, error)]


def test_a_call_whose_binding_is_in_progress_does_not_run_out() -> None:
    trial = Trial(dict(list(NODES.items())[:1]))
    trial.request_bind("worker-0")
    assert trial.later(CALL_TIMEOUT) == []
    assert trial.result("worker-0") == [BindResponse(1), GangBound(GANG, 1)]


def test_stop_answers_calls_whose_gang_is_forgotten_too() -> None:
    trial = Trial()
    trial.request_bind_all()
    trial.machine.forget(GANG)
    assert trial.machine.stop() == [BindResponse(1, STOPPING), BindResponse(2, STOPPING), BindResponse(3, STOPPING)]
