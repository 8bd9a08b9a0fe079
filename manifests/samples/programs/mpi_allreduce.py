"""Computes pi on all processes that mpirun starts: each one adds up its share of the rectangles below a curve.

An all-reduce adds the shares for every process. It is repeated with more and more rectangles, as training repeats its
steps: `loss` is the error of the result. Each process exits with 1 if the error is too large.
"""

import math
import os
import socket
import sys
import time

from mpi4py import MPI

STEPS = int(os.environ.get("STEPS", "10"))
# Simulated duration of a step of a real model.
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))
NEAR_ENOUGH = 1e-6


def share_of_pi(rank, size, rectangles):
    """Returns a process's share of the integral of 4 / (1 + x²) from 0 to 1, which is pi: every size-th rectangle."""
    width = 1.0 / rectangles
    return sum(4.0 / (1.0 + ((index + 0.5) * width) ** 2) for index in range(rank, rectangles, size)) * width


def main():
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    print(f"rank {rank} of {size} is on {socket.gethostname()}", flush=True)
    # All processes have the variables of the job, on every node.
    if len(set(world.allgather(STEPS))) > 1:
        sys.exit(f"rank {rank}: STEPS is {STEPS}, and another one elsewhere")
    hosts = len(set(world.allgather(socket.gethostname())))
    started, result = time.monotonic(), 0.0
    for step in range(1, STEPS + 1):
        rectangles = 1000 * step
        result = world.allreduce(share_of_pi(rank, size, rectangles), op=MPI.SUM)
        time.sleep(STEP_SECONDS)
        if rank == 0:
            rate = step / (time.monotonic() - started)
            print(f"step={step} loss={abs(result - math.pi):.2e} throughput={rate:.1f}", flush=True)
    # Each process checks its own result; all must have the same.
    is_good = abs(result - math.pi) < NEAR_ENOUGH and len(set(world.allgather(result))) == 1
    if rank == 0:
        agreement = "ranks agree" if is_good else "ranks are wrong, or differ"
        print(f"rank 0: pi is about {result:.8f}, {size} {agreement}, on {hosts} hosts, {STEPS} steps each", flush=True)
    sys.exit(0 if is_good else 1)


if __name__ == "__main__":
    main()
