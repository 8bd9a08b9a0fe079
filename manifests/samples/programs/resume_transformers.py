"""Trains a tiny language model with Hugging Face's Trainer, and continues from its newest checkpoint."""

import os
import time

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

STEPS = int(os.environ.get("STEPS", "60"))
# Simulated duration of a step of a real model.
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))
FOLDER, RESUME = os.environ["TRAINJOB_CHECKPOINT_DIR"], os.environ["TRAINJOB_RESUME_FROM"]
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
        output_dir=FOLDER,
        max_steps=STEPS,
        per_device_train_batch_size=BATCH,
        save_steps=10,
        save_total_limit=2,  # in the folder; spec.checkpoint.keep is for the storage
        logging_steps=10,
        report_to="none",  # what TensorBoard writes into the folder would count as a checkpoint
        disable_tqdm=True,
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=Counting())
    print(f"continues from {os.path.basename(os.path.realpath(RESUME))}", flush=True)
    trainer.train(resume_from_checkpoint=os.path.realpath(RESUME) if os.path.exists(RESUME) else None)
    print(f"ended after step {trainer.state.global_step}", flush=True)


if __name__ == "__main__":
    main()
