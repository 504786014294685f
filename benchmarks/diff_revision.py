"""What does ``diff-revision`` cost beside the Hub client's own calls? Times, requests and bytes, side by side.

    python benchmarks/diff_revision.py [--latency 0.1] [--runs 3]

A loopback Hub serves repositories whose tensor headers are true to real models (names, dtypes, shapes) and whose
weights take no disk; every request waits ``--latency`` seconds. Each case is compared twice: with
``envdoctor diff-revision``, which also reads every changed text file, and with two calls of huggingface_hub's
``get_safetensors_metadata``, which reads headers alone. Bytes are bodies that the server sent. The cases are: no shard,
some and all shards changed, every tensor of another dtype (what is compared is largest then), and 1,300 lines of code.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "hub"), str(ROOT / "tests" / "hub_formats")]

from header_true import Model, header, model  # noqa: E402
from loopback import Blob, Hub, virtual  # noqa: E402

PEER = """
import sys
from huggingface_hub import HfApi
api = HfApi()
for revision in sys.argv[2:]:
    found = api.get_safetensors_metadata(sys.argv[1], revision=revision)
    assert found.files_metadata
"""


class Case(NamedTuple):
    """A model, how many of its shards change, the dtype that all tensors get instead, and whether its code changes."""

    title: str
    name: str
    changed: int = 0
    dtype: str = ""
    code: bool = False


CASES = (
    Case("chatglm3-6b, no shard changed", "chatglm3-6b"),
    Case("chatglm3-6b, 1,300 lines of code changed", "chatglm3-6b", code=True),
    Case("chatglm3-6b, 7 of 7 shards changed", "chatglm3-6b", 7),
    Case("deepseek-v3, 68 of 163 shards changed", "deepseek-v3", 68),
    Case("deepseek-v3, all of it in BF16", "deepseek-v3", dtype="BF16"),
)


def shards(described: Model, salt: str, changed: Iterable[str]) -> dict[str, Blob]:
    """Each shard as a header and no bytes behind it; ``salt`` makes the changed ones other files."""
    files = {}
    for name, tensors in described.shards.items():
        metadata = {"format": "pt", "salt": salt} if name in set(changed) else {"format": "pt"}
        prefix, data = header(tensors, metadata)
        files[name] = virtual(prefix, len(prefix) + data)
    return files


def publish(hub: Hub, case: Case) -> tuple[str, str, str]:
    """The repository of a case, and its two commits; a text file changes in each."""
    described = model(case.name)
    repo = hub.repo(f"bench/{CASES.index(case)}")
    config = json.dumps(described.about["config"])
    weight_map = {tensor: shard for shard, tensors in described.shards.items() for tensor in tensors}
    index = json.dumps({"metadata": {}, "weight_map": weight_map}).encode()
    block = (ROOT / "fixtures" / "code" / "checkpointing" / "old" / "modeling_tiny.py").read_text()
    code = "\n".join(block.replace("Tiny", f"Tiny{number}") for number in range(15))
    old = repo.commit(
        {
            **shards(described, "old", ()),
            "config.json": config,
            "model.safetensors.index.json": Blob(index, len(index), lfs=False),
            "modeling.py": code,
            "README.md": "old",
        }
    )
    if case.dtype:
        retyped = {
            shard: {name: (case.dtype, shape) for name, (_, shape) in tensors.items()}
            for shard, tensors in described.shards.items()
        }
        described = described._replace(shards=retyped)
    new = shards(described, "new", list(described.shards)[: case.changed])
    texts = {"README.md": "new", **({"modeling.py": f"{code}\nx = 1\n"} if case.code else {})}
    return repo.name, old, repo.commit({**new, **texts})


def measure(command: list[str], environ: dict[str, str], hub: Hub, runs: int) -> tuple[float, int, int, int]:
    """Median seconds, requests and bytes of one run, peak RSS in MiB of the largest child so far."""
    seconds = []
    for _ in range(runs):
        hub.forget()
        with tempfile.TemporaryDirectory() as home:
            env = {**os.environ, **environ, "HF_HOME": home, "XDG_CACHE_HOME": home}
            started = time.perf_counter()
            done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=home, check=False)
            seconds.append(time.perf_counter() - started)
        if done.returncode not in (0, 1):
            raise SystemExit(f"{command}: exit code {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    log = hub.log
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024
    return statistics.median(seconds), len(log), sum(entry.sent for entry in log), peak


def main() -> int:
    """Measure every case and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--latency", type=float, default=0.1)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    print(f"{options.latency * 1000:.0f} ms a request, median of {options.runs}")
    print(f"{'case':<44}{'command':<30}{'seconds':>9}{'requests':>10}{'bytes':>14}{'peak MiB':>10}")
    with Hub(latency=options.latency) as hub:
        environ = hub.environ("unused")
        for case in CASES:
            repo, old, new = publish(hub, case)
            envdoctor = [sys.executable, "-m", "envdoctor", "diff-revision", repo, old, new]
            ours = [*envdoctor, "--no-config", "--no-environment", "--timeout", "120", "--exit-zero"]
            peer = [sys.executable, "-c", PEER, repo, old, new]
            for command, argv in (("envdoctor diff-revision", ours), ("2 x get_safetensors_metadata", peer)):
                seconds, requests, received, peak = measure(argv, {**environ, **here()}, hub, options.runs)
                print(
                    f"{case.title:<44}{command:<30}{seconds:>9.2f}{requests:>10}{received:>14,}{peak:>10}", flush=True
                )
    return 0


def here() -> dict[str, str]:
    """The checkout's envdoctor."""
    return {"PYTHONPATH": str(ROOT)}


if __name__ == "__main__":
    sys.exit(main())
