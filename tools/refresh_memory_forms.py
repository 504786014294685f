"""Bring types into matrices/tables/memory-forms.toml: python tools/refresh_memory_forms.py [--all] FORMS.jsonl ...

The files are what ``tools/memory_forms/trace_forms.py`` printed in environments with different transformers; what the
table says of the same job and release is replaced, the rest stays. Of each job those sums count that are the largest at
one of many real shapes; what is never a ten-thousandth is left out.

Sums are shared: the table has few that tell each job's peak, with the weights, within :data:`SHARED` of the trace
at every shape that a machine can hold. ``--all`` chooses anew for the jobs in the table too; each time they may
be that much further from the trace. Needs numpy.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from memory_forms.shapes import LEAST, QKV, shape_of

from envdoctor.matrix import load_matrix
from envdoctor.peak.shipped import form_words, jobs_of

TABLE = Path(__file__).parents[1] / "matrices" / "tables" / "memory-forms.toml"
#: Real shapes at which the sums are compared: models, batches, tokens, layers, ranks of LoRA.
GRID = [
    {**shape_of(model, batch, tokens), "L": layers, "E": layers, "R": rank}
    for model, batch, tokens in itertools.product(
        ("8b", "0.5b", "70b", "7b", "t5-3b"), (1, 4, 16), (256, 2048, 8192, 32768)
    )
    for layers, rank in ((24, 8), (32, 64), (80, 16))
]
_NOTHING = 1e-4
#: The share of a peak, weights included, by which a shared sum may be off: of :meth:`Shapes.sums`, one by one.
SHARED = np.array([0.014, 0.014, 0.1])[:, np.newaxis]
#: Peaks above are nobody's, in bytes.
_MOST = 400 << 30
#: Types whose embeddings are also their head where config.json does not say.
_TIED = ("gemma2", "bart", "whisper", "t5")

Poly = dict[str, float]
#: Type, words and release of a job.
Job = tuple[str, str, str]
#: Segment, operation, and terms as they stand in the table.
Sums = tuple[str, str, str]


@functools.cache
def products(names: str) -> list[float]:
    """The product of the sizes at each shape of the grid."""
    return [math.prod(shape[name] for name in names) for shape in GRID]


def values(terms: Poly) -> list[float]:
    """The sum of products at each shape of the grid."""
    columns = [[factor * size for size in products(names)] for names, factor in terms.items()]
    return [sum(column) for column in zip(*columns, strict=True)] if columns else [0.0] * len(GRID)


def text(terms: Poly) -> str:
    """As it stands in the table: ``2 BGHKS + 16 BGHKLS``."""
    return " + ".join(f"{round(factor, 6):g} {names}".strip() for names, factor in sorted(terms.items()) if factor)


def poly(text_: str) -> Poly:
    """The other way round."""
    return {names: float(factor) for factor, _, names in (part.partition(" ") for part in text_.split(" + ") if part)}


def with_layers(pairs: Mapping[str, Sequence[float]]) -> Poly:
    """Products with L from what stands beside the layers and what is in each; with E of an encoder beside them."""
    found: Poly = {}
    for names, (beside, *each) in pairs.items():
        found[names] = beside
        for layers, size in zip("LE", each, strict=False):
            found["".join(sorted(names + layers))] = size
    return {names: factor for names, factor in found.items() if abs(factor) > 1e-6}


def peaks(forms: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, dict[str, Poly]]]:
    """Segment, operation, and terms of those that are the most somewhere, with and without their gradients."""
    read = []
    for form in forms:
        by_label: dict[str, dict[str, Sequence[float]]] = {}
        for name, pair in form["terms"].items():
            label, _, names = name.partition("|")
            by_label.setdefault(label, {})[names] = pair
        read.append((form["segment"], form["operation"], {one: with_layers(two) for one, two in by_label.items()}))

    merged = [merged_terms(form[2]) for form in read]
    grown = [merged_terms({**form[2], "gradients": {}}) for form in read]
    kept: set[int] = set()
    for sizes in (list(map(values, merged)), list(map(values, grown))):
        for column in zip(*sizes, strict=True):
            if all(column[place] < max(column) * (1 - _NOTHING) for place in kept):
                kept.add(column.index(max(column)))
    found = []
    for place in sorted(kept):
        segment, operation, terms = read[place]
        wholes = values(merged[place])
        small: dict[str, Poly] = {}
        for label, sums in terms.items():
            for names, factor in sums.items():
                one = values({names: factor})
                if any(abs(size) > _NOTHING * whole for size, whole in zip(one, wholes, strict=True)):
                    small.setdefault(label, {})[names] = factor
        found.append((segment, operation, small))
    return found


def merged_terms(terms: Mapping[str, Poly]) -> Poly:
    """One sum of all that is held."""
    found: Poly = {}
    for sums in terms.values():
        for names, factor in sums.items():
            found[names] = found.get(names, 0.0) + factor
    return found


def read_lines(paths: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The lines of the files, with the minor release of transformers."""
    for line in itertools.chain.from_iterable(Path(path).read_text(encoding="utf-8").splitlines() for path in paths):
        record = json.loads(line)
        record["minor"] = ".".join(record["transformers"].split(".")[:2])
        yield record


def words_of(told: Mapping[str, Any]) -> str:
    """The words of the table for a job as it was printed."""
    lora = {"lora_dropout": told["dropout"]} if told["targets"] else None
    return form_words({**told, "training": told["method"] != "infer", "lora": lora}, told["targets"])


def present(table: Mapping[str, Any]) -> tuple[dict[str, Any], dict[Job, Any]]:
    """The models and the jobs of the table."""
    jobs: dict[Job, Any] = {}
    for row in table["form"]:
        terms = {label: poly(one) for label, one in row["terms"].items()}
        segment, _, operation = row["at"].partition(" ")
        for pattern, releases in row["jobs"].items():
            for release, words in itertools.product(releases, jobs_of(pattern)):
                kind, _, minor = release.partition(" ")
                jobs.setdefault((kind, words, minor), []).append((segment, operation, terms))
    return {row["key"]: row for row in table["model"]}, jobs


def model_row(record: Mapping[str, Any]) -> dict[str, Any]:
    """What the table says of a type."""
    kind = record["type"]
    row = {"key": kind, "tied": kind in _TIED, "attention": record["attention"], "modules": record["modules"]}
    row["least"] = LEAST.get(kind, LEAST[""])
    row.update({"qkv": QKV[kind]} if kind in QKV else {})
    row.update({} if record.get("head", True) else {"head": False})
    return {**row, **{part: text(with_layers(record[part])) for part in ("linear", "rest")}}


class Shapes:
    """The bytes of sums at the shapes of the grid: whole, without the gradients (those of accumulated steps are there
    before) and without the logits (a loss in chunks); and those of the weights of a job."""

    def __init__(self, models: Mapping[str, Any]) -> None:
        self.models = models

    def sums(self, found: tuple[str, str, dict[str, Poly]]) -> Any:
        """The bytes of what a step computes."""
        parts = [found[2], *({**found[2], gone: {}} for gone in ("gradients", "logits and loss"))]
        return np.array([values(merged_terms(part)) for part in parts])

    def weights(self, job: Job) -> Any:
        """The bytes of the weights, by the words of the job."""
        words, model = job[1].split(), self.models[job[0]]
        linear, rest = (np.array(values(poly(model[part]))) for part in ("linear", "rest"))
        width = 4 if "float32" in words else 2
        return (linear * 0.5 if "qlora" in words else linear * width) + rest * width


def composed(job: Job, of: Mapping[Job, Sequence[int]], sizes: Any, shapes: Shapes) -> bool:
    """Return whether the sums of LoRA on all linear layers tell the peaks of a job on some of them, without what their
    adapters hold (``without_adapters`` in envdoctor/peak/shipped.py)."""
    kind, words, minor = job
    alone = next((part for part in words.split() if part in ("least", "qkv")), None)
    whole = kind, words.replace(f" {alone} ", " all-linear "), minor
    if alone is None or whole not in of or not {"checkpointing", "upcast"}.isdisjoint(words.split()):
        return False
    model, amp = shapes.models[kind], "amp" in words
    spared: Poly = {}
    for name in model["modules"].keys() - set(model[alone]):
        into, out = map(poly, model["modules"][name])
        held = [("BLS", into, (2 if amp else 4) + 4 * ("dropout" in words)), ("BLRS", {"": 1.0}, 2 if amp else 4)]
        for names, sums, each in [*held, *(("LR", side, 2 * amp) for side in (into, out))]:
            for more, factor in sums.items():
                key = "".join(sorted(names + more))
                spared[key] = spared.get(key, 0.0) + factor * each
    weights = shapes.weights(job)
    most = (sizes[list(of[job])] + weights).max(0)
    told = (sizes[list(of[whole])] + weights).max(0) - np.array(values(spared))
    return bool(((np.abs(told / most - 1) <= SHARED) | (most >= _MOST)).all())


def shared(jobs: Mapping[Job, Sequence[int]], kept: Mapping[int, set[Job]], sizes: Any, shapes: Shapes) -> Any:
    """The places of few sums that tell the peaks of the jobs, with their jobs; ``kept`` are those of other jobs, and
    ``sizes`` the bytes of all sums. A sum that is in the table costs nothing; else the one comes first that tells the
    most peaks, and in the end those go that the others replace."""
    tells: dict[int, dict[Job, Any]] = {}
    asked: dict[Job, Any] = {}
    for job, own in jobs.items():
        wholes = sizes + shapes.weights(job)
        most = wholes[list(own)].max(0)
        asked[job] = most < _MOST
        never_more = ((wholes <= most * (1 + SHARED)) | ~asked[job]).all((1, 2))
        for place in np.flatnonzero(never_more):
            told = asked[job] & (wholes[place] >= most * (1 - SHARED))
            if told.any():
                tells.setdefault(int(place), {})[job] = told
    missing = {job: np.copy(points) for job, points in asked.items()}
    chosen: list[int] = []

    def gain(place: int) -> int:
        return sum(int((told & missing[job]).sum()) for job, told in tells[place].items())

    for places in (sorted(kept.keys() & tells.keys()), sorted(tells)):
        while places and gain(place := max(places, key=gain)):
            chosen.append(place)
            for job, told in tells[place].items():
                missing[job] &= ~told

    def replaced(place: int) -> bool:
        others = [tells[other] for other in chosen if other != place]
        left = {job: asked[job] & ~np.any([told[job] for told in others if job in told], 0) for job in tells[place]}
        return not any(points.any() for points in left.values())

    for place in reversed(chosen):
        if place not in kept and replaced(place):
            chosen.remove(place)
    found = {place: set(others) for place, others in kept.items()}
    for job, points in asked.items():
        left, able = np.copy(points), [place for place in chosen if job in tells[place]]
        while left.any():
            place = max(able, key=lambda one: int((tells[one][job] & left).sum()))
            found.setdefault(place, set()).add(job)
            left &= ~tells[place][job]
    return found


def patterns(words: Sequence[str]) -> list[str]:
    """The jobs with what may be there or not in one: ``lora|qlora bfloat16 amp? sdpa``."""
    left = {tuple((one,) for one in each.split()) for each in words}
    joined = True
    while joined:
        joined = False
        for one, other in itertools.combinations(sorted(left), 2):
            both = _joined(one, other)
            if both is not None:
                left = (left - {one, other}) | {both}
                joined = True
                break
    return [" ".join("|".join(part) for part in one).replace("|?", "?") for one in sorted(left)]


def _joined(one: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Two jobs as one, if they are unlike in one word or one of them has one word more."""
    if len(one) == len(other):
        unlike = [place for place, (first, second) in enumerate(zip(one, other, strict=True)) if first != second]
        if len(unlike) == 1 and "?" not in one[unlike[0]] + other[unlike[0]]:
            place = unlike[0]
            return (*one[:place], tuple(sorted({*one[place], *other[place]})), *one[place + 1 :])
        return None
    if len(one) > len(other):
        one, other = other, one
    places = [place for place in range(len(other)) if other[:place] + other[place + 1 :] == one]
    if len(other) == len(one) + 1 and places and len(other[places[0]]) == 1:
        place = places[0]
        return (*other[:place], (*other[place], "?"), *other[place + 1 :])
    return None


def body(paths: Sequence[str], every: bool) -> str:
    """The rows."""
    models, jobs = present(load_matrix().table("memory-forms"))
    fresh = set(jobs) if every else set[Job]()
    for record in read_lines(paths):
        if "modules" in record:
            models[record["type"]] = model_row(record)
        elif "forms" in record:
            job = record["type"], words_of(record["job"]), record["minor"]
            jobs[job] = peaks(record["forms"])
            fresh.add(job)
    lines = ["model = ["]
    for kind, row in sorted(models.items()):
        modules = ", ".join(
            f"{json.dumps(name) if '.' in name else name} = {json.dumps(sides)}"
            for name, sides in row["modules"].items()
        )
        simple = [name for name in ("tied", "attention", "least", "qkv", "head") if name in row]
        cells = [f'key = "{kind}"', *(f"{name} = {json.dumps(row[name])}" for name in simple)]
        cells += [f"modules = {{ {modules} }}", f'linear = "{row["linear"]}"', f'rest = "{row["rest"]}"']
        lines.append(f"  {{ {', '.join(cells)} }},")
    lines += ["]", "", "form = ["]
    shapes, places, sizes = Shapes(models), dict[Sums, int](), list[Any]()
    of: dict[Job, list[int]] = {}
    for job, found in sorted(jobs.items()):
        for one in found:
            told = ", ".join(
                f"{json.dumps(label)} = {json.dumps(text(sums))}" for label, sums in sorted(one[2].items())
            )
            content = one[0], one[1], f"{{ {told} }}"
            if content not in places:
                places[content] = len(places)
                sizes.append(shapes.sums(one))
            of.setdefault(job, []).append(places[content])
    for job in [job for job in of if composed(job, of, np.array(sizes), shapes)]:
        del of[job]
    fresh &= of.keys()
    kept: dict[int, set[Job]] = {}
    for job in of.keys() - fresh:
        for place in of[job]:
            kept.setdefault(place, set()).add(job)
    chosen = shared({job: of[job] for job in sorted(fresh)}, kept, np.array(sizes), shapes)
    for (segment, operation, terms), place in places.items():
        by_release: dict[str, list[str]] = {}
        for kind, words, minor in sorted(chosen.get(place, ())):
            by_release.setdefault(f"{kind} {minor}", []).append(words)
        by_pattern: dict[str, list[str]] = {}
        for release, words_ in by_release.items():
            for pattern in patterns(words_):
                by_pattern.setdefault(pattern, []).append(release)
        if by_pattern:
            told = ", ".join(f'"{pattern}" = {json.dumps(releases)}' for pattern, releases in by_pattern.items())
            at = f"{segment} {operation}"
            lines.append(f'  {{ jobs = {{ {told} }}, at = "{at}", terms = {terms} }},')
    return "\n".join([*lines, "]", ""])


def main() -> int:
    """Write the table below its head."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forms", nargs="*")
    parser.add_argument("--all", action="store_true")
    options = parser.parse_args()
    head = TABLE.read_text(encoding="utf-8").partition("model = [\n")[0]
    head = re.sub(r"as_of = [\d-]+", f"as_of = {date.today()}", head)
    TABLE.write_text(head + body(options.forms, options.all), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
