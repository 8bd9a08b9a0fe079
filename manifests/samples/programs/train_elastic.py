"""Trains a small model with parameter servers and a changing number of workers (`autoscaling.resize: InPlace`).

TF_CONFIG lists the maximum number of workers. Device filters connect each of them to the parameter servers only, so
that no worker waits for workers that do not exist. A new worker finds the variables on the parameter servers and
continues the training; a worker that is removed (SIGTERM) finishes its step first.

The steps are counted on the parameter server, for each worker. A step counts and changes the model in one critical
section, or does neither: the job ends after exactly TFJOB_TOTAL_STEPS steps, however many workers took part in it or
were killed. Not shown here: the model is lost with its parameter server, so real programs write checkpoints.
"""

import json
import os
import signal
import sys
import threading
import time

# This must precede the import of TensorFlow, whose threads inherit it; see `exit_on_sigterm`.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
import numpy as np  # noqa: E402 - see above
import tensorflow.compat.v1 as tf  # noqa: E402 - see above

TOTAL = int(os.environ["TFJOB_TOTAL_STEPS"])
# Simulated duration of a step of a real model.
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))
# Interval of the worker's progress reports, which the controller reads (`autoscaling.progress.pattern`).
REPORT_SECONDS = 1.0
FEATURES = 8
BATCH = 64
LEARNING_RATE = 0.05
WAIT_SECONDS = 300
# Time to finish a step after SIGTERM; less than the pod's terminationGracePeriodSeconds.
LAST_STEP_SECONDS = 5
# The exit code that a shell reports for SIGTERM: the worker has neither failed nor completed its work.
TERMINATED = 128 + signal.SIGTERM


def say(text):
    print(text, flush=True)


def exit_on_sigterm():
    """Returns an event that is set at SIGTERM. If the worker has not ended soon after that, the process exits.

    A thread waits for the signal, since Python calls no handler while TensorFlow waits for a server.
    """
    terminated = threading.Event()

    def wait():
        signal.sigwait({signal.SIGTERM})
        terminated.set()
        time.sleep(LAST_STEP_SECONDS)
        os._exit(TERMINATED)

    threading.Thread(target=wait, daemon=True).start()
    return terminated


def make_data(seed):
    """Returns a share of the data: features, targets. All shares are generated from the same weights."""
    weights = np.linspace(-2.0, 2.0, FEATURES, dtype=np.float32).reshape(FEATURES, 1)
    random = np.random.default_rng(seed)
    features = random.normal(size=(2048, FEATURES)).astype(np.float32)
    noise = random.normal(scale=0.05, size=(2048, 1)).astype(np.float32)
    return features, features @ weights + 0.5 + noise


class Model:
    """Variables and counters on the parameter servers, the loss, one step of gradient descent by this worker."""

    def __init__(self, cluster, index):
        me = f"/job:worker/task:{index}"
        with tf.device(tf.train.replica_device_setter(ps_tasks=len(cluster["ps"]), worker_device=me)):
            self.features = tf.placeholder(tf.float32, [None, FEATURES])
            self.targets = tf.placeholder(tf.float32, [None, 1])
            weights = tf.get_variable("weights", [FEATURES, 1], initializer=tf.zeros_initializer())
            bias = tf.get_variable("bias", [1], initializer=tf.zeros_initializer())
            self.loss = tf.reduce_mean(tf.square(self.features @ weights + bias - self.targets))
            gradients = tf.gradients(self.loss, [weights, bias])
        with tf.device("/job:ps/task:0"):
            self.counts = tf.get_variable(
                "counts", [len(cluster["worker"])], dtype=tf.int64, initializer=tf.zeros_initializer()
            )
            section = tf.CriticalSection(shared_name="commit")
            # The section must not be held while the gradients are being computed.
            with tf.control_dependencies(gradients):
                self.step = section.execute(lambda: self._commit([weights, bias], gradients, index))

    def _commit(self, variables, gradients, index):
        """Applies the gradients and counts the step, unless all are done; returns 1 or 0, and the total."""
        counted = tf.cast(tf.reduce_sum(self.counts.read_value()) < TOTAL, tf.int64)
        rate = LEARNING_RATE * tf.cast(counted, tf.float32)
        applied = [each.assign_sub(rate * gradient) for each, gradient in zip(variables, gradients, strict=True)]
        with tf.control_dependencies(applied):
            return counted, tf.reduce_sum(self.counts.scatter_add(tf.IndexedSlices(counted, index)))


def wait_for_variables(session, uninitialized):
    deadline = time.monotonic() + WAIT_SECONDS
    while session.run(uninitialized).size:
        if time.monotonic() > deadline:
            sys.exit("worker-0 has not initialized the variables")
        time.sleep(0.2)


def train(session, model, index, terminated):
    """Trains until all steps are done or SIGTERM; returns whether all steps are done."""
    random, data = np.random.default_rng(index), make_data(index)
    done, mine, reported = 0, 0, 0.0
    while done < TOTAL and not terminated.wait(STEP_SECONDS):
        rows = random.integers(0, len(data[0]), BATCH)
        counted, done = session.run(model.step, {model.features: data[0][rows], model.targets: data[1][rows]})
        mine += counted
        if time.monotonic() - reported > REPORT_SECONDS:
            reported = time.monotonic()
            say(f"worker-{index}: {mine} steps of my own, {done} of {TOTAL} by all")
    say(f"worker-{index}: {mine} steps of my own, {done} of {TOTAL} by all; exiting")
    return done >= TOTAL


def main():
    config = json.loads(os.environ["TF_CONFIG"])
    cluster, index = config["cluster"], config["task"]["index"]
    chief, terminated = index == 0, exit_on_sigterm()
    share = os.environ.get("TFJOB_STEPS")
    say(f"worker-{index}: my share of the steps is {share} of {TOTAL} with this number of workers")
    tf.disable_eager_execution()
    server = tf.train.Server(cluster, job_name="worker", task_index=index)
    model = Model(cluster, index)
    initializer, uninitialized = tf.global_variables_initializer(), tf.report_uninitialized_variables()
    options = tf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{index}"])
    with tf.Session(server.target, config=options) as session:
        everything = dict(zip((model.features, model.targets), make_data(0), strict=True))
        if chief:
            session.run(initializer)
            before = session.run(model.loss, everything)
        else:
            wait_for_variables(session, uninitialized)
        if not train(session, model, index, terminated):
            os._exit(TERMINATED)
        if chief:
            after, counts = session.run(model.loss, everything), session.run(model.counts)
            say(f"steps counted: {counts.sum()} of {TOTAL}, by worker {counts.tolist()}")
            say(f"loss before: {before:.4f}\nloss after: {after:.4f}")
            os._exit(0 if after < before / 10 and counts.sum() == TOTAL else 1)
    os._exit(0)


if __name__ == "__main__":
    main()
