"""What the numbers that the Trainer logs give away. Pure: no torch, one log entry at a time."""

import math
from collections.abc import Mapping


def event_of_log(entry: Mapping[str, object]) -> str | None:
    """Return the event (a word of the fact ``watch.event``) that one entry of ``Trainer.state.log_history`` shows.

    With ``logging_nan_inf_filter``, the Trainer's default, a loss that is not finite is logged as 0.0: what remains of
    it is the gradient norm. Evaluation is filtered since transformers 5.23.0 (while one of its losses is finite), not
    in older releases. Seen alike with transformers 4.48.0 and 5.17.0: weights poisoned with NaN log (0.0, nan),
    a batch whose labels are all ignored logs (0.0, 0.0).
    """
    loss, norm, evaluated = (_number(entry.get(key)) for key in ("loss", "grad_norm", "eval_loss"))
    if evaluated is not None and not math.isfinite(evaluated):
        return "nan-eval-loss"
    if norm is not None and math.isnan(norm):
        return "zero-loss-nan-norm" if loss == 0.0 else "nan-gradient"
    if norm is not None and math.isinf(norm):
        return "infinite-norm"
    if loss is not None and not math.isfinite(loss):
        return "nan-loss"
    if loss == 0.0 and norm == 0.0:
        return "zero-loss-zero-norm"
    return None


def _number(value: object) -> float | None:
    """Return a logged value as a number; some releases log one-element tensors, others texts."""
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None
