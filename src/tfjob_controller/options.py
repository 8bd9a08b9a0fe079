"""Every flag of every command, in one table for each; see `flags` for how they are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tfjob_controller.flags import (
    ADDRESS,
    BYTES,
    COUNT,
    DURATION,
    FILE,
    LOOPBACK_ADDRESS,
    NAMESPACE,
    OFF,
    RATE,
    SWITCH,
    TEXT,
    BindAddress,
    choice,
    choices,
    option,
    options_of,
    read_options,
)
from tfjob_controller.kube.names import SYSTEM_NAMESPACE
from tfjob_controller.util.commandline import UsageError

# Options of every command.


def _kubeconfig() -> Any:
    return option(
        FILE, "", "Path of a kubeconfig. Without it: the pod's service account, else $KUBECONFIG, else ~/.kube/config."
    )


def _context() -> Any:
    return option(TEXT, "", "Context of the kubeconfig to use instead of its current one.")


def _metrics(address: str) -> Any:
    return option(ADDRESS, address, "Address of /metrics; 0 turns it off.")


def _probes(address: str) -> Any:
    return option(ADDRESS, address, "Address of /healthz and /readyz; 0 turns them off.")


def _debug(things: str) -> Any:
    return option(
        LOOPBACK_ADDRESS,
        OFF,
        f"Address of /debug/ ({things}, caches, thread stacks), on loopback only; 0 turns it off.",
    )


def _log_format() -> Any:
    return option(choice("json", "console"), "json", "Format of log lines.")


def _log_level() -> Any:
    return option(choice("debug", "info", "warning", "error"), "info", "Lowest level that is logged.")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of `tfjob-controller run`. Times are seconds; a server without an address is off."""

    kubeconfig: str = _kubeconfig()
    context: str = _context()
    namespace: str = option(NAMESPACE, "", "The one namespace to watch; empty for all.")
    workers: int = option(
        COUNT,
        "10",
        "Number of jobs that are reconciled at the same time; at most four fifths of them are of one namespace.",
    )
    concurrent_writes: int = option(
        COUNT, "10", "Number of threads that write children, in addition to the workers; all jobs share them."
    )
    qps: float = option(
        RATE, "200", "Requests per second to the API server in total; 0 disables client-side rate limiting."
    )
    burst: int = option(COUNT, "400", "Number of requests that may be sent at once before --qps applies.")
    leader_elect: bool = option(
        SWITCH, "false", "Be active only while holding a Lease, so that several replicas can run."
    )
    leader_elect_lease_namespace: str = option(
        NAMESPACE, "", "Namespace of the Lease; empty for the namespace of the pod or of the kubeconfig's context."
    )
    leader_elect_lease_name: str = option(TEXT, "tfjob-controller", "Name of the Lease.")
    leader_elect_lease_duration: float = option(
        DURATION, "15s", "Time after the last renewal by the leader until another replica takes over."
    )
    leader_elect_renew_deadline: float = option(
        DURATION, "10s", "Time after which a leader that cannot renew the Lease exits."
    )
    leader_elect_retry_period: float = option(
        DURATION, "2s", "Time between two attempts to acquire or renew the Lease."
    )
    gang_scheduling: str = option(
        choice("off", "on-request", "always"),
        "on-request",
        "Which jobs run as gangs: none, those with spec.gang.enabled: true, or all except those with false.",
    )
    gang_mode: str = option(
        choice("extender", "affinity"),
        "extender",
        "How pods of gangs are bound: by the gang scheduler and its kube-scheduler, or by the scheduler that they "
        "name, with node affinity to their node. Must equal --mode of `tfjob-controller extender`.",
    )
    gang_backend: str = option(
        choice("gang", "volcano", "coscheduling", "kubernetes", "kueue"),
        "gang",
        "The scheduler of gangs: this project's, or another one, for which each gang gets an object: a PodGroup of "
        "Volcano, of the plugin coscheduling or of Kubernetes itself (alpha), or a Workload of Kueue.",
    )
    gang_scheduler_name: str = option(
        TEXT,
        "",
        "schedulerName of the pods of gangs. Empty for the default of the backend: gang-scheduler (with "
        "--gang-mode=extender), volcano, scheduler-plugins-scheduler; with kubernetes and kueue that of the template.",
    )
    autoscaling: str = option(
        choice("off", "recommend", "on"),
        "off",
        "How resize requests of the gang scheduler for running elastic jobs are handled: none are made, each is "
        "reported in an event, or the job is resized.",
    )
    trainjobs: bool = option(
        SWITCH, "true", "Run TrainJobs as well. Requires their CRDs; set it to false to run TFJobs only."
    )
    kubeflow_trainer_api: bool = option(
        SWITCH,
        "false",
        "Run the TrainJobs of Kubeflow Trainer's API group, trainer.kubeflow.org, as well. Requires its CRDs; its "
        "controller must not run.",
    )
    kubeflow_v1_api: tuple[str, ...] = option(
        choices("TFJob", "PyTorchJob", "MPIJob", "XGBoostJob", "JAXJob", "PaddleJob"),
        "",
        "Kinds of kubeflow.org/v1 that are run as Kubeflow's training-operator 1.9 runs them, separated by commas. "
        "Requires their CRDs; training-operator must not run. With TFJob, those of v1alpha1 are not run.",
    )
    kubeflow_v1_strict: bool = option(
        SWITCH,
        "false",
        "Follow training-operator for the kinds of --kubeflow-v1-api also where this project differs on purpose: for "
        "example, a deleted pod fails a TFJob, and replaced pods do not count for backoffLimit.",
    )
    mpi_kubectl_delivery_image: str = option(
        TEXT,
        "ghcr.io/kubeflow/training-v1/kubectl-delivery:latest",
        "Image of the init container that copies kubectl into the folder $TARGET_DIR of the launcher of an MPIJob.",
    )
    pytorch_init_container_image: str = option(
        TEXT, "alpine:3.10", "Image of the init container with which workers of a PyTorchJob wait for the master."
    )
    pytorch_init_container_max_tries: int = option(
        COUNT, "100", "How often it looks up the name of the master, every two seconds, before it fails."
    )
    pytorch_init_container_template_file: str = option(
        FILE,
        "/etc/config/initContainer.yaml",
        "YAML list of the init containers in the place of that one, in which {{.MasterAddr}}, {{.InitContainerImage}} "
        "and {{.MaxTries}} are replaced; read once at the start. The default is used if it exists.",
    )
    progress_server: bool = option(
        SWITCH,
        "false",
        "Accept progress reports from the programs of TrainJobs, in Kubeflow Trainer's protocol. Their pods get the "
        "address of the server and a token.",
    )
    progress_server_bind_address: BindAddress | None = option(  # noqa: RUF009 -- it is dataclasses.field
        ADDRESS, "127.0.0.1:10443", "Address at which the progress server listens, with TLS."
    )
    progress_server_url: str = option(
        TEXT,
        "",
        "URL by which pods reach the progress server, without a path. Empty: "
        "https://tfjob-controller-progress.<namespace>.svc:10443, with the namespace of the controller's pod.",
    )
    history: str = option(
        TEXT,
        "",
        "Directory, or s3://bucket/prefix, in which the manifest, status, timeline and logs of each job that ends are "
        "kept, also once it is deleted. Empty: none are kept.",
    )
    history_jobs: int = option(
        COUNT, "1000", "Number of ended jobs of each namespace that --history keeps; the oldest are removed first."
    )
    history_bytes: int = option(
        BYTES, "1Gi", "Bytes that --history keeps for each namespace; the oldest jobs are removed first."
    )
    controller_config_file: str = option(
        FILE, "", "YAML file with tfImage, initializerImage and accelerators; read once at the start. Empty for none."
    )
    metrics_bind_address: BindAddress | None = _metrics("127.0.0.1:8080")  # noqa: RUF009 -- it is dataclasses.field
    health_probe_bind_address: BindAddress | None = _probes("127.0.0.1:8081")  # noqa: RUF009 -- it is dataclasses.field
    debug_bind_address: BindAddress | None = _debug("queue")  # noqa: RUF009 -- it is dataclasses.field
    log_format: str = _log_format()
    log_level: str = _log_level()


OPTIONS = options_of(RunOptions)


def resolve(flags: Mapping[str, str], environ: Mapping[str, str]) -> RunOptions:
    """Returns the options of `run` from flags and environment. Raises UsageError."""
    options = read_options(RunOptions, flags, environ)
    _check(options)
    return options


def _check(options: RunOptions) -> None:
    """Raises UsageError for options that contradict each other."""
    if options.leader_elect_lease_duration <= options.leader_elect_renew_deadline:
        raise UsageError("--leader-elect-lease-duration must be longer than --leader-elect-renew-deadline")
    # client-go asks for the same: one try and its jitter have to fit (JitterFactor 1.2).
    if options.leader_elect_renew_deadline <= 1.2 * options.leader_elect_retry_period:
        raise UsageError("--leader-elect-renew-deadline must be longer than 1.2 times --leader-elect-retry-period")
    if options.progress_server:
        _check_progress_server(options)
    if options.gang_backend != "gang" and options.gang_mode == "affinity":
        raise UsageError("--gang-mode=affinity requires this project's gang scheduler: leave --gang-backend out")
    if options.autoscaling != "off" and options.gang_backend != "gang":
        raise UsageError("--autoscaling needs this project's gang scheduler: leave --gang-backend out")
    if options.autoscaling != "off" and options.gang_scheduling == "off":
        raise UsageError(
            "--autoscaling needs the gang scheduler's resize requests: give --gang-scheduling=on-request or always"
        )


def _check_progress_server(options: RunOptions) -> None:
    if options.progress_server_bind_address is None:
        raise UsageError(
            "--progress-server-bind-address cannot be off with --progress-server: programs send their reports to it"
        )
    if not options.progress_server_url:
        return
    try:
        url = urlsplit(options.progress_server_url)
        is_usable = url.scheme == "https" and bool(url.hostname) and url.port != 0 and not (url.query or url.fragment)
    except ValueError:
        is_usable = False
    if not is_usable or url.path.rstrip("/") or "@" in url.netloc:
        raise UsageError(
            "--progress-server-url must be a URL without a path, such as https://progress.example.org:10443"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtenderOptions:
    """The options of `tfjob-controller extender`. Times are seconds; a server without an address is off."""

    kubeconfig: str = _kubeconfig()
    context: str = _context()
    mode: str = option(
        choice("extender", "affinity"),
        "extender",
        "extender: kube-scheduler requests the nodes of the pods of gangs, and the gang scheduler binds them. "
        "affinity: the gang scheduler assigns nodes, and their owner pins each pod to its node; pods that share a "
        "template are gated, and the gang scheduler pins them. For clusters whose scheduler cannot be configured.",
    )
    extender_bind_address: BindAddress | None = option(  # noqa: RUF009 -- it is dataclasses.field
        ADDRESS,
        "127.0.0.1:8888",
        "Address for the calls of kube-scheduler. Other addresses than loopback require TLS and client certificates, "
        "because its clients can bind pods.",
    )
    extender_tls_cert_file: str = option(FILE, "", "Certificate of that server, PEM; empty for plain HTTP on loopback.")
    extender_tls_key_file: str = option(FILE, "", "Key of that certificate, PEM.")
    extender_client_ca_file: str = option(FILE, "", "CA that signs the client certificate of kube-scheduler, PEM.")
    extender_client_name: str = option(
        TEXT,
        "system:kube-scheduler",
        "Common name or DNS name that the client certificate must have. The CA may sign others, such as kubelets.",
    )
    extender_http_timeout: float = option(
        DURATION,
        "5m",
        "The httpTimeout of this extender in kube-scheduler's configuration; bind calls are answered before it.",
    )
    leader_lease_namespace: str = option(
        NAMESPACE,
        "kube-system",
        "Namespace of the Lease by which the kube-schedulers of several replicas elect a leader.",
    )
    leader_lease_name: str = option(
        TEXT,
        "",
        "Name of that Lease (resourceName in kube-scheduler's configuration). The gang scheduler is active while the "
        "kube-scheduler of its pod holds it. Empty: there is only one replica, which is always active.",
    )
    topology_key: str = option(
        TEXT,
        "",
        "Node labels of zones or racks, widest first, separated by commas. A gang is placed within one of them if one "
        "has the capacity.",
    )
    queue_order: str = option(
        choice("age", "fair"),
        "age",
        "Order of gangs of equal priority. age: the one that has waited longest comes first. fair: those of the "
        "namespace with the smallest share of the cluster come first, then the one that has waited longest.",
    )
    starvation_timeout: float = option(
        DURATION, "30s", "Waiting time of a gang after which no younger gang gets capacity that it could use."
    )
    preemption: str = option(
        choice("off", "on"),
        "off",
        "on: whole gangs of lower priority are preempted for a waiting gang. Priorities count up to the value of the "
        "PriorityClass of the pods.",
    )
    preempt_after: float = option(DURATION, "10s", "Waiting time after which a gang preempts others.")
    preemption_grace: float = option(
        DURATION, "60s", "Minimum time for which a gang has been bound before it is preempted."
    )
    provisioning_class: str = option(
        TEXT,
        "",
        "Class of the ProvisioningRequests to a node autoscaler for gangs that lack capacity, such as "
        "best-effort-atomic-scale-up.autoscaling.x-k8s.io. Empty: no requests.",
    )
    provision_after: float = option(
        DURATION, "15s", "Time without capacity after which nodes are requested for a gang."
    )
    scale_down_after: float = option(
        DURATION,
        "30s",
        "Waiting time of the first gang in the queue after which running elastic gangs are requested to shrink.",
    )
    scale_up_after: float = option(
        DURATION,
        "60s",
        "Time without waiting gangs and resizes after which a gang is requested to grow by one member.",
    )
    bind_timeout: float = option(
        DURATION, "60s", "Time without progress after which an admitted gang returns to the queue."
    )
    admitted_timeout: float = option(
        DURATION,
        "10m",
        "Time after which an admitted gang that is not bound returns to the queue, even if it makes progress. A gang "
        "of more than 2,000 pods has proportionally longer.",
    )
    concurrent_writes: int = option(
        COUNT,
        "16",
        "Number of Bindings, and of statuses, that are written at the same time; at most four fifths of the statuses "
        "are of one namespace.",
    )
    qps: float = option(
        RATE, "1000", "Requests per second to the API server in total; 0 disables client-side rate limiting."
    )
    burst: int = option(COUNT, "2000", "Number of requests that may be sent at once before --qps applies.")
    metrics_bind_address: BindAddress | None = _metrics("127.0.0.1:8090")  # noqa: RUF009 -- it is dataclasses.field
    health_probe_bind_address: BindAddress | None = _probes("127.0.0.1:8091")  # noqa: RUF009 -- it is dataclasses.field
    debug_bind_address: BindAddress | None = _debug("gangs")  # noqa: RUF009 -- it is dataclasses.field
    log_format: str = _log_format()
    log_level: str = _log_level()


SERVICE_ACCOUNT_CA = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"


@dataclass(frozen=True, slots=True, kw_only=True)
class DashboardOptions:
    """The options of `tfjob-controller dashboard`."""

    dashboard_bind_address: BindAddress | None = option(  # noqa: RUF009 -- it is dataclasses.field
        ADDRESS,
        "127.0.0.1:8443",
        "Address for browsers. Other addresses than loopback require TLS, or a proxy that terminates TLS.",
    )
    health_probe_bind_address: BindAddress | None = _probes(OFF)  # noqa: RUF009 -- it is dataclasses.field
    dashboard_tls_cert_file: str = option(FILE, "", "Certificate of that server, PEM; empty for plain HTTP.")
    dashboard_tls_key_file: str = option(FILE, "", "Key of that certificate, PEM.")
    behind_tls_proxy: bool = option(
        SWITCH, "false", "A proxy in front of the dashboard terminates TLS, so it may serve plain HTTP on any address."
    )
    hosts: str = option(
        TEXT,
        "",
        "Host names by which browsers reach the dashboard, separated by commas, with the port unless it is the default "
        "one of HTTPS. Other names are refused, except for those of loopback, which may have any port.",
    )
    token_header: str = option(
        TEXT,
        "",
        "Header in which an authenticating proxy passes the token of the user, such as Authorization or "
        "X-Forwarded-Access-Token. Empty: users log in with a token.",
    )
    api_server: str = option(
        TEXT, "", "URL of the API server. Empty: the API server of the cluster in which the dashboard runs as a pod."
    )
    api_server_ca_file: str = option(FILE, SERVICE_ACCOUNT_CA, "CA of the API server, PEM.")
    history: str = option(
        TEXT,
        "",
        "Directory, or s3://bucket/prefix, in which the controller keeps jobs that have ended. Users see those of "
        "namespaces in which they may get such jobs, and logs where they may get pods/log. Empty: none are shown.",
    )
    controller_namespace: str = option(
        NAMESPACE,
        SYSTEM_NAMESPACE,
        "Namespace of the controller and the gang scheduler. Only Leases and pods there show whether they run.",
    )
    prometheus_url: str = option(
        TEXT,
        "",
        "URL of a Prometheus with the metrics of NVIDIA's DCGM exporter, http or https, without /api/v1; it shows how "
        "jobs use their GPUs. Users see the figures of the pods that they may read. Empty: not shown.",
    )
    prometheus_ca_file: str = option(FILE, "", "CA of that Prometheus, PEM; empty for the CAs of the system.")
    prometheus_token_file: str = option(
        FILE, "", "File with a bearer token for that Prometheus, read for each query. Requires https or loopback."
    )
    log_format: str = _log_format()
    log_level: str = _log_level()


DASHBOARD_OPTIONS = options_of(DashboardOptions)


def resolve_dashboard(flags: Mapping[str, str], environ: Mapping[str, str]) -> DashboardOptions:
    """Returns the options of `dashboard` from flags and environment. Raises UsageError."""
    options = read_options(DashboardOptions, flags, environ)
    address, has_tls = options.dashboard_bind_address, bool(options.dashboard_tls_cert_file)
    if address is None:
        raise UsageError("--dashboard-bind-address cannot be off: browsers connect to it")
    if has_tls != bool(options.dashboard_tls_key_file):
        raise UsageError("--dashboard-tls-cert-file and --dashboard-tls-key-file go together: give both")
    if not (address.is_loopback or has_tls or options.behind_tls_proxy):
        raise UsageError(
            f"--dashboard-bind-address {address} is beyond loopback: give --dashboard-tls-cert-file, or "
            "--behind-tls-proxy if a proxy ends TLS"
        )
    if not (address.is_loopback or options.hosts):
        raise UsageError("--hosts is empty: give the host names by which browsers reach the dashboard")
    if not options.controller_namespace:
        raise UsageError("--controller-namespace is empty: give the namespace in which the controller is installed")
    return options


EXTENDER_OPTIONS = options_of(ExtenderOptions)


def resolve_extender(flags: Mapping[str, str], environ: Mapping[str, str]) -> ExtenderOptions:
    """Returns the options of `extender` from flags and environment. Raises UsageError."""
    options = read_options(ExtenderOptions, flags, environ)
    _check_extender(options)
    return options


def _check_extender(options: ExtenderOptions) -> None:
    files = (options.extender_tls_cert_file, options.extender_tls_key_file, options.extender_client_ca_file)
    if any(files) and not all(files):
        raise UsageError(
            "--extender-tls-cert-file, --extender-tls-key-file and --extender-client-ca-file go together: give all"
        )
    if any(files) and not options.extender_client_name:
        raise UsageError("--extender-client-name is empty: give the name in kube-scheduler's client certificate")
    if options.mode == "extender" and options.extender_bind_address is None:
        raise UsageError(
            "--extender-bind-address cannot be off in mode extender: kube-scheduler sends its requests to it"
        )
