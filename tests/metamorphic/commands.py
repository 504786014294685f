"""Runs written as a command, or as a file of its arguments: TRL, LLaMA-Factory, ms-swift, vLLM and SGLang."""

import json
from collections.abc import Callable

from saying import Arguments, CannotSay, Run, accelerated, say_training
from scripts import SGLANG, VLLM, say_engine
from writing import LONG, document, options, put, shell, targets

# --- TRL's command, and files of arguments ----------------------------------------------------------------------------


def _say_hub(run: Run, to: Arguments) -> None:
    """Write what TRL's classes of arguments say of the model, its adapter and its data."""
    put(run, to, attn="attn_implementation", device_map="device_map", padding_side="padding_side")
    if (dtype := run.take("load_dtype")) is not None and run.left.get("arguments") != ["model_name_or_path"]:
        to.put(LONG[dtype], "dtype", "torch_dtype")
    method, kind = run.take("method"), run.take("quantization")
    if method is not None:
        to.put(method != "full", "use_peft")
    if method not in (None, "full", "lora", "qlora"):
        raise CannotSay(f"{to.owner}: recipe.method is never {method}")
    if method == "qlora" and kind is None:
        kind = "bnb-4bit"
    if kind is not None:
        to.put(True, {"bnb-4bit": "load_in_4bit", "bnb-8bit": "load_in_8bit"}.get(kind, f"load_in_{kind}"))
    if (dtype := run.take("quantization_compute_dtype")) is not None:
        to.put(LONG[dtype], "bnb_4bit_compute_dtype")
    put(run, to, lora_r="lora_r", lora_alpha="lora_alpha", lora_dropout="lora_dropout", dora="use_dora")
    put(run, to, lora_targets="lora_target_modules", lora_modules_to_save="lora_modules_to_save")
    put(run, to, streaming="dataset_streaming")
    if run.take("trust_remote_code"):
        to.put(True, "trust_remote_code")
    if (length := run.take("max_length")) is not None:
        to.put(length, "max_length", "max_seq_length")
    put(run, to, gpu_memory_utilization="vllm_gpu_memory_utilization")
    if (sleep := run.take("sleep_mode")) is not None:
        to.put(sleep, "vllm_enable_sleep_mode")
    if (beside := run.take("colocate")) is not None:
        to.put(True, "use_vllm")
        to.put("colocate" if beside else "server", "vllm_mode")


def trl_command(kind: str) -> Callable[[Run], dict[str, str]]:
    """Return the writer of ``trl sft``, ``trl dpo`` or ``trl grpo``."""

    def write(run: Run) -> dict[str, str]:
        known = run.known("trl", f"{kind.upper()}Config", "command") | run.known("transformers", "TrainingArguments")
        if not run.known("trl", f"{kind.upper()}Trainer"):
            raise CannotSay(f"trl {run.release('trl')} has no {kind.upper()}Trainer")
        what = f"trl {kind}"
        to = Arguments(what, known, model_name_or_path=run.model, dataset_name="org/data", output_dir="out")
        run.want("stage", kind, what=what)
        words = accelerated(run)
        if kind == "grpo" and (length := run.take("max_length")) is not None:
            to.put(length - 512, "max_completion_length")
            to.put(512, "max_prompt_length")
        _say_hub(run, to)
        say_training(run, to)
        run.finish(what)
        return shell("trl", kind, *words, *options(to))

    return write


def hf_file(ending: str) -> Callable[[Run], dict[str, str]]:
    """Return the writer of a file of arguments, as HfArgumentParser reads it: yaml or json."""

    def write(run: Run) -> dict[str, str]:
        known = run.known("transformers", "TrainingArguments") | run.known("trl", "command") | {"max_seq_length"}
        to = Arguments("a file of arguments", known, model_name_or_path=run.model, output_dir="out")
        to["per_device_train_batch_size"] = run.left.get("batch_size", run.left.get("train_batch_size", 8))
        _say_hub(run, to)
        say_training(run, to)
        text = [record for record in run.keys if record["state"] == "text-number" and ending == "yaml"]
        if text:
            run.keys.remove(text[0])
            to.put("5e-5", text[0]["key"])
        run.finish("a file of arguments")
        if text:
            return {name: text.replace("'5e-5'", "5e-5") for name, text in document(to).items()}
        return document(to) if ending == "yaml" else {"train.json": json.dumps(to, indent=1)}

    return write


# --- LLaMA-Factory and ms-swift ---------------------------------------------------------------------------------------


def _llamafactory(run: Run) -> Arguments:
    known = run.known("llamafactory", "arguments") | run.known("transformers", "TrainingArguments")
    to = Arguments("LLaMA-Factory", known, model_name_or_path=run.model, dataset="mine", template="default")
    to.update(output_dir="out", do_train=True)
    to["stage"] = run.take("stage") or "sft"
    if to["stage"] == "grpo":
        raise CannotSay("LLaMA-Factory: recipe.stage is never grpo")
    method, kind = run.take("method"), run.take("quantization")
    if method in ("infer", "serve", "export", "ptuning"):
        raise CannotSay(f"llamafactory-cli train: recipe.method is never {method}")
    to["finetuning_type"] = "lora" if method in (None, "qlora") else method
    if method == "qlora" and kind is None:
        kind = "bnb-4bit"
    if kind is not None and kind.startswith("bnb"):
        to.put(4 if kind == "bnb-4bit" else 8, "quantization_bit")
    elif kind is not None:
        raise CannotSay(f"LLaMA-Factory quantises nothing to {kind} at load")
    if (attn := run.take("attn")) is not None:
        words = {"eager": "disabled", "sdpa": "sdpa", "flash_attention_2": "fa2", "flash_attention_3": "fa3"}
        if attn not in words or (attn == "flash_attention_3" and run.release("llamafactory") < "0.9.4"):
            raise CannotSay(f"flash_attn of LLaMA-Factory has no word for {attn}")
        to.put(words[attn], "flash_attn")
    if (on := run.take("gradient_checkpointing")) is not None:
        to.put(not on, "disable_gradient_checkpointing")
    if (optimizer := run.left.get("optimizer")) in ("galore", "apollo"):
        run.take("optimizer")
        to.put(True, f"use_{optimizer}")
    if run.left.get("kernels") == ["ktransformers"]:
        run.take("kernels")
        to.put(True, "use_kt")
    elif run.left.get("kernels") == ["unsloth"]:
        run.take("kernels")
        to.put(True, "use_unsloth")
    put(run, to, max_length="cutoff_len", streaming="streaming", packing="packing", reentrant="use_reentrant_gc")
    put(run, to, lora_r="lora_rank", lora_alpha="lora_alpha", lora_dropout="lora_dropout", dora="use_dora")
    put(run, to, trust_remote_code="trust_remote_code", device_map="device_map", load_dtype="torch_dtype")
    put(run, to, double_quantization="double_quantization", gpu_memory_utilization="vllm_gpu_util")
    targets(run, to, "lora_target", "additional_target", joined=True)
    if "neat_packing" in (record["key"] for record in run.keys):
        to["packing"] = True
    say_training(run, to)
    return to


def llamafactory_yaml(run: Run) -> dict[str, str]:
    """Write the YAML of ``llamafactory-cli train``."""
    to = _llamafactory(run)
    run.finish("a file of LLaMA-Factory")
    return document(to)


def llamafactory_command(run: Run) -> dict[str, str]:
    """Write ``llamafactory-cli train`` with its options."""
    processes = run.take("world_size")
    to = _llamafactory(run)
    run.finish("llamafactory-cli train")
    before = [f"FORCE_TORCHRUN=1 NPROC_PER_NODE={processes}"] if processes is not None else []
    return shell(*before, "llamafactory-cli train", *options(to))


def swift(run: Run) -> dict[str, str]:
    """Write ``swift sft``, ``swift pt`` or ``swift rlhf``."""
    known = run.known("ms-swift", "arguments") | run.known("transformers", "TrainingArguments")
    to = Arguments("swift", known, model=run.model, dataset="org/data")
    stage = run.take("stage") or "sft"
    command = [f"swift {stage}"] if stage in ("sft", "pt") else [f"swift rlhf --rlhf_type {stage}"]
    if (processes := run.take("world_size")) is not None:
        command.insert(0, f"NPROC_PER_NODE={processes}")
    method, kind = run.take("method"), run.take("quantization")
    if method not in (None, "full", "lora", "qlora"):
        raise CannotSay(f"swift sft: recipe.method is never {method}")
    to.put("full" if method == "full" else "lora", "tuner_type", "train_type")
    if method == "qlora" and kind is None:
        kind = "bnb-4bit"
    if kind is not None and kind.startswith("bnb"):
        to.put("bnb", "quant_method")
        to.put(4 if kind == "bnb-4bit" else 8, "quant_bits")
    elif kind is not None:
        raise CannotSay(f"swift quantises nothing to {kind} at load")
    if (attn := run.take("attn")) is not None:
        to.put({"flash_attention_2": "flash_attn"}.get(attn, attn), "attn_impl")
    for fact, name in (("load_dtype", "torch_dtype"), ("quantization_compute_dtype", "bnb_4bit_compute_dtype")):
        if (dtype := run.take(fact)) == "auto":
            raise CannotSay("torch_dtype of swift is never auto")
        elif dtype is not None:
            to.put(LONG[dtype], name)
    put(run, to, max_length="max_length", streaming="streaming", packing="packing", padding_free="padding_free")
    put(run, to, padding_side="padding_side", lora_r="lora_rank", lora_alpha="lora_alpha", dora="use_dora")
    put(run, to, lora_dropout="lora_dropout", lora_targets="target_modules", lora_modules_to_save="modules_to_save")
    put(run, to, trust_remote_code="trust_remote_code", device_map="device_map")
    put(run, to, gpu_memory_utilization="vllm_gpu_memory_utilization")
    if (sleep := run.take("sleep_mode")) is not None:
        to.put(1 if sleep else 0, "sleep_level")
    if (beside := run.take("colocate")) is not None:
        to.put(True, "use_vllm")
        to.put("colocate" if beside else "server", "vllm_mode")
    say_training(run, to)
    run.finish("swift")
    return shell(*command, *options(to))


# --- engines ----------------------------------------------------------------------------------------------------------


def serve_vllm(run: Run) -> dict[str, str]:
    """Write ``vllm serve``."""
    to = Arguments("vllm serve", run.known("vllm", "EngineArgs"))
    say_engine(run, to, VLLM, "vllm serve")
    return shell("vllm serve", run.model, *options(to, bare=True, dash=True))


def serve_sglang(run: Run) -> dict[str, str]:
    """Write the command that starts a server of SGLang."""
    to = Arguments("sglang.launch_server", run.known("sglang", "ServerArgs"), model_path=run.model)
    say_engine(run, to, SGLANG, "sglang.launch_server")
    return shell("python -m sglang.launch_server", *options(to, bare=True, dash=True))
