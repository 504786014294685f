"""Does LoRA in the installed peft compute what its paper says, and does a merged model stay the same model?

A model with adapters must give W x + alpha / r · B A x, which is checked against the same model with these sums as
weights; merged, unmerged, merged for good, and saved and loaded, it must stay so. Merges that disagree with the forward
pass: https://github.com/huggingface/peft/issues/3608, https://github.com/huggingface/peft/pull/3774.
"""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from typing import Any

import torch

from ..probing import batches, tiny_models
from ..probing.failure import failure
from ..probing.job import Emit, Job
from ..probing.rounding import lost, relative

PROBE = {
    "title": "LoRA: forward, merge, save and load",
    "needs": ["torch", "transformers", "accelerate"],
    "memory_mib": 2000,
}

_RANK, _ALPHA, _TARGETS = 4, 32, ("q_proj", "v_proj", "down_proj")
#: Seen in float32: 1e-6.
_LIMIT = 1e-3


def run(job: Job, emit: Emit) -> None:
    """One observation for each stage and kind of scaling, for the judge ``change``."""
    if find_spec("peft") is None:
        emit({"case": "LoRA", "skip": "peft is not installed"})
        return
    from peft import LoraConfig

    for scaling, word in ((_ALPHA / _RANK, "alpha / r"), (_ALPHA / _RANK**0.5, "alpha / √r")):
        root = word != "alpha / r"
        try:
            settings = LoraConfig(
                r=_RANK, lora_alpha=_ALPHA, target_modules=list(_TARGETS), init_lora_weights=False, use_rslora=root
            )
        except TypeError as error:
            emit({"case": f"scaling by {word}", "skip": f"this peft does not offer it: {error}"[:300]})
            continue
        case: dict[str, Any] = {"judge": "change", "dtype": "fp32", "signature": "lora-differs", "tensors": ["logits"]}
        case.update(params={"rslora": root}, limit=_LIMIT)
        try:
            for stage, found in _stages(settings, scaling, job["device"]):
                told = f"{stage}, scaling by {word}"
                emit({**case, "case": told, "relative": found, "detail": f"{told}: off by {float(found):.2g}"})
        except tiny_models.Unavailable as reason:
            emit({**case, "case": f"scaling by {word}", "skip": str(reason)})
        except Exception as error:
            emit({**case, "case": f"scaling by {word}", **failure(error, job["device"])})


def _stages(settings: Any, scaling: float, device: str) -> Any:
    """(stage, how far the logits are from those of the summed weights) one after another."""
    from peft import PeftModel, get_peft_model

    tokens = torch.stack([tokens for tokens, _ in batches.samples((24, 24))]).to(device)
    exact_model = tiny_models.build("llama", "sdpa").to(device).eval()
    model = get_peft_model(tiny_models.build("llama", "sdpa").to(device), settings).eval()
    pairs = {name: value for name, value in model.state_dict().items() if ".lora_" in name}
    with torch.no_grad():
        for name, module in exact_model.named_modules():
            if name.rpartition(".")[2] in _TARGETS:
                (left,) = (value for key, value in pairs.items() if f".{name}.lora_A." in key)
                (right,) = (value for key, value in pairs.items() if f".{name}.lora_B." in key)
                module.weight += scaling * (right @ left)

    def off(found: Any) -> Any:
        with torch.no_grad():
            exact, got = (one(input_ids=tokens).logits for one in (exact_model, found))
        return "nan" if lost(got) else relative(got, exact)

    yield "the forward pass", off(model)
    model.merge_adapter()
    yield "merged", off(model)
    model.unmerge_adapter()
    yield "unmerged again", off(model)
    with tempfile.TemporaryDirectory(prefix="envdoctor-") as folder:
        model.save_pretrained(folder)
        again = PeftModel.from_pretrained(tiny_models.build("llama", "sdpa").to(device), folder)
    yield "saved and loaded", off(again.eval())
    yield "merged for good", off(model.merge_and_unload())
