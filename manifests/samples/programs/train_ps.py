"""Trains a small model with parameter servers, each replica with its own graph (between-graph replication).

The data is generated from known weights plus noise; the variables are on the parameter servers. Master and workers
compute gradients on their own shares of the data and apply them asynchronously. The chief (master) prints the loss
before and after and exits with 1 if it did not fall to a tenth.

Device filters let a replica wait for the parameter servers only, not for workers that start late or never.
"""

import json
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
import numpy as np
import tensorflow.compat.v1 as tf

STEPS = int(os.environ.get("STEPS", "400"))
FEATURES = 8
BATCH = 64
LEARNING_RATE = 0.05
WAIT_SECONDS = 300


def say(text):
    print(text, flush=True)


def make_data(seed):
    """Returns a share of the data: features, targets. All shares are generated from the same weights."""
    weights = np.linspace(-2.0, 2.0, FEATURES, dtype=np.float32).reshape(FEATURES, 1)
    random = np.random.default_rng(seed)
    features = random.normal(size=(2048, FEATURES)).astype(np.float32)
    noise = random.normal(scale=0.05, size=(2048, 1)).astype(np.float32)
    return features, features @ weights + 0.5 + noise


def build_model(parameter_servers, me):
    """Returns variables on the parameter servers, the loss, and one step of gradient descent by this replica."""
    with tf.device(tf.train.replica_device_setter(ps_tasks=parameter_servers, worker_device=me)):
        features = tf.placeholder(tf.float32, [None, FEATURES])
        targets = tf.placeholder(tf.float32, [None, 1])
        weights = tf.get_variable("weights", [FEATURES, 1], initializer=tf.zeros_initializer())
        bias = tf.get_variable("bias", [1], initializer=tf.zeros_initializer())
        step = tf.train.get_or_create_global_step()
        loss = tf.reduce_mean(tf.square(features @ weights + bias - targets))
        train = tf.train.GradientDescentOptimizer(LEARNING_RATE).minimize(loss, global_step=step)
    return features, targets, loss, train, step


def wait_for_variables(session, uninitialized):
    deadline = time.monotonic() + WAIT_SECONDS
    while session.run(uninitialized).size:
        if time.monotonic() > deadline:
            sys.exit("the chief has not initialized the variables")
        time.sleep(0.2)


def train_until_done(session, model, data, seed):
    features, targets, _, train, step = model
    random = np.random.default_rng(seed)
    mine = 0
    while session.run(step) < STEPS:
        rows = random.integers(0, len(data[0]), BATCH)
        session.run(train, {features: data[0][rows], targets: data[1][rows]})
        mine += 1
    return mine


def main():
    config = json.loads(os.environ["TF_CONFIG"])
    cluster, task = config["cluster"], config["task"]
    role, index = task["type"], task["index"]
    chief = role == "master"
    seed = 0 if chief else index + 1
    tf.disable_eager_execution()
    server = tf.train.Server(cluster, job_name=role, task_index=index)
    data = make_data(seed)
    model = build_model(len(cluster["ps"]), f"/job:{role}/task:{index}")
    features, targets, loss, _, _ = model
    initializer, uninitialized = tf.global_variables_initializer(), tf.report_uninitialized_variables()
    options = tf.ConfigProto(device_filters=["/job:ps", f"/job:{role}/task:{index}"])
    with tf.Session(server.target, config=options) as session:
        everything = {features: data[0], targets: data[1]}
        if chief:
            session.run(initializer)
            before = session.run(loss, everything)
            say(f"loss before: {before:.4f}")
        else:
            wait_for_variables(session, uninitialized)
        mine = train_until_done(session, model, data, seed)
        after = session.run(loss, everything)
        say(f"{role}-{index}: {mine} steps of my own, loss now {after:.4f}")
    if chief:
        say(f"loss after: {after:.4f}")
        sys.stdout.flush()
        os._exit(0 if after < before / 10 else 1)
    os._exit(0)


if __name__ == "__main__":
    main()
