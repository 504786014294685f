"""A model of DeepSeek-V3's size: 163 shards, 92,000 tensors, 68 shards changed between two revisions."""

import json
import os
import struct
import subprocess
import sys

import pytest
from loopback import Blob, Hub, virtual
from small_models import access

from envdoctor.revision import open_hub

SHARDS, CHANGED = 163, 68
#: About the mean of the real headers (11,538,800 bytes in 163 shards).
TENSORS = 564


def shard(number: int, name: str = "weight") -> Blob:
    tensors, offset = {}, 0
    for expert in range(TENSORS):
        end = offset + 2048 * 7168
        tensors[f"model.layers.{number % 61}.mlp.experts.{expert}.gate_proj.{name}"] = {
            "dtype": "F8_E4M3",
            "shape": [2048, 7168],
            "data_offsets": [offset, end],
        }
        offset = end
    raw = json.dumps(tensors, separators=(",", ":")).encode()
    return virtual(struct.pack("<Q", len(raw)) + raw, 8 + len(raw) + offset)


@pytest.fixture(scope="module")
def large():
    with Hub() as hub:
        repo = hub.repo("deepseek-ai/large")
        name = "model-{:05d}-of-00163.safetensors"
        repo.commit({name.format(i): shard(i) for i in range(SHARDS)})
        repo.commit({name.format(i): shard(i, "weighs") for i in range(CHANGED)})
        yield hub


def test_bytes_and_requests(large):
    large.forget()
    way = access(large, timeout=60.0)
    repo = large.repos["deepseek-ai/large"]
    new = open_hub("deepseek-ai/large", None, way)
    old = open_hub("deepseek-ai/large", repo.commits[1].id, way)
    changed = [path for path in new.files if new.files[path].oid != old.files[path].oid]
    assert len(changed) == CHANGED
    for snapshot in (old, new):
        headers = snapshot.headers(changed)
        assert all(isinstance(header, bytes) and len(header) > 60_000 for header in headers.values())
    log = large.log
    whole = sum(len(commit.files[path].prefix) for commit in repo.commits for path in changed)
    assert sum(entry.sent for entry in log) <= min(12_000_000, 1.02 * whole + 200_000)
    # the lists, redirect and range of each changed shard, and the rests of the three samples
    assert len(log) == way.cost[0] <= 2 + 2 * 2 * CHANGED + 3
    assert large.bytes_of(f"-{CHANGED + 1:05d}-") == 0


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="Linux")
def test_memory(large):
    code = f"""
from envdoctor.revision import Access, Transport, open_hub
way = Access("", {{}}, transport=Transport(endpoint={large.endpoint!r}, token=False))
for revision in ("main", {large.repos["deepseek-ai/large"].commits[1].id!r}):
    snapshot = open_hub("deepseek-ai/large", revision, way)
    snapshot.headers(list(snapshot.files)[:{CHANGED}])
# the process' own peak: what getrusage says includes the parent's at the time of the fork
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert int(done.stdout) < 120 << 10
