"""Tests of lab.checkpoints: what is known of a job from what its programs report to the S3 server's port."""

from __future__ import annotations

import json
import urllib.request

from lab.checkpoints.reports import Reports
from lab.checkpoints.storages import REPORTS, Bucket


def test_a_later_program_begins_once_and_reports_of_an_earlier_one_no_longer_count() -> None:
    began: list[tuple[str, str, int]] = []
    reports = Reports(lambda *of: began.append(of))
    with Bucket("127.0.0.1", reports.receive) as bucket:

        def report(what: str, pod: str, step: int) -> bool:
            body = json.dumps({"what": what, "job": "a", "pod": pod, "step": step}).encode()
            with urllib.request.urlopen(f"{bucket.url}{REPORTS}", body, timeout=10) as response:
                return bool(json.load(response)["may_end"])

        report("began", "one", 0)
        report("step", "one", 5)
        report("began", "two", 3)
        report("began", "two", 3)
        # A report of the earlier pod that was on its way.
        report("step", "one", 9)
        report("step", "two", 4)
        job = reports.job("a")
        assert (job.begins, job.restores, job.last_step) == (2, 1, 4)
        assert began == [("a", "one", 0), ("a", "two", 3)]
        job.may_end = True
        assert report("ended", "two", 6)
        assert job.has_ended
