"""A training program that needs only Python: it counts steps, and writes a checkpoint every few of them.

It runs in containers as the argument of `python3 -c`, so it imports nothing but the standard library. Every checkpoint
has a header with its step and the SHA-256 of the bytes that follow it, which the program itself checks after a restore.
It reports to the server of `lab.checkpoints.reports`, and ends when that allows it and all steps are done.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil
import sys
import time
import urllib.request

folder = pathlib.Path(os.environ["TRAINJOB_CHECKPOINT_DIR"])
resume = pathlib.Path(os.environ["TRAINJOB_RESUME_FROM"])
plan = json.loads(os.environ["CHAOS_PLAN"])
SECONDS_PER_STEP = float(plan["seconds_per_step"])
# A busy machine takes half a minute to begin an upload.
KEPT = 10


def report(what: str, **fields: object) -> bool:
    """Tells the server; returns whether the program may end. It is repeated until the server has answered."""
    body = json.dumps({"what": what, "job": plan["name"], "pod": os.environ["CHAOS_POD"], **fields}).encode()
    while True:
        with contextlib.suppress(OSError), urllib.request.urlopen(plan["reports"], body, timeout=5) as response:
            return bool(json.load(response)["may_end"])
        time.sleep(0.2)


def content_of(step: int, number: int) -> bytes:
    body = os.urandom(plan["file_bytes"])
    header = {"step": step, "number": number, "sha256": hashlib.sha256(body).hexdigest()}
    return json.dumps(header).encode() + b"\n" + body


def step_of(path: pathlib.Path) -> int:
    """Returns the step of a whole file. Raises ValueError for one whose content is not what was written."""
    header, _, body = path.read_bytes().partition(b"\n")
    fields = json.loads(header)
    if hashlib.sha256(body).hexdigest() != fields["sha256"]:
        raise ValueError(f"{path.name} is not what was written")
    return int(fields["step"])


def resumed() -> int:
    """Returns the step of the restored checkpoint, 0 without one. Raises ValueError if it is not whole."""
    if not resume.exists():
        return 0
    files = sorted(resume.glob("part-*")) if resume.is_dir() else [resume]
    steps = {step_of(file) for file in files}
    if len(files) != (plan["files"] if plan["is_folder"] else 1) or len(steps) != 1:
        raise ValueError(f"{len(files)} files with steps {sorted(steps)}")
    return steps.pop()


def save(step: int) -> None:
    unfinished = folder / f".unfinished-{step}"
    if plan["is_folder"]:
        final = folder / f"checkpoint-{step}"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        for number in range(plan["files"]):
            (unfinished / f"part-{number}").write_bytes(content_of(step, number))
        (unfinished / ".done").touch()
    else:
        final = folder / f"checkpoint-{step}.bin"
        unfinished.write_bytes(content_of(step, 0))
    if final.is_dir():
        shutil.rmtree(final)
    unfinished.rename(final)


def remove_old(last: int) -> None:
    for path in folder.glob("checkpoint-*"):
        if int(path.name.removesuffix(".bin").rpartition("-")[2]) <= last - KEPT * plan["steps_per_checkpoint"]:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


try:
    step = resumed()
except (ValueError, OSError) as error:
    report("broken", reason=str(error))
    sys.exit(1)
may_end = report("began", step=step)
while not (may_end and step >= plan["steps"]):
    step += 1
    time.sleep(SECONDS_PER_STEP)
    if step % plan["steps_per_checkpoint"] == 0:
        save(step)
        remove_old(step)
    may_end = report("step", step=step)
save(step)
report("ended", step=step)
