"""What the matrix says of changed weights and pickles, from the comparison to the finding."""

from __future__ import annotations

import json

import pytest
from header_true import Repository, Tensors
from known import judged
from torch_files import state_pickle, zip_checkpoint

from envdoctor.facts import Fact, FactSet
from envdoctor.revision import change_facts, compare_snapshots

BASE: Tensors = {
    "model.embed_tokens.weight": ("BF16", (64, 8)),
    "model.layers.0.self_attn.qkv_proj.weight": ("BF16", (24, 8)),
    "model.rotary_emb.inv_freq": ("F32", (4,)),
    "lm_head.weight": ("BF16", (64, 8)),
}


def repository(tensors: Tensors, *, pickle: bytes | None = None, code: str = "", **config: object) -> Repository:
    texts = {"config.json": json.dumps({"vocab_size": 64, "tie_word_embeddings": False, **config})}
    if pickle is not None:
        texts["pytorch_model.bin"] = pickle
    if code:
        texts["modeling_tiny.py"] = code
    return Repository({"model.safetensors": tensors}, texts)


def changed(**tensors: tuple[str, tuple[int, ...]] | None) -> Tensors:
    named = {**BASE, **{name.replace("__", "."): spec for name, spec in tensors.items()}}
    return {name: spec for name, spec in named.items() if spec is not None}


def retyped(dtype: str) -> Tensors:
    return {name: (dtype, shape) for name, (_, shape) in BASE.items()}


SPLIT = {f"model.layers.0.self_attn.{letter}_proj.weight": ("BF16", (8, 8)) for letter in "qkv"}
EVIL = zip_checkpoint(state_pickle({"a": ("F32", (1,))}, extra=b"cposix\nsystem\n0"))
FLASH = "from transformers.models.llama.modeling_llama import LlamaFlashAttention2\n"


@pytest.mark.parametrize(
    ("new", "rules"),
    [
        (repository(BASE), set()),
        (
            repository({**changed(model__layers__0__self_attn__qkv_proj__weight=None), **SPLIT}),
            {"weights-tensor-renamed"},
        ),
        (repository(retyped("F32")), {"weights-dtype-changed-to-float32"}),
        (repository(retyped("F16")), {"weights-dtype-changed-to-float16"}),
        (repository(changed(lm_head__weight=None)), {"weights-output-head-removed"}),
        (repository(changed(model__rotary_emb__inv_freq=None)), set()),
        (repository(changed(model__mtp__weight=("BF16", (8, 8)))), {"weights-tensor-added"}),
        (
            repository(changed(model__embed_tokens__weight=("BF16", (65, 8)), lm_head__weight=("BF16", (65, 8)))),
            {"weights-embedding-rows-changed", "weights-embedding-rows-differ-from-config"},
        ),
        (
            repository(changed(model__layers__0__self_attn__qkv_proj__weight=("F8_E8M0", (24, 8)))),
            {"new-revision-needs-newer-safetensors"},
        ),
        (repository(BASE, pickle=EVIL), {"pickle-file-added", "pickle-runs-code"}),
        (
            repository(BASE, code=FLASH),
            {"transformers-releases-that-load-it-changed", "new-revision-needs-other-transformers"},
        ),
    ],
    ids=lambda value: ", ".join(sorted(value)) or "nothing" if isinstance(value, set) else "",
)
def test_a_change_is_found_by_its_rules_and_by_no_other(matrix, new, rules):
    comparison = compare_snapshots(repository(BASE), new, matrix)
    facts = FactSet(change_facts(comparison, "old -> new"))
    for name, version in {"transformers": "4.57.6", "safetensors": "0.5.3", "torch": "2.7.0"}.items():
        facts.add(Fact(f"pkg.{name}", version, "", "environment"))
    judgement = judged(facts, matrix)
    about = {
        finding.id for finding in judgement.findings if matrix.find(finding.id).origin.startswith("rules/revision")
    }
    assert {name for name in about if not name.startswith(("rc-", "config"))} == rules
