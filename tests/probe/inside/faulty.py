"""A payload script: one real probe with a fault planted, which is taken out again behind it.

The job is that of the probe, with its script in ``script`` and the name of the fault in ``fault`` (None: none); where
its options have ``drawn``, of the rows that a script draws so many run. What a
case of attention must give is computed once for all faults, which makes it cheap to try many in one process; for one
dtype and seed at a time, which is two gigabytes. So are the errors of results that a fault leaves as they are.
"""

from __future__ import annotations

import os
import sys
from hashlib import blake2b
from importlib import import_module
from itertools import islice
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "..", "..", "envdoctor")]

_prepared: dict[Any, Any] = {}


def run(job: dict[str, Any], emit: Any) -> None:
    case_of = import_module("payload.probing.attention_case")
    if not hasattr(case_of.prepare, "kind"):
        case_of.prepare = _remembering(case_of.prepare)
        case_of.measure = _measuring(case_of.measure)
    kind = [job["dtype"], job["seed"]]
    if job["script"].endswith(":attention") and case_of.prepare.kind != kind:
        case_of.prepare.kind = kind
        _prepared.clear()
    replaced: list[tuple[Any, str, Any]] = []

    def put(place: Any, name: str, value: Any) -> None:
        replaced.append((place, name, getattr(place, name)))
        setattr(place, name, value)

    if job["fault"] is not None:
        import_module("planting").plant(job["fault"], put)
    # What a fault does to processes that the probe starts itself.
    os.environ.update(PYTHONPATH=HERE, ENVDOCTOR_TEST_FAULT=job["fault"] or "")
    try:
        path, _, function = job["script"].partition(":")
        script = import_module("payload." + path[:-3].replace("/", "."))
        if job["fault"] is not None and job["reached"] and script.__name__.endswith(".arithmetic"):
            import_module("reaching").only_reached(script, put)
        first, shapes = job["options"].get("drawn"), import_module("payload.probing.shapes")
        if first:
            few = _first(shapes.drawn, first)
            for module in (shapes, script):
                if hasattr(module, "drawn"):
                    put(module, "drawn", few)
        getattr(script, function or "run")(job, emit)
    finally:
        for place, name, value in reversed(replaced):
            setattr(place, name, value)


def _first(drawn: Any, rows: int) -> Any:
    return lambda seed, **axes: islice(drawn(seed, **axes), rows)


def _remembering(prepare: Any) -> Any:
    def prepared(case: dict[str, Any], dtype: Any, seed: int = 0) -> Any:
        key = (*case.items(), dtype, seed)
        if key not in _prepared:
            _prepared[key] = prepare(case, dtype, seed)
        return _prepared[key]

    prepared.kind = []  # type: ignore[attr-defined]
    return prepared


def _measuring(measure: Any) -> Any:
    def measured(got: dict[str, Any], expected: Any, dtype: Any) -> Any:
        digest = blake2b()
        for tensor in got.values():
            digest.update(tensor.detach().contiguous().view(import_module("torch").uint8).numpy())
        key = id(expected), digest.digest()  # of what lives as long
        if key not in _prepared:
            _prepared[key] = measure(got, expected, dtype)
        return dict(_prepared[key])

    return measured
