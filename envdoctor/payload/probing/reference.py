"""The float64 truth of attention, and the error that rounding alone must make: what a kernel's result is divided by.

One routine is evaluated twice. In float64 without rounding it is the truth. In float32, rounding to the tested dtype
exactly where every fused half-precision kernel must (P, O, dS, the results, and P rebuilt from a float32 logsumexp),
it is the *model*. A kernel whose error is many times the model's lost accuracy that it did not have to lose. Comparing
with an unfused implementation in the same dtype instead would pass kernels that are 95 times worse than they had to be.

Shapes: q and dO (B, H, L, D); k and v (B, Hk, S, D); keep (B, 1, L, S) says which keys a row may see. A row that may
see none is *dead*. Everything is computed on the CPU, whatever device is tested: the truth must not depend on it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from .kit import ENOUGH, lost, note_error

TENSORS = ("o", "dq", "dk", "dv")
_NO_BIAS = torch.zeros(())


class Expected(NamedTuple):
    """Truth and model of one case, by tensor, with the ``dead`` rows (B, 1, L) and the range of the logsumexp."""

    truth: dict[str, Any]
    model: dict[str, Any]
    dead: Any
    lse: list[float]


def evaluate(
    given: tuple[Any, Any, Any, Any], keep: Any, precision: Any, rounded: Any = None, bias: Any = 0.0
) -> dict[str, Any]:
    """o, dq, dk, dv and lse of (q, k, v, dO) in ``precision``, with a ``bias`` added to the logits.

    With a dtype ``rounded``, what a kernel of that dtype must round is rounded to it and taken back.
    """

    def r(x: Any) -> Any:
        return x if rounded is None else x.to(rounded).to(precision)

    q, k, v, upstream = (tensor.to(precision) for tensor in given)
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scale = q.shape[-1] ** -0.5
    dead = ~keep.any(-1, keepdim=True)
    # Dead rows get zeros for logits and then for probabilities, so that nothing is NaN by construction.
    scores = (scale * (q @ k.transpose(-1, -2)) + bias).masked_fill(~keep, float("-inf")).masked_fill(dead, 0.0)
    p = torch.softmax(scores, -1).masked_fill(dead, 0.0)
    o = r(r(p) @ v)
    lse = torch.logsumexp(scores, -1, keepdim=True)
    # The backward computes the logits anew, and may fold the scale into q: where it is no power of two they differ in
    # the last bit, which exp turns into a relative error of |logit| ulps. It is what float32 kernels are limited by.
    again = ((scale * q) @ k.transpose(-1, -2) + bias).masked_fill(~keep, float("-inf")).masked_fill(dead, 0.0)
    rebuilt = torch.exp(again - lse).masked_fill(dead, 0.0)
    delta = (upstream * o).sum(-1, keepdim=True)
    ds = r(rebuilt * (upstream @ v.transpose(-1, -2) - delta))

    def heads(x: Any) -> Any:  # torch rounds the gradients of the heads of a group, and their sum
        return r(x).reshape(x.shape[0], -1, group, *x.shape[2:]).sum(2)

    dq = r(scale * (ds @ k))
    dk = r(heads(scale * (ds.transpose(-1, -2) @ q)))
    dv = r(heads(r(rebuilt).transpose(-1, -2) @ upstream))
    return {"o": o, "dq": dq, "dk": dk, "dv": dv, "lse": lse}


def expected(given: tuple[Any, Any, Any, Any], keep: Any, bias: Any = _NO_BIAS) -> Expected:
    """Truth and model for (q, k, v, dO) that are already rounded to the tested dtype."""
    truth = evaluate(given, keep, torch.float64, bias=bias.double())
    model = evaluate(given, keep, torch.float32, given[0].dtype, bias.float())
    lse = [round(float(truth["lse"].min()), 1), round(float(truth["lse"].max()), 1)]
    return Expected(truth, model, ~keep.any(-1), lse)


def measure(got: dict[str, Any], case: Expected, dtype: Any) -> dict[str, Any]:
    """The measures of an observation: ``ratio``, ``nonfinite``, ``dead_rows_nonfinite``, ``dead_dq_nonfinite``,
    ``unjudged``.

    Only live rows count for o and dq, all rows for dk and dv. A tensor whose truth does not fit the dtype is unjudged.
    """
    found: dict[str, Any] = {"ratio": {}, "nonfinite": {}, "unjudged": []}
    rows, keys = case.truth["o"].shape[2], case.truth["dk"].shape[2]
    for name, tensor in got.items():
        x = tensor.detach().to("cpu", torch.float64)
        numbers = x, case.truth[name], case.model[name].to(torch.float64)
        if name in ("o", "dq"):
            lost_in_dead = lost(x[case.dead.expand(x.shape[:3])])
            if name == "o":
                found["dead_rows_nonfinite"] = lost_in_dead
            elif lost_in_dead:
                # Its truth is 0, and the gradient of q's projection is summed over these rows too.
                found["dead_dq_nonfinite"] = lost_in_dead
            numbers = (x.masked_fill(case.dead[..., None], 0.0), *numbers[1:])  # of dead rows truth and model are 0
        # The last keys of a triangle are seen by few rows: dk of 64 keys may be 9 times off where a head is right.
        block = 0 if min(rows, keys) < ENOUGH else 64 if name in ("o", "dq") else keys
        note_error(found, name, numbers, dtype, block)
    unjudged = found.pop("unjudged")
    return {**found, "unjudged": unjudged} if unjudged else found
