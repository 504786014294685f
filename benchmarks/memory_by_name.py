"""Published readings of GPU memory beside what `envdoctor memory --model NAME` says, by the command line alone.

    python benchmarks/memory_by_name.py [--readings FILE] [--only qwen2-] [--list] [--peers] [--residuals] [--shown]
    python benchmarks/memory_by_name.py --beyond

``memory_published.toml`` has the readings with their sources. Nothing is traced and no file of a model is there: the
answer is by the model's name. Each reading is held against its own measure. A row whose length is a limit lies inside
when its interval, begun with a quarter of that length, holds it. Intervals and verdicts are those of folds: they come
from the readings of other repositories and other models, so that no reading is judged by itself or by its kin.
``--shown`` asks each row as it is written, with nothing taken for what it does not say, and holds it against what the
program says that instruments may show: of an engine what a process takes; ``measure = "any"`` is that of any, and
``cache`` what an engine has for keys and values.
``--beyond`` asks nothing: from what was said at first sight (``said`` in memory_first_sight_*.toml, before anything was
mended) it prints the rows ``beyond`` of memory-frameworks, and how many of each draw those of the others hold.
``--peers`` adds what other formulas say of the same readings, ``--residuals`` prints the rows for
matrices/tables/memory-terms.toml, from all readings.
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
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

import tomllib
from memory_formulas import PEERS

from envdoctor.cli.main import main as envdoctor
from envdoctor.matrix import load_matrix
from envdoctor.observe.model.config import shape_of
from envdoctor.peak import model_of
from envdoctor.peak.closed_form import Residual

#: Cards beside whose usable memory every reading is judged, in GiB.
CARDS = (7.6, 11.6, 14.7, 15.7, 22.0, 23.5, 31.5, 39.4, 44.4, 47.5, 79.1, 94.0, 139.8)
#: Models whose head is the embedding.
TIED = ("-0.5B", "-1.5B", "2.5-3B", "-0.6B", "3-1.7B", "3-4B")
#: What a twentieth, a fifth, half and a tenth of the residuals lie beyond: the ends of a row in the table.
ENDS = {"low": 0.05, "mostly": 0.2, "point": 0.5, "high": 0.9}
#: Other choices of what is said not to fit, and to fit.
CHOICES = [(low, high) for high in (0.95, ENDS["high"], 0.8) for low in (0.05, 0.1, 0.2, 0.3, 0.5)]
#: So many of the next first sights lie between the ends that are shown.
STRANGERS = 0.85
#: With fewer residuals a twentieth of them is less than one, and a median is chance.
FEW, FEWEST = 19, 5
#: With fewer than twice as many the upper end is this one: strangers' readings of such code lie above the others.
ENOUGH = 0.95
MEASURES = ("allocated", "reserved", "process")
#: What nvidia-smi shows beside what torch reserves, in GiB, when residuals are taken.
BESIDE = {"generation": 0.6, "training": 1.5, "training elsewhere": 1.5}
#: The same of cards on which somebody measured it.
CONTEXTS = {row["name"].upper(): row["gib"] for row in load_matrix().table("memory-frameworks")["context"]}
#: How hard an answer is, in GiB: a share of the live tensors, and half of what CUDA contexts differ by (0.3 to 1.3 GiB,
#: envdoctor/peak/closed_form.py). Residuals are counted in it. Other shares, and activations counted more than
#: weights, held 88 to 92 % in folds.
SHARE, CONTEXT, LEAST_CONTEXT = 0.05, 0.5, 0.3

#: By class and measure the ends, each as a share of the live tensors and GiB beside it.
Rows = Mapping[tuple[str, str], Mapping[str, tuple[float, float]]]


class Answer(NamedTuple):
    """A reading beside what was said of it; ``short`` is the least that is said of a quarter of the length, ``now`` are
    the rows of the table by which that was said."""

    reading: Mapping[str, Any]
    section: Mapping[str, Any]
    short: Mapping[str, Any]
    now: Rows

    @property
    def code(self) -> str:
        """Which residuals it is among."""
        return str(self.section["interval"]["of"])

    @property
    def measure(self) -> str:
        """Which of the section's it is."""
        return "allocated" if self.reading["measure"] == "held" else str(self.reading["measure"])

    @property
    def beside(self) -> float:
        """What the process has beside what torch reserves, in GiB: of the card, else what was taken."""
        return CONTEXTS.get(self.reading.get("gpu", ""), BESIDE[self.code])

    def of(self, rows: Rows, measure: str, name: str) -> tuple[float, float]:
        """An end by a measure: of a process whose card is known that of what torch reserves, and its context; less of
        it where the cache is emptied."""
        share, beside = rows[self.code, measure][name]
        if measure == "process" and "gpu" in self.reading:
            share, beside = rows[self.code, "reserved"][name][0], self.beside
        if "empty_cache_steps" in self.reading["set"]:
            end, alone = (share, beside), tuple(rows[self.code, "allocated"][name])
            share = getattr(Residual(end, end, end, end).if_emptied(Residual(alone, alone, alone, alone)), name)[0]
        return share, beside

    @property
    def repository(self) -> str:
        """Where it was published."""
        return "/".join(self.reading["url"].removeprefix("https://").split("/")[1:3]).partition(" ")[0]

    @property
    def among(self) -> str:
        """The measure among whose residuals it is."""
        return "reserved" if self.measure == "process" and "gpu" in self.reading else self.measure

    @property
    def live(self) -> float:
        """The predicted tensors in GiB, with what the allocator likely holds of them where that is known."""
        return self.without(self.section, self.measure, "point")

    @property
    def seen(self) -> float:
        """The reading without what a process has beside its tensors, in GiB."""
        return float(self.reading["gib"] - (self.beside if self.measure == "process" else 0.0))

    @property
    def of_process(self) -> float:
        """What the process takes, by the reading, in GiB."""
        return float(self.reading["gib"] + (self.beside if self.measure != "process" else 0.0))

    @property
    def followed(self) -> bool:
        """Whether the prediction follows its length and settings: then it is a residual. Other methods of PEFT than
        LoRA are only bounded, and files of small quantised models may hold a head that the name does not tell of. A
        length that was ``fitted`` to readings leaves no residual of them."""
        method = self.reading["set"].get("quantization")
        tied = method not in (None, "fp8") and any(word in self.reading["model"] for word in TIED)
        other = self.reading["set"]["method"] not in ("full", "lora", "qlora", "infer")
        other = other or "fitted" in self.reading
        return self.reading["length"] == "exact" and not (self.section["savers"] or tied or other)

    def without(self, section: Mapping[str, Any], measure: str, name: str) -> float:
        """One end in GiB without what the rows of the table make of it."""
        place = {"low": 0, "mostly": 0, "point": 1, "high": 2}[name]
        share, beside = self.of(self.now, measure, ("low", "point", "high")[place])
        return float((section["interval"][measure][place] - beside) / share)

    def end(self, name: str, measure: str, rows: Rows) -> float:
        """One end in GiB by other ``rows``."""
        share, beside = self.of(rows, measure, name)
        return share * self.without(self.short if name in ("low", "mostly") else self.section, measure, name) + beside


def main() -> int:
    """Print coverage, errors, intervals and verdicts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readings", default="memory_published.toml", help="the file beside this one that has them")
    parser.add_argument("--only", default="", help="readings whose id begins so")
    parser.add_argument("--list", action="store_true", help="print every reading, the worst first")
    parser.add_argument("--peers", action="store_true", help="print what other formulas say of the same readings")
    parser.add_argument("--residuals", action="store_true", help="print rows for the table memory-terms")
    parser.add_argument("--shown", action="store_true", help="hold rows against what the program says may be shown")
    parser.add_argument("--beyond", action="store_true", help="print rows for the table memory-frameworks")
    options = parser.parse_args()
    if options.beyond:
        return beyond()
    text = Path(__file__).with_name(options.readings).read_text(encoding="utf-8")
    rows = [one for one in tomllib.loads(text)["reading"] if one["id"].startswith(options.only)]
    readings = [by_measure for row in rows for by_measure in by_measures(row)]
    if options.shown:
        return shown(readings)
    asked = [one for one in readings if one["length"] in ("exact", "limit") and "gib" in one]
    now: Rows = {
        (row["of"], row["measure"]): {name: tuple(row[name]) for name in ENDS}
        for row in load_matrix().table("memory-terms")["residual"]
    }
    answers, refused, asked_before = [], Counter[str](), dict[Any, Any]()
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder)  # without torch and transformers, whatever is installed here
        for reading in asked:
            known = reading["id"], reading["measure"] == "held"
            if known not in asked_before:
                asked_before[known] = ask(reading, folder)
            section, said = asked_before[known]
            if section is None:
                refused[said] += 1
                continue
            short = section
            if reading["length"] == "limit":
                less = {**reading["set"], "max_length": max(16, reading["set"]["max_length"] // 4)}
                short = ask({**reading, "set": less}, folder)[0] or section
            answers.append(Answer(reading, section, short, now))
    print(f"{len(answers)} of {len(asked)} readings have a number ({len(answers) / len(asked):.0%})")
    for said, number in refused.most_common():
        print(f"  {number} {said}")
    if options.residuals:
        residuals(answers)
        return 0
    judged = folds(answers, now)
    told("all", judged)
    for length in ("exact", "limit"):
        told(f"  length: {length}", [one for one in judged if one.answer.reading["length"] == length])
    for name in BESIDE:
        told(name, [one for one in judged if one.answer.code == name])
    for name, number in Counter(one.answer.reading.get("code", "") for one in judged).most_common():
        if number >= FEWEST:
            told("  " + name[:38], [one for one in judged if one.answer.reading.get("code", "") == name])
    verdicts(judged)
    if options.peers:
        peers(judged)
    if options.list:
        for one in sorted(judged, key=lambda one: -abs(one.error)):
            seen, where = one.answer.reading["gib"], "" if one.inside else "  outside"
            span = f"{one.point:6.1f} of {seen:6.1f} ({one.low:.1f} to {one.high:.1f})"
            print(f"{one.answer.reading['id']:<22} {one.error:+7.0%} {span}{where}")
    return 0


def shown(readings: Sequence[Mapping[str, Any]]) -> int:
    """Print each reading beside what is said that may be shown, and how many lie in it."""
    inside, needed, widths = 0, 0, list[float]()
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder)
        for reading in readings:
            section, said = ask(reading, folder)
            if section is None:
                print(f"{reading['id']:<24} {reading['gib']:6.1f}  no number: {said}")
                continue
            interval, measure, gib = section["interval"], reading["measure"], float(reading["gib"])
            if measure == "cache":  # one number, and no interval
                kept = section["serving"]["cache_gib"]
                print(f"{reading['id']:<24} {measure:<10} {gib:6.1f}  said {kept:6.1f} ({kept / gib - 1:+.0%})")
                continue
            if interval is None:
                spans = [(section["process_gib"], section["process_gib"])]
            else:
                of = MEASURES if measure == "any" else ["allocated" if measure == "held" else measure]
                spans = [(interval["shown"][one], interval[one]) for one in of]
            low, high = min(one[0] for one, _ in spans), max(one[1] for one, _ in spans)
            least, most = min(one[0] for _, one in spans), max(one[-1] for _, one in spans)
            inside, needed = inside + (low <= gib <= high), needed + (least <= gib <= most)
            widths.append((high - low) / gib)
            where = "" if low <= gib <= high else "outside"
            print(
                f"{reading['id']:<24} {measure:<10} {gib:6.1f}  shown {low:6.1f} to {high:6.1f}"
                f"  needed {least:6.1f} to {most:6.1f}  {where}"
            )
    asked = sum(reading["measure"] != "cache" for reading in readings)
    print(f"{inside} of {asked} in what is shown, width {median(widths):.0%}; {needed} in what is needed")
    return 0


def beyond() -> int:
    """Print by how much what is shown is to reach further, of runs on one GPU and on several, and what that holds."""
    scores: dict[str, dict[str, list[float]]] = {"one": {}, "several": {}}
    for path in sorted(Path(__file__).parent.glob("memory_first_sight*.toml")):
        for row in tomllib.loads(path.read_text(encoding="utf-8"))["reading"]:
            if "said" in row:
                (low, high), gib, given = row["said"], float(row["gib"]), row["set"]
                several = int(given.get("world_size", 1)) > 1 or "device_map" in given
                found = scores["several" if several else "one"].setdefault(path.stem, [])
                found.append(max(low / gib, gib / high))
    for name, draws in scores.items():
        every = sorted(score for found in draws.values() for score in found)
        wide = max(quantile(every, STRANGERS), 1.0)
        inside = sum(score <= 1 for score in every)
        print(f"{name}: {inside} of {len(every)} inside as it was said; {wide:.2f} times further {STRANGERS:.0%}")
        for draw, found in draws.items():
            others = sorted(score for other, known in draws.items() if other != draw for score in known)
            share = max(quantile(others, STRANGERS), 1.0)
            held = sum(score <= share for score in found)
            print(f"  {draw}: {held} of {len(found)} by the others' {share:.2f}")
    return 0


def by_measures(row: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    """A reading for each instrument; ``judged`` beside cards is that of the process, where it was read."""
    if isinstance(row.get("gib"), dict):
        last = list(row["gib"])[-1]
        return [{**row, "measure": by, "gib": gib, "judged": by == last} for by, gib in row["gib"].items()]
    return [{**row, "judged": True}]


def ask(reading: Mapping[str, Any], folder: str) -> tuple[Mapping[str, Any] | None, str]:
    """The section of the report, or why there is none. What is held when an answer ends is that of a prompt of one
    token whose answer has all of them."""
    given = dict(reading["set"])
    if reading["measure"] == "held":
        given |= {"max_length": 1, "max_new_tokens": given["max_length"] + given["max_new_tokens"] - 1}
    settings = [f"recipe.{name}={spelled(value)}" for name, value in given.items()]
    packages = ("transformers", "bitsandbytes")
    settings += [f"pkg.{name}={reading[name]}" for name in packages if name in reading]
    words = [
        "memory",
        "--python",
        folder + "/bin/python",
        *(("--gpu", reading["gpu"]) if "gpu" in reading else ("--no-gpu",)),
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


class Judged(NamedTuple):
    """An answer by the readings of others: ``rows`` are of its fold, the ends are in GiB by its own measure."""

    answer: Answer
    rows: Callable[[Mapping[str, float]], Rows]
    low: float
    point: float
    high: float

    @property
    def error(self) -> float:
        """Of the point."""
        return self.point / float(self.answer.reading["gib"]) - 1

    @property
    def inside(self) -> bool:
        """Whether the interval holds the reading."""
        return self.low <= float(self.answer.reading["gib"]) <= self.high


def quantile(ordered: Sequence[float], share: float) -> float:
    """That which ``share`` of what comes next lies below, or above if it is more than half (split conformal)."""
    number = len(ordered)
    if share == 0.5:
        return median(ordered)
    place = math.floor(share * (number + 1)) if share < 0.5 else math.ceil(share * (number + 1))
    return ordered[min(max(place, 1), number) - 1]


def difficulty(live: float, measure: str) -> float:
    """In GiB."""
    return SHARE * live + (CONTEXT if measure == "process" else 0.0)


def fitted(answers: Iterable[Answer]) -> Callable[[Mapping[str, float]], Rows]:
    """The rows by residuals, for ends such as ``ENDS``.

    The centre of a measure is the median of its readings, if there are enough; else it is between that of the measure
    below it (of live tensors the prediction itself) and that above it. It never falls from measure to measure, because
    a process holds what torch reserves, and that the tensors. The spread is that of all measures of the class
    together, in units of difficulty; of a class with too few readings that of all classes."""
    known = [one for one in answers if one.followed]
    centres, scores = {}, {}
    for code in BESIDE:
        ratios = {measure: [] for measure in MEASURES}
        for one in known:
            if one.code == code:
                ratios[one.among].append(one.seen / one.live)
        enough = [measure for measure in MEASURES if len(ratios[measure]) >= FEWEST]
        middle = dict(zip(enough, rising([ratios[measure] for measure in enough]), strict=True))
        for place, measure in enumerate(MEASURES):
            least = max((middle[below] for below in MEASURES[: place + 1] if below in middle), default=1.0)
            most = min((middle[above] for above in MEASURES[place:] if above in middle), default=least)
            centres[code, measure] = least, max(least, most) if place else least
        scores[code] = [
            (one.seen - mean(centres[code, one.among]) * one.live) / difficulty(one.live, one.among)
            for one in known
            if one.code == code
        ]
    every = [score for found in scores.values() for score in found]

    def rows(shares: Mapping[str, float]) -> Rows:
        table = {}
        for (code, measure), (least, most) in centres.items():
            ordered = sorted(scores[code] if len(scores[code]) >= FEW else every)
            ends = {}
            for name, share in shares.items():
                centre = (least + most) / 2 if name == "point" else most if share > 0.5 else least
                few = share > 0.5 and len(ordered) < 2 * FEW
                score = 0.0 if name == "point" else quantile(ordered, ENOUGH if few else share)
                context = max(BESIDE[code] + score * CONTEXT, LEAST_CONTEXT) if measure == "process" else 0.0
                ends[name] = (centre + score * SHARE, context)
            table[code, measure] = ends
        return table

    return rows


def rising(groups: Sequence[Sequence[float]]) -> list[float]:
    """The median of each group; groups whose medians fall have that of all of them."""
    blocks: list[tuple[list[float], int]] = []
    for group in groups:
        values, number = list(group), 1
        while blocks and median(values) < median(blocks[-1][0]):
            more, groups_of_them = blocks.pop()
            values, number = values + more, number + groups_of_them
        blocks.append((values, number))
    return [median(values) for values, number in blocks for _ in range(number)]


def folds(answers: Sequence[Answer], now: Rows) -> list[Judged]:
    """Each answer by the readings of other repositories and other models; by ``now`` where these are too few."""
    judged, kept = [], {}
    for one in answers:
        fold = one.repository, one.reading["model"]
        if fold not in kept:
            others = [x for x in answers if x.repository != fold[0] and x.reading["model"] != fold[1]]
            enough = sum(other.followed for other in others) >= FEW
            kept[fold] = fitted(others) if enough else lambda shares: now
        rows = kept[fold](ENDS)
        judged.append(Judged(one, kept[fold], *(one.end(end, one.measure, rows) for end in ("low", "point", "high"))))
    return judged


def residuals(answers: Sequence[Answer]) -> None:
    """Rows for the table."""
    for (code, measure), ends in fitted(answers)(ENDS).items():
        number = sum(one.followed and (one.code, one.among) == (code, measure) for one in answers)
        shown = ", ".join(f"{name} = [{share:.3f}, {beside:.2f}]" for name, (share, beside) in ends.items())
        print(f'  {{ of = "{code}", measure = "{measure}", readings = {number}, {shown} }},')


def told(name: str, judged: Sequence[Judged]) -> None:
    """A line: errors and intervals."""
    if not judged:
        return
    errors = [abs(one.error) for one in judged]
    inside = sum(one.inside for one in judged) / len(judged)
    width = median((one.high - one.low) / one.answer.reading["gib"] for one in judged)
    print(f"{name:<40} {len(judged):>3} readings: {errors_of(errors)}; {inside:4.0%} inside, width {width:.0%}")


def errors_of(errors: Sequence[float]) -> str:
    """Half of them, and nine tenths, are below these."""
    most = sorted(errors)[math.ceil(0.9 * len(errors)) - 1]
    return f"median error {median(errors):5.1%}, 90th percentile {most:6.1%}"


def verdicts(judged: Sequence[Judged]) -> None:
    """Each run beside the cards near it, as the program says it, and by other choices."""
    for low, high in CHOICES:
        found = Counter[str]()
        for one in (one for one in judged if one.answer.reading["judged"]):
            rows = one.rows({**ENDS, "mostly": low, "high": high})
            ends = (one.answer.end(name, "process", rows) for name in ("mostly", "high"))
            found.update(beside_cards(one.answer.of_process, *ends))
        total = sum(found.values())
        parts = ", ".join(f"{name} {number} ({number / total:.1%})" for name, number in sorted(found.items()))
        chosen = " (the program's)" if (low, high) == (ENDS["mostly"], ENDS["high"]) else ""
        print(f"verdicts, {low:.0%} below what does not fit, {1 - high:.0%} above what fits{chosen}: {parts}")


def beside_cards(seen: float, least: float, most: float) -> Iterable[str]:
    """What is said of each card of a size near the reading."""
    for card in CARDS:
        if 0.5 <= seen / card <= 2:
            said = "fits" if most <= card else "does not fit" if least > card else "tight"
            yield said if said == "tight" else "right" if (said == "fits") == (seen <= card) else f"wrong: {said}"


def peers(judged: Sequence[Judged]) -> None:
    """Other formulas beside ours, each on the readings of which it says something."""
    matrix = load_matrix()
    rows, suffixes = matrix.rows("model-shapes"), matrix.rows("model-shapes", "suffix")
    shapes = [shape_of(one.answer.reading["model"], rows, suffixes) for one in judged]
    runs = [
        run_of(one.answer, model_of(shape.config, matrix.rows("native-types")).config if shape else {})
        for one, shape in zip(judged, shapes, strict=True)
    ]
    for name, formula in {"envdoctor": None, **PEERS}.items():
        ours, theirs, found = [], [], Counter[str]()
        for one, run in zip(judged, runs, strict=True):
            size = one.point if formula is None else formula(run)
            if size is None:
                continue
            ours.append(abs(one.error))
            theirs.append(abs(size / one.answer.reading["gib"] - 1))
            process = size if formula else one.answer.end("point", "process", one.rows(ENDS))
            if one.answer.reading["judged"]:
                found.update(beside_cards(one.answer.of_process, process, process))
        if not theirs:
            continue
        wrong = 1 - found["right"] / max(sum(found.values()), 1)
        print(f"{name:<12} {len(theirs):>3} numbers: {errors_of(theirs)}, a point beside the cards wrong {wrong:5.1%}")
        print(f"{'':<12} envdoctor on these: {errors_of(ours)}")


def run_of(answer: Answer, config: Mapping[str, Any]) -> dict[str, Any]:
    """A run as the formulas know it. Parameters and the bytes of weights are ours."""
    reading, section = answer.reading, answer.section
    given = reading["set"]
    return {
        "config": config,
        "parameters": section["parameters"],
        "trained": section["trained_parameters"],
        "weights": next(term["gib"] for term in section["terms"] if term["name"] == "weights"),
        "training": given["method"] != "infer",
        "method": given["method"],
        "dtype": given.get("load_dtype"),
        "quantization": given.get("quantization"),
        "optimizer": given.get("optimizer", ""),
        "process": reading["measure"] == "process",
        "held": reading["measure"] == "held",
        "batch": section["batch"],
        "tokens": given["max_length"] if reading["measure"] == "held" else section["tokens"],
        "new": given.get("max_new_tokens", 0),
        "checkpointing": bool(given.get("gradient_checkpointing")),
    }


if __name__ == "__main__":
    raise SystemExit(main())
