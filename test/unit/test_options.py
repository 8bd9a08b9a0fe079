"""The rules of options.py: flag before variable before default, and one line for everything that cannot be used."""

from __future__ import annotations

import pytest

from tfjob_controller.flags import BindAddress, Option
from tfjob_controller.options import OPTIONS, RunOptions, resolve
from tfjob_controller.util.commandline import UsageError


def test_without_flags_and_variables_all_is_default() -> None:
    assert resolve({}, {}) == RunOptions()


def test_servers_listen_on_loopback_by_default() -> None:
    options = RunOptions()
    assert options.metrics_bind_address is not None
    assert options.metrics_bind_address.is_loopback
    assert options.health_probe_bind_address is not None
    assert options.health_probe_bind_address.is_loopback
    assert options.debug_bind_address is None


def test_a_flag_wins_over_the_variable_and_the_variable_over_the_default() -> None:
    environ = {"TFJOB_CONTROLLER_WORKERS": "7", "TFJOB_CONTROLLER_NAMESPACE": "team"}
    options = resolve({"workers": "3"}, environ)
    assert (options.workers, options.namespace) == (3, "team")


def test_an_empty_variable_counts_as_unset() -> None:
    assert resolve({}, {"TFJOB_CONTROLLER_WORKERS": ""}).workers == RunOptions().workers


def test_variables_that_kubernetes_makes_for_services_are_ignored() -> None:
    environ = {"TFJOB_CONTROLLER_PORT": "tcp://10.0.0.1:443", "TFJOB_CONTROLLER_SERVICE_HOST": "10.0.0.1"}
    assert resolve({}, environ) == RunOptions()


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        pytest.param("leader_elect", "true", True, id="switch"),
        pytest.param("leader_elect", "False", False, id="switch in capitals"),
        pytest.param("leader_elect_lease_duration", "20", 20.0, id="seconds without a unit"),
        pytest.param("leader_elect_retry_period", "500ms", 0.5, id="milliseconds"),
        pytest.param("leader_elect_lease_duration", "2m", 120.0, id="minutes"),
        pytest.param("qps", "0", 0.0, id="no limit"),
        pytest.param("kubeflow_v1_api", "tfjob, MPIJob,MPIJOB", ("TFJob", "MPIJob"), id="kinds in any case"),
        pytest.param("metrics_bind_address", "0", None, id="off"),
        pytest.param("metrics_bind_address", ":9090", BindAddress("", 9090), id="all interfaces"),
        pytest.param("metrics_bind_address", "[::1]:0", BindAddress("::1", 0), id="IPv6, any port"),
        pytest.param("debug_bind_address", "localhost:8082", BindAddress("localhost", 8082), id="debug on loopback"),
    ],
)
def test_values_are_read(field: str, text: str, value: object) -> None:
    assert getattr(resolve({field: text}, {}), field) == value


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        pytest.param({"workers": "0"}, "--workers must be a whole number from 1", id="zero workers"),
        pytest.param({"workers": "many"}, "not 'many'", id="no number"),
        pytest.param({"qps": "fast"}, "--qps must be a number", id="no rate"),
        pytest.param({"leader_elect": "maybe"}, "--leader-elect must be true or false", id="no switch"),
        pytest.param({"leader_elect_retry_period": "0s"}, "--leader-elect-retry-period must be a time", id="no time"),
        pytest.param({"metrics_bind_address": "8080"}, "--metrics-bind-address must be host:port", id="port alone"),
        pytest.param({"metrics_bind_address": ":70000"}, "--metrics-bind-address must be", id="port too high"),
        pytest.param({"debug_bind_address": ":8082"}, "--debug-bind-address must be on loopback", id="debug for all"),
        pytest.param({"log_level": "loud"}, "--log-level must be one of debug, info", id="no level"),
        pytest.param({"namespace": "a,b"}, "--namespace must be the name of one namespace", id="two namespaces"),
        pytest.param({"leader_elect_lease_duration": "10s"}, "must be longer than", id="lease shorter than renewal"),
        pytest.param({"leader_elect_retry_period": "9s"}, "must be longer than 1.2 times", id="retry too slow"),
        pytest.param({"kubeflow_v1_api": "TFJob,AnyJob"}, "--kubeflow-v1-api must be a list of", id="no such kind"),
        pytest.param({"gang_backend": "slurm"}, "--gang-backend must be one of gang, volcano", id="no such backend"),
        pytest.param(
            {"gang_backend": "volcano", "gang_mode": "affinity"}, "leave --gang-backend out", id="pinned by another"
        ),
        pytest.param(
            {"gang_backend": "kueue", "autoscaling": "on"}, "--autoscaling needs this", id="another does not wish"
        ),
        pytest.param({"autoscaling": "yes"}, "--autoscaling must be one of off, recommend, on", id="no such mode"),
        pytest.param(
            {"autoscaling": "on", "gang_scheduling": "off"}, "--autoscaling needs the gang", id="nobody who wishes"
        ),
    ],
)
def test_what_cannot_be_used_is_named_in_one_line(flags: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError) as refused:
        resolve(flags, {})
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_bad_variable_is_named_as_the_variable() -> None:
    with pytest.raises(UsageError, match=r"^TFJOB_CONTROLLER_QPS must be"):
        resolve({}, {"TFJOB_CONTROLLER_QPS": "x"})


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.flag)
def test_every_option_says_what_it_is_and_writes_its_default_as_one_would(option: Option) -> None:
    assert option.help.endswith(".")
    assert option.kind.read(option.default_text) == option.default
