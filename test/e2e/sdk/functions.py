"""Functions that tests give to Kubeflow's SDK, which sends their source to the pods: each imports what it uses."""

from __future__ import annotations


def add_ranks(greeting: str) -> None:
    """Adds up the ranks of all processes, as a distributed training adds up gradients."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    total = torch.tensor([dist.get_rank()])
    dist.all_reduce(total)
    print(f"{greeting} from rank {dist.get_rank()} of {dist.get_world_size()}: the sum is {int(total)}", flush=True)
    dist.destroy_process_group()


def wait_for_a_file(path: str) -> None:
    """Prints a line, and another one once the file exists."""
    import os
    import time

    print(f"waiting for {path}", flush=True)
    while not os.path.exists(path):
        time.sleep(0.1)
    print("done", flush=True)


def fail() -> None:
    """Fails, as a program with a typo does."""
    raise ValueError("no such dataset")
