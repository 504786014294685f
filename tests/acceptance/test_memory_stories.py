"""The memory of the stories' own recipes: the number, the cause, and that the mended recipe fits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

STORIES = Path(__file__).parents[2] / "fixtures" / "stories"
MODELS = Path(__file__).parents[2] / "fixtures" / "memory"
ALONE = ["--set", "recipe.zero_stage=absent", "--set", "recipe.world_size=1"]

Predict = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def predict(run: Any, torch_python: str, traces: Path) -> Predict:
    environ = {"XDG_CACHE_HOME": str(traces), "PATH": "", "HOME": "/"}

    def ask(recipe: Path, model: str, *words: str) -> tuple[int, dict[str, Any]]:
        command = ["memory", "--no-config", "--no-gpu", "--python", torch_python, "--recipe", str(recipe)]
        done = run(*command, "--model", str(MODELS / model), "--format", "json", *words, env=environ, timeout=500)
        assert done.code in (0, 1), done.err + done.out
        section: dict[str, Any] = done.json["sections"]["memory"]
        return done.code, section

    return ask


def with_setting(recipe: Path, folder: Path, old: str, new: str) -> Path:
    text = recipe.read_text()
    assert old in text
    (folder / recipe.name).write_text(text.replace(old, new))
    return folder / recipe.name


def offered(section: dict[str, Any], *names: str) -> float:
    (size,) = [change["gib"] for change in section["changes"] if set(change["set"]) == set(names)]
    return float(size)


@pytest.mark.slow
@pytest.mark.torch
def test_the_first_story_and_what_it_is_offered(predict: Predict, tmp_path: Path) -> None:
    story = STORIES / "1" / "configs" / "lora.yaml"
    words = ["--gpu", "A100-80GB", *ALONE, "--set", "recipe.attn=eager"]
    code, section = predict(story, "glm-4-9b-chat", *words)
    assert (code, section["verdict"], section["level"]) == (1, "does-not-fit", "nearest")
    assert section["allocated_gib"] == pytest.approx(338, rel=0.02)
    activations = section["allocated_gib"] - 17.5
    assert section["process_gib"][1] > (17.5 + 1.3 * activations) * 1.07 + 1.3
    switch = "training_args:\n  gradient_checkpointing: true"
    mended = with_setting(story, tmp_path, "training_args:", switch)
    code, after = predict(mended, "glm-4-9b-chat", *words)
    assert (code, after["verdict"]) == (0, "fits")
    assert after["allocated_gib"] == pytest.approx(offered(section, "recipe.gradient_checkpointing"), rel=1e-3)
    code, both = predict(mended, "glm-4-9b-chat", *words[:-1], "recipe.attn=sdpa")
    assert both["allocated_gib"] == pytest.approx(29.7, rel=0.02)
    names = ("recipe.attn", "recipe.gradient_checkpointing")
    assert both["allocated_gib"] == pytest.approx(offered(section, *names), rel=1e-3)


@pytest.mark.slow
@pytest.mark.torch
def test_the_third_story_fits_only_while_checkpointing_works(predict: Predict) -> None:
    story = STORIES / "3" / "train_dpo.sh"
    words = ["--gpu", "A100-80GB", "--set", "recipe.attn=eager"]
    code, section = predict(story, "glm-4-9b-chat", *words)
    assert (code, section["verdict"], section["processes"]) == (0, "fits", 8)
    assert any("some revisions ignore gradient checkpointing: then it takes 122" in text for text in section["assumed"])
    code, without = predict(story, "glm-4-9b-chat", *words, "--set", "recipe.gradient_checkpointing=false")
    assert (code, without["verdict"]) == (1, "does-not-fit")
    fused = [change for change in without["changes"] if change["set"] == {"recipe.attn": "sdpa"}]
    assert [change["verdict"] for change in fused] == ["tight"]


@pytest.mark.slow
@pytest.mark.torch
def test_the_fifth_story_needs_what_others_hold(predict: Predict, tmp_path: Path) -> None:
    story = STORIES / "5" / "settings.jsonc"
    words = ["--gpu", "A6000", "--set", "gpu.free_gib=44"]
    code, section = predict(story, "qwen2.5-7b-instruct", *words)
    assert (code, section["verdict"], section["phase"]) == (1, "does-not-fit", "start")
    assert section["serving"]["asked_gib"] == pytest.approx(0.95 * 48)
    code, after = predict(with_setting(story, tmp_path, "0.95", "0.8"), "qwen2.5-7b-instruct", *words)
    assert (code, after["verdict"]) == (0, "fits")
    most = section["changes"][0]["set"]["recipe.gpu_memory_utilization"]
    assert 0.8 < most < 0.95
    code, after = predict(with_setting(story, tmp_path, "0.95", str(most)), "qwen2.5-7b-instruct", *words)
    assert (code, after["verdict"]) == (0, "fits")


@pytest.mark.parametrize("story", ["1/run.sh", "3/train_dpo.sh", "5/settings.jsonc"])
def test_a_model_that_is_not_here_is_one_sentence(run: Any, story: str) -> None:
    done = run("memory", "--no-config", "--no-gpu", "--gpu", "A100-80GB", "--recipe", STORIES / story)
    assert done.code == 3
    assert "is on this machine: give its folder, --model DIR" in " ".join(done.out.split())
