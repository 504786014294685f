"""Reads fixtures/probe_recordings as observations: a plain mapping from the prototype's field names."""

import gzip
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from envdoctor.experiments import Job, Outcome, write_head, write_outcome

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "probe_recordings"

_DTYPES = {"bf16": "bf16", "f16": "fp16", "bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
_CUDNN = "ScaledDotProductCudnnAttentionBackward0"
_TENSORS = {"o": "o", "q": "dq", "k": "dk", "v": "dv"}


def lines(name: str) -> Iterator[dict[str, Any]]:
    """The records of one file, as the prototype wrote them."""
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


@cache
def judged(name: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(record, observation) of every record with a verdict in one ``sp_*``, ``sdpa_full_*`` or ``mp_*`` file."""
    return [(record, observation(record)) for record in lines(name) if "verdict" in record]


def observation(record: dict[str, Any]) -> dict[str, Any]:
    """One record in the fields of an observation; its stored verdict is not among them."""
    if record.get("kind") == "case":
        return _case(record)
    if record.get("kind") == "nan_honesty":
        return {
            "judge": "honesty",
            "dtype": _DTYPES[record["dtype"]],
            "backend": record["backend"],
            "row_nan": record["row_nan"],
            "elsewhere": record["elsewhere"],
            "expected": 64,
        }
    if record.get("kind") == "train":
        return {
            "judge": "rounding",
            "dtype": _DTYPES[record["dtype"]],
            "nonfinite": {"loss": int("nan" in (record.get("why") or "")), "parameters": record["nonfinite_params"]},
        }
    return {
        "judge": "batch",
        "dtype": _DTYPES[record["dtype"]],
        "backend": record["attn"],
        "params": {
            "model": record["model"],
            "padding": record["side"],
            "position_ids": record["posids"],
            "gain": record["gain"],
        },
        "e1": record["e1"],
        "eN": record["eN"],
        "nonfinite": record["nonfinite"],
    }


def _case(record: dict[str, Any]) -> dict[str, Any]:
    shared = {
        "judge": "attention",
        "dtype": _DTYPES[record["dtype"]],
        "backend": record["backend"],
        "params": {key: record.get(key) for key in ("B", "H", "Hk", "L", "S", "D", "mask", "layout", "dout", "stress")},
    }
    if record["verdict"] == "SKIP":
        return {**shared, "skip": record["why"]}
    return {
        **shared,
        "node": record["node"],
        "lse": record["lse"],
        "ratio": {_TENSORS[name]: value for name, value in record["ratio"].items()},
        "nonfinite": {_TENSORS[name]: value for name, value in record["nonfinite"].items()},
        "dead_rows_nonfinite": record["dead_rows_nonfinite"],
    }


def pair(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The observations behind one record of a ``pairs_*`` file; none for what only informs."""
    evidence = record["evidence"]
    name = record["probe"]
    if name == "sdpa_nan_honesty":  # [NaN in the poisoned row, non-finite values in all]
        return [
            {"judge": "honesty", "dtype": _DTYPES[dtype], "row_nan": row, "elsewhere": every - row, "expected": 8}
            for dtype, (row, every) in evidence.items()
        ]
    if name == "sdpa_dead_rows":
        return [
            {
                "judge": "rounding",
                "dtype": _DTYPES[dtype],
                "nonfinite": {"o": counts["live_out"], "dk": counts["dk"], "dv": counts["dv"]},
                "dead_rows_nonfinite": counts["dead_out"],
            }
            for dtype, counts in evidence.items()
        ]
    if name == "sdpa_half_accuracy":
        return [
            {"judge": "attention", "dtype": _DTYPES[key.split("/")[1]], "gate": ["o"], "ratio": {"o": ratio}}
            for key, ratio in evidence.items()
        ]
    if name == "rms_norm_range":
        return [{"judge": "rounding", "dtype": _DTYPES[key], "ratio": {"o": ratio}} for key, ratio in evidence.items()]
    if name == "rms_norm_default_eps":
        return [{"judge": "change", "relative": evidence["rel_diff_bf16_vs_fp32"], "limit": 0.05}]
    if name == "padded_batch_equals_singles":
        return [{"judge": "rounding", "dtype": "bf16", "ratio": {"gradients": ratio}} for ratio in evidence.values()]
    if name == "memory_slope":
        return [{"judge": "growth", "kib": [size / 1024 for size in evidence["live_bytes"]]}]
    if name == "trainer_grad_accumulation":
        change = {"judge": "change", "relative": evidence["rel_4x1"], "limit": 0.01, "signature": "accumulation-scale"}
        return [change]
    return []


def hopper(path: Path, wrong: dict[str, Any]) -> None:
    """Write a recording of ``envdoctor probe`` as torch 2.5.0 would give on a Hopper GPU: a stand-in, labelled as one.

    The cases are those that torch 2.5.0 gave on a CPU; with cuDNN's kernel in place of the CPU's, and of padded ones
    ``wrong``. The model's own heads, padded, are a case more for training and evaluation, which is right without
    cuDNN; and so is memory, which grows.
    """
    padded = ("bool_left", "bool_right", "min_left")
    cases = [(one, found) for one, found in judged("sp_250") if one.get("node") == "FlashForCpu"]
    attention = [
        {**found, "case": f"L{one['L']} {one['mask']}", "node": _CUDNN, **(wrong if one["mask"] in padded else {})}
        for one, found in cases
        if found["backend"] == "default" and found["dtype"] == "bf16"
    ]
    own = [
        {**attention[0], "case": f"32 heads over 2, L64 {mask}, {phase}", "node": None, **wrong, "params": params}
        for mask in padded
        for phase in ("training", "evaluation")
        for params in [{"model": "glm4", "mask": mask, "phase": phase, "cured_by": "cudnn"}]
    ]
    grown = {"case": "3 cycles", "judge": "growth", "kib": [64, 128, 192], "dtype": "bf16"}
    own.append({**grown, "params": {"model": "glm4", "cured_by": "cudnn"}})
    shared: dict[str, Any] = {"device": "cuda", "suite": "quick", "dtype": "bf16", "backend": "default"}
    gpu = [{"name": "NVIDIA H100 80GB HBM3 (stand-in)", "cc": "9.0"}]
    facts = {"pkg.torch": "2.5.0+cu124", "gpu": gpu}
    with open(path, "w", encoding="utf-8") as file:
        write_head(file, {"schema": "envdoctor.facts/1", "facts": facts}, suite="quick")
        for name, observations in (("attention", attention), ("model-attention", own)):
            begin = {"device": "cuda", "torch": "2.5.0+cu124"}
            seen = tuple({"probe": name, "device": "cuda", **one} for one in observations)
            write_outcome(file, Outcome(Job(name, **shared), seen, "ok", begin=begin, seconds=1.0))
