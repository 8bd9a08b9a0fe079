"""Trains a small network with torchrun on a number of nodes that changes while it runs.

When a node comes or goes, torchrun stops the processes of all nodes and starts them with the new world size. They load
the last checkpoint from CHECKPOINTS, a folder that all nodes share, and the steps after it are repeated. Rank 0 saves a
checkpoint every SAVE_STEPS steps under a temporary name first, so that a process that is killed meanwhile leaves the
previous one whole. The file `steps` has a line for each step of rank 0, which shows what was repeated.
"""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = int(os.environ.get("STEPS", "300"))
# Simulated duration of a step of a real model.
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0.1"))
# Steps between two checkpoints: a change of the nodes repeats at most this many.
SAVE_STEPS = int(os.environ.get("SAVE_STEPS", "10"))
# A folder for each job: the id of torchrun's run is the UID of the job.
CHECKPOINTS = os.path.join(os.environ.get("CHECKPOINTS", "/checkpoints"), os.environ["TORCHELASTIC_RUN_ID"])
FILE, DONE = os.path.join(CHECKPOINTS, "checkpoint.pt"), os.path.join(CHECKPOINTS, "steps")
REPORT_STEPS = 10
FEATURES, BATCH = 16, 64
LEARNING_RATE = 0.05


def make_data(rank):
    """Returns a share of the data: features, targets. All shares follow the same rule."""
    generator = torch.Generator().manual_seed(rank)
    features = torch.randn(1024, FEATURES, generator=generator)
    weights = torch.linspace(-1.0, 1.0, FEATURES)
    return features, (features @ weights + 0.5).unsqueeze(1)


def make_model():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(FEATURES, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))


def load(model, optimizer):
    """Restores the last checkpoint, if there is one; returns the number of steps in it."""
    if not os.path.exists(FILE):
        return 0
    saved = torch.load(FILE)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return saved["steps"]


def save(model, optimizer, steps):
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "steps": steps}, f"{FILE}.new")
    os.replace(f"{FILE}.new", FILE)


def record(step):
    with open(DONE, "a") as done:
        done.write(f"{step}\n")


def train(model, optimizer, features, targets, begin):
    rank, world = dist.get_rank(), dist.get_world_size()
    for step in range(begin + 1, STEPS + 1):
        first = (step - 1) * BATCH % len(features)
        predicted = model(features[first : first + BATCH])
        loss = torch.nn.functional.mse_loss(predicted, targets[first : first + BATCH])
        optimizer.zero_grad()
        loss.backward()  # DDP averages the gradients of all processes here
        optimizer.step()
        time.sleep(STEP_SECONDS)
        if rank != 0:
            continue
        record(step)
        if step % REPORT_STEPS == 0 or step in (1, STEPS):
            print(f"step={step} loss={loss.item():.5f} world={world}", flush=True)
        if step % SAVE_STEPS == 0 or step == STEPS:
            save(model.module, optimizer, step)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    os.makedirs(CHECKPOINTS, exist_ok=True)
    network = make_model()
    optimizer = torch.optim.SGD(network.parameters(), lr=LEARNING_RATE)
    begin = load(network, optimizer)
    # All processes must have loaded the checkpoint before rank 0 saves the next one.
    dist.barrier()
    if rank == 0:
        print(f"{dist.get_world_size()} processes continue after step {begin}", flush=True)
    train(DistributedDataParallel(network), optimizer, *make_data(rank), begin)
    if rank == 0:
        with open(DONE) as done:
            count = len(done.readlines())
        print(f"steps done: {count}, of which {count - STEPS} were repeated", flush=True)
    # A process must not exit while others wait for it, since they would see a failure.
    dist.barrier()
    # Exits at once: with some versions of torch, threads of gloo occasionally keep Python from exiting.
    os._exit(0)


if __name__ == "__main__":
    main()
