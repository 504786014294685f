"""Does LoRA in the installed peft compute what its paper says, and does a merged model stay the same model?

A model with adapters must give V x, where V = W + alpha / r · B A, and with DoRA m V x / ‖V‖, which is checked against
the same model with these weights; with one adapter and with two at once, in linear layers, in embeddings and in the
layers of GPT-2, whose weights are transposed. Merged, unmerged, merged for good, saved and loaded, and combined with
weight one into a new adapter, it must stay so.

Merges that disagree with the forward pass: https://github.com/huggingface/peft/issues/3608,
https://github.com/huggingface/peft/pull/3774, https://github.com/huggingface/peft/issues/3531; scaling that is lost:
https://github.com/huggingface/peft/pull/3449.
"""

from __future__ import annotations

import copy
import tempfile
from importlib.util import find_spec
from typing import Any, NamedTuple

import torch

from ..probing import tiny_models
from ..probing.kit import Emit, Job, Unavailable, judged, lost, relative, reported

PROBE = {
    "title": "LoRA: forward, merge, combine, save and load",
    "needs": ["torch", "transformers", "accelerate"],
    "suites": {"quick": [{}], "full": [{"kinds": "all"}]},
    "memory_mib": 2000,
}

_RANK, _ALPHA = 4, 32
#: Seen in float32: 1e-6.
_LIMIT = 1e-3
_COMBINED = "combined with weight one by add_weighted_adapter"
_LLAMA = ("q_proj", "v_proj", "down_proj")


class _Kind(NamedTuple):
    """What is adapted how: the ``model``, the names of its ``layers``, settings of peft's LoraConfig, the factor."""

    words: str
    model: str
    layers: tuple[str, ...]
    settings: dict[str, Any]
    scaling: float = _ALPHA / _RANK
    quick: bool = False


_ROOT = _ALPHA / _RANK**0.5
_KINDS = (
    _Kind("scaling by alpha / r", "llama", _LLAMA, {}, quick=True),
    _Kind("scaling by alpha / √r", "llama", _LLAMA, {"use_rslora": True}, _ROOT, quick=True),
    _Kind("DoRA", "llama", _LLAMA, {"use_dora": True}, quick=True),
    _Kind("an embedding", "llama", ("embed_tokens", "q_proj"), {}),
    _Kind("transposed layers", "gpt2", ("c_attn", "c_proj"), {"fan_in_fan_out": True}),
    _Kind("DoRA, transposed layers", "gpt2", ("c_attn", "c_proj"), {"fan_in_fan_out": True, "use_dora": True}),
)


def run(job: Job, emit: Emit) -> None:
    """One observation for each stage and kind, for the judge ``change``."""
    if find_spec("peft") is None:
        emit({"case": "LoRA", "skip": "peft is not installed"})
        return
    from peft import LoraConfig

    thorough = job["options"].get("kinds") == "all"
    for kind, several in [(kind, several) for kind in _KINDS for several in (False, True)[: 1 + thorough]]:
        if not (kind.quick or thorough):
            continue
        words = f"{kind.words}, two adapters" if several else kind.words
        case = judged("change", "lora-differs", ["logits"], dtype="fp32", limit=_LIMIT, params={"kind": kind.words})
        case["case"] = words
        with reported(emit, job["device"], case, case):
            chosen = {"r": _RANK, "lora_alpha": _ALPHA, "target_modules": list(kind.layers), "init_lora_weights": False}
            try:
                settings = LoraConfig(**chosen, **kind.settings)
                for stage, measure in _stages(kind, settings, job["device"], several, thorough):
                    case["case"] = f"{stage}, {words}"
                    off = measure()
                    # A combined adapter is no part of training or of what it leaves: a warning.
                    combined = {"signature": "combine-differs", "soft": True} if stage == _COMBINED else {}
                    emit({**case, **combined, "relative": off})
            except (TypeError, NotImplementedError) as reason:
                raise Unavailable(f"this peft does not offer it: {reason}"[:300]) from reason


def _built(kind: _Kind, device: str) -> Any:
    return tiny_models.build(kind.model, "sdpa").to(device).eval()


def _logits(model: Any) -> Any:
    tokens = torch.stack([tokens for tokens, _ in tiny_models.samples((24, 24))])
    with torch.no_grad():
        return model.eval()(input_ids=tokens.to(next(model.parameters()).device)).logits


def _off(model: Any, exact: Any) -> float:
    found = _logits(model)
    return float("nan") if lost(found) else relative(found, exact)


def _stages(kind: _Kind, settings: Any, device: str, several: bool, thorough: bool) -> Any:
    """(stage, what measures how far its logits are from those of the summed weights) one after another. Of two adapters
    at once the sum is known of LoRA; of DoRA only that a merge must not change it."""
    from peft import PeftModel, get_peft_model

    model = get_peft_model(_built(kind, device), copy.deepcopy(settings))
    dora = bool(kind.settings.get("use_dora"))
    if several:
        model.add_adapter("other", copy.deepcopy(settings))
    _random_magnitudes(model)
    if several:
        model.base_model.set_adapter(["default", "other"])
    plain = _built(kind, device)
    for name in ("default", "other") if several else ("default",):
        _summed(plain, model, kind, name)
    exact = _logits(model if several and dora else plain)

    def after(change: Any) -> Any:
        change()
        return _off(model, exact)

    def again() -> Any:
        with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
            model.save_pretrained(folder)
            return _off(PeftModel.from_pretrained(_built(kind, device), folder), exact)

    def combined() -> Any:
        model.add_weighted_adapter(["default"], [1.0], "again", combination_type="linear")
        model.set_adapter("again")
        found = _off(model, exact)
        model.set_adapter("default")
        return found

    yield "the forward pass", lambda: _off(model, exact)
    if not several:
        yield "merged", lambda: after(model.merge_adapter)
        yield "unmerged again", lambda: after(model.unmerge_adapter)
        yield "saved and loaded", again
        if thorough and not dora:  # which peft does not combine
            yield _COMBINED, combined
    yield "merged for good", lambda: _off(model.merge_and_unload(), exact)


def _random_magnitudes(model: Any) -> None:
    """Magnitudes of DoRA begin as those of the weights, where nobody could tell whether they are used."""
    generator = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_magnitude" in name:
                parameter.mul_(0.5 + torch.rand(parameter.shape, generator=generator).to(parameter.device))


def _summed(plain: Any, model: Any, kind: _Kind, adapter: str) -> None:
    """Give the plain model the weights that the adapter stands for."""
    given = {name: value.detach() for name, value in model.state_dict().items() if f".{adapter}" in name}

    def of(layer: str, part: str) -> Any:
        (found,) = (value for name, value in given.items() if f".{layer}.{part}.{adapter}" in name)
        return found

    with torch.no_grad():
        for name, module in plain.named_modules():
            if name.rpartition(".")[2] not in kind.layers:
                continue
            turned = bool(kind.settings.get("fan_in_fan_out"))
            if isinstance(module, torch.nn.Embedding):
                change = (of(name, "lora_embedding_B") @ of(name, "lora_embedding_A")).T
            else:
                change = of(name, "lora_B") @ of(name, "lora_A")
            weight = (module.weight.T if turned else module.weight) + kind.scaling * change
            if kind.settings.get("use_dora"):
                weight = weight * (of(name, "lora_magnitude_vector").flatten() / weight.norm(dim=1))[:, None]
            module.weight.copy_(weight.T if turned else weight)
