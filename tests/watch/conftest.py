"""A tiny real model under the real Trainer, with faults planted in data, weights or one layer's backward."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from token_samples import tokens


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Models this small are not computed faster by several threads, which wait for each other on a busy machine."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


@pytest.fixture
def tiny(tmp_path: Path) -> Callable[..., Any]:
    """A Trainer of a two-layer Llama with random weights over ``samples``, on the CPU."""
    torch = pytest.importorskip("torch", reason="needs tests/torch-requirements.txt")
    transformers = pytest.importorskip("transformers", reason="needs tests/torch-requirements.txt")

    def build(samples: Any = None, callbacks: Any = (), pad: int = 0, **arguments: Any) -> Any:
        torch.manual_seed(0)
        sizes = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "max_position_embeddings": 128}
        heads = {"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "pad_token_id": 0}
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes, **heads))
        chosen: dict[str, Any] = {
            **{"output_dir": str(tmp_path / "out"), "per_device_train_batch_size": 2, "max_steps": 6},
            **{"learning_rate": 1e-3, "lr_scheduler_type": "constant", "logging_steps": 1, "save_strategy": "no"},
            **{"report_to": [], "use_cpu": True, "disable_tqdm": True, "dataloader_drop_last": True},
            "remove_unused_columns": False,
        }
        settings = transformers.TrainingArguments(**{**chosen, **arguments})
        return transformers.Trainer(
            model=model, args=settings, train_dataset=samples or tokens(64, pad=pad), callbacks=list(callbacks)
        )

    return build
