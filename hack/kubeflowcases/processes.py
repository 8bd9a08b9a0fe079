"""Cases of numbers of processes, and of torchtune's recipes. No API server is needed for them."""

from __future__ import annotations

from dataclasses import dataclass

from kubeflowcases.model import Case, Fails, Object
from kubeflowcases.objects import CONTAINER, NODE, TORCH, case, container, env, job, replicated, runtime, trainer

_GPU = "example.com/gpu"


def _processes(name: str, promise: str, expected: str, amounts: Object | None = None, **more: int) -> Case:
    resources = {"resourcesPerNode": {"requests": amounts}} if amounts else {}
    return (
        case(f"processes-{name}", "plugins/torch: processes per node")
        .promises(promise)
        .given(trainer(**resources, **more))
        .then_node(env(PET_NPROC_PER_NODE=expected))
    )


_NUMBERS = (
    _processes("cpus", "Without GPUs, a node has as many processes as CPUs.", "4", {"cpu": "4"}),
    _processes("no-cpus", "A node without resources has one process.", "1"),
    _processes("fraction", "A part of a CPU counts as one.", "3", {"cpu": "2.5"}),
    _processes("below-one", "Less than a CPU gives one process.", "1", {"cpu": "0.7"}),
    _processes("gpus", "With GPUs, torchrun counts them itself.", "auto", {_GPU: "2"}),
    _processes("both", "GPUs count, and not CPUs, if there are both.", "auto", {"cpu": "6", _GPU: "2"}),
    _processes("given", "The job's number of processes has precedence.", "3", {"cpu": "8"}, numProcPerNode=3),
    case("processes-limits", "plugins/torch: processes per node")
    .promises("Limits count if there are no requests.")
    .given(trainer(resourcesPerNode={"limits": {"cpu": "3"}}))
    .then_node(env(PET_NPROC_PER_NODE="3")),
    case("processes-nodes", "plugins/torch: several nodes with GPUs")
    .promises("Several nodes with GPUs have their number, and torchrun counts the GPUs.")
    .given(trainer(numNodes=4, resourcesPerNode={"requests": {"cpu": "8", _GPU: "4"}}))
    .then_node(env(PET_NNODES="4", PET_NPROC_PER_NODE="auto")),
)

_LORA = ("model.lora_attn_modules=[q_proj]",)
_QLORA = (*_LORA, "model.quantize_base=True")
_DORA = (*_QLORA, "model.use_dora=True")
_PATHS = [
    "output_dir=/workspace/output",
    "tokenizer.path=/workspace/model/original/tokenizer.model",
    "checkpointer.checkpoint_dir=/workspace/model",
]
# The paths are kept, the rest of the runtime's command is replaced.
_COMMAND = ["tune", "run", "--rdzv_endpoint=localhost:29500", "full_finetune_distributed", *_PATHS, "batch_size=1"]
_RUNTIME = runtime(replicated(NODE, container(command=_COMMAND)), policy=TORCH)
_SMALL, _LARGE = "torchtune-llama3.2-1b", "torchtune-llama3.3-70b"


@dataclass(frozen=True, slots=True)
class _Tuning:
    """A job that torchtune fine-tunes."""

    arguments: tuple[str, ...] = ()
    nodes: int = 1
    gpus: int = 1
    processes: int | None = None

    @property
    def is_distributed(self) -> bool:
        return self.nodes > 1 or (self.processes or self.gpus) > 1

    @property
    def job(self) -> Object:
        given = {"numProcPerNode": self.processes} if self.processes else {}
        return {
            "trainer": {
                "command": ["tune", "run"],
                "args": list(self.arguments),
                "numNodes": self.nodes,
                "resourcesPerNode": {"limits": {"nvidia.com/gpu": self.gpus}},
                **given,
            }
        }


def _tunes(name: str, promise: str, recipe: str, given: _Tuning) -> Case:
    """Returns a case of a recipe; `recipe` also has the end of the configuration's name."""
    program, _, suffix = recipe.partition(" ")
    model, label = (_SMALL, "llama3_2/1B") if given.nodes == 1 else (_LARGE, "llama3_3/70B")
    endpoint = [f"--rdzv_endpoint=tune-{name}-node-0-0.tune-{name}:29500"] if given.is_distributed else []
    command = ["tune", "run", *endpoint, program, "--config", f"{label}_{suffix}", *_PATHS]
    found = job(
        NODE,
        {f"{CONTAINER}.command": command, f"{CONTAINER}.args": list(given.arguments) or None},
        env(PET_MASTER_ADDR=None),
    )
    source = "plugins/torch: torchtune's recipes"
    return case(f"tune-{name}", source).promises(promise).given(given.job, _RUNTIME, runtime_name=model).then(found)


def _does_not_tune(name: str, promise: str, model: str, words: str, given: _Tuning) -> Case:
    source = "plugins/torch: torchtune, validation"
    return (
        case(f"tune-{name}", source).promises(promise).given(given.job, _RUNTIME, runtime_name=model).then(Fails(words))
    )


_FULL, _DISTRIBUTED = "full_finetune_single_device", "full_finetune_distributed"
_LORA_ONE, _LORA_MANY = "lora_finetune_single_device", "lora_finetune_distributed"
_TUNING = (
    _tunes("one", "One GPU: all weights on a single device.", f"{_FULL} full_single_device", _Tuning()),
    _tunes("lora", "One GPU and LoRA: a single device.", f"{_LORA_ONE} lora_single_device", _Tuning(_LORA)),
    _tunes("qlora", "One GPU and QLoRA: a single device.", f"{_LORA_ONE} qlora_single_device", _Tuning(_QLORA)),
    _tunes("dora", "DoRA has precedence over QLoRA.", f"{_LORA_ONE} lora_single_device", _Tuning(_DORA)),
    _tunes("gpus", "Several GPUs: a distributed recipe with a rendezvous.", f"{_DISTRIBUTED} full", _Tuning(gpus=4)),
    _tunes("lora-gpus", "Several GPUs and LoRA: distributed.", f"{_LORA_MANY} lora", _Tuning(_LORA, gpus=4)),
    _tunes("nodes", "Several nodes: their own recipe.", f"{_DISTRIBUTED} full_multinode", _Tuning(nodes=2, gpus=8)),
    _tunes(
        "one-process",
        "One process: a single device, whatever the GPUs.",
        f"{_FULL} full_single_device",
        _Tuning(gpus=4, processes=1),
    ),
    _tunes("processes", "Several processes: distributed.", f"{_DISTRIBUTED} full", _Tuning(gpus=4, processes=4)),
    _does_not_tune(
        "model",
        "A model that torchtune does not know is refused.",
        "torchtune-llama3.1-70b",
        "spec.runtimeRef.name: must have a supported pretrained model",
        _Tuning(),
    ),
    _does_not_tune(
        "model-nodes",
        "Only Llama 3.3 70B may train on several nodes.",
        _SMALL,
        "spec.trainer.numNodes: must be 1 for llama3_2/1B model",
        _Tuning(nodes=2),
    ),
    _does_not_tune(
        "qwen-qlora",
        "QLoRA is refused for Qwen 2.5 on several GPUs.",
        "torchtune-qwen2.5-1.5b",
        "spec.runtimeRef.name: QLoRA is not supported for qwen2_5/1.5B model",
        _Tuning(_QLORA, gpus=2),
    ),
    _does_not_tune(
        "qlora-gpus",
        "QLoRA of Llama 3.2 needs a single GPU.",
        _SMALL,
        "spec.trainer.resourcesPerNode: must have gpu resource with value 1",
        _Tuning(_QLORA, gpus=2),
    ),
    _does_not_tune(
        "lora-nodes",
        "LoRA is refused on several nodes.",
        _LARGE,
        "spec.trainer.numNodes: LoRA fine-tuning is not supported for multi-node training",
        _Tuning(_LORA, nodes=2),
    ),
    _does_not_tune(
        "paths",
        "A job must not set the paths that the runtime determines.",
        _SMALL,
        "spec.trainer.args[0]: must not set output_dir",
        _Tuning(("output_dir=/mine",)),
    ),
)

CASES = (*_NUMBERS, *_TUNING)
