"""Trains a small model synchronously on all workers with MultiWorkerMirroredStrategy, as a TFJob or a TrainJob.

Every worker has the same weights and computes gradients on its own share of the data; an all-reduce sums them, so that
all weights stay equal. Each worker exits with 1 if the loss did not fall to a tenth.
"""

import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
import tensorflow as tf

STEPS = int(os.environ.get("STEPS", "100"))
# Simulated duration of a step of a real model.
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))
REPORT_STEPS = 10
FEATURES = 8
LEARNING_RATE = 0.1


def make_data(worker):
    """Returns a share of the data: features, targets. All shares are generated from the same weights."""
    weights = tf.reshape(tf.linspace(-2.0, 2.0, FEATURES), [FEATURES, 1])
    features = tf.random.stateless_normal([512, FEATURES], seed=[worker, 1])
    noise = 0.05 * tf.random.stateless_normal([512, 1], seed=[worker, 2])
    return features, features @ weights + 0.5 + noise


def main():
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    # The strategy starts this worker's server and waits for all others. It must precede all other TensorFlow calls.
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    replicas = strategy.num_replicas_in_sync
    print(f"worker-{task['index']}: {replicas} replicas in step", flush=True)
    features, targets = make_data(task["index"])
    with strategy.scope():
        weights = tf.Variable(tf.zeros([FEATURES, 1]))
        bias = tf.Variable(tf.zeros([1]))

    def step_here():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(features @ weights + bias - targets))
        gradients = tape.gradient(loss, [weights, bias])
        context = tf.distribute.get_replica_context()
        summed = context.all_reduce(tf.distribute.ReduceOp.MEAN, gradients)
        for variable, gradient in zip((weights, bias), summed, strict=True):
            variable.assign_sub(LEARNING_RATE * gradient)
        return loss

    @tf.function
    def step():
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, strategy.run(step_here), axis=None)

    losses, started = [], time.monotonic()
    for number in range(1, STEPS + 1):
        losses.append(float(step()))
        time.sleep(STEP_SECONDS)
        if task["index"] == 0 and (number == 1 or number % REPORT_STEPS == 0 or number == STEPS):
            rate = number * len(features) * replicas / (time.monotonic() - started)
            print(f"step={number} loss={losses[-1]:.5f} throughput={rate:.0f}", flush=True)
    print(f"loss before: {losses[0]:.4f}", flush=True)
    print(f"loss after: {losses[-1]:.4f}", flush=True)
    sys.exit(0 if losses[-1] < losses[0] / 10 else 1)


if __name__ == "__main__":
    main()
