"""The facts of a recipe as the job of a trace, with what was taken for what was not given."""

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import ABSENT, Records, Unknown
from envdoctor.memory.section import MemoryProblem
from envdoctor.text.message import Message
from envdoctor.versions.pep440 import satisfies

#: How much less what depends on the batch may take with a trainer's own code.
LESS = 0.5
#: Stages that compare with a reference model.
_WITH_REFERENCE = ("dpo", "grpo")
_SERVING = ("vllm", "sglang", "lmdeploy")
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
#: Frameworks that compute in the dtype of the weights, without autocast.
_WITHOUT_AUTOCAST = ("openrlhf", "torchtune")
#: Frameworks that leave the rest of a 4-bit model in half precision (LLaMA-Factory: upcast_layernorm is off; Axolotl
#: casts it back for flash attention).
_WITHOUT_UPCAST = ("llamafactory", "ms-swift", "unsloth", "axolotl")
#: Frameworks that take eager attention in some releases and flash attention in others (the rule
#: openrlhf-takes-eager-attention-unless-asked has the sources).
_EAGER = ("openrlhf",)
#: What the names of optimizers mean to the trace; "paged" states can leave the GPU and are counted as being elsewhere.
_OPTIMIZERS = {
    "adamw": "AdamW",
    "adam": "AdamW",
    "adamw_torch": "AdamW",
    "adamw_hf": "AdamW",
    "adamw_torch_fused": "adamw_fused",
    "adamw_8bit": "adamw_8bit",
    "adamw_bnb_8bit": "adamw_8bit",
    "paged_adamw": "elsewhere",
    "paged_adamw_32bit": "elsewhere",
    "paged_adamw_8bit": "elsewhere",
    "paged_lion_32bit": "elsewhere",
    "paged_lion_8bit": "elsewhere",
    "lion_32bit": "lion",
    "lion_8bit": "lion_8bit",
    "adafactor": "adafactor",
    "sgd": "SGD",
    "adagrad": "Adagrad",
    "rmsprop": "RMSprop",
    "muon": "Muon",
}
#: What is in a recipe and not in a trace; each can only make the peak lower.
#: With the terms that may be gone with it.
_SAVERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "kernels": (Message("kernels that replace parts of the model"), ("logits and loss", "MLP")),
    "chunked_loss": (Message("the loss in chunks"), ("logits and loss",)),
    "activation_offload": (Message("activations that go to the CPU"), ("hidden states", "attention", "MLP")),
    "torch_compile": ("torch.compile", ("MLP",)),
}
#: Those that unsloth has by itself.
_UNSLOTH = ("kernels", "chunked_loss", "activation_offload")
#: Keys of recipes that divide samples or layers among the GPUs, and the values with which they do not.
_DIVIDED = r"(?:\A|\.)(?:sequence|context|tensor|pipeline|expert)(?:_model)?_parallel(?:_size|_degree)?\Z"
_WHOLE = ("1", "0", "-1", "None", "null", "False", "false", "")
#: The parts where the value is no number, and the most that are believed.
_MANY, _MOST_PARTS = 8, 1 << 20


class Plan(NamedTuple):
    """``job`` is what is traced (:mod:`envdoctor.payload.tracing.trace` says what its keys mean), without the
    configuration and the lengths. ``tokens`` is the longest sample, ``stated`` where somebody gave it. ``assumed`` are
    sentences about what nobody gave, ``savers`` names what the trace does not follow and can only lower the peak, by no
    more than the terms ``spared`` and to one of ``parts``. ``eager``: the attention may be eager, by the release."""

    job: Mapping[str, Any]
    tokens: int
    assumed: tuple[str, ...] = ()
    savers: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()
    eager: bool = False
    stated: bool = True
    parts: int = 1


def settings_of(facts: FactSet, hidden: int | None = None) -> dict[str, Any]:
    """What is known of the recipe, by the names of its facts without ``recipe.``; known to be absent is None. "auto"
    buckets of DeepSpeed are those that transformers computes from the ``hidden`` size."""
    given = {
        fact.key.removeprefix("recipe."): None if fact.value is ABSENT else fact.value
        for fact in facts.below("recipe.")
        if not isinstance(fact.value, (Unknown, Records))
    }
    if hidden and _keys(facts).get("reduce_bucket_size") == "auto":
        given.setdefault("reduce_bucket", hidden * hidden)  # transformers/integrations/deepspeed.py
    return given


def _keys(facts: FactSet) -> dict[str, str]:
    """What the recipe's files say by their own keys."""
    return {str(item["key"]): str(item["value"]) for item in facts.items("recipe_key")}


def engine_of(given: Mapping[str, Any]) -> str | None:
    """``alone`` where the recipe describes a serving engine, ``beside`` where it describes a training run too."""
    if given.get("framework") in _SERVING or given.get("method") == "serve":
        return "alone"
    # One file for all: it trains, and then serves what was trained.
    return "beside" if given.get("framework") == "weclone" and given.get("gpu_memory_utilization") else None


def plan_of(facts: FactSet, usual: int | None = None) -> Plan:
    """What to trace; ``usual`` is the length where nobody gave one. Raises :class:`MemoryProblem` where a number
    without more facts would be a guess."""
    given, keys = settings_of(facts), _keys(facts)
    assumed: list[str] = []
    method = _method(given, assumed)
    training = method != "infer"
    tokens = given.get("max_length") or (None if training else given.get("max_model_len"))
    stated = bool(tokens)
    if not tokens:
        tokens = usual
    if not tokens:
        raise MemoryProblem("the length is not known: give the longest sample in tokens, --set recipe.max_length=2048")
    stage = given.get("stage") or "sft"
    if training and stage == "ppo":
        raise MemoryProblem("the memory of PPO is not predicted: its value and reward models have sizes of their own")
    if training and stage not in ("sft", "pt", *_WITH_REFERENCE):
        raise MemoryProblem("the memory of the stage {} is not predicted yet, only of pt, sft, dpo and grpo", stage)
    if stage == "grpo" and given.get("colocate"):
        raise MemoryProblem("an engine that generates on the same GPU takes its share: this is not predicted yet")
    divided = {k: v for k, v in keys.items() if training and re.search(_DIVIDED, k) and v not in _WHOLE}
    batch = batch_of(facts, training)
    if not batch:
        batch = 1
        assumed.append(Message("the batch size was not given: 1 was taken"))
    load = _load_dtype(given, facts, assumed)
    attention = given.get("attn")
    flash = isinstance(attention, str) and attention.startswith("flash_attention")
    eager = "attn" not in given and given.get("framework") in _EAGER
    if "attn" not in given and not eager:
        assumed.append(Message("the attention was not given: the one that transformers takes by itself"))
    packed = bool(given.get("packing") or given.get("padding_free"))
    job = {
        "training": training,
        "load_dtype": load,
        "amp": _amp(given) if training else None,
        # The CPU's fused kernel keeps what flash attention keeps.
        "attention": "sdpa" if flash else attention,
        "quantized": _quantized(given, method),
        "lora": _lora(given) if method in ("lora", "qlora") else None,
        "checkpointing": bool(training and given.get("gradient_checkpointing")),
        "stage": stage if stage in _WITH_REFERENCE else "sft",
        "reference": _reference(given, keys, method, stage) if stage in _WITH_REFERENCE and training else "none",
        "batch": int(batch),
        "padded": (batch > 1 or stage in _WITH_REFERENCE) and not packed and not flash,
        "accumulation": int(given.get("gradient_accumulation") or 1),
        "keep_outputs": False,
        "optimizer": _optimizer(given, keys, assumed) if training else "elsewhere",
    }
    if stage == "grpo":
        assumed.append(
            Message("GRPO: the step that trains; the answers are generated, and rewarded, before it or elsewhere")
        )
        if job["reference"] != "none" and "beta" not in keys:
            assumed.append(
                Message(
                    "beta was not given: a reference model was taken, which is not there where it is 0: --set "
                    "recipe.reference_model=none"
                )
            )
    if training and "gradient_checkpointing" not in given:
        assumed.append(Message("gradient checkpointing was not given: it was taken to be off"))
    own = _UNSLOTH if given.get("framework") == "unsloth" else ()
    savers = [saver for name, saver in _SAVERS.items() if given.get(name) or name in own]
    spared = tuple(term for _, terms in savers for term in terms)
    told = [said for said, _ in savers]
    told += [Message("{}, which divides a sample or the model among GPUs", f"{k}={v}") for k, v in divided.items()]
    parts = math.prod(int(size) if re.fullmatch("[1-9][0-9]{0,3}", size) else _MANY for size in divided.values())
    return Plan(job, int(tokens), tuple(assumed), tuple(told), spared, eager, stated, min(parts, _MOST_PARTS))


def _method(given: Mapping[str, Any], assumed: list[str]) -> str:
    method = given.get("method")
    if method is None:
        method = "lora" if given.get("lora_r") else "full"
        assumed.append(Message("the method was not given: {} was taken", method))
    if method == "lora" and given.get("quantization") is not None:
        method = "qlora"
    if method in ("serve", "infer"):
        method = "infer"
    elif method not in ("full", "lora", "qlora"):
        assumed.append(Message("the method {} is taken to need what LoRA of rank 8 does", method))
        method = "lora"
    return str(method)


def batch_of(facts: FactSet, training: bool) -> int | None:
    """Samples a step: for training those of training, unless somebody gave the batch size alone (``--set``)."""
    names = ("recipe.train_batch_size", "recipe.batch_size")[0 if training else 1 :]
    known = [(f.source != "given", f.value) for f in map(facts.get, names) if isinstance(f.value, (int, float))]
    return int(min(known, key=lambda one: one[0])[1]) or None if known else None


def _load_dtype(given: Mapping[str, Any], facts: FactSet, assumed: list[str]) -> str:
    """The dtype of the weights in memory; for a config without one float32, as transformers takes it."""
    own, load = facts.text("model.dtype"), given.get("load_dtype")
    if own is None and load is None and facts.text("model.repo") is not None and facts.text("model.path") is None:
        assumed.append(Message("the dtype of the weights is not known by the model's name: bfloat16 was taken"))
        return "bfloat16"
    own = own if own is not None and own in _DTYPES.values() else "float32"
    if load in _DTYPES:
        return _DTYPES[str(load)]
    if load is None and "load_dtype" in given:
        version = facts.text("pkg.transformers")
        if version is not None and satisfies(version, "<5.dev0"):
            return "float32"  # from_pretrained without torch_dtype, before transformers 5
    elif load is None:
        assumed.append(Message("the dtype of the weights was not given: {} was taken, as in config.json", own))
    return own


def _amp(given: Mapping[str, Any]) -> str | None:
    """The autocast of accelerate; DeepSpeed converts the model instead."""
    plain = given.get("framework") in _WITHOUT_AUTOCAST or given.get("zero_stage") is not None
    dtype = given.get("dtype")
    return None if plain or dtype not in ("bf16", "fp16") else _DTYPES[str(dtype)]


def _quantized(given: Mapping[str, Any], method: str) -> dict[str, Any] | None:
    quantization = given.get("quantization")
    if method == "qlora" and quantization in (None, "bnb-4bit", "torchao-4bit"):
        upcast = given.get("framework") not in _WITHOUT_UPCAST
        return {"double": bool(given.get("double_quantization")), "upcast": upcast}
    return None


def _lora(given: Mapping[str, Any]) -> dict[str, Any]:
    targets = given.get("lora_targets")
    return {
        "r": int(given.get("lora_r") or 8),
        "lora_alpha": given.get("lora_alpha"),
        "lora_dropout": given.get("lora_dropout"),
        "target_modules": "all-linear" if targets == ("all-linear",) else list(targets) if targets else None,
        "modules_to_save": list(given["lora_modules_to_save"]) if given.get("lora_modules_to_save") else None,
        "use_dora": True if given.get("dora") else None,
    }


def _reference(given: Mapping[str, Any], keys: Mapping[str, str], method: str, stage: str) -> str:
    if stage == "grpo" and re.fullmatch(r"0*(?:\.0*)?", keys.get("beta", "-")):
        return "none"  # trl/trainer/grpo_trainer.py: no reference model is loaded
    usual = "copy" if method == "full" else "adapter-off"
    return str(given.get("reference_model") or usual)


def _optimizer(given: Mapping[str, Any], keys: Mapping[str, str], assumed: list[str]) -> str:
    if given.get("offload_optimizer"):
        return "elsewhere"
    name = given.get("optimizer")
    if name is None:
        assumed.append(Message("the optimizer was not given: AdamW was taken"))
        return "AdamW"
    if str(name).lower() in ("galore", "galore_adamw"):
        text = f"{keys.get('optim_args', '')} rank={keys.get('galore_rank', '')}"
        stated = re.search(r"\brank\s*=\s*(\d{1,6})", text)
        usual = 16 if given.get("framework") == "llamafactory" else 128  # their galore_rank, transformers' default
        rank = int(stated[1]) if stated else usual
        assumed.append(Message("GaLore projects all matrices of the layers to rank {}", rank))
        return f"galore-{rank}"
    known = _OPTIMIZERS.get(str(name).lower())
    if known is None:
        raise MemoryProblem("the memory of the optimizer {} is not known", name)
    return known
