"""The trace in a child of an interpreter with torch: real models from their shapes alone."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pinned import installing
from sharing import once
from traced_jobs import GIB, JOB, LORA, config

from envdoctor.matrix import load_matrix
from envdoctor.peak import ClosedForm, OnCuda, Shipped, Trace, Tracer
from envdoctor.system import ChildAnswer, Place, Task, run_in_target

pytestmark = pytest.mark.torch

TINY = {
    **{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 6, "vocab_size": 512},
    **{"num_attention_heads": 4, "num_key_value_heads": 2},
}
QKV = {"r": 8, "lora_alpha": 32, "lora_dropout": 0.1, "target_modules": ["q_proj", "k_proj", "v_proj"]}
VERSIONS = {"torch": "1", "transformers": "1"}


@pytest.fixture
def place(torch_python: str, tmp_path: Path) -> Place:
    return Place(torch_python, os.environ, str(tmp_path), str(tmp_path), "")


def jobs(*changes: Mapping[str, Any], data: Mapping[str, Any] = TINY, tokens: tuple[int, ...] = (64,)) -> list[Any]:
    return [{**JOB, "lora": QKV, "config": data, "tokens": list(tokens), **change} for change in changes]


def sizes(traces: list[Trace | str], tokens: int) -> list[float]:
    assert all(isinstance(trace, Trace) for trace in traces), traces
    return [ClosedForm(trace, 1).at(1, tokens).size for trace in traces if isinstance(trace, Trace)]


#: What the tests below ask about, by name.
ASKED = {
    "depths": [
        *jobs({"lora": None}, tokens=(128, 64, 32)),
        *jobs({"lora": None, "full": True}, tokens=(128, 64, 32)),
        *jobs({"lora": None, "full": True}, tokens=(96,)),
    ],
    "saving": jobs(
        *(
            {"lora": None, "attention": name, "checkpointing": kept}
            for kept in (False, True)
            for name in ("eager", "sdpa")
        ),
        data={**TINY, "vocab_size": 64},
        tokens=(256,),
    ),
    "remote": jobs({}, data={"model_type": "chatglm", "auto_map": {"AutoModelForCausalLM": "modeling_chatglm.Chat"}}),
    "kept": jobs({"training": False, "lora": None}),
    "shipped": jobs(
        {"lora": {**LORA, "lora_alpha": 32}, "amp": "bfloat16"},
        {"lora": None, "checkpointing": True},
        {"lora": None, "keep_outputs": True},
        {"lora": {**LORA, "use_dora": True}, "amp": "bfloat16"},
        {"lora": {**LORA, "use_dora": True}, "checkpointing": True},
        data={**TINY, "hidden_size": 896, "intermediate_size": 4864, "vocab_size": 32000, "num_attention_heads": 14},
        tokens=(512,),
    ),
}
#: Models that are no causal language models.
BERT = {**TINY, "hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "vocab_size": 32000}
BERT = {name: value for name, value in BERT.items() if name != "num_key_value_heads"}
HALVES = {
    f"{half}_{name}": size
    for half, layers in (("encoder", 6), ("decoder", 4))
    for name, size in (("layers", layers), ("attention_heads", 12), ("ffn_dim", 3072))
}
T5 = {"d_model": 768, "d_ff": 2048, "d_kv": 64, "num_heads": 12, "num_layers": 6, "vocab_size": 32128}
SOUND = {"num_mel_bins": 80, "max_source_positions": 1500, "max_target_positions": 448, "pad_token_id": 0}
OTHERS = {
    "bert": {**BERT, "model_type": "bert", "max_position_embeddings": 512},
    "xlm-roberta": {**BERT, "model_type": "xlm-roberta", "max_position_embeddings": 514},
    "deberta-v2": {
        **{**BERT, "model_type": "deberta-v2", "relative_attention": True, "position_buckets": 256},
        **{"pos_att_type": ["p2c", "c2p"], "share_att_key": True, "norm_rel_ebd": "layer_norm", "type_vocab_size": 0},
        "position_biased_input": False,
    },
    "modernbert": {**BERT, "model_type": "modernbert", "intermediate_size": 1152, "pad_token_id": 0},
    "t5": {**T5, "model_type": "t5", "feed_forward_proj": "gated-gelu"},
    "t5, the first": {**T5, "model_type": "t5"},
    "whisper": {"model_type": "whisper", "d_model": 768, "vocab_size": 50265, **HALVES, **SOUND},
    "bart": {"model_type": "bart", "d_model": 768, "vocab_size": 50265, **HALVES, "max_position_embeddings": 512},
}
for kind, data in OTHERS.items():
    other = {"lora": None, "attention": None, "padded": True, "batch": 8, "load_dtype": "float32"}
    ways: list[dict[str, Any]] = [{"amp": "bfloat16"}, {"checkpointing": True}, {"load_dtype": "bfloat16"}]
    ASKED[kind] = jobs(*({**other, **way} for way in ways), data=data, tokens=(256,))


class Traced(NamedTuple):
    """What one child said of all that is asked about, by the same names, and the cache that keeps it."""

    found: Mapping[str, list[Trace | str]]
    home: str


@pytest.fixture(scope="module")
def traced(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    def make(scratch: Path) -> Traced:
        there = Place(torch_python, os.environ, str(scratch), str(scratch), "")
        home = str(scratch / "cache")
        answers = iter(Tracer(there, VERSIONS, home).run([job for some in ASKED.values() for job in some]))
        return Traced({name: [next(answers) for _ in some] for name, some in ASKED.items()}, home)

    return once(tmp_path_factory, "traced", make)


def test_two_depths_and_three_lengths_say_what_the_whole_says(traced: Traced) -> None:
    short, full, between = traced.found["depths"]
    assert isinstance(short, Trace) and short.model["depths"] == [3, 4]
    assert sizes([short], 128) == pytest.approx(sizes([full], 128), rel=1e-3)
    assert sizes([short], 96) == pytest.approx(sizes([between], 96), rel=1e-3)


def test_what_saves_memory_does(traced: Traced) -> None:
    eager, sdpa, checkpointing, both = sizes(traced.found["saving"], 256)
    assert eager > sdpa > both and eager > checkpointing > both


def test_a_type_that_transformers_does_not_have_is_refused_and_no_code_of_the_model_runs(traced: Traced) -> None:
    (refused,) = traced.found["remote"]
    assert isinstance(refused, str) and "no model of the type chatglm" in refused


def test_traces_are_kept_by_what_decides_and_not_for_unreleased_code(
    traced: Traced, place: Place, tmp_path: Path
) -> None:
    (asked,), home = ASKED["kept"], traced.home
    nowhere = place._replace(python=str(tmp_path / "gone"))
    assert Tracer(nowhere, VERSIONS, home).run([asked]) == traced.found["kept"]
    for other in ({**VERSIONS, "torch": "2"}, {**VERSIONS, "torch": "1.dev0"}, {**VERSIONS, "torch": None}):
        (missing,) = Tracer(nowhere, other, home).run([asked])
        assert isinstance(missing, str) and missing.startswith("the model could not be traced")
    (missing,) = Tracer(nowhere, VERSIONS, home).run([{**asked, "batch": 2}])
    assert isinstance(missing, str)


def test_one_child_traces_what_is_foreseen_and_each_length_once(place: Place, tmp_path: Path) -> None:
    starts, python = tmp_path / "starts", tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho >> "{starts}"\nexec "{place.python}" "$@"\n')
    python.chmod(0o755)
    first, later, other = (
        jobs({"training": False, "lora": None, "batch": batch}, tokens=tokens)[0]
        for batch, tokens in ((1, (64,)), (1, (64, 32, 16)), (2, (64,)))
    )
    tracer = Tracer(place._replace(python=str(python)), {"torch": None}, None, lambda: [later, other])
    answers = [one for job in (first, later, other) for one in tracer.run([job])]
    assert [[point["tokens"] for point in one.points] for one in answers if isinstance(one, Trace)] == [
        [64, 64],
        [64, 64, 32, 32, 16, 16],
        [64, 64],
    ]
    assert starts.read_text() == "\n"
    assert tracer.run([{**other, "untraced": True}]) == [""]


def test_shipped_coefficients_say_what_the_trace_says(traced: Traced) -> None:
    table, terms = (load_matrix().table(name) for name in ("memory-forms", "memory-terms"))
    shipped = OnCuda(Shipped(table, terms, "5.23.0", False).run).run(ASKED["shipped"])
    assert sizes(shipped, 512) == pytest.approx(sizes(traced.found["shipped"], 512), rel=0.014)


@pytest.mark.parametrize("kind", OTHERS)
def test_shipped_coefficients_say_what_the_trace_says_of_encoders_and_of_encoders_with_a_decoder(
    traced: Traced, kind: str
) -> None:
    table, terms = (load_matrix().table(name) for name in ("memory-forms", "memory-terms"))
    shipped = Shipped(table, terms, "5.23.0", False).run(ASKED[kind])
    assert all(isinstance(trace, Trace) and not trace.near for trace in shipped), shipped
    asked = [ClosedForm(trace, 8).at(8, 256).size for trace in shipped if isinstance(trace, Trace)]
    found = [ClosedForm(trace, 8).at(8, 256).size for trace in traced.found[kind] if isinstance(trace, Trace)]
    assert asked == pytest.approx(found, rel=0.025)


REAL = ("llama-3-8b", "qwen2.5-7b-instruct", "glm-4-9b-chat-hf")
PROMPT = jobs({"training": False, "lora": None}, data=config("qwen2.5-7b-instruct"), tokens=(30720,))


@pytest.fixture(scope="module")
def real(torch_python: str, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[ChildAnswer]]:
    """What one child said of real models, each short and in full, of the story's in four ways, and of a long prompt."""

    def make(scratch: Path) -> Mapping[str, list[ChildAnswer]]:
        ways = [{"attention": name, "checkpointing": kept} for kept in (False, True) for name in ("eager", "sdpa")]
        depths = ({"tokens": [2048, 1024, 512]}, {"full": True})
        asked = {name: jobs(*depths, data=config(name), tokens=(2048,)) for name in REAL}
        asked["story"] = jobs(*ways, data=config("glm-4-9b-chat-hf"), tokens=(6001,))
        asked["prompt"] = PROMPT
        needs = ("torch", "transformers", "peft")
        tasks = [Task("tracing/trace.py", job, needs, 400, 4000) for some in asked.values() for job in some]
        answers = iter(run_in_target(tasks, Place(torch_python, os.environ, str(scratch), str(scratch), "")))
        return {name: [next(answers) for _ in some] for name, some in asked.items()}

    return once(tmp_path_factory, "real-traces", make)


def _whole(answers: list[ChildAnswer], tokens: int) -> list[float]:
    assert [answer.ending for answer in answers] == ["ok"] * len(answers), [answer.detail for answer in answers]
    return sizes([Trace(answer.records[0], answer.records[1:]) for answer in answers], tokens)


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
def test_real_models(name: str, real: Mapping[str, list[ChildAnswer]]) -> None:
    low, full = _whole(real[name], 2048)
    assert low == pytest.approx(full, rel=1e-3)
    peak = real[name][0].peak_mib
    assert peak is not None and peak < 1024


@pytest.mark.slow
def test_glm_4_9b_of_the_story(real: Mapping[str, list[ChildAnswer]]) -> None:
    found = [size / GIB for size in _whole(real["story"], 6001)]
    assert found == pytest.approx([338.3, 79.1, 33.2, 29.7], rel=0.01)


@pytest.mark.slow
def test_a_release_changes_what_a_long_prompt_needs(
    real: Mapping[str, list[ChildAnswer]], place: Place, tmp_path: Path
) -> None:
    """Qwen2-7B, 30,720 tokens; published: 42.62 GiB with transformers 4.38.2 and 19.97 GiB with 4.46.0 (the URLs stand
    in benchmarks/memory_readings.toml). Until 4.45 the logits of all tokens were made, in float32."""
    old = ["transformers==4.44.2", "tokenizers==0.19.1", "huggingface-hub==0.36.2"]
    old += ["requests==2.34.2", "urllib3==2.8.0", "certifi==2026.10.19.post1", "charset-normalizer==3.5.2"]
    into = installing(place.python, "--no-deps", "--target", tmp_path / "old")
    subprocess.run([*into, *old], check=True, capture_output=True)
    before = place._replace(environ={**os.environ, "PYTHONPATH": str(tmp_path / "old")})
    found = [*sizes(Tracer(before, {"torch": None}, None).run(PROMPT), 30720), *_whole(real["prompt"], 30720)]
    assert [size / GIB for size in found] == [pytest.approx(42.6, rel=0.01), pytest.approx(19.9, rel=0.01)]
