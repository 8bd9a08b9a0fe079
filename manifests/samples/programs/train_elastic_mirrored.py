"""Trains a small model in step on as many workers as there are just now (`autoscaling.resize: Restart`).

Each member of MultiWorkerMirroredStrategy must know all the others. So a resize stops all workers and starts as many as
there should be, with a TF_CONFIG of just those; they resume from the checkpoint in CHECKPOINTS, a folder that all nodes
share. What was done after the last checkpoint is done again, so no worker says that it has done it.

In each round every worker does one step, and the rounds end at exactly TFJOB_TOTAL_STEPS: where fewer steps are left
than there are workers, the last of them only look on. How many are done is in the checkpoint, as part of the model.
"""

import json
import os
import signal
import threading
import time

# Before TensorFlow is imported, since its threads inherit this; see `go_when_told`.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
import tensorflow as tf  # noqa: E402 - see above

TOTAL = int(os.environ["TFJOB_TOTAL_STEPS"])
CHECKPOINTS = os.environ.get("CHECKPOINTS", "/checkpoints")
# What a step of a real model would take.
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))
# Rounds between two checkpoints: what a resize costs at most, beside the start.
SAVE_ROUNDS = int(os.environ.get("SAVE_ROUNDS", "10"))
# Each so many seconds a worker says how far it is; the controller reads it (`autoscaling.progress.pattern`).
REPORT_SECONDS = 1.0
FEATURES = 8
LEARNING_RATE = 0.1
# As a shell reports a process that SIGTERM has ended: the worker has not failed, nor is its work done.
TERMINATED = 128 + signal.SIGTERM


def say(text):
    print(text, flush=True)


def go_when_told():
    """End at SIGTERM, at once: what counts is in the checkpoint.

    A thread waits for it, since the strategy takes a handler's place, and Python calls none while TensorFlow waits for
    other workers, which are told to go as well. A process that does not heed SIGTERM keeps the resize waiting until
    it is killed, after the pod's terminationGracePeriodSeconds.
    """

    def wait():
        signal.sigwait({signal.SIGTERM})
        os._exit(TERMINATED)

    threading.Thread(target=wait, daemon=True).start()


def make_data(worker):
    """A share of the data: features, targets. All shares come from the same weights."""
    weights = tf.reshape(tf.linspace(-2.0, 2.0, FEATURES), [FEATURES, 1])
    features = tf.random.stateless_normal([512, FEATURES], seed=[worker, 1])
    noise = 0.05 * tf.random.stateless_normal([512, 1], seed=[worker, 2])
    return features, features @ weights + 0.5 + noise


class Model:
    """Equal on all workers at any time; `done` counts the steps of all workers that ever were."""

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
        """What a checkpoint holds."""
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
        """One round of all workers."""
        self._strategy.run(self._step_here)


def train(model, checkpoints, index):
    """Until all steps are done. Worker 0 saves; a worker reports what has been saved for certain."""
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
        # Worker 0 comes to the next round only when it has saved: at the next report these are safe.
        saved = mine
    if index == 0:
        checkpoints.save()
    say(f"worker-{index}: {mine} steps of my own, {model.done.numpy()} of {TOTAL} by all")


def main():
    go_when_told()
    config = json.loads(os.environ["TF_CONFIG"])
    index = config["task"]["index"]
    # The strategy opens this worker's server and waits for all others: it must come before any other TensorFlow call.
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
