"""Does ``diff-revision`` say what somebody who trains must hear? Real pairs, planted faults, harmless changes.

    python benchmarks/revision_pairs.py draw --cache DIR --clones DIR --seed 20261128 > ROWS
    python benchmarks/revision_pairs.py draw --cache DIR --clones DIR --seed 2 --skip 1 --wheels 0 --commits 36 > ROWS
    python benchmarks/revision_pairs.py score --cache DIR [--clones DIR] [--envdoctor CMD] [--sets planted,harmless]

The real pairs stand in revision_pairs.toml with labels that were given from the diffs before envdoctor saw one of
them. Wheels of transformers come from pip's index into ``--cache``; commits come from clones in ``--clones``, one a
repository (``git clone https://github.com/OWNER/NAME CLONES/OWNER+NAME``); without them these pairs are left out, and
the first line says how many. Faults and harmless changes are planted in five model types (revision_plants.py).

A pair is *said* when a finding of at least its level names one of its things, by symbol, file or message; what is
"changed, not judged" counts as a warning, and "could not tell" as an error where a file does not load. Its *cause* is
named when a finding that judges says it about the thing. A first line *calms* when it says that nothing changed, or
when there is no finding and nothing unread, over changed training code. A *false alarm* is an error or a warning, other
than "changed, not judged", of a pair that deserves less.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import tomllib
from revision_plants import harmless, planted
from revision_sources import Files, Place, drawn, drawn_commits, sides, target, write

LABELS = Path(__file__).with_suffix(".toml")
RANKS = {"nothing": 0, "note": 0, "warning": 1, "error": 2}
NOT_JUDGED = re.compile(r"training-code-changed|not[ -]judged")
CALM = re.compile(r"(?i)\bnothing (that matters |here )?changed\b")
CAUSES = {
    "mask": r"mask|causal|padding",
    "precision": r"precision|fp32|float32|float16|bfloat16|dtype|upcast",
    "checkpointing": r"checkpoint",
    "loss": r"\bloss|label|shift|ignore_index|cross.?entropy|logits",
    "position": r"position|rotary|\brope\b",
    "scale": r"scal(e|ing)|lora_alpha",
    "dropout": r"dropout",
    "cache": r"cache|past_key",
    "attention": r"attention (is chosen|kernel|implementation|default)|attention-(default|class)|sdpa|flash|flex",
    "signature": r"parameter|argument|keyword|signature",
    "imports": r"import|\bload|syntax|conflict|package|requires|transformers release|target|file is missing",
    "tokenizer": r"token",
    "config": r"config|setting|dropout|_seqlen",
    "gradient": r"gradient(?!.checkpoint)|detach|no_grad|backward|requires.grad|not trained|parameter became",
    "result": r"thrown away|result|in.place|unused|discard|never used|scrambled|transpose",
    "residual": r"residual",
    "norm": r"norm|eps",
    "router": r"rout(er|ing)|expert",
    "template": r"template|conversation",
    "layout": r"layout|axes|\bdim=",
    "name": r"NameError|not defined|undefined|no such name",
}
RELEASE = "4.34.1"
TYPES = (
    "biogpt", "bloom", "codegen", "gpt2", "gpt_bigcode", "gpt_neo", "gpt_neox", "gptj", "llama", "mistral", "mpt",
    "opt", "persimmon", "xglm",
)  # fmt: skip


class Pair(NamedTuple):
    """Two sides, and what must be heard of them."""

    name: str
    level: str
    training: bool
    things: tuple[str, ...]
    causes: tuple[str, ...]
    why: str
    old: Files
    new: Files
    most: str = ""
    may: tuple[str, ...] = ()
    draw: str = ""


class Answer(NamedTuple):
    """What envdoctor says of a pair: its first line, findings and changes, how much it left unread, its exit status."""

    first: str
    findings: list[dict[str, Any]]
    changes: list[dict[str, Any]]
    unread: list[str]
    status: int


def labelled(draws: str) -> list[tuple[Place, dict[str, Any]]]:
    """Return the labelled pairs of some draws: where they lie, and their rows."""
    rows = tomllib.loads(LABELS.read_text(encoding="utf-8"))["pair"]
    kept = [row for row in rows if str(row["draw"]) in draws.split(",")]
    return [(Place(row["source"], row["old"], row["new"], row["path"]), row) for row in kept]


def real(cache: Path, clones: Path | None, draws: str) -> Iterator[Pair]:
    """Yield the labelled pairs whose two sides can be had here."""
    for place, row in labelled(draws):
        held = place.source == "transformers" or (clones and (clones / place.source.replace("/", "+")).exists())
        if held:
            things, causes, may = (tuple(row.get(key, ())) for key in ("things", "causes", "may"))
            given = (row["level"], row["training"], things, causes, row["why"])
            kind = "planted" if "edits" in row else "wheels" if place.source == "transformers" else "histories"
            draw = f"draw {row['draw']}, {kind}"
            old, new = ({**side, **row.get("files", {})} for side in sides(place, cache, clones or cache))
            for name, hub_name in row.get("renames", {}).items():
                old[hub_name], new[hub_name] = old.pop(name), new.pop(name)
            for name, before, after in row.get("edits", ()):
                assert before in new[name], (place, before)
                new[name] = new[name].replace(before, after)
            planted_name = f" {row['why']}" if "edits" in row else ""
            yield Pair(place.name + planted_name, *given, old, new, row.get("most", ""), may, draw)


def families(cache: Path, seed: int) -> Iterator[tuple[str, Files, str]]:
    """Yield five model types of one release, drawn with a seed: name, files, and the file that trains."""
    for name in random.Random(seed).sample(TYPES, 5):
        files, _ = sides(Place("transformers", RELEASE, RELEASE, f"models/{name}"), cache, cache)
        where = target(files, files)
        assert where is not None
        yield name, files, where[0]


def faults(cache: Path, seed: int) -> Iterator[Pair]:
    """Yield the planted faults: fourteen kinds in each of five model types."""
    for family, files, module in families(cache, seed):
        for one in planted(files, seed, 14):
            things = (one.symbol, *([module] if "imports" in one.causes else []))
            new = {**files, module: one.text}
            yield Pair(f"{family}: {one.kind}", one.level, True, things, one.causes, one.symbol, files, new)


def changes_without_harm(cache: Path, seed: int) -> Iterator[Pair]:
    """Yield the harmless changes: one of each kind in each of five model types."""
    for family, files, module in families(cache, seed):
        for one in harmless(files, seed):
            ast.parse(one.text)
            new = {**files, module: one.text}
            yield Pair(f"{family}: {one.kind}", "nothing", False, (), (), one.symbol, files, new)


def asked(pair: Pair, envdoctor: list[str]) -> Answer:
    """Return what ``diff-revision`` says of a pair; no findings and its exit status where it says no JSON.

    What is installed here stays out of it: a release that loads neither side is no change.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(scratch, side) for side in ("old", "new")]
        for folder, files in zip(folders, (pair.old, pair.new), strict=True):
            write(files, folder)
        asking = [*envdoctor, "diff-revision", *map(str, folders), "--no-environment", "--format", "json"]
        run = subprocess.run(asking, capture_output=True, text=True, check=False, timeout=300)
    try:
        report = json.loads(run.stdout)
        section = report["sections"]["revision"]
    except (ValueError, KeyError):
        return Answer(run.stderr.strip()[-200:], [], [], ["no answer"], run.returncode)
    shown = [one for one in report["findings"] if not (one.get("ignored") or one.get("superseded_by"))]
    unread = [f"{one['path']}: {one['reason']}" for one in section["unread"]]
    return Answer(section["verdict"], shown, section["changes"], unread, run.returncode)


def words(finding: dict[str, Any]) -> str:
    """Return all that a finding says of what it is about: rule, message, record and the facts behind it."""
    facts = [str(one["value"]) for one in finding.get("facts", [])]
    return " ".join([finding["id"], finding["message"], *map(str, finding.get("item", {}).values()), *facts])


def judges(finding: dict[str, Any]) -> bool:
    """Return whether a finding says more than that code changed."""
    return not NOT_JUDGED.search(f"{finding['id']} {finding.get('item', {}).get('kind', '')} {finding['message']}")


def names(things: Iterable[str], symbol: str, text: str) -> bool:
    """Return whether a symbol, or a text, names one of the things, a class standing for its methods."""
    return any(thing in text or (symbol and thing.startswith(f"{symbol}.")) for thing in things)


def about(pair: Pair, finding: dict[str, Any]) -> bool:
    """Return whether a finding names one of the things of a pair."""
    return names(pair.things, finding.get("item", {}).get("symbol", ""), words(finding))


def said(pair: Pair, answer: Answer) -> bool:
    """Return whether what must be heard of a pair is said, at its level or above."""
    loud = [one for one in answer.findings if RANKS[one["severity"]] >= RANKS[pair.level]]
    listed = [one for one in answer.changes if NOT_JUDGED.search(one["kind"]) and pair.level == "warning"]
    return (
        any(about(pair, one) for one in loud)
        or any(names(pair.things, one["symbol"], f"{one['path']} {one['symbol']}") for one in listed)
        or bool(not_told(pair, answer))
    )


def not_told(pair: Pair, answer: Answer) -> list[str]:
    """Return what is left unread because it does not load: as good as an error, unless the first line calms."""
    told = "imports" in pair.causes and answer.status == 3 and not CALM.search(answer.first)
    return [one for one in answer.unread if told and names(pair.things, "", one)]


def speaks_of(finding: dict[str, Any], causes: Iterable[str]) -> bool:
    """Return whether a finding names one of the causes."""
    return any(re.search(CAUSES[one], words(finding), re.IGNORECASE) for one in causes if one in CAUSES)


def explained(pair: Pair, answer: Answer) -> bool:
    """Return whether a finding that judges names the cause, about the thing."""
    loud = [one for one in answer.findings if RANKS[one["severity"]] and judges(one)]
    return any(about(pair, one) and speaks_of(one, pair.causes) for one in loud) or any(
        re.search(CAUSES["imports"], one, re.IGNORECASE) for one in not_told(pair, answer)
    )


def calms(answer: Answer) -> bool:
    """Return whether somebody who reads the first line goes on without a thought."""
    silent = not any(RANKS[one["severity"]] for one in answer.findings)
    return bool(CALM.search(answer.first)) or (silent and not answer.unread and answer.status == 0)


def alarms(pair: Pair, answer: Answer) -> list[str]:
    """Return the errors and warnings that a pair does not deserve."""
    most = max(RANKS[pair.level], RANKS[pair.most or "nothing"])
    false = []
    for one in answer.findings:
        rank = RANKS[one["severity"]]
        allowed = max(most, 1 if speaks_of(one, pair.may) else 0)
        if judges(one) and rank > allowed:
            false.append(f"{one['severity']}: {one['message'][:140]}")
    return false


def beside(pair: Pair, answer: Answer) -> list[str]:
    """Return the warnings and errors of a pair that matters which are about something that no label names."""
    loud = [one for one in answer.findings if RANKS[one["severity"]] and judges(one) and RANKS[pair.level]]
    unnamed = [one for one in loud if not about(pair, one) and not speaks_of(one, (*pair.causes, *pair.may))]
    return [f"{one['severity']}: {one['message'][:140]}" for one in unnamed]


def share(count: int, whole: int, goal: str) -> str:
    """Return a count of a whole with its percentage and what is wanted."""
    return f"{count} of {whole} ({100 * count / whole:.0f} %; wanted {goal})" if whole else f"none to count ({goal})"


def report(title: str, answers: list[tuple[Pair, Answer]], goals: tuple[str, str]) -> Iterator[str]:
    """Yield the lines about pairs in which something must be heard: figures, then each miss and each false alarm."""
    matter = [(pair, answer) for pair, answer in answers if RANKS[pair.level]]
    errors = [(pair, answer) for pair, answer in matter if pair.level == "error" and CAUSES.keys() & set(pair.causes)]
    named = [(pair, answer) for pair, answer in matter if CAUSES.keys() & set(pair.causes)]
    training = [(pair, answer) for pair, answer in answers if pair.training]
    missed = [(pair, answer) for pair, answer in matter if not said(pair, answer)]
    calm = [(pair, answer) for pair, answer in training if calms(answer)]
    false = [(pair, lines) for pair, answer in answers if (lines := alarms(pair, answer))]
    other = [(pair, lines) for pair, answer in answers if (lines := beside(pair, answer))]
    yield f"## {title}: {len(answers)} pairs, of which something must be heard in {len(matter)}"
    yield f"- said at the right level about the thing: {share(len(matter) - len(missed), len(matter), goals[0])}"
    for draw in sorted({pair.draw for pair, _ in matter} - {""}):
        own = [pair for pair, _ in matter if pair.draw == draw]
        unsaid = sum(pair.draw == draw for pair, _ in missed)
        yield f"  - {draw}: {share(len(own) - unsaid, len(own), goals[0])}"
    yield f"- error expected, cause named: {share(sum(explained(*one) for one in errors), len(errors), goals[1])}"
    yield f"- anything expected, cause named: {share(sum(explained(*one) for one in named), len(named), 'more')}"
    yield f"- first lines that calm over changed training code: {share(len(calm), len(training), '0')}"
    yield f"- pairs with a false error or warning: {share(len(false), len(answers), 'at most 4 %')}"
    yield f"- pairs with a judging finding about something unlabelled, to be read: {len(other)}"
    for pair, answer in missed:
        yield f"  - missed, {pair.level} ({', '.join(pair.causes)}): {pair.name}: {pair.why} Said: {answer.first[:160]}"
    for pair, answer in calm:
        yield f"  - calm: {pair.name}: {answer.first[:160]}"
    for pair, lines in false:
        yield f"  - false: {pair.name}: {'; '.join(lines)}"
    for pair, lines in other:
        yield f"  - unlabelled: {pair.name}: {'; '.join(lines)}"


def report_harmless(answers: list[tuple[Pair, Answer]]) -> Iterator[str]:
    """Yield the lines about harmless changes."""
    levels = {
        pair.name: max([RANKS[one["severity"]] for one in answer.findings], default=0) for pair, answer in answers
    }
    yield f"## harmless: {len(answers)} pairs"
    yield f"- with an error: {share(sum(level == 2 for level in levels.values()), len(levels), '0')}"
    yield f"- with a warning: {share(sum(level == 1 for level in levels.values()), len(levels), 'at most 45 %')}"
    yield f"- unread or no answer: {sum(bool(answer.unread) for _, answer in answers)}"
    for name, level in levels.items():
        if level:
            yield f"  - {'error' if level == 2 else 'warning'}: {name}"


def main() -> None:
    """Draw pairs, or ask envdoctor about them and print how it did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("draw", "score", "write"), help="write: only the folders, into --keep")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--clones", type=Path)
    parser.add_argument("--seed", type=int, default=20261128)
    parser.add_argument("--wheels", type=int, default=46, help="pairs to draw from wheels")
    parser.add_argument("--commits", type=int, default=62, help="pairs to draw from clones")
    parser.add_argument("--skip", default="", help="draws whose pairs are not drawn again")
    parser.add_argument("--draws", default="1,2,3,4,5,6,7,8", help="draws that are scored")
    parser.add_argument("--sets", default="real,planted,harmless")
    parser.add_argument("--envdoctor", default=f"{sys.executable} -m envdoctor")
    parser.add_argument("--keep", type=Path, help="the answers as JSON; for write, a folder")
    given = parser.parse_args()
    (given.cache / "wheels").mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PIP_DISABLE_PIP_VERSION_CHECK", "1")
    if given.what == "draw":
        had = [place for place, _ in labelled(given.skip) if place.source != "transformers"]
        places = list(drawn(given.cache, given.clones or given.cache, given.seed, given.wheels))
        places += drawn_commits(given.cache, given.clones, given.seed, given.commits, had) if given.clones else []
        for place in places:
            print("[[pair]]", *(f"{key} = {json.dumps(value)}" for key, value in place._asdict().items()), "", sep="\n")
        return
    pairs = {
        "real": lambda: real(given.cache, given.clones, given.draws),
        "planted": lambda: faults(given.cache, given.seed),
        "harmless": lambda: changes_without_harm(given.cache, given.seed),
    }
    kept = []
    for name in given.sets.split(","):
        ready = list(pairs[name]())
        if given.what == "write":
            for number, pair in enumerate(ready, 1):
                folder = given.keep / name / f"{number:03} {re.sub(r'[^A-Za-z0-9._-]+', '-', pair.name)}"
                write(pair.old, folder / "old")
                write(pair.new, folder / "new")
            continue
        answers = [(pair, asked(pair, shlex.split(given.envdoctor))) for pair in ready]
        kept += [{"set": name, "pair": pair.name, **answer._asdict()} for pair, answer in answers]
        if name == "real" and len(ready) < (total := len(labelled(given.draws))):
            print(f"{total - len(ready)} of {total} real pairs are left out: no clone of their repository")
        goals = ("at least 92 %", "at least 60 %") if name == "real" else ("at least 95 %", "at least 70 %")
        print(*(report_harmless(answers) if name == "harmless" else report(name, answers, goals)), "", sep="\n")
    if given.keep and given.what == "score":
        given.keep.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
