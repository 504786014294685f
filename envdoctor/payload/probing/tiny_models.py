"""Small causal language models with random weights, built from the installed transformers' classes or in plain torch,
batches of unequal samples for them, and settings for tiny runs of a Trainer that leave nothing behind.

Nothing is downloaded. The sizes are small, the shapes that choose kernels are not: real head size where the user's own
config is shrunk, real attention and masking code. ``chatglm-like`` is written in plain torch after the published
behaviour of ChatGLM's remote code, for machines without transformers.
"""

from __future__ import annotations

import gc
import json
import math
import os
from collections.abc import Callable, Sequence
from functools import wraps
from types import SimpleNamespace
from typing import Any

import torch

from .kit import IGNORED, Emit, Job, Unavailable, relative, reported

#: Bytes of a config.json that are read.
_LARGEST = 1 << 20
#: Every logit of attention moves by about this much under the gain "bias", as trained q and k biases do.
SHIFT = 200.0
VOCABULARY = 97
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
#: At most so many or so large in a user's config that is shrunk, by the names of its settings: experts, those chosen
#: for a token, groups of experts, layers before the first with experts, widths and ranks.
MOST = {
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "top_k_experts"), 2),
    **dict.fromkeys(("n_group", "topk_group", "n_shared_experts", "first_k_dense_replace", "decoder_sparse_step"), 1),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size", "q_lora_rank", "kv_lora_rank"), 32),
}
#: name -> (model_type of transformers, settings beside SIZES).
_MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "glm": ("glm", {"head_dim": 16, "partial_rotary_factor": 0.5, "attention_bias": True}),
    "glm4": ("glm4", {"head_dim": 16, "partial_rotary_factor": 0.5, "attention_bias": True}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 16}),
    "llama": ("llama", {}),
    "mistral": ("mistral", {"head_dim": 16, "sliding_window": 16}),
    "gemma2": ("gemma2", {"head_dim": 16, "sliding_window": 16, "query_pre_attn_scalar": 16}),
    "gemma3": ("gemma3_text", {"head_dim": 16, "sliding_window": 16, "query_pre_attn_scalar": 16}),
    "phi3": ("phi3", {}),
    "mixtral": ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "gpt2": ("gpt2", {"n_inner": 96}),
}
#: The same with positions that are scaled, below the length that they were made for.
_POSITIONS: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 64},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 256},
}
for _name, _values in _POSITIONS.items():
    _MODELS[f"llama {_name}"] = ("llama", {"rope_scaling": {"rope_type": _name, "rope_theta": 10000.0, **_values}})
#: Short ones for the CPU; the long ones pad to 192, and 192 % 128 = 64 is where some kernels err.
LENGTHS = {"short": (24, 17, 9, 33), "long": (192, 97, 64, 130)}
#: All whose positions are relative: with learned ones, padding on the left changes what is computed.
NAMES = ("chatglm-like", *(name for name in _MODELS if name != "gpt2" and " " not in name))


class NoAttention(Unavailable):
    """The model can be built, but its class has not this implementation of attention."""


def chosen(folder: str | None, usual: Sequence[str]) -> list[str]:
    """Return the models to try: "own" if a folder is given, and the usual ones if it cannot be built."""
    if not folder:
        return list(usual)
    try:
        _own(folder)
    except (Unavailable, ImportError, ValueError, KeyError, TypeError, AttributeError):
        return ["own", *usual]
    return ["own"]


def each_chosen(job: Job, emit: Emit, usual: str, work: Callable[[str, str], None], **common: Any) -> None:
    """Do the work for each model to try, by its name and by what a result calls it. One that cannot be built is
    skipped; what fails in one leaves the others theirs to tell, and its observation has what is ``common`` to all."""
    for name in chosen(job["model"], job["options"].get("models") or [usual]):
        called = label(name, job["model"])
        case = {**common, "case": called, "params": {"model": called}}
        with reported(emit, job["device"], case, {"case": called}):
            work(name, called)


def label(name: str, folder: str | None) -> str:
    """Return what a result calls the model: "own glm" for one of the user's."""
    if name != "own":
        return name
    try:
        return f"own {config_of(folder)['model_type']}"[:60]
    except (Unavailable, KeyError):
        return name


def build(name: str, attention: str, folder: str | None = None, *, tied: bool | None = None) -> Any:
    """Return a model in float32 on the CPU with seeded random weights, in training mode without dropout.

    ``attention`` is eager, sdpa or flash_attention_2. ``folder`` holds the config.json that ``name`` "own" shrinks.
    ``tied`` is whether the output layer has the weights of the embedding (None: as the config has it).
    The model is called with input_ids, attention_mask, position_ids and labels, and gives ``.loss`` and ``.logits``.
    Raises :class:`Unavailable`, and :class:`NoAttention` when another ``attention`` may do.
    """
    torch.manual_seed(0)
    if name == "chatglm-like":
        if attention not in ("sdpa", "eager"):
            raise Unavailable("chatglm-like has eager and sdpa attention only")
        return ChatGLMLike(attention).train()
    try:
        import transformers
    except ImportError as error:
        raise Unavailable("transformers is not installed") from error
    try:
        config = _own(folder) if name == "own" else _shipped(name, transformers)
        if tied is not None:
            config.tie_word_embeddings = tied
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    except Unavailable:
        raise
    except (ValueError, KeyError, ImportError, AttributeError, TypeError) as error:
        kind = NoAttention if "does not support an attention implementation" in str(error) else Unavailable
        raise kind(f"{name} with {attention} attention: {_one_line(error)}") from error
    return model.float().train()


def _shipped(name: str, transformers: Any) -> Any:
    model_type, settings = _MODELS[name]
    try:
        config = transformers.AutoConfig.for_model(model_type, **{**SIZES, "max_position_embeddings": 1024, **settings})
    except (KeyError, ValueError) as error:
        raise Unavailable(f"this transformers knows no {model_type}") from error
    return _quiet(config)


def _own(folder: str | None) -> Any:
    """Return the user's own config with two layers and few heads of real size; its code must be transformers' own."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    values = config_of(folder)
    model_type = values.get("model_type")
    if not isinstance(model_type, str):
        raise Unavailable("config.json names no model_type")
    if model_type not in CONFIG_MAPPING_NAMES:
        place = "in its repository, which is not run" if values.get("auto_map") else "not in this transformers"
        raise Unavailable(f"the code of {model_type} is {place}")
    if isinstance(values.get("text_config"), dict):
        values = {**values["text_config"]}
        model_type = values.get("model_type", model_type)
    left_out = ("model_type", "architectures", "auto_map", "quantization_config", "layer_types", "torch_dtype", "dtype")
    settings = {key: value for key, value in values.items() if not key.startswith("_") and key not in left_out}
    try:
        whole = transformers.AutoConfig.for_model(model_type, **settings)  # has what config.json leaves out
        heads = int(whole.num_attention_heads)
        groups = max(1, heads // int(getattr(whole, "num_key_value_heads", None) or heads))
        size = int(getattr(whole, "head_dim", None) or whole.hidden_size // heads)
    except Exception as error:  # the classes check what they are given, each in its own way
        raise Unavailable(f"config.json of {model_type}: {_one_line(error)}") from error
    if not 1 <= size <= 512:
        raise Unavailable(f"config.json of {model_type}: heads of {size} elements")
    few = min(heads, 4)
    shared = heads // groups  # heads of keys; two at least, where there are several: else nothing tells them apart
    shrunk = {
        **SIZES,
        "hidden_size": few * size,
        "num_attention_heads": few,
        "num_key_value_heads": min(few, shared, max(2, few // groups)),
    }
    if "head_dim" in vars(whole):  # else it is made of the others
        shrunk["head_dim"] = size
    for key, most in MOST.items():
        value = getattr(whole, key, None)
        if isinstance(value, int) and not isinstance(value, bool) and value > most:
            shrunk[key] = most
    return _quiet(transformers.AutoConfig.for_model(model_type, **{**settings, **shrunk}))


def _one_line(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def config_of(folder: str | None) -> dict[str, Any]:
    """Return the user's config.json. Raises :class:`Unavailable`."""
    if not folder:
        raise Unavailable("no model was given")
    try:
        with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
            values: Any = json.loads(file.read(_LARGEST))
    except OSError as error:
        raise Unavailable(f"config.json cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise Unavailable(f"config.json is not JSON: {error}"[:300]) from error
    if not isinstance(values, dict):
        raise Unavailable("config.json is no object")
    return values


def _quiet(config: Any) -> Any:
    """Switch dropout off: two runs must be the same."""
    for name in ("attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop", "residual_dropout"):
        if getattr(config, name, None):
            setattr(config, name, 0.0)
    config.use_cache = False
    return config


def stress(model: Any, gain: float | str) -> bool:
    """Change the weights so that attention works hard: q and k projections times a number, or "bias" (see SHIFT).

    False when the model has no place for it.
    """
    if isinstance(model, ChatGLMLike):
        model.stress(gain)
        return True
    changed = False
    for module in model.modules():
        if not (hasattr(module, "q_proj") and hasattr(module, "k_proj")):
            continue
        projections: list[Any] = [module.q_proj, module.k_proj]
        size = int(module.head_dim)
        for sign, projection in zip((1.0, -1.0), projections):
            with torch.no_grad():
                if gain != "bias":
                    projection.weight.mul_(float(gain))
                    changed = True
                elif projection.bias is not None:
                    # The last channel belongs to the slowest rotation (or to none), so that positions hardly touch it.
                    projection.bias.view(-1, size)[:, -1] += sign * math.sqrt(SHIFT * math.sqrt(size))
                    changed = True
    return changed or gain == 1


def unlike(model: Any) -> Any:
    """Return the model with no weight as a new one has it (norms of 1, biases of 0): what is lost shows."""
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
                parameter.add_(0.2 * noise.to(parameter.device))
    return model


def samples(lengths: tuple[int, ...], seed: int = 7) -> list[tuple[Any, Any]]:
    """Return (tokens, labels) of each sample: tokens in 3 … 96, the first third of the labels ignored."""
    generator = torch.Generator().manual_seed(seed)
    pairs = []
    for length in lengths:
        tokens = torch.randint(3, 97, (length,), generator=generator)
        labels = tokens.clone()
        labels[: length // 3] = IGNORED
        pairs.append((tokens, labels))
    return pairs


def counted(labels: Any) -> int:
    """Return how many labels count after the shift by one."""
    return int((labels[..., 1:] != IGNORED).sum())


def one_by_one(pairs: list[tuple[Any, Any]]) -> list[tuple[dict[str, Any], float]]:
    """Return each sample alone and unpadded, with its weight in the mean over all label tokens."""
    total = sum(counted(labels) for _, labels in pairs)
    return [
        (
            {"input_ids": tokens[None], "attention_mask": torch.ones_like(tokens)[None], "labels": labels[None]},
            counted(labels) / total,
        )
        for tokens, labels in pairs
        if counted(labels)
    ]


def padded(pairs: list[tuple[Any, Any]], side: str, position_ids: bool = False, empty: bool = False) -> dict[str, Any]:
    """Return one batch, padded on the left or right to the longest. ``empty`` adds a sample of padding."""
    longest = max(len(tokens) for tokens, _ in pairs)
    pairs = [*pairs, *([(tokens[:0], labels[:0]) for tokens, labels in pairs[:1]] if empty else [])]
    rows, masks, targets = [], [], []
    for tokens, labels in pairs:
        room = longest - len(tokens)
        ends = (room, 0) if side == "left" else (0, room)
        rows.append(torch.nn.functional.pad(tokens, ends, value=0))
        masks.append(torch.nn.functional.pad(torch.ones_like(tokens), ends, value=0))
        targets.append(torch.nn.functional.pad(labels, ends, value=IGNORED))
    batch = {"input_ids": torch.stack(rows), "attention_mask": torch.stack(masks), "labels": torch.stack(targets)}
    if position_ids:
        batch["position_ids"] = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)
    return batch


def moved(batch: dict[str, Any], model: Any) -> dict[str, Any]:
    """Return the batch on the device of the model."""
    device = next(model.parameters()).device
    return {key: value.to(device) for key, value in batch.items()}


def step_error(change: Any, exact: Any, words: str) -> dict[str, Any]:
    """Return ``relative`` and ``detail`` of an observation on the change of all parameters, against the right one."""
    off, times = relative(change, exact), float(change.norm() / exact.norm())
    return {"relative": off, "detail": f"{words}: a change {times:.3g} times as long, off by {off:.2g} of it"}


def drop_attention(model: Any) -> None:
    """Let half of attention's weights be dropped in training, where the model computes them itself (eager)."""
    for module in model.modules():
        if isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.5


def drop_layers(model: Any) -> None:
    """Let half of what each feed-forward gives be dropped in training."""
    for place, module in list(model.named_modules()):
        if place.endswith(".mlp"):
            module.add_module("dropped", torch.nn.Dropout(0.5))
            module.register_forward_hook(lambda module, given, out: module.dropped(out))


class ChatGLMLike(torch.nn.Module):
    """Two layers after ChatGLM3's remote code: fused multi-query projection with bias, rotary on half of each head in
    interleaved pairs, a mask only with padding, in which pad rows attend to everything."""

    def __init__(self, attention: str) -> None:
        super().__init__()
        self.attention = attention
        size = SIZES["hidden_size"]
        self.embedding = torch.nn.Embedding(VOCABULARY, size)
        self.layers = torch.nn.ModuleList([_Layer(size) for _ in range(2)])
        self.norm = _Norm(size)
        self.head = torch.nn.Linear(size, VOCABULARY, bias=False)
        for parameter in self.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.05)

    def stress(self, gain: float | str) -> None:
        for layer in self.layers:
            weight, bias = layer.qkv.weight, layer.qkv.bias
            with torch.no_grad():
                if gain != "bias":
                    weight.mul_(float(gain))
                    continue
                shift = math.sqrt(SHIFT * math.sqrt(_Layer.SIZE))
                queries, keys = _Layer.HEADS * _Layer.SIZE, _Layer.GROUPS * _Layer.SIZE
                bias[:queries].view(-1, _Layer.SIZE)[:, -1] += shift
                bias[queries : queries + keys].view(-1, _Layer.SIZE)[:, -1] -= shift

    def forward(self, input_ids: Any, attention_mask: Any, position_ids: Any = None, labels: Any = None) -> Any:
        """Return ``loss`` and ``logits``, as transformers' models give them."""
        length = input_ids.shape[1]
        if position_ids is None:
            position_ids = torch.arange(length, device=input_ids.device)[None].expand(input_ids.shape[0], -1)
        hidden = self.embedding(input_ids)
        masked = None
        if attention_mask is not None and not bool(attention_mask.all()):
            causal = torch.ones(length, length, dtype=torch.bool, device=input_ids.device).tril()
            view = causal[None] & attention_mask.bool()[:, None, :]
            # Rows of pads attend to everything, so that none is without a key.
            masked = ~(view | ~attention_mask.bool()[:, :, None])[:, None]
        for layer in self.layers:
            hidden = layer(hidden, position_ids, masked, self.attention)
        logits = self.head(self.norm(hidden))
        loss = None
        if labels is not None:
            predicted, targets = _wide(logits)[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
            loss = torch.nn.functional.cross_entropy(predicted, targets, ignore_index=IGNORED)
        return SimpleNamespace(loss=loss, logits=logits)


class _Norm(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))

    def forward(self, value: Any) -> Any:
        wide = _wide(value)
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
        return self.weight * wide.to(value.dtype)


class _Layer(torch.nn.Module):
    HEADS, GROUPS, SIZE = 4, 2, 16

    def __init__(self, size: int) -> None:
        super().__init__()
        self.first, self.second = _Norm(size), _Norm(size)
        self.qkv = torch.nn.Linear(size, (self.HEADS + 2 * self.GROUPS) * self.SIZE, bias=True)
        self.out = torch.nn.Linear(self.HEADS * self.SIZE, size, bias=False)
        self.up = torch.nn.Linear(size, 192, bias=False)
        self.down = torch.nn.Linear(96, size, bias=False)

    def forward(self, hidden: Any, positions: Any, masked: Any, attention: str) -> Any:
        hidden = hidden + self.out(self._attend(self.first(hidden), positions, masked, attention))
        gate, value = self.up(self.second(hidden)).chunk(2, dim=-1)
        return hidden + self.down(torch.nn.functional.silu(gate) * value)

    def _attend(self, hidden: Any, positions: Any, masked: Any, attention: str) -> Any:
        batch, length, _ = hidden.shape
        widths = [self.HEADS * self.SIZE, self.GROUPS * self.SIZE, self.GROUPS * self.SIZE]
        parts = [
            part.view(batch, length, -1, self.SIZE).transpose(1, 2) for part in self.qkv(hidden).split(widths, dim=-1)
        ]
        query, key = _rotate(parts[0], positions), _rotate(parts[1], positions)
        times = self.HEADS // self.GROUPS
        key, value = key.repeat_interleave(times, dim=1), parts[2].repeat_interleave(times, dim=1)
        if attention == "sdpa":
            mask = None if masked is None else ~masked
            out = torch.nn.functional.scaled_dot_product_attention(
                query, key, value, attn_mask=mask, is_causal=masked is None
            )
        else:
            if masked is None:
                masked = torch.ones(length, length, dtype=torch.bool, device=hidden.device).triu(1)[None, None]
            scores = query @ key.transpose(-2, -1) / math.sqrt(self.SIZE)
            out = torch.softmax(_wide(scores).masked_fill(masked, float("-inf")), dim=-1).to(value.dtype) @ value
        return out.transpose(1, 2).reshape(batch, length, -1)


def _wide(value: Any) -> Any:
    """Return the value in float32 at least, as models compute what must not be rounded to half."""
    return value if value.dtype == torch.float64 else value.float()


def _rotate(value: Any, positions: Any) -> Any:
    """Rotate the first half of each head, in interleaved pairs."""
    half = value.shape[-1] // 2
    frequencies = 10000.0 ** (-torch.arange(0, half, 2, device=value.device, dtype=torch.float64) / half)
    angles = positions[:, None, :, None].double() * frequencies
    cosine, sine = angles.cos().to(value.dtype), angles.sin().to(value.dtype)
    turned, rest = value[..., :half], value[..., half:]
    even, odd = turned[..., 0::2], turned[..., 1::2]
    pairs = torch.stack([even * cosine - odd * sine, odd * cosine + even * sine], dim=-1)
    return torch.cat([pairs.flatten(-2), rest], dim=-1)


def lightly(experiment: Callable[..., None]) -> Callable[..., None]:
    """Wrap an experiment so that collecting garbage, as each Trainer does when it begins, passes over older objects:
    half of the time that a tiny run takes."""

    @wraps(experiment)
    def run(*inputs: Any) -> None:
        gc.collect()
        gc.freeze()
        try:
            experiment(*inputs)
        finally:
            gc.unfreeze()

    return run


def arguments(kind: Any, device: str, **choices: Any) -> Any:
    """Return TrainingArguments or a ``kind`` of these; the way to ask for the CPU has two names."""
    settings = {"save_strategy": "no", "report_to": [], "disable_tqdm": True, **choices}
    os.environ.pop("ACCELERATE_MIXED_PRECISION", None)  # what a run before this one left, in older releases
    if device == "cuda":
        training_arguments = kind(**settings)
        # With more GPUs it would split each batch over them (DataParallel), and take as many times the samples.
        _ = training_arguments.device  # counts them, once
        training_arguments._n_gpu = 1
        return training_arguments
    try:
        return kind(use_cpu=True, **settings)
    except TypeError:
        return kind(no_cuda=True, **settings)


def tokenizer() -> Any:
    """Return a tokenizer that knows the words w3, w4, … by these numbers, made here."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>"}
    words = {word: number for number, word in enumerate(special.values())}
    words.update({f"w{number}": number for number in range(len(words), VOCABULARY)})
    word_tokenizer = Tokenizer(models.WordLevel(words, unk_token=special["unk_token"]))
    word_tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=word_tokenizer, **special)
