"""Compare the environments of all nodes of a running Ray cluster: python ray_nodes.py FOLDER [OPTIONS OF COMPARE]

One task on each node writes its facts; envdoctor must be installed for the Python of the workers.
"""

import subprocess
import sys
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

ENVDOCTOR = [sys.executable, "-m", "envdoctor"]


@ray.remote(num_cpus=0)
def facts() -> bytes:
    return subprocess.check_output([*ENVDOCTOR, "facts", "--format", "json"])


ray.init(address="auto", log_to_driver=False)
nodes = {f"{node['NodeManagerHostname']}-{node['NodeID'][:6]}": node["NodeID"] for node in ray.nodes() if node["Alive"]}
files = {Path(sys.argv[1], f"{name}.json"): node for name, node in nodes.items()}
tasks = {file: facts.options(scheduling_strategy=On(node, soft=False)).remote() for file, node in files.items()}
for file, task in tasks.items():
    file.write_bytes(ray.get(task))
sys.exit(subprocess.call([*ENVDOCTOR, "compare", *map(str, files), *sys.argv[2:]]))
