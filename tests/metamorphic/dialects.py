"""Every way in which a run is written: its framework, what it says by being what it is, and who writes it."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import commands
import frameworks
import scripts
from saying import Run


class Dialect(NamedTuple):
    """``implied`` is what a run in this dialect is where nothing else is said; ``write`` gives its files, the recipe
    first, and raises :class:`~saying.CannotSay`."""

    framework: str | None
    implied: Mapping[str, Any]
    write: Callable[[Run], dict[str, str]]


_FULL = {"recipe.method": "full"}
_SFT = {"recipe.method": "full", "recipe.stage": "sft"}
_LORA = {"recipe.method": "lora", "recipe.stage": "sft"}


def _of(stage: str) -> dict[str, str]:
    return {"recipe.method": "full", "recipe.stage": stage}


DIALECTS: dict[str, Dialect] = {
    "Trainer": Dialect("transformers", _FULL, scripts.trainer("")),
    "SFTTrainer": Dialect("trl", _SFT, scripts.trainer("sft")),
    "DPOTrainer": Dialect("trl", _of("dpo"), scripts.trainer("dpo")),
    "GRPOTrainer": Dialect("trl", _of("grpo"), scripts.trainer("grpo")),
    "loop": Dialect(None, _FULL, scripts.loop),
    "loop with Accelerator": Dialect("accelerate", _FULL, scripts.accelerator),
    "notebook": Dialect("transformers", _FULL, scripts.notebook),
    "accelerate launch, argparse": Dialect("transformers", _FULL, scripts.launched("accelerate launch", "argparse")),
    "torchrun, HfArgumentParser": Dialect("transformers", _FULL, scripts.launched("torchrun", "HfArgumentParser")),
    "deepspeed, HfArgumentParser": Dialect("transformers", _FULL, scripts.launched("deepspeed", "HfArgumentParser")),
    "trl sft": Dialect("trl", _SFT, commands.trl_command("sft")),
    "trl dpo": Dialect("trl", _of("dpo"), commands.trl_command("dpo")),
    "trl grpo": Dialect("trl", _of("grpo"), commands.trl_command("grpo")),
    "LLaMA-Factory YAML": Dialect("llamafactory", _LORA, commands.llamafactory_yaml),
    "LLaMA-Factory command": Dialect("llamafactory", _LORA, commands.llamafactory_command),
    "ms-swift": Dialect("ms-swift", _LORA, commands.swift),
    "axolotl": Dialect("axolotl", _SFT, frameworks.axolotl),
    "torchtune": Dialect("torchtune", _LORA, frameworks.torchtune),
    # Its own 512 tokens would make most runs harmless.
    "OpenRLHF": Dialect("openrlhf", {**_SFT, "recipe.max_length": 2048}, frameworks.openrlhf),
    "verl": Dialect("verl", {**_of("grpo"), "recipe.fsdp": True, "recipe.attn": "flash_attention_2"}, frameworks.verl),
    "YAML of arguments": Dialect(None, {}, commands.hf_file("yaml")),
    "JSON of arguments": Dialect(None, {}, commands.hf_file("json")),
    "Unsloth": Dialect("unsloth", _LORA, scripts.unsloth),
    "vllm serve": Dialect("vllm", {"recipe.method": "serve"}, commands.serve_vllm),
    "vLLM in Python": Dialect("vllm", {"recipe.method": "infer"}, scripts.vllm),
    "SGLang command": Dialect("sglang", {"recipe.method": "serve"}, commands.serve_sglang),
    "SGLang in Python": Dialect("sglang", {"recipe.method": "infer"}, scripts.sglang),
}


def written(dialect: str, facts: Mapping[str, object]) -> dict[str, str]:
    """Return the files of a run with these facts, the recipe first. Raises :class:`~saying.CannotSay`."""
    run = Run(facts)
    files = DIALECTS[dialect].write(run)
    return {**files, **run.files}


def other_kind(dialect: str, facts: Mapping[str, object]) -> bool:
    """Return whether the run is none that the dialect is for: an engine trains nothing, and a trainer only trains."""
    method = facts.get("recipe.method")
    if DIALECTS[dialect].framework in ("vllm", "sglang"):
        said = {key[7:] for key, value in facts.items() if key.startswith("recipe.") and value not in ("absent", False)}
        beside = {"framework", "method", "attn", "quantization", "load_dtype", "arguments", "batch_size", "colocate"}
        return method not in ("infer", "serve") or not said <= {*scripts.VLLM, *beside}
    return method in ("infer", "serve") and dialect != "loop"
