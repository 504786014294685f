"""Run the quick attention grid under every fault and print one JSON line an observation, with its ``fault``.

    python every_fault.py PAYLOAD_FOLDER [SEED]

The truth of a case is computed once for all faults, which is what makes this cheap enough for every test run; the
inputs, the kernel call and the measures are those of the probe.
"""

from __future__ import annotations

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import faults
import torch


def main(payload: str, seed: int) -> None:
    sys.path.insert(0, os.path.dirname(payload))
    package = os.path.basename(payload)
    from importlib import import_module

    case_of = import_module(package + ".probing.attention_case")
    grid = import_module(package + ".probing.attention_grid")
    sdpa = import_module(package + ".probing.sdpa").sdpa
    for case in grid.cases("quick"):
        prepared = case_of.prepare(case, torch.bfloat16, seed)
        for name in faults.FAULTS:
            faults.install(name)
            found = case_of.observe(prepared, torch.bfloat16, "cpu", sdpa)
            print(json.dumps({"fault": name, "dtype": "bf16", **found}))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
