"""Alerts about requests and watches of both programs at the API server."""

from __future__ import annotations

from monitoring.alert import BOTH, CRITICAL, LOGS_OF_CONTROLLER, WARNING, Alert, Group


def _share(codes: str) -> str:
    """Returns the share of a program's requests with these codes."""
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
            means="The API server answers with errors, or not at all (code `<error>`). Requests are retried, so jobs "
            "become slow, but nothing is lost.",
            look=("the API server: `kubectl get --raw='/readyz?verbose'`", "which requests fail: the query"),
            act=(
                "only `<error>`: check the network, DNS, a proxy, expired certificates; the log has the message",
                "500 with the name of a webhook: repair that webhook",
                "503, 504: the API server or etcd is overloaded",
            ),
            queries=(_BY_CODE,),
        ),
        Alert(
            name="TFJobAPIThrottled",
            exprs=(f"{_share('429')} > 0.01",),
            lasting="10m",
            severity=WARNING,
            summary="The API server rejects {{ $value | humanizePercentage }} of the requests of {{ $labels.job }} "
            "(429).",
            means="API Priority and Fairness has no capacity for these requests (429). They are sent again after the "
            "time that the response names.",
            look=(
                "`kubectl get --raw=/debug/api_priority_and_fairness/dump_priority_levels`",
                "which requests are rejected: the query",
            ),
            act=(
                "lower `--qps`, so that the controller limits itself",
                "give its ServiceAccount a FlowSchema with its own priority level",
                "a CRD that was just applied has the same effect for some seconds",
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
            "lease may be lost too.",
            look=(
                "`apiserver_request_duration_seconds` and `etcd_request_duration_seconds` of the API server, if you "
                "scrape it",
                "by verb: the query",
            ),
            act=(
                "check etcd's disk and size",
                "check for slow admission webhooks for pods, Jobs or Services",
                "if only this client is slow, check its CPU limit",
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
            means="For 15 minutes the program has had more requests to send than `--qps` and `--burst` allow.",
            look=("the requests that it sends: the query",),
            act=(
                "raise `--qps` and `--burst`; `--qps=0` leaves it to the API server's own fairness",
                "if pods are created slowly without this alert, look at the limits of kube-controller-manager",
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
            means="A right is missing (403), or the token is not accepted (401). Refusals by a quota or by admission "
            "are 403 too, and concern single jobs.",
            look=(
                f"the message: `{LOGS_OF_CONTROLLER} --tail=-1 | grep -i forbidden`",
                "the rights of the controller: `kubectl auth can-i --list "
                "--as=system:serviceaccount:tfjob-system:tfjob-controller`",
            ),
            act=(
                "apply the ClusterRole of this version: an upgrade may need another right",
                "`exceeded quota`: the quota of the job's namespace is used up; the job's status says so too",
            ),
            queries=(_BY_CODE,),
        ),
        Alert(
            name="TFJobCacheNotSynced",
            exprs=(f"min by (job, namespace, pod, name) (informer_synced{{{BOTH}}}) == 0",),
            lasting="5m",
            severity=CRITICAL,
            summary="{{ $labels.job }} has not read all {{ $labels.name }} yet.",
            means="A cache was never filled, so this replica processes no job of any kind.",
            look=("`/readyz` names the cache and the cause: a missing CRD, a missing right, a list that does not end",),
            act=(
                "apply the CRDs: `kubectl apply --server-side -k manifests/overlays/crds`",
                "apply the ClusterRole",
                "if you do not use TrainJobs: `--trainjobs=false`",
            ),
            queries=(
                ("empty caches", f"informer_synced{{{BOTH}}} == 0"),
                ("failed lists and watches", f"increase(reflector_failures_total{{{BOTH}}}[10m]) > 0"),
            ),
        ),
        Alert(
            name="TFJobWatchLost",
            exprs=(f"max by (job, namespace, pod, name) (reflector_connected{{{BOTH}}}) == 0",),
            lasting="5m",
            severity=CRITICAL,
            summary="{{ $labels.job }} has no watch on {{ $labels.name }}.",
            means="The cache is stale: this replica does not see changes. A broken watch normally recovers within "
            "seconds; a silent one is closed after 70 seconds.",
            look=(
                f"the message: `/readyz`, or `{LOGS_OF_CONTROLLER} --tail=-1 | grep -i watch`",
                "how often it fails: the query",
            ),
            act=(
                "the CRD or a right was removed: apply them again",
                "the API server is not reachable: see [TFJobAPIErrors](TFJobAPIErrors.md)",
            ),
            queries=(("failures", f"increase(reflector_failures_total{{{BOTH}}}[10m])"),),
        ),
        Alert(
            name="TFJobWatchFlaps",
            exprs=(f"sum by (job, namespace, pod, name) (increase(reflector_failures_total{{{BOTH}}}[15m])) > 15",),
            lasting="5m",
            severity=WARNING,
            summary="The watch of {{ $labels.job }} on {{ $labels.name }} fails repeatedly.",
            means="The watch recovers each time, but changes are seen late, and full lists are expensive for the API "
            "server.",
            look=("full lists: the query", "proxies, load balancers or meshes that cut long responses"),
            act=(
                "raise the idle timeout on the path to the API server above 70 seconds",
                "many 410: etcd compacts too early (`--etcd-compaction-interval`)",
            ),
            queries=(
                ("full lists", f"increase(reflector_lists_total{{{BOTH}}}[15m])"),
                ("410", f"increase(reflector_expired_total{{{BOTH}}}[15m])"),
            ),
        ),
        Alert(
            name="TFJobCacheBehind",
            exprs=(f"max by (job, namespace, pod, name) (informer_pending_notifications{{{BOTH}}}) > 1000",),
            lasting="10m",
            severity=WARNING,
            summary="{{ $value }} changes of {{ $labels.name }} are not handled yet in {{ $labels.job }}.",
            means="Changes arrive faster than they are added to the queue: the process has too little CPU, or a "
            "handler hangs.",
            look=(
                "CPU: the query, against the container's limit",
                "stacks of all threads: `/debug/` with `--debug-bind-address`",
            ),
            act=("raise or remove the CPU limit", "report it with the stacks"),
            queries=(("CPU", f"rate(process_cpu_seconds_total{{{BOTH}}}[5m])"),),
        ),
    ),
)
