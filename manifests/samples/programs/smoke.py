"""Every replica of a TFJob runs a computation on every other one, over gRPC, like programs with parameter servers.

The master places one small matrix product on each task of the cluster and checks each answer. Every worker does the
same and increments a counter on the chief, so that the chief ends only when all of them are done. Workers then serve
until the job cleans them up; parameter servers run no program of their own.

Needs TensorFlow 2 (or 1.15) and TF_CONFIG. Exit code 0: all answers were right; 1: one was wrong.
"""

import json
import os
import signal
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
import tensorflow.compat.v1 as tf

# A peer that has not started after this time is considered lost; the job's restart policy applies.
WAIT_SECONDS = 300
POLL_SECONDS = 0.2
RETRYABLE_EXIT_CODE = 130


def say(text):
    print(text, flush=True)


def tasks_of(cluster):
    """Returns all (job, index) of the cluster, sorted."""
    return [(job, index) for job in sorted(cluster) for index in range(len(cluster[job]))]


def right_answer(number):
    """Returns the product that the given task computes: [[n, n+1]] x [[2], [3]]."""
    return 2 * number + 3 * (number + 1)


def compute_everywhere(session, products):
    """Runs each task's product there and returns the sum of all answers. A wrong answer ends the program."""
    total = 0
    for number, (job, index, product) in enumerate(products, start=1):
        answer = int(session.run(product)[0][0])
        say(f"/job:{job}/task:{index} computed {answer}, right is {right_answer(number)}")
        if answer != right_answer(number):
            sys.exit(1)
        total += answer
    return total


def build_products(cluster):
    products = []
    for number, (job, index) in enumerate(tasks_of(cluster), start=1):
        with tf.device(f"/job:{job}/task:{index}"):
            row = tf.constant([[number, number + 1]])
            products.append((job, index, tf.matmul(row, tf.constant([[2], [3]]))))
    return products


def build_counter(chief):
    """Returns the number of workers that are done: a variable on the chief, shared by name between all graphs."""
    with tf.device(chief):
        counter = tf.get_variable("workers_done", shape=[], dtype=tf.int32, initializer=tf.zeros_initializer())
    return counter, counter.assign_add(1, use_locking=True)


def wait_until(what, reached):
    deadline = time.monotonic() + WAIT_SECONDS
    while not reached():
        if time.monotonic() > deadline:
            say(f"gave up after {WAIT_SECONDS} s: {what}")
            sys.exit(RETRYABLE_EXIT_CODE)
        time.sleep(POLL_SECONDS)


def serve_until_sigterm():
    """Serves until SIGTERM. The first process of a container ignores SIGTERM without a handler.

    `server.join()` would not run a handler.
    """
    signal.signal(signal.SIGTERM, lambda signum, frame: os._exit(128 + signum))
    while True:
        time.sleep(1)


def main():
    config = json.loads(os.environ["TF_CONFIG"])
    cluster, task = config["cluster"], config["task"]
    me, chief_job = (task["type"], task["index"]), "master" if "master" in cluster else "worker"
    say(f"REPLICA_TYPE={me[0]},REPLICA_INDEX={me[1]}")
    tf.disable_eager_execution()
    server = tf.train.Server(cluster, job_name=me[0], task_index=me[1])
    products = build_products(cluster)
    counter, count_me = build_counter(f"/job:{chief_job}/task:0")
    initialized = tf.is_variable_initialized(counter)
    others = len(cluster.get("worker", [])) - (chief_job == "worker")
    with tf.Session(server.target) as session:
        say(f"all {len(products)} tasks of the cluster answer")
        if me == (chief_job, 0):
            session.run(counter.initializer)
        else:
            wait_until("the chief has not begun", lambda: session.run(initialized))
        total = compute_everywhere(session, products)
        say(f"sum over {len(products)} replicas: {total}")
        if me != (chief_job, 0):
            session.run(count_me)
            say("done; serving until the job ends")
            serve_until_sigterm()
        wait_until("not all workers are done", lambda: session.run(counter) == others)
    say(f"{others} of {others} workers computed the same")
    # The session's threads may wait on tasks that have ended. Nothing is left to do, so the process exits at once.
    os._exit(0)


if __name__ == "__main__":
    main()
