"""`make chaos-checkpoint`: kills while TrainJobs save their checkpoints, and an auditor of the storages.

It has a control plane of its own with two real nodes, the controller, an S3 server and a claim. The jobs train in
containers, a few at a time. Kills hit their programs, sidecars, uploads, pods and nodes, and the S3 server is away at
times. Progress goes to standard error; the last line on standard output is JSON. Exit code 1 if there were violations
(lab.checkpoints.auditor), 2 if the run was not possible. It needs root on Linux.

CHAOS_KILLS     number of kills, 200
CHAOS_JOBS      number of jobs, 50
CHAOS_SEED      seed of all random choices; by default random
CHAOS_PARALLEL  number of jobs that run at the same time, 8
CHAOS_KINDS     kinds of kills (lab.checkpoints.plan.KILLS), separated by commas; by default all
CHAOS_PATIENCE  seconds without progress after which a job counts as stuck, 300
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

from lab import command
from lab.background import Repeated
from lab.checkpoints.auditor import Auditor
from lab.checkpoints.lastsave import LastSave, SaveFailedError
from lab.checkpoints.plan import CheckpointSettings, JobPlan, job_plans
from lab.checkpoints.stage import Stage, open_stage
from lab.checkpoints.storages import BucketReader, FolderReader, Reader
from lab.checkpoints.stories import Story, Tally
from lab.command import progress

_SHOW_SECONDS = 10.0
_SWEEPS_AT_ONCE = 2
_RESTORER = "checkpoint-restore"


class Run:
    """One run on a stage."""

    def __init__(self, settings: CheckpointSettings, stage: Stage, folder: Path) -> None:
        """`folder` is for the checkpoints of the last saves on this machine."""
        self._settings, self._stage, self._folder = settings, stage, folder
        self._begin, self._tally = time.monotonic(), Tally()
        self._plans = job_plans(settings)
        bucket, disk = BucketReader(stage.bucket.client()), FolderReader(stage.disk)
        readers: dict[str, Reader] = {plan.name: bucket if plan.is_bucket else disk for plan in self._plans}
        self._auditor = Auditor(readers)
        stage.reports.on_begin = self._judge_restore

    def play(self) -> dict[str, Any]:
        """Runs all jobs and kills and returns the fields of the JSON line."""
        with self._auditor:
            self._play_stories()
            self._auditor.look()
            used = [plan for plan in self._plans if self._auditor.newest(plan.name) is not None]
            for plan in used:
                self._auditor.judge_end(plan.name)
            progress("all jobs have ended; a further save to each storage removes what is old")
            with ThreadPoolExecutor(_SWEEPS_AT_ONCE) as sweeps:
                self._await_all([sweeps.submit(self._sweep, plan) for plan in used])
        return self._result()

    def _play_stories(self) -> None:
        tally, parallel, patience = self._tally, self._settings.parallel, self._settings.patience_seconds
        with Repeated(_SHOW_SECONDS, self._show), ThreadPoolExecutor(parallel) as jobs:
            stories = [Story(plan, self._stage, self._auditor, tally, patience) for plan in self._plans]
            plays = [jobs.submit(story.play) for story in stories]
            try:
                self._await_all(plays)
            except BaseException:
                tally.interrupted.set()
                raise

    def _await_all(self, plays: Sequence[Future[None]]) -> None:
        for play in plays:
            try:
                play.result()
            except Exception as error:
                self._auditor.report("failed", "", f"{type(error).__name__}: {error}")

    def _judge_restore(self, job: str, pod_name: str, step: int) -> None:
        """Judges the step from which a program continues, by the time when the restore of its pod began."""
        pod = self._stage.pod(pod_name)
        if pod is not None:
            self._auditor.judge_restore(job, step, _restore_began(pod))

    def _sweep(self, plan: JobPlan) -> None:
        """Saves one more checkpoint, and judges what is left."""
        folder, stage = self._folder / plan.name, self._stage
        folder.mkdir()
        uri = stage.uri(plan.name, is_bucket=plan.is_bucket)
        save = LastSave(uri, stage.disk / plan.name, folder, plan.keep, stage.bucket.environ)
        newest = self._auditor.newest(plan.name)
        try:
            save.run(newest.step + 1 if newest else 1)
        except SaveFailedError as error:
            self._auditor.report("kept", plan.name, str(error))
            return
        self._auditor.look(plan.name)
        self._auditor.judge_kept(plan.name, plan.keep)

    def _show(self) -> None:
        tally = self._tally
        ended = tally.jobs["succeeded"] + tally.jobs["unsuccessful"]
        progress(
            f"{time.monotonic() - self._begin:5.0f} s  {ended} of {len(self._plans)} jobs ended, "
            f"{tally.kills.total()} kills, {self._auditor.saved} checkpoints saved, "
            f"{len(self._auditor.violations)} violations"
        )

    def _result(self) -> dict[str, Any]:
        for violation in self._auditor.violations:
            progress(f"violation: {violation}")
        tally, reported = self._tally, self._stage.reports.jobs().values()
        return {
            "violations": self._auditor.violations,
            "kills": tally.kills.total(),
            "kills_by_kind": dict(sorted(tally.kills.items())),
            "kills_missed": dict(sorted(tally.missed.items())),
            "jobs": tally.jobs["created"],
            "jobs_succeeded": tally.jobs["succeeded"],
            "programs_begun": sum(job.begins for job in reported),
            "restores": sum(job.restores for job in reported),
            "checkpoints_saved": self._auditor.saved,
            "requests_refused": self._stage.bucket.refused,
            "seed": self._settings.seed,
            "seconds": round(time.monotonic() - self._begin, 1),
        }


def _restore_began(pod: Mapping[str, Any]) -> float:
    """Returns when the restore of a pod began, or a moment before; in seconds of this machine's clock."""
    text = pod["metadata"]["creationTimestamp"]
    for status in pod["status"].get("initContainerStatuses", ()):
        if status["name"] == _RESTORER:
            text = status["state"].get("terminated", {}).get("startedAt") or text
    return datetime.fromisoformat(text).timestamp()


def play() -> bool:
    """Runs the command; returns whether there were no violations."""
    settings = CheckpointSettings.of(os.environ)
    progress(f"repeat with: make chaos-checkpoint {settings.variables}")
    with (
        tempfile.TemporaryDirectory(prefix="chaos-checkpoint-", ignore_cleanup_errors=True) as folder,
        open_stage() as stage,
    ):
        result = Run(settings, stage, Path(folder)).play()
        if result["violations"]:
            progress(f"logs of the programs: {command.keep_logs('chaos', stage.folder / 'logs')}")
            progress(f"repeat with: make chaos-checkpoint {settings.variables}")
    command.show_result(result)
    return not result["violations"]


if __name__ == "__main__":
    sys.exit(command.main("chaos", __doc__, play))
