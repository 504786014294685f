"""A model from its configuration alone, of any depth, with what training adds to it; first on meta, then without data.

Only classes that transformers itself has are built: code of the model's repository is never run.
"""

from __future__ import annotations

import copy
import functools
from typing import Any

import torch

#: Names of the number of layers in configurations of transformers. Which one counts the decoder's layers, the model
#: shows: in a half of an encoder and decoder, or where a layer counts twice, it is not the first.
_DEPTHS = (
    *("num_hidden_layers", "num_layers", "n_layer", "decoder_layers", "num_decoder_layers"),
    *("num_layers_per_stack", "num_blocks"),
)


class Refused(Exception):
    """Why this model or recipe cannot be traced: a sentence with ``{}`` for values, and these."""


#: What a type is built as: the first of these that transformers has for it. An encoder is what fills masks.
_BUILT_AS = {
    "SEQ_TO_SEQ_CAUSAL_LM": "Seq2SeqLM",
    "SPEECH_SEQ_2_SEQ": "SpeechSeq2Seq",
    "MASKED_LM": "SequenceClassification",
    "CAUSAL_LM": "CausalLM",
    "IMAGE_CLASSIFICATION": "ImageClassification",
}


def _built_as(config: Any) -> str | None:
    """Return what the model is built as; a classifier where config.json names one."""
    from transformers.models.auto import modeling_auto

    if str((getattr(config, "architectures", None) or [""])[0]).endswith("ForSequenceClassification"):
        return "SequenceClassification"
    known = (getattr(modeling_auto, "MODEL_FOR_" + name + "_MAPPING_NAMES") for name in _BUILT_AS)
    return next((built for built, types in zip(_BUILT_AS.values(), known) if config.model_type in types), None)


def parse_config(data: dict[str, Any]) -> Any:
    """Return the configuration as transformers' own class. Raises :class:`Refused` for a type that it does not have."""
    from transformers import CONFIG_MAPPING, __version__

    kind = data.get("model_type")
    known = isinstance(kind, str) and kind in CONFIG_MAPPING
    if not known or _built_as(CONFIG_MAPPING[kind]) is None:
        raise Refused("transformers {} has no model of the type {} that is traced", __version__, str(kind))
    kept = {key: value for key, value in data.items() if key not in ("auto_map", "quantization_config", "model_type")}
    return CONFIG_MAPPING[kind].from_dict(kept)


def _text(config: Any) -> Any:
    """Return the part of a configuration that is about the language model."""
    return config.get_text_config() if hasattr(config, "get_text_config") else config


def cut_config(config: Any, depth: int, layers: int) -> Any:
    """Return the configuration of a model with ``depth`` layers for its first ``layers``: lists of all layers are
    cut."""
    config = copy.deepcopy(config)
    text = _text(config)
    for name, value in list(vars(text).items()):
        if isinstance(value, list) and len(value) == depth:
            setattr(text, name, value[:layers])
    for name in [name for name in _DEPTHS if getattr(text, name, None) == depth]:
        setattr(text, name, layers)
    return config


@functools.lru_cache(maxsize=1)
def _one_sample_a_row() -> None:
    """Have transformers take each row of a batch for one sample, and a mask for one that hides something. It reads
    positions and masks to find out, which have no values here; by positions it would build a wrong mask."""
    try:
        from transformers import masking_utils
    except ImportError:  # releases before 4.53 ask for no positions
        from transformers.modeling_attn_mask_utils import AttentionMaskConverter

        AttentionMaskConverter._ignore_causal_mask_sdpa = staticmethod(
            lambda attention_mask, *args, **kwargs: attention_mask is None
        )
        return
    masking_utils.find_packed_sequence_indices = lambda position_ids: None
    for name in ("_ignore_causal_mask_sdpa", "_ignore_bidirectional_mask_sdpa"):
        if hasattr(masking_utils, name):
            setattr(masking_utils, name, functools.partial(_unless_padded, getattr(masking_utils, name)))


def _unless_padded(usual: Any, padding_mask: Any, *args: Any, **kwargs: Any) -> Any:
    return padding_mask is None and usual(padding_mask, *args, **kwargs)


#: What code would look at labels and tokens for, which have no values here.
_VALUELESS = {"decoder_start_token_id": 0, "pad_token_id": 0, "problem_type": "single_label_classification"}
#: As torch has them.
_FUNCTIONS = {name: getattr(torch.nn.functional, name) for name in ("dropout", "scaled_dot_product_attention")}


def _dropout(tensor: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    return torch.native_dropout(tensor, p, True)[0] if training and p else tensor


def _attention(*tensors: Any, dropout_p: float = 0.0, **given: Any) -> Any:
    return _FUNCTIONS["scaled_dot_product_attention"](*tensors, **given)


def _drop_as_on_cuda(other: bool) -> None:
    """Have dropout keep what its kernels of CUDA keep: a byte a value, and of attention a seed (Dropout.cpp and
    transformers/cuda/attention.cu in pytorch's aten/src/ATen/native); ``other`` models have dropout in their layers."""
    functions = {"dropout": _dropout, "scaled_dot_product_attention": _attention} if other else _FUNCTIONS
    for name, function in functions.items():
        setattr(torch.nn.functional, name, function)


def build(config: Any, job: dict[str, Any]) -> Any:
    """Return the model on meta, in the dtype and with the attention of the job."""
    import transformers

    _one_sample_a_row()
    config = copy.deepcopy(config)
    built = _built_as(config)
    _drop_as_on_cuda(built != "CausalLM")
    dtype = getattr(torch, job["load_dtype"])
    usual = torch.get_default_dtype()
    for part in {id(entry): entry for entry in (config, _text(config))}.values():
        setattr(part, "dtype" if hasattr(type(part), "torch_dtype") else "torch_dtype", dtype)
    config.use_cache = not job["training"]
    for name, value in _VALUELESS.items():
        if getattr(config, name, None) is None:
            setattr(config, name, value)
    torch.set_default_dtype(dtype)  # older releases do not read it from the configuration
    try:
        with torch.device("meta"):
            model_class = getattr(transformers, "AutoModelFor" + str(built))
            model = model_class.from_config(config, attn_implementation=job["attention"])
    except (ValueError, ImportError) as error:
        raise Refused("transformers does not build this model: {}", str(error)) from None
    finally:
        torch.set_default_dtype(usual)
    return model.train(job["training"])


def layers_of(model: Any, config: Any) -> list[Any]:
    """Return the decoder's layers. Raises :class:`Refused` if no list of modules has as many as configured."""
    depths = {getattr(_text(config), name, None) for name in _DEPTHS}
    lists: list[Any] = [
        part for part in model.modules() if isinstance(part, torch.nn.ModuleList) and len(part) in depths
    ]
    if not lists:
        raise Refused("the layers of this model are not in one list")
    largest: Any = max(lists, key=lambda module: sum(parameter.numel() for parameter in module.parameters()))
    return list(largest)


def _module(name: str, module: Any) -> tuple[Any, ...]:
    """Return what a module of a layer is made of: class, shapes, and its settings without the layer's own number."""
    settings = {
        key: value
        for key, value in vars(module).items()
        if isinstance(value, (bool, int, float, str)) and key not in ("layer_idx", "layer_id", "layer_number")
    }
    shapes = [(key, tuple(part.shape), str(part.dtype)) for key, part in module._parameters.items() if part is not None]
    return (name, type(module).__name__, sorted(settings.items()), shapes)


def with_adapters(model: Any, job: dict[str, Any]) -> Any:
    """Return the model as the recipe trains it: 4-bit weights, adapters, checkpointing; the rest frozen.

    Raises :class:`Refused` for what PEFT does not take.
    """
    if job["quantized"]:
        quantize(model, job["quantized"])
    lora = job.get("lora")
    if lora is not None:
        from peft import LoraConfig, get_peft_model

        wanted = {name: value for name, value in lora.items() if value is not None}
        try:
            task = "CAUSAL_LM" if _built_as(model.config) == "CausalLM" else None
            model = get_peft_model(model, LoraConfig(task_type=task, **wanted), low_cpu_mem_usage=True)
        except (ValueError, TypeError, NotImplementedError) as error:
            raise Refused("peft does not take these LoRA settings: {}", str(error)) from None
    if job["checkpointing"]:
        model.gradient_checkpointing_enable()
        if lora is not None:
            model.enable_input_require_grads()
    return model


def faked(model: Any) -> None:
    """Give every parameter and buffer a place without data on the CPU. Ties stay ties. Under a FakeTensorMode."""
    copies: dict[int, torch.Tensor] = {}
    for module in model.modules():
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is None:
                    continue
                if id(tensor) not in copies:
                    fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
                    wrap = held is module._parameters
                    copies[id(tensor)] = torch.nn.Parameter(fake, tensor.requires_grad) if wrap else fake
                held[name] = copies[id(tensor)]


def lattice(layers: list[Any]) -> tuple[int, int] | None:
    """Return two depths on the line to the full one: after some leading layers the kinds repeat with a period, and both
    leave the same remainder of it as the full depth. None when they never repeat, or there are too few layers."""
    names = [repr([_module(name, module) for name, module in layer.named_modules()]) for layer in layers]
    depth = len(names)
    for period in range(1, depth // 2 + 1):
        leading = depth - period
        while leading and names[leading - 1] == names[leading - 1 + period]:
            leading -= 1
        if leading + 2 * period > depth:
            continue
        low = leading + (depth - leading) % period + period
        while low < 3:
            low += period
        if low + period < depth:
            return low, low + period
    return None


#: Weights that share one scale (bitsandbytes: blocksize 64, of the scales 256).
_BLOCK = 64
_SCALES = 256


class _Unpacked(torch.autograd.Function):
    """x @ W.T with W unpacked for the product alone, and once more for the gradient (bitsandbytes' MatMul4Bit)."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, packed: torch.Tensor, shape: Any) -> torch.Tensor:
        ctx.packed, ctx.shape, ctx.dtype = packed, shape, x.dtype
        return torch.nn.functional.linear(x, packed.new_empty(shape, dtype=x.dtype))

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient.matmul(ctx.packed.new_empty(ctx.shape, dtype=ctx.dtype)), None, None


class Linear4bit(torch.nn.Linear):
    """A linear layer whose weight is packed; ``scales`` are its scales."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        out = _Unpacked.apply(input, self.weight, (self.out_features, self.in_features))
        return out if self.bias is None else out + self.bias.to(out.dtype)


def quantize(model: Any, wanted: dict[str, Any]) -> None:
    """Replace the linear layers but the head's, on meta; with ``upcast`` what is left in half precision becomes
    float32, as PEFT's prepare_model_for_kbit_training does."""
    head = model.get_output_embeddings()
    for module in list(model.modules()):
        for name, child in list(module._modules.items()):
            if type(child) is torch.nn.Linear and child is not head:
                module._modules[name] = _packed(child, wanted["double"])
    for parameter in model.parameters():
        parameter.requires_grad_(False)
        if wanted["upcast"] and parameter.dtype in (torch.float16, torch.bfloat16):
            parameter.data = parameter.data.to(torch.float32)


def _packed(layer: torch.nn.Linear, double: bool) -> Linear4bit:
    with torch.device("meta"):
        new = Linear4bit(1, 1, bias=False)
        count = layer.weight.numel()
        blocks = -(-count // _BLOCK)
        new.weight = torch.nn.Parameter(torch.empty((count + 1) // 2, 1, dtype=torch.uint8), requires_grad=False)
        scales = blocks + 4 * -(-blocks // _SCALES) if double else 4 * blocks
        new.register_buffer("scales", torch.empty(scales, dtype=torch.uint8), persistent=False)
    new.bias = layer.bias
    new.in_features, new.out_features = layer.in_features, layer.out_features
    return new
