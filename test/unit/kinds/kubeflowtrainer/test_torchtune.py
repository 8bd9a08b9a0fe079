"""Which recipe and config torchtune gets: the table of upstream's plugin torch."""

from __future__ import annotations

import pytest

from tfjob_controller.jobs.frameworks.base import Setting
from tfjob_controller.kinds.kubeflowtrainer.torchtune import tune_command, tune_problems

RUNTIME = "torchtune-llama3.2-1b"
LORA, QUANTIZED = "model.lora_attn_modules=[q_proj]", "model.quantize_base=True"


def setting(nodes: int = 1, processes: str = "", gpus: int = 0) -> Setting:
    hosts = tuple(f"j-node-0-{index}.j" for index in range(nodes))
    return Setting("j", nodes, hosts, processes, gpus)


@pytest.mark.parametrize(
    ("given", "arguments", "recipe", "config"),
    [
        (setting(gpus=1), [], "full_finetune_single_device", "llama3_2/1B_full_single_device"),
        (setting(gpus=2), [], "full_finetune_distributed", "llama3_2/1B_full"),
        (setting(2, gpus=2), [], "full_finetune_distributed", "llama3_2/1B_full_multinode"),
        (setting(gpus=2), [LORA], "lora_finetune_distributed", "llama3_2/1B_lora"),
        (setting(gpus=4, processes="1"), [], "full_finetune_single_device", "llama3_2/1B_full_single_device"),
        (setting(processes="4"), [], "full_finetune_distributed", "llama3_2/1B_full"),
        (setting(gpus=1), [LORA], "lora_finetune_single_device", "llama3_2/1B_lora_single_device"),
        (setting(gpus=1), [LORA, QUANTIZED], "lora_finetune_single_device", "llama3_2/1B_qlora_single_device"),
        (
            setting(gpus=1),
            [LORA, QUANTIZED, "model.use_dora=True"],
            "lora_finetune_single_device",
            "llama3_2/1B_lora_single_device",
        ),
        (setting(gpus=2), [LORA, QUANTIZED, "model.use_dora=true"], "lora_finetune_distributed", "llama3_2/1B_lora"),
        (setting(gpus=2), [LORA, "model.quantize_base=False"], "lora_finetune_distributed", "llama3_2/1B_lora"),
    ],
)
def test_recipe_and_config_follow_from_devices_and_arguments(
    given: Setting, arguments: list[str], recipe: str, config: str
) -> None:
    command = tune_command(RUNTIME, given, arguments, ())
    assert command[-3:] == [recipe, "--config", config]


def test_one_process_needs_no_rendezvous() -> None:
    assert not any("rdzv" in each for each in tune_command(RUNTIME, setting(gpus=1), (), ()))
    assert tune_command(RUNTIME, setting(gpus=2), (), ())[2] == "--rdzv_endpoint=j-node-0-0.j:29500"


def test_only_the_paths_of_the_runtimes_command_are_kept() -> None:
    command = tune_command(RUNTIME, setting(gpus=1), (), ("tune", "output_dir=/o", "dataset=x", "tokenizer.path=/t"))
    assert command[-2:] == ["output_dir=/o", "tokenizer.path=/t"]


@pytest.mark.parametrize(
    ("runtime", "given", "arguments", "words"),
    [
        ("torch-distributed", setting(), [], "spec.runtimeRef.name: must have a supported pretrained model"),
        (RUNTIME, setting(2), [], "spec.trainer.numNodes: must be 1 for llama3_2/1B model"),
        ("torchtune-qwen2.5-1.5b", setting(gpus=1), [QUANTIZED], "QLoRA is not supported for qwen2_5/1.5B model"),
        (RUNTIME, setting(gpus=2), [QUANTIZED], "must have gpu resource with value 1"),
        ("torchtune-llama3.3-70b", setting(2, gpus=8), [LORA], "LoRA fine-tuning is not supported for multi-node"),
        (RUNTIME, setting(gpus=1), ["output_dir=x"], "spec.trainer.args[0]: must not set output_dir"),
    ],
)
def test_jobs_that_upstream_refuses_are_refused(runtime: str, given: Setting, arguments: list[str], words: str) -> None:
    assert words in next(tune_problems(runtime, given, arguments), "")


def test_jobs_that_upstream_accepts_are_accepted() -> None:
    assert list(tune_problems("torchtune-llama3.3-70b", setting(2, gpus=8), ())) == []
    assert list(tune_problems(RUNTIME, setting(gpus=1), [LORA, QUANTIZED])) == []
