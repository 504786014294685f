"""``envdoctor memory``: will it fit, and if not, what is the cheapest change that makes it fit?"""

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from envdoctor.app.errors import JobError, UsageProblem, told_as
from envdoctor.app.facts import Sources, collect_facts, shape_by_name
from envdoctor.app.reporting import Judging
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import ABSENT, Fact, Unknown, Value
from envdoctor.judge.derivations import with_facts
from envdoctor.judge.derivations.model import takes_sdpa
from envdoctor.judge.finding import Policy
from envdoctor.matrix.matrix import Matrix
from envdoctor.observe.errors import ObservationError
from envdoctor.observe.model.config import Shape
from envdoctor.observe.model.files import read_object
from envdoctor.observe.model.names import resolve
from envdoctor.peak.model import model_of, words_of
from envdoctor.peak.prediction import USUAL, predict
from envdoctor.peak.recipe import batch_of, engine_of, settings_of
from envdoctor.peak.run import Size, as_loaded, as_trained, divided, sizes, trained_as_loaded
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
from envdoctor.versions.pep440 import satisfies

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
        pairs = (zip(("recipe.method", "recipe.quantization"), way, strict=True) for way in ways)
        runs = (facts.copy([*facts, *(Fact(key, value, "", "derived") for key, value in pair)]) for pair in pairs)
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
        smallest = (Fact(f"recipe.{batch}", 1, "", "derived") for batch in ("batch_size", "train_batch_size"))
        section, unjudged = _predicted_so(facts.copy([*facts, *smallest]), sources, matrix, place, usual)
        section["assumed"].insert(0, Message("auto_find_batch_size halves the batch until it fits: 1 sample was taken"))
    return section, unjudged


def _predicted_so(
    facts: FactSet, sources: Sources, matrix: Matrix, place: Place | None, usual: int | None
) -> tuple[MemorySection, Notice | None]:
    """Return the same for a run that is known to train the whole model or not."""
    table, framework = matrix.table("memory-frameworks"), str(facts.value("recipe.framework"))
    is_replicated = any(row["name"] == framework for row in table["replicated"])
    facts, division, sharing = divided(trained_as_loaded(facts), is_replicated)
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
    own_code = next((row for row in matrix.rows("native-types") if row["key"] == model.named), {})
    facts = as_loaded(facts, shape, config or {}, bool(own_code.get("own_dtype")))
    terms, trains_packed = matrix.table("memory-terms"), any(row["name"] == framework for row in table["trains_packed"])
    facts, packing = as_trained(facts, terms["weight"], trains_packed)
    notes, loose = ((), 0.0) if shape is None else words_of(shape)
    sdpa = takes_sdpa(model.named, facts.value("pkg.transformers"), matrix)
    bare = shape is not None and shape.bare
    model = model._replace(said=(*division, *notes, *packing), loose=loose, bare=bare, sdpa=sdpa)
    keys = {name: "python.version" if name == "python" else f"pkg.{name}" for name in _DECIDING}
    versions = {name: "none" if facts.absent(key) else facts.text(key) for name, key in keys.items()}
    cache = cache_home(sources.environ) if sources.cache else None
    # Code of the model's own, and an engine's, is the same whatever release is installed.
    own = model.nearest or engine_of(settings_of(facts))
    quantization = facts.text("recipe.quantization")
    # No form is about training on weights that are quantised otherwise.
    packed = quantization not in (None, "bnb-4bit", "torchao-4bit") and facts.value("recipe.method") != "infer"
    elsewhere = packed or bool(model.trainer) or framework in terms["code"]
    version = None if own else versions["transformers"] or "unknown"
    shipped: TraceSource = Shipped(matrix.table("memory-forms"), terms, version, elsewhere).run
    parameters = stored_parameters(_folder(facts, sources)) if shape is None else model.config.get("parameters")
    shipped = shipped if parameters is None or shape is not None else counted(shipped, parameters)
    # What is stored in a way that nobody has told of has at most a byte.
    stored = next((row for row in terms["weight"] if row["key"] == quantization), {"bytes": 1.0, "trains": False})
    untold = shape is not None and shape.quantized == "" and not shape.bits
    # What may be dequantised for the training, because the method or the framework's release is not known.
    whole = packed and facts.value("recipe.method") != "qlora" and (untold or "trains" in stored)
    release = facts.text("pkg.transformers")
    fused = release is None or not satisfies(release, "<5.dev0")
    serves = engine_of(settings_of(facts)) is not None

    def by(traced: TraceSource) -> dict[Size | None, MemorySection]:
        # The installed code says itself what it loads of the files. A row may lack a setting on which it depends.
        other = Message("the traced model has not the parameters of {}", shape.like) if shape is not None else None
        if parameters is not None and (other is not None or model.nearest):
            traced = counted(traced, parameters, other)
        both = first_of(traced, shipped)
        source = both if quantization is None else packed_weights(both, stored, whole, fused)
        source = source if shape is None or not shape.bare else of_vocabulary(source, shape.vocabulary)
        return {
            size: predict_serving(run, model, source, table)
            if serves
            else _if_counted(predict(run, model, source, table, usual), facts, sources, table["uncounted"])
            for size, run in sizes(facts, matrix)
        }

    section, unjudged = _of_sizes(by(Tracer(place, versions, cache, lambda: rehearsed(shipped, by)).run))
    if section["verdict"] == "does-not-fit" and sharing is not None:
        unjudged = unjudged or Notice(*sharing)
    changes, free = section["changes"], section["free_gib"]
    if section["verdict"] is None and free is not None and section["process_gib"][1] <= free:
        changes = []  # those of the usual length, which fits
    section["changes"] = [_in_own_keys(change, facts, matrix) for change in changes]
    if unjudged is not None:
        section["verdict"] = None
    elif section["verdict"] is None:
        unjudged = _without(section, facts)
    return section, unjudged


def _if_counted(
    section: MemorySection, facts: FactSet, sources: Sources, rows: Iterable[Mapping[str, Any]]
) -> MemorySection:
    """Return the section without the verdict on a run that fits if one of the ``rows`` (memory-frameworks, uncounted)
    says that it has, or may have, more than is counted. A facts file may have the fact from the script that leaves it
    open: what is typed settles it."""
    typed = {(origin, "given") for origin in ("--set", sources.configured_in)}
    formats = {item.get("format") for key in ("recipe_file", "recipe_key") for item in facts.items(key)}

    def has_more(row: Mapping[str, Any]) -> bool:
        if "given" in row:
            return bool(facts.words(row["given"])) and facts.value("recipe.stage") != row["except"]
        fact, key = facts.get(row["fact"]), row.get("unknown")
        is_open = key in facts and facts.unknown(key) is not None if key else row["format"] in formats
        return is_open and (fact[2:] not in typed or fact.value in row.get("kept", ()))

    settling = next((str(row["fact"]) for row in rows if has_more(row)), "")
    if section["verdict"] in ("fits", "tight") and settling:
        section["verdict"], section["settled_by"] = None, settling
    return section


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


#: What is missing for a verdict, by the unknown fact that decides it: with the least and the most GiB, and the fact.
_SETTLING = {
    "recipe.gradient_checkpointing": Message(
        "it fits only with gradient checkpointing: give --set recipe.gradient_checkpointing=true or =false"
    ),
    "recipe.optimizer": "whether it fits is not known, because what the optimizer keeps is not: {} to {} GiB; "
    "give --set {}=NAME",
    "recipe.method": "whether it fits is not known, because what is trained is not modelled: {} to {} GiB "
    "(see Assumed)",
    "recipe.reference_model": "whether it fits is not known, because a model beside the one that is trained is not "
    "counted: {} to {} GiB",
    "model.architectures": "whether it fits is not known, because the logits of a masked language model are not "
    "counted: {} to {} GiB",
    "recipe.batch_size": "whether it fits is not known, because the batch size is not: {} to {} GiB with the batch "
    "that was taken; give --set {}=N",
    "recipe.zero_stage": "whether it fits is not known, because how processes share the run is not: as little as {} "
    "GiB, and up to {} GiB if each holds the whole model; give --set {}=3, =2 or =0",
}


def _without(section: MemorySection, facts: FactSet) -> Notice:
    """Return what is missing for a verdict: an unknown fact, the length, the size of a GPU, or one at all."""
    serving, settling = section["serving"], section["settled_by"]
    if settling in _SETTLING:
        text, values = _SETTLING[settling], (*(f"{size:.1f}" for size in section["process_gib"]), settling)
        level = "warning" if settling == "recipe.batch_size" else "error"  # a note of `check`, as a length is
        return Notice(level, Message(text, *values[: text.count("{}")]))
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


#: From the best to the worst, and what is said of a size in GB.
_VERDICTS = {"fits": "it fits {} GB", "tight": "it is tight on {} GB", "does-not-fit": "it does not fit {} GB"}


def _of_sizes(sections: Mapping[Size | None, MemorySection]) -> tuple[MemorySection, Notice | None]:
    """Return the section of the size with the worst verdict, or of one without a verdict; and a notice if the run does
    not fit one size and may fit another."""
    verdicts = [str(section["verdict"]) for section in sections.values()]
    worst = max(
        sections.values(), key=lambda section: ["fits", "tight", "does-not-fit", None].index(section["verdict"])
    )
    sizes = [size for size in sections if size is not None]
    if len(sizes) < 2 or worst["verdict"] is None:
        return worst, None
    results = joined(Message(_VERDICTS[verdict], size) for (_, size), verdict in zip(sizes, verdicts, strict=True))
    gpu, largest = sizes[-1]
    sentence = Message("{} is sold in several sizes: {}", gpu, results)
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
