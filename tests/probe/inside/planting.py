"""Planting a fault by its name, whichever kind it is. Runs in an interpreter that has torch."""

from __future__ import annotations

import card_faults  # noqa: F401 — each of these puts its faults into the table
import faults  # noqa: F401
import fifth_faults  # noqa: F401
import flaky_faults  # noqa: F401
import fourth_faults  # noqa: F401
import loop_faults  # noqa: F401
import second_faults  # noqa: F401
import shape_faults  # noqa: F401
import stranger_faults  # noqa: F401
import third_faults  # noqa: F401
import trial_faults  # noqa: F401
from patches import FAULTS, Put


def plant(name: str, put: Put) -> None:
    """Put the fault in place through ``put(module, name, value)``."""
    FAULTS[name](put)
