"""Does LoRA in the installed peft compute what its paper says, and does a merged model stay the same model?

A model with adapters must give V x, where V = W + alpha / r · B A, and with DoRA m V x / ‖V‖, which is checked against
the same model with these weights, as are the gradients of all that is trained; with one adapter and with two at once,
in linear layers, in embeddings, in the layers of GPT-2, whose weights are transposed, and in those of experts, which
are one tensor; with other ranks and scales in some layers, biases, and modules that are trained and saved whole.
Merged, unmerged, switched off and on, merged for good, saved and loaded, it must stay so.

Merges that disagree with the forward pass: https://github.com/huggingface/peft/issues/3608,
https://github.com/huggingface/peft/pull/3774, https://github.com/huggingface/peft/issues/3531.
"""

from __future__ import annotations

import copy
import tempfile
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch

from ..probing import tiny_models
from ..probing.kit import Emit, Job, Unavailable, full_precision, lost, relative, reported

PROBES = {
    "lora": {
        "title": "LoRA: forward, gradients, merge, save and load",
        "needs": ["torch", "transformers", "accelerate"],
        "suites": {"quick": [{}], "full": [{"kinds": "all"}]},
        "memory_mib": 2000,
    }
}

_RANK, _ALPHA = 4, 32
#: Of some layers.
_OTHER_RANK, _OTHER_ALPHA = 7, 11
#: Seen in float32: 1e-6.
_LIMIT = 1e-3
_LLAMA, _GPT2 = ("q_proj", "v_proj", "down_proj"), ("c_attn", "c_proj")
#: What peft takes of one adapter only.
_ONCE = ("bias", "modules_to_save")
_MIXED = {"rank_pattern": {"v_proj": _OTHER_RANK}, "alpha_pattern": {"down_proj": _OTHER_ALPHA}}


class _Kind(NamedTuple):
    """What is adapted how: the ``model``, the names of its ``layers``, settings of peft's LoraConfig, the power of the
    rank that the scale is divided by."""

    words: str
    model: str
    layers: tuple[str, ...]
    settings: dict[str, Any]
    power: float = 1.0
    quick: bool = True


_EXPERTS = "mlp.experts.down_proj"
_PARTS = (*(f"lora_{name}" for name in ("A", "B", "embedding_A", "embedding_B", "magnitude_vector")), "bias")
_KINDS = (
    _Kind("scaling by alpha / r", "llama", _LLAMA, {}),
    _Kind("scaling by alpha / √r", "llama", _LLAMA, {"use_rslora": True}, 0.5),
    _Kind("DoRA", "llama", _LLAMA, {"use_dora": True}),
    _Kind("ranks and scales by layer", "llama", _LLAMA, {**_MIXED, "modules_to_save": ["lm_head"]}),
    _Kind("ranks by layer / √r", "qwen2", _LLAMA, {**_MIXED, "use_rslora": True}, 0.5),
    _Kind("biases beside it", "qwen2", _LLAMA, {"bias": "lora_only"}, quick=False),  # peft 0.19.1 does not save them
    _Kind("a bias of its own", "qwen2", _LLAMA[:2], {"lora_bias": True}),
    _Kind("DoRA, ranks by layer", "llama", _LLAMA, {**_MIXED, "use_dora": True}, quick=False),
    _Kind("experts", "mixtral", (), {"target_parameters": [_EXPERTS]}),
    _Kind("an embedding", "llama", ("embed_tokens", "q_proj"), {}),
    _Kind("transposed layers", "gpt2", _GPT2, {"fan_in_fan_out": True}),
    _Kind("DoRA, transposed layers", "gpt2", _GPT2, {"fan_in_fan_out": True, "use_dora": True}, quick=False),
)


def lora(job: Job, emit: Emit) -> None:
    """Emit one observation for each stage and kind, for the judge ``change``."""
    if find_spec("peft") is None:
        emit({"case": "LoRA", "skip": "peft is not installed"})
        return
    with full_precision():  # TF32 is the business of another experiment
        _all_kinds(job, emit)


def _all_kinds(job: Job, emit: Emit) -> None:
    from peft import LoraConfig

    thorough = job["options"].get("kinds") == "all"
    for kind, several in [(kind, several) for kind in _KINDS for several in (False, True)[: 1 + thorough]]:
        if not (kind.quick or thorough) or (several and {*_ONCE} & {*kind.settings}):
            continue
        words = f"{kind.words}, two adapters" if several else kind.words
        case: Job = {"judge": "change", "signature": "lora-differs", "tensors": ["logits"], "dtype": "fp32"}
        case.update(case=words, limit=_LIMIT, params={"kind": kind.words})
        with reported(emit, job["device"], case, case):
            usual = {"r": _RANK, "lora_alpha": _ALPHA, "target_modules": list(kind.layers), "init_lora_weights": False}
            try:
                settings = LoraConfig(**usual, **kind.settings)
                for stage, measure in _stages(kind, settings, job["device"], several):
                    case["case"] = f"{stage}, {words}"
                    emit({**case, "relative": measure()})
            except (TypeError, NotImplementedError) as reason:
                raise Unavailable(f"this peft does not offer it: {reason}"[:300]) from reason


def _built(kind: _Kind, device: str) -> Any:
    return tiny_models.build(kind.model, "sdpa").to(device).eval()


def _tokens(device: Any) -> Any:
    return torch.stack([tokens for tokens, _ in tiny_models.samples((24, 24))]).to(device)


def _logits(model: Any) -> Any:
    with torch.no_grad():
        return model.eval()(input_ids=_tokens(next(model.parameters()).device)).logits


def _off(model: Any, exact: Any) -> float:
    logits = _logits(model)
    return float("nan") if lost(logits) else relative(logits, exact)


def _stages(kind: _Kind, settings: Any, device: str, several: bool) -> Any:
    """Yield (stage, what measures how far its logits are from those of the summed weights) one after another. Of two
    adapters at once the sum is known of LoRA; of DoRA only that a merge must not change it."""
    from peft import PeftModel, get_peft_model

    built = _built(kind, device)
    if "target_parameters" in kind.settings and not any(
        name.endswith(_EXPERTS) for name, _ in built.named_parameters()
    ):
        raise Unavailable("experts are no single tensor in this transformers")
    before = _logits(built)
    model = get_peft_model(built, copy.deepcopy(settings))
    dora = bool(kind.settings.get("use_dora"))
    if several:
        model.add_adapter("other", copy.deepcopy(settings))
    _random(model)
    if several:
        model.base_model.set_adapter(["default", "other"])
    plain = _built(kind, device)
    trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
    summed = _summed(plain, trained, kind, ("default", "other") if several else ("default",))

    def called(weights: Any) -> Any:
        return torch.func.functional_call(plain, weights, (), {"input_ids": _tokens(device)}).logits

    exact = called(summed).detach() if not (several and dora) else _logits(model)

    def after(change: Any) -> Any:
        change()
        return _off(model, exact)

    def gradients() -> float:
        slopes, expected = (
            torch.autograd.grad(logits.square().mean(), list(trained.values()), allow_unused=True)
            for logits in (model(input_ids=_tokens(device)).logits, called(summed))
        )
        # That of a magnitude is taken with the norm as a number (https://arxiv.org/abs/2402.09353, 4.3), as is peft's.
        pairs = [[torch.zeros(1) if slope is None else slope for slope in pair] for pair in zip(slopes, expected)]
        return max(relative(*pair) if pair[0].shape == pair[1].shape else 1.0 for pair in pairs)

    def again() -> Any:
        with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
            model.save_pretrained(folder)
            return _off(PeftModel.from_pretrained(_built(kind, device), folder), exact)

    def without() -> float:
        with model.disable_adapter():
            return _off(model, before)

    yield "the forward pass", lambda: _off(model, exact)
    if not several:
        yield "gradients", gradients
        yield "merged", lambda: after(model.merge_adapter)
        yield "unmerged again", lambda: after(model.unmerge_adapter)
        if "lora_only" not in kind.settings.values():
            yield "switched off", without
        yield "saved and loaded", again
    yield "merged for good", lambda: _off(model.merge_and_unload(), exact)


def _random(model: Any) -> None:
    """Change parameters that begin as what they replace, so that it shows whether they are used: magnitudes of DoRA,
    biases and modules that are saved whole."""
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and ("lora_A" not in name or "bias" in name):
                parameter.mul_(0.5 + torch.rand(parameter.shape, generator=generator).to(parameter.device))
                if name.endswith("bias"):
                    parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator).to(parameter.device))


def _summed(plain: Any, trained: dict[str, Any], kind: _Kind, adapters: tuple[str, ...]) -> dict[str, Any]:
    """Return the weights that the adapters stand for, by names in the plain model, as functions of what is trained."""
    weights = {name: value.detach() for name, value in plain.named_parameters()}
    for name, value in trained.items():
        inner = name.replace("base_model.model.", "", 1).replace(".base_layer", "")
        if "modules_to_save.default." in inner:
            weights[inner.replace("modules_to_save.default.", "")] = value
        elif inner in weights:
            weights[inner] = value
    for adapter in adapters:
        for name in [name for name in weights if name.endswith((".weight", _EXPERTS))]:
            layer = name.rpartition(".")[0]
            parts = {
                part: value
                for path, value in trained.items()
                for part in _PARTS
                if f".{layer}.{part if part != 'bias' else 'lora_B'}.{adapter}" in path
                and path.endswith(".bias") is (part == "bias")
            }
            if len(parts) > 1:
                _add(weights, name, parts, kind)
    return weights


def _add(weights: dict[str, Any], name: str, parts: dict[str, Any], kind: _Kind) -> None:
    """Add one adapter to a weight, and its bias to that of the layer."""
    layer = name.split(".")[-2]
    scale = kind.settings.get("alpha_pattern", {}).get(layer, _ALPHA)
    scale /= kind.settings.get("rank_pattern", {}).get(layer, _RANK) ** kind.power
    turned = bool(kind.settings.get("fan_in_fan_out"))
    if "lora_embedding_A" in parts:
        change = (parts["lora_embedding_B"] @ parts["lora_embedding_A"]).T
    elif name.endswith(_EXPERTS):
        count = len(weights[name])
        first = parts["lora_A"].unflatten(0, (count, -1))
        change = torch.einsum("ore,eri->eoi", parts["lora_B"].unflatten(1, (-1, count)), first)
    else:
        change = parts["lora_B"] @ parts["lora_A"]
    weight = (weights[name].T if turned else weights[name]) + scale * change
    if "lora_magnitude_vector" in parts:
        length = weight.detach().norm(dim=1)
        weight = weight * (parts["lora_magnitude_vector"].flatten() / length)[:, None]
    weights[name] = weight.T if turned else weight
    if "bias" in parts:
        bias = name.replace(".weight", ".bias")
        weights[bias] = weights[bias] + scale * parts["bias"]
