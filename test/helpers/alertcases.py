"""For each alert, series on which it must fire, and similar series on which it must not.

Values are promtool's: `0+60x30` is 0 and thirty more samples, each 60 higher; `_` is no sample. There is one sample a
minute.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

C, G = 'job="tfjob-controller"', 'job="gang-scheduler"'


@dataclass(frozen=True, slots=True)
class Case:
    """The rule is evaluated `at` minutes after the first sample."""

    series: Mapping[str, str]
    at: int = 30


@dataclass(frozen=True, slots=True)
class Cases:
    fires: tuple[Case, ...]
    silent: tuple[Case, ...]


def _one(bad: Mapping[str, str], good: Mapping[str, str], at: int = 30) -> Cases:
    return Cases((Case(bad, at),), (Case(good, at),))


def _histogram(metric: str, labels: str, *counts: tuple[str, int]) -> dict[str, str]:
    """Returns the series of a histogram that grows each minute by these counts, by `le`."""
    return {f'{metric}_bucket{{{labels}, le="{le}"}}': f"0+{count}x60" for le, count in counts}


_LEADER = "leader_election_master_status{" + C + ', namespace="s", name="l", pod="%s"}'
_REQUESTS = "rest_client_requests_total{" + C + ', namespace="s", method="GET", code="%s"}'
_OF_PODS = C + ', namespace="s", pod="a", name="pods"'
_OF_TFJOB = C + ', namespace="s", controller="tfjob"'
_RESTARTS = "tfjob_restarts_max{" + C + ', namespace="team", pod="%s"}'
_LONGEST = "gang_queue_longest_wait_seconds{" + G + ', namespace="s", fits="%s"}'
_WRITES = "gang_status_writes_total{" + G + ', namespace="s", result="%s"}'
_BINDINGS = "gang_bindings_total{" + G + ', namespace="s", result="%s"}'
_GANGS_SEEN = "informer_objects{" + C + ', name="gangs"}'
_SECONDS, _LIMITED = "rest_client_request_duration_seconds", "rest_client_rate_limiter_duration_seconds"
_FILTER = "gang_extender_filter_duration_seconds"

_UNSAVED = 'tfjob_checkpoint_timestamp_seconds{kind="TrainJob", namespace="t", job="train"}'

CASES: Mapping[str, Cases] = {
    "TFJobControllerDown": _one(
        {f'up{{{C}, pod="a"}}': "0x60"},
        {f'up{{{C}, pod="a"}}': "0x60", f'up{{{C}, pod="b"}}': "1x60"},
    ),
    "TFJobReplicaDown": _one(
        {f'up{{{C}, pod="a"}}': "0x60", f'up{{{C}, pod="b"}}': "1x60"},
        {f'up{{{C}, pod="a"}}': "1x25 0x5 1x30", f'up{{{G}, pod="b"}}': "1x60"},
    ),
    "TFJobNoLeader": _one(
        {_LEADER % "a": "0x60", _LEADER % "b": "0x60"},
        {_LEADER % "a": "0x60", _LEADER % "b": "1x60"},
    ),
    "TFJobTwoLeaders": _one(
        {_LEADER % "a": "1x60", _LEADER % "b": "1x60"},
        {_LEADER % "a": "1x30 0x30", _LEADER % "b": "0x29 1x30"},
    ),
    "TFJobThreadDied": _one(
        {f'tfjob_controller_thread_restarts_total{{{C}, thread="w"}}': "0x25 1x30"},
        {f'tfjob_controller_thread_restarts_total{{{C}, thread="w"}}': "3x60"},
    ),
    "TFJobOutOfFiles": _one(
        {f"process_open_fds{{{C}}}": "900x60", f"process_max_fds{{{C}}}": "1000x60"},
        {f"process_open_fds{{{C}}}": "700x60", f"process_max_fds{{{C}}}": "1000x60"},
    ),
    "TFJobQueueStuck": _one(
        {f'workqueue_longest_running_processor_seconds{{{C}, namespace="s", name="tfjob"}}': "0+60x60"},
        {f'workqueue_longest_running_processor_seconds{{{C}, namespace="s", name="tfjob"}}': "0x26 0+60x9"},
    ),
    "TFJobQueueGrows": Cases(
        (Case({f'workqueue_depth{{{C}, name="tfjob"}}': "0+10x60"}, 40),),
        (
            Case({f'workqueue_depth{{{C}, name="tfjob"}}': "100x60"}, 40),
            Case({f'workqueue_depth{{{C}, name="tfjob"}}': "0x20 500-25x20 0x20"}, 40),
        ),
    ),
    "TFJobSyncsFail": _one(
        {
            f"controller_runtime_reconcile_errors_total{{{_OF_TFJOB}}}": "0+30x60",
            f'controller_runtime_reconcile_total{{{_OF_TFJOB}, result="error"}}': "0+30x60",
            f'controller_runtime_reconcile_total{{{_OF_TFJOB}, result="success"}}': "0+30x60",
        },
        {
            f"controller_runtime_reconcile_errors_total{{{_OF_TFJOB}}}": "0+6x60",
            f'controller_runtime_reconcile_total{{{_OF_TFJOB}, result="error"}}': "0+6x60",
            f'controller_runtime_reconcile_total{{{_OF_TFJOB}, result="success"}}': "0+30x60",
        },
        40,
    ),
    "TFJobSyncPanics": _one(
        {f"controller_runtime_reconcile_panics_total{{{_OF_TFJOB}}}": "0x25 1x30"},
        {f"controller_runtime_reconcile_panics_total{{{_OF_TFJOB}}}": "2x60"},
    ),
    "TFJobRestartsInLoop": Cases(
        (
            Case({_RESTARTS % "a": "0x20 0+1x60"}, 50),
            Case({(_RESTARTS % "a").replace("tfjob_r", "trainjob_r"): "0+1x60"}, 50),
            # The namespace had no jobs half an hour ago.
            Case({_RESTARTS % "a": "_x30 0+1x30"}, 50),
        ),
        (
            Case({_RESTARTS % "a": "40x60"}, 50),
            Case({_RESTARTS % "a": "0x20 0+0.1x60"}, 50),
            # The leader changes.
            Case({_RESTARTS % "a": "9x30 _x30", _RESTARTS % "b": "_x31 9x30"}, 50),
        ),
    ),
    "TFJobCheckpointOld": Cases(
        (Case({_UNSAVED: "0x200"}, 150),),
        (
            Case({_UNSAVED: "0x60 3600x140"}, 150),
            Case({_UNSAVED: "0x130 _x70"}, 150),
        ),
    ),
    "TFJobWorkersTooMany": _one(
        {
            f'tfjob_workers_actual{{{C}, namespace="t"}}': "10x60",
            f'tfjob_workers_desired{{{C}, namespace="t"}}': "8x60",
        },
        {
            f'tfjob_workers_actual{{{C}, namespace="t"}}': "10x25 8x35",
            f'tfjob_workers_desired{{{C}, namespace="t"}}': "8x60",
        },
        50,
    ),
    "TFJobAPIErrors": Cases(
        (
            Case({_REQUESTS % "500": "0+10x60", _REQUESTS % "200": "0+90x60"}),
            Case({_REQUESTS % "<error>": "0+10x60", _REQUESTS % "200": "0+90x60"}),
        ),
        (
            Case({_REQUESTS % "500": "0+1x60", _REQUESTS % "200": "0+99x60"}),
            Case({_REQUESTS % "404": "0+50x60", _REQUESTS % "200": "0+50x60"}),
        ),
    ),
    "TFJobAPIThrottled": _one(
        {_REQUESTS % "429": "0+2x60", _REQUESTS % "200": "0+98x60"},
        {_REQUESTS % "429": "0x20 0+2x3 6x40", _REQUESTS % "200": "0+98x60"},
    ),
    "TFJobAPISlow": Cases(
        (Case(_histogram(_SECONDS, f'{C}, namespace="s", verb="POST"', ("2", 50), ("4", 100), ("+Inf", 100))),),
        (
            Case(_histogram(_SECONDS, f'{C}, namespace="s", verb="POST"', ("0.1", 50), ("2", 100), ("+Inf", 100))),
            Case(_histogram(_SECONDS, f'{C}, namespace="s", verb="GET"', ("2", 50), ("4", 100), ("+Inf", 100))),
        ),
    ),
    "TFJobClientThrottled": _one(
        _histogram(_LIMITED, f'{C}, namespace="s", verb="POST"', ("4", 10), ("8", 100), ("+Inf", 100)),
        _histogram(_LIMITED, f'{C}, namespace="s", verb="POST"', ("4", 100), ("8", 100), ("+Inf", 100)),
    ),
    "TFJobRightsMissing": _one({_REQUESTS % "403": "0+1x60"}, {_REQUESTS % "403": "5x60", _REQUESTS % "404": "0+1x60"}),
    "TFJobCacheNotSynced": _one(
        {f"informer_synced{{{_OF_PODS}}}": "0x60"}, {f"informer_synced{{{_OF_PODS}}}": "1x26 0x3 1x30"}
    ),
    "TFJobWatchLost": _one(
        {f"reflector_connected{{{_OF_PODS}}}": "1x5 0x60"}, {f"reflector_connected{{{_OF_PODS}}}": "1x26 0x3 1x30"}
    ),
    "TFJobWatchFlaps": _one(
        {f"reflector_failures_total{{{_OF_PODS}}}": "0+2x60"}, {f"reflector_failures_total{{{_OF_PODS}}}": "0+0.5x60"}
    ),
    "TFJobCacheBehind": _one(
        {f"informer_pending_notifications{{{_OF_PODS}}}": "5000x60"},
        {f"informer_pending_notifications{{{_OF_PODS}}}": "0x22 5000x8 0x30"},
    ),
    "GangSchedulerDown": Cases(
        (Case({_GANGS_SEEN: "3x60"}), Case({_GANGS_SEEN: "3x60", f"up{{{G}}}": "0x60"})),
        (Case({_GANGS_SEEN: "3x60", f"up{{{G}}}": "1x60"}), Case({_GANGS_SEEN: "0x60"})),
    ),
    "GangWaitsThoughItFits": _one(
        {_LONGEST % "yes": "0+60x60"}, {_LONGEST % "yes": "0x27 1800x3", _LONGEST % "no": "0+60x60"}
    ),
    "GangQueueStuck": _one({_LONGEST % "unknown": "0+60x60"}, {_LONGEST % "unknown": "0x27 90x1 0x30"}),
    "GangRoomHeld": Cases((Case({_LONGEST % "held": "0+60x150"}, 120),), (Case({_LONGEST % "held": "0+60x150"}, 80),)),
    "GangPartlyBound": _one(
        {f'gang_partly_bound_longest_seconds{{{G}, namespace="s"}}': "0+60x60"},
        {f'gang_partly_bound_longest_seconds{{{G}, namespace="s"}}': "0x26 0+60x30"},
    ),
    "GangRepairs": _one(
        {_WRITES % "reassigned": "0+0.5x90", _WRITES % "requeued": "0+0.5x90"},
        {_WRITES % "reassigned": "3x90", _WRITES % "admitted": "0+10x90"},
        60,
    ),
    "GangBindingsRefused": _one(
        {_BINDINGS % "refused": "0+1x60"}, {_BINDINGS % "refused": "3x60", _BINDINGS % "bound": "0+10x60"}
    ),
    "GangFilterSlow": _one(
        _histogram(_FILTER, f'{G}, namespace="s"', ("0.1", 50), ("0.5", 100), ("+Inf", 100)),
        _histogram(_FILTER, f'{G}, namespace="s"', ("0.001", 100), ("0.1", 100), ("+Inf", 100)),
    ),
}
