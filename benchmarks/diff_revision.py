"""What does ``diff-revision`` cost beside the Hub client's own calls? Times, requests and bytes, side by side.

    python benchmarks/diff_revision.py [--latency 0.1] [--runs 3]

A loopback Hub serves repositories whose tensor headers are true to real models (names, dtypes, shapes) and whose
weights take no disk; every request waits ``--latency`` seconds. Each case is compared twice: with
``envdoctor diff-revision``, which also reads every changed text file, and with two calls of huggingface_hub's
``get_safetensors_metadata``, which reads headers alone. Bytes are bodies that the server sent.
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


def shards(described: Model, salt: str, changed: Iterable[str]) -> dict[str, Blob]:
    """Each shard as a header and no bytes behind it; ``salt`` makes the changed ones other files."""
    files = {}
    for name, tensors in described.shards.items():
        metadata = {"format": "pt", "salt": salt} if name in set(changed) else {"format": "pt"}
        prefix, data = header(tensors, metadata)
        files[name] = virtual(prefix, len(prefix) + data)
    return files


def publish(hub: Hub, name: str, changed: int) -> tuple[str, str]:
    """Two commits of a model: its first ``changed`` shards differ, and a text file."""
    described = model(name)
    names = list(described.shards)[:changed]
    repo = hub.repo(f"bench/{name}-{changed}")
    config = json.dumps(described.about["config"])
    weight_map = {tensor: shard for shard, tensors in described.shards.items() for tensor in tensors}
    index = json.dumps({"metadata": {}, "weight_map": weight_map}).encode()
    old = repo.commit(
        {
            **shards(described, "old", ()),
            "config.json": config,
            "model.safetensors.index.json": Blob(index, len(index), lfs=False),
            "README.md": "old",
        }
    )
    new = repo.commit({**shards(described, "new", names), "README.md": "new"})
    return old, new


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
    cases = [("chatglm3-6b", 0), ("chatglm3-6b", 7), ("deepseek-v3", 68)]
    print(f"{options.latency * 1000:.0f} ms a request, median of {options.runs}")
    print(f"{'case':<40}{'command':<30}{'seconds':>9}{'requests':>10}{'bytes':>14}{'peak MiB':>10}")
    with Hub(latency=options.latency) as hub:
        environ = hub.environ("unused")
        for name, changed in cases:
            old, new = publish(hub, name, changed)
            repo = f"bench/{name}-{changed}"
            envdoctor = [sys.executable, "-m", "envdoctor", "diff-revision", repo, old, new]
            ours = [*envdoctor, "--no-config", "--no-environment", "--timeout", "120", "--exit-zero"]
            peer = [sys.executable, "-c", PEER, repo, old, new]
            title = f"{name}, {changed} of {len(model(name).shards)} shards changed"
            for command, argv in (("envdoctor diff-revision", ours), ("2 x get_safetensors_metadata", peer)):
                seconds, requests, received, peak = measure(argv, {**environ, **here()}, hub, options.runs)
                print(f"{title:<40}{command:<30}{seconds:>9.2f}{requests:>10}{received:>14,}{peak:>10}", flush=True)
    return 0


def here() -> dict[str, str]:
    """The checkout's envdoctor."""
    return {"PYTHONPATH": str(ROOT)}


if __name__ == "__main__":
    sys.exit(main())
