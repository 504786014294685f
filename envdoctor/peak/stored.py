"""How many parameters the files of a model hold, by their safetensors headers alone, and what quantised ones take."""

import math
import os
import re
from collections.abc import Mapping
from typing import Any

from envdoctor.peak.sizes import inner_sizes, of_language, size_of
from envdoctor.peak.tracing import Job, Trace, TraceSource, changed, with_terms
from envdoctor.revision.hub.local import LocalSnapshot
from envdoctor.revision.hub.safetensors_header import LARGEST_HEADER, HeaderError, parse_header
from envdoctor.revision.hub.snapshot import FileEntry
from envdoctor.system.files import Files
from envdoctor.system.message import Message

#: As transformers names them; what lies beside them is an adapter's or an optimizer's.
_WEIGHTS = re.compile(r"model(?:-\d+-of-(\d+))?\.safetensors\Z")
#: What a model has beside the language model (a tower for images) is not what differs from the nearest type.
_ALIKE = 0.1

_ATTENTION = ("hidden_size", "num_attention_heads", "num_hidden_layers")


def counted(source: TraceSource, parameters: int, other: str | None = None) -> TraceSource:
    """Return traces of ``source`` whose weights are as many as the files hold, or the row of the model's name; of
    another size they are left alone, or, if given, ``other`` says that they are not the model's, unless it is the head
    that they lack (T5's is the embedding in transformers 5, whatever config.json says)."""

    def change(trace: Trace, job: Job) -> Trace | str:
        there = float(trace.model["parameters"])
        if abs(parameters / there - 1) <= _ALIKE:
            return _scaled(trace, parameters / there, parameters)
        sizes = [of_language(job["config"]).get(name) for name in ("hidden_size", "vocab_size")] if other else []
        head = math.prod(size for size in sizes if isinstance(size, int))
        return other if other and abs((parameters - head) / there - 1) > _ALIKE else trace

    return changed(source, change)


def packed_weights(
    source: TraceSource, row: Mapping[str, Any], whole: bool = False, fused: bool = False
) -> TraceSource:
    """Return traces of ``source`` whose linear layers are quantised as the ``row`` of the table memory-terms says. A
    model that the job itself quantises is left alone. ``whole``: they may be dequantised too; ``fused``: the experts of
    a layer are one tensor."""
    each, head = float(row["bytes"]), "head" in row

    def change(trace: Trace, job: Job) -> Trace:
        if job["quantized"]:
            return trace
        linear = float(trace.model["layer_parameters"]) * int(trace.model["depth"])
        weights, parameters = float(trace.model["weight_bytes"]), float(trace.model["parameters"])
        beside = weights * max(0.0, 1 - linear / parameters)
        # Some files hold a head of their own where the model's is the embedding.
        own = beside if job["config"].get("tie_word_embeddings") else 0.0
        experts = (
            _experts(job["config"], linear) if fused and "linear" in row and not job.get("packed_experts") else 0.0
        )
        more = experts * max(weights / parameters - each, 0.0)
        size = linear * each + more + beside + (own if head else 0.0)
        trace = _scaled(trace, size / weights, round(parameters))
        if more:
            trace = trace._replace(model={**trace.model, "whole_experts": experts * weights / parameters})
        if "attention" in row:
            whole_attention = _attention(job["config"], linear) * max(weights / parameters - each, 0.0)
            trace = trace._replace(model={**trace.model, "whole_attention": whole_attention})
        apart = (0.0 if head else own) + (max(weights - size, 0.0) if whole else 0.0)
        return trace._replace(absent=own if head else trace.absent, apart=trace.apart + apart)

    return changed(source, change)


def _attention(config: Mapping[str, Any], most: float) -> float:
    """Return the parameters of all layers of attention, no more than ``most``."""
    config = of_language(config)
    try:
        hidden, heads, depth = (size_of(config, name) for name in _ATTENTION)
        keys, width = size_of(config, "num_key_value_heads", heads), size_of(config, "head_dim", hidden // heads)
    except ValueError:
        return 0.0
    return min(2.0 * depth * hidden * width * (heads + keys), most)


def _experts(config: Mapping[str, Any], most: float) -> float:
    """Return the parameters of the experts that a token may pass by, no more than ``most``."""
    config = of_language(config)
    try:
        hidden, depth = size_of(config, "hidden_size"), size_of(config, "num_hidden_layers")
        return min(3.0 * hidden * depth * inner_sizes(config, hidden)[2], most)
    except ValueError:
        return 0.0


def _scaled(trace: Trace, share: float, parameters: int) -> Trace:
    """Return the trace with ``share`` of the weights' bytes."""
    new = with_terms(trace, lambda terms: {**terms, "weights": terms.get("weights", 0.0) * share})
    model = {"parameters": parameters, "weight_bytes": trace.model["weight_bytes"] * share}
    return new._replace(model={**trace.model, **model})


def stored_parameters(folder: str) -> int | None:
    """Return the number of values of all tensors; None if a file is missing or invalid."""
    try:
        matches = {name: match for name in Files().names(folder) if (match := _WEIGHTS.match(name))}
        places = {name: os.path.join(folder, name) for name in matches}
        files = {name: FileEntry(name, os.stat(place).st_size, None) for name, place in places.items()}
    except OSError:
        return None
    expected = {int(match[1] or 1) for match in matches.values()}
    if expected != {len(matches)}:
        return None
    shapes = {}
    snapshot = LocalSnapshot(folder, folder, files, places, (), LARGEST_HEADER, Message("it is not there"))
    try:
        for name, data in snapshot.headers(list(files)).items():
            if not isinstance(data, bytes):
                return None
            tensors = parse_header(data, files[name].size).tensors
            shapes.update({name: tensor.shape for name, tensor in tensors.items()})
    except HeaderError:
        return None
    return sum(map(math.prod, shapes.values()))
