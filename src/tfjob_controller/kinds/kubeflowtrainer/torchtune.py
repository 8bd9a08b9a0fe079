"""torchtune, which Kubeflow Trainer's torch runtimes run for jobs with the command `tune run`.

Such a job leaves recipe and config out. They follow from the name of the runtime (`torchtune-llama3.2-1b`), from the
number of nodes and processes, and from the arguments, which select LoRA or QLoRA. What the runtime's own
command sets for paths is kept. torchtune gets its rendezvous by the command line, not by variables.

Source: kubeflow/trainer pkg/runtime/framework/plugins/torch (torch.go, torchtune.go).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tfjob_controller.jobs.frameworks.base import DEFAULT_PORT, Setting
from tfjob_controller.jobs.frameworks.environment import processes_per_node

ENTRYPOINT = ("tune", "run")
# Without these, since the rendezvous is in the command.
RENDEZVOUS_VARIABLES = frozenset(("PET_MASTER_ADDR", "PET_MASTER_PORT"))

_MULTI_NODE_MODEL, _NO_QLORA_MODEL = "llama3_3/70B", "qwen2_5/1.5B"
# With QLoRA, these train on one device only.
_SINGLE_DEVICE_MODELS = ("llama3_2/1B", "llama3_2/3B")
_MODELS = (*_SINGLE_DEVICE_MODELS, _MULTI_NODE_MODEL, _NO_QLORA_MODEL)
# Set by the runtime; a job must not override them.
_FIXED = ("output_dir", "tokenizer.path", "checkpointer.checkpoint_dir", "tokenizer.merges_file")
_LORA, _QUANTIZED, _DORA = "model.lora_attn_modules", "model.quantize_base", "model.use_dora"


def tune_command(runtime: str, setting: Setting, arguments: Sequence[str], runtime_command: Sequence[str]) -> list[str]:
    """Returns the command of a job without problems. `runtime` is the name of its runtime."""
    recipe, suffix = _recipe(setting, arguments)
    endpoint = [f"--rdzv_endpoint={setting.nodes[0]}:{DEFAULT_PORT}"] if _is_distributed(setting) else []
    fixed = [argument for argument in runtime_command if argument.partition("=")[0] in _FIXED]
    return [*ENTRYPOINT, *endpoint, recipe, "--config", f"{_model(runtime)}{suffix}", *fixed]


def tune_problems(runtime: str, setting: Setting, arguments: Sequence[str]) -> Iterator[str]:
    """Yields why such a job cannot run."""
    model = _model(runtime)
    if model not in _MODELS:
        yield f"spec.runtimeRef.name: must have a supported pretrained model, invalid model configured: {model}"
    if setting.num_nodes > 1 and model != _MULTI_NODE_MODEL:
        yield f"spec.trainer.numNodes: must be 1 for {model} model"
    if _uses_qlora(arguments) and model == _NO_QLORA_MODEL:
        yield f"spec.runtimeRef.name: QLoRA is not supported for {model} model"
    if _uses_qlora(arguments) and model in _SINGLE_DEVICE_MODELS and not _is_single_device(setting):
        yield f"spec.trainer.resourcesPerNode: must have gpu resource with value 1 for {model} model when using QLoRA"
    if setting.num_nodes > 1 and (_uses_lora(arguments) or _uses_qlora(arguments)):
        yield "spec.trainer.numNodes: LoRA fine-tuning is not supported for multi-node training in TorchTune"
    for index, argument in enumerate(arguments):
        name = argument.partition("=")[0]
        if name in _FIXED:
            yield f"spec.trainer.args[{index}]: must not set {name}, which the runtime determines"


def _model(runtime: str) -> str:
    parts = runtime.split("-")
    return f"{parts[1].replace('.', '_')}/{parts[2].upper()}" if len(parts) == 3 else ""


def _recipe(setting: Setting, arguments: Sequence[str]) -> tuple[str, str]:
    """Returns the recipe and the end of the config's name."""
    if setting.num_nodes > 1:
        return "full_finetune_distributed", "_full_multinode"
    is_single = _is_single_device(setting)
    where, suffix = ("single_device", "_single_device") if is_single else ("distributed", "")
    if _uses_qlora(arguments):
        return f"lora_finetune_{where}", f"_qlora{suffix}"
    if _uses_lora(arguments):
        return f"lora_finetune_{where}", f"_lora{suffix}"
    return f"full_finetune_{where}", f"_full{suffix}"


def _is_single_device(setting: Setting) -> bool:
    return setting.num_nodes == 1 and (processes_per_node(setting) == "1" or setting.gpus == 1)


def _is_distributed(setting: Setting) -> bool:
    processes = processes_per_node(setting)
    return setting.num_nodes > 1 or (int(processes) > 1 if processes.isdecimal() else setting.gpus > 1)


def _uses_lora(arguments: Sequence[str]) -> bool:
    return any(_LORA in argument for argument in arguments)


def _uses_qlora(arguments: Sequence[str]) -> bool:
    return _is_set(arguments, _QUANTIZED) and not _is_set(arguments, _DORA)


def _is_set(arguments: Sequence[str], name: str) -> bool:
    """Reports whether an option is set to what Python calls True."""
    pairs = (argument.partition("=") for argument in arguments)
    return any(name in key and value.strip().lower() == "true" for key, _, value in pairs)
