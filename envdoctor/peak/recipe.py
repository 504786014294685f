"""The facts of a recipe as the job of a trace, with what was taken for what was not given; and what a stage of training
has on the GPU beside the step that is traced: other models, an engine, or fewer terms."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, NamedTuple

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import ABSENT, Records, Unknown
from envdoctor.peak.closed_form import GENERATING, LOGITS, OF_THE_MODEL, gpu_of
from envdoctor.peak.section import MemoryProblem
from envdoctor.peak.sharing import WHOLE, division_is_known, divisions, partly, with_gathered, with_layers, with_scored
from envdoctor.peak.tracing import Job, Trace, TraceSource, changed, with_terms
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import satisfies

#: How much less what depends on the batch may take with a trainer's own code.
LESS = 0.5
_METHODS = ("full", "lora", "qlora", "serve", "infer")
#: The share by which another method of PEFT may take less than LoRA of rank 8, as readings of PEFT's own benchmark do
#: (benchmarks/memory_published.toml).
_UNLIKE_LORA = 0.05
_SERVING = ("vllm", "sglang", "lmdeploy")
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
#: What is in a recipe and not in a trace; each can only make the peak lower.
#: With the terms that may be gone with it.
_SAVERS: dict[str, tuple[str, tuple[str, ...]]] = {
    "kernels": (Message("kernels that replace parts of the model"), (LOGITS, "MLP")),
    "chunked_loss": (Message("the loss in chunks"), (LOGITS,)),
    "activation_offload": (Message("activations that go to the CPU"), ("hidden states", "attention", "MLP")),
    "torch_compile": ("torch.compile", ("MLP",)),
}
#: What a second model that is trained holds of its own for each batch.
_ACTIVATIONS = ("embeddings and masks", "hidden states", "attention", "MLP")
#: How often a value model holds its parameters: they, their gradients, and AdamW's two states.
_TRAINED = 4


class RunRecipe(NamedTuple):
    """The recipe in ``facts``: what is ``given`` (:func:`settings_of`), the settings of its files by their ``keys``,
    and ``trainer``, the row of its framework in ``known``, the table memory-frameworks (empty if it has none)."""

    facts: FactSet
    known: Mapping[str, Any]
    given: Mapping[str, Any]
    keys: Mapping[str, str]
    trainer: Mapping[str, Any]

    @property
    def adapted(self) -> str:
        """Return where the reference model of an adapter comes from."""
        return str(self.trainer.get("reference", "adapter-off"))


def recipe_of(facts: FactSet, known: Mapping[str, Any], hidden: int | None = None) -> RunRecipe:
    """Return the recipe; ``known`` is the table memory-frameworks, ``hidden`` a size of the model."""
    given = settings_of(facts, hidden, known["zero"])
    rows = (row for row in known["framework"] if row["name"] == given.get("framework"))
    return RunRecipe(facts, known, given, _keys_of(facts), next(rows, {}))


class Stage(NamedTuple):
    """The traced step is that of ``like``, with a ``reference`` model or without; ``models`` stand beside the traced
    one and are as large, ``engine`` are the bytes of an engine that generates (``asleep``: not while the model trains,
    beside the terms ``stays`` alone), ``drops`` are terms that the traced step has and this one has not, ``spared``
    those that it may not have, ``answers`` the share of logits that it makes. Samples of one that ``generates`` are as
    long as they become; ``gathers``: it does so with all weights that ZeRO-3 divides. ``scores``: before the step it
    makes logits of so many times its tokens, without gradients. ``layers``: so many alone are trained where no
    adapter is, and whether they are float32."""

    like: str = "sft"
    reference: bool = False
    models: tuple[str, ...] = ()
    engine: float = 0.0
    drops: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()
    answers: float = 1.0
    generates: bool = False
    asleep: bool = False
    stays: tuple[str, ...] = OF_THE_MODEL
    gathers: bool = False
    scores: float = 1.0
    layers: tuple[int, bool] = (0, False)


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
        drops = LOGITS in stage.drops and untied
        of_head = math.prod(sizes) / float(trace.model["parameters"]) if drops else 0.0
        with_head = () if not 0 < of_head < 0.5 else ("weights",) if job["lora"] else OF_THE_MODEL
        new = {
            name: size * (1 - of_head) if name in with_head else size
            for name, size in terms.items()
            if name not in stage.drops
        }
        if LOGITS in new:
            new[LOGITS] *= stage.answers
        new |= {name: beside[name] for name in stage.models}
        turns = sum(size for name, size in new.items() if name not in stage.stays) if stage.asleep else 0.0
        return new | ({GENERATING: stage.engine - turns} if stage.engine > turns else {})

    def change(trace: Trace, job: Job) -> Trace:
        if stage.layers[0] and not job["lora"]:
            trace = with_layers(trace, *stage.layers)
        trace = with_terms(trace, partial(terms_of, trace, job))
        trace = with_gathered(trace) if stage.gathers else trace
        return with_scored(trace, stage.scores) if stage.scores > 1 else trace

    more = stage.gathers or stage.scores > 1 or stage.layers[0]
    changes = stage.models or stage.engine or stage.drops or stage.answers != 1 or more
    return changed(source, change) if changes else source


def _stage_of(recipe: RunRecipe, assumed: list[str]) -> Stage:
    """Return the stage by its row in the table memory-frameworks, and add to ``assumed`` what was taken."""
    facts, known, given, keys, trainer = recipe
    name, framework = str(given.get("stage") or "sft"), given.get("framework")

    def about(row: Mapping[str, Any]) -> bool:
        own = row["name"] == name and row.get("framework", framework) == framework
        return own and all(keys.get(key) in words for key, words in row.get("where", {}).items())

    row: Mapping[str, Any] = next(filter(about, known["stage"]), {"like": "dpo"})
    if row["like"] != name and name != "pt":
        assumed.append(Message("{} is counted like {}", name.upper(), row["like"].upper()))
    if row.get("generates"):
        text = "{}: the step that trains; the answers are generated, and rewarded, before it or elsewhere"
        assumed.append(Message(text, name.upper()))
    if row.get("drops"):
        assumed.append(Message("the model has a few outputs of its own: no head for the language, and no logits"))
    wanted = all(keys.get(key) == value for key, value in row.get("only", {}).items())
    wanted &= bool(given.get("colocate")) or keys.keys().isdisjoint(row.get("apart", ()))
    models = tuple(row.get("models", ())) if wanted else ()
    if models:
        text = "other models may be on the same GPU, each as large as this one at the most: {}"
        assumed.append(Message(text, ", ".join(models)))
    switches = [trainer["engine_key"]] if "engine_key" in trainer else []
    on = all(keys.get(key, "false") != "false" for key in switches)
    perhaps = bool(switches) and on and facts.unknown("recipe.colocate") is not None
    beside = given.get("colocate") and (on or facts.get("recipe.colocate").source != "preset")
    generates = row.get("generates") and (beside or perhaps)
    engine, sure = _engine(recipe, assumed) if generates else (0.0, True)
    sure = sure and not perhaps
    reference = row["like"] != "sft" and row.get("reference") != "none"
    spared = (*row.get("spared", ()), *models, *(() if sure else (GENERATING,)))
    answer, length = (given.get(name) if row.get("answers") else None for name in ("max_new_tokens", "max_length"))
    answers = (min(answer / length, 1.0) if answer and length else 1.0) * row.get("logits", 1.0)
    drops, generates = tuple(row.get("drops", ())), bool(row.get("generates"))
    gathers = generates and bool(switches) and not on and given.get("zero_stage") == 3
    gathers &= keys.get("ds3_gather_for_generation") != "false"
    if gathers:
        assumed.append(Message("each process generates with all weights, which ZeRO-3 divides while it trains"))
    if given.get("optimizer_in_backward"):
        drops = (*drops, "gradients", "temporary values of the optimizer")
        assumed.append(Message("the optimizer steps in the backward pass, so that no gradient stays"))
    asleep, leaves = (bool(given.get(name)) for name in ("sleep_mode", "offload_while_generating"))
    stays = ("weights", "adapters") if leaves else OF_THE_MODEL
    return Stage(row["like"], reference, models, engine, drops, spared, answers, generates, asleep, stays, gathers)


def _engine(recipe: RunRecipe, assumed: list[str]) -> tuple[float, bool]:
    """Return the bytes of the engine that generates on the same GPU (0 if no GPU is known), and whether it surely has
    them while the model trains: not if it sleeps, or if its share is vLLM's default because no other is known."""
    own, gpu = recipe.trainer.get("engine_share"), gpu_of(recipe.facts.each("gpu"), 2)
    stated = recipe.given.get("gpu_memory_utilization")
    share = float(stated or own or recipe.known["engine"][0]["share"][0])
    if stated is None:
        assumed.append(Message("{} was not given: {}", "gpu_memory_utilization", f"{share:g}"))
    if gpu is None:
        assumed.append(Message("the engine that generates on the same GPU is not counted, because no GPU is known"))
        return 0.0, True
    text = Message("an engine that generates takes {} of the same GPU", f"{share:.0%}")
    if asleep := bool(recipe.given.get("sleep_mode")):
        text = Message("an engine that generates takes {} of the same GPU, less while the model trains", f"{share:.0%}")
    assumed.append(text)
    return share * gpu.total, bool(stated or own) and not asleep


class RunPlan(NamedTuple):
    """``job`` is what is traced (:mod:`envdoctor.payload.tracing.trace` says what its keys mean), without the
    configuration and the lengths. ``tokens`` is the longest sample, ``stated`` where somebody gave it. ``assumed`` are
    sentences about what nobody gave, ``savers`` names what the trace does not follow and can only lower the peak, by
    no more than the terms ``spared`` and to one of ``parts``; ``unsure`` are those that the fact ``open_by`` decides.
    ``eager``: the attention may be eager, by the release; ``maybe_off``: gradient checkpointing may be off, by the
    release. ``untold``: the framework is not known, and logits are made; ``less`` is the share by which everything may
    be less. ``stage`` changes the traces (:func:`staged`). ``whole``: what is trained, and how it is divided among
    processes (``divided``), is known; ``divisible``: several processes hold the same weights, which DeepSpeed could
    divide. ``off``: gradient checkpointing is known to be off, or is so by default."""

    job: Mapping[str, Any]
    tokens: int
    assumed: tuple[str, ...] = ()
    savers: tuple[str, ...] = ()
    spared: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    open_by: str = "recipe.optimizer"
    eager: bool = False
    stated: bool = True
    parts: int = 1
    stage: Stage = Stage()
    untold: bool = False
    less: float = 0.0
    whole: bool = True
    divided: bool = True
    divisible: bool = False
    off: bool = True
    maybe_off: bool = False


def settings_of(facts: FactSet, hidden: int | None = None, zero: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """Return what is known of the recipe, by the names of its facts without ``recipe.``; None is known to be absent.
    DeepSpeed's "auto" buckets have the size that transformers computes from ``hidden``, unknown ones the size in
    ``zero``, rows of the table memory-frameworks."""
    given = {
        fact.key.removeprefix("recipe."): None if fact.value is ABSENT else fact.value
        for fact in facts.below("recipe.")
        if not isinstance(fact.value, (Unknown, Records))
    }
    if hidden and _keys_of(facts).get("reduce_bucket_size") == "auto":
        given.setdefault("reduce_bucket", hidden * hidden)  # transformers/integrations/deepspeed.py
    return {**given, **{row["name"]: given.get(row["name"]) or row["elements"] for row in zero}}


def _keys_of(facts: FactSet) -> dict[str, str]:
    """Return the settings of the recipe's files by their own keys."""
    return {str(item["key"]): str(item["value"]) for item in facts.items("recipe_key")}


def engine_of(given: Mapping[str, Any]) -> str | None:
    """Return ``alone`` if the recipe describes a serving engine, ``beside`` if it describes a training run too."""
    if given.get("framework") in _SERVING or given.get("method") == "serve":
        return "alone"
    # One file for all: it trains, and then serves what was trained.
    return "beside" if given.get("framework") == "weclone" and given.get("gpu_memory_utilization") else None


def plan_of(recipe: RunRecipe, usual: int | None = None) -> RunPlan:
    """Return what to trace; ``usual`` is the length if none was given. Raises :class:`MemoryProblem` if a number would
    be a guess."""
    facts, _, given, keys, trainer = recipe
    assumed = list[str]()
    method = _method(recipe, assumed)
    training = method != "infer"
    adapters = method in ("lora", "qlora")
    assumed += _untold_adapters(facts) if adapters else ()
    tokens = given.get("max_length") or (None if training else given.get("max_model_len"))
    stated, tokens = bool(tokens), tokens or usual
    if "ktransformers" in (given.get("kernels") or ()):
        raise MemoryProblem("KTransformers keeps the experts on the CPU: what is left on the GPU is not predicted")
    if not tokens:
        raise MemoryProblem("the length is not known: give the longest sample in tokens, --set recipe.max_length=2048")
    framework = str(given.get("framework"))
    stage = _stage_of(recipe, assumed) if training else Stage()
    if (others := facts.words("recipe.other_models")) and not stage.models:
        assumed.append(Message("loaded beside the model that is trained, and not counted: {}", ", ".join(others)))
    (dividing, parts), batch = divisions(facts) if training else ([], 1), batch_of(facts, training)
    if training and given.get("dynamic_batch"):
        if not (joined := given.get("step_tokens")):
            raise MemoryProblem("how many tokens a step has is not known: give them, --set recipe.step_tokens=16384")
        # The samples of a step are one row, and full (rearrange_micro_batches in verl/utils/seqlen_balancing.py).
        longest, tokens, batch = tokens, max(tokens, int(min(joined * parts, 1 << 30))), 1
        stage = stage._replace(generates=False, scores=max((given.get("scored_tokens") or 0) * parts / tokens, 1.0))
        assumed.append(Message("batches are made by tokens: {} at once, of samples of up to {}", tokens, longest))
    if not batch:
        batch = 1
        assumed.append(Message("the batch size was not given: 1 was taken"))
    half = _DTYPES[given["dtype"]] if training and given.get("dtype") in ("bf16", "fp16") else None
    by_deepspeed = given.get("zero_stage") is not None
    # DeepSpeed converts the model to the dtype of the run before it is on the GPU; others compute in it.
    load = half if half and by_deepspeed else _load_dtype(recipe, assumed)
    version = facts.text(f"pkg.{framework}")
    attention, eager = _attention(recipe, version, assumed)
    flash = isinstance(attention, str) and attention.startswith("flash_attention")
    packed = bool(given.get("packing") or given.get("padding_free"))
    optimizer, unsure = _optimizer(recipe, assumed) if training else ("elsewhere", ())
    less, layers = partly(given, keys, recipe.known["partial"], assumed) if training else ((), 0)
    stage = stage._replace(layers=(layers, _casts(recipe)))
    # A default that changed, of an unknown release.
    newest = facts.get("recipe.gradient_checkpointing").source == "preset" and trainer.get("checkpointing", False)
    job = {
        "training": training,
        "load_dtype": load,
        "amp": half if trainer.get("autocast", True) and not by_deepspeed else None,
        # The CPU's fused kernel keeps what flash attention keeps.
        "attention": "sdpa" if flash else attention,
        "quantized": {"double": bool(given.get("double_quantization")), "upcast": trainer.get("upcast", True)}
        if method == "qlora" and given.get("quantization") in (None, "bnb-4bit", "torchao-4bit")
        else None,
        "lora": _lora(given) if adapters else None,
        "checkpointing": bool(training and given.get("gradient_checkpointing", newest)),
        "stage": stage.like,
        "reference": _reference(recipe, method) if stage.reference else "none",
        "batch": int(batch),
        "padded": (batch > 1 or stage.like != "sft") and not packed and not flash,
        "accumulation": int(given.get("gradient_accumulation") or 1),
        "keep_outputs": bool(trainer.get("keeps_outputs")),
        "optimizer": optimizer,
    }
    if given.get("stage") == "grpo" and job["reference"] != "none" and "beta" not in keys:
        text = "beta was not given: a reference model was taken, which is not there where it is 0: --set {}"
        assumed.append(Message(text, "recipe.reference_model=none"))
    if training and "gradient_checkpointing" not in given:
        on = Message("gradient checkpointing was not given: it was taken to be on, as the newest {} has it", framework)
        assumed.append(on if newest else Message("gradient checkpointing was not given: it was taken to be off"))
    savers = _savers(recipe, version)
    spared = (*stage.spared, *unsure, *less, *(term for _, terms in savers for term in terms))
    divided, processes = division_is_known(given, keys), given.get("world_size") or 1
    counted = given.get("launcher") is None or bool(given.get("world_size"))
    by_default = "framework" in given and "recipe.gradient_checkpointing" not in facts
    return RunPlan(
        job=job,
        tokens=int(tokens),
        assumed=tuple(assumed),
        savers=(*(name for name, _ in savers), *dividing),
        spared=spared,
        unsure=(*unsure, *less),
        open_by="recipe.method" if less else "recipe.optimizer",
        eager=eager,
        stated=stated,
        parts=parts,
        stage=stage,
        untold=training and job["stage"] == "sft" and given.get("framework") is None and LOGITS not in spared,
        less=0.0 if given.get("method") in (None, *_METHODS) or method == "full" else _UNLIKE_LORA,
        whole=given.get("method") is not None and divided and counted,
        divided=divided,
        divisible="deepspeed" in trainer and processes > 1 and given.get("zero_stage") != 3 and not given.get("fsdp"),
        off="gradient_checkpointing" in given or by_default,
        maybe_off=bool(training and newest and "gradient_checkpointing" not in given),
    )


def _savers(recipe: RunRecipe, version: str | None) -> list[tuple[str, tuple[str, ...]]]:
    """Return those of ``_SAVERS`` that the run has: what nobody says, or says to be absent, is as its framework has it
    in this version."""
    given = recipe.given
    own = {
        row["name"]
        for row in recipe.trainer.get("savers", ())
        if row.get("stage") in (None, given.get("stage") or "sft") and _may_be(version, row.get("releases"))
    }
    return [saver for name, saver in _SAVERS.items() if (name in own if given.get(name) is None else given[name])]


def _method(recipe: RunRecipe, assumed: list[str]) -> str:
    """Return how the model is trained or run. Beside quantised weights adapters alone can be trained."""
    given, stored = recipe.given, recipe.facts.text("model.quantization")
    method = given.get("method")
    if method is None:
        adapters = stored or given.get("lora_r") or given.get("quantization")
        method = "qlora" if stored == "bnb-4bit" else "lora" if adapters else "full"
        assumed.append(Message("the method was not given: {} was taken", method))
    if method == "lora" and given.get("quantization") is not None:
        method = "qlora"
    if method in ("serve", "infer"):
        method = "infer"
    elif any(method in row.get("methods", ()) for row in recipe.known["partial"]):
        method = "full"
    elif method not in _METHODS:
        assumed.append(Message("the method {} is taken to need what LoRA of rank 8 does", method))
        method = "lora"
    return str(method)


def batch_of(facts: FactSet, training: bool) -> int | None:
    """Return the samples a step: for training the training batch, unless the batch size alone was given (``--set``)."""
    names = ("recipe.train_batch_size", "recipe.batch_size")[0 if training else 1 :]
    known = [(f.source != "given", f.value) for f in map(facts.get, names) if isinstance(f.value, (int, float))]
    return int(min(known, key=lambda size: size[0])[1]) or None if known else None


def _casts(recipe: RunRecipe) -> bool:
    """Return whether the framework makes float32 of what is trained, where neither DeepSpeed nor FSDP keeps it."""
    given, keys = recipe.given, recipe.keys
    apart = given.get("zero_stage") is not None or given.get("fsdp") or given.get("load_dtype") or keys.get("use_badam")
    return bool(recipe.trainer.get("casts")) and not apart and division_is_known(given, keys)


def _load_dtype(recipe: RunRecipe, assumed: list[str]) -> str:
    """Return the dtype of the weights in memory; for a config without one float32, as transformers takes it."""
    facts, _, given, *_ = recipe
    if given.get("method") == "full" and given.get("stage", "sft") in ("sft", "pt") and _casts(recipe):
        assumed.append(Message("the weights that are trained are float32, which {} makes of them", given["framework"]))
        return "float32"
    own, load, version = facts.text("model.dtype"), given.get("load_dtype"), facts.text("pkg.transformers")
    if load in _DTYPES:
        return _DTYPES[str(load)]
    if load is None and "load_dtype" in given and version is not None and satisfies(version, "<5.dev0"):
        return "float32"  # from_pretrained without torch_dtype, before transformers 5
    if own is None and load in (None, "auto") and facts.known("model.repo") and facts.text("model.path") is None:
        text = "the dtype of the weights is not known by the model's name: bfloat16 was taken"
        if given.get("quantization"):
            text = "the dtype of weights that are not quantised is not known by the model's name: bfloat16 was taken"
        assumed.append(Message(text))
        return "bfloat16"
    own = own if own is not None and own in _DTYPES.values() else "float32"
    if load is None and "load_dtype" not in given:
        assumed.append(Message("the dtype of the weights was not given: {} was taken, as in config.json", own))
    return own


def _may_be(version: str | None, releases: str | None) -> bool:
    return version is None or releases is None or satisfies(version, releases)


def _attention(recipe: RunRecipe, version: str | None, assumed: list[str]) -> tuple[str | None, bool]:
    """Return the attention (None: transformers chooses), and whether it may be eager because the release is unknown."""
    given, trainer = recipe.given, recipe.trainer
    own = [row["value"] for row in trainer.get("attention", ()) if _may_be(version, row["releases"])]
    # The default of transformers is not that of a framework with an attention of its own.
    replaced = len(own) == 1 and given.get("attn") == "eager" and recipe.facts.get("recipe.attn").source == "default"
    if given.get("attn") is not None and not replaced:
        return str(given["attn"]), False
    if len(own) > 1:
        return None, True
    if own:
        assumed.append(Message("the attention was not given: {} was taken, as {} does", own[0], trainer["name"]))
    elif "attn" not in given:
        assumed.append(Message("the attention was not given: the one that transformers takes by itself"))
    return (own[0] if own else None), False


def _untold_adapters(facts: FactSet) -> Iterator[Message]:
    """Yield what was taken for modules that the recipe names in a way that is not followed."""
    for key in ("recipe.lora_targets", "recipe.lora_modules_to_save", "recipe.reference_model"):
        taken = Message("those of PEFT's own choice") if key == "recipe.lora_targets" else "0"
        if key in facts and (unknown := facts.unknown(key)) is not None:
            yield Message("{} is not known ({}): {} counted, and it may be more", key, unknown.reason, taken)


def _lora(given: Mapping[str, Any]) -> dict[str, Any]:
    targets = given.get("lora_targets")
    return {
        "r": int(given.get("lora_r") or 8),
        "lora_alpha": given.get("lora_alpha"),
        "lora_dropout": given.get("lora_dropout"),
        "target_modules": "all-linear" if targets == ("all-linear",) else list(targets) if targets else None,
        "modules_to_save": list(given["lora_modules_to_save"]) if given.get("lora_modules_to_save") else None,
        "use_dora": True if given.get("dora") else None,
    }


def _reference(recipe: RunRecipe, method: str) -> str:
    """Return where the reference model comes from."""
    if recipe.given.get("stage") == "grpo" and re.fullmatch(r"0*(?:\.0*)?", recipe.keys.get("beta", "-")):
        return "none"  # trl/trainer/grpo_trainer.py: no reference model is loaded
    return str(recipe.given.get("reference_model") or ("copy" if method == "full" else recipe.adapted))


def _own_optimizer(recipe: RunRecipe) -> str | None:
    """Return a switch that the recipe's framework does not have, and that names an optimizer: a fork's."""
    foreign = [item for item in recipe.facts.items("recipe_key") if item["state"] in ("unknown", "own")]
    switches = [str(item["key"]) for item in foreign if item["value"] not in WHOLE]
    patterns = [pattern for row in recipe.known["fork"] for pattern in row["optimizers"]]
    return next((key for key in switches if any(fnmatchcase(key, pattern) for pattern in patterns)), None)


def _optimizer(recipe: RunRecipe, assumed: list[str]) -> tuple[str, tuple[str, ...]]:
    """Return what the trace calls the optimizer, and the terms that it may not have."""
    facts, known, given, keys, trainer = recipe
    if given.get("offload_optimizer"):
        return "elsewhere", ()
    name, fact = _own_optimizer(recipe) or given.get("optimizer"), facts.get("recipe.optimizer")
    if name is None and isinstance(fact.value, Unknown) and "recipe.optimizer" in facts and fact.source != "preset":
        name = Message("that the recipe leaves open")
    if name is None:
        assumed.append(Message("the optimizer was not given: AdamW was taken"))
        return "AdamW", ()
    known_as = next((row["name"] for row in known["optimizer"] if str(name).lower() in row["names"]), None)
    if known_as is None:
        assumed.append(Message("the optimizer {} is unknown: it is taken to need no more than AdamW does", name))
        # One that updates layer by layer has the gradients of a layer alone.
        return "AdamW", ("optimizer states", "temporary values of the optimizer", "gradients")
    key = f"{known_as}_rank"
    usual = next((row[key] for row in (trainer, *known["framework"]) if key in row), None)
    if usual is None:
        return str(known_as), ()
    stated = re.search(r"\brank\s*=\s*(\d{1,6})", f"{keys.get('optim_args', '')} rank={keys.get(key, '')}")
    rank = int(stated[1]) if stated else usual
    assumed.append(Message("the optimizer {} projects all matrices of the layers to rank {}", name, rank))
    return f"{known_as}-{rank}", ()
