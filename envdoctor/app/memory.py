"""``envdoctor memory``: will it fit, and if not, what is the cheapest change that makes it fit?"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from envdoctor.app.errors import JobError, UsageProblem, told_as
from envdoctor.app.facts import Sources, collect_facts
from envdoctor.app.reporting import Judging
from envdoctor.derive import with_facts
from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Fact, Records
from envdoctor.judge.policy import Policy
from envdoctor.knowledge.gpu_code import gpu_named
from envdoctor.knowledge.matrix import Matrix
from envdoctor.lengths.summary import DataError, DataSection, fed_length, measure
from envdoctor.memory.prediction import USUAL, model_of, predict
from envdoctor.memory.recipe import batch_of, engine_of, settings_of
from envdoctor.memory.section import MemoryProblem, MemorySection
from envdoctor.memory.serving import predict_serving
from envdoctor.memory.shipped import Shipped
from envdoctor.memory.stored import Counted, Packed, stored_parameters
from envdoctor.memory.tracing import FirstOf, Source, Tracer
from envdoctor.observe.errors import ObservationError
from envdoctor.observe.model.reading.model_file import read_object
from envdoctor.observe.model.reading.shapes import Shape, shape_of
from envdoctor.observe.model.reading.source import resolve
from envdoctor.report.report import Notice, Report
from envdoctor.sandbox.target import Place, scratch_folder
from envdoctor.text.cache import cache_home
from envdoctor.text.message import Message, said_by

# ``envdoctor memory --data``: the lengths of the training data, and the longest sample as the recipe cuts it.


def lengths_of(
    data: str, tokenizer: str | None, facts: FactSet, *, sources: Sources, matrix: Matrix, place: Place
) -> tuple[DataSection, list[Fact]]:
    """The section of the report, and what it changes of the facts: ``recipe.max_length``. ``tokenizer`` names a folder
    or a repository, None the model's.

    Raises :class:`UsageProblem` and :class:`JobError`.
    """
    folder = _tokenizer_folder(tokenizer, facts, sources, matrix)
    shown = tokenizer or str(facts.value("model.name"))
    asked = facts.number("recipe.max_length")
    cutoff = int(asked) if asked is not None and asked >= 1 else None
    batch = batch_of(facts, training=True)
    with told_as(JobError, DataError):
        path = os.path.join(sources.folder(), data)
        section = measure(path, folder, place, data=data, tokenizer=shown, cutoff=cutoff, batch=batch)
    length = fed_length(section, facts.value("recipe.packing") is True)
    return section, [] if length is None else [Fact("recipe.max_length", length, f"--data {data}", "given")]


def _tokenizer_folder(tokenizer: str | None, facts: FactSet, sources: Sources, matrix: Matrix) -> str:
    if tokenizer is None:
        folder = facts.text("model.path")
        if folder is None:
            raise UsageProblem("--data is counted with a tokenizer: give --tokenizer DIR, or --model DIR that has one")
        return os.path.join(sources.folder(), folder)
    aliases = matrix.part("families", "organisations")
    with told_as(UsageProblem, ObservationError):
        found = resolve(tokenizer, cwd=sources.folder(), environ=sources.environ, aliases=aliases, option="--tokenizer")
    if found.folder is None:
        raise JobError("--tokenizer {}: {}", tokenizer, found.missing)
    return found.folder


#: How much less or more everything may take where a part of the name is unknown, and where the name is a number of
#: parameters alone. Choices, and wide: models of seven billion parameters differ by a fifth.
_LOOSE, _LOOSEST = 0.05, 0.2
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
    coefficients where it cannot be traced, and judge it against the free memory of the GPU. Where there is no number
    the report is incomplete (exit code 3).

    ``data`` is a file of training data: its longest sample, as ``tokenizer`` (a folder, None: the model's) counts it
    and as the recipe cuts it, is the length. Without a model its lengths are all that is told.

    Raises :class:`UsageProblem` and :class:`JobError`.
    """
    run = Judging(policy, matrix, exit_zero)
    matrix = run.matrix
    gathered = collect_facts(sources, matrix)
    section: MemorySection | None = None
    seen: DataSection | None = None
    notices = list(gathered.notices)
    facts = gathered.facts
    python = gathered.interpreter
    if data is not None:
        gathered.needed_interpreter(Message("tokens are counted"))
    say = progress or (lambda text: None)
    with scratch_folder("envdoctor-memory-") as scratch:
        place = Place(str(python), sources.environ, sources.folder(), scratch, "")
        alone = data is not None and facts.text("model.name") is None
        if data is not None:
            say("counting tokens")
            seen, told = lengths_of(data, tokenizer, facts, sources=sources, matrix=matrix, place=place)
            facts = facts if alone else with_facts(facts, told, matrix)
        if alone:
            notices.append(
                Notice("warning", Message("memory was not predicted, which is that of a model: give --model DIR"))
            )
        else:
            say("tracing the model")
            try:
                section = _predicted(facts, sources, matrix, place if python is not None else None, USUAL)
            except MemoryProblem as error:
                notices.append(Notice("error", said_by(error)))
    open_ = section is not None and section["gpu"] is not None and section["verdict"] is None
    if section is not None:
        if section["gpu"] is None:
            text = Message("no GPU is known, so whether it fits was not judged: give --gpu NAME or --gpu-memory GIB")
            notices.append(Notice("warning", text))
        elif open_:
            text = Message(
                "the length is not known, so whether it fits was not judged: give --set recipe.max_length={}", USUAL
            )
            notices.append(Notice("warning", text))
        facts = with_facts(facts, _facts(section), matrix)
    judgement = run.judged(facts, matrix.of_scopes("memory"))
    return run.report(
        "memory",
        gathered.target,
        judgement,
        [*notices, *run.of_rules(judgement)],
        incomplete=open_ if section is not None else not (alone and seen is not None and seen["longest"] is not None),
        data=seen,
        memory=section,
    )


def known_memory(facts: FactSet, sources: Sources, matrix: Matrix) -> tuple[FactSet, MemorySection | None]:
    """The facts with what is known of the peak without starting anything, from an earlier trace in envdoctor's cache or
    by shipped coefficients, and the section of the report; None where nothing is known of it."""
    try:
        section = _predicted(facts, sources, matrix, None)
    except (MemoryProblem, UsageProblem, JobError):
        return facts, None
    return with_facts(facts, _facts(section), matrix), section


def _predicted(
    facts: FactSet, sources: Sources, matrix: Matrix, place: Place | None, usual: int | None = None
) -> MemorySection:
    """``usual`` is the length where nobody gave one.

    Raises :class:`UsageProblem`, :class:`JobError`, :class:`MemoryProblem`."""
    facts = _usable(facts, matrix)
    config = _config(facts, sources)
    shape = _shape(facts, matrix) if config is None else None
    model = model_of(
        shape.config if shape is not None else config or {},
        matrix.rows("native-types"),
        facts.words("model.code_methods") or (),
        str(facts.value("recipe.framework")),
        repo="" if shape is None else str(facts.value("model.repo")),
        trainer=facts.value("model.run_by") == "trainer",
    )
    facts = _quantized(facts, shape, config or {})
    model = model._replace(config={key: value for key, value in model.config.items() if key != "quantization_config"})
    if shape is not None:
        said, loose = _said(shape)
        model = model._replace(said=(said,), loose=loose)
    keys = {name: "python.version" if name == "python" else f"pkg.{name}" for name in _DECIDING}
    versions = {name: "none" if facts.absent(key) else facts.text(key) for name, key in keys.items()}
    cache = cache_home(sources.environ) if sources.cache else None
    traced: Source = Tracer(place, versions, cache)
    # Code of the model's own, and an engine's, is the same whatever release is installed.
    own = model.nearest or engine_of(settings_of(facts))
    terms = matrix.table("memory-terms")
    quantization = facts.text("recipe.quantization")
    # No form is about training on weights that are quantised otherwise.
    packed = quantization not in (None, "bnb-4bit", "torchao-4bit")
    elsewhere = packed or bool(model.trainer) or facts.value("recipe.framework") in terms["code"]
    version = None if own else versions["transformers"] or "unknown"
    shipped: Source = Shipped(matrix.table("memory-forms"), terms, version, elsewhere)
    if shape is None and (parameters := stored_parameters(_folder(facts, sources))) is not None:
        # The installed code says itself what it loads of the files.
        traced = Counted(traced, parameters) if model.nearest else traced
        shipped = Counted(shipped, parameters)
    source: Source = FirstOf(traced, shipped)
    if quantization is not None:
        # What is stored in a way that nobody has told of has at most a byte.
        row: Mapping[str, Any] = next((row for row in terms["weight"] if row["key"] == quantization), {"bytes": 1.0})
        source = Packed(source, float(row["bytes"]), "head" in row)
    if engine_of(settings_of(facts)) is not None:
        return predict_serving(facts, model, source)
    return predict(facts, model, source, usual)


def _usable(facts: FactSet, matrix: Matrix) -> FactSet:
    """Return the facts, with what is usable of a GPU of which only the name is known: less than it is sold with."""
    gpus = facts.value("gpu")
    if not isinstance(gpus, Records):
        return facts
    items = []
    for item, gpu in zip(gpus, facts.each("gpu"), strict=True):
        sold = gpu.number("memory_gib") if gpu.unknown("free_gib") else None
        known = gpu_named(gpu.text("name") or "", matrix) if sold is not None else None
        sizes = dict(zip(known.row["memory_gb"], known.row.get("usable_gib", ()), strict=False)) if known else {}
        items.append({**item, "memory_gib": sizes[sold]} if sold in sizes else item)
    changed = facts.copy()
    changed.update(
        [
            Fact(
                "gpu",
                Records(tuple(items), gpus.incomplete),
                Message("the GPUs that were found, table gpus"),
                "derived",
            )
        ]
    )
    return changed


def _shape(facts: FactSet, matrix: Matrix) -> Shape:
    """Return the shape of a model without a config.json by its name. Raises :class:`MemoryProblem`."""
    repo, rows = facts.text("model.repo"), matrix.rows("model-shapes")
    shape = shape_of(repo, rows, matrix.rows("model-shapes", "suffix")) if repo is not None else None
    if shape is None:
        name = facts.text("model.name")
        raise MemoryProblem("no config.json of {} is on this machine: give its folder, --model DIR", name)
    return shape


def _said(shape: Shape) -> tuple[Message, float]:
    """Return what an answer by a model's name rests on, and how much less or more everything may take for it."""
    if shape.bare:
        text = "a number of parameters is no model: the shape of {} was taken, {} less or more"
        return Message(text, shape.like, f"{_LOOSEST:.0%}"), _LOOSEST
    if shape.unknown:
        text = "by its name the model has the shape of {}, {} less or more: unknown is {}"
        return Message(text, shape.like, f"{_LOOSE:.0%}", ", ".join(shape.unknown)), _LOOSE
    return Message("no file of the model is here: by its name it has the shape of {}", shape.like), 0.0


def _quantized(facts: FactSet, shape: Shape | None, config: Mapping[str, Any]) -> FactSet:
    """Return the facts, with the quantisation of the model's files, or in its name, where the recipe gives none. Raises
    :class:`MemoryProblem`."""
    told = shape.quantized if shape is not None else None
    told = facts.text("model.quantization") if told is None else told
    if told is None or facts.text("recipe.quantization") is not None:
        return facts
    if not told:
        raise MemoryProblem("the model's name tells that it is quantised, and not how")
    settings, name = config.get("quantization_config"), str(facts.value("model.repo")).lower()
    bits = settings.get("bits") if isinstance(settings, dict) else 8 if "int8" in name or "8bit" in name else None
    eight = bits == 8 or (isinstance(settings, dict) and settings.get("load_in_8bit") is True)
    told = told if told != "bitsandbytes" else "bnb" if eight else "bnb-4bit"
    changed = facts.copy()
    method = f"{told}-8bit" if eight else told
    changed.update([Fact("recipe.quantization", method, Message("the model's name"), "derived")])
    return changed


def _folder(facts: FactSet, sources: Sources) -> str:
    return os.path.join(sources.folder(), str(facts.value("model.path")))


def _config(facts: FactSet, sources: Sources) -> dict[str, Any] | None:
    """Return the model's config.json, None where it is not here. Raises :class:`UsageProblem`, :class:`JobError`."""
    name = facts.text("model.name")
    if name is None:
        text = Message("give --model DIR, --model ORG/NAME or a recipe that names it: the memory is that of a model")
        raise UsageProblem(text)
    if facts.text("model.path") is None:
        return None
    with told_as(JobError, ObservationError):
        config = read_object(_folder(facts, sources), "config.json", name)
    return config if isinstance(config, dict) else None


def _facts(section: MemorySection) -> list[Fact]:
    """The facts that the rules judge."""
    interval = section["interval"]
    values = {
        "memory.needed_gib": round(interval["mostly"] if interval is not None else section["process_gib"][0], 1),
        "memory.most_gib": round(section["process_gib"][1], 1),
        "memory.free_gib": None if section["free_gib"] is None else round(section["free_gib"], 1),
        "memory.gpu": section["gpu"],
        "memory.verdict": section["verdict"],
        "memory.phase": section["phase"],
    }
    return [Fact(key, value, "memory", "memory") for key, value in values.items() if value is not None]
