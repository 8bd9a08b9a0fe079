"""When jobs are recorded, how long others wait for that, and what happens while the storage cannot be written."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from helpers.answering import Answering, Request
from helpers.controllerbench import KEY, NAMESPACE, POD_PATH, TFJOB_PATH, ControllerBench
from helpers.manifests import master, parameter_servers
from tfjob_controller.client.history.filesystems import Directory
from tfjob_controller.client.history.record import MAX_LOG_BYTES, LogFile, Record
from tfjob_controller.client.history.store import HistoryStore
from tfjob_controller.controller.outcome import DONE, RequeueAfter, Retry
from tfjob_controller.kinds.tfjob.kind import KIND
from tfjob_controller.kube.errors import ApiError
from tfjob_controller.programs.history import recorder as recording
from tfjob_controller.programs.history.logs import LOGS_SECONDS, MAX_LOGS, Log, LogEnds, LogSource, sources
from tfjob_controller.programs.history.namespaceindex import HistoryLimits
from tfjob_controller.programs.history.recorder import DROPPED, FAILED, RECORDED, REMOVED, WAIT_SECONDS, Recorder

STAMP = "2026-01-01T00:00:00Z"


class WithLogs(Answering):
    """The API of the bench, with kubelets whose pods have logs by the name of the pod."""

    def __init__(self, bench: ControllerBench) -> None:
        super().__init__()
        self._api = bench.api
        self.logs: dict[str, bytes] = {}
        self.piece = 16 * 1024
        # Called once, when the API server has been asked for jobs and its answer is on its way.
        self.meanwhile: Callable[[], object] | None = None

    def answer(self, request: Request) -> bytes:
        if request.path == TFJOB_PATH and self.meanwhile is not None:
            content, meanwhile, self.meanwhile = self._api.answer(request), self.meanwhile, None
            meanwhile()
            return content
        if not request.path.endswith("/log"):
            return self._api.answer(request)
        name = request.path.split("/")[-2]
        if f"{POD_PATH}/{name}" not in self._api.objects:
            raise ApiError(404, "NotFound", f"no pod {name}")
        lines = pieces(self.logs.get(name, b""), self.piece)[-int(request.query["tailLines"]) :]
        return b"".join(lines)[: int(request.query["limitBytes"])]


def pieces(content: bytes, size: int) -> list[bytes]:
    """What a kubelet counts as lines: the runtime writes long ones in pieces."""
    lines = content.splitlines(keepends=True)
    return [line[begin : begin + size] for line in lines for begin in range(0, len(line), size)]


class Stage:
    """A job, its reconciler, and a recorder whose thread is the test."""

    def __init__(self, folder: Path, limits: HistoryLimits = HistoryLimits(100, 2**30)) -> None:  # noqa: B008 -- immutable
        self.bench = ControllerBench()
        self.folder = folder
        self.limits = limits
        self.api = WithLogs(self.bench)
        self.counts: list[str] = []
        self.queued: list[str] = []
        self.begin()

    def start(self) -> None:
        """A new process."""
        self.recorder.queue.shut_down()
        self.begin()

    def begin(self) -> None:
        self.store = HistoryStore(Directory(self.folder))
        self.recorder = Recorder(self.api, self.store, self.limits, self.bench.clock, count=self.counts.append)
        self.bench.history = self.recorder.of(KIND, self.queued.append)
        self.bench.reconciler = self.bench.new_reconciler()

    def work(self) -> list[object]:
        """Syncs all that is queued now, as the thread does; returns the outcomes."""
        outcomes: list[object] = []
        for _ in range(len(self.recorder.queue)):
            key = self.recorder.queue.get()
            outcomes.append(self.recorder.sync(key))
            if isinstance(outcomes[-1], Retry):
                self.recorder.queue.add_rate_limited(key)
            self.recorder.queue.done(key)
        return outcomes

    def run_job(self, **spec: object) -> None:
        """A job of a master, which has just ended, and a PS that runs."""
        self.bench.create(master(), parameter_servers(1), **spec)
        self.bench.settle()
        for replica in ("master-0", "ps-0"):
            self.bench.runs(replica)
            self.api.logs[self.pod(replica)] = f"{STAMP} {replica} says\n".encode()
        self.bench.settle_minor()
        self.bench.exits("master-0", 0)
        self.bench.settle()

    def pod(self, replica: str) -> str:
        return f"{self.bench.child(replica)}-x"

    def record(self) -> Record:
        (entry,) = self.store.entries(NAMESPACE)
        return self.store.read(entry)

    @property
    def suspended(self) -> list[str]:
        return [sent.path for sent in self.bench.api.sent if sent.body.get("spec", {}).get("suspend")]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path / "history")
    yield stage
    stage.recorder.queue.shut_down()


def break_storage(stage: Stage) -> None:
    stage.folder.write_text("a file where the directory should be")


def repair_storage(stage: Stage) -> None:
    stage.folder.unlink()


def test_nothing_is_cleaned_up_until_the_job_is_recorded_with_its_logs(stage: Stage) -> None:
    stage.run_job()
    assert stage.bench.status["phase"] == "CleanUp"
    assert stage.bench.sync() == RequeueAfter(WAIT_SECONDS)
    assert stage.suspended == []
    assert stage.work() == [DONE]
    assert stage.queued == [KEY]
    record = stage.record()
    assert (record.state, record.phase) == ("Succeeded", "CleanUp")
    assert [log.replica for log in record.logs] == ["master-0", "ps-0"]
    assert stage.store.read_log(record.entry, record.logs[1]) == f"{STAMP} ps-0 says\n".encode()
    stage.bench.settle()
    assert len(stage.suspended) == 1


def test_after_the_clean_up_the_record_has_the_last_status_and_still_its_logs(stage: Stage) -> None:
    stage.run_job()
    stage.bench.sync()
    stage.work()
    before = stage.record()
    stage.bench.settle()
    stage.bench.api.remove(f"{POD_PATH}/{stage.pod('ps-0')}")
    stage.bench.settle()
    assert stage.bench.status["phase"] == "Done"
    stage.work()
    record = stage.record()
    assert record.phase == "Done"
    assert record.manifest["status"]["phase"] == "Done"
    assert (record.logs, record.ended) == (before.logs, before.ended)
    assert record.description is not None
    assert before.description is not None
    assert record.description.replicas == before.description.replicas
    assert {entry.text for entry in before.timeline} <= {entry.text for entry in record.timeline}
    assert stage.counts == [RECORDED, RECORDED]


def test_a_recorded_job_costs_no_request_and_no_time(stage: Stage) -> None:
    stage.run_job()
    stage.bench.sync()
    stage.work()
    stage.bench.settle()
    stage.bench.api.remove(f"{POD_PATH}/{stage.pod('ps-0')}")
    stage.bench.settle()
    stage.work()
    sent = len(stage.api.sent)
    assert stage.bench.sync() == DONE
    assert len(stage.recorder.queue) == 0
    assert len(stage.api.sent) == sent


def test_a_storage_that_cannot_be_written_delays_the_clean_up_for_a_limited_time(stage: Stage) -> None:
    break_storage(stage)
    stage.run_job()
    stage.bench.sync()
    (outcome,) = stage.work()
    assert isinstance(outcome, Retry)
    assert stage.counts == [FAILED]
    assert stage.queued == []
    stage.bench.clock.advance(WAIT_SECONDS - 1)
    assert stage.bench.sync() == RequeueAfter(1.0)
    stage.bench.clock.advance(1)
    stage.bench.settle()
    assert len(stage.suspended) == 1


def test_the_clean_up_and_the_deletion_wait_once_for_a_storage_that_cannot_be_written(stage: Stage) -> None:
    break_storage(stage)
    stage.run_job(ttlSecondsAfterFinished=0)
    stage.bench.sync()
    stage.work()
    stage.bench.clock.advance(WAIT_SECONDS)
    stage.bench.settle()
    stage.bench.api.remove(f"{POD_PATH}/{stage.pod('ps-0')}")
    stage.bench.settle()
    stage.bench.sync()
    assert f"{TFJOB_PATH}/example-job" not in stage.bench.api.objects


def test_an_error_of_the_storage_names_the_history_once(stage: Stage) -> None:
    stage.run_job()
    stage.bench.sync()
    stage.work()
    (path,) = stage.folder.rglob("*.json")
    path.unlink()
    path.mkdir()
    stage.start()
    stage.bench.sync()
    (outcome,) = stage.work()
    assert isinstance(outcome, Retry)
    assert outcome.message.startswith("the history: ")
    assert outcome.message.count("the history") == 1


def test_what_failed_is_recorded_once_the_storage_can_be_written(stage: Stage) -> None:
    break_storage(stage)
    stage.run_job()
    stage.bench.sync()
    stage.work()
    repair_storage(stage)
    stage.bench.sync()
    assert stage.work() == [DONE]
    assert stage.record().state == "Succeeded"


def test_a_job_is_not_deleted_by_its_time_to_live_until_it_is_recorded(stage: Stage) -> None:
    stage.run_job(ttlSecondsAfterFinished=0)
    stage.bench.sync()
    stage.work()
    stage.bench.settle()
    stage.bench.api.remove(f"{POD_PATH}/{stage.pod('ps-0')}")
    stage.bench.settle()
    assert f"{TFJOB_PATH}/example-job" in stage.bench.api.objects
    assert isinstance(stage.bench.sync(), RequeueAfter)
    stage.work()
    stage.bench.sync()
    assert f"{TFJOB_PATH}/example-job" not in stage.bench.api.objects
    assert stage.record().phase == "Done"


def test_the_next_process_records_what_the_last_one_did_not(stage: Stage) -> None:
    stage.run_job()
    stage.bench.sync()
    leftover = LogFile("ps-0", "tensorflow", 1)
    dead = Record("kubeflow.org/v1", "TFJob", NAMESPACE, "gone", "uid-of-a-crash", "Failed", "2026-01-01T00:00:00Z")
    stage.store.write_log(dead.entry, leftover, b"x")
    old = replace(dead, uid="uid-of-an-old-crash")
    stage.store.write_log(old.entry, leftover, b"x")
    (path,) = stage.folder.rglob("uid-of-an-old-crash/*")
    hour_ago, now = (stage.bench.clock.now().timestamp() - seconds for seconds in (3601, 0))
    os.utime(path, (hour_ago, hour_ago))
    (path,) = stage.folder.rglob("uid-of-a-crash/*")
    os.utime(path, (now, now))
    unfinished = stage.folder / "v1" / NAMESPACE / "jobs" / ".writing-0"
    unfinished.parent.mkdir(exist_ok=True)
    unfinished.write_text("part")
    os.utime(unfinished, (0, 0))
    stage.start()
    stage.bench.sync()
    stage.work()
    assert [log.replica for log in stage.record().logs] == ["master-0", "ps-0"]
    # What was written within the hour may be of a process that is about to write the record.
    assert list(stage.store.contents(NAMESPACE).leftovers) == ["uid-of-a-crash"]
    assert not unfinished.exists()


def test_a_process_that_ends_between_both_records_is_continued_by_the_next_one(stage: Stage) -> None:
    stage.run_job()
    stage.bench.sync()
    stage.work()
    stage.start()
    stage.bench.sync()
    stage.work()
    stage.bench.settle()
    stage.bench.api.remove(f"{POD_PATH}/{stage.pod('ps-0')}")
    stage.bench.settle()
    stage.work()
    record = stage.record()
    assert (record.phase, len(record.logs)) == ("Done", 2)


def test_a_job_that_is_deleted_while_it_runs_is_recorded_in_its_last_state(stage: Stage) -> None:
    stage.bench.create(master())
    stage.bench.settle()
    stage.bench.runs("master-0")
    stage.api.logs[stage.pod("master-0")] = f"{STAMP} step 1\n".encode()
    stage.bench.settle_minor()
    job = stage.bench.tfjobs.jobs.store.get(KEY)
    stage.bench.api.remove(f"{TFJOB_PATH}/example-job")
    assert job is not None
    stage.bench.history.record_deletion(job)
    assert stage.work() == [DONE]
    record = stage.record()
    assert (record.state, record.phase, record.api_version) == ("Deleted", "Running", "kubeflow.org/v1alpha1")
    assert record.description is not None
    assert record.description.state == "Deleted"
    assert "deleted before it had ended" in record.description.hints[-1]
    assert [replica.replica for replica in record.description.replicas] == ["master-0"]
    assert record.manifest["spec"]["replicaSpecs"][0]["tfReplicaType"] == "MASTER"
    assert len(record.logs) == 1


def test_a_deletion_that_is_told_while_the_job_is_found_to_be_gone_is_recorded(stage: Stage) -> None:
    stage.run_job()
    stage.bench.sync()
    stage.work()
    stage.bench.settle()
    stage.bench.api.remove(f"{POD_PATH}/{stage.pod('ps-0')}")
    stage.bench.settle()
    job = stage.bench.tfjobs.jobs.store.get(KEY)
    assert job is not None
    shutil.rmtree(stage.folder)
    stage.start()
    stage.bench.sync()
    stage.bench.api.remove(f"{TFJOB_PATH}/example-job")
    stage.api.meanwhile = lambda: stage.bench.history.record_deletion(job)
    assert stage.work() == [DONE]
    stage.work()
    assert stage.record().phase == "Done"
    assert stage.recorder.statistics()["deleted_bytes"] == stage.recorder.statistics()["noted"] == 0


def test_a_deleted_job_is_given_up_after_some_failures_and_takes_no_memory(stage: Stage) -> None:
    break_storage(stage)
    stage.bench.create(master())
    stage.bench.settle()
    job = stage.bench.tfjobs.jobs.store.get(KEY)
    assert job is not None
    stage.bench.history.record_deletion(job)
    assert stage.recorder.statistics()["deleted_bytes"] > 0
    key = f"{NAMESPACE}/tfjob~{job.metadata.uid}"
    while isinstance(stage.recorder.sync(key), Retry):
        stage.recorder.queue.add_rate_limited(key)
    assert stage.counts[-1] == DROPPED
    assert stage.counts.count(FAILED) == 8
    assert stage.recorder.statistics()["deleted_bytes"] == stage.recorder.statistics()["noted"] == 0


def test_more_jobs_than_can_be_noted_are_dropped_and_continue(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "MAX_NOTED", 0)
    stage.run_job()
    assert set(stage.counts) == {DROPPED}
    assert len(stage.suspended) == 1


def test_the_last_states_of_deleted_jobs_are_bounded_also_of_jobs_that_wait_for_their_record(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "MAX_DELETED_BYTES", 10)
    stage.run_job()
    stage.bench.sync()
    job = stage.bench.tfjobs.jobs.store.get(KEY)
    assert job is not None
    stage.bench.history.record_deletion(job)
    assert stage.recorder.statistics()["deleted_bytes"] == 0
    assert stage.counts == [DROPPED]


def test_jobs_of_a_namespace_wait_for_few_of_another(stage: Stage) -> None:
    stage.run_job()
    job = stage.bench.tfjobs.jobs.store.get(KEY)
    assert job is not None
    queue = stage.recorder.queue
    for number in range(5):
        queue.add(f"flood/tfjob~{number}")
    queue.add("calm/tfjob~1")
    keys = [queue.get() for _ in range(3)]
    assert "calm/tfjob~1" in keys


def test_beyond_the_limit_the_oldest_record_is_removed(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "history", HistoryLimits(1, 2**30))
    old = Record("kubeflow.org/v1", "TFJob", NAMESPACE, "old", "uid-old", "Failed", "2025-01-01T00:00:00Z")
    stage.store.write(old)
    stage.run_job()
    stage.bench.sync()
    stage.work()
    assert [entry.name for entry in stage.store.entries(NAMESPACE)] == ["example-job"]
    assert stage.counts == [RECORDED, REMOVED]


def test_a_record_that_somebody_damaged_is_made_again(stage: Stage) -> None:
    stage.run_job()
    stage.bench.sync()
    stage.work()
    (path,) = stage.folder.rglob("*.json")
    path.write_text("{")
    stage.bench.settle()
    stage.bench.api.remove(f"{POD_PATH}/{stage.pod('ps-0')}")
    stage.bench.settle()
    stage.work()
    assert stage.record().phase == "Done"


def test_a_log_that_cannot_be_read_is_named(stage: Stage) -> None:
    stage.run_job()
    stage.bench.sync()
    ends = LogEnds(stage.api, NAMESPACE, stage.bench.clock)
    assert list(ends.read([LogSource("no-pod", "ps-0", "tensorflow")])) == []
    assert ends.unread == ["the log of ps-0 (tensorflow): no pod no-pod"]


@pytest.mark.parametrize("line", [b"x" * 20, b"y" * 5000, b"z" * 100_000])
def test_of_a_long_log_the_last_whole_lines_are_kept(stage: Stage, line: bytes) -> None:
    stage.run_job()
    count = 5 * MAX_LOG_BYTES // len(line)
    stage.api.logs[stage.pod("ps-0")] = b"".join(b"%d %s\n" % (number, line) for number in range(count))
    (log,) = LogEnds(stage.api, NAMESPACE, stage.bench.clock).read([LogSource(stage.pod("ps-0"), "ps-0", "tensorflow")])
    assert log.file.is_cut
    assert log.file.size == len(log.content) <= MAX_LOG_BYTES
    assert len(log.content) > MAX_LOG_BYTES // 3
    assert log.content.endswith(b"%d %s\n" % (count - 1, line))
    assert log.content.split(b" ")[0].isdigit()


def end_of_log(stage: Stage, content: bytes) -> tuple[Log, list[str]]:
    stage.api.logs[stage.pod("ps-0")] = content
    ends = LogEnds(stage.api, NAMESPACE, stage.bench.clock)
    (log,) = ends.read([LogSource(stage.pod("ps-0"), "ps-0", "tensorflow")])
    return log, ends.unread


@pytest.mark.parametrize("lines", [[5_000_000], [100_000] * 60, [10] * 100_000 + [5_000_000], [5_000_000] + [20] * 9])
def test_of_a_log_with_long_lines_a_mebibyte_is_kept_and_it_is_marked_as_cut(stage: Stage, lines: list[int]) -> None:
    stage.run_job()
    content = b"".join(b"x" * length + b"\n" for length in lines)
    log, unread = end_of_log(stage, content)
    assert log.file.is_cut
    assert len(log.content) > 0.85 * MAX_LOG_BYTES
    assert content.endswith(log.content)
    assert unread == []


def test_a_log_whose_end_cannot_be_reached_keeps_what_was_read_and_is_named(stage: Stage) -> None:
    stage.run_job()
    stage.api.piece = 10 * MAX_LOG_BYTES
    log, unread = end_of_log(stage, b"x" * 9 * MAX_LOG_BYTES + b"\n")
    assert (log.file.size, log.file.is_cut) == (MAX_LOG_BYTES, True)
    assert unread == ["the end of the log of ps-0 (tensorflow): its lines are too long"]


def test_a_log_that_fits_is_not_marked_as_cut(stage: Stage) -> None:
    stage.run_job()
    content = b"x" * 400_000 + b"\n" + b"y" * 30 + b"\n"
    log, unread = end_of_log(stage, content)
    assert (log.content, log.file.is_cut, unread) == (content, False, [])


def test_the_logs_of_a_job_are_bounded_in_number_and_time(stage: Stage) -> None:
    stage.run_job()
    one = LogSource(stage.pod("ps-0"), "ps-0", "tensorflow")
    ends = LogEnds(stage.api, NAMESPACE, stage.bench.clock)
    assert len(list(ends.read([one] * (MAX_LOGS + 7)))) == MAX_LOGS
    assert ends.unread == ["7 more logs"]
    ends = LogEnds(stage.api, NAMESPACE, stage.bench.clock)
    logs = ends.read([one] * 3)
    next(logs)
    stage.bench.clock.advance(LOGS_SECONDS)
    assert list(logs) == []
    assert ends.unread == ["2 more logs"]


def test_the_first_log_is_that_of_the_replica_which_made_the_job_fail(stage: Stage) -> None:
    stage.run_job()
    job = stage.bench.tfjobs.jobs.store.get(KEY)
    assert job is not None
    status = KIND.work_of(job).status
    pods = [obj for path, obj in stage.bench.api.objects.items() if path.startswith(f"{POD_PATH}/")]
    assert [source.replica for source in sources(status, pods)] == ["master-0", "ps-0"]
    failed = type(status)(roles=status.roles, reason="ps-0 failed: exit code 1")
    assert [source.replica for source in sources(failed, pods)] == ["ps-0", "master-0"]


def test_a_namespace_with_more_records_than_are_remembered_is_recorded_all_the_same(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "_INDEXED", 2)
    stage.start()
    for number in range(5):
        other = Record("kubeflow.org/v1", "TFJob", NAMESPACE, "old", f"uid-{number}", "Failed", "2025-01-01T00:00:00Z")
        stage.store.write(other)
    stage.run_job()
    stage.bench.sync()
    assert stage.work() == [DONE]
    assert len(stage.store.entries(NAMESPACE)) == 6
