"""Fixtures for tests that need a cluster, and a summary that hides no skipped test.

One control plane serves a whole run, also with xdist: the first worker that needs it starts it, under the name
`test-<pid of the main pytest process>`, and that process stops it at its end; if it is killed, the stack's guard does.
Each test has a namespace of its own. With KUBECONFIG set, that cluster is used and none is started.
"""

from __future__ import annotations

import gc
import itertools
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO, cast

import hypothesis
import pytest
import structlog

# Before they are imported: an assertion of a helper that fails shows its values, too.
pytest.register_assert_rewrite("helpers")

from helpers.cluster import Cluster, clear_namespace, delete_namespace, new_namespace
from helpers.examples import DEFAULT_PROFILE, PROFILES
from helpers.kubernetesversion import check_marker, is_not_applicable
from localcluster import process, stack, state
from localcluster.api import Api
from localcluster.errors import LocalClusterError
from localcluster.fakekubelet import FakeKubelet
from localcluster.kubernetesversions import chosen_minor

if TYPE_CHECKING:
    from tfjob_controller.kube.http.transport import Transport

NODE_COUNT = 2
# A file that gets one JSON line per run with the counts and the failures (hack/testtotals.py reads them).
TOTALS = "TEST_TOTALS"
_SLOWEST = 10

# How long an example takes says more of what else this machine does; pytest-timeout has an eye on the whole test.
for _name, _count in PROFILES.items():
    hypothesis.settings.register_profile(
        _name, deadline=None, max_examples=_count, derandomize=_name == DEFAULT_PROFILE
    )
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or DEFAULT_PROFILE)


class _Standard:
    """Standard output as a file descriptor, for the logs of threads.

    They log while pytest reads and empties what it has captured. A text stream of Python does not survive that: now and
    then the interpreter crashes.
    """

    @staticmethod
    def write(text: str) -> None:
        os.write(1, text.encode(errors="backslashreplace"))

    @staticmethod
    def flush() -> None:
        """Does nothing."""


structlog.configure(logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _Standard())))

_PASSED = pytest.StashKey[bool]()
_stack_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def control_plane() -> Cluster:
    """The run's control plane without nodes, shared by all workers. Do not break it: see `own_control_plane`."""
    return _existing() or _start(_shared_folder())


@pytest.fixture
def own_control_plane() -> Iterator[Cluster]:
    """A control plane for one test, which may kill and restart its programs. It costs about 4 s."""
    _refuse_existing("breaks its control plane, so it needs one of its own")
    folder = state.stack_dir(f"{stack.TEST_PREFIX}{_main_process()}-{_worker()}-{next(_stack_numbers)}")
    cluster = _start(folder)
    yield cluster
    cluster.api.close()
    stack.down(folder)


@pytest.fixture(scope="session")
def spare_control_plane() -> Iterator[Cluster]:
    """A control plane of this worker's own, for tests that change what all others stand on, such as its nodes."""
    _refuse_existing("makes and removes nodes")
    folder = state.stack_dir(f"{stack.TEST_PREFIX}{_main_process()}-{_worker()}-spare")
    cluster = _start(folder)
    yield cluster
    cluster.api.close()
    stack.down(folder)


@pytest.fixture(scope="session")
def nodes() -> Iterator[Cluster]:
    """A stack of this worker's own with two real nodes (or the existing cluster of KUBECONFIG). Needs root on Linux."""
    existing = _existing()
    if existing is not None:
        yield existing
        return
    if sys.platform != "linux" or os.geteuid() != 0:
        _cannot("real nodes need root on Linux: run as root, or name an existing cluster by KUBECONFIG")
    folder = state.stack_dir(f"{stack.TEST_PREFIX}{_main_process()}-{_worker()}-nodes")
    yield _start(folder, NODE_COUNT)
    stack.down(folder)


@pytest.fixture(scope="session")
def v1_nodes() -> Iterator[Cluster]:
    """A stack of this worker's own with two real nodes, for clusters whose TFJobs are those of `kubeflow.org/v1`."""
    _refuse_existing("has CRDs that exclude those of the other tests")
    if sys.platform != "linux" or os.geteuid() != 0:
        _cannot("real nodes need root on Linux")
    folder = state.stack_dir(f"{stack.TEST_PREFIX}{_main_process()}-{_worker()}-v1")
    yield _start(folder, NODE_COUNT)
    stack.down(folder)


@pytest.fixture
def api(control_plane: Cluster) -> Api:
    """The control plane as its administrator, by a client that shares nothing with the one under test."""
    return control_plane.api


@pytest.fixture
def namespace(control_plane: Cluster, api: Api) -> Iterator[str]:
    """A fresh namespace. After the test nothing works in it any more; of an existing cluster it is deleted."""
    name = new_namespace(api)
    yield name
    if control_plane.plane is None:
        delete_namespace(api, name)
    else:
        clear_namespace(api, name)


@pytest.fixture(scope="session")
def requester(control_plane: Cluster) -> Iterator[Transport]:
    """The transport under test, as administrator, without a limit."""
    from tfjob_controller.kube.config.kubeconfig import (
        load_config,  # here, so that other tests start without the client
    )
    from tfjob_controller.kube.http.transport import Transport

    transport = Transport(load_config(str(control_plane.kubeconfig)), qps=0)
    yield transport
    transport.close()


@pytest.fixture
def kubelet(control_plane: Cluster, namespace: str) -> Iterator[FakeKubelet]:
    """Makes the pods of this test's namespace run and end as their annotations say (localcluster.fakekubelet)."""
    _refuse_existing("plays the kubelet, and an existing cluster has real ones")
    with FakeKubelet(Api.from_kubeconfig(control_plane.own.kubeconfig), namespace=namespace) as kubelet:
        yield kubelet


def _existing() -> Cluster | None:
    named = stack.existing_kubeconfig()
    if named is None:
        return None
    return Cluster(Path(named.split(os.pathsep)[0]), Api.from_kubeconfig(named.split(os.pathsep)[0]))


def _refuse_existing(reason: str) -> None:
    if stack.existing_kubeconfig() is not None:
        _cannot(f"{reason}: unset KUBECONFIG")


def _start(folder: Path, node_count: int = 0) -> Cluster:
    try:
        # Nothing of a test has to survive a crash of the machine.
        plane = stack.up(folder, node_count, owner=process.identify(_main_process()), unsafe_no_fsync=True)
    except LocalClusterError as error:
        pytest.fail(str(error), pytrace=False)
    return Cluster(plane.kubeconfig, Api.from_kubeconfig(plane.kubeconfig), plane)


def _shared_folder() -> Path:
    return state.stack_dir(f"{stack.TEST_PREFIX}{_main_process()}")


def _main_process() -> int:
    """The pid of the pytest that the user started: xdist's workers are its children."""
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


def _worker() -> str:
    return os.environ.get("PYTEST_XDIST_WORKER", "main")


def _cannot(reason: str) -> None:
    if _is_ci():
        pytest.fail(f"{reason} (CI may skip nothing)", pytrace=False)
    pytest.skip(reason)


def _is_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true")


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def pytest_configure(config: pytest.Config) -> None:
    try:
        chosen_minor()
    except LocalClusterError as error:
        raise pytest.UsageError(str(error)) from None
    if not _is_worker(config) and sys.platform == "linux":
        stack.remove_ended_tests()


def pytest_collection_finish() -> None:
    """Thousands of tests and the modules that they import stay: no collection of garbage has to go through them."""
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    check_marker(item)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """With CI=true a skipped test is a failed run, unless it does not apply to an older version of Kubernetes."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if _is_worker(session.config) or reporter is None:
        return
    counts = {kind: len(reporter.stats.get(kind, ())) for kind in ("passed", "failed", "error", "skipped")}
    counts["not_applicable"] = sum(map(is_not_applicable, reporter.stats.get("skipped", ())))
    counts["skipped"] -= counts["not_applicable"]
    if TOTALS in os.environ:
        failures = [each.nodeid for kind in ("failed", "error") for each in reporter.stats.get(kind, ())]
        with Path(os.environ[TOTALS]).open("a") as file:
            file.write(json.dumps({**counts, "failures": failures, "slowest": _slowest(reporter)}) + "\n")
    if counts["skipped"] and _is_ci() and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    session.config.stash[_PASSED] = session.exitstatus == pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    every = terminalreporter.stats.get("skipped", ())
    skipped = [report for report in every if not is_not_applicable(report)]
    older = [report for report in every if is_not_applicable(report)]
    if older:
        terminalreporter.section(f"{len(older)} NOT APPLICABLE to this version of Kubernetes", yellow=True, bold=True)
        for reason, count in _reasons(older).items():
            terminalreporter.line(f"{count} x {reason}", yellow=True)
    if skipped:
        verdict = "the run fails, as CI may skip nothing" if _is_ci() else "what they prove was not proven here"
        terminalreporter.section(f"{len(skipped)} SKIPPED: {verdict}", yellow=True, bold=True)
        for reason, count in _reasons(skipped).items():
            terminalreporter.line(f"{count} x {reason}", yellow=True)
    if exitstatus and _shared_folder().exists():
        terminalreporter.line(f"the control plane's logs: {_shared_folder() / 'logs'}")


def _slowest(reporter: pytest.TerminalReporter) -> list[tuple[float, str]]:
    """Returns the seconds and names of the tests that took longest, with their setup and teardown."""
    seconds: dict[str, float] = {}
    for reports in reporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid] = seconds.get(report.nodeid, 0.0) + report.duration
    return sorted(((round(each, 1), name) for name, each in seconds.items()), reverse=True)[:_SLOWEST]


def _reasons(skipped: list[pytest.TestReport]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for report in skipped:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        counts[reason] = counts.get(reason, 0) + 1
    return counts


def pytest_unconfigure(config: pytest.Config) -> None:
    """After all workers have ended: stop what they shared. The logs stay until the next run if something failed."""
    if _is_worker(config) or sys.platform != "linux":
        return
    shared = _shared_folder()
    for folder in (shared, *shared.parent.glob(f"{shared.name}-*")):
        if folder.exists():
            stack.down(folder)
        if config.stash.get(_PASSED, False):
            shutil.rmtree(folder, ignore_errors=True)
