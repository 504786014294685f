"""``envdoctor memory``: will it fit, and if not, what is the cheapest change that makes it fit?"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from envdoctor.app.errors import JobError, UsageProblem, told_as
from envdoctor.app.facts import Sources, collect_facts, shape_by_name
from envdoctor.app.reporting import Judging
from envdoctor.facts.factset import FactSet, View
from envdoctor.facts.values import ABSENT, Fact, Range, Records, Unknown, Value
from envdoctor.judge.derivations import with_facts
from envdoctor.judge.derivations.model import takes_sdpa
from envdoctor.judge.finding import Policy
from envdoctor.matrix.gpu_code import gpu_named
from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.errors import ObservationError
from envdoctor.observe.model.config import Shape
from envdoctor.observe.model.files import read_object
from envdoctor.observe.model.source import resolve
from envdoctor.observe.recipe.recipe import gpus_named
from envdoctor.peak.model import model_of
from envdoctor.peak.prediction import USUAL, predict
from envdoctor.peak.recipe import batch_of, engine_of, settings_of
from envdoctor.peak.section import MemoryProblem, MemorySaving, MemorySection
from envdoctor.peak.serving import predict_serving
from envdoctor.peak.shipped import Shipped
from envdoctor.peak.stored import counted, packed_weights, stored_parameters
from envdoctor.peak.summary import DataError, DataSection, fed_length, measure
from envdoctor.peak.tracing import Tracer, TraceSource, first_of, of_vocabulary, rehearsed
from envdoctor.report.report import Notice, Report
from envdoctor.system.cache import cache_home
from envdoctor.system.message import Message, joined, said_by
from envdoctor.system.target import Place, scratch_folder

#: How much less or more everything may take if a part of the name is unknown, and if the name is only a number of
#: parameters. Choices, and wide: models of seven billion parameters differ by a fifth.
_LOOSE, _LOOSEST = 0.05, 0.2
#: The same if the name says that the weights are quantised, without the bits: four to eight are usual.
_BITS_UNKNOWN = 0.5
#: The same where words of the name tell of another shape: a tower for images may be half of a small model.
_UNLIKE = 0.5
#: Packages whose code decides about memory.
_DECIDING = ("torch", "transformers", "peft", "accelerate", "python")


def memory(
    sources: Sources,
    *,
    data: str | None = None,
    tokenizer: str | None = None,
    policy: Policy | None = None,
    matrix: Matrix | None = None,
    exit_zero: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Report:
    """Predict the peak of the recipe with the installed code, in a child of the target's interpreter, or by shipped
    coefficients if it cannot be traced, and judge it against the free memory of the GPU. Without a number the report is
    incomplete (exit code 3).

    ``data`` is a file of training data: its longest sample, as ``tokenizer`` (a folder, None: the model's) counts it
    and as the recipe cuts it, is the length. Without a model the report has its lengths only.

    Raises :class:`UsageProblem` and :class:`JobError`.
    """
    run = Judging(policy, matrix, exit_zero)
    matrix = run.matrix
    gathered = collect_facts(sources, matrix)
    section: MemorySection | None = None
    unjudged: Notice | None = None
    stats: DataSection | None = None
    notices, facts, python = list(gathered.notices), gathered.facts, gathered.interpreter
    if data is not None:
        gathered.needed_interpreter(Message("tokens are counted"))
    say = progress or (lambda text: None)
    with scratch_folder("envdoctor-memory-") as scratch:
        place = Place(str(python), sources.environ, sources.folder(), scratch, "")
        alone = data is not None and facts.text("model.name") is None
        if data is not None:
            say(Message("counting tokens"))
            folder = _tokenizer_folder(tokenizer, facts, sources, matrix)
            stats, length = _lengths_of(data, tokenizer, folder, facts, place)
            lengths = [Fact("recipe.max_length", length, f"--data {data}", "given")] if length is not None else []
            facts = facts if alone else with_facts(facts, lengths, matrix)
        if alone:
            text = Message("memory was not predicted because no model was given; give --model DIR")
            notices.append(Notice("warning", text))
        else:
            say(Message("tracing the model"))
            try:
                section, unjudged = _predicted(facts, sources, matrix, place if python is not None else None, USUAL)
            except MemoryProblem as error:
                notices.append(Notice("error", said_by(error)))
    open_ = unjudged is not None and bool(facts.records("gpu"))
    if unjudged is not None:
        notices.append(unjudged)
    if section is not None:
        notices += _cut(section, facts) if data is None else []
        facts = with_facts(facts, _facts(section), matrix)
    judgement = run.judged(facts, matrix.of_scopes("memory"))
    return run.report(
        "memory",
        gathered.target,
        judgement,
        [*notices, *run.of_rules(judgement)],
        incomplete=open_ if section is not None else not (alone and stats is not None and stats["longest"] is not None),
        data=stats,
        memory=section,
    )


def _cut(section: MemorySection, facts: FactSet) -> list[Notice]:
    """Return a notice about a run that fits with shorter samples, if its length may only cut them."""
    alone = (change["set"] for change in section["changes"] if len(change["set"]) == 1 and change["verdict"] == "fits")
    shorter = [settings["recipe.max_length"] for settings in alone if "recipe.max_length" in settings]
    fixed = facts.value("recipe.packing") is True or facts.value("recipe.padding") == "max"
    fixed |= facts.value("recipe.method") == "infer"  # a prompt is no sample
    if section["verdict"] != "does-not-fit" or fixed or not shorter:
        return []
    text = "samples were taken to be as long as the recipe allows, {} tokens: up to {} it fits; --data FILE counts them"
    return [Notice("note", Message(text, section["tokens"], shorter[0]))]


def _lengths_of(
    data: str, tokenizer: str | None, folder: str, facts: FactSet, place: Place
) -> tuple[DataSection, int | None]:
    """Return the section about the training data, and the length of its longest sample as the recipe cuts it."""
    limit = facts.number("recipe.max_length")
    cutoff = int(limit) if limit is not None and limit >= 1 else None
    shown, batch = tokenizer or str(facts.value("model.name")), batch_of(facts, training=True)
    with told_as(JobError, DataError):
        path = os.path.join(place.cwd, data)
        section = measure(path, folder, place, data=data, tokenizer=shown, cutoff=cutoff, batch=batch)
    return section, fed_length(section, facts.value("recipe.packing") is True)


def _tokenizer_folder(tokenizer: str | None, facts: FactSet, sources: Sources, matrix: Matrix) -> str:
    if tokenizer is None:
        if facts.text("model.path") is None:
            raise UsageProblem("--data is counted with a tokenizer: give --tokenizer DIR, or --model DIR that has one")
        return _folder(facts, sources)
    aliases = matrix.part("families", "organisations")
    with told_as(UsageProblem, ObservationError):
        match = resolve(tokenizer, cwd=sources.folder(), environ=sources.environ, aliases=aliases, option="--tokenizer")
    if match.folder is None:
        raise JobError("--tokenizer {}: {}", tokenizer, match.missing)
    return match.folder


def known_memory(
    facts: FactSet, sources: Sources, matrix: Matrix
) -> tuple[FactSet, MemorySection | None, Notice | None]:
    """Return, without starting anything, the facts with the peak by an earlier trace in envdoctor's cache or by shipped
    coefficients, and the section of the report; None if nothing is known of it. For a recipe without a length the
    section has the longest samples that fit on the GPU. The notice says why there is no number, or no verdict on a GPU.
    """
    usual = USUAL if sources.recipe and facts.records("gpu") else None
    try:
        section, unjudged = _predicted(facts, sources, matrix, None, usual)
    except (MemoryProblem, UsageProblem, JobError) as error:
        return facts, None, Notice("note", said_by(error))
    return with_facts(facts, _facts(section), matrix), section, unjudged if facts.records("gpu") else None


def predictor(present: FactSet, sources: Sources, matrix: Matrix) -> Callable[[FactSet], FactSet]:
    """Return a function that adds the predicted memory to changed facts, as :func:`known_memory` does. The memory facts
    of ``present`` stay if the change does not touch their basis, or if the changed run has no prediction."""
    predictions = [(_basis(present), tuple(present.below("memory.")))]

    def predict(facts: FactSet) -> FactSet:
        basis = _basis(facts)
        memory = next((memory for key, memory in predictions if key == basis), None)
        if memory is None:
            memory = tuple(known_memory(facts, sources, matrix)[0].below("memory."))
            predictions.append((basis, memory))
        return facts.copy([*facts, *memory])

    return predict


def _basis(facts: FactSet) -> dict[str, Value]:
    """Return the facts that the memory of a run rests on, except those that only the torch of a trace decides."""
    keys = ["pkg.transformers", "pkg.peft", "gpu"]
    return {fact.key: fact.value for fact in (*facts.below("recipe."), *facts.below("model."), *map(facts.get, keys))}


def _predicted(
    facts: FactSet, sources: Sources, matrix: Matrix, place: Place | None, usual: int | None = None
) -> tuple[MemorySection, Notice | None]:
    """Return the section of the report, and why it has no verdict; ``usual`` is the length if none was given.

    Raises :class:`UsageProblem`, :class:`JobError`, :class:`MemoryProblem`."""
    keys = ("recipe.method", "recipe.quantization", "recipe.gradient_checkpointing")
    method, packs, checkpoints = (facts.unknown(key) if key in facts else None for key in keys)
    open_script = packs if method and checkpoints else None
    if method is not None and not any(map(facts.known, _TRAINED)):
        raise MemoryProblem("{}: give --set recipe.method=infer, lora or full", method.reason)
    packs = None if facts.known("model.quantization") else packs
    method_name = facts.text("recipe.method")
    adapted = method_name == "lora" if method_name is not None else any(map(facts.known, _ADAPTED))
    if (reason := packs if adapted else method) is not None:
        ways: tuple[tuple[str, Value], ...] = (
            ("lora" if adapted else "full", ABSENT),
            ("qlora", "bnb-4bit") if packs else ("lora", ABSENT),
        )
        each = (dict(zip(("recipe.method", "recipe.quantization"), way, strict=True)) for way in ways)
        runs = (facts.copy([*facts, *(Fact(key, one[key], "", "derived") for key in one)]) for one in each)
        larger, smaller = (_predicted(run, sources, matrix, place, usual) for run in runs)
        section, unjudged = _of_ways(reason, larger, smaller, adapted)
        if open_script is not None and section["verdict"] == "does-not-fit":
            section["verdict"] = None
            text = (
                "whether it fits is not known: {}, and what it says of quantization and gradient checkpointing "
                "decides; give the script, or --set recipe.method=full and recipe.gradient_checkpointing=true"
            )
            unjudged = Notice("error", Message(text, open_script.reason))
        return section, unjudged
    section, unjudged = _predicted_so(facts, sources, matrix, place, usual)
    if section["verdict"] == "does-not-fit" and facts.value("recipe.auto_find_batch_size") is True:
        one = (Fact(f"recipe.{batch}", 1, "", "derived") for batch in ("batch_size", "train_batch_size"))
        section, unjudged = _predicted_so(facts.copy([*facts, *one]), sources, matrix, place, usual)
        section["assumed"].insert(0, Message("auto_find_batch_size halves the batch until it fits: 1 sample was taken"))
    return section, unjudged


def _predicted_so(
    facts: FactSet, sources: Sources, matrix: Matrix, place: Place | None, usual: int | None
) -> tuple[MemorySection, Notice | None]:
    """Return the same for a run that is known to train the whole model or not."""
    table, framework = matrix.table("memory-frameworks"), str(facts.value("recipe.framework"))
    each = any(row["name"] == framework for row in table["replicated"])
    facts, division, sharing = _divided(_trained_as_loaded(facts), each)
    config = _config(facts, sources)
    shape = _shape(facts, matrix) if config is None else None
    model = model_of(
        shape.config if shape is not None else config or {},
        matrix.rows("native-types"),
        facts.words("model.code_methods") or (),
        framework,
        repo="" if shape is None else str(facts.value("model.repo")),
        trainer=facts.value("model.run_by") == "trainer",
    )
    facts = _quantized(facts, shape, config or {})
    if shape is not None and shape.config.get("dtype") == "float32":
        facts = facts.copy([*facts, Fact("model.dtype", "float32", Message("the model's name"), "derived")])
    own_code = next((row for row in matrix.rows("native-types") if row["key"] == model.named), {})
    if own_code.get("own_dtype") and facts.absent("recipe.load_dtype"):
        facts = facts.copy(fact for fact in facts if fact.key != "recipe.load_dtype")
    settings = {key: value for key, value in model.config.items() if key != "quantization_config"}
    notes, loose = ((model.said, model.loose)) if shape is None else _shape_words(shape)
    sdpa = takes_sdpa(model.named, facts.value("pkg.transformers"), matrix)
    model = model._replace(config=settings, said=(*division, *notes), loose=loose, sdpa=sdpa)
    keys = {name: "python.version" if name == "python" else f"pkg.{name}" for name in _DECIDING}
    versions = {name: "none" if facts.absent(key) else facts.text(key) for name, key in keys.items()}
    cache = cache_home(sources.environ) if sources.cache else None
    # Code of the model's own, and an engine's, is the same whatever release is installed.
    own = model.nearest or engine_of(settings_of(facts))
    terms = matrix.table("memory-terms")
    quantization = facts.text("recipe.quantization")
    # No form is about training on weights that are quantised otherwise.
    packed = quantization not in (None, "bnb-4bit", "torchao-4bit") and facts.value("recipe.method") != "infer"
    elsewhere = packed or bool(model.trainer) or framework in terms["code"]
    version = None if own else versions["transformers"] or "unknown"
    shipped: TraceSource = Shipped(matrix.table("memory-forms"), terms, version, elsewhere).run
    parameters = stored_parameters(_folder(facts, sources)) if shape is None else model.config.get("parameters")
    shipped = shipped if parameters is None or shape is not None else counted(shipped, parameters)
    # What is stored in a way that nobody has told of has at most a byte.
    stored = next((row for row in terms["weight"] if row["key"] == quantization), {"bytes": 1.0})
    serves = engine_of(settings_of(facts)) is not None

    def by(traced: TraceSource) -> dict[_Size | None, MemorySection]:
        # The installed code says itself what it loads of the files. A row may lack a setting on which it depends.
        other = Message("the traced model has not the parameters of {}", shape.like) if shape is not None else None
        if parameters is not None and (other is not None or model.nearest):
            traced = counted(traced, parameters, other)
        both = first_of(traced, shipped)
        source = both if quantization is None else packed_weights(both, float(stored["bytes"]), "head" in stored)
        source = source if shape is None or not shape.bare else of_vocabulary(source, shape.vocabulary)
        return {
            size: predict_serving(run, model, source, table) if serves else predict(run, model, source, table, usual)
            for size, run in _sizes(facts, matrix)
        }

    section, unjudged = _of_sizes(by(Tracer(place, versions, cache, lambda: rehearsed(shipped, by)).run))
    if section["verdict"] == "does-not-fit":
        unjudged = unjudged or sharing
    changes, free = section["changes"], section["free_gib"]
    if section["verdict"] is None and free is not None and section["process_gib"][1] <= free:
        changes = []  # those of the usual length, which fits
    section["changes"] = [_in_own_keys(change, facts, matrix) for change in changes]
    if unjudged is not None:
        section["verdict"] = None
    elif section["verdict"] is None:
        unjudged = _without(section, facts)
    return section, unjudged


#: Facts that show that a run trains, by any method.
_TRAINED = ("recipe.framework", "recipe.optimizer")
#: Facts that show, if the method is unknown, that adapters are trained: their rank, or weights that cannot be trained.
_ADAPTED = ("recipe.lora_r", "recipe.quantization", "model.quantization")


def _of_ways(
    reason: Unknown,
    larger: tuple[MemorySection, Notice | None],
    smaller: tuple[MemorySection, Notice | None],
    adapted: bool,
) -> tuple[MemorySection, Notice | None]:
    """Return the section of the way that takes more memory, and why there is no verdict if only one of the two fits."""
    (section, unjudged), (other, _) = larger, smaller
    most, least = section["process_gib"][1], other["process_gib"][0]
    text = "whether the whole model is trained is not known ({}): full up to {} GiB, adapters from {} GiB"
    ask = "{}; give --set recipe.method=full or recipe.method=lora"
    if adapted:
        text = "whether the weights are quantised is not known ({}): up to {} GiB if not, from {} GiB if they are"
        ask = "{}; give --set recipe.quantization=bnb-4bit or recipe.quantization=absent"
    section["assumed"].insert(0, Message(text, reason.reason, f"{most:.1f}", f"{least:.1f}"))
    section["process_gib"][0] = min(least, section["process_gib"][0])
    interval, below = section["interval"], other["interval"]
    if interval is not None and below is not None:
        interval["mostly"], interval["process"][0] = below["mostly"], section["process_gib"][0]
    if unjudged is None and section["verdict"] != other["verdict"]:
        section["verdict"] = None
        unjudged = Notice("error", Message(ask, section["assumed"][0]))
    return section, unjudged


#: The parts that each stage of ZeRO divides among the processes.
_ZERO = (
    Message("nothing"),
    Message("optimizer states"),
    Message("optimizer states and gradients"),
    Message("optimizer states, gradients and weights"),
)


#: Values of device_map with which accelerate spreads the layers over the GPUs: evenly, or filling one after the other.
_SPREAD = ("auto", "balanced", "balanced_low_0", "sequential")


def _divided(facts: FactSet, each: bool) -> tuple[FactSet, list[Message], Notice | None]:
    """Return the facts, with a process on each GPU if the run is divided among an unknown number of processes, or its
    framework starts one on ``each``; a sentence about how several GPUs or processes share it; and why a run that one of
    them does not hold may fit all the same."""
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
            return facts, notes, Notice("error", Message(text))
    processes = int(world or 1)
    if engine_of(settings_of(facts)) is not None:
        ranks = int(facts.number("recipe.tensor_parallel") or 1)
        text = "{} GPUs, and the engine divides each layer among {} (tensor parallel)"
        return facts, [Message(text, cards, ranks)] if cards > 1 else [], None
    if processes > 1 and divided:
        level, by = (3, "FSDP") if stage is None else (int(stage), f"ZeRO-{int(stage)}")
        parts = _ZERO[min(max(level, 0), 3)]
        notes = [Message("data parallel, {} processes: {} divides {} among them", processes, by, parts)]
        match facts.get("recipe.zero_stage").origin:
            case Message() as by_name:
                notes.append(by_name)
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
    unjudged = Notice("error", Message(text, cards))
    text = "the recipe does not say how {} GPUs share the run: each was taken to hold the whole model (data parallel)"
    return facts, [Message(text, cards)], unjudged


def _without(section: MemorySection, facts: FactSet) -> Notice:
    """Return what is missing for a verdict: gradient checkpointing, the length, the size of a GPU, or one at all."""
    serving, settling = section["serving"], section["settled_by"]
    least, most = (f"{size:.1f}" for size in section["process_gib"])
    if settling == "recipe.gradient_checkpointing":
        text = "it fits only with gradient checkpointing: give --set recipe.gradient_checkpointing=true or =false"
        return Notice("error", Message(text))
    if settling == "recipe.optimizer":
        text = "whether it fits is not known, because what the optimizer keeps is not: {} to {} GiB; give --set {}=NAME"
        return Notice("error", Message(text, least, most, settling))
    if settling == "recipe.reference_model":
        text = (
            "whether it fits is not known, because a model beside the one that is trained is not counted: {} to {} GiB"
        )
        return Notice("error", Message(text, least, most))
    if settling == "recipe.stage":
        text = (
            "whether it fits is not known, because the logits of a masked language model are not counted: {} to {} GiB"
        )
        return Notice("error", Message(text, least, most))
    if settling == "recipe.batch_size":
        text = "whether it fits is not known, because the script makes its batches itself: give --set {}=N"
        return Notice("error", Message(text, settling))
    if settling:
        text = (
            "whether it fits is not known, because how processes share the run is not: up to {} GiB if each holds the "
            "whole model, as little as {} GiB if not; give --set {}=3, =2 or =0"
        )
        return Notice("error", Message(text, most, least, settling))
    if section["gpu"] is not None:
        text = "the length is not known, so whether it fits was not judged: give --set {}={}"
        name, length = ("max_model_len", serving["length"]) if serving else ("max_length", section["tokens"])
        return Notice("warning", Message(text, f"recipe.{name}", length))
    if facts.records("gpu"):
        name = next(facts.each("gpu")).text("name") or Message("the GPU")
        text = "how much memory {} has is not known, so whether it fits was not judged: give --set gpu.memory_gib=24"
        return Notice("error", Message(text, name))
    text = "no GPU is known, so whether it fits was not judged: give --gpu NAME or --gpu-memory GIB"
    return Notice("warning", Message(text))


#: The name of a GPU, and a size in GB that it is sold with.
_Size: TypeAlias = tuple[str, int]
#: From the best to the worst, and what is said of a size in GB.
_VERDICTS = {"fits": "it fits {} GB", "tight": "it is tight on {} GB", "does-not-fit": "it does not fit {} GB"}


def _of_sizes(sections: Mapping[_Size | None, MemorySection]) -> tuple[MemorySection, Notice | None]:
    """Return the section of the size with the worst verdict, or of one without a verdict; and a notice if the run does
    not fit one size and may fit another."""
    verdicts = [str(section["verdict"]) for section in sections.values()]
    worst = max(
        sections.values(), key=lambda section: ["fits", "tight", "does-not-fit", None].index(section["verdict"])
    )
    sizes = [size for size in sections if size is not None]
    if len(sizes) < 2 or worst["verdict"] is None:
        return worst, None
    each = joined(Message(_VERDICTS[verdict], size) for (_, size), verdict in zip(sizes, verdicts, strict=True))
    gpu, largest = sizes[-1]
    sentence = Message("{} is sold in several sizes: {}", gpu, each)
    worst["assumed"].insert(0, sentence)
    if verdicts.count("does-not-fit") in (0, len(verdicts)):
        return worst, None
    text = "{}; name the one that is meant, such as {}"
    return worst, Notice("error", Message(text, sentence, f"{gpu}-{largest}GB"))


def _in_own_keys(change: MemorySaving, facts: FactSet, matrix: Matrix) -> MemorySaving:
    """Return the change with its settings as the recipe's file writes them. Flash attention, which needs no more
    memory, stands for SDPA if the file has no word for SDPA."""
    from envdoctor.observe.recipe.formats import spelled
    from envdoctor.remedy.own_keys import own_keys

    def keys_of(settings: Mapping[str, object]) -> dict[str, str]:
        return own_keys({key: spelled(value) for key, value in settings.items()}, facts, matrix)

    settings = change["set"]
    keys = keys_of(settings)
    if settings.get("recipe.attn") == "sdpa" and "recipe.attn" not in keys:
        flash = {**settings, "recipe.attn": "flash_attention_2"}
        settings, keys = (flash, more) if "recipe.attn" in (more := keys_of(flash)) else (settings, keys)
    if settings.get("recipe.method") == "lora" and "recipe.lora_r" in keys:  # a rank alone asks for LoRA
        keys.setdefault("recipe.method", keys["recipe.lora_r"])
    if settings.get("recipe.method") == "qlora":
        adapted = facts.value("recipe.method") == "lora"
        four = keys_of({"recipe.quantization": "bnb-4bit"} | ({} if adapted else {"recipe.method": "lora"}))
        keys = {**keys, "recipe.method": ", ".join(reversed(four.values()))} if four else keys
    return {"set": dict(settings), "gib": change["gib"], "verdict": change["verdict"], "keys": keys}


def _sizes(facts: FactSet, matrix: Matrix) -> Iterator[tuple[_Size | None, FactSet]]:
    """Yield, for a GPU of which only the name is known, each size that it is sold with and the facts with its usable
    memory; (None, facts) if there is only one size."""
    gpus = facts.value("gpu")
    if not isinstance(gpus, Records) or not gpus:
        yield None, facts
        return
    sold = [_sold(item, gpu, matrix) for item, gpu in zip(gpus, facts.each("gpu"), strict=True)]
    for place in range(max(map(len, sold))):
        sizes, items = zip(*(choices[min(place, len(choices) - 1)] for choices in sold), strict=True)
        origin = Message("the GPUs that were found, table gpus")
        gpu = Fact("gpu", Records(items, gpus.incomplete), origin, "derived")
        yield next(filter(None, sizes), None), facts.copy([*facts, gpu])


def _sold(item: Mapping[str, Value], gpu: View, matrix: Matrix) -> list[tuple[_Size | None, Mapping[str, Value]]]:
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


def _trained_as_loaded(facts: FactSet) -> FactSet:
    """Return the facts without the dtype of the training if the weights are only loaded in it (``torch_dtype`` of
    from_pretrained, ``pure_bf16``): that switches autocast on only in ms-swift, which uses it for both."""
    loaded, switches = facts.get("recipe.load_dtype"), {"bf16", "fp16", "mixed_precision"}
    switched = switches.intersection(facts.words("recipe.arguments") or ())
    apart = not loaded.origin or loaded.source == "given" or facts.get("recipe.dtype").origin != loaded.origin
    if switched or apart or facts.value("recipe.framework") == "ms-swift":
        return facts
    return facts.copy([*facts, loaded._replace(key="recipe.dtype", value=ABSENT)])


def _shape(facts: FactSet, matrix: Matrix) -> Shape:
    """Return the shape of a model without a config.json by its name. Raises :class:`MemoryProblem`."""
    repo = facts.text("model.repo")
    shape = shape_by_name(repo, matrix) if repo is not None else None
    if shape is None:
        text = (
            "no config.json of {} is on this machine: give its folder, --model DIR, or, of a plain language model, "
            "its size, --model 7B"
        )
        raise MemoryProblem(text, facts.text("model.name"))
    return shape


def _shape_words(shape: Shape) -> tuple[Sequence[Message], float]:
    """Return the basis of a prediction by a model's name in words, and how much less or more everything may take."""
    if shape.bare:
        loose = _UNLIKE if shape.unlike else _LOOSEST
        text = "only the parameter count is known: the shape of {} is assumed, {} less or more, vocabulary up to {}"
        return [Message(text, shape.like, f"{loose:.0%}", f"{shape.vocabulary:,}")], loose
    if shape.quantized == "":
        loose = _LOOSE if shape.bits else _BITS_UNKNOWN
        text = (
            "by its name the model has the shape of {}, quantised and not told how: {} bits a weight were taken, "
            "{} less or more"
        )
        return [Message(text, shape.like, shape.bits or 8, f"{loose:.0%}")], loose
    if shape.unknown:
        text = "by its name the model has the shape of {}, {} less or more, because words of the name are not known: {}"
        return [Message(text, shape.like, f"{_LOOSE:.0%}", ", ".join(shape.unknown))], _LOOSE
    return [Message("no file of the model is here: by its name it has the shape of {}", shape.like)], 0.0


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


def _folder(facts: FactSet, sources: Sources) -> str:
    return os.path.join(sources.folder(), str(facts.value("model.path")))


def _config(facts: FactSet, sources: Sources) -> dict[str, Any] | None:
    """Return the model's config.json, or None if it is not here. Raises :class:`UsageProblem`, :class:`JobError`."""
    name = facts.text("model.name")
    if name is None:
        text = "give --model DIR, --model ORG/NAME or a recipe that names it: the memory is that of a model"
        raise (MemoryProblem if sources.recipe else UsageProblem)(text)
    if facts.text("model.path") is None:
        return None
    with told_as(JobError, ObservationError):
        config = read_object(_folder(facts, sources), "config.json", name)
    return config if isinstance(config, dict) else None


def _facts(section: MemorySection) -> list[Fact]:
    """Return the facts that the rules judge."""
    interval, engine, free = section["interval"], section["serving"], section["free_gib"]
    least, most = section["process_gib"]
    if engine is not None and section["phase"] == "KV cache":
        more = engine["cache_gib"] * (engine["length"] / max(engine["cache_tokens"], 1) - 1) + engine["images_gib"]
        if more > 0:  # it has what it takes, and not what is free
            free = engine["asked_gib"]
            most = free + more
    surely = interval["mostly"] if interval is not None and section["verdict"] == "does-not-fit" else least
    values = {
        "memory.needed_gib": round(surely, 1),
        "memory.most_gib": round(most, 1),
        "memory.free_gib": None if free is None else round(free, 1),
        "memory.gpu": section["gpu"],
        "memory.verdict": section["verdict"],
        "memory.phase": section["phase"],
    }
    return [Fact(key, value, "memory", "memory") for key, value in values.items() if value is not None]
