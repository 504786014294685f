"""Runs of frameworks with words of their own: axolotl, torchtune, OpenRLHF and verl."""

from collections.abc import Mapping
from typing import Any

from saying import Arguments, CannotSay, Run, say_training
from writing import LONG, document, options, put, shell

# --- axolotl and torchtune --------------------------------------------------------------------------------------------


def axolotl(run: Run) -> dict[str, str]:
    """Write a YAML of axolotl."""
    groups = ("config", "liger", "cut-cross-entropy")
    to = Arguments("axolotl", run.known("axolotl", *groups), base_model=run.model)
    to["datasets"] = [{"path": "org/data", "type": "alpaca"}]
    stage, method, kind = run.take("stage"), run.take("method"), run.take("quantization")
    if stage not in (None, "sft"):
        if stage not in ("dpo", "kto", "grpo"):
            raise CannotSay(f"rl of axolotl is never {stage}")
        to["rl"] = stage
    if method in ("lora", "qlora"):
        to["adapter"] = "lora" if kind == "gptq" else method
        to["lora_r"], to["lora_alpha"] = run.take("lora_r") or 16, run.take("lora_alpha") or 32
        if "lora_targets" not in run.left:
            to["lora_target_linear"] = True
    elif method not in (None, "full"):
        raise CannotSay(f"axolotl: recipe.method is never {method}")
    if kind == "gptq":
        to["gptq"] = True
    elif kind is not None or method == "qlora":
        to.put(
            True, {"bnb-4bit": "load_in_4bit", "bnb-8bit": "load_in_8bit", None: "load_in_4bit"}.get(kind, str(kind))
        )
    put(run, to, batch_size="micro_batch_size", train_batch_size="micro_batch_size", eval_batch_size="eval_batch_size")
    put(run, to, attn="attn_implementation", max_length="sequence_len", packing="sample_packing")
    put(run, to, padding_free="batch_flattening", optimizer="optimizer", load_dtype="torch_dtype", padding_side="-")
    put(run, to, lora_targets="lora_target_modules", lora_modules_to_save="lora_modules_to_save", dora="peft_use_dora")
    put(run, to, trust_remote_code="trust_remote_code", device_map="device_map", streaming="streaming")
    put(run, to, dataloader_workers="dataloader_num_workers", activation_offload="activation_offloading")
    if run.take("fsdp") or "fsdp_version" in run.left:
        version = run.take("fsdp_version")
        to["fsdp_config"] = {
            "offload_params": run.take("offload_param") == "cpu",
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        }
        if version is not None:
            to["fsdp_version"] = version
    kernels, plugins = run.take("kernels"), []
    if kernels in ("liger", ["liger"]):
        plugins, to["liger_rope"] = ["axolotl.integrations.liger.LigerPlugin"], True
    elif kernels == ["cut-cross-entropy"]:
        plugins = ["axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin"]
        to["cut_cross_entropy"] = True
    elif kernels is not None:
        raise CannotSay(f"axolotl has no plugin for {kernels}")
    if plugins:
        to["plugins"] = plugins
    beside = run.take("colocate")
    if beside is not None:
        to["trl"] = {"use_vllm": True, "vllm_mode": "colocate" if beside else "server"}
    if (sleep := run.take("sleep_mode")) is not None:
        to.setdefault("trl", {})["vllm_enable_sleep_mode"] = sleep
    if (share := run.take("gpu_memory_utilization")) is not None:
        to["vllm"] = {"gpu_memory_utilization": share}
    say_training(run, to)
    run.finish("axolotl")
    return document(to)


#: Builders of the wheel by families and types of models; others torchtune does not run.
_TUNED = {
    "": "llama3_1.{}llama3_1_8b",
    "llama": "llama3_1.{}llama3_1_8b",
    "llama3.1": "llama3_1.{}llama3_1_8b",
    "mistral": "mistral.{}mistral_7b",
    "qwen2": "qwen2_5.{}qwen2_5_7b_base",
    "gemma2": "gemma2.{}gemma2_9b",
    "phi3": "phi3.{}phi3_mini",
}


def torchtune(run: Run) -> dict[str, str]:
    """Write a YAML of torchtune, for a model that it builds."""
    if run.family not in _TUNED:
        raise CannotSay(f"torchtune has no builder for {run.family}")
    stage, method = run.take("stage") or "sft", run.take("method") or "lora"
    kind = run.take("quantization")
    if stage not in ("sft", "dpo") or method not in ("lora", "full", "qlora"):
        raise CannotSay(f"torchtune has no recipe for {stage} with {method}")
    if kind is not None:
        raise CannotSay("torchtune quantises with torchao, not to " + kind)
    group = f"{'qlora' if method == 'qlora' else method}-{stage}"
    if group == "qlora-dpo":
        raise CannotSay("torchtune has no recipe for dpo with qlora")
    known = run.known("torchtune", group) | {"tokenizer.max_seq_len", "dataset.packed", "model.lora_attn_modules"}
    to = Arguments("torchtune", known)
    dtype = run.take("dtype")
    if dtype not in (None, "bf16", "fp32"):
        raise CannotSay(f"recipes of torchtune refuse {dtype}")
    if dtype is not None:
        to["dtype"] = dtype
    put(run, to, batch_size="batch_size", train_batch_size="batch_size", torch_compile="compile")
    put(run, to, gradient_accumulation="gradient_accumulation_steps", resume="resume_from_checkpoint")
    put(run, to, gradient_checkpointing="enable_activation_checkpointing", packing="dataset.packed")
    put(run, to, activation_offload="enable_activation_offloading", max_length="tokenizer.max_seq_len")
    put(run, to, lora_targets="model.lora_attn_modules", lora_r="model.lora_rank", lora_alpha="model.lora_alpha")
    optimizer = run.take("optimizer")
    named = {None: "torch.optim.AdamW", "paged_adamw_32bit": "bitsandbytes.optim.PagedAdamW"}
    named |= {"adamw_8bit": "bitsandbytes.optim.AdamW8bit", "adamw_bnb_8bit": "bitsandbytes.optim.AdamW8bit"}
    if optimizer not in named:
        raise CannotSay(f"torchtune: no optimizer {optimizer}")
    if set(run.left.get("arguments") or ()) <= {"x"}:
        run.left.pop("arguments", None)
    run.finish("torchtune")
    before = "" if method == "full" else f"{method}_"
    whole: dict[str, Any] = {
        "output_dir": "out",
        "model": {"_component_": f"torchtune.models.{_TUNED[run.family].format(before)}"},
        "tokenizer": {"_component_": "torchtune.models.llama3.llama3_tokenizer", "path": "m/tokenizer.model"},
        "checkpointer": {"_component_": "torchtune.training.FullModelHFCheckpointer", "checkpoint_dir": run.model},
        "dataset": {"_component_": "torchtune.datasets.alpaca_cleaned_dataset"},
        "optimizer": {"_component_": named[optimizer], "lr": 3e-4},
        "loss": {"_component_": "torchtune.rlhf.loss.DPOLoss"}
        if stage == "dpo"
        else {"_component_": "torchtune.modules.loss.CEWithChunkedOutputLoss"},
        "epochs": 1,
        "device": "cuda",
    }
    if method != "full":
        whole["model"] |= {"lora_attn_modules": ["q_proj", "v_proj"], "lora_rank": 8, "lora_alpha": 16}
    for name, value in to.items():
        head, _, tail = name.partition(".")
        if tail:
            whole[head][tail] = value
        else:
            whole[head] = value
    return document(whole)


# --- OpenRLHF and verl ------------------------------------------------------------------------------------------------

_DIALECTS = {
    "flat": "0.3.8",
    "flash-attn": "0.8.9",
    "attn-implementation": "0.9.1",
    "param-dtype": "0.10.1",
    "dotted": "0.11.2",
}
#: Options of OpenRLHF by what they say: before and after they were grouped.
_OPENRLHF: dict[str, tuple[str, ...]] = {
    "batch_size": ("micro_train_batch_size", "train.micro_batch_size"),
    "train_batch_size": ("micro_train_batch_size", "train.micro_batch_size"),
    "max_length": ("max_len", "data.max_len"),
    "zero_stage": ("zero_stage", "ds.zero_stage"),
    "gradient_checkpointing": (
        "gradient_checkpointing",
        "model.gradient_checkpointing_enable",
        "actor.gradient_checkpointing_enable",
    ),
    "reentrant": (
        "gradient_checkpointing_use_reentrant",
        "model.gradient_checkpointing_reentrant",
        "actor.gradient_checkpointing_reentrant",
    ),
    "lora_r": ("lora_rank", "ds.lora.rank"),
    "lora_alpha": ("lora_alpha", "ds.lora.alpha"),
    "lora_dropout": ("lora_dropout", "ds.lora.dropout"),
    "lora_targets": ("target_modules", "ds.lora.target_modules"),
    "packing": ("packing_samples", "ds.packing_samples"),
    "overlap_comm": ("overlap_comm", "ds.overlap_comm"),
    "resume": ("load_checkpoint", "ckpt.load_enable"),
    "dataloader_workers": ("dataloader_num_workers", "data.dataloader_num_workers"),
    "gpu_memory_utilization": ("vllm_gpu_memory_utilization", "vllm.gpu_memory_utilization"),
    "sleep_mode": ("vllm_enable_sleep", "vllm.enable_sleep"),
    "colocate": ("colocate_all_models", "train.colocate_all"),
}
_GRPO = {"algo.advantage.estimator", "advantage_estimator"}


def openrlhf_attention(facts: Mapping[str, Any]) -> str:
    """Return the attention that OpenRLHF takes where nobody asks for one."""
    run = Run(facts)
    return "eager" if "flash_attn" in run.known("openrlhf", "train_sft") else "flash_attention_2"


def openrlhf(run: Run) -> dict[str, str]:
    """Write the command of OpenRLHF, in the options of the release that is installed or whose dialect is asked for."""
    dialect = run.left.get("dialect")
    if dialect is not None:
        run.packages = {**run.packages, "openrlhf": _DIALECTS[dialect]}
    stage = run.take("stage") or "sft"
    group = {"ppo": "train_ppo_ray", "grpo": "train_ppo_ray"}.get(stage, f"train_{stage}")
    if group not in ("train_sft", "train_dpo", "train_ppo_ray"):
        raise CannotSay(f"OpenRLHF: no command for {stage} was read")
    known = run.known("openrlhf", group)
    to = Arguments(f"openrlhf.cli.{group}", known)
    to.put(run.model, "pretrain", "model.model_name_or_path", "actor.model_name_or_path")
    to.put("org/data", "dataset", "data.dataset", "prompt_data", "data.prompt_dataset")
    if stage == "grpo":
        to.put("group_norm", *_GRPO)
    method, kind = run.take("method"), run.take("quantization")
    if method not in (None, "full", "lora", "qlora"):
        raise CannotSay(f"OpenRLHF: recipe.method is never {method}")
    if method in ("lora", "qlora") and "lora_r" not in run.left:
        run.left["lora_r"] = 8
    if kind == "bnb-4bit" or (method == "qlora" and kind is None):
        to.put(True, "load_in_4bit", "ds.load_in_4bit")
    elif kind is not None:
        raise CannotSay(f"OpenRLHF quantises nothing to {kind} at load")
    attn, dtype = run.take("attn"), run.take("dtype")
    if "flash_attn" in known:
        if attn == "flash_attention_2" or dialect == "flash-attn":
            to["flash_attn"] = True
        elif attn not in (None, "eager"):
            raise CannotSay(f"OpenRLHF {run.release('openrlhf')} has no argument for {attn}")
    elif attn is not None:
        to.put(attn, "attn_implementation", "ds.attn_implementation")
    elif dialect == "attn-implementation":
        to["attn_implementation"] = "flash_attention_2"
    if (dtype == "bf16" and "bf16" in known) or "bf16" in run.left.get("arguments", ()):
        to.put(True, "bf16")
    elif dtype is not None or dialect == "param-dtype":
        if dtype not in (None, "bf16", "fp16"):
            raise CannotSay(f"param_dtype of OpenRLHF is never {dtype}")
        to.put(dtype or "bf16", "param_dtype", "ds.param_dtype")
    if run.left.get("kernels") in ("liger", ["liger"]):
        run.take("kernels")
        to.put(True, "use_liger_kernel", "ds.use_liger_kernel")
    for fact, names in _OPENRLHF.items():
        value = run.take(fact)
        if value is not None and value is not False:
            to.put(value, *names)
    if run.take("offload_optimizer") == "cpu":
        to.put(True, "adam_offload", "ds.adam_offload")
    processes, share = run.take("world_size"), run.take("gradient_accumulation")
    if share is not None:
        processes = processes or 1
        size = to.get("micro_train_batch_size", to.get("train.micro_batch_size", 1))
        to.put(size, "micro_train_batch_size", "train.micro_batch_size")
        to.put(share * size * processes, "train_batch_size", "train.batch_size")
    if set(run.left.get("arguments") or ()) <= {"x", *to}:
        run.left.pop("arguments", None)
    run.finish("OpenRLHF")
    words = options(to, bare=True)
    if group == "train_ppo_ray":
        if processes is not None:
            words += [
                "--actor.num_gpus_per_node" if "actor.num_gpus_per_node" in known else "--actor_num_gpus_per_node",
                str(processes),
            ]
        return shell("python -m openrlhf.cli.train_ppo_ray", *words)
    start = "deepspeed" + (f" --num_gpus {processes}" if processes is not None else "")
    return shell(f"{start} --module openrlhf.cli.{group}", *words)


def verl(run: Run) -> dict[str, str]:
    """Write a command of verl: main_ppo for PPO and GRPO, the SFT trainer otherwise."""
    stage, method = run.take("stage") or "grpo", run.take("method")
    if stage not in ("ppo", "grpo", "sft") or method not in (None, "full", "lora"):
        raise CannotSay(f"verl has no trainer for {stage} with {method}")
    rl = stage != "sft"
    group, model = ("main_ppo", "actor_rollout_ref.model.") if rl else ("sft_trainer", "model.")
    engine, actor = (
        ("actor_rollout_ref.actor.fsdp_config.", "actor_rollout_ref.actor.") if rl else ("engine.", "optim.")
    )
    to = Arguments("verl", run.known("verl", group), **{"data.train_files": "a.parquet"})
    to.put(run.model, f"{model}path")
    if rl:
        to.put("gae" if stage == "ppo" else "grpo", "algorithm.adv_estimator")
        to.put("vllm", "actor_rollout_ref.rollout.name")
    if method == "lora":
        to.put(run.take("lora_r") or 8, f"{model}lora_rank")
    size = ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu",) if rl else ("data.micro_batch_size_per_gpu",)
    put(run, to, batch_size=size, train_batch_size=size, world_size="trainer.n_gpus_per_node")
    put(run, to, gradient_checkpointing=f"{model}enable_gradient_checkpointing", lora_alpha=f"{model}lora_alpha")
    put(run, to, trust_remote_code=f"{model}trust_remote_code", lora_targets=f"{model}target_modules")
    put(run, to, activation_offload=f"{model}enable_activation_offload", torch_compile=f"{engine}use_torch_compile")
    put(run, to, gpu_memory_utilization="actor_rollout_ref.rollout.gpu_memory_utilization")
    put(run, to, sleep_mode="actor_rollout_ref.rollout.free_cache_engine", padding_free=f"{model}use_remove_padding")
    put(run, to, dataloader_workers=("data.dataloader_num_workers", "data.num_workers"))
    if run.left.get("kernels") in ("liger", ["liger"]):
        run.take("kernels")
        to.put(True, f"{model}use_liger")
    extra: dict[str, Any] = {}
    if (attn := run.take("attn")) is not None:
        to.put("{}", f"{model}override_config")
        del to[f"{model}override_config"]
        extra[f"+{model}override_config.attn_implementation"] = attn
    if (dtype := run.take("dtype")) is not None:
        if dtype not in ("bf16", "fp16"):
            raise CannotSay(f"the engine of verl computes in no {dtype}")
        to.put(LONG[dtype], f"{engine}dtype")
    if (dtype := run.take("load_dtype")) is not None:
        to.put(dtype, f"{engine}model_dtype")
    if run.take("fsdp") or "fsdp_version" in run.left:
        strategy = "fsdp2" if run.take("fsdp_version") == 2 else "fsdp"
        to.put(strategy, f"{actor}strategy" if rl else f"{engine}strategy")
    if run.take("offload_param") == "cpu":
        raise CannotSay("the engine of verl offloads parameters together with the optimizer")
    if (length := run.take("max_length")) is not None and rl:
        to.put(512, "data.max_prompt_length")
        to.put(length - 512, "data.max_response_length")
    elif length is not None:
        to.put(length, "data.max_length")
    if rl and run.left.get("colocate") is True:
        run.take("colocate")
    if run.take("resume"):
        to.put("resume_path", "trainer.resume_mode")
        to.put("out/global_step_100", "trainer.resume_from_path")
    if set(run.left.get("arguments") or ()) <= {"x"}:
        run.left.pop("arguments", None)
    run.finish("verl")
    words = [f"{name}={value}".replace(" ", "") for name, value in {**to, **extra}.items()]
    start = "python3 -m verl.trainer.main_ppo" if rl else "torchrun --nproc_per_node=1 -m verl.trainer.sft_trainer"
    return shell(start, *words)
