"""One line of ``check --model``: what the model asks for, and whether it is there, as docs/environments.md shows it."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINUX = ("--target-python", "3.11", "--target-platform", "linux-x86_64", "--no-config")
ROW = re.compile(r"\| `(--\w+) (fixtures/[^`]+)` \| (\S+) \| (asks for .*) \|")
ROWS = ROW.findall((ROOT / "docs/environments.md").read_text(encoding="utf-8"))


def test_ten_models_of_ten_families_stand_in_the_chapter():
    assert len({model for _, _, model, _ in ROWS}) == 10


@pytest.mark.parametrize(("option", "file", "model", "line"), ROWS, ids=[row[2] for row in ROWS])
def test_the_line_of_the_chapter_is_what_check_says(run, option, file, model, line):
    result = run("check", option, ROOT / file, "--model", model, *LINUX, "--format", "json")
    assert f"{model} {line}" in [notice["text"] for notice in result.json["notices"]]


def said(run, tmp_path: Path, model: str, **packages: str) -> str:
    """The line of ``check`` for a model beside these packages and no others."""
    file = tmp_path / "requirements.txt"
    file.write_text("".join(f"{name}=={version}\n" for name, version in packages.items()))
    result = run("check", "--lock", file, "--model", model, *LINUX, "--format", "json")
    (line,) = (text for notice in result.json["notices"] if (text := notice["text"]).startswith(model))
    return line.removeprefix(f"{model} ")


def test_a_model_that_needs_a_later_engine_than_its_architecture_says_so(run, tmp_path):
    model = "meta-llama/Llama-3.1-8B-Instruct"
    old = said(run, tmp_path, model, transformers="4.43.2", vllm="0.5.3")
    assert old == "asks for transformers>=4.43.0, vllm>=0.5.3.post1; not here: vllm>=0.5.3.post1"
    assert said(run, tmp_path, model, transformers="4.43.2", vllm="0.5.3.post1").endswith("all of it is here")
    assert "vllm" not in said(run, tmp_path, model, transformers="4.43.2")


@pytest.mark.parametrize(
    "copy",
    [
        "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF",
        "bartowski/meta-llama_Llama-3.3-70B-Instruct-GGUF",
        "NousResearch/Meta-Llama-3.1-8B-Instruct",
        "RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16",
    ],
)
def test_a_copy_of_a_model_asks_for_what_the_model_asks_for(run, tmp_path, copy):
    assert said(run, tmp_path, copy, transformers="4.42.0") == (
        "asks for transformers>=4.43.0; not here: transformers>=4.43.0"
    )


@pytest.mark.parametrize(
    ("model", "works", "fails"),
    [
        ("internlm/internlm2_5-7b-chat", "4.48.3", "4.49.0"),
        ("baichuan-inc/Baichuan-13B-Chat", "4.33.3", "4.34.0"),
        ("THUDM/cogvlm2-llama3-chat-19B", "4.43.4", "4.44.0"),
        ("OpenGVLab/InternVL2-4B", "4.41.2", "4.42.0"),
        ("OpenGVLab/InternVL2-4B", "4.37.2", "4.37.1"),
    ],
)
def test_code_of_a_repository_has_a_window_of_releases(run, tmp_path, model, works, fails):
    here = said(run, tmp_path, model, transformers=works).partition("; not here: ")[2]
    assert "transformers" not in here
    assert "transformers" in said(run, tmp_path, model, transformers=fails).partition("; not here: ")[2]


@pytest.mark.parametrize(
    ("model", "works", "fails", "level", "code"),
    [
        ("openbmb/MiniCPM-V-2_6", "4.51.3", "4.52.4", "error", 1),
        ("baichuan-inc/Baichuan2-7B-Chat", "4.33.3", "4.40.2", "error", 1),
        ("baichuan-inc/Baichuan-13B-Chat", "4.33.3", "4.35.2", "error", 1),
        ("Qwen/Qwen-7B-Chat", "4.37.2", "4.52.4", "warning", 0),
    ],
)
def test_code_that_does_not_run_with_a_release_is_a_finding_in_every_format(
    run, tmp_path, model, works, fails, level, code
):
    def check(release: str):
        lines = f"torch==2.5.1\ntransformers=={release}\nsentencepiece==0.2.0\n"
        (tmp_path / "requirements.txt").write_text(lines)
        return run("check", "--lock", tmp_path / "requirements.txt", "--model", model, *LINUX, *written)

    forms = ("concise", "json", "github", "junit", "sarif", "markdown")
    written = [word for form in forms for word in ("--output", f"{form}={form}.out")]
    result = check(fails)
    assert result.code == code
    shown = {form: (tmp_path / f"{form}.out").read_text(encoding="utf-8") for form in forms} | {"terminal": result.out}
    for form, text in shown.items():
        assert "transformers" in text and fails in text, form
        assert level in text or (form == "junit" and not code)  # there what fails no run is a case that passed
        assert " fails" in text or "asks for transformers" in text, form
    good = check(works)
    assert good.code == 0 and "No findings" in good.out
    assert "Next         give --model DIR" in good.out  # its code was not read


@pytest.mark.parametrize(
    ("engine", "release", "level"),
    [("vllm", "0.6.3", "error"), ("vllm", "0.8.3", None), ("vllm", "0.8.5", None), ("sglang", "0.4.5", "error")],
)
def test_the_engine_that_serves_a_model_must_know_it(run, tmp_path, engine, release, level):
    (tmp_path / "requirements.txt").write_text(f"{engine}=={release}\ntransformers==4.51.3\n")
    served = ("--lock", tmp_path / "requirements.txt", "--model", "Qwen/Qwen3-8B", *LINUX)
    result = run("check", *served, "--set", f"recipe.framework={engine}", "--format", "json")
    found = {finding["id"]: finding for finding in result.json["findings"]}
    assert (found.get("engine-does-not-know-the-model") or {}).get("severity") == level
    assert result.code == (1 if level else 0)


@pytest.mark.parametrize(("framework", "asks"), [("trl", True), ("torchtune", False)])
def test_a_trainer_with_its_own_models_needs_no_transformers_for_one(run, tmp_path, framework, asks):
    (tmp_path / "requirements.txt").write_text("torch==2.6.0\ntorchtune==0.6.1\n")
    run_of_it = ("--model", "meta-llama/Llama-3.1-8B", "--set", f"recipe.framework={framework}", *LINUX)
    out = run("check", "--lock", "requirements.txt", *run_of_it).out
    assert ("asks for transformers" in out) is asks
