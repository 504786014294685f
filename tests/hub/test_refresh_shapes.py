"""The tool that adds rows to the table model-shapes, against the loopback Hub and small copies of its sources."""

import json
from pathlib import Path

import pytest
import refresh_shapes
from loopback import Hub

from envdoctor.matrix import load_toml

CONFIG = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 100}
CONFIG |= {"num_attention_heads": 4, "num_key_value_heads": 2, "torch_dtype": "bfloat16", "rope_theta": 1e4}
LITGPT = """
class Config:
    def __init__(self, **given):
        self.__dict__ |= dict(n_layer=2, n_embd=64, n_head=4, n_query_groups=2, head_size=16, intermediate_size=128,
                              padded_vocab_size=100, block_size=512, n_expert=0, n_expert_per_token=0) | given
configs = [dict(hf_config=dict(org="meta-llama", name="Tiny-1B")), dict(hf_config=dict(org="Qwen", name="Qwen3-2M"))]
"""
BUILDER = "def tiny_1b():\n    return llama(vocab_size=100, num_layers=3, embed_dim=64, num_heads=4, num_kv_heads=2)\n"


def test_rows_come_from_the_hub_and_from_releases(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.repo("me/tiny").commit({"config.json": json.dumps(CONFIG)}, title="first")
    hub.repo("me/tiny-awq").commit(
        {"config.json": json.dumps({**CONFIG, "quantization_config": {"quant_method": "awq", "bits": 4}})},
        title="first",
    )
    table, builders = tmp_path / "shapes.toml", tmp_path / "llama"
    builders.mkdir()
    (builders / "_model_builders.py").write_text(BUILDER)
    (tmp_path / "config.py").write_text(LITGPT)
    head = refresh_shapes.TABLE.read_text(encoding="utf-8").partition("row = [\n")[0]
    table.write_text(refresh_shapes.text_of([], head), encoding="utf-8")
    monkeypatch.setenv("HF_ENDPOINT", hub.environ(tmp_path)["HF_ENDPOINT"])
    words = ["--table", str(table), "--litgpt", str(tmp_path / "config.py"), "--torchtune", str(tmp_path)]
    for _ in range(2):  # once more changes nothing
        monkeypatch.setattr("sys.argv", ["refresh_shapes", *words, "--hub", "me/tiny", "me/tiny-awq"])
        assert refresh_shapes.main() == 0
        rows = load_toml(table)["row"]
        assert [row["names"] for row in rows] == [
            ["meta-llama/Tiny-1B"],
            ["Qwen/Qwen3-2M"],
            ["me/tiny"],
            ["me/tiny-awq"],
        ]
    assert rows[0]["config"]["max_position_embeddings"] == 512 and rows[0]["source"].startswith("pkg:pypi/litgpt@")
    assert rows[1]["config"]["model_type"] == "qwen3"
    assert rows[2]["config"] == {key: value for key, value in CONFIG.items() if key != "rope_theta"}
    assert rows[2]["source"] == "https://huggingface.co/me/tiny/blob/main/config.json"
    assert rows[3]["config"]["quantization_config"] == {"quant_method": "awq"}
    said = capsys.readouterr().out
    assert "meta-llama/Tiny-1B: 0.000 billion parameters" in said
    assert "torchtune differs: tiny_1b: {'num_hidden_layers': 3}" in said


def test_the_table_is_as_the_tool_writes_it() -> None:
    text = refresh_shapes.TABLE.read_text(encoding="utf-8")
    assert refresh_shapes.text_of(load_toml(refresh_shapes.TABLE)["row"], text.partition("row = [\n")[0]) == text
