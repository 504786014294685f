"""Do the statements work that people begin with? The real import settles what no metadata says.

A package takes names that another release of a neighbour no longer has, and every declared requirement is met:
``from transformers import HybridCache`` stops ``import peft`` from transformers 5 on
(https://github.com/huggingface/peft/issues/3333). Which statements are tried stands in the table entry-statements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..probing.statements import Result, run_in_turn

PROBE = {
    "title": "imports of the installed packages",
    "needs": (),
    "suites": {"full": [{}]},
    "entries": True,
    "seconds": {"cpu": 600, "cuda": 600},
    "memory_mib": 8000,
    "gpu_memory_mib": None,
    "alone": True,
}
#: What one statement may take; a cold network disk makes tens of seconds of an import.
SECONDS = 180.0


def run(job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    """One observation a statement, for the judge ``import``."""

    def tell(statement: str, result: Result) -> None:
        emit({"case": statement, "judge": "import", **result})

    run_in_turn(list(job["entries"]), tell, SECONDS)
