"""Run scripts of attention cases and compare their tensors with those of the probe, one JSON line a script.

    python same_inputs.py PAYLOAD_FOLDER < lines

A line of the input is {"grid": "quick", "number": 7, "dtype": "bf16", "script": "..."}. A line of the output has
``number``, ``printed`` (lines) and ``differs``: names of tensors whose numbers or strides are not the probe's.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from typing import Any

import torch


def main(payload: str) -> None:
    sys.path.insert(0, os.path.dirname(payload))
    package = os.path.basename(payload)
    from importlib import import_module

    case_of = import_module(package + ".probing.attention_case")
    dtypes = import_module(package + ".probing.kit").DTYPES
    grids = {name: import_module(package + ".probing.shapes").cases(name) for name in ("quick", "full")}
    for line in sys.stdin:
        asked = json.loads(line)
        case = grids[asked["grid"]][asked["number"]]
        dtype = dtypes[asked["dtype"]]
        prepared = case_of.prepare(case, dtype)
        names: dict[str, Any] = {}
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(asked["script"], "script", "exec"), names)
        q, k, v = case_of.arrange(prepared.inputs, case["layout"])
        mask, _ = case_of.hand_over(case["mask"], prepared.kept, dtype, "cpu")
        ours = {"q": q, "k": k, "v": v, "do": case_of.UPSTREAMS[case["dout"]](prepared.gradient), "mask": mask}
        differs = [name for name, tensor in ours.items() if not _same(tensor, names.get(name))]
        print(json.dumps({"number": asked["number"], "printed": printed.getvalue().splitlines(), "differs": differs}))


def _same(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    # A dimension of one element has no stride to speak of.
    steps = [[step for step, size in zip(x.stride(), x.shape, strict=True) if size > 1] for x in (one, other)]
    aligned = [x.storage_offset() % 8 == 0 for x in (one, other)]
    return bool(
        one.dtype == other.dtype and torch.equal(one, other) and steps[0] == steps[1] and aligned[0] == aligned[1]
    )


if __name__ == "__main__":
    main(sys.argv[1])
