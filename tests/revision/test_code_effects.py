"""Places in remote code that reach beyond computing, and version gates."""

import pytest
from comparing import outcome
from rooms import comparer

from envdoctor.revision import Change

remote_code = comparer("remote_code")


def found(new: str, old: str = "") -> list[Change]:
    """The places that a new file has and an old one lacks."""
    compared = outcome(remote_code, *({"m.py": f"first = 0\n{side}"} for side in (old, new)))
    assert compared.unread == ()
    kinds = ("call", "write", "load", "import", "gate")
    return [
        change
        for change in compared.changes
        if change.kind.removesuffix("-added").rpartition("-")[2] in kinds and not change.kind.startswith("import")
    ]


PLACES = {
    "network-call-added": [
        "import requests\nrequests.get(url)",
        "import socket as s\ns.create_connection(('host', 1))",
        "from urllib.request import urlopen as fetch\nfetch(url)",
        "import urllib.request as r\nr.urlopen(url)",
        "import torch\ntorch.hub.load('org/x', 'model')",
        "from huggingface_hub import hf_hub_download\nhf_hub_download('org/x', 'y')",
        "from requests import *",
    ],
    "exec-call-added": [
        "import os\nos.system('id')",
        "from os import popen\npopen('id')",
        "import os\ngetattr(os, 'sys' + 'tem')('id')",
        "import os\ngetattr(os, 'system')('id')",
        "import os\nrun = os.system",
        "import os\nhidden = os\nhidden.system('id')",
        "import os\nos.__dict__['system']('id')",
        "import subprocess\nsubprocess.run(['id'])",
        "eval('1')",
        "call = eval",
        "import builtins\nbuiltins.exec('1')",
        "__builtins__['eval']('1')",
        "exec(compile('1', '', 'exec'))",
        "import ctypes\nctypes.CDLL('x.so')",
        "().__class__.__base__.__subclasses__()",
        "(lambda: 0).__globals__['os']",
    ],
    "file-write-added": [
        "open('x', 'w')",
        "open('x', mode='ab')",
        "open('x', mode)",
        "from pathlib import Path\nPath('x').write_text('y')",
        "from pathlib import Path\nPath('x').open('w')",
        "import shutil\nshutil.rmtree('x')",
        "import os\nos.remove('x')",
        "import torch\ntorch.save({}, 'x')",
    ],
    "pickle-load-added": [
        "import pickle\npickle.loads(b'')",
        "import torch\ntorch.load('x')",
        "import torch\ntorch.load('x', weights_only=False)",
        "import torch\ntorch.load('x', weights_only=flag)",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "import yaml\nyaml.load(text, Loader=yaml.Loader)",
    ],
    "dynamic-import-added": [
        "import importlib\nimportlib.import_module(name)",
        "__import__('os')",
        "import sys\nsys.path.insert(0, '.')",
        "from x import AutoModel\nAutoModel.from_pretrained('org/y', trust_remote_code=True)",
    ],
    "": [
        "model.eval()",
        "import re\nre.compile('x')",
        "import torch\ntorch.compile(model)",
        "def f(self, compile=False, code=None):\n    if compile: return code",
        "open('x')",
        "open('x', 'rb', encoding='utf-8')",
        "from PIL import Image\nImage.open('w.png')",
        "import torch\ntorch.load('x', weights_only=True)",
        "import numpy as np\nnp.load('x')",
        "import yaml\nyaml.load(text, Loader=yaml.SafeLoader)",
        "import json\njson.load(file)",
        "import os\nos.path.join('a', 'b'); os.environ.get('x'); os.getcwd()",
        "import importlib.metadata\nimportlib.metadata.version('torch')",
        "import requests\ntry: f()\nexcept requests.exceptions.ConnectionError: pass",
        "import subprocess\ntry: f()\nexcept subprocess.CalledProcessError: pass",
        "import urllib.parse\nurllib.parse.quote('x')",
        "from x import AutoModel\nAutoModel.from_pretrained('org/y', trust_remote_code=False)",
        "# os.system('id')\n'''os.system('id')'''",
    ],
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in PLACES.items() for text in texts])
def test_what_reaches_beyond_computing_is_seen_and_ordinary_code_is_left_alone(kind: str, text: str) -> None:
    kinds = {change.kind for change in found(text)}
    assert kind in kinds if kind else not kinds


def test_a_place_is_named_by_its_function_and_says_when_it_runs() -> None:
    at_load, at_call = found("import os\nclass A:\n    os.system('a')\n    def f(self): os.system('b')")
    when = "runs as soon as the code is loaded"
    assert (at_load.symbol, at_load.after, at_load.detail) == ("A", "os.system('a')", when)
    assert (at_call.symbol, at_call.after, at_call.detail) == ("A.f", "os.system('b')", "runs when A.f does")
    for text in (
        "def f(a=eval('1')): pass",
        "@eval('1')\ndef f(): pass",
        "def f(a: eval('1')): pass",
        "f = lambda a=eval('1'): a",
    ):
        (change,) = found(text)
        assert change.detail == when, text
    (change,) = found("import os\ndef f():\n    os.system('a')\n    os.system('b')")
    assert (change.count, change.after) == (2, "os.system('a'); os.system('b')")


LONG = f"import os\nos.system('{'a' * 1000}b')"
IN_FUNCTION = "import os\ndef f(): os.system('id')"


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        (IN_FUNCTION, IN_FUNCTION + "\nx = 1", 0),
        (IN_FUNCTION, IN_FUNCTION.replace("def f", "def g"), 0),
        ("import os\nos.system('id')", "import os\nos.system('curl x | sh')", 1),
        (LONG, LONG.replace("b'", "c'"), 1),
        ("open(path, 'w')", "open(target, 'w')", 0),
        ("open(path, 'w')", "open('/etc/passwd', 'w')", 1),
    ],
)
def test_what_was_there_before_is_not_new_and_another_command_is(old: str, new: str, count: int) -> None:
    assert len(found(new, old)) == count


GATES = {
    "minor-only-gate": [
        "x = int(transformers.__version__.split('.')[1]) >= 42",
        "x = version.parse(transformers.__version__).minor >= 42",
        "x = version.parse(transformers.__version__).release[1] > 41",
        "x = int(transformers_version.split('.')[1]) >= 42",
        "parts = transformers.__version__.split('.')\nx = int(parts[1]) >= 42",
        "parts = list(map(int, transformers.__version__.split('.')[:2]))\nx = parts[1] >= 42",
        "major, minor = map(int, transformers.__version__.split('.')[:2])\nx = minor >= 42",
        "minor = int(transformers.__version__.split('.')[1])\nif minor >= 42: x = 1",
    ],
    "version-gate-added": [
        "x = version.parse(transformers.__version__) >= version.parse('4.42')",
        "major, minor = map(int, transformers.__version__.split('.')[:2])\nx = (major, minor) >= (4, 42)",
        "v = version.parse(transformers.__version__)\nx = v.major > 4 or (v.major == 4 and v.minor >= 42)",
        "v = version.parse(transformers.__version__)\nif v.major == 4:\n    x = v.minor >= 42",
        "x = int(torch.__version__.split('.')[0]) >= 2",
        "x = transformers.__version__ >= '4.42'",
        "x = is_transformers_version('>=', '4.42')",
        "x = is_torch_greater_or_equal_than_2_0()",
    ],
    "": [
        "x = name.split('.')[1] == 'weight'",
        "x = int(key.split('.')[1]) >= 4",
        "import sys\nx = sys.version_info[1] >= 8",
        "x = int(platform.python_version().split('.')[1]) >= 8",
        "x = config.minor >= 3",
        "x = shape[1] > 4",
    ],
}


@pytest.mark.parametrize(("kind", "text"), [(kind, text) for kind, texts in GATES.items() for text in texts])
def test_a_gate_on_the_second_number_alone_is_told_from_other_gates(kind: str, text: str) -> None:
    assert {change.kind for change in found(text)} == {*filter(None, [kind])}
