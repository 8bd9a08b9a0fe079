"""Cases of numbers of processes, and of torchtune's recipes. No API server is needed for them.

Of the numbers and recipes that follow from resources and arguments there are a few; the tables are in
test_plan.py and test_torchtune.py in test/unit/kinds/kubeflowtrainer.
"""

from __future__ import annotations

from kubeflowcases.model import Case, Fails, Object, Step
from kubeflowcases.objects import CONTAINER, NODE, TORCH, case, container, env, job, replicated, runtime, trainer

_GPU = "example.com/gpu"


def _processes(name: str, promise: str, expected: str, amounts: Object, **more: int) -> Case:
    return (
        case(f"processes-{name}", "plugins/torch: processes per node")
        .promises(promise)
        .given(trainer(resourcesPerNode={"requests": amounts}, **more))
        .then_node(env(PET_NPROC_PER_NODE=expected))
    )


_NUMBERS = (
    _processes(
        "cpus", "Without GPUs, a node has as many processes as CPUs; a part of one counts.", "3", {"cpu": "2.5"}
    ),
    _processes("gpus", "With GPUs, torchrun counts them itself.", "auto", {"cpu": "6", _GPU: "2"}),
    _processes("given", "The job's number of processes has precedence.", "3", {"cpu": "8"}, numProcPerNode=3),
    case("processes-nodes", "plugins/torch: several nodes with GPUs")
    .promises("Several nodes with GPUs have their number, and torchrun counts the GPUs.")
    .given(trainer(numNodes=4, resourcesPerNode={"requests": {"cpu": "8", _GPU: "4"}}))
    .then_node(env(PET_NNODES="4", PET_NPROC_PER_NODE="auto")),
)

_PATHS = [
    "output_dir=/workspace/output",
    "tokenizer.path=/workspace/model/original/tokenizer.model",
    "checkpointer.checkpoint_dir=/workspace/model",
]
# The paths are kept, the rest of the runtime's command is replaced.
_COMMAND = ["tune", "run", "--rdzv_endpoint=localhost:29500", "full_finetune_distributed", *_PATHS, "batch_size=1"]
_RUNTIME = runtime(replicated(NODE, container(command=_COMMAND)), policy=TORCH)
_SMALL, _LARGE = "torchtune-llama3.2-1b", "torchtune-llama3.3-70b"


def _tune(name: str, promise: str, model: str, step: Step, *arguments: str, nodes: int = 1, gpus: int = 1) -> Case:
    """Returns a case of a job that torchtune fine-tunes."""
    resources = {"limits": {"nvidia.com/gpu": gpus}}
    given = {"command": ["tune", "run"], "args": [*arguments], "numNodes": nodes, "resourcesPerNode": resources}
    source = "plugins/torch: torchtune, validation" if isinstance(step, Fails) else "plugins/torch: torchtune's recipes"
    return (
        case(f"tune-{name}", source)
        .promises(promise)
        .given({"trainer": given}, _RUNTIME, runtime_name=model)
        .then(step)
    )


def _recipe(*words: str) -> Step:
    """Returns the command of the nodes, whose rendezvous torchrun needs no variable for."""
    return job(NODE, {f"{CONTAINER}.command": ["tune", "run", *words, *_PATHS]}, env(PET_MASTER_ADDR=None))


_TUNING = (
    _tune(
        "one",
        "One GPU: all weights on a single device.",
        _SMALL,
        _recipe("full_finetune_single_device", "--config", "llama3_2/1B_full_single_device"),
    ),
    _tune(
        "lora",
        "One GPU and LoRA: a single device.",
        _SMALL,
        _recipe("lora_finetune_single_device", "--config", "llama3_2/1B_lora_single_device"),
        "model.lora_attn_modules=[q_proj]",
    ),
    _tune(
        "nodes",
        "Several nodes: their own recipe, with a rendezvous.",
        _LARGE,
        _recipe(
            "--rdzv_endpoint=tune-nodes-node-0-0.tune-nodes:29500",
            "full_finetune_distributed",
            "--config",
            "llama3_3/70B_full_multinode",
        ),
        nodes=2,
        gpus=8,
    ),
    _tune(
        "model",
        "A model that torchtune does not know is refused.",
        "torchtune-llama3.1-70b",
        Fails("spec.runtimeRef.name: must have a supported pretrained model"),
    ),
    _tune(
        "model-nodes",
        "Only Llama 3.3 70B may train on several nodes.",
        _SMALL,
        Fails("spec.trainer.numNodes: must be 1 for llama3_2/1B model"),
        nodes=2,
    ),
    _tune(
        "paths",
        "A job must not set the paths that the runtime determines.",
        _SMALL,
        Fails("spec.trainer.args[0]: must not set output_dir"),
        "output_dir=/mine",
    ),
)

CASES = (*_NUMBERS, *_TUNING)
