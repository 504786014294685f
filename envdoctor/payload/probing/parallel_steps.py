"""Steps of one model whose batch is shared by several processes: one process of them, as a program of its own.

It is started as :mod:`collective` starts its own, for the same reasons. Every process trains on its part of the batch
by each way in turn, and computes for itself, in float64 and without any of this, what the whole batch gives.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

if __name__ == "__main__":  # names of this folder shadow no library
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != os.path.dirname(os.path.abspath(__file__))]

import datetime

import torch
import torch.distributed as dist
from torch import nn

#: Rows of the whole batch, tokens of a row, and what the tokens are taken from.
_ROWS, _LENGTH, _VOCABULARY, _WIDTH = 8, 12, 53, 24
_STEPS, _RATE, _NORM = 2, 0.5, 0.5
#: What an exception says of a way that is not for gloo or a CPU.
_DECLINED = ("not support", "not implemented", "no backend", "does not provide", "unsupported", "non-cpu")


def main() -> None:
    """Take part, and print ``changes``: by way, the ``relative`` error of the change of all parameters and a ``detail``
    in words; or ``skip``, why this torch does not offer the way, or ``error``."""
    request = json.loads(sys.argv[1])
    rank, world = request["rank"], request["world"]
    device = f"cuda:{rank}" if request["backend"] == "nccl" else "cpu"
    if device != "cpu":
        torch.cuda.set_device(device)
    torch.set_num_threads(1)
    limit = datetime.timedelta(seconds=request["seconds"])
    store = dist.FileStore(request["file"], world)
    dist.init_process_group(request["backend"], store=store, rank=rank, world_size=world, timeout=limit)
    start, exact = _model().state_dict(), _model().double()
    for _ in range(_STEPS):
        _gradient(exact, *_batch())
        total = torch.cat([weight.grad.flatten() for weight in exact.parameters()]).norm()
        for weight in exact.parameters():
            weight.data -= _RATE * min(1.0, float(_NORM / (total + 1e-6))) * weight.grad
            weight.grad = None
    changes: dict[str, dict[str, Any]] = {}
    for way in _WAYS:
        print(f"stage: training with {way}", file=sys.stderr, flush=True)
        try:
            after = _trained(way, rank, world, device)
        except ImportError:
            changes[way] = {"skip": f"this torch has no {way}"}
            continue
        except (AssertionError, AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
            # Which of them gloo and a CPU can take depends on the release; what NCCL cannot is an error.
            declined = device == "cpu" and any(word in str(error).lower() for word in _DECLINED)
            changes[way] = {"skip" if declined else "error": f"{type(error).__name__}: {error}".split("\n")[0][:300]}
            continue
        change, right = (
            torch.cat([(state[name].double().cpu() - start[name].double()).flatten() for name in start])
            for state in (after, exact.state_dict())
        )
        off, times = (float(part.norm() / right.norm()) for part in (change - right, change))
        changes[way] = {"relative": off, "detail": f"{way}: a change {times:.3g} times as long, off by {off:.2g} of it"}
    dist.barrier()  # one that ends first takes the connections of the other with it
    print(json.dumps({"changes": changes}), flush=True)
    # Groups that wrapped models hold are taken down in no order, and a thread of gloo that outlives one aborts.
    os._exit(0)


def _model() -> Any:
    torch.manual_seed(0)
    inner = [nn.Sequential(nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, _WIDTH), nn.Tanh()) for _ in range(2)]
    return nn.Sequential(nn.Embedding(_VOCABULARY, _WIDTH), *inner, nn.Linear(_WIDTH, _VOCABULARY))


def _batch() -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, _VOCABULARY, (2, _ROWS, _LENGTH), generator=generator)
    return tokens[0], tokens[1]


def _gradient(model: Any, tokens: Any, labels: Any, share: float = 1.0) -> None:
    (share * nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())).backward()


def _trained(way: str, rank: int, world: int, device: str) -> dict[str, Any]:
    """Return the parameters after the steps, whole, by their names in the plain model."""
    wrapped, whole = _WAYS[way](_model().to(device), device)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=_RATE)
    tokens, labels = (part[rank::world].to(device) for part in _batch())
    for _ in range(_STEPS):
        if "no_sync" in way:
            half = len(tokens) // 2
            with wrapped.no_sync():
                _gradient(wrapped, tokens[:half], labels[:half], 0.5)
            _gradient(wrapped, tokens[half:], labels[half:], 0.5)
        else:
            _gradient(wrapped, tokens, labels)
        if hasattr(wrapped, "clip_grad_norm_"):
            wrapped.clip_grad_norm_(_NORM)
        else:
            nn.utils.clip_grad_norm_(wrapped.parameters(), _NORM)
        optimizer.step()
        optimizer.zero_grad()
    state: dict[str, Any] = whole()
    return state


def _ddp(model: Any, device: str) -> tuple[Any, Any]:
    return nn.parallel.DistributedDataParallel(model), model.state_dict


def _fsdp(model: Any, device: str) -> tuple[Any, Any]:
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy

    kinds = ModuleWrapPolicy({nn.Linear, nn.Embedding})
    sharded = FullyShardedDataParallel(
        model, auto_wrap_policy=kinds, device_id=torch.device(device), use_orig_params=True
    )

    def whole() -> dict[str, Any]:
        with FullyShardedDataParallel.summon_full_params(sharded):
            return {
                name.replace("_fsdp_wrapped_module.", ""): value.detach().clone()
                for name, value in sharded.named_parameters()
            }

    return sharded, whole


def _fully_shard(model: Any, device: str) -> tuple[Any, Any]:
    from torch.distributed.fsdp import fully_shard

    for part in model:
        fully_shard(part)
    fully_shard(model)
    return model, lambda: {name: value.full_tensor().detach() for name, value in model.state_dict().items()}


_WAYS = {
    "DistributedDataParallel": _ddp,
    "DistributedDataParallel and no_sync": _ddp,
    "FullyShardedDataParallel": _fsdp,
    "fully_shard": _fully_shard,
}

if __name__ == "__main__":
    main()
