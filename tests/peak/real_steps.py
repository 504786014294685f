"""Real training steps of tiny models on a CPU, their peak by torch's profiler, and what the trace predicts for them.

A script for an interpreter with torch, transformers and peft: it prints one JSON line a case. The loop is written anew
here and the memory is counted by the profiler, so that the trace is compared with reality and not with itself.
"""

from __future__ import annotations

import copy
import json
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from traced_jobs import JOB

DENSE = {
    **{"model_type": "llama", "hidden_size": 256, "intermediate_size": 704, "num_hidden_layers": 5},
    **{"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 4000, "pad_token_id": 0},
}
MOE = {
    **{"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256},
    **{"decoder_sparse_step": 1, "num_hidden_layers": 6, "head_dim": 32},
}
GEMMA = {"model_type": "gemma3_text", "head_dim": 32, "sliding_window": 64, "num_hidden_layers": 14}
LORA = {"r": 8, "lora_alpha": 16, "lora_dropout": 0.0, "target_modules": ["q_proj", "v_proj"]}
UNTIED = {"tie_word_embeddings": False}
#: Changes of the configuration, and of the job; ``own``: the stage that is measured, where that of the job is like it.
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "dense": ({}, {}),
    "dense, eager attention": ({}, {"attention": "eager"}),
    "dense, checkpointing": ({}, {"checkpointing": True}),
    "dense, padded batch": ({}, {"batch": 4, "padded": True}),
    "accumulation": ({}, {"accumulation": 2}),
    "plain SGD": ({}, {"optimizer": "SGD"}),
    "Muon": ({}, {"optimizer": "Muon", "checkpointing": True}),
    "LoRA": ({}, {"lora": LORA}),
    "LoRA, checkpointing": ({}, {"lora": LORA, "checkpointing": True}),
    "LoRA of all layers with dropout": ({}, {"lora": {**LORA, "lora_dropout": 0.1, "target_modules": "all-linear"}}),
    "GLM, LoRA": ({"model_type": "glm", "head_dim": 32}, {"lora": LORA}),
    "mixture of experts": (MOE, {"load_dtype": "bfloat16"}),
    "mixture of experts, LoRA": (MOE, {"load_dtype": "bfloat16", "lora": LORA}),
    "sliding windows": (GEMMA, {}),
    "DPO, LoRA": ({}, {"stage": "dpo", "lora": LORA, "reference": "adapter-off"}),
    "DPO, a copy": ({}, {"stage": "dpo", "reference": "copy"}),
    "GRPO, LoRA": ({}, {"stage": "grpo", "lora": LORA, "reference": "adapter-off"}),
    "KTO, LoRA": ({}, {"own": "kto", "stage": "grpo", "lora": LORA, "reference": "adapter-off"}),
    "reward model": (UNTIED, {"own": "rm", "stage": "dpo"}),
    "reward model, LoRA": (UNTIED, {"own": "rm", "stage": "dpo", "lora": LORA, "checkpointing": True}),
    "GaLore": ({}, {"optimizer": "galore-8", "batch": 1}),
}
TOKENS = 192


def main() -> None:
    """Every case: name, measured and predicted bytes, the depths that were traced."""
    folder = sys.argv[1]
    package = ModuleType("envdoctor_payload")
    package.__path__ = [folder]
    sys.modules["envdoctor_payload"] = package
    run = import_module("envdoctor_payload.tracing.trace").run
    for name, (settings, changes) in CASES.items():
        config, job = {**DENSE, **settings}, {**JOB, "load_dtype": "float32", "batch": 2, **changes}
        records: list[dict[str, Any]] = []
        run({**job, "config": config, "tokens": [TOKENS]}, records.append)
        line = {"case": name, "measured": measured(config, job), "records": records, "config": config, "job": job}
        print(json.dumps(line), flush=True)


def measured(config: dict[str, Any], job: dict[str, Any]) -> int:
    """The most bytes that torch's CPU allocator had given out during the second step."""
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM, AutoModelForSequenceClassification

    rewards = job.get("own") == "rm"
    torch.manual_seed(0)
    data = {key: value for key, value in config.items() if key != "model_type"}
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        settings = CONFIG_MAPPING[config["model_type"]](**data, use_cache=False)
        dtype = getattr(torch, job["load_dtype"])
        settings.num_labels = 1
        made: Any = AutoModelForSequenceClassification if rewards else AutoModelForCausalLM
        model = made.from_config(settings, attn_implementation=job["attention"], dtype=dtype).train()
        reference = copy.deepcopy(model).requires_grad_(False) if job["reference"] == "copy" else None
        if job["lora"]:
            from peft import LoraConfig, get_peft_model

            kind = "SEQ_CLS" if rewards else "CAUSAL_LM"
            model = get_peft_model(model, LoraConfig(task_type=kind, **job["lora"]))
        if job["checkpointing"]:
            model.gradient_checkpointing_enable()
            model.enable_input_require_grads()
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        if job["optimizer"] == "Muon":
            matrices = [one for layer in model.model.layers for one in layer.parameters() if one.ndim == 2]
            others = [one for one in parameters if all(one is not matrix for matrix in matrices)]
            optimizers = [torch.optim.AdamW(others, foreach=True), torch.optim.Muon(matrices)]
        elif job["optimizer"].startswith("galore"):
            optimizers = [import_module("envdoctor_payload.tracing.step")._GaLore(model, 8)]
        else:
            optimizers = [getattr(torch.optim, job["optimizer"])(parameters, foreach=True)]
        loop(model, reference, optimizers, parameters, job)
        with record_function("the step"):
            loop(model, reference, optimizers, parameters, job)
    events = profiler.profiler.kineto_results.events()  # type: ignore[union-attr]
    step = next(event for event in events if event.name() == "the step")
    total = most = 0
    for event in sorted((e for e in events if e.name() == "[memory]"), key=lambda e: e.start_ns()):
        total += event.nbytes()
        if step.start_ns() <= event.start_ns() <= step.start_ns() + step.duration_ns():
            most = max(most, total)
    return most


def loop(model: Any, reference: Any, optimizers: list[Any], parameters: list[Any], job: dict[str, Any]) -> None:
    """What a trainer does between two steps of the optimizer."""
    for _ in range(job["accumulation"]):
        ids = torch.randint(1, 4000, ((2 if job["stage"] == "dpo" else 1) * job["batch"], TOKENS))
        mask = torch.ones_like(ids)
        mask[0, -1] = 0
        inputs = {"input_ids": ids, **({"attention_mask": mask} if job["padded"] else {})}
        if job["stage"] == "sft":
            told = model(**inputs, labels=ids).loss
        else:
            losses = {"dpo": preference, "grpo": policy, "kto": desirability, "rm": reward}
            told = losses[job.get("own", job["stage"])](model, reference, inputs)
        told.backward()
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    for optimizer in optimizers:
        optimizer.step()
    model.zero_grad()


def preference(model: Any, reference: Any, inputs: dict[str, Any]) -> Any:
    """The loss of DPO."""

    def scores(judge: Any) -> Any:
        probabilities = judge(**inputs).logits[:, :-1].float().log_softmax(-1)
        return probabilities.gather(2, inputs["input_ids"][:, 1:, None]).squeeze(2).sum(-1)

    with torch.no_grad():
        if reference is None:
            with model.disable_adapter():
                base = scores(model)
        else:
            base = scores(reference)
    chosen, rejected = (scores(model) - base).chunk(2)
    return -torch.nn.functional.logsigmoid(0.1 * (chosen - rejected)).mean()


def policy(model: Any, reference: Any, inputs: dict[str, Any]) -> Any:
    """The loss of GRPO, token by token, where the policy has not changed since it answered."""

    def scores(judge: Any) -> Any:
        logits = judge(**inputs).logits[:, :-1] / 1.0
        chosen = logits.gather(2, inputs["input_ids"][:, 1:, None]).squeeze(2)
        return chosen - torch.stack([row.logsumexp(-1) for row in logits])

    with torch.no_grad(), model.disable_adapter():
        base = scores(model)
    now = scores(model)
    apart = base - now
    return (0.04 * (apart.exp() - apart - 1) - (now - now.detach()).exp()).mean()


def desirability(model: Any, reference: Any, inputs: dict[str, Any]) -> Any:
    """The loss of KTO: other answers than the asked ones tell how far the policy is from the reference."""

    def scores(logits: Any) -> Any:
        chosen = logits[:, :-1].gather(2, inputs["input_ids"][:, 1:, None]).squeeze(2)
        return (chosen - torch.stack([row.logsumexp(-1) for row in logits[:, :-1]])).sum(-1)

    with torch.no_grad():
        with model.disable_adapter():
            logits, others = model(**inputs).logits, model(**inputs).logits
        base, far = scores(logits), scores(others)
        del logits, others
        far = (scores(model(**inputs).logits) - far).clamp(min=0)
    return 1 - torch.sigmoid(0.1 * (scores(model(**inputs).logits) - base - far)).mean()


def reward(model: Any, reference: Any, inputs: dict[str, Any]) -> Any:
    """The loss of a reward model: chosen answers are worth more than rejected ones."""
    chosen, rejected = model(**inputs).logits.squeeze(-1).chunk(2)
    return -torch.nn.functional.logsigmoid(chosen - rejected).mean()


if __name__ == "__main__":
    main()
