"""What the matrix says of changed weights and pickles, from the comparison to the finding."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from header_true import Repository, Tensors
from known import judged
from torch_files import state_pickle, zip_checkpoint

from envdoctor.facts import Fact, FactSet
from envdoctor.revision import change_facts, compare_snapshots

EMBED, HEAD, ROTARY = "model.embed_tokens.weight", "lm_head.weight", "model.rotary_emb.inv_freq"
QKV = "model.layers.0.self_attn.{}_proj.weight"
BASE: Tensors = {
    EMBED: ("BF16", (64, 8)),
    QKV.format("qkv"): ("BF16", (24, 8)),
    ROTARY: ("F32", (4,)),
    HEAD: ("BF16", (64, 8)),
}
CONFIG = json.dumps({"vocab_size": 64, "tie_word_embeddings": False})
SPLIT = {QKV.format("qkv"): None, **{QKV.format(letter): ("BF16", (8, 8)) for letter in "qkv"}}
ROWS = {EMBED: ("BF16", (65, 8)), HEAD: ("BF16", (65, 8))}
EVIL = {"pytorch_model.bin": zip_checkpoint(state_pickle({"a": ("F32", (1,))}, extra=b"cposix\nsystem\n0"))}
FLASH = {"modeling_tiny.py": "from transformers.models.llama.modeling_llama import LlamaFlashAttention2\n"}


def repository(tensors: Mapping[str, Any], files: Mapping[str, Any]) -> Repository:
    named = {name: spec for name, spec in {**BASE, **tensors}.items() if spec is not None}
    return Repository({"model.safetensors": named}, {"config.json": CONFIG, **files})


def retyped(dtype: str) -> Tensors:
    return {name: (dtype, shape) for name, (_, shape) in BASE.items()}


@pytest.mark.parametrize(
    ("tensors", "files", "rules"),
    [
        ({}, {}, ""),
        (SPLIT, {}, "weights-tensor-renamed"),
        (retyped("F32"), {}, "weights-dtype-changed-to-float32"),
        (retyped("F16"), {}, "weights-dtype-changed-to-float16 weights-dtype-changed"),
        ({HEAD: None}, {}, "weights-output-head-removed"),
        ({ROTARY: None}, {}, ""),
        ({"model.mtp.weight": ("BF16", (8, 8))}, {}, "weights-tensor-added"),
        (ROWS, {}, "weights-embedding-rows-changed weights-embedding-rows-differ-from-config"),
        ({QKV.format("qkv"): ("F8_E8M0", (24, 8))}, {}, "new-revision-needs-newer-safetensors weights-dtype-changed"),
        ({}, EVIL, "pickle-file-added pickle-runs-code"),
        ({}, FLASH, "transformers-releases-that-load-it-changed new-revision-needs-other-transformers"),
    ],
    ids=lambda value: value or "nothing" if isinstance(value, str) else "",
)
def test_a_change_is_found_by_its_rules_and_by_no_other(matrix, tensors, files, rules):
    comparison = compare_snapshots(repository({}, {}), repository(tensors, files), matrix)
    facts = FactSet(change_facts(comparison, "old -> new"))
    for name, version in {"transformers": "4.57.6", "safetensors": "0.5.3", "torch": "2.7.0"}.items():
        facts.add(Fact(f"pkg.{name}", version, "", "environment"))
    judgement = judged(facts, matrix)
    told = [finding.id for finding in judgement.findings if finding.superseded_by is None]
    about = {name for name in told if matrix.find(name).origin.startswith("rules/revision")}
    assert {name for name in about if not name.startswith(("rc-", "config"))} == set(rules.split())
