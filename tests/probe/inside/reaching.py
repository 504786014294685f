"""Of the experiment ``arithmetic`` only the operations that call what a fault replaces: the others give what they give
without it, and ``test_models.py`` asks all of them once. Runs where torch is."""

from __future__ import annotations

import random
import sys
from typing import Any

from patches import CALLS, Put

_KINDS = {"size": "tails", "dtype": "fp32", "layouts": "plain", "values": "unit", "beside": "same"}


def only_reached(arithmetic: Any, put: Put) -> None:
    """Leave out the operations of the loaded experiment that a planted fault cannot reach."""
    kit = sys.modules[arithmetic.run_rows.__module__]
    reached = {}
    for name, operation in arithmetic.OPERATIONS.items():
        before = CALLS[0]
        try:
            kit._measured(arithmetic._operation("cpu", name, _KINDS, random.Random(0)), {"device": "cpu"})
        except Exception:  # it is not for numbers of this kind
            CALLS[0] += 1
        if CALLS[0] > before:
            reached[name] = operation
    put(arithmetic, "OPERATIONS", reached)
