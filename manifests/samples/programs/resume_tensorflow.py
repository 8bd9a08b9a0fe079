"""Trains a Keras model, and continues from the newest checkpoint.

`tf.train.Checkpoint.write` makes several files, so each checkpoint has a folder, which gets its name when it is complete.
"""

import os
import shutil
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read when TensorFlow is imported
import numpy as np
import tensorflow as tf

EPOCHS = int(os.environ.get("EPOCHS", "20"))
# Simulated duration of an epoch of a real model.
EPOCH_SECONDS = float(os.environ.get("EPOCH_SECONDS", "0"))
FOLDER, RESUME = os.environ["TRAINJOB_CHECKPOINT_DIR"], os.environ["TRAINJOB_RESUME_FROM"]
# All files are read and written by the chief, also if parameter servers hold the variables.
ON_CHIEF = tf.train.CheckpointOptions(experimental_io_device="/job:localhost")


def save(checkpoint, epoch):
    unfinished = f"{FOLDER}/.unfinished"
    shutil.rmtree(unfinished, ignore_errors=True)
    checkpoint.write(f"{unfinished}/state", options=ON_CHIEF)
    os.rename(unfinished, f"{FOLDER}/checkpoint-{epoch}")


def main():
    model = tf.keras.Sequential([tf.keras.Input((8,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    epoch = tf.Variable(0)
    checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer, epoch=epoch)
    if os.path.exists(RESUME):
        checkpoint.read(f"{RESUME}/state", options=ON_CHIEF).expect_partial()
    print(f"continues after epoch {int(epoch)}", flush=True)
    features = np.random.default_rng(0).normal(size=(512, 8)).astype(np.float32)
    while int(epoch) < EPOCHS:
        history = model.fit(features, features.sum(1), verbose=0)
        time.sleep(EPOCH_SECONDS)
        epoch.assign_add(1)
        print(f"epoch={int(epoch)} loss={history.history['loss'][0]:.5f}", flush=True)
        save(checkpoint, int(epoch))


if __name__ == "__main__":
    main()
