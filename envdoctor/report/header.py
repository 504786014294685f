"""The head of a report: environment, packages, GPUs, model and recipe that were judged."""

from collections import Counter
from itertools import zip_longest

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import ABSENT, Range, Unknown, spell
from envdoctor.observe.request import Target
from envdoctor.observe.sources import SOURCES
from envdoctor.report.blocks import Field, Items, Section
from envdoctor.report.page import LABEL, Page, display_width, shortened
from envdoctor.report.report import Report

#: Of the packages that people ask for first: how many are always named, and how many if they are installed; scripts
#: that are named.
_ALWAYS, _USUALLY, _SCRIPTS = 2, 9, 3
#: Recipe facts whose value speaks for itself, then those that need their name.
_BARE = ("framework", "method", "stage", "dtype", "quantization")
_NAMED = ("batch_size", "max_length", "attn", "zero_stage", "world_size")


def header(report: Report, page: Page) -> Section:
    """Return the environment, machine, model, code and recipe, without empty fields."""
    facts, blocks = report.facts, environment(report, page).blocks
    machine, title = _machine(facts, page), page.say("GPU and driver")
    fields = [Field(title, [Items(machine, "   ")], bare=True)] if machine else []
    outcomes = []
    for target in report.targets:
        counts = [page.say("{n} error(s)", target.errors)] if target.errors else []
        counts += [page.say("{n} warning(s)", target.warnings)] if target.warnings else []
        outcome = page.labelled(target.name, page.separated(counts) or page.say("nothing found"))
        is_open = target.exit_code == 3
        outcomes.append(page.say("{name}: could not be judged", name=target.name) if is_open else outcome)
    files = _texts(facts, "code.files")
    more = page.say("{n} more", n=len(files) - _SCRIPTS) if len(files) > _SCRIPTS else ""
    code = page.bracket(page.separated([shortened(name, 100) for name in files[:_SCRIPTS]]), more)
    fields += [Field(page.say("Targets"), outcomes)] if outcomes else []
    texts = {"Model": _model(facts, page), "Code": code, "Recipe": _recipe(facts, page)}
    return Section("", [*blocks, *fields, *(Field(page.say(label), [text]) for label, text in texts.items() if text)])


def environment(report: Report, page: Page) -> Section:
    """Return the environment and its packages."""
    packages = Field(page.say("Packages"), [Items(_packages(report, page), "   ")], bare=True)
    return Section("", [*target_fields(report.target, report.facts, page), packages])


def gpu_groups(facts: FactSet) -> list[str]:
    """Return GPUs grouped by kind: ``2 x NVIDIA A100-SXM4-80GB (sm_80)``. Empty if no GPU is known."""
    # a facts file or --set may give columns as plain values
    gpus = list(zip_longest(_texts(facts, "gpu.name"), _texts(facts, "gpu.cc")))
    if facts.records("gpu") is not None:
        gpus = [(gpu.text("name"), gpu.text("cc")) for gpu in facts.each("gpu")]
    kinds: Counter[str] = Counter()
    for name, cc in gpus:
        text = "GPU" if name is None else shortened(name, 100)
        kinds[text if cc is None else f"{text} (sm_{shortened(cc, 20).replace('.', '')})"] += 1
    return [f"{count} x {kind}" for kind, count in kinds.items()]


def python_words(facts: FactSet, page: Page) -> str:
    """Return ``python 3.11.9``, with the implementation when it is not CPython; empty when unknown."""
    key = "python.minor" if facts.unknown("python.version") else "python.version"
    if not facts.known(key):
        return ""
    implementation = facts.text("python.implementation") or ""
    other = implementation if implementation != "cpython" else ""
    return page.bracket(f"python {shortened(spell(facts.value(key)), 60)}", shortened(other, 60))


def system_words(facts: FactSet) -> list[str]:
    """Return the known parts of the operating system: ``linux x86_64``, ``glibc 2.35``, ``wsl``, ``docker``."""
    system, arch, libc, version, container = (
        _known(facts, f"os.{name}") for name in ("platform", "arch", "libc", "libc_version", "container")
    )
    parts = [f"{system} {arch}".strip(), libc and f"{libc} {version}".rstrip()]
    return [part for part in (*parts, "WSL" if facts.value("os.wsl") is True else "", container) if part]


def torch_words(facts: FactSet, page: Page) -> str:
    """Return the build of the installed torch (``CUDA 12.8``, ``CPU build``), or "" if its version tells the build."""
    cuda, hip = _known(facts, "torch.cuda"), _known(facts, "torch.hip")
    if "+" in (facts.text("pkg.torch") or "+"):
        return ""
    if cuda or hip:
        return f"CUDA {cuda}" if cuda else f"HIP {hip}"
    return page.say("CPU build") if facts.absent("torch.cuda") and facts.absent("torch.hip") else ""


def target_fields(target: Target, facts: FactSet, page: Page) -> list[Field]:
    """Return the environment, with Python and system, and why it was chosen unless an option named it."""
    label = SOURCES.get(target.kind, SOURCES["default"]).label[page.lang]
    words = list(filter(None, [python_words(facts, page)])) + system_words(facts)
    line = page.bracket(target.path, page.separated(words))
    if page.width is None or max(display_width(label) + 1, LABEL) + display_width(line) <= page.width or not words:
        fields = [Field(label, [line])]
    else:
        fields = [Field(label, [target.path]), Field("", [Items(words)], bare=True)]
    if target.because and (page.verbosity > 0 or not target.because.startswith("--")):
        chosen = page.say("chosen: {reason}", reason=page.sentence(target.because))
        fields.append(Field("", [chosen], bare=True))
    return fields


def _packages(report: Report, page: Page) -> list[str]:
    """Return torch and transformers always; others if installed, or if their absence matters to a finding."""
    facts = report.facts
    concerned = {fact.key for finding in report.shown() for fact in finding.facts}
    words: list[str] = []
    for place, name in enumerate(report.registry.first("pkg")[:_USUALLY]):
        key = f"pkg.{name}"
        value = facts.value(key)
        if isinstance(value, Unknown) and not isinstance(value, Range):
            if place < _ALWAYS:
                words.append(page.not_known(name, value.reason))
        elif place < _ALWAYS or key in concerned or value is not ABSENT:
            words.append(page.bracket(page.fact(key, spell(value)), torch_words(facts, page) if place == 0 else ""))
    return words


def _machine(facts: FactSet, page: Page) -> list[str]:
    def unknown(name: str, key: str) -> str:
        gap = facts.unknown(key)
        return page.not_known(name, gap.reason if gap is not None else "")

    groups, gpus = gpu_groups(facts), facts.records("gpu")
    differs = any(item["key"] == "driver.version" for item in facts.items("drift"))  # between machines
    if not (groups or differs) and gpus is None and facts.unknown("driver.version"):
        return [unknown(page.say("GPU and driver"), "gpu")]
    doubt = gpus.incomplete if gpus is not None else None
    if groups:
        more = [page.say("perhaps more GPUs ({reason})", reason=page.sentence(doubt))] if doubt else []
        words = [*groups, *more]
    elif gpus is None:
        words = [unknown(page.name("gpu"), "gpu")]
    else:
        others = [kind for kind in _texts(facts, "machine.accelerators") if kind != "nvidia"]
        none = page.say("no NVIDIA GPU" if others else "no GPU")
        words = [page.not_known(page.name("gpu"), doubt) if doubt else none]
        words += [page.value("machine.accelerators", kind) for kind in others]
    if facts.absent("driver.version"):
        words.append(page.say("no NVIDIA driver"))
    elif facts.known("driver.version"):
        words.append(page.fact("driver.version", spell(facts.value("driver.version"))))
    elif differs:
        words.append(page.say("drivers that differ"))
    elif groups:
        words.append(unknown(page.name("driver.version"), "driver.version"))
    return words


def _model(facts: FactSet, page: Page) -> str:
    repo, path = facts.get("model.repo"), facts.get("model.path")
    name = facts.text("model.repo") or facts.text("model.path")
    kind, family = _known(facts, "model.type"), _known(facts, "model.family")
    if name is None and not (kind or family):
        source = next((fact for fact in (repo, path) if fact.origin or fact.key in facts), None)
        gap = facts.unknown(source.key) if source is not None else None
        return page.not_known(page.name("model.repo"), gap.reason) if gap is not None and gap.reason else ""
    text = shortened(name or "", 200)
    revision = _known(facts, "model.revision")
    if revision and text:
        text += f" @ {revision[:7]}"
    more = page.say("family {name}", name=family) if family else page.say("type {name}", name=kind) if kind else ""
    return page.bracket(text, more or page.not_known(page.name("model.family")))


def _recipe(facts: FactSet, page: Page) -> str:
    settings = [fact for fact in facts.below("recipe.") if not fact.is_computed and fact.source != "preset"]
    parts = {fact.key[7:]: fact for fact in settings if facts.known(fact.key)}
    if not parts:
        return ""
    # A batch size that was not given may be the evaluation's.
    if "train_batch_size" in parts and facts.get("recipe.batch_size").source != "given":
        parts["batch_size"] = parts["train_batch_size"]._replace(key="recipe.batch_size")
    words = [page.value(parts[name].key, spell(parts[name].value)) for name in _BARE if name in parts]
    words += [page.fact(parts[name].key, spell(parts[name].value)) for name in _NAMED if name in parts]
    rest = [page.fact(fact.key, spell(fact.value)) for name, fact in parts.items() if name not in (*_BARE, *_NAMED)]
    count = 3 if len(words) < 3 else 0
    words += [*rest[:count], *([page.say("{n} more", n=len(rest) - count)] if len(rest) > count else [])]
    paths = [getattr(fact.origin, "path", fact.origin) for fact in parts.values() if fact.origin]
    if facts.records("recipe_file") is not None:
        paths = [str(item["path"]) for item in facts.items("recipe_file")]
    origins = list(dict.fromkeys(paths))
    text, files = page.separated(words), [origin for origin in origins if not origin.startswith("--")]
    return page.bracket(page.separated(files[:3]), text) if files else page.bracket(text, page.separated(origins[:3]))


def _texts(facts: FactSet, key: str) -> tuple[str, ...]:
    text = facts.text(key)
    return facts.words(key) or () if text is None else (text,)


def _known(facts: FactSet, key: str) -> str:
    return shortened(spell(facts.value(key)), 100) if facts.known(key) else ""
