"""Published readings of GPU memory beside what `envdoctor memory --model NAME` says, by the command line alone.

    python benchmarks/memory_by_name.py [--readings memory_first_sight.toml] [--only qwen2-] [--list] [--residuals]

``memory_published.toml`` has the readings with their sources. Nothing is traced and no file of a model is there: the
answer is by the model's name. Each reading is held against its own measure. A row whose length is a limit lies inside
when its interval, begun with a quarter of that length, holds it. Intervals are those of folds: for each source document
their quantiles come from all readings of other documents, so that no reading is judged by itself. ``--residuals``
prints the rows for matrices/tables/memory-terms.toml, from all readings.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import tempfile
import venv
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import tomllib

from envdoctor.cli.main import main as envdoctor
from envdoctor.knowledge import load_matrix

#: Cards beside whose usable memory every reading is judged, in GiB.
CARDS = (7.6, 11.6, 14.7, 15.7, 22.0, 23.5, 31.5, 39.4, 44.4, 47.5, 79.1, 94.0, 139.8)
#: Models whose head is the embedding.
TIED = ("-0.5B", "-1.5B", "2.5-3B")
#: By how much the documents of a class are apart, as far as there are two: Qwen2's and Qwen2.5's prompts.
APART = 0.02
#: Fewer residuals than this are no quantiles.
FEW = 10
#: The share of readings that an interval is to hold.
SHARE = 0.9
#: What nvidia-smi shows beside what torch reserves, in GiB, when residuals are taken.
BESIDE = {"generation": 0.6, "training": 1.5, "training elsewhere": 1.5}


class Answer(NamedTuple):
    """A reading beside what was said of it; ``short`` is the least that is said of a quarter of the length."""

    reading: Mapping[str, Any]
    section: Mapping[str, Any]
    short: Mapping[str, Any]

    @property
    def code(self) -> str:
        """Which residuals it is among."""
        return str(self.section["interval"]["of"])

    @property
    def ratio(self) -> float:
        """The reading as a share of the predicted live tensors."""
        seen = self.reading["gib"] - (BESIDE[self.code] if self.reading["measure"] == "process" else 0.0)
        return float(seen / self.section["allocated_gib"])

    @property
    def headless(self) -> bool:
        """Whether files of such a model may hold a head that the name does not tell of."""
        return bool("quantization" in self.reading["set"] and any(word in self.reading["model"] for word in TIED))

    @property
    def error(self) -> float:
        """Of the point that is said for the measure."""
        return float(self.section["interval"][self.reading["measure"]][1] / self.reading["gib"] - 1)


def main() -> int:
    """Print coverage, errors, intervals and verdicts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readings", default="memory_published.toml", help="the file beside this one that has them")
    parser.add_argument("--only", default="", help="readings whose id begins so")
    parser.add_argument("--list", action="store_true", help="print every reading, the worst first")
    parser.add_argument("--residuals", action="store_true", help="print rows for the table memory-terms")
    options = parser.parse_args()
    text = Path(__file__).with_name(options.readings).read_text(encoding="utf-8")
    readings = [one for one in tomllib.loads(text)["reading"] if one["id"].startswith(options.only)]
    asked = [one for one in readings if one["length"] in ("exact", "limit") and "gib" in one]
    answers, refused = [], Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder)  # without torch and transformers, whatever is installed here
        for reading in asked:
            section, said = ask(reading, folder)
            if section is None:
                refused[said] += 1
                continue
            short = section
            if reading["length"] == "limit":
                less = {**reading["set"], "max_length": max(16, reading["set"]["max_length"] // 4)}
                short = ask({**reading, "set": less}, folder)[0] or section
            answers.append(Answer(reading, section, short))
    print(f"{len(answers)} of {len(asked)} readings have a number ({len(answers) / len(asked):.0%})")
    for said, number in refused.most_common():
        print(f"  {number} {said}")
    if options.residuals:
        residuals(answers)
        return 0
    table = load_matrix().table("memory-terms")["residual"]
    told("all", answers, answers, table)
    for name in sorted({one.code for one in answers}):
        told(name, [one for one in answers if one.code == name], answers, table)
    for name, number in Counter(one.reading.get("code", "") for one in answers).most_common():
        if number >= 5:
            told("  " + name[:38], [one for one in answers if one.reading.get("code", "") == name], answers, table)
    verdicts(answers)
    if options.list:
        for one in sorted(answers, key=lambda one: -abs(one.error)):
            low, point, high = one.section["interval"][one.reading["measure"]]
            seen = one.reading["gib"]
            print(f"{one.reading['id']:<22} {one.error:+7.0%} {point:6.1f} of {seen:6.1f} ({low:.1f} to {high:.1f})")
    return 0


def ask(reading: Mapping[str, Any], folder: str) -> tuple[Mapping[str, Any] | None, str]:
    """The section of the report, or why there is none."""
    settings = [f"recipe.{name}={spelled(value)}" for name, value in reading["set"].items()]
    if "transformers" in reading:
        settings.append(f"pkg.transformers={reading['transformers']}")
    words = [
        "memory",
        "--python",
        folder + "/bin/python",
        "--no-gpu",
        "--no-cache",
        "--no-config",
        "--model",
        reading["model"],
        "--format",
        "json",
    ]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        envdoctor([*words, *(word for one in settings for word in ("--set", one))])
    try:
        report = json.loads(out.getvalue())
    except ValueError:
        return None, err.getvalue().strip()[:200]
    section = report["sections"].get("memory")
    return section, "" if section else "; ".join(notice["text"] for notice in report["notices"])


def spelled(value: Any) -> str:
    """As it stands on the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def quantiles(found: Sequence[Answer]) -> tuple[float, float, float]:
    """The ends that hold SHARE of what comes next (split conformal), and the median. Of one or two documents they are
    wider: the readings of one are alike, and the next is as far from them as these two are from each other."""
    ordered = sorted(one.ratio for one in found)
    number, wider = len(ordered), APART if len({document(one) for one in found}) < 3 else 0.0
    outside = (1 - SHARE) / 2
    low = ordered[max(0, math.floor(outside * (number + 1)) - 1)]
    high = ordered[min(number - 1, math.ceil((1 - outside) * (number + 1)) - 1)]
    return low - wider, median(ordered), high + wider


def document(one: Answer) -> str:
    """The source of a reading."""
    return str(one.reading["url"]).partition("#")[0]


def alike(code: str, measure: str, answers: Sequence[Answer]) -> list[Answer]:
    """The residuals of a class of code and a measure: of readings whose length and settings the prediction follows."""
    return [
        one
        for one in answers
        if one.code == code
        and one.reading["measure"] == measure
        and one.reading["length"] == "exact"
        and not one.section["savers"]
        and not one.headless
    ]


def residuals(answers: Sequence[Answer]) -> None:
    """Rows for the table."""
    for code in sorted({one.code for one in answers}):
        for measure in ("allocated", "reserved", "process"):
            found = alike(code, measure, answers)
            if found:
                low, middle, high = quantiles(found)
                beside = BESIDE[code] if measure == "process" else 0.0
                row = f'of = "{code}", measure = "{measure}", readings = {len(found)}, beside = {beside}'
                print(f"  {{ {row}, low = {low:.3f}, point = {middle:.3f}, high = {high:.3f} }},")


def folded(one: Answer, answers: Sequence[Answer], table: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """The interval of one reading by the readings of other documents."""
    measure = one.reading["measure"]
    low, high = one.short["interval"][measure][0], one.section["interval"][measure][2]
    others = alike(one.code, measure, [other for other in answers if document(other) != document(one)])
    if len(others) < FEW:
        return low, high
    (row,) = (row for row in table if (row["of"], row["measure"]) == (one.code, measure))
    least, _, most = quantiles(others)
    beside = row["beside"]
    return (low - beside) * least / row["low"] + beside, (high - beside) * most / row["high"] + beside


def told(name: str, answers: Sequence[Answer], every: Sequence[Answer], table: Sequence[Mapping[str, Any]]) -> None:
    """A line: errors and intervals."""
    if not answers:
        return
    errors = sorted(abs(one.error) for one in answers)
    ends = [folded(one, every, table) for one in answers]
    inside = sum(low <= one.reading["gib"] <= high for one, (low, high) in zip(answers, ends, strict=True))
    width = median((high - low) / one.reading["gib"] for one, (low, high) in zip(answers, ends, strict=True))
    worst = errors[math.ceil(0.9 * len(errors)) - 1]
    line = f"{name:<40} {len(answers):>3} readings: median error {median(errors):5.1%}, 90th percentile {worst:6.1%}"
    print(f"{line}; {inside / len(answers):4.0%} inside, width {width:.0%}")


def verdicts(answers: Sequence[Answer]) -> None:
    """Each reading beside the cards near it."""
    found = Counter[str]()
    for one in answers:
        low, _, high = one.section["interval"]["process"]
        seen = one.reading["gib"] + (BESIDE[one.code] if one.reading["measure"] != "process" else 0.0)
        for card in CARDS:
            if not 0.5 <= seen / card <= 2:
                continue
            said = "fits" if high <= card else "does not fit" if low > card else "tight"
            found[said if said == "tight" else "right" if (said == "fits") == (seen <= card) else f"wrong: {said}"] += 1
    total = sum(found.values())
    print("verdicts: " + ", ".join(f"{name} {number} ({number / total:.1%})" for name, number in found.most_common()))


if __name__ == "__main__":
    raise SystemExit(main())
