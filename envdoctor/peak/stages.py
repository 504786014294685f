"""What a stage of training has on the GPU beside the step that is traced: other models, an engine, or fewer terms."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.peak.closed_form import GENERATING, OF_THE_MODEL, gpu_of
from envdoctor.peak.tracing import Changed, Job, Trace, TraceSource, with_terms
from envdoctor.system.message import Message

#: What a second model that is trained holds of its own for each batch.
_ACTIVATIONS = ("embeddings and masks", "hidden states", "attention", "MLP")
#: How often a value model holds its parameters: they, their gradients, and AdamW's two states.
_TRAINED = 4


class Stage(NamedTuple):
    """The traced step is that of ``like``, with a ``reference`` model or without; ``models`` stand beside the traced
    one and are as large, ``engine`` are the bytes of an engine that generates, ``drops`` are terms that the traced step
    has and this one has not, ``spared`` those that it may not have."""

    like: str = "sft"
    reference: bool = False
    models: tuple[str, ...] = ()
    engine: float = 0.0
    drops: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()


def staged(source: TraceSource, stage: Stage) -> TraceSource:
    """Return the traces of a source as the ``stage`` has them."""

    def terms_of(trace: Trace, job: Job, terms: Mapping[str, float]) -> dict[str, float]:
        weights, config = float(trace.model["weight_bytes"]), job["config"]
        beside = {
            "value model": _TRAINED * weights + sum(terms.get(name, 0.0) for name in _ACTIVATIONS),
            "reward model": weights,
        }
        # The share of the parameters that are in a head for the language, if config.json tells that it has its own.
        sizes: Any = [config.get(name) for name in ("vocab_size", "hidden_size")]
        untied = config.get("tie_word_embeddings") is False and all(isinstance(size, int) for size in sizes)
        of_head = math.prod(sizes) / float(trace.model["parameters"]) if stage.drops and untied else 0.0
        with_head = () if not 0 < of_head < 0.5 else ("weights",) if job["lora"] else OF_THE_MODEL
        new = {
            name: size * (1 - of_head) if name in with_head else size
            for name, size in terms.items()
            if name not in stage.drops
        }
        new |= {name: beside[name] for name in stage.models}
        return new | ({GENERATING: stage.engine} if stage.engine else {})

    def change(trace: Trace, job: Job) -> Trace:
        return with_terms(trace, partial(terms_of, trace, job))

    return Changed(source, change) if stage.models or stage.engine or stage.drops else source


def stage_of(
    facts: FactSet, known: Mapping[str, Any], given: Mapping[str, Any], keys: Mapping[str, str], assumed: list[str]
) -> Stage:
    """Return the stage by its row in ``known``, the table memory-frameworks, and add to ``assumed`` what was taken.
    ``given`` is the recipe, ``keys`` are those of its files."""
    name, framework = str(given.get("stage") or "sft"), given.get("framework")

    def about(row: Mapping[str, Any]) -> bool:
        own = row["name"] == name and row.get("framework", framework) == framework
        return own and all(keys.get(key) in words for key, words in row.get("where", {}).items())

    row: Mapping[str, Any] = next(filter(about, known["stage"]), {"like": "dpo"})
    if row["like"] != name and name != "pt":
        assumed.append(Message("the stage {} is taken to need what {} does", name, row["like"]))
    if row.get("generates"):
        text = "{}: the step that trains; the answers are generated, and rewarded, before it or elsewhere"
        assumed.append(Message(text, name.upper()))
    if row.get("drops"):
        assumed.append(Message("the model has a few outputs of its own: no head for the language, and no logits"))
    wanted = all(keys.get(key) == value for key, value in row.get("only", {}).items())
    models = tuple(row.get("models", ())) if wanted else ()
    if models:
        text = "other models may be on the same GPU, each as large as this one at the most: {}"
        assumed.append(Message(text, ", ".join(models)))
    engine, sure = (
        _engine(facts, known, given, assumed) if row.get("generates") and given.get("colocate") else (0.0, True)
    )
    reference = row["like"] != "sft" and row.get("reference") != "none"
    spared = (*row.get("spared", ()), *models, *(() if sure else (GENERATING,)))
    return Stage(row["like"], reference, models, engine, tuple(row.get("drops", ())), spared)


def _engine(
    facts: FactSet, known: Mapping[str, Any], given: Mapping[str, Any], assumed: list[str]
) -> tuple[float, bool]:
    """Return the bytes of the engine that generates on the same GPU (0 if no GPU is known), and whether it surely has
    them while the model trains: not if it sleeps, or if its share is vLLM's default because no other is known."""
    own = [
        row["engine_share"]
        for row in known["framework"]
        if row["name"] == given.get("framework") and "engine_share" in row
    ]
    told, gpu = given.get("gpu_memory_utilization"), gpu_of(facts.each("gpu"), 2)
    share = float(told or [*own, *known["engine"][0]["share"]][0])
    if told is None:
        assumed.append(Message("{} was not given: {}", "gpu_memory_utilization", f"{share:g}"))
    if gpu is None:
        assumed.append(Message("the engine that generates on the same GPU is not counted, because no GPU is known"))
        return 0.0, True
    text = Message("an engine that generates takes {} of the same GPU", f"{share:.0%}")
    if asleep := bool(given.get("sleep_mode")):
        text = Message("an engine that generates takes {} of the same GPU, less while the model trains", f"{share:.0%}")
    assumed.append(text)
    return share * gpu.total, bool(told or own) and not asleep
