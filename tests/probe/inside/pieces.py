"""Check the pieces of the attention probes against plain torch; prints {name of the check: true or what is wrong}.

python pieces.py PAYLOAD_FOLDER CHECK ...
"""

from __future__ import annotations

import json
import os
import sys
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

PAYLOAD = sys.argv[1]
sys.path.insert(0, os.path.dirname(PAYLOAD))
PACKAGE = os.path.basename(PAYLOAD)


def piece(name: str) -> Any:
    return import_module(f"{PACKAGE}.probing.{name}")


def truth_is_that_of_autograd() -> Any:
    """Formulas in float64 against torch's own derivative, with shared heads, padding and dead rows."""
    reference = piece("attention_case")
    worst = 0.0
    for mask in ("none", "bool_left", "bool_left_dead", "bool_band", "bool_key"):
        for name in reference.STRESSES:
            size = {"B": 2, "H": 4, "Hk": 2, "L": 21, "S": 37, "D": 8}
            given = tuple(x.double() for x in reference.draw(size, name, 5, torch.float32))
            kept = reference.keep(mask, 2, 21, 37)
            found = reference.evaluate(given, kept, torch.float64)
            q, k, v = (x.clone().requires_grad_() for x in given[:3])
            scores = q @ k.repeat_interleave(2, 1).transpose(-1, -2) * 8**-0.5
            dead = ~kept.any(-1, keepdim=True)
            p = scores.masked_fill(~kept, float("-inf")).masked_fill(dead, 0).softmax(-1).masked_fill(dead, 0)
            out = p @ v.repeat_interleave(2, 1)
            wanted = (out, *torch.autograd.grad(out, (q, k, v), given[3]))
            for tensor, want in zip(reference.TENSORS, wanted, strict=True):
                worst = max(worst, float((found[tensor] - want.detach()).norm() / want.detach().norm()))
    return worst < 1e-10 or worst


def no_generator_of_the_user_moves() -> Any:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    case_of, grid = piece("attention_case"), piece("shapes")
    case_of.observe(case_of.prepare(grid.cases("quick")[6], torch.bfloat16), torch.bfloat16, "cpu", case_of.sdpa)
    return bool(torch.equal(before, torch.get_rng_state()))


def what_does_not_fit_the_dtype_is_not_judged() -> Any:
    reference = piece("attention_case")
    # Four rows share two keys: dv is 4 · 60000 / 2.
    sizes = ((4, 0.1), (2, 0.1), (2, 60000.0), (4, 60000.0))
    given = tuple(torch.full((1, 1, rows, 8), value, dtype=torch.float16) for rows, value in sizes)
    kept = torch.ones(1, 1, 4, 2, dtype=torch.bool)
    expected = reference.expected(given, kept)
    nowhere = torch.full((1, 1, 2, 8), float("inf"), dtype=torch.float16)
    found = reference.measure({"dv": nowhere, "o": given[3]}, expected, torch.float16)
    return (found.get("unjudged") == ["dv"] and "o" in found["ratio"]) or found


def refusals_are_told_from_errors() -> Any:
    failure = piece("kit").failure
    found = [
        sorted(failure(error, device))
        for error, device in (
            (RuntimeError("No available kernel.  Aborting execution."), "cpu"),
            (TypeError("f() got an unexpected keyword argument 'enable_gqa'"), "cpu"),
            (RuntimeError("\"baddbmm\" not implemented for 'Half'"), "cpu"),
            (NotImplementedError("Could not run 'aten::_grouped_mm' with arguments from the 'CPU' backend."), "cpu"),
            (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "cuda"),
            (MemoryError(), "cpu"),
            (RuntimeError("shape mismatch"), "cpu"),
        )
    ]
    wanted = [["skip"]] * 4 + [["error", "oom"], ["error", "oom"], ["error"]]
    return found == wanted or found


def a_setting_that_raises_is_not_offered_where_the_plain_one_works() -> Any:
    in_setting, raised, right = piece("kit").in_setting, {"error": "TypeError: no such keyword"}, {"relative": 0.0}
    pairs = [(raised, right), (raised, raised), ({**raised, "oom": True}, right), ({"relative": 9.0}, right)]
    found = [sorted(in_setting(*pair)) for pair in pairs]
    return found == [["skip"], ["error"], ["error", "oom"], ["relative"]] or found


def a_wrong_block_of_rows_counts_by_itself() -> Any:
    kit, exact = piece("kit"), torch.randn(1024, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    wrong = exact.to(torch.bfloat16)
    wrong[960:] *= 1.03
    found = [kit.compare({"o": value}, {"o": exact})["ratio"]["o"] for value in (exact.to(torch.bfloat16), wrong)]
    off = wrong.double() - exact
    whole = float(off.norm() / (exact.to(torch.bfloat16).double() - exact).norm())
    return (found[0] <= 1.01 and whole < 5 < 8 < found[1]) or [found, whole]


def a_block_of_rows_without_a_key_and_one_with_one_key_is_no_alarm() -> Any:
    """Its dq is zero: the noise of a healthy kernel came to 4e21 times that of rounding."""
    sizes = {"B": 3, "H": 2, "Hk": 2, "L": 199, "S": 199, "D": 32, "number": 203}
    case = {**sizes, "mask": "bias_left", "layout": "offset", "dout": "hf", "stress": "unit", "gqa": ""}
    attention = piece("attention_case")
    prepared = attention.prepare(case, torch.bfloat16, 3)
    found = attention.observe(prepared, torch.bfloat16, "cpu", attention.sdpa)
    return found["ratio"]["dq"] < 4 or found


def a_row_says_which_of_its_results_is_the_worst() -> Any:
    kit, emitted = piece("kit"), []

    def twice(x: Any) -> Any:
        return {"a sum is off by {}": x + x, "a square is off by {}": 1.5 * x * x}

    def gone(x: Any) -> Any:
        raise kit.Unavailable("not here")

    row = kit.Case("row", twice, lambda x: [2 * x, x * x], ((3, 4),), judge="change", limit=1e-5)
    again = row._replace(function=lambda x: {"{}": torch.full((1,), float(len(emitted)))}, formula=None)
    rows = (row, again._replace(judge="exact", limit=0.0), row._replace(function=gone))
    kit.run_rows({"device": "cpu", "seed": 3}, emitted.append, rows)
    found = [(case.get("detail"), case.get("difference"), case.get("skip")) for case in emitted]
    wanted = [("a square is off by 0.5", None, None), ("0", 0.0, None), (None, None, "not here")]
    return found == wanted or found


# --- packages, emulated in plain torch by what their documentation says --------------------------------------------


def _plain(q: Any, k: Any, v: Any, causal: bool) -> Any:
    """(B, L, H, D), causal aligned to the lower right corner, rows without a key give zeros."""
    group = q.shape[2] // k.shape[2]
    q, k, v = (
        q.transpose(1, 2),
        k.transpose(1, 2).repeat_interleave(group, 1),
        v.transpose(1, 2).repeat_interleave(group, 1),
    )
    scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    kept = torch.ones(scores.shape[-2:], dtype=torch.bool)
    kept = kept.tril(kept.shape[1] - kept.shape[0]) if causal else kept
    dead = ~kept.any(-1, keepdim=True)
    p = scores.masked_fill(~kept, float("-inf")).masked_fill(dead, 0).softmax(-1).masked_fill(dead, 0)
    return (p @ v).transpose(1, 2)


def _flash_attn(forget_padding: bool) -> ModuleType:
    module = ModuleType("flash_attn")

    def varlen(q: Any, k: Any, v: Any, starts_q: Any, starts_k: Any, most_q: int, most_k: int, causal: bool) -> Any:
        assert starts_q.dtype == starts_k.dtype == torch.int32
        assert int(starts_q.diff().max()) <= most_q and int(starts_k.diff().max()) <= most_k
        if forget_padding:
            return _plain(q[None], k[None], v[None], causal)[0]
        parts = []
        for number in range(len(starts_q) - 1):
            rows, keys = (slice(int(s[number]), int(s[number + 1])) for s in (starts_q, starts_k))
            parts.append(_plain(q[None, rows], k[None, keys], v[None, keys], causal)[0])
        return torch.cat(parts)

    module.flash_attn_func = _plain  # type: ignore[attr-defined]
    module.flash_attn_varlen_func = varlen  # type: ignore[attr-defined]
    return module


def _prepared(cases: Any) -> list[Any]:
    return [piece("attention_case").prepare(case, torch.float32) for case in cases]


def _observations(prepared: list[Any], kernel: Any) -> list[Any]:
    return [piece("attention_case").observe(case, torch.float32, "cpu", kernel) for case in prepared]


def main() -> None:
    packages = import_module(f"{PACKAGE}.probes.attention_checks")
    whole = _prepared(packages.FLASH_ATTN)
    sys.modules["flash_attn"] = _flash_attn(forget_padding=False)
    found = {
        "checks": {name: globals()[name]() for name in sys.argv[2:]},
        "flash_attn": _observations(whole, packages.flash_attn_kernel),
    }
    sys.modules["flash_attn"] = _flash_attn(forget_padding=True)
    found["flash_attn without padding"] = _observations(whole, packages.flash_attn_kernel)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
