"""Trains a small network with DistributedDataParallel over gloo, on all processes that torchrun starts.

Every process has the same parameters and computes gradients on its own share of the data; an all-reduce averages them.
Each process exits with 1 if the loss did not fall to a tenth, or if the parameters are not equal everywhere.
"""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = int(os.environ.get("STEPS", "200"))
# Simulated duration of a step of a real model.
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))
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


def mean_over_ranks(value):
    total = value.detach().clone()
    dist.all_reduce(total)
    return float(total) / dist.get_world_size()


def ranks_agree(model):
    """Returns whether all processes have exactly the same parameters."""
    mine = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    gathered = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, mine)
    return all(torch.equal(mine, other) for other in gathered)


def train(model, features, targets):
    """Returns the first and the last loss, averaged over all processes."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    losses, started = [], time.monotonic()
    for step in range(1, STEPS + 1):
        first = (step - 1) * BATCH % len(features)
        predicted = model(features[first : first + BATCH])
        loss = torch.nn.functional.mse_loss(predicted, targets[first : first + BATCH])
        optimizer.zero_grad()
        loss.backward()  # DDP averages the gradients here
        optimizer.step()
        time.sleep(STEP_SECONDS)
        if step == 1 or step % REPORT_STEPS == 0 or step == STEPS:
            losses.append(mean_over_ranks(loss))
            rate = step * BATCH * dist.get_world_size() / (time.monotonic() - started)
            if dist.get_rank() == 0:
                print(f"step={step} loss={losses[-1]:.5f} throughput={rate:.0f}", flush=True)
    return losses[0], losses[-1]


def main():
    torch.set_num_threads(1)
    # torchrun sets the environment variables for rank, number of processes and address.
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world} started", flush=True)
    model = DistributedDataParallel(make_model())
    before, after = train(model, *make_data(rank))
    agree, fell = ranks_agree(model), after < before / 10
    if rank == 0:
        agreement = f"{world} ranks agree" if agree else "the ranks have different parameters"
        print(f"rank 0: loss {before:.4f} -> {after:.4f}, {agreement}", flush=True)
    # A process must not exit while others wait for its part of the last result, since they would see a failure.
    dist.barrier()
    # Exits at once: with some versions of torch, threads of gloo occasionally keep Python from exiting.
    os._exit(0 if agree and fell else 1)


if __name__ == "__main__":
    main()
