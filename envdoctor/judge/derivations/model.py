"""The model: its name and family, who runs it and knows it, and the attention and quantisation that follow.
And the requirements of a run beside those of its packages: the rows of the table ``run-needs`` that hold for it."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from envdoctor.facts.factset import FactSet, View
from envdoctor.facts.registry import parse_value
from envdoctor.facts.values import ABSENT, NOT_GIVEN, Range, Records, Unknown, Value, spell
from envdoctor.judge.derivations import Answer, Derived, derives
from envdoctor.judge.evaluate import answer
from envdoctor.matrix.matrix import Matrix
from envdoctor.matrix.released_wheels import KnownNames, transformers_types
from envdoctor.matrix.rules import glob_fits, parse_condition
from envdoctor.system.message import Message
from envdoctor.versions.pep440 import base_release, dotted, satisfies
from envdoctor.versions.releases import contains, lies_in, parse_ranges
from envdoctor.versions.requirement import read_requirement

#: The facts that a copy of a model has in common with it.
_OF_A_COPY = {"model.type", "model.architectures"}
#: Facts of a recipe: at least one is known if a recipe was seen.
_SEEN = ("recipe_file", "recipe.framework", "recipe.method")
_TABLE = "default-attention"
#: Older releases choose none: modules have one class for each.
_FIRST = (4, 36)
#: With an older torch no release takes SDPA.
_TORCH = ">=2.1.1"


@derives("model.name", of="model.repo model.path model.type model.family")
def _model_name(facts: View, matrix: Matrix) -> Answer:
    """Say what to call the model: its repository or its folder's name, else its type or its family."""
    for key in ("model.repo", "model.path", "model.type", "model.family"):
        if (name := facts.text(key)) is not None:
            folder = name.replace("\\", "/").rstrip("/").rpartition("/")[2]
            return Derived(folder if key == "model.path" else name, key)
    return None


@derives("model.run_by", of="recipe.framework")
def _model_run_by(facts: View, matrix: Matrix) -> Answer:
    """Tell whose code runs the model: transformers', a serving engine's, or a trainer's with its own models."""
    framework = facts.text("recipe.framework")
    if framework is None:
        return None
    rows = matrix.rows("framework-models", "framework")
    by = next((row["model_code"] for row in rows if row["name"] == framework), "transformers")
    return Derived(by, "recipe.framework")


@derives("recipe.trainer", of="recipe.framework")
def _recipe_trainer(facts: View, matrix: Matrix) -> Answer:
    """Tell whose trainer the framework makes: trl's, a loop of its own, or one that is or extends transformers'."""
    framework = facts.text("recipe.framework")
    rows = matrix.rows("memory-frameworks", "framework") if framework is not None else ()
    by = next((row["trainer"] for row in rows if row["name"] == framework and "trainer" in row), "transformers")
    return Derived(by, "recipe.framework") if framework is not None else None


@derives("environment.serves", of="recipe.framework refused pkg.*")
def _serves(facts: View, matrix: Matrix) -> Answer:
    """Tell which serving engine is run: the recipe's, or in a list the only package that runs models."""
    rows = matrix.rows("framework-models", "framework")
    engines = [row["name"] for row in rows if row["model_code"] == "engine"]
    framework = facts.text("recipe.framework")
    if framework is not None or facts.records("refused") is None:
        return Derived(str(framework), "recipe.framework") if framework in engines else None
    names = [row["name"] for row in rows if facts.text(f"pkg.{row['name']}") is not None]
    origin = Message("nothing else of the list runs models")
    return Derived(names[0], origin, "default") if len(names) == 1 and names[0] in engines else None


@derives("recipe.quantization", of="recipe.method recipe.framework model.quantization")
def _quantization(facts: View, matrix: Matrix) -> Answer:
    """Give the quantisation of QLoRA, which is 4 bit of bitsandbytes; torchtune quantises with torchao."""
    other = facts.value("recipe.framework") == "torchtune" or facts.text("model.quantization") is not None
    if facts.value("recipe.method") != "qlora" or other:
        return None
    return Derived("bnb-4bit", Message("recipe.method: qlora"), "default")


@derives("model.registered_since model.registered", of="model.type pkg.transformers")
def _model_registered(facts: View, matrix: Matrix) -> Mapping[str, Derived]:
    """Find from which release on transformers has a class for the model's type, and whether the installed release has
    it, where its files do not tell; nothing about a type that the table does not list."""
    kind, installed = facts.text("model.type"), facts.text("pkg.transformers")
    if kind is None:
        return {}
    types, origin = transformers_types(matrix), Message("table transformers-model-types")
    if types.is_never(kind):
        return {"model.registered_since": Derived(ABSENT, origin)}
    since = types.since(kind)
    if since is None:
        return {}
    outputs = {"model.registered_since": Derived(since, origin)}
    if installed is not None:
        outputs["model.registered"] = Derived(types.has(kind, installed), origin)
    return outputs


@derives(
    "model.known_to_framework", of="recipe.framework model.family pkg.vllm pkg.sglang pkg.llamafactory pkg.unsloth"
)
def _framework_model(facts: View, matrix: Matrix) -> Answer:
    """Tell whether the serving engine or the trainer of the recipe has something of its own for the model's family;
    nothing where the framework, its release or the family is not known."""
    framework, family = facts.text("recipe.framework"), facts.text("model.family")
    installed = facts.text(f"pkg.{framework}")
    known = matrix.part("framework-models", str(framework))
    if family is None or installed is None or not known:
        return None
    return Derived(KnownNames(known).has(family, installed), Message("table framework-models"))


@derives(
    "model_need",
    of="model.family model.repo model.run_by model.type model.remote_code model.quantization gpu environment.serves "
    "pkg.*",
)
def _model_need(facts: View, matrix: Matrix) -> Answer:
    """List the packages whose releases the model's makers, or its code, ask for, by the table run-needs, and the engine
    that serves it, which must know the model's family."""
    if all(facts.unknown(f"model.{name}") for name in ("family", "repo", "type")):
        return None
    items: list[dict[str, Value]] = []
    engine, rows = facts.text("environment.serves"), _needs_of_model(facts, matrix)
    lines = [(line, row["source"], False) for row in rows for line in row["asks"] if "[" not in line]
    if engine is not None:
        lines += [(*line, True) for line in _asked_of_frameworks(facts, matrix, [engine])]
    for line, source, is_engine in lines:
        need, met = read_requirement(line), _fits_requirement(line, facts)
        if need.specifiers:
            version = facts.value(f"pkg.{need.name}")
            verdict = Unknown(Message("not known here")) if met is None else met
            item = {"package": need.name, "asks": line, "installed": version, "source": source, "met": verdict}
            items.append({**item, "engine": is_engine})
    return Derived(Records(tuple(items)), Message("table run-needs"))


def _asked_of_frameworks(facts: View, matrix: Matrix, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what the model asks of these engines and trainers, and the source: as stated of it, else of its family."""
    packages = set()
    for need in _needs_of_model(facts, matrix):
        for line in need.get("others", ()):
            if (package := read_requirement(line).name) in names:
                packages.add(package)
                yield line, need["source"]
    family = facts.text("model.family")
    for row in matrix.rows("framework-models", "framework"):
        if family is not None and (name := row["name"]) in names and name not in packages:
            releases = KnownNames(matrix.part("framework-models", name)).required(family, facts.text(f"pkg.{name}"))
            yield from () if releases is None else ((name + releases, row["source"]),)


def needs_of(facts: View, matrix: Matrix) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of run-needs whose conditions all hold; a condition that cannot be decided does not."""
    for row in matrix.rows("run-needs"):
        conditions = [parse_condition(matrix.registry, key, text) for key, text in row.get("when", {}).items()]
        if all(answer(test.type, test.alternatives, facts.value(test.key)).holds for test in conditions):
            yield row


def _needs_of_model(facts: View, matrix: Matrix) -> list[Mapping[str, Any]]:
    """Return the rows of run-needs about the model itself; a trainer with its own models needs nothing that
    transformers' code does."""
    of_model = (row for row in needs_of(facts, matrix) if any(key.startswith("model.") for key in row.get("when", {})))
    own = {"asks": ()} if facts.value("model.run_by") == "trainer" else {}
    return [{**row, **own} for row in of_model]


def _fits_requirement(line: str, facts: View) -> bool | None:
    """Return whether the installed release, or its base release, meets a requirement; None when not known."""
    requirement = read_requirement(line)
    if facts.unknown(f"pkg.{requirement.name}"):
        return None
    version = facts.text(f"pkg.{requirement.name}")
    candidates = () if version is None else (version, base_release(version) or "0")
    return any(satisfies(release, requirement.specifiers) for release in candidates)


@derives("model.layers recipe.fsdp_not_in_model", of="model.type model.remote_code recipe.fsdp_wrap")
def _layers(facts: View, matrix: Matrix) -> Mapping[str, Derived]:
    """Give the classes of the model's layers by its type, and the classes that FSDP is to wrap and only other models
    have; nothing for a type or a class that the table does not list."""
    by_class = {row["key"]: row["types"] for row in matrix.rows("decoder-layers")}
    kind, wrapped, origin = facts.text("model.type"), facts.words("recipe.fsdp_wrap"), Message("table decoder-layers")
    own = tuple(name for name, types in by_class.items() if kind in types)
    if not own or facts.value("model.remote_code") is True:
        return {}
    outputs: dict[str, Derived] = {"model.layers": Derived(own, origin)}
    if wrapped is not None:
        others = tuple(name for name in wrapped if name in by_class and name not in own)
        if others or {*wrapped} <= {*own}:
            outputs["recipe.fsdp_not_in_model"] = Derived(others or ABSENT, origin)
    return outputs


@derives("revision.installed_fits", of="revision.transformers_new pkg.transformers")
def _transformers_fits(facts: View, matrix: Matrix) -> Answer:
    """Tell whether the installed transformers lies in the window of the new revision; a release that the ledger does
    not cover is outside of a bound or not known."""
    window, installed = facts.text("revision.transformers_new"), facts.text("pkg.transformers")
    if facts.absent("pkg.transformers") and window is not None:
        return Unknown(Message("transformers is not installed"))
    if window is None or installed is None:
        return None
    released = matrix.ledger.package("transformers")
    try:
        fits = window != "none" and lies_in(installed, window.removeprefix("any"))
    except ValueError:
        return None
    if fits is None:
        return None
    if fits and (released is None or not released.covers(installed)):
        return Unknown(Message("transformers {} is not among the releases that were read", installed))
    return Derived(fits, Message("transformers {} against {}", installed, window))


@derives(
    "model.family model.type model.architectures model.remote_code model.dtype model.quantization model.hidden_size "
    "model.num_layers model.head_dim model.num_attention_heads model.num_key_value_heads model.num_experts "
    "model.vocab_size",
    of="model.repo model.path",
)
def model_family(facts: View, matrix: Matrix) -> Mapping[str, Derived]:
    """Find the model's family, from its type, architectures or name, and what families.toml records of a repository
    whose files were not read."""
    repo, path = facts.text("model.repo"), facts.text("model.path")
    kind, architectures = facts.text("model.type"), facts.words("model.architectures") or ()
    if all(facts.unknown(key) for key in ("model.repo", "model.path", "model.type", "model.architectures")):
        return {}
    names = _names(repo, path, matrix)
    entries = matrix.rows("families", "family")
    family = _family(names, kind, architectures, entries)
    copy = family is None and repo is not None
    if family is None and repo is not None:
        # A copy of a model is called NAME, or ORG_NAME as some write it.
        copies = matrix.part("families", "copies")
        organisation, _, name = repo.lower().rpartition("/")
        name = name[: min((name.find(ending) for ending in copies.get("endings", ()) if ending in name), default=None)]
        is_copy = organisation in map(str.lower, copies.get("organisations", ()))
        names = ["*/" + name, name.replace("_", "/", 1)] if is_copy else []
        family = _family(names, kind, architectures, entries)
    if family is None:
        return {"model.family": _no_family(facts, entries)}
    entry, because = family
    origin = Message("families.toml: {}", because)
    outputs = {"model.family": Derived(entry["id"], origin)}
    if repo is not None:  # a folder's name says too little of what is in it
        for repository in entry.get("known", []):
            if _matches(names, repository.get("repos", [])):
                cells = repository.get("facts", {})
                for key, raw in cells.items():
                    spec = None if copy and key not in _OF_A_COPY else matrix.registry.find(key)
                    if spec is not None:
                        outputs[key] = Derived(parse_value(spec, raw), origin)
                break
    return outputs


def _no_family(facts: View, entries: Iterable[Mapping[str, Any]]) -> Derived:
    kind, repo = facts.value("model.type"), facts.text("model.repo")
    sharing = ", ".join(entry["id"] for entry in entries if kind in entry.get("shared_types", []))
    if isinstance(kind, Unknown):
        name = facts.value("model.path") if repo is None else repo
        reason = Message("the family of {} is not known by name, and its config.json was not read", name)
    elif sharing:
        reason = Message("{} all have model type {}: give the repository's name", sharing, kind)
    else:
        return Derived(ABSENT, Message("families.toml has no family for model type {}", kind))
    return Derived(Unknown(reason), "")


def _names(repo: str | None, path: str | None, matrix: Matrix) -> list[str]:
    """Return the spellings to match: the repository with its organisation's present name, and a folder's bare name."""
    organisations: Mapping[str, str] = matrix.part("families", "organisations")
    names: list[str] = []
    if repo is not None:
        organisation, slash, name = repo.rpartition("/")
        renamed = {old.lower(): new for old, new in organisations.items()}.get(organisation.lower(), organisation)
        bare = () if slash else matrix.part("families", "bare").get("organisations", ())
        names += [f"{renamed}{slash}{name}".lower(), *(f"{owner}/{name}".lower() for owner in bare)]
        names += [] if slash or re.fullmatch(r"[\d.]+b", name.lower()) else [f"*/{name}".lower()]
    elif path is not None:
        names.append("*/" + path.replace("\\", "/").rstrip("/").rpartition("/")[2].lower())
    return names


def _matches(names: Iterable[str], globs: Iterable[str]) -> bool:
    """Return whether a name fits a pattern. The organisation of a folder, ``*/glm-4-9b``, is not known, so only the
    last part is compared, unless the pattern has only a star there."""
    for name, glob in product(names, map(str.lower, globs)):
        last = glob.rpartition("/")[2] if name.startswith("*/") else glob
        if last.strip("*?") and glob_fits(name.removeprefix("*/"), last):
            return True
    return False


def _family(
    names: list[str], kind: str | None, architectures: tuple[str, ...], families: Sequence[Mapping[str, Any]]
) -> tuple[Mapping[str, Any], str] | None:
    for entry in families:
        is_named = _matches(names, entry.get("repos", [])) and not _matches(names, entry.get("except", []))
        types = {*entry.get("types", []), *entry.get("shared_types", [])}
        types |= {repository.get("facts", {}).get("model.type") for repository in entry.get("known", [])} - {None}
        # Files with another type are a folder named like it, but holding another model.
        if is_named and (kind is None or not types or kind in types):
            return entry, Message("repository name {}", names[0].removeprefix("*/"))
    for entry in families:
        if kind is not None and kind in entry.get("types", []):
            return entry, Message("model type {}", kind)
    for entry in families:
        if set(architectures) & set(entry.get("architectures", [])):
            return entry, Message("architecture {}", architectures[0])
    return None


@derives(
    "recipe.attn",
    of=f"recipe.attn {' '.join(_SEEN)} recipe.packing recipe.dialect pkg.openrlhf model.type model.family "
    "model.remote_code model.run_by pkg.transformers pkg.torch",
)
def _default_attention(facts: View, matrix: Matrix) -> Answer:
    """Give the attention where none is asked for: what the framework passes on, else sdpa or eager by the table
    default-attention; for an unknown model sdpa, which nearly all take.

    Give none for a model that runs by code of its own, by an engine or by a trainer's classes, nor for releases that
    the table does not know. Where the release is not known, all that know the model's type must agree.
    """
    if facts.value("recipe.attn") != NOT_GIVEN and not facts.absent("recipe.attn"):
        return None
    choice = _passed_on(facts, matrix)
    if choice is not None:
        return choice if choice.source == "default" or facts.absent("recipe.attn") else None
    if facts.value("model.remote_code") is True or facts.value("model.run_by") in ("engine", "trainer"):
        return None
    if facts.absent("pkg.transformers"):
        return None
    kind, family = facts.text("model.type"), facts.text("model.family")
    rows = matrix.rows("families", "family") if kind is None and family is not None else ()
    kinds = (
        [kind] if kind is not None else [name for row in rows if row["id"] == family for name in row.get("types", ())]
    )
    kinds = kinds or [""]  # no type is known
    torch, installed = facts.text("pkg.torch"), facts.value("pkg.transformers")
    answers = {_attention_of(kind, release, matrix) for kind in kinds for release in _releases(installed, kind, matrix)}
    attention = answers.pop() if len(answers) == 1 else None
    if attention is None:
        return None
    if attention == "sdpa" and torch is not None and satisfies(torch, _TORCH) is False:
        return Derived("eager", Message("default: torch {} is older than SDPA asks for", torch), "default")
    has_recipe = not all(facts.unknown(key) for key in _SEEN)
    if kinds == [""]:
        source = "default" if has_recipe and family is not None else "unasked"
        return Derived(attention, Message("transformers takes SDPA for nearly every model"), source)
    if not has_recipe:
        return Derived(attention, Message("transformers takes it by itself, and no recipe was seen"), "unasked")
    every = Message("every transformers that knows it")
    release = Message("transformers {}", installed) if isinstance(installed, str) else every
    return Derived(attention, Message("default of {} for {}", release, ", ".join(kinds)), "default")


def takes_sdpa(kind: str, installed: Value, matrix: Matrix) -> bool:
    """Return whether a class of the type may take SDPA: not if every release that the run may have takes eager
    attention for it by itself."""
    return {_attention_of(kind, release, matrix) for release in _releases(installed, kind, matrix)} != {"eager"}


def _passed_on(facts: View, matrix: Matrix) -> Derived | None:
    """Return the attention that a framework hands to transformers by itself; a guess if its releases differ."""
    guess = None
    for row in matrix.rows("recipe-formats", "format"):
        if row.get("framework") != facts.value("recipe.framework"):
            continue
        for setting in row.get("implied", ()):
            by = facts.value(f"recipe.{setting['by']}")
            if setting["field"] == "attn" and spell(by).lower() in setting["words"]:
                return Derived(setting["value"], Message("default of {}", row["title"]), "default")
        for setting in row.get("versioned", ()):
            if setting["field"] != "attn":
                continue
            installed = facts.text(f"pkg.{setting['package']}")
            if installed is not None and satisfies(installed, setting["releases"]) is True:
                return Derived(setting["value"], Message("default of {} {}", row["title"], installed), "default")
            guess = guess or Derived(
                setting["value"], Message("default of {} {}", setting["package"], setting["releases"]), "assumed"
            )
    return guess


def _releases(installed: Value, kind: str, matrix: Matrix) -> Iterable[tuple[int, ...]]:
    """Return the releases that the run may have and that know the type: the installed one, those of a range, or all."""
    if isinstance(installed, str):
        texts: Iterable[str] = [installed]
    elif isinstance(installed, Range):
        texts = map(str, installed.releases)
    else:
        texts = matrix.ledger.published("transformers")
    # Release candidates are left out: what they take is not known.
    releases = [release for text in texts if (release := dotted(text.partition("+")[0])) is not None]
    if not kind:
        return [release for release in releases if release >= _FIRST]
    ranges = transformers_types(matrix).releases(kind)
    return [release for release in releases if ranges is not None and contains(parse_ranges(ranges), release)]


def _attention_of(kind: str, release: tuple[int, ...], matrix: Matrix) -> str | None:
    if release < _FIRST:
        return "eager"
    if not contains(parse_ranges(matrix.part(_TABLE, "table").get("covers", "<0")), release):
        return None
    if not kind:
        return "sdpa"
    for part, attention in (("open", None), ("sdpa", "sdpa")):
        spans = next((spans for spans, kinds in matrix.part(_TABLE, part).items() if kind in kinds), None)
        if spans is not None and contains(parse_ranges(spans), release):
            return attention
    return "eager"


def others_asked(row: Mapping[str, Any], facts: FactSet) -> Iterator[str]:
    """Return the requirements of a row for serving engines and trainers that are installed or the recipe's."""
    return (line for line in row.get("others", ()) if _is_used(read_requirement(line).name, facts))


def _model_needs(facts: FactSet, matrix: Matrix) -> list[str]:
    """Return the requirements of the model itself, one line a package."""
    since = facts.text("model.registered_since")
    if facts.unknown("model.registered_since"):  # the first release for the family, if it is the same for all its types
        from envdoctor.matrix.released_wheels import transformers_types

        types, family = transformers_types(matrix), facts.value("model.family")
        kinds = next((row["types"] for row in matrix.rows("families", "family") if row["id"] == family), ())
        firsts = {types.since(kind) for kind in kinds}
        since = firsts.pop() if len(firsts) == 1 and not types.is_never(next(iter(kinds))) else None
    rows = _needs_of_model(facts, matrix)
    lines = [line for row in rows for line in row["asks"] if "[" not in line]
    is_theirs = facts.value("model.run_by") != "trainer"
    if since is not None and is_theirs and not any(read_requirement(line).name == "transformers" for line in lines):
        lines.insert(0, f"transformers>={since}")
    used = [row["name"] for row in matrix.rows("framework-models", "framework") if _is_used(row["name"], facts)]
    lines += [line for line, _ in _asked_of_frameworks(facts, matrix, used)]
    bounds: dict[str, list[str]] = {}
    for need in map(read_requirement, lines):
        bounds.setdefault(need.name, []).extend([need.specifiers] if need.specifiers else [])
    return [package + ",".join(texts) for package, texts in bounds.items()]


def lost_by_model(now: FactSet, after: FactSet, matrix: Matrix) -> Message | None:
    """Return a sentence with the package that a change would move out of the model's requirements; None without one."""
    for line in _model_needs(now, matrix):
        if _fits_requirement(line, after) is False is not _fits_requirement(line, now):
            text = "it would break a requirement: {} asks for another {}"
            return Message(text, now.value("model.name"), read_requirement(line).name)
    return None


def asked_by_model(facts: FactSet, matrix: Matrix) -> Message | None:
    """Return a sentence with the model's requirements and whether the environment meets them; None if unknown."""
    needs = _model_needs(facts, matrix)
    if not needs:
        return None
    there = {line: _fits_requirement(line, facts) for line in needs}
    missing, unknown = ([line for line in needs if there[line] is state] for state in (False, None))
    texts = {
        (True, True): "{} asks for {}; not here: {}; not known here: {}",
        (True, False): "{} asks for {}; not here: {}",
        (False, True): "{} asks for {}; not known here: {}",
        (False, False): "{} asks for {}; all of it is here",
    }
    lists = [", ".join(lines) for lines in (needs, missing, unknown) if lines]
    return Message(texts[bool(missing), bool(unknown)], facts.value("model.name"), *lists)


def _is_used(framework: str, facts: FactSet) -> bool:
    return facts.text(f"pkg.{framework}") is not None or facts.value("recipe.framework") == framework
