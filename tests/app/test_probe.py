"""``probe`` as a function: stand-ins in the tests' own interpreter, from the suite to facts and exit code."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fakes import CONTEXT, payload, write_probe
from observing import shipped

from envdoctor.app import JobError, Sources, UsageProblem, collect_facts, launched
from envdoctor.app.probe import ProbeRequest, _drawn, catalogue, probe, run_probes
from envdoctor.experiments import read_recording
from envdoctor.experiments.probe.recording import ReleasedResults
from envdoctor.facts import Fact, Records, Unknown
from envdoctor.report import FORMATS, Report, load, render
from envdoctor.system import Message

PASS = 'emit({"case": "a", "judge": "exact", "equal": True})'
FAIL = (
    'emit({"case": "L64", "judge": "attention", "params": {"S": 64, "mask": "bool_left", "stress": "shift-"}, '
    '"ratio": {"o": 0.8, "dk": 1.0, "dv": 1.1}, "nonfinite": {"dq": 9}, '
    '"lse": [-209.1, -180.0], "node": "SomeBackward0"})'
)


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Report]:
    """Run stand-ins with these bodies on the CPU."""

    def start(request: dict[str, Any] | None = None, **bodies: str) -> Report:
        home = tmp_path / "payload"
        if not home.exists():
            payload(tmp_path, **bodies)
        options = {"sources": Sources(python=sys.executable, cwd=tmp_path), **(request or {})}
        return probe(ProbeRequest(payload=home, device="cpu", **options), matrix=shipped())

    return start


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model's folder."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "glm"}')
    return tmp_path / "model"


def items(report: Report) -> list[Any]:
    value = report.facts.value("probe")
    assert isinstance(value, Records)
    return list(value.items)


def needs_the_cpu_in_use(report: Report) -> None:
    """Beside a GPU, what runs on the CPU is no finding."""
    if report.probe["in_use"] is not True:
        pytest.skip("training would not use the CPU of this machine")


def test_a_healthy_run_passes_and_says_what_it_did(run):
    report = run(one=PASS, two=PASS + "\n" + PASS)
    assert report.exit_code == 0
    assert report.facts.value("probe.device") == "cpu"
    assert report.facts.value("probe.suite") == "quick"
    assert [(item["name"], item["verdict"], item["cases"]) for item in items(report)] == [
        ("one", "pass", 1),
        ("two", "pass", 2),
    ]
    text = render(report)
    assert "Experiments  cpu, torch 2.13.0+cpu, quick, 3 cases" in text
    assert "  two                          2 pass" in text


def test_a_failure_is_a_finding_with_its_evidence(run):
    report = run(one=PASS, two=FAIL)
    needs_the_cpu_in_use(report)
    (finding,) = report.findings
    assert finding.id == "experiment-gives-wrong-numbers"
    assert finding.item["signature"] == "nan-gradient"
    assert report.exit_code == 1
    text = render(report)
    assert "fail nan-gradient: two cpu bf16 default" in text
    assert "dq; ratio 1.1; mask bool_left; stress shift-; S 64; lse -209.1 to -180; SomeBackward0" in text
    assert "such as L64" in text
    assert "training would use another device" not in text


def test_every_format_can_write_it(run: Callable[..., Report]) -> None:
    report = run(one=FAIL, two="import os; os.kill(os.getpid(), 11)")
    assert [name for name in FORMATS if "nan-gradient" not in load(name)(report)] == []


@pytest.mark.parametrize(("how", "code", "found"), [("kill(os.getpid(), 11)", 1, ["crash"]), ("_exit(0)", 3, [])])
def test_a_crash_is_a_finding_and_what_no_rule_tells_of_makes_the_run_incomplete(run, how, code, found):
    report = run(one=f"import os; os.{how}", two=PASS)
    needs_the_cpu_in_use(report)
    assert report.exit_code == code
    assert [finding.item["signature"] for finding in report.findings] == found
    assert ("no answer from one cpu bf16 default: error: it ended" in render(report)) is (code == 3)


def test_a_recording_gives_the_same_results_without_the_target(run, tmp_path):
    path = tmp_path / "run.jsonl"
    first = run({"record": path}, one=PASS, two=FAIL)
    assert str(tmp_path) not in path.read_text(), "a recording names no folder of this machine"
    second = run({"replay": path, "sources": Sources(python=str(tmp_path / "gone"))})
    assert items(second) == items(first)
    assert second.exit_code == first.exit_code
    assert [finding.fingerprint for finding in second.findings] == [finding.fingerprint for finding in first.findings]
    assert second.target.because == "--replay"


def test_only_what_was_asked_for_runs_and_the_list_says_so(run):
    report = run({"only": ["two"]}, one=FAIL, two=PASS)
    assert [item["name"] for item in items(report)] == ["two"]
    assert report.facts.value("probe").incomplete == "only two ran"  # type: ignore[union-attr]


def test_wrong_use_and_a_failed_job(run, tmp_path, facts_file):
    with pytest.raises(UsageProblem, match="did you mean two"):
        run({"only": ["twoo"]}, two=PASS)
    with pytest.raises(UsageProblem, match="--python PATH"):
        run({"sources": Sources(facts=facts_file({"pkg.torch": "2.5.0"}))})
    with pytest.raises(JobError, match="cannot be written"):
        run({"record": tmp_path / "none" / "run.jsonl"})


def test_the_recipe_and_the_model_reach_the_experiment(run, model):
    sources = Sources(python=sys.executable, cwd=model.parent, model="model", assignments=["recipe.batch_size=4"])
    report = run({"sources": sources}, one='emit({"kind": "info", "recipe": job["recipe"], "model": job["model"]})')
    (seen,) = report.probe["info"]
    assert seen["recipe"]["batch_size"] == 4
    assert seen["model"] == str(model)


def test_every_input_comes_of_a_seed_that_is_told_and_can_be_given_again(run, tmp_path):
    path = tmp_path / "run.jsonl"
    again = 'emit({"case": str(job["seed"]), "judge": "exact", "equal": False})'
    report = run({"record": path}, one=again)
    seed = report.probe["seed"]
    assert f", seed {seed}, " in render(report)
    assert [case["case"] for case in report.probe["wrong_cases"]] == [str(seed)]
    ran = [outcome for outcome in read_recording(path).outcomes if outcome.job.probe == "one"]
    assert [outcome.again for outcome in ran] == [False, True, True]
    assert [outcome.job.seed for outcome in ran] == [seed] * 3
    assert {case["case"] for outcome in ran for case in outcome.observations} == {str(seed)}, "also what runs again"
    assert run({"replay": path}).probe["seed"] == seed
    assert run().probe["seed"] != seed, "a fresh one"
    assert run({"seed": seed}).probe["wrong_cases"] == report.probe["wrong_cases"]


@pytest.mark.parametrize(
    ("more", "ran"), [({}, False), ({"suite": "full"}, True), ({"only": ["one"]}, True), ({"model": "model"}, True)]
)
@pytest.mark.usefixtures("model")
def test_what_is_known_of_released_code_is_not_run_and_said(run, monkeypatch, tmp_path, more, ran):
    known = ReleasedResults({"one": 3}, "peft 0.21.2")
    monkeypatch.setattr("envdoctor.app.probe.released", lambda *_: known)
    path = tmp_path / "run.jsonl"
    if "model" in more:  # runs what is known without it
        more = {"sources": Sources(python=sys.executable, cwd=tmp_path, **more)}
    report = run({"record": path, **more}, one=PASS, two=PASS)
    assert ("one" in [item["name"] for item in items(report)]) is ran
    text = "not run: one: 3 cases right with peft 0.21.2, and the files are as released (--suite full)"
    for told in (report, run({"replay": path})):
        assert (text in render(told)) is not ran
        assert told.exit_code == 0


def test_all_ranks_of_a_job_draw_the_same_numbers(run):
    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "n", "MASTER_PORT": "1"}
    ranks = [launched({**variables, "RANK": str(rank)}) for rank in range(2)]
    other = launched({**variables, "MASTER_PORT": "2", "RANK": "0"})
    assert _drawn(ranks[0]) == _drawn(ranks[1]) != _drawn(other)


def test_a_failure_where_nobody_knows_what_trains_is_no_clean_run(run, monkeypatch):
    monkeypatch.setattr("envdoctor.app.probe.in_use", lambda *_: Unknown("the driver was not asked"))
    report = run(one=FAIL, two=PASS)
    assert report.exit_code == 3
    text = render(report)
    assert "one cpu bf16 default: nan-gradient: " in text
    assert "; whether training uses this device is not known" in text
    assert "whether training would use this device is not known: the driver was not asked" in text
    assert "training would use another device" not in text
    assert run({"only": ["two"]}).exit_code == 0, "what is right needs no device in use"


def test_what_was_done_only_at_the_second_try_is_a_warning(run):
    flaky = "import os\nif not os.path.exists('mark'):\n    open('mark', 'w').close(); os.abort()\n"
    report = run(one=PASS, two=flaky + PASS)
    assert [item["signature"] for item in items(report)] == ["ok", "crashed-once", "ok"]
    needs_the_cpu_in_use(report)
    assert [finding.id for finding in report.findings] == ["experiment-ended-once"]
    assert report.exit_code == 0


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("emit({'case': 'a', 'skip': 'no such kernel'})", "two measured nothing: no such kernel"),
        ("emit({'kind': 'info', 'a': 1})", "two measured nothing: it saw no case that can be judged"),
        ("pass", "two measured nothing: it saw no case that can be judged"),
    ],
)
def test_what_was_asked_for_and_measured_nothing_is_no_clean_run(run, body, why, tmp_path):
    path = tmp_path / "run.jsonl"
    report = run({"only": ["two"], "record": path}, one=PASS, two=body)
    assert report.exit_code == 3
    assert [notice.text for notice in report.notices if notice.level == "error"] == [why]
    assert run({"replay": path}).exit_code == 3
    assert run({"only": ["one", "two"]}).exit_code == 3
    assert run({"only": ["context"]}).exit_code == 0, "it has nothing to measure"
    assert run().exit_code == 0, "what nobody asked for by name may be skipped"


def test_a_probe_without_anything_for_this_device_measured_nothing(run, tmp_path):
    home = payload(tmp_path)
    write_probe(home, "one", PASS, suites={"quick": [{"devices": ["cuda"]}]})
    report = run({"only": ["one"]})
    assert report.exit_code == 3
    assert "one measured nothing: it has nothing to run on the device cpu" in render(report)


OWN = "emit({'case': 'a', 'params': {'model': 'own glm'}, %s})\n"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (OWN % "'skip': 'no such code'" + PASS, 3),
        (OWN % "'skip': 'no such code'" + OWN % "'judge': 'exact', 'equal': True", 0),
        (PASS, 0),
    ],
)
def test_a_model_that_was_given_and_not_measured_is_no_clean_run(run, model, body, code):
    path = model.parent / "run.jsonl"
    sources = Sources(python=sys.executable, cwd=model.parent, model="model")
    report = run({"sources": sources, "record": path}, one=body)
    assert report.exit_code == code
    assert ("not measured, only others: no such code" in render(report)) == (code == 3)
    assert run({"replay": path, "sources": Sources()}).exit_code == code, "a recording knows that there was one"
    assert '"model": "model"' in path.read_text()


def test_gpus_that_were_asked_for_and_are_busy_are_missing_from_the_answer(tmp_path):
    home = payload(tmp_path)
    for name, body in (("context", CONTEXT), ("one", PASS)):
        write_probe(home, name, body, alone=name == "context", gpu_memory_mib=None)
    sources, matrix = Sources(python=sys.executable, cwd=tmp_path), shipped()
    gathered = collect_facts(sources, matrix)
    cards = [{"name": "H100", "uuid": f"GPU-{n}", "processes": n, "free_gib": 79.0} for n in range(2)]
    gathered.facts.update([Fact("gpu", Records(cards), Message("a stand-in"), "machine")])
    request = ProbeRequest(all_gpus=True, device="cuda", sources=sources, payload=home)
    results, _ = run_probes(gathered, request, matrix, catalogue(home))
    (value,) = [fact.value for fact in results.facts if fact.key == "probe"]
    assert isinstance(value, Records) and [item["verdict"] for item in value.items] == ["pass"]
    assert results.unmeasured == ["not measured: GPU 1 (H100) is in use by 1 other process"]
