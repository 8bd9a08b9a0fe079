"""Fits a line with JAX in one program over the devices of all processes: a data-parallel regression on CPUs.

Each process has its own share of the data; `psum` adds the gradients of all. Each process exits with 1 if the loss did
not fall to a tenth, or if the processes' weights differ.
"""

import os
import sys
import time

# A process has one device here, even if the cluster has more CPUs.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

STEPS = int(os.environ.get("STEPS", "100"))
# Simulated duration of a step of a real model.
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))
REPORT_STEPS = 10
FEATURES, ROWS = 8, 512
LEARNING_RATE = 0.1
AXIS = "workers"


def join():
    """Connects to the other processes through the coordinator, which process 0 starts.

    JAX reads JAX_COORDINATOR_ADDRESS by itself, but not the other two variables. Its detection of clusters is disabled:
    in a pod it would call the Kubernetes API, which requires permissions that a pod need not have.
    """
    jax.distributed.initialize(
        num_processes=int(os.environ["JAX_NUM_PROCESSES"]),
        process_id=int(os.environ["JAX_PROCESS_ID"]),
        cluster_detection_method="deactivate",
    )


def make_data(process):
    """Returns a share of the data: features, targets. All shares follow the same rule."""
    random = np.random.default_rng(process)
    features = random.normal(size=(ROWS, FEATURES)).astype(np.float32)
    noise = 0.05 * random.normal(size=ROWS).astype(np.float32)
    return features, features @ np.linspace(-2.0, 2.0, FEATURES, dtype=np.float32) + noise


def make_step(mesh, rows):
    """Returns the compiled step: weights, features, targets → weights, loss."""

    def step_here(weights, features, targets):
        errors = features @ weights - targets
        gradient = jax.lax.psum(2 * features.T @ errors, AXIS) / rows
        loss = jax.lax.psum(jnp.sum(errors**2), AXIS) / rows
        return weights - LEARNING_RATE * gradient, loss

    everywhere, shared_out = PartitionSpec(), PartitionSpec(AXIS)
    inputs, outputs = (everywhere, shared_out, shared_out), (everywhere, everywhere)
    return jax.jit(jax.shard_map(step_here, mesh=mesh, in_specs=inputs, out_specs=outputs))


def train(step, weights, features, targets):
    losses, started = [], time.monotonic()
    for number in range(1, STEPS + 1):
        weights, loss = step(weights, features, targets)
        losses.append(float(loss))
        time.sleep(STEP_SECONDS)
        if jax.process_index() == 0 and (number == 1 or number % REPORT_STEPS == 0 or number == STEPS):
            rate = number * len(features) / (time.monotonic() - started)
            print(f"step={number} loss={losses[-1]:.5f} throughput={rate:.0f}", flush=True)
    return weights, losses


def main():
    join()
    process, processes = jax.process_index(), jax.process_count()
    print(f"process {process} of {processes}: {jax.device_count()} devices in all", flush=True)
    mesh = Mesh(np.array(jax.devices()), (AXIS,))
    sharding = NamedSharding(mesh, PartitionSpec(AXIS))
    features, targets = (jax.make_array_from_process_local_data(sharding, part) for part in make_data(process))
    weights, losses = train(make_step(mesh, len(features)), jnp.zeros(FEATURES), features, targets)
    gathered = multihost_utils.process_allgather(np.asarray(weights.addressable_data(0)))
    agree, fell = bool((gathered == gathered[0]).all()), losses[-1] < losses[0] / 10
    if process == 0:
        agreement = f"{processes} processes agree" if agree else "the processes have different weights"
        print(f"process 0: loss {losses[0]:.4f} -> {losses[-1]:.4f}, {agreement}", flush=True)
    jax.distributed.shutdown()
    sys.exit(0 if agree and fell else 1)


if __name__ == "__main__":
    main()
