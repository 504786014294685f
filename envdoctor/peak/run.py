"""Complete the facts of a run before its peak is predicted: how GPUs and processes share it, the sizes that its GPU
is sold with, what its weights are loaded as, and how many parameters its
files hold, by their safetensors headers alone."""

import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from envdoctor.facts.factset import FactSet, View
from envdoctor.facts.values import ABSENT, Fact, Range, Records, Value
from envdoctor.matrix.gpu_code import gpu_named
from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.model.config import Shape
from envdoctor.observe.recipe.recipe import gpus_named
from envdoctor.peak.recipe import engine_of, settings_of
from envdoctor.peak.sizes import inner_sizes, of_language, size_of
from envdoctor.peak.tracing import Job, Trace, TraceSource, changed, with_terms
from envdoctor.revision.hub.local import LocalSnapshot
from envdoctor.revision.hub.safetensors_header import LARGEST_HEADER, HeaderError, parse_header
from envdoctor.revision.hub.snapshot import FileEntry
from envdoctor.system.files import Files
from envdoctor.system.message import Message

#: The parts that each stage of ZeRO divides among the processes.
_ZERO = (
    Message("nothing"),
    Message("optimizer states"),
    Message("optimizer states and gradients"),
    Message("optimizer states, gradients and weights"),
)


#: Values of device_map with which accelerate spreads the layers over the GPUs: evenly, or filling one after the other.
_SPREAD = ("auto", "balanced", "balanced_low_0", "sequential")


def divided(facts: FactSet, each: bool) -> tuple[FactSet, list[Message], tuple[str, Message] | None]:
    """Return the facts, with a process on each GPU if the run is divided among an unknown number of processes, or its
    framework starts one on ``each``; a sentence about how several GPUs or processes share it; and why a run that one of
    them does not hold may fit all the same, with the level of that notice."""
    gpus, world, stage = (facts.records("gpu"), *map(facts.number, ("recipe.world_size", "recipe.zero_stage")))
    count, fsdp = len(gpus) if gpus is not None and not gpus.incomplete else 0, facts.value("recipe.fsdp") is True
    cards, visible, notes = count, facts.get("env.CUDA_VISIBLE_DEVICES"), list[Message]()
    if visible.source == "recipe":  # what else is there is not seen
        cards = gpus_named(str(visible.value)) or count
    spread, divided = facts.text("recipe.device_map"), stage is not None or fsdp
    whole = each and spread is None and ("recipe.zero_stage" not in facts or facts.absent("recipe.zero_stage"))
    if world is None and (divided or whole) and cards:
        world, origin = cards, Message("one process on each GPU")
        facts = facts.copy([*facts, Fact("recipe.world_size", world, origin, "derived")])
        text = "one process was taken, because one GPU is known; for several give --gpu 8xNAME"
        notes = [Message(text)] if count == 1 and divided else []
        gpu = facts.get("gpu")
        if notes and cards == 1 and gpu.source == "given" and " 1x" not in str(gpu.origin):
            text = "one GPU does not hold the run, and how many there are is not said: --gpu 8xNAME, or 1xNAME"
            return facts, notes, ("warning", Message(text))  # a question that `check` was not asked
    processes = int(world or 1)
    if engine_of(settings_of(facts)) is not None:
        ranks = int(facts.number("recipe.tensor_parallel") or 1)
        text = "{} GPUs, and the engine divides each layer among {} (tensor parallel)"
        return facts, [Message(text, cards, ranks)] if cards > 1 else [], None
    if processes > 1 and divided:
        level, by = (3, "FSDP") if stage is None else (int(stage), f"ZeRO-{int(stage)}")
        parts = _ZERO[min(max(level, 0), 3)]
        notes = [Message("data parallel, {} processes: {} divides {} among them", processes, by, parts)]
        zero = facts.get("recipe.zero_stage")
        notes += [zero.origin] if isinstance(zero.origin, Message) and zero.source != "preset" else []
    elif spread in _SPREAD and (over := cards // processes) > 1:
        notes = [Message("device_map={} spreads the layers of a process over {} GPUs", spread, over)]
        layers = Fact("recipe.layers_over", over, Message("the GPUs of a process"), "derived")
        return facts.copy([*facts, layers]), notes, None
    elif processes > 1:
        notes = [Message("data parallel: each of {} processes holds the whole model", processes)]
    if processes > 1 or cards < 2 or (world is not None and spread is None):
        return facts, notes, None
    text = (
        "one GPU does not hold the run, and how {} share it is not known: "
        "give --set recipe.zero_stage=3 or recipe.fsdp=true"
    )
    taken = "the recipe does not say how {} GPUs share the run: each was taken to hold the whole model (data parallel)"
    return facts, [Message(taken, cards)], ("error", Message(text, cards))


#: The name of a GPU, and a size in GB that it is sold with.
Size: TypeAlias = tuple[str, int]


def sizes(facts: FactSet, matrix: Matrix) -> Iterator[tuple[Size | None, FactSet]]:
    """Yield, for a GPU of which only the name is known, each size that it is sold with and the facts with its usable
    memory; (None, facts) if there is only one size."""
    gpus = facts.value("gpu")
    if not isinstance(gpus, Records) or not gpus:
        yield None, facts
        return
    sold = [_sold(item, gpu, matrix) for item, gpu in zip(gpus, facts.each("gpu"), strict=True)]
    origin = Message("the GPUs that were found, table gpus")
    for place in range(max(map(len, sold))):
        names, items = zip(*(choices[min(place, len(choices) - 1)] for choices in sold), strict=True)
        gpu = Fact("gpu", Records(items, gpus.incomplete), origin, "derived")
        yield next(filter(None, names), None), facts.copy([*facts, gpu])


def _sold(item: Mapping[str, Value], gpu: View, matrix: Matrix) -> list[tuple[Size | None, Mapping[str, Value]]]:
    """Return the sizes that a GPU is sold with, unless its name or record tells the size, and the record with each."""
    gpu_row, memory = gpu_named(gpu.text("name") or "", matrix), item.get("memory_gib")
    if gpu_row is None or not gpu.unknown("free_gib"):
        return [(None, item)]
    usable = dict(zip(gpu_row.row.get("memory_gb", ()), gpu_row.row.get("usable_gib", ()), strict=False))
    if isinstance(memory, Range):
        names = {size: f"{gpu_row.name} {size}GB" for size in memory.releases}
        items = [{**item, "name": names[size], "memory_gib": usable.get(size, size)} for size in names]
        return [((gpu_row.name, int(size)), sized) for size, sized in zip(names, items, strict=True)]
    return [(None, {**item, "memory_gib": usable[memory]} if memory in usable else item)]


def trained_as_loaded(facts: FactSet) -> FactSet:
    """Return the facts without the dtype of the training if the weights are only loaded in it (``torch_dtype`` of
    from_pretrained, ``pure_bf16``): that switches autocast on only in ms-swift, which uses it for both."""
    loaded, switches = facts.get("recipe.load_dtype"), {"bf16", "fp16", "mixed_precision"}
    switched = switches.intersection(facts.words("recipe.arguments") or ())
    apart = not loaded.origin or loaded.source == "given" or facts.get("recipe.dtype").origin != loaded.origin
    if switched or apart or facts.value("recipe.framework") == "ms-swift":
        return facts
    return facts.copy([*facts, loaded._replace(key="recipe.dtype", value=ABSENT)])


def as_loaded(facts: FactSet, shape: Shape | None, config: Mapping[str, Any], own_dtype: bool) -> FactSet:
    """Return the facts with the quantisation and the dtype of the weights as the model's files have them, or its name:
    the ``shape``. A model whose code has its ``own_dtype`` is loaded in it where the recipe names none."""
    facts = _quantized(facts, shape, config)
    if shape is not None and shape.config.get("dtype") == "float32":
        facts = facts.copy([*facts, Fact("model.dtype", "float32", Message("the model's name"), "derived")])
    if own_dtype and facts.absent("recipe.load_dtype"):
        facts = facts.copy(fact for fact in facts if fact.key != "recipe.load_dtype")
    return facts


def as_trained(facts: FactSet, rows: Iterable[Mapping[str, Any]], packs: bool) -> tuple[FactSet, list[Message]]:
    """Return the facts without the quantisation of weights that the run has dequantised, and a sentence that says so:
    by the recipe, or because they cannot be trained packed. ``rows`` are the weights of the table memory-terms;
    ``packs``: the framework trains them packed."""
    kinds = {facts.text("recipe.quantization"), facts.text("model.quantization")} - {None}
    whole = facts.value("recipe.dequantize") is True and facts.known("model.quantization")
    untrained = [row["key"] for row in rows if row["key"] in kinds and "trains" in row]
    trains = facts.value("recipe.method") != "infer" and engine_of(settings_of(facts)) is None
    if not whole and (packs or not trains or not untrained):
        return facts, []
    kind = (untrained or sorted(map(str, kinds)))[0]
    changed = [Fact("recipe.quantization", ABSENT, "", "derived")]
    if facts.value("recipe.method") == "qlora":
        changed.append(Fact("recipe.method", "lora", "", "derived"))
    text = "weights in {} are dequantised before they are trained: they were counted in the dtype of the run"
    if whole:
        text = "the recipe dequantises the weights, which are stored in {}: they were counted in the dtype of the run"
    return facts.copy([*facts, *changed]), [Message(text, kind)]


def _quantized(facts: FactSet, shape: Shape | None, config: Mapping[str, Any]) -> FactSet:
    """Return the facts, with the quantisation of the model's files or its name if the recipe has none."""
    kind = shape.quantized if shape is not None else None
    kind = facts.text("model.quantization") if kind is None else kind
    if kind is None or facts.text("recipe.quantization") is not None:
        return facts
    if not kind:  # as GPTQ has as many bits
        kind = "gptq" if shape is not None and shape.bits == 4 else "gptq-8bit"
    settings, name = config.get("quantization_config"), str(facts.value("model.repo")).lower()
    eight = "int8" in name or "8bit" in name
    if isinstance(settings, dict):
        eight = settings.get("bits") == 8 or settings.get("load_in_8bit") is True
    kind = kind if kind != "bitsandbytes" else "bnb" if eight else "bnb-4bit"
    method = f"{kind}-8bit" if eight and not kind.endswith("-8bit") else kind
    return facts.copy([*facts, Fact("recipe.quantization", method, Message("the model's name"), "derived")])


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
