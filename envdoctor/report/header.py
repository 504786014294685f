"""The first lines of the terminal report: what was judged - environment, packages, GPUs, model and recipe."""

from __future__ import annotations

import re
from collections import Counter

from envdoctor.facts.factset import FactSet
from envdoctor.facts.values import Absent, Fact, Records, Unknown, spell
from envdoctor.observe.target import Target
from envdoctor.report.layout import display_width, pad, wrap, wrap_items
from envdoctor.report.names import KEY_PACKAGES, name_fact, say_fact, say_reason
from envdoctor.report.phrases import phrase
from envdoctor.report.report import Report
from envdoctor.text.clean import clean

__all__ = [
    "environment_lines",
    "gpu_groups",
    "header_lines",
    "python_words",
    "system_words",
    "target_lines",
    "torch_words",
]

_LABEL = 13
_LINE = re.compile(r"(.+?):\d+\Z")
#: Recipe facts whose value speaks for itself, then those that need their name.
_BARE = ("framework", "method", "stage", "dtype", "quantization")
_NAMED = ("batch_size", "max_length", "attn", "zero_stage", "world_size")


def header_lines(report: Report, width: int | None, lang: str, verbosity: int) -> list[str]:
    """The header without a blank line behind it."""
    facts = report.facts
    lines = target_lines(report.target, facts, width, lang, verbosity)
    lines += wrap_items(_packages(report, lang), width, "  ", "  ", "   ")
    machine = _machine(facts, lang)
    if machine:
        lines += wrap_items(machine, width, "  ", "  ", "   ")
    for label, text in (("model", _model(facts, lang)), ("recipe", _recipe(facts, lang))):
        if text:
            lines += wrap(text, width, pad(phrase(lang, label), _LABEL), " " * _LABEL)
    return lines


def environment_lines(report: Report, width: int | None, lang: str, verbosity: int) -> list[str]:
    """The environment and its packages, for a report that is not about the machine."""
    lines = target_lines(report.target, report.facts, width, lang, verbosity)
    return lines + wrap_items(_packages(report, lang), width, "  ", "  ", "   ")


def gpu_groups(facts: FactSet) -> list[str]:
    """GPUs of a kind together: ``2 x NVIDIA A100-SXM4-80GB (sm_80)``. Empty when there are none or none is known."""
    value = facts.value("gpu")
    kinds: Counter[str] = Counter()
    if isinstance(value, Records):
        for item in value:
            kinds[_gpu(item.get("name"), item.get("cc"))] += 1
    else:  # a facts file or --set may give columns as plain values
        names, ccs = (_texts(facts.value(f"gpu.{column}")) for column in ("name", "cc"))
        for place in range(max(len(names), len(ccs))):
            name = names[place] if place < len(names) else None
            kinds[_gpu(name, ccs[place] if place < len(ccs) else None)] += 1
    return [f"{count} x {kind}" for kind, count in kinds.items()]


def python_words(facts: FactSet, lang: str = "en") -> str:
    """``python 3.11.9``, with the implementation when it is not CPython; empty when unknown."""
    version, implementation = facts.value("python.version"), facts.value("python.implementation")
    if isinstance(version, (Unknown, Absent)):
        return ""
    text = f"python {clean(spell(version), 60)}"
    if isinstance(implementation, str) and implementation != "cpython":
        text = phrase(lang, "bracket", text=text, more=clean(implementation, 60))
    return text


def system_words(facts: FactSet) -> list[str]:
    """``linux x86_64``, ``glibc 2.35``, ``wsl``, ``docker``: what is known of the operating system."""
    words = [_known(facts, key) for key in ("os.platform", "os.arch")]
    parts = [" ".join(filter(None, words)), _known(facts, "os.libc")]
    if parts[1] and _known(facts, "os.libc_version"):
        parts[1] += " " + _known(facts, "os.libc_version")
    if facts.value("os.wsl") is True:
        parts.append("WSL")
    return [part for part in (*parts, _known(facts, "os.container")) if part]


def torch_words(facts: FactSet, lang: str = "en") -> str:
    """The build of the installed torch where its version does not tell it: ``CUDA 12.8``, ``CPU build``; or empty."""
    version = facts.value("pkg.torch")
    if not isinstance(version, str) or "+" in version:
        return ""
    cuda, hip = _known(facts, "torch.cuda"), _known(facts, "torch.hip")
    if cuda or hip:
        return f"CUDA {cuda}" if cuda else f"HIP {hip}"
    known_absent = all(isinstance(facts.value(key), Absent) for key in ("torch.cuda", "torch.hip"))
    return phrase(lang, "cpu_build") if known_absent else ""


def target_lines(target: Target, facts: FactSet, width: int | None, lang: str, verbosity: int) -> list[str]:
    """What was judged, with Python and system, and why this one unless an option named it."""
    known = target.kind in ("environment", "path", "root", "facts", "lock", "report")
    label = pad(phrase(lang, f"target_{target.kind if known else 'environment'}"), _LABEL)
    words = list(filter(None, [python_words(facts, lang)])) + system_words(facts)
    details = phrase(lang, "separator").join(words)
    path = clean(target.path)
    line = phrase(lang, "bracket", text=path, more=details) if details else path
    if width is None or display_width(label) + display_width(line) <= width or not details:
        lines = [label + line]
    else:
        lines = [label + path, *wrap_items(words, width, "  ", "  ", phrase(lang, "separator"))]
    because = clean(target.because)
    if because and (verbosity > 0 or not because.startswith("--")):
        lines += wrap(phrase(lang, "chosen", reason=because), width, "  ", "    ")
    return lines


def _packages(report: Report, lang: str) -> list[str]:
    """torch and transformers always; others when installed, or when their absence matters to a finding."""
    facts = report.facts
    concerned = {fact.key for finding in report.shown() for fact in finding.facts}
    words: list[str] = []
    for name in KEY_PACKAGES[:8]:
        key = f"pkg.{name}"
        value = facts.value(key)
        usual = name in ("torch", "transformers")
        if isinstance(value, Unknown):
            if usual:
                words.append(_not_known(name, facts.get(key), lang))
        elif usual or key in concerned or not isinstance(value, Absent):
            text = say_fact(key, spell(value), lang)
            build = torch_words(facts, lang) if name == "torch" else ""
            words.append(phrase(lang, "bracket", text=text, more=build) if build else text)
    return words


def _machine(facts: FactSet, lang: str) -> list[str]:
    gpu, driver = facts.get("gpu"), facts.get("driver.version")
    groups = gpu_groups(facts)
    gpu_known = bool(groups) or isinstance(gpu.value, Records)
    if not gpu_known and isinstance(driver.value, Unknown):
        return [_not_known(phrase(lang, "gpu_and_driver"), gpu, lang)]
    words = _gpus(facts, groups, lang) if gpu_known else [_not_known("GPU", gpu, lang)]
    if isinstance(driver.value, Absent):
        words.append(phrase(lang, "no_driver"))
    elif not isinstance(driver.value, Unknown):
        words.append(phrase(lang, "driver", version=clean(spell(driver.value), 60)))
    elif groups:
        words.append(_not_known(phrase(lang, "nvidia_driver"), driver, lang))
    return words


def _gpus(facts: FactSet, groups: list[str], lang: str) -> list[str]:
    value = facts.value("gpu")
    doubt = value.incomplete if isinstance(value, Records) else None
    if groups:
        return [*groups, phrase(lang, "gpus_incomplete", reason=clean(doubt))] if doubt else groups
    others = [clean(kind, 60) for kind in _texts(facts.value("machine.accelerators")) if kind != "nvidia"]
    if doubt:
        return [_because("GPU", doubt, lang), *others]
    return [phrase(lang, "no_nvidia_gpu" if others else "no_gpu"), *others]


def _model(facts: FactSet, lang: str) -> str:
    repo, path = facts.get("model.repo"), facts.get("model.path")
    named = next((fact for fact in (repo, path) if isinstance(fact.value, str)), None)
    kind = _known(facts, "model.type")
    family = _known(facts, "model.family")
    if named is None and not (kind or family):
        tried = next((fact for fact in (repo, path) if fact.origin or fact.key in facts), None)
        return _reason(tried, lang) if tried is not None else ""
    text = clean(str(named.value)) if named is not None else ""
    revision = _known(facts, "model.revision")
    if revision and text:
        text += f" @ {revision[:7]}"
    more = phrase(lang, "family", name=family) if family else phrase(lang, "type", name=kind) if kind else ""
    if not more:
        more = phrase(lang, "not_known", name=name_fact("model.family", lang))
    return phrase(lang, "bracket", text=text, more=more) if text else more


def _recipe(facts: FactSet, lang: str) -> str:
    given = [fact for fact in facts if fact.key.startswith("recipe.") and fact.source not in ("derived", "assumed")]
    known = {fact.key[7:]: fact for fact in given if not isinstance(fact.value, (Unknown, Absent))}
    if not known:
        return ""
    words = [clean(spell(known[name].value), 60) for name in _BARE if name in known]
    words += [say_fact(known[name].key, spell(known[name].value), lang) for name in _NAMED if name in known]
    rest = [fact for name, fact in known.items() if name not in _BARE and name not in _NAMED]
    if len(words) < 3:
        words += [say_fact(fact.key, spell(fact.value), lang) for fact in rest[:3]]
        rest = rest[3:]
    if rest:
        words.append(phrase(lang, "others", n=len(rest)))
    origins = dict.fromkeys(_file(fact.origin) for fact in known.values() if fact.origin)
    text = phrase(lang, "separator").join(words)
    files = [origin for origin in origins if not origin.startswith("--")]
    if files:
        return phrase(lang, "bracket", text=", ".join(files[:3]), more=text)
    return phrase(lang, "bracket", text=text, more=", ".join(list(origins)[:3])) if origins else text


def _file(origin: str) -> str:
    match = _LINE.match(origin)
    return clean(match.group(1) if match else origin, 200)


def _gpu(name: object, cc: object) -> str:
    text = clean(name, 100) if isinstance(name, str) else "GPU"
    return f"{text} (sm_{clean(cc, 20).replace('.', '')})" if isinstance(cc, str) else text


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,)
    return value if isinstance(value, tuple) else ()


def _known(facts: FactSet, key: str) -> str:
    value = facts.value(key)
    return "" if isinstance(value, (Unknown, Absent)) else clean(spell(value), 100)


def _not_known(name: str, fact: Fact, lang: str) -> str:
    reason = fact.value.reason if isinstance(fact.value, Unknown) else ""
    return _because(name, reason, lang) if reason not in ("", "not given") else phrase(lang, "not_known", name=name)


def _because(name: str, reason: str, lang: str) -> str:
    return phrase(lang, "not_known_because", name=name, reason=say_reason(reason, lang))


def _reason(fact: Fact, lang: str) -> str:
    return _not_known(name_fact(fact.key, lang), fact, lang) if isinstance(fact.value, Unknown) else ""
