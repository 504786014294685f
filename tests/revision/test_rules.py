"""Changes as the comparison emits them meet the rules that judge them: kinds, columns and severities fit."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from header_true import Repository, Tensors
from known import judged
from tables import rows
from torch_files import state_pickle, zip_checkpoint

from envdoctor.facts import Fact, FactSet
from envdoctor.judge import Policy, judge
from envdoctor.matrix import Matrix
from envdoctor.revision import change_facts, compare_snapshots

AREAS = ("config", "generation", "tokenizer", "template", "preprocessor", "licence", "files")
TEMPLATE = "[GO]{% for m in messages %}<|{{ m['role'] }}|>~\n {{ m['content'] }}{% endfor %}"
CONFIG, TOKENIZER = "config.json", "tokenizer_config.json"


@pytest.fixture
def found(matrix: Matrix) -> Callable[..., dict[str, str]]:
    """Rule id -> message of every finding between two repositories that no other finding stands for."""

    def run(old: dict[str, Any], new: dict[str, Any], **packages: str) -> dict[str, str]:
        comparison = compare_snapshots(Repository(texts=old), Repository(texts=new), matrix, areas=AREAS)
        assert comparison.unread == []
        facts = FactSet()
        facts.update(change_facts(comparison, "test"))
        for name, version in packages.items():
            facts.add(Fact(f"pkg.{name}", version, "test", "given"))
        judgement = judge(facts, matrix.only(lambda rule: rule.scope == "revision"), Policy())
        return {one.id: one.message.en for one in judgement.findings if one.superseded_by is None}

    return run


def test_the_blank_after_the_role_tag_is_an_error_that_shows_both(found: Any) -> None:
    old, new = ({TOKENIZER: {"chat_template": TEMPLATE.replace("~", blank)}} for blank in (" ", ""))
    message = 'chat template default renders differently: "[GO]<|user|> \\n U" -> "[GO]<|user|>\\n U"'
    assert found(old, new) == {"chat-template-renders-differently": message}


@rows("file old new rule")
def test_each_kind_of_change_meets_its_rule(found: Any, file: str, old: Any, new: Any, rule: str | None) -> None:
    assert set(found({file: old}, {file: new})) == {*filter(None, [rule])}


class TestJoinedWithTheEnvironment:
    ROPE = ({CONFIG: {"rope_theta": 5e5}}, {CONFIG: {"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}})
    BACKEND = ({TOKENIZER: {"tokenizer_class": "A"}}, {TOKENIZER: {"tokenizer_class": "TokenizersBackend"}})
    MOVED = ({TOKENIZER: {"chat_template": "a"}}, {TOKENIZER: {}, "chat_template.jinja": "a"})
    LIST = ({TOKENIZER: {}}, {TOKENIZER: {"extra_special_tokens": ["<a>"]}})

    @pytest.mark.parametrize(
        ("change", "rule", "breaks", "works"),
        [
            (ROPE, "rope-settings-moved-and-ignored", "4.57.6", "5.0.0"),
            (BACKEND, "tokenizer-class-unknown-to-transformers-4", "4.57.6", "5.0.0"),
            (MOVED, "chat-template-moved-and-ignored", "4.46.3", "4.47.0"),
            (LIST, "extra-special-tokens-became-a-list", "4.57.6", "5.0.0"),
        ],
    )
    def test_a_file_of_another_generation_hurts_only_the_releases_that_cannot_read_it(
        self, found: Any, change: Any, rule: str, breaks: str, works: str
    ) -> None:
        assert rule in found(*change, transformers=breaks)
        assert rule not in found(*change, transformers=works)
        assert rule not in found(*change)  # could not be checked

    def test_merges_as_pairs_need_tokenizers_0_20(self, found: Any) -> None:
        old, new = ({"tokenizer.json": {"model": {"vocab": {}, "merges": [merge]}}} for merge in ("a b", ["a", "b"]))
        assert "tokenizer-merges-unknown-to-tokenizers-before-0-20" in found(old, new, tokenizers="0.19.1")
        assert found(old, new, tokenizers="0.20.0") == {}


EMBED, HEAD, ROTARY = "model.embed_tokens.weight", "lm_head.weight", "model.rotary_emb.inv_freq"
QKV = "model.layers.0.self_attn.{}_proj.weight"
BASE: Tensors = {
    EMBED: ("BF16", (64, 8)),
    QKV.format("qkv"): ("BF16", (24, 8)),
    ROTARY: ("F32", (4,)),
    HEAD: ("BF16", (64, 8)),
}
SIZES = json.dumps({"vocab_size": 64, "tie_word_embeddings": False})
SPLIT = {QKV.format("qkv"): None, **{QKV.format(letter): ("BF16", (8, 8)) for letter in "qkv"}}
ROWS = {EMBED: ("BF16", (65, 8)), HEAD: ("BF16", (65, 8))}
EVIL = {"pytorch_model.bin": zip_checkpoint(state_pickle({"a": ("F32", (1,))}, extra=b"cposix\nsystem\n0"))}
FLASH = {"modeling_tiny.py": "from transformers.models.llama.modeling_llama import LlamaFlashAttention2\n"}


def repository(tensors: Mapping[str, Any], files: Mapping[str, Any]) -> Repository:
    named = {name: spec for name, spec in {**BASE, **tensors}.items() if spec is not None}
    return Repository({"model.safetensors": named}, {"config.json": SIZES, **files})


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
