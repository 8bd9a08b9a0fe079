"""Trains one XGBoost model on all workers: each one has a share of the rows, and all build the same trees.

Worker 0 also runs the tracker, through which the workers find each other. Each worker exits with 1 if the log loss did
not fall to a half, or if the workers' models differ.
"""

import hashlib
import os
import socket
import sys
import time

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

ROUNDS = int(os.environ.get("STEPS", "20"))
# Simulated duration of a round on real data.
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))
ROWS, FEATURES = 2000, 10
PARAMETERS = {"objective": "binary:logistic", "eval_metric": "logloss", "max_depth": 4, "eta": 0.5, "nthread": 1}
# How long to wait for all workers, and for a worker that does not respond.
WAIT_SECONDS = 300
POLL_SECONDS = 0.5
RETRYABLE_EXIT_CODE = 130

TRACKER, PORT = os.environ["DMLC_TRACKER_URI"], int(os.environ["DMLC_TRACKER_PORT"])
TASK, WORKERS = int(os.environ["DMLC_TASK_ID"]), int(os.environ["DMLC_NUM_WORKER"])


def start_tracker():
    """Starts the tracker on the address of this pod, whose DNS name may not resolve yet. Ranks follow the tasks."""
    address = socket.gethostbyname(socket.gethostname())
    tracker = RabitTracker(host_ip=address, port=PORT, n_workers=WORKERS, sortby="task", timeout=WAIT_SECONDS)
    tracker.start()
    return tracker


def join():
    """Connects to the other workers through the tracker.

    The tracker may start a minute after this worker, and XGBoost fails at once if its DNS name does not resolve yet.
    """
    address = {"dmlc_tracker_uri": TRACKER, "dmlc_tracker_port": PORT, "dmlc_task_id": str(TASK)}
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            collective.init(**address, dmlc_retry=1, dmlc_timeout=WAIT_SECONDS)
        except xgboost.core.XGBoostError as error:
            if time.monotonic() > deadline:
                print(f"gave up after {WAIT_SECONDS} s: {error}", flush=True)
                sys.exit(RETRYABLE_EXIT_CODE)
            time.sleep(POLL_SECONDS)
        else:
            return


def make_data(seed):
    """Returns features, and whether each row is on one side of a curved surface."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(ROWS, FEATURES))
    return xgboost.DMatrix(features, label=features[:, 0] * features[:, 1] + features[:, 2] > 0, nthread=1)


class Reporter(xgboost.callback.TrainingCallback):
    """Prints a line for each round, on one worker only."""

    def __init__(self):
        self.started = time.monotonic()
        self.losses = []

    def after_iteration(self, model, epoch, evals_log):
        self.losses = evals_log["test"]["logloss"]
        time.sleep(STEP_SECONDS)
        if collective.get_rank() == 0:
            rate = (epoch + 1) * ROWS * WORKERS / (time.monotonic() - self.started)
            print(f"step={epoch + 1} loss={self.losses[-1]:.5f} throughput={rate:.0f}", flush=True)
        return False


def models_agree(model):
    """Returns whether all workers have the same trees."""
    trees = "".join(model.get_dump())
    digest = np.frombuffer(hashlib.sha256(trees.encode()).digest(), dtype=np.uint8).astype(np.float64)
    greatest = collective.allreduce(digest, collective.Op.MAX)
    least = collective.allreduce(digest, collective.Op.MIN)
    return bool((greatest == least).all())


def train():
    """Returns whether the loss fell and the models are equal."""
    rank, workers = collective.get_rank(), collective.get_world_size()
    print(f"worker {rank} of {workers} started", flush=True)
    reporter = Reporter()
    # The loss is summed over the test rows of all workers, so that all of them compute the same.
    model = xgboost.train(
        PARAMETERS,
        make_data(rank),
        ROUNDS,
        evals=[(make_data(1000 + rank), "test")],
        callbacks=[reporter],
        verbose_eval=False,
    )
    agree, fell = models_agree(model), reporter.losses[-1] < reporter.losses[0] / 2
    if rank == 0:
        agreement = f"{workers} workers agree" if agree else "the workers have different models"
        print(f"worker 0: loss {reporter.losses[0]:.4f} -> {reporter.losses[-1]:.4f}, {agreement}", flush=True)
    return agree and fell


def main():
    tracker = start_tracker() if TASK == 0 else None
    with xgboost.config_context(verbosity=0):  # no message for each failed attempt
        join()
    try:
        is_good = train()
    except xgboost.core.XGBoostError as error:
        # The other workers cannot be reached any more; the job's restart policy applies.
        print("gave up:", " ".join(str(error).partition("Stack trace")[0].split()), flush=True)
        os._exit(RETRYABLE_EXIT_CODE)
    collective.finalize()
    if tracker is not None:
        tracker.wait_for(WAIT_SECONDS)
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
