"""Trains a tiny language model with Hugging Face's Trainer, which reports its progress by itself.

The model learns to count: each sequence is consecutive numbers. Nothing is downloaded. The Trainer reports to the
controller because of the variables that the pod has; the program does nothing for it.
"""

import os
import sys
import time

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

STEPS = int(os.environ.get("STEPS", "200"))
# Simulated duration of a step of a real model.
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))
NUMBERS, LENGTH, BATCH = 32, 16, 16


class Counting(Dataset):
    def __len__(self):
        return 1024

    def __getitem__(self, index):
        if index % BATCH == 0:
            time.sleep(STEP_SECONDS)
        numbers = torch.arange(index, index + LENGTH) % NUMBERS
        return {"input_ids": numbers, "labels": numbers}


def main():
    torch.set_num_threads(1)
    ends = {"bos_token_id": NUMBERS - 1, "eos_token_id": NUMBERS - 1}
    model = GPT2LMHeadModel(GPT2Config(vocab_size=NUMBERS, n_positions=LENGTH, n_embd=32, n_layer=2, n_head=2, **ends))
    arguments = TrainingArguments(
        output_dir="/tmp/model",
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        learning_rate=0.01,
        logging_steps=10,
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Counting())
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}", flush=True)
    return 0 if losses[-1] < losses[0] / 2 else 1


if __name__ == "__main__":
    sys.exit(main())
