"""Fits a line with JAX, and continues from the newest checkpoint of orbax.

Orbax writes each step into a folder of its own, which gets its name when it is complete. It finds the one that was
restored by itself. For one process; several of them would write each checkpoint together, into a folder that they share.
"""

import os
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")
import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

STEPS, SAVE_STEPS = int(os.environ.get("STEPS", "200")), 10
# Simulated duration of a step of a real model.
STEP_SECONDS = float(os.environ.get("STEP_SECONDS", "0"))


@jax.jit
def train_step(state, features):
    gradient = jax.grad(lambda weights: jnp.mean((features @ weights - features.sum(1)) ** 2))(state["weights"])
    return {"weights": state["weights"] - 0.1 * gradient, "step": state["step"] + 1}


def main():
    options = ocp.CheckpointManagerOptions(max_to_keep=2, save_interval_steps=SAVE_STEPS)
    manager = ocp.CheckpointManager(os.environ["TRAINJOB_CHECKPOINT_DIR"], options=options)
    state = {"weights": jnp.zeros(8), "step": jnp.array(0)}
    newest = manager.latest_step()
    if newest is not None:
        state = manager.restore(newest, args=ocp.args.StandardRestore(state))
    print(f"continues after step {int(state['step'])}", flush=True)
    while int(state["step"]) < STEPS:
        step = int(state["step"]) + 1
        state = train_step(state, jax.random.normal(jax.random.key(step), (64, 8)))
        time.sleep(STEP_SECONDS)
        manager.save(step, args=ocp.args.StandardSave(state))
    manager.wait_until_finished()
    print(f"weights {state['weights'].min():.3f} to {state['weights'].max():.3f}", flush=True)


if __name__ == "__main__":
    main()
