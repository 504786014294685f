"""The commands as functions with keyword arguments."""

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import envdoctor

FACTS = {"schema": "envdoctor.facts/1", "facts": {"pkg.torch": "2.5.0+cu118", "pkg.transformers": "4.48.0"}}


@pytest.fixture
def facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("facts.json").write_text(json.dumps(FACTS))
    return "facts.json"


def glm4(facts: str, **more: Any) -> envdoctor.Report:
    return envdoctor.check(facts=facts, model="THUDM/glm-4-9b-chat-hf", settings={"recipe.batch_size": 2}, **more)


def test_check_says_what_the_command_says(facts: str) -> None:
    report = glm4(facts)
    assert report.exit_code == 1
    assert [finding.id for finding in report.shown()] == ["torch-2-5-0-glm4-batch-nan"]
    assert isinstance(report.shown()[0], envdoctor.Finding)
    assert "torch 2.5.0+cu118 gives NaN loss" in str(report)
    assert repr(report).startswith("<check: 1 findings, ") and repr(report).endswith("exit code 1>")
    assert json.loads(report.to_json())["findings"][0]["id"] == "torch-2-5-0-glm4-batch-nan"
    assert report.written("markdown", "zh").isascii() is False


def test_sources_are_taken_and_keywords_win(facts: str) -> None:
    sources = envdoctor.Sources(model="Qwen/Qwen2.5-7B", assignments=["recipe.batch_size=2"])
    assert envdoctor.check(sources, facts=facts).facts.value("model.repo") == "Qwen/Qwen2.5-7B"
    report = envdoctor.check(sources, facts=facts, model="THUDM/glm-4-9b-chat-hf")
    assert [finding.id for finding in report.shown()] == ["torch-2-5-0-glm4-batch-nan"]


def test_a_notebook_shows_the_page_in_a_frame_that_runs_nothing(facts: str) -> None:
    frames: list[dict[str, str | None]] = []

    class Frames(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            frames.append({"tag": tag, **dict(attrs)})

    Frames().feed(glm4(facts)._repr_html_())
    (frame,) = frames
    assert (frame["tag"], frame["sandbox"]) == ("iframe", "")
    assert str(frame["srcdoc"]).lower().startswith("<!doctype html>") and "torch-2-5-0-glm4-batch-nan" in str(
        frame["srcdoc"]
    )


def test_explain_knows_rules_and_messages(facts: str) -> None:
    assert "glm4" in repr(envdoctor.explain("torch-2-5-0-glm4-batch-nan"))
    gone = envdoctor.explain("cannot import name 'HybridCache' from 'transformers'", facts=facts)
    assert gone.known and "HybridCache" in gone.text and json.loads(gone.to_json())
    assert not envdoctor.explain("blah blub").known


def test_machines_are_compared(facts: str) -> None:
    other = {**FACTS, "facts": {**FACTS["facts"], "pkg.torch": "2.4.1"}}  # type: ignore[dict-item]
    Path("other.json").write_text(json.dumps(other))
    assert "torch" in str(envdoctor.compare("facts.json", "other.json"))


def test_what_is_wrong_is_an_error_of_ours(facts: str) -> None:
    with pytest.raises(envdoctor.UsageProblem):
        envdoctor.check(facts=facts, lock="uv.lock")
    with pytest.raises(envdoctor.UsageProblem):
        envdoctor.check(settings={"recipe.batch_sice": 2}, facts=facts)
    with pytest.raises(envdoctor.UsageProblem, match="no-such-card"):
        envdoctor.check(gpu="no-such-card", facts=facts)
    with pytest.raises(envdoctor.JobError):
        envdoctor.diff_revision("no-such/model", offline=True)


def test_memory_has_the_number_of_the_command(facts: str) -> None:
    report = envdoctor.memory(
        model="Qwen/Qwen2.5-7B-Instruct", gpu="4090", method="full", settings={"recipe.max_length": 2048}
    )
    assert report.memory is not None and report.memory["verdict"] == "does-not-fit"


def test_an_experiment_runs_or_says_that_there_is_no_torch(facts: str) -> None:
    with pytest.raises(envdoctor.UsageProblem):
        envdoctor.probe("no-such-experiment")
