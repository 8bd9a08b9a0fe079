"""Simulates the fine-tuning of a large model: the same inputs and outputs, with hardly any training.

    torchrun finetune.py --lora-rank=16

The initializers put their files into /workspace/dataset and /workspace/model; the exporter uploads the trained model
from /workspace/output. A "LoRA adapter" is two thin matrices, B·A, beside frozen weights W: training changes only them.
Here W is generated from the bytes of the model's files, and the data from those of the dataset, so that another input
gives another result. Each process exits with 1 if the loss did not fall, or if the adapters differ.
"""

import argparse
import hashlib
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

STEPS = int(os.environ.get("STEPS", "50"))
# Simulated duration of a step of a real model.
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))
REPORT_STEPS = 10
WORKSPACE = Path(os.environ.get("WORKSPACE", "/workspace"))
SIZE, ROWS = 32, 128
LEARNING_RATE = 0.5


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lora-rank", type=int, default=8, help="rows of A, columns of B")
    return parser.parse_args()


def files_below(folder):
    """Returns the files of an initializer, sorted; the program ends if there are none."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    if not found:
        print(f"{folder} holds no file: was there an initializer for it?", flush=True)
        sys.exit(1)
    return found


def seed_of(files):
    """Returns a number that changes with any byte of the files."""
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return int.from_bytes(digest.digest()[:6], "big")


def random_matrix(seed, rows, columns):
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) / columns**0.5


def make_adapter(lora_rank):
    """Returns a random A and a zero B, equal on every process: at first the adapter changes nothing."""
    down = random_matrix(1, lora_rank, SIZE).requires_grad_()
    up = torch.zeros(SIZE, lora_rank, requires_grad=True)
    return down, up


def mean_over_ranks(tensor):
    dist.all_reduce(tensor)
    return tensor / dist.get_world_size()


def train(weights, features, targets, adapter):
    """Returns the loss of each step, averaged over all processes."""
    losses, started = [], time.monotonic()
    for step in range(1, STEPS + 1):
        down, up = adapter
        loss = torch.nn.functional.mse_loss(features @ (weights + up @ down).T, targets)
        gradients = [mean_over_ranks(gradient) for gradient in torch.autograd.grad(loss, adapter)]
        with torch.no_grad():
            for parameter, gradient in zip(adapter, gradients, strict=True):
                parameter -= LEARNING_RATE * SIZE * gradient
        losses.append(float(mean_over_ranks(loss.detach().clone())))
        time.sleep(STEP_SECONDS)
        if dist.get_rank() == 0 and (step == 1 or step % REPORT_STEPS == 0 or step == STEPS):
            rate = step * len(features) * dist.get_world_size() / (time.monotonic() - started)
            print(f"step={step} loss={losses[-1]:.5f} throughput={rate:.0f}", flush=True)
    return losses


def ranks_agree(adapter):
    mine = torch.cat([parameter.detach().flatten() for parameter in adapter])
    gathered = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, mine)
    return all(torch.equal(mine, other) for other in gathered)


def save(adapter, lora_rank, losses):
    folder = WORKSPACE / "output"
    folder.mkdir(parents=True, exist_ok=True)
    torch.save([parameter.detach() for parameter in adapter], folder / "adapter.pt")
    facts = {"lora_rank": lora_rank, "steps": len(losses), "loss_before": losses[0], "loss_after": losses[-1]}
    (folder / "result.json").write_text(json.dumps(facts) + "\n")
    print(f"the adapter is in {folder}", flush=True)


def main():
    lora_rank = read_arguments().lora_rank
    model, dataset = files_below(WORKSPACE / "model"), files_below(WORKSPACE / "dataset")
    torch.set_num_threads(1)
    # torchrun sets the environment variables for rank, number of processes and address.
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    print(f"rank {rank} of {world}: {len(model)} files of the model, {len(dataset)} of the dataset", flush=True)
    weights, wanted = random_matrix(seed_of(model), SIZE, SIZE), random_matrix(seed_of(dataset), SIZE, SIZE)
    features = random_matrix(2 + rank, ROWS, SIZE)
    adapter = make_adapter(lora_rank)
    losses = train(weights, features, features @ wanted.T, adapter)
    agree, fell = ranks_agree(adapter), losses[-1] < losses[0]
    if rank == 0:
        save(adapter, lora_rank, losses)
        agreement = f"{world} ranks agree" if agree else "the ranks have different adapters"
        print(f"rank 0: lora rank {lora_rank}, loss {losses[0]:.4f} -> {losses[-1]:.4f}, {agreement}", flush=True)
    # A process must not exit while others wait for its part of the last result, since they would see a failure.
    dist.barrier()
    # Exits at once: with some versions of torch, threads of gloo occasionally keep Python from exiting.
    os._exit(0 if agree and fell else 1)


if __name__ == "__main__":
    main()
