"""Bring types into matrices/tables/memory-forms.toml: python tools/refresh_memory_forms.py FORMS.jsonl ...

The files are what ``tools/memory_forms/trace_forms.py`` printed in environments with different transformers; what the
table says of the same job and release is replaced, the rest stays. Of each job those sums are kept that are the largest
at one of many real shapes; what is never a ten-thousandth is left out.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from memory_forms.shapes import LEAST, QKV, shape_of

from envdoctor.knowledge import load_matrix
from envdoctor.memory.shipped import form_words

TABLE = Path(__file__).parents[1] / "matrices" / "tables" / "memory-forms.toml"
#: Real shapes at which the sums are compared: models, batches, tokens, layers, ranks of LoRA.
GRID = [
    {**shape_of(model, batch, tokens), "L": layers, "R": rank}
    for model, batch, tokens in itertools.product(("8b", "0.5b", "70b", "7b"), (1, 4, 16), (256, 2048, 8192, 32768))
    for layers, rank in ((24, 8), (32, 64), (80, 16))
]
_NOTHING = 1e-4
#: Types whose embeddings are also their head where config.json does not say.
_TIED = ("gemma2",)

Poly = dict[str, float]


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
    """Products with L from what stands beside the layers and what is in each."""
    found: Poly = {}
    for names, (beside, each) in pairs.items():
        found[names] = beside
        found["".join(sorted(names + "L"))] = each
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


def present(table: Mapping[str, Any]) -> tuple[dict[str, Any], dict[tuple[str, str, str], Any]]:
    """The models and the jobs of the table."""
    jobs: dict[tuple[str, str, str], Any] = {}
    for row in table["form"]:
        terms = {label: poly(one) for label, one in row["terms"].items()}
        for release, words in itertools.product(row["releases"], row["jobs"]):
            kind, _, minor = release.partition(" ")
            jobs.setdefault((kind, words, minor), []).append((row["segment"], row["operation"], terms))
    return {row["key"]: row for row in table["model"]}, jobs


def model_row(record: Mapping[str, Any]) -> dict[str, Any]:
    """What the table says of a type."""
    kind = record["type"]
    row = {"key": kind, "tied": kind in _TIED, "attention": record["attention"], "modules": record["modules"]}
    row["least"] = LEAST.get(kind, LEAST[""])
    row.update({"qkv": QKV[kind]} if kind in QKV else {})
    return {**row, **{part: text(with_layers(record[part])) for part in ("linear", "rest")}}


def body(paths: Sequence[str]) -> str:
    """The rows."""
    models, jobs = present(load_matrix().table("memory-forms"))
    for record in read_lines(paths):
        if "modules" in record:
            models[record["type"]] = model_row(record)
        elif "forms" in record:
            jobs[record["type"], words_of(record["job"]), record["minor"]] = peaks(record["forms"])
    lines: list[str] = []
    for kind, row in sorted(models.items()):
        modules = ", ".join(f"{name} = {json.dumps(sides)}" for name, sides in row["modules"].items())
        lines += ["", "[[model]]", f'key = "{kind}"', f"tied = {str(row['tied']).lower()}"]
        lines += [f'attention = "{row["attention"]}"', f"least = {json.dumps(row['least'])}"]
        lines += [f"qkv = {json.dumps(row['qkv'])}"] if "qkv" in row else []
        lines += [f"modules = {{ {modules} }}", f'linear = "{row["linear"]}"', f'rest = "{row["rest"]}"']
    contents: dict[str, dict[str, list[str]]] = {}
    for (kind, words, minor), found in sorted(jobs.items()):
        for segment, operation, terms in found:
            told = ", ".join(f"{json.dumps(label)} = {json.dumps(text(sums))}" for label, sums in sorted(terms.items()))
            content = f'segment = "{segment}"\noperation = "{operation}"\nterms = {{ {told} }}'
            contents.setdefault(content, {}).setdefault(f"{kind} {minor}", []).append(words)
    for content, releases in contents.items():
        groups: dict[str, list[str]] = {}
        for release, words_ in releases.items():
            groups.setdefault(json.dumps(sorted(words_)), []).append(release)
        for words_text, names in groups.items():
            lines += ["", "[[form]]", f"releases = {json.dumps(names)}", f"jobs = {words_text}", content]
    return "\n".join([*lines, ""])


def main() -> int:
    """Write the table below its head."""
    head = TABLE.read_text(encoding="utf-8").partition("\n[[model]]\n")[0]
    kept = [line if not line.startswith("as_of") else f"as_of = {date.today()}" for line in head.splitlines()]
    TABLE.write_text("\n".join([*kept, ""]) + body(sys.argv[1:]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
