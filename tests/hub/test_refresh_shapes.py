"""The tool that adds rows to the table model-shapes, against the loopback Hub and small copies of its sources."""

import json
from pathlib import Path

import pytest
import refresh_shapes
from loopback import Hub

from envdoctor.matrix import load_toml

CONFIG = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 100}
CONFIG |= {"num_attention_heads": 4, "num_key_value_heads": 2, "torch_dtype": "bfloat16", "rope_theta": 1e4}


def test_rows_come_from_the_hub(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.repo("me/tiny-1b").commit({"config.json": json.dumps(CONFIG)}, title="first")
    hub.repo("me/tiny-awq").commit(
        {"config.json": json.dumps({**CONFIG, "quantization_config": {"quant_method": "awq", "bits": 4}})},
        title="first",
    )
    table = tmp_path / "shapes.toml"
    head = refresh_shapes.TABLE.read_text(encoding="utf-8").partition("row = [\n")[0]
    table.write_text(refresh_shapes.text_of([], head), encoding="utf-8")
    monkeypatch.setenv("HF_ENDPOINT", hub.environ(tmp_path)["HF_ENDPOINT"])
    for _ in range(2):  # once more changes nothing
        monkeypatch.setattr("sys.argv", ["refresh_shapes", "--table", str(table), "--hub", "me/tiny-1b", "me/tiny-awq"])
        assert refresh_shapes.main() == 0
        rows = load_toml(table)["row"]
        assert [row["names"] for row in rows] == [["me/tiny-1b"], ["me/tiny-awq"]]
    assert rows[0]["config"] == {key: value for key, value in CONFIG.items() if key != "rope_theta"}
    assert rows[0]["source"] == "https://huggingface.co/me/tiny-1b/blob/main/config.json"
    assert rows[1]["config"]["quantization_config"] == {"quant_method": "awq"}
    assert "me/tiny-1b: 0.000 billion parameters" in capsys.readouterr().out


def test_the_table_is_as_the_tool_writes_it() -> None:
    text = refresh_shapes.TABLE.read_text(encoding="utf-8")
    assert refresh_shapes.text_of(load_toml(refresh_shapes.TABLE)["row"], text.partition("row = [\n")[0]) == text
