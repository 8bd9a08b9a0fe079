"""A Gang with any spec and any edited status affects no other gang."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.examples import examples
from helpers.gangworld import BIND_TIMEOUT_SECONDS, GangWorld
from tfjob_controller.api.gang import PHASES, PREEMPTION_STATES
from tfjob_controller.scheduling.preemption import PreemptionPolicy

names = st.sampled_from(["worker", "ps", "w", "a-b", ""])
numbers = st.sampled_from([-1, 0, 1, 2, 7, 300, 2**31 - 1])
counts = st.sampled_from([-1, 0, 1, 2, 7, 300])
quantities = st.sampled_from(["1", "0", "-1", "lots", "", "1e999", "500m", "9" * 40, "1Ei"])
moments = st.sampled_from(["", "never", "0000-01-01T00:00:00Z", "2026-01-01T00:00:30Z", "9999-12-31T23:59:59-14:00"])
ids = st.sampled_from(["worker-0", "worker-1", "worker-99", "king-7", "worker", "-", "", "worker--1"])
resources = st.dictionaries(st.sampled_from(["cpu", "memory", "pods", "x/y", ""]), quantities, max_size=3)
labels = st.dictionaries(st.sampled_from(["zone", "", "a/b/c"]), st.sampled_from(["a", ""]), max_size=1)
loose = st.recursive(
    st.none() | st.sampled_from(["In", "Exists", "Gt", "", "zone"]) | numbers,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["nodeSelectorTerms", "matchExpressions", "matchFields", "key", "operator", "values"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)
members = st.fixed_dictionaries(
    {"name": names, "count": counts, "resources": resources},
    optional={
        "nodeSelector": labels,
        "tolerations": st.lists(st.dictionaries(st.sampled_from(["key", "operator", "effect"]), loose), max_size=2),
        "nodeAffinity": st.none() | st.dictionaries(st.just("nodeSelectorTerms"), loose),
    },
)
limits = st.dictionaries(names, numbers, max_size=2)
specs = st.fixed_dictionaries(
    {"members": st.lists(members, max_size=3)},
    optional={"minMembers": limits, "maxMembers": limits, "priority": numbers, "suspend": st.booleans()},
)
statuses = st.fixed_dictionaries(
    {},
    optional={
        "phase": st.sampled_from([*PHASES, "", "Odd"]),
        "attempt": numbers,
        "placement": st.lists(
            st.fixed_dictionaries(
                {"node": st.sampled_from(["a", "nowhere", ""]), "members": st.lists(ids, max_size=3)}
            ),
            max_size=3,
        ),
        "requeueTime": moments,
        "queuedTime": moments,
        "position": numbers,
        "preemption": st.fixed_dictionaries(
            {},
            optional={
                "by": st.sampled_from(["team/odd", "team/good", "nobody", ""]),
                "state": st.sampled_from([*PREEMPTION_STATES, "Odd"]),
                "time": moments,
            },
        ),
    },
)


@settings(max_examples=examples(40), deadline=None)
@given(first=specs, second=specs, said=statuses, is_restarted=st.booleans())
def test_no_gang_stops_the_others(
    first: dict[str, Any], second: dict[str, Any], said: dict[str, Any], is_restarted: bool
) -> None:
    world = GangWorld(preemption=PreemptionPolicy())
    world.put_node("a", 4)
    world.put_node("z", 4)
    world.add_gang("odd", worker=1)
    for change in ({"spec": {"members": None}}, {"spec": first}, {"status": said}, {"spec": second}):
        world.change_gang("odd", change)
        if is_restarted:
            world.start_scheduler()
        world.run()
        world.schedule()
    world.remove_gang("odd")
    world.add_gang("good", worker=8)
    world.clock.advance(BIND_TIMEOUT_SECONDS)
    for _ in range(2):
        world.run()
        world.create_pods("good")
        world.schedule()
        world.run()
    assert world.phase("good") == "Bound"
    world.stop_writing()
