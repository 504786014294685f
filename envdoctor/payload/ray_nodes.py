"""Ask every node of a running Ray cluster for its facts: one task a node, in the Python of its workers.

envdoctor must be installed there. A node answers with the digest of its facts and at most 64 KiB of them; of equal ones
one is handed on, as :mod:`.ranks` does. The cluster is that of RAY_ADDRESS or the one running here; none is started.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from .ranks import MOST_DOCUMENTS, hand_over

#: What a node's Python runs; it prints one JSON object.
_CODE = "import sys; from envdoctor.app.others import print_own; print_own(sys.argv[1])"
_LONGEST = 70_000


def run(job: dict[str, Any], emit: Callable[[dict[str, Any]], None]) -> None:
    """Emit what :func:`.ranks.hand_over` does, and ``{"failed": [node, text]}``."""
    os.environ["RAY_TMPDIR"] = job["temporary"]  # where this machine's cluster is noted, not the child's own folder
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    code, longest, seconds, asked = _CODE, _LONGEST, job["seconds"], job["sources"]

    def own_facts() -> Any:
        import json
        import subprocess
        import sys

        command = [sys.executable, "-I", "-c", code, asked]
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        if done.returncode or len(done.stdout) > longest:
            last = done.stderr.strip().splitlines()[-1:] or ["exit code " + str(done.returncode)]
            return {"failed": last[0][:300]}
        return json.loads(done.stdout)

    ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
    task = ray.remote(num_cpus=0, max_retries=0)(own_facts)
    refs = {}
    for node in [node for node in ray.nodes() if node["Alive"]]:
        place = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        name = node["NodeManagerHostname"] + " " + node["NodeID"][:6]
        refs[task.options(scheduling_strategy=place).remote()] = name
    done, late = ray.wait(list(refs), num_returns=len(refs), timeout=seconds)
    came: list[list[Any]] = []
    documents: dict[str, str] = {}
    for ref in done:
        try:
            said = ray.get(ref)
        except Exception as error:
            said = {"failed": type(error).__name__ + ": " + str(error)[:300]}
        if "failed" in said:
            emit({"failed": [refs[ref], said["failed"]]})
            continue
        came.append([len(came), refs[ref], said["digest"]])
        if len(documents) < MOST_DOCUMENTS:
            documents[said["digest"]] = said["document"]
    hand_over(came, documents, [refs[ref] for ref in late], emit)
    ray.shutdown()
