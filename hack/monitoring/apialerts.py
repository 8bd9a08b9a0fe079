"""Alerts that tell how both programs get on with the API server: requests and watches."""

from __future__ import annotations

from monitoring.alert import BOTH, CRITICAL, LOGS_OF_CONTROLLER, WARNING, Alert, Group


def _share(codes: str) -> str:
    """Of all requests of a program, those that ended so."""
    return (
        f'sum by (job, namespace) (rate(rest_client_requests_total{{{BOTH}, code=~"{codes}"}}[5m])) '
        f"/ sum by (job, namespace) (rate(rest_client_requests_total{{{BOTH}}}[5m]))"
    )


def _p99(metric: str, more: str = "") -> str:
    return f"histogram_quantile(0.99, sum by (job, namespace, le) (rate({metric}_bucket{{{BOTH}{more}}}[5m])))"


_BY_CODE = ("by code", f"sum by (job, code, method) (rate(rest_client_requests_total{{{BOTH}}}[5m]))")

API = Group(
    "tfjob-controller.api",
    (
        Alert(
            name="TFJobAPIErrors",
            exprs=(f"{_share('5..|<error>')} > 0.05",),
            lasting="10m",
            severity=WARNING,
            summary="{{ $value | humanizePercentage }} of the requests of {{ $labels.job }} to the API server fail.",
            means="The API server answers with errors, or not at all (code `<error>`). Requests are repeated, so "
            "jobs become "
            "slow before anything is lost.",
            look=("the API server itself: `kubectl get --raw='/readyz?verbose'`", "which requests: the query"),
            act=(
                "only `<error>`: network, DNS, a proxy, a certificate that has expired; the log has the words",
                "500 with the name of a webhook: that webhook is down",
                "503, 504: the API server or etcd is overloaded",
            ),
            queries=(_BY_CODE,),
        ),
        Alert(
            name="TFJobAPIThrottled",
            exprs=(f"{_share('429')} > 0.01",),
            lasting="10m",
            severity=WARNING,
            summary="The API server turns away {{ $value | humanizePercentage }} of the requests of {{ $labels.job }}.",
            means="429: API Priority and Fairness has no room for these requests. They are sent again after the time "
            "that the "
            "answer names.",
            look=(
                "`kubectl get --raw=/debug/api_priority_and_fairness/dump_priority_levels`",
                "which requests: the query",
            ),
            act=(
                "lower `--qps`, so that the controller waits by itself",
                "give its ServiceAccount a FlowSchema with a priority level of its own",
                "a CRD that was just applied answers so for some seconds: that passes",
            ),
            queries=(_BY_CODE,),
        ),
        Alert(
            name="TFJobAPISlow",
            exprs=(f"""{_p99("rest_client_request_duration_seconds", ', verb!="GET"')} > 2""",),
            lasting="10m",
            severity=WARNING,
            summary="Writes of {{ $labels.job }} take up to {{ $value | humanizeDuration }}.",
            means="One in a hundred writes takes longer than two seconds. Jobs start late; above five seconds the "
            "lease is in "
            "danger too.",
            look=(
                "`apiserver_request_duration_seconds` and `etcd_request_duration_seconds` of the API server, if you "
                "scrape it",
                "by verb: the query",
            ),
            act=(
                "etcd's disk, and its size",
                "an admission webhook for pods, Jobs or Services that is slow",
                "if only this client is slow: its CPU limit",
            ),
            queries=(
                (
                    "by verb",
                    "histogram_quantile(0.99, sum by (job, verb, le) "
                    f"(rate(rest_client_request_duration_seconds_bucket{{{BOTH}}}[5m])))",
                ),
            ),
        ),
        Alert(
            name="TFJobClientThrottled",
            exprs=(f"{_p99('rest_client_rate_limiter_duration_seconds')} > 5",),
            lasting="15m",
            severity=WARNING,
            summary="Requests of {{ $labels.job }} wait {{ $value | humanizeDuration }} for --qps.",
            means="The program holds its own requests back, as `--qps` and `--burst` say, and there are more than "
            "that for a "
            "quarter of an hour.",
            look=("what it sends: the query",),
            act=(
                "raise `--qps` and `--burst`; `--qps=0` leaves it to the API server's own fairness",
                "many pods appear slowly although this is silent: kube-controller-manager has limits of its own",
            ),
            queries=(("requests a second", f"sum by (job, method) (rate(rest_client_requests_total{{{BOTH}}}[5m]))"),),
        ),
        Alert(
            name="TFJobRightsMissing",
            exprs=(
                "sum by (job, namespace, method, code) "
                f'(rate(rest_client_requests_total{{{BOTH}, code=~"401|403"}}[5m])) > 0',
            ),
            lasting="10m",
            severity=WARNING,
            summary="{{ $labels.job }} is refused ({{ $labels.code }}) when it sends {{ $labels.method }}.",
            means="403: a right is missing. 401: its token is not accepted. Refusals by a quota or by admission are "
            "403 too, and "
            "concern single jobs.",
            look=(
                f"the words: `{LOGS_OF_CONTROLLER} --tail=-1 | grep -i forbidden`",
                "what it may do: `kubectl auth can-i --list --as=system:serviceaccount:tfjob-system:tfjob-controller`",
            ),
            act=(
                "apply the ClusterRole of this version: an upgrade may need another right",
                "`exceeded quota`: the job's namespace has no room left; its status says so too",
            ),
            queries=(_BY_CODE,),
        ),
        Alert(
            name="TFJobCacheNotSynced",
            exprs=(f"min by (job, namespace, pod, name) (informer_synced{{{BOTH}}}) == 0",),
            lasting="5m",
            severity=CRITICAL,
            summary="{{ $labels.job }} has not read all {{ $labels.name }} yet.",
            means="A cache was never filled, so this replica works on nothing, whatever the kind.",
            look=("`/readyz` says which and why: a missing CRD, a missing right, a list that does not end",),
            act=(
                "apply the CRDs: `kubectl apply --server-side -k manifests/overlays/crds`",
                "apply the ClusterRole",
                "TrainJobs are not wanted: `--trainjobs=false`",
            ),
            queries=(
                ("which", f"informer_synced{{{BOTH}}} == 0"),
                ("lists and watches that failed", f"increase(reflector_failures_total{{{BOTH}}}[10m]) > 0"),
            ),
        ),
        Alert(
            name="TFJobWatchLost",
            exprs=(f"max by (job, namespace, pod, name) (reflector_connected{{{BOTH}}}) == 0",),
            lasting="5m",
            severity=CRITICAL,
            summary="{{ $labels.job }} has no watch on {{ $labels.name }}.",
            means="The cache is stale: what has changed since is not known here. A watch that breaks comes back within "
            "seconds, one that is silent is given up after 70.",
            look=(
                f"the words: `/readyz`, or `{LOGS_OF_CONTROLLER} --tail=-1 | grep -i watch`",
                "how often: the query",
            ),
            act=(
                "the CRD or a right was taken away: apply them again",
                "the API server is not reached: see [TFJobAPIErrors](TFJobAPIErrors.md)",
            ),
            queries=(("failures", f"increase(reflector_failures_total{{{BOTH}}}[10m])"),),
        ),
        Alert(
            name="TFJobWatchFlaps",
            exprs=(f"sum by (job, namespace, pod, name) (increase(reflector_failures_total{{{BOTH}}}[15m])) > 15",),
            lasting="5m",
            severity=WARNING,
            summary="The watch of {{ $labels.job }} on {{ $labels.name }} fails again and again.",
            means="It comes back each time, but changes are seen late, and whole lists cost the API server much.",
            look=(
                "whole lists: the query",
                "something between that cuts long answers: a proxy, a load balancer, a mesh",
            ),
            act=(
                "give the path to the API server an idle time-out above 70 seconds",
                "many 410: etcd compacts too early (`--etcd-compaction-interval`)",
            ),
            queries=(
                ("whole lists", f"increase(reflector_lists_total{{{BOTH}}}[15m])"),
                ("410", f"increase(reflector_expired_total{{{BOTH}}}[15m])"),
            ),
        ),
        Alert(
            name="TFJobCacheBehind",
            exprs=(f"max by (job, namespace, pod, name) (informer_pending_notifications{{{BOTH}}}) > 1000",),
            lasting="10m",
            severity=WARNING,
            summary="{{ $value }} changes of {{ $labels.name }} are not handled yet in {{ $labels.job }}.",
            means="Changes arrive faster than they are put on the queue: the process has too little CPU, or a "
            "handler hangs.",
            look=("CPU: the query, against the container's limit", "stacks: `/debug/` with `--debug-bind-address`"),
            act=("raise the CPU limit, or take it away", "report it with the stacks"),
            queries=(("CPU", f"rate(process_cpu_seconds_total{{{BOTH}}}[5m])"),),
        ),
    ),
)
