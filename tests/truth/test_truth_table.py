"""GPU × torch build × driver × Python: answers known from elsewhere, against what the shipped matrix says.

The expectations are data (``*.toml`` beside this file), written from torch's own code and files, NVIDIA's pages and
users' reports; each row names its source. None of them is read from ``matrices/tables``.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from known import derived, given
from observing import shipped

from envdoctor import check
from envdoctor.app import Sources
from envdoctor.judge import Policy, judge
from envdoctor.matrix import load_toml

HERE = Path(__file__).parent
MATRIX = shipped()
NO_KERNELS = {
    "older": "gpu-older-than-torch-build",
    "newer": "gpu-newer-than-torch-build",
    "missing": "gpu-left-out-of-torch-build",
}
KINDS = {"report", "artefact", "literal", "nvidia", "file names"}


class Row(NamedTuple):
    """One environment and its answer. ``runs`` is True, False, "partly" (one GPU of several) or "cpu" (GPU unused)."""

    id: str
    facts: dict[str, Any]
    runs: bool | str
    rules: tuple[str, ...]
    source: str
    kind: str


# --- reading the table -----------------------------------------------------------------------------------------------


def load(name: str) -> dict[str, Any]:
    return load_toml(HERE / f"{name}.toml")


def facts_of(entry: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """The facts of an entry as a facts file spells them; what it does not say is not there."""
    entry = {**entry, **more}
    system = entry.get("os", "linux")
    facts: dict[str, Any] = {
        "os.platform": "linux" if system == "wsl" else system,
        "os.arch": entry.get("machine", "x86_64"),
        "os.wsl": system == "wsl",
    }
    keys = {"torch": "pkg.torch", "cuda": "torch.cuda", "hip": "torch.hip", "archs": "torch.arch_list"}
    keys |= {"python": "python.version", "driver": "driver.version", "max_cuda": "driver.max_cuda", "gpu": "gpu"}
    keys |= {"compat": "driver.compat", "accelerators": "machine.accelerators"}
    facts |= {key: entry[field] for field, key in keys.items() if field in entry}
    if entry.get("cuda") == "absent":
        facts["torch.hip"] = "absent"  # what torch/version.py says of a CPU build
    if "driver" in entry:
        facts.setdefault("driver.compat", "absent")
    return facts


def gpu(cc: str) -> list[dict[str, str]]:
    """A GPU of which the capability alone is known: a name of no product, so that no list of names answers for it."""
    return [{"name": f"a GPU of {cc}", "cc": cc}]


def single_rows() -> Iterator[Row]:
    for name in ("reports", "machines"):
        document = load(name)
        for entry in document["row"]:
            kind = entry.get("kind", document.get("kind"))
            rules = tuple(entry.get("rules", ()))
            yield Row(f"{name}/{entry['id']}", facts_of(entry), entry["runs"], rules, entry["source"], kind)


def architecture_rows() -> Iterator[Row]:
    for build in load("architectures")["build"]:
        for answer in ("runs", *NO_KERNELS):
            for cc in build.get(answer, ()):
                yield Row(
                    f"architectures/{build['id']}/{cc}",
                    facts_of(build, gpu=gpu(cc)),
                    answer == "runs",
                    tuple(NO_KERNELS[word] for word in (answer,) if word in NO_KERNELS),
                    build["source"],
                    build["kind"],
                )


def driver_rows() -> Iterator[Row]:
    document = load("drivers")
    for build in document["build"]:
        for answer in ("runs", "fails"):
            for driver in build[answer]:
                yield Row(
                    f"drivers/{build['id']}/{driver}",
                    facts_of(build, driver=driver, gpu=gpu(build["gpu"])),
                    answer == "runs",
                    (build["rule"],) if answer == "fails" else (),
                    document["source"],
                    document["kind"],
                )


def python_rows() -> Iterator[Row]:
    document = load("pythons")
    for release in document["release"]:
        machine = "-".join(release[field] for field in ("os", "machine") if field in release)
        gpus = gpu("8.0") if "driver" in release else []
        for python in [*release["wheels"], *release.get("none", ())]:
            yield Row(
                f"pythons/{release['torch']}{'-' if machine else ''}{machine}/{python}",
                facts_of(release, python=f"{python}.1", gpu=gpus),
                True,
                (),
                release["source"],
                document["kind"],
            )


def name_rows() -> Iterator[Row]:
    document = load("gpu-names")
    for name, entry in document["gpus"].items():
        for build_id in document["builds"].keys() & entry.keys():
            build, answer = document["builds"][build_id], entry[build_id]
            yield Row(
                f"gpu-names/{build_id}/{name}",
                facts_of(build, gpu=[{"name": name}]),
                answer == "runs",
                tuple(NO_KERNELS[word] for word in (answer,) if word in NO_KERNELS),
                f"{document[entry['page']]} {build['source']}",
                document["kind"],
            )


ROWS = [
    *single_rows(),
    *architecture_rows(),
    *driver_rows(),
    *python_rows(),
    *sorted(name_rows(), key=lambda row: row.id),
]
RULES = {rule.id for rule in MATRIX.rules}


# --- the judgement ---------------------------------------------------------------------------------------------------


def severities(facts: Mapping[str, Any]) -> dict[str, str]:
    """The worst severity of each rule that finds something."""
    known = given(facts, MATRIX.registry, ["env"], "truth table")
    found: dict[str, str] = {}
    for finding in judge(derived(known, MATRIX), MATRIX, Policy()).findings:
        if found.get(finding.id) != "error":
            found[finding.id] = finding.severity
    return found


def is_known(row: Row, found: Mapping[str, str]) -> bool:
    """Whether what is found of a row is its known answer."""
    errors = {rule for rule, severity in found.items() if severity == "error"}
    if row.runs is True:
        return not errors
    return errors <= set(row.rules) and bool(errors if row.runs is False else set(row.rules) & found.keys())


@pytest.mark.parametrize("table", dict.fromkeys(row.id.partition("/")[0] for row in ROWS))
def test_the_matrix_gives_the_known_answers(table: str) -> None:
    answers = [(row, severities(row.facts)) for row in ROWS if row.id.startswith(f"{table}/")]
    assert [(row.id, row.runs, row.source, found) for row, found in answers if not is_known(row, found)] == []


@pytest.mark.parametrize(
    "row_id",
    [
        "reports/a10-535-cu124",
        "reports/rtx5090d-cu126",
        "reports/v100-2.7.1-cu128",
        "reports/qwen3-tts-550-cu130",
        "architectures/2.9.1-cu128/12.1",
        "drivers/2.5.1-cu124/535.129.03",
        "pythons/2.15.0+cu132/3.14",
    ],
)
def test_a_facts_file_gets_the_same_answer_from_the_public_api(row_id: str, tmp_path: Path) -> None:
    row = next(row for row in ROWS if row.id == row_id)
    path = tmp_path / "facts.json"
    path.write_text(json.dumps({"schema": "envdoctor.facts/1", "facts": row.facts, "complete": ["env"]}))
    report = check(Sources(facts=str(path)), matrix=MATRIX)
    errors = {finding.id for finding in report.findings if finding.severity == "error"}
    assert errors == set(row.rules)


# --- the table itself ------------------------------------------------------------------------------------------------


def test_every_row_stands_once_and_says_where_it_comes_from() -> None:
    doubles = [name for name, times in Counter(row.id for row in ROWS).items() if times > 1]
    assert not doubles
    for row in ROWS:
        assert row.source.startswith(("https://", "pkg:pypi/")), row.id
        assert row.kind in KINDS, row.id
        assert set(row.rules) <= RULES, row.id
        assert bool(row.rules) == (row.runs is not True), row.id


# torch 2.15.0, torch/cuda/__init__.py: DEVICE_REQUIREMENT says of each compiled architecture which GPUs run its code:
# the same major and the same or a higher minor, without these; from CUDA 13.2 on those of 7.x and 8.x are none.
WITHOUT = {
    "5.0": "5.3",
    "5.2": "5.3",
    "6.0": "6.2",
    "6.1": "6.2",
    "7.0": "7.2",
    "8.0": "8.7",
    "8.6": "8.7",
    "10.0": "10.1",
}


def runs_on(compiled: str, cc: str, cuda: tuple[int, int]) -> bool:
    """Whether torch's rule gives one of the compiled architectures to the GPU."""
    major, minor = (int(part) for part in cc.split("."))
    for architecture in compiled.split():
        if not architecture.startswith("sm_"):
            continue
        code = f"{architecture[3:-1]}.{architecture[-1]}"
        code_major, code_minor = (int(part) for part in code.split("."))
        excepted = WITHOUT.get(code) == cc and not (cuda >= (13, 2) and code_major in (7, 8))
        if code_major == major and code_minor <= minor and not excepted:
            return True
    return False


@pytest.mark.parametrize("build", load("architectures")["build"], ids=lambda build: build["id"])
def test_the_answers_for_a_list_are_those_of_torchs_own_rule(build: Mapping[str, Any]) -> None:
    tag = build["torch"].partition("+cu")[2]
    cuda = (int(tag[:2]), int(tag[2:]))
    lowest, highest = (
        [int(part[3:]) for part in build["compiled"].split() if part.startswith("sm_")][end] for end in (0, -1)
    )
    for answer in ("runs", *NO_KERNELS):
        for cc in build.get(answer, ()):
            number = int(cc.replace(".", ""))
            assert runs_on(build["compiled"], cc, cuda) is (answer == "runs"), cc
            assert answer != "older" or number < lowest, cc
            assert answer != "newer" or number > highest, cc
            assert answer != "missing" or lowest <= number <= highest, cc
    assert set(build.get("peer", ())) <= set(build["runs"])


def test_the_answers_for_a_driver_are_on_the_two_sides_of_nvidias_number() -> None:
    first = {
        ("linux", "11"): (450, 80, 2),
        ("linux", "12"): (525, 60, 13),
        ("linux", "13"): (580, 65, 6),
        ("windows", "11"): (452, 39),
        ("windows", "12"): (528, 33),
        ("windows", "13"): (580,),
    }
    for build in load("drivers")["build"]:
        system = "linux" if build.get("os", "linux") == "linux" else "windows"
        number = first[system, build["torch"].partition("+cu")[2][:2]]
        for answer in ("runs", "fails"):
            for driver in build[answer]:
                assert (tuple(int(part) for part in driver.split(".")) >= number) is (answer == "runs"), driver
