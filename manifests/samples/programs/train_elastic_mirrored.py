"""Trains a small model synchronously on a changing number of workers (`autoscaling.resize: Restart`).

Each member of MultiWorkerMirroredStrategy must know all the others. A resize therefore stops all workers and starts the
new number with a new TF_CONFIG. They resume from the checkpoint in CHECKPOINTS, a folder that all nodes share. Steps
after the last checkpoint are repeated, so workers report only steps that are in a checkpoint.

In each round every worker does one step, and the rounds end at exactly TFJOB_TOTAL_STEPS: if fewer steps are left than
there are workers, the last workers' steps do not count. The checkpoint contains the number of steps with the model.
"""

import json
import os
import signal
import threading
import time

# This must precede the import of TensorFlow, whose threads inherit it; see `exit_on_sigterm`.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
import tensorflow as tf  # noqa: E402 - see above

TOTAL = int(os.environ["TFJOB_TOTAL_STEPS"])
CHECKPOINTS = os.environ.get("CHECKPOINTS", "/checkpoints")
# Simulated duration of a step of a real model.
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))
# Rounds between two checkpoints: a resize repeats at most this many.
SAVE_ROUNDS = int(os.environ.get("SAVE_ROUNDS", "10"))
# Interval of the worker's progress reports, which the controller reads (`autoscaling.progress.pattern`).
REPORT_SECONDS = 1.0
FEATURES = 8
LEARNING_RATE = 0.1
# The exit code that a shell reports for SIGTERM: the worker has neither failed nor completed its work.
TERMINATED = 128 + signal.SIGTERM


def say(text):
    print(text, flush=True)


def exit_on_sigterm():
    """Exits at once at SIGTERM, since all counted work is in the checkpoint.

    A thread waits for the signal, since the strategy replaces signal handlers, and Python calls none while TensorFlow
    waits for other workers, which receive SIGTERM as well. A process that ignores SIGTERM delays the resize until it is
    killed after the pod's terminationGracePeriodSeconds.
    """

    def wait():
        signal.sigwait({signal.SIGTERM})
        os._exit(TERMINATED)

    threading.Thread(target=wait, daemon=True).start()


def make_data(worker):
    """Returns a share of the data: features, targets. All shares are generated from the same weights."""
    weights = tf.reshape(tf.linspace(-2.0, 2.0, FEATURES), [FEATURES, 1])
    features = tf.random.stateless_normal([512, FEATURES], seed=[worker, 1])
    noise = 0.05 * tf.random.stateless_normal([512, 1], seed=[worker, 2])
    return features, features @ weights + 0.5 + noise


class Model:
    """The model, which is always equal on all workers; `done` counts the steps of all workers since the first start."""

    def __init__(self, strategy, index):
        self._strategy = strategy
        self._index = index
        self._features, self._targets = make_data(index)
        with strategy.scope():
            self.weights = tf.Variable(tf.zeros([FEATURES, 1]))
            self.bias = tf.Variable(tf.zeros([1]))
            self.done = tf.Variable(0, dtype=tf.int64)
            self.first_loss = tf.Variable(0.0)
            self.loss = tf.Variable(0.0)

    def saved(self):
        """Returns the variables of a checkpoint."""
        names = ("weights", "bias", "done", "first_loss", "loss")
        return {name: getattr(self, name) for name in names}

    def _step_here(self):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(self._features @ self.weights + self.bias - self._targets))
        gradients = tape.gradient(loss, [self.weights, self.bias])
        counted = tf.cast(self.done + self._index < TOTAL, tf.float32)
        context = tf.distribute.get_replica_context()
        *sums, loss, steps = context.all_reduce(
            tf.distribute.ReduceOp.SUM, [*(counted * each for each in gradients), counted * loss, counted]
        )
        for variable, gradient in zip((self.weights, self.bias), sums, strict=True):
            variable.assign_sub(LEARNING_RATE * gradient / steps)
        self.loss.assign(loss / steps)
        self.first_loss.assign(tf.where(self.done == 0, loss / steps, self.first_loss))
        self.done.assign_add(tf.cast(steps, tf.int64))

    @tf.function
    def step(self):
        """Runs one round on all workers."""
        self._strategy.run(self._step_here)


def train(model, checkpoints, index):
    """Trains until all steps are done. Worker 0 saves; workers report only steps that are in a checkpoint."""
    rounds, mine, saved, reported = 0, 0, 0, 0.0
    while (done := model.done.numpy()) < TOTAL:
        time.sleep(STEP_SECONDS)
        model.step()
        rounds += 1
        mine += done + index < TOTAL
        if rounds % SAVE_ROUNDS:
            continue
        if time.monotonic() - reported > REPORT_SECONDS:
            reported = time.monotonic()
            say(f"worker-{index}: {saved} steps of my own, {model.done.numpy()} of {TOTAL} by all")
        if index == 0:
            checkpoints.save()
        # Worker 0 joins the next round after it has saved, so these steps are in a checkpoint at the next report.
        saved = mine
    if index == 0:
        checkpoints.save()
    say(f"worker-{index}: {mine} steps of my own, {model.done.numpy()} of {TOTAL} by all")


def main():
    exit_on_sigterm()
    config = json.loads(os.environ["TF_CONFIG"])
    index = config["task"]["index"]
    # The strategy starts this worker's server and waits for all others. It must precede all other TensorFlow calls.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    say(f"worker-{index}: {strategy.num_replicas_in_sync} workers in step")
    model = Model(strategy, index)
    with strategy.scope():
        checkpoint = tf.train.Checkpoint(**model.saved())
        checkpoints = tf.train.CheckpointManager(checkpoint, CHECKPOINTS, max_to_keep=2)
        checkpoint.restore(checkpoints.latest_checkpoint)
    say(f"worker-{index}: {model.done.numpy()} of {TOTAL} steps were done before")
    train(model, checkpoints, index)
    if index == 0:
        before, after, done = model.first_loss.numpy(), model.loss.numpy(), model.done.numpy()
        say(f"steps counted: {done} of {TOTAL}")
        say(f"loss before: {before:.4f}\nloss after: {after:.4f}")
        os._exit(0 if after < before / 10 and done == TOTAL else 1)
    os._exit(0)


if __name__ == "__main__":
    main()
