"""Trains with DistributedDataParallel, and continues from the newest checkpoint when its pods are started again.

Rank 0 writes a checkpoint under a hidden name and renames it, so that a file with its final name is complete. All ranks
read the checkpoint that was restored to their node.
"""

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS, SAVE_STEPS = int(os.environ.get("STEPS", "200")), 25
# Simulated duration of a step of a real model.
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))
FOLDER, RESUME = os.environ["TRAINJOB_CHECKPOINT_DIR"], os.environ["TRAINJOB_RESUME_FROM"]


def save(step, model, optimizer):
    unfinished = f"{FOLDER}/.checkpoint-{step}.pt"
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, unfinished)
    os.replace(unfinished, f"{FOLDER}/checkpoint-{step}.pt")


def main():
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    step = 0
    if os.path.exists(RESUME):
        state = torch.load(RESUME)
        step = state["step"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    print(f"continues after step {step}", flush=True)
    while step < STEPS:
        step += 1
        features = torch.randn(64, 8, generator=torch.Generator().manual_seed(step))
        loss = torch.nn.functional.mse_loss(model(features), features.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(STEP_SECONDS)
        if dist.get_rank() == 0:
            print(f"step={step} loss={loss:.5f}", flush=True)
            if step % SAVE_STEPS == 0:
                save(step, model, optimizer)
    dist.barrier()
    # Exits at once: with some versions of torch, threads of gloo occasionally keep Python from exiting.
    os._exit(0)


if __name__ == "__main__":
    main()
