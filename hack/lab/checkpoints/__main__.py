"""`make chaos-checkpoint`: kills while TrainJobs save their checkpoints, and an auditor of the storages.

It has a control plane of its own with two real nodes, the controller, an S3 server and a claim. The jobs train in
containers, a few at a time. Kills hit their programs, sidecars, uploads, pods and nodes, and the S3 server is away at
times. Clocks are skewed for commands outside of the cluster (lab.checkpoints.skewed). Progress goes to standard
error; the last line on standard output is JSON. Exit code 1 if there were violations (lab.checkpoints.auditor), 2 if
the run was not possible. It needs root on Linux.

CHAOS_KILLS     number of kills, 200
CHAOS_JOBS      number of jobs, 50
CHAOS_SEED      seed of all random choices; by default random
CHAOS_PARALLEL  number of jobs that run at the same time, 8
CHAOS_KINDS     kinds of kills (lab.checkpoints.plan.KILLS), separated by commas; by default all
CHAOS_MINUTES   minutes after which no more kills happen and no more jobs are created; by default no limit
CHAOS_PATIENCE  seconds without progress after which a job counts as stuck, 300
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from lab import command
from lab.checkpoints.auditor import Auditor
from lab.checkpoints.bucket import BUCKET
from lab.checkpoints.plan import CheckpointSettings, JobPlan, job_plans
from lab.checkpoints.readers import BucketReader, FolderReader, Reader
from lab.checkpoints.reports import ReportServer
from lab.checkpoints.skewed import CommandFailedError, Commands, SkewedStory, skewed_jobs
from lab.checkpoints.stage import Stage, open_stage
from lab.checkpoints.stories import Story, Tally
from lab.command import progress
from lab.machines import Clocks

_SHOW_SECONDS = 10.0
_SKEWED_KEEP = 2
_SWEEPS_AT_ONCE = 2
_RESTORER = "checkpoint-restore"


@dataclass(frozen=True, slots=True)
class Run:
    """One run on a stage."""

    stage: Stage
    settings: CheckpointSettings
    plans: Mapping[str, JobPlan]
    commands: Mapping[str, Commands]
    clocks: Clocks
    auditor: Auditor
    server: ReportServer
    tally: Tally
    begin: float

    def play(self) -> dict[str, Any]:
        """Runs all jobs and kills and returns the fields of the JSON line."""
        _, outside = job_plans(self.settings)
        with self._showing(), ThreadPoolExecutor(self.settings.parallel) as jobs, ThreadPoolExecutor(1) as skewed:
            stories = [skewed.submit(self._skewed(name, kills).play) for name, kills in skewed_jobs(outside)]
            stories += [jobs.submit(self._story(plan).play) for plan in self.plans.values()]
            limit = threading.Timer(self.settings.minutes * 60, self.tally.no_more.set)
            if self.settings.minutes:
                limit.start()
            try:
                self._await_all(stories)
            except BaseException:
                self.tally.no_more.set()
                self.tally.interrupted.set()
                raise
            finally:
                limit.cancel()
        self.auditor.look()
        final = sum(self._is_last_saved(job) for job in self.plans)
        used = [job for job in self.commands if self.auditor.newest(job) is not None]
        left = {job: self.auditor.leftovers(job) for job in used}
        for job in used:
            self.auditor.judge_end(job)
        progress("all jobs have ended; a further save to each storage removes what is old")
        with ThreadPoolExecutor(_SWEEPS_AT_ONCE) as sweeps:
            self._await_all([sweeps.submit(self._sweep, job) for job in used])
        return self._result(left, final)

    def _is_last_saved(self, job: str) -> bool:
        newest = self.auditor.newest(job)
        return newest is not None and newest.step == self.server.job(job).last_step

    def _story(self, plan: JobPlan) -> Story:
        return Story(plan, self.stage, self.server, self.auditor, self.tally, self.settings.patience_seconds)

    def _skewed(self, name: str, kills: Any) -> SkewedStory:
        return SkewedStory(name, kills, self.commands[name], self.clocks, self.auditor, self.tally)

    def _await_all(self, stories: list[Future[None]]) -> None:
        for story in stories:
            try:
                story.result()
            except Exception as error:
                self.auditor.report("failed", "", f"{type(error).__name__}: {error}")

    def _sweep(self, job: str) -> None:
        """Saves one more checkpoint, and judges what is left."""
        commands = self.commands[job]
        shutil.rmtree(commands.path, ignore_errors=True)
        newest = self.auditor.newest(job)
        step = newest.step if newest else 0
        # What is older than a second by the clock of the storage may go.
        time.sleep(1.1)
        try:
            commands.write(step + 1)
            commands.save_newest()
        except CommandFailedError as error:
            self.auditor.report("kept", job, str(error))
            return
        self.auditor.look(job)
        self.auditor.judge_kept(job, commands.keep)

    @contextlib.contextmanager
    def _showing(self) -> Iterator[None]:
        stop = threading.Event()
        thread = threading.Thread(target=self._show_until, args=(stop,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _show_until(self, stop: threading.Event) -> None:
        while not stop.wait(_SHOW_SECONDS):
            progress(
                f"{time.monotonic() - self.begin:5.0f} s  {self.tally.ended} of {len(self.plans)} jobs ended, "
                f"{sum(self.tally.kills.values())} kills, {self.auditor.saved} checkpoints, "
                f"{len(self.auditor.violations)} violations"
            )

    def _result(self, left: Mapping[str, int], final: int) -> dict[str, Any]:
        for each in self.auditor.violations:
            progress(f"violation: {each}")
        reported = self.server.jobs().values()
        return {
            "violations": self.auditor.violations,
            "kills": sum(self.tally.kills.values()),
            "kills_by_kind": dict(sorted(self.tally.kills.items())),
            "kills_missed": dict(sorted(self.tally.missed.items())),
            "jobs": self.tally.created,
            "jobs_succeeded": self.tally.succeeded,
            "jobs_with_last_checkpoint": final,
            "programs_begun": sum(each.begins for each in reported),
            "restores": sum(each.restores for each in reported),
            "checkpoints_saved": self.auditor.saved,
            "steps_twice": sum(each.steps_twice for each in reported),
            "files_of_killed_uploads": sum(left.values()),
            "requests_refused": self.stage.bucket.refused,
            "seed": self.settings.seed,
            "seconds": round(time.monotonic() - self.begin, 1),
        }


def run(settings: CheckpointSettings, stage: Stage, folder: Path) -> dict[str, Any]:
    """Plays a run on a stage."""
    plans, outside = job_plans(settings)
    clocks = Clocks(folder / "clocks", progress)
    bucket, disk = BucketReader(stage.bucket.client()), FolderReader(stage.disk)
    readers: dict[str, Reader] = {}
    commands: dict[str, Commands] = {}

    def add(name: str, keep: int, environ: Mapping[str, str], *, is_bucket: bool) -> None:
        readers[name] = bucket if is_bucket else disk
        uri = f"s3://{BUCKET}/{name}" if is_bucket else f"pvc://claim/{name}"
        work = folder / name
        work.mkdir()
        commands[name] = Commands(uri, stage.disk / name, work, keep, {**stage.bucket.environ, **environ})

    for plan in plans:
        add(plan.name, plan.keep, {}, is_bucket=plan.is_bucket)
    for number, (name, _) in enumerate(skewed_jobs(outside)):
        add(name, _SKEWED_KEEP, clocks.environment(name), is_bucket=number % 2 == 0)
    with Auditor(readers) as auditor, ReportServer(stage.address, _judge_with(stage, auditor)) as server:
        stage.reports_url = server.url
        by_name = {plan.name: plan for plan in plans}
        begin = time.monotonic()
        return Run(stage, settings, by_name, commands, clocks, auditor, server, Tally(), begin).play()


def _judge_with(stage: Stage, auditor: Auditor) -> Any:
    def judge(job: str, pod: str, step: int) -> None:
        found = stage.pod(pod)
        if found is not None:
            auditor.judge_restore(job, step, _restore_began(found))

    return judge


def _restore_began(pod: Mapping[str, Any]) -> float:
    """Returns when the restore of a pod began, or a moment before; in seconds of this machine's clock."""
    text = pod["metadata"]["creationTimestamp"]
    for each in pod["status"].get("initContainerStatuses", ()):
        if each["name"] == _RESTORER:
            text = each["state"].get("terminated", {}).get("startedAt") or text
    return datetime.fromisoformat(text).timestamp()


def play() -> bool:
    """Runs the command; returns whether there were no violations."""
    # Everything that was started is ended, as after Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    settings = CheckpointSettings.of(os.environ)
    progress(f"repeat with: make chaos-checkpoint {settings.variables}")
    with (
        tempfile.TemporaryDirectory(prefix="chaos-checkpoint-", ignore_cleanup_errors=True) as folder,
        open_stage() as stage,
    ):
        result = run(settings, stage, Path(folder))
        if result["violations"]:
            progress(f"logs of the programs: {command.keep_logs('chaos', stage.folder / 'logs')}")
            progress(f"repeat with: make chaos-checkpoint {settings.variables}")
    command.show_result(result)
    return not result["violations"]


if __name__ == "__main__":
    sys.exit(command.main("chaos", __doc__, play))
