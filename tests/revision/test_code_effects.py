"""Places in remote code that reach beyond computing, and version gates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from comparing import outcome
from rooms import comparer

from envdoctor.revision import Change

remote_code = comparer("remote_code")


@pytest.fixture
def found(snapshot: Callable[..., Any]) -> Callable[..., list[Change]]:
    """The places that a new file has and an old one lacks."""

    def run(new: str, old: str = "") -> list[Change]:
        sides = [snapshot({"m.py": f"first = 0\n{side}"}) for side in (old, new)]
        compared = outcome(remote_code, *sides)
        assert compared.unread == ()
        kinds = ("call", "write", "load", "import", "gate")
        return [
            change
            for change in compared.changes
            if change.kind.removesuffix("-added").rpartition("-")[2] in kinds and not change.kind.startswith("import")
        ]

    return run


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("import requests\nrequests.get(url)", "network-call-added"),
        ("import socket as s\ns.create_connection(('host', 1))", "network-call-added"),
        ("from urllib.request import urlopen as fetch\nfetch(url)", "network-call-added"),
        ("import urllib.request as r\nr.urlopen(url)", "network-call-added"),
        ("import torch\ntorch.hub.load('org/x', 'model')", "network-call-added"),
        ("from huggingface_hub import hf_hub_download\nhf_hub_download('org/x', 'y')", "network-call-added"),
        ("from requests import *", "network-call-added"),
        ("import os\nos.system('id')", "exec-call-added"),
        ("from os import popen\npopen('id')", "exec-call-added"),
        ("import os\ngetattr(os, 'sys' + 'tem')('id')", "exec-call-added"),
        ("import os\ngetattr(os, 'system')('id')", "exec-call-added"),
        ("import os\nrun = os.system", "exec-call-added"),
        ("import os\nhidden = os\nhidden.system('id')", "exec-call-added"),
        ("import os\nos.__dict__['system']('id')", "exec-call-added"),
        ("import subprocess\nsubprocess.run(['id'])", "exec-call-added"),
        ("eval('1')", "exec-call-added"),
        ("call = eval", "exec-call-added"),
        ("import builtins\nbuiltins.exec('1')", "exec-call-added"),
        ("__builtins__['eval']('1')", "exec-call-added"),
        ("exec(compile('1', '', 'exec'))", "exec-call-added"),
        ("import ctypes\nctypes.CDLL('x.so')", "exec-call-added"),
        ("().__class__.__base__.__subclasses__()", "exec-call-added"),
        ("(lambda: 0).__globals__['os']", "exec-call-added"),
        ("open('x', 'w')", "file-write-added"),
        ("open('x', mode='ab')", "file-write-added"),
        ("open('x', mode)", "file-write-added"),
        ("from pathlib import Path\nPath('x').write_text('y')", "file-write-added"),
        ("from pathlib import Path\nPath('x').open('w')", "file-write-added"),
        ("import shutil\nshutil.rmtree('x')", "file-write-added"),
        ("import os\nos.remove('x')", "file-write-added"),
        ("import torch\ntorch.save({}, 'x')", "file-write-added"),
        ("import pickle\npickle.loads(b'')", "pickle-load-added"),
        ("import torch\ntorch.load('x')", "pickle-load-added"),
        ("import torch\ntorch.load('x', weights_only=False)", "pickle-load-added"),
        ("import torch\ntorch.load('x', weights_only=flag)", "pickle-load-added"),
        ("import numpy as np\nnp.load('x', allow_pickle=True)", "pickle-load-added"),
        ("import yaml\nyaml.load(text, Loader=yaml.Loader)", "pickle-load-added"),
        ("import importlib\nimportlib.import_module(name)", "dynamic-import-added"),
        ("__import__('os')", "dynamic-import-added"),
        ("import sys\nsys.path.insert(0, '.')", "dynamic-import-added"),
        ("from x import AutoModel\nAutoModel.from_pretrained('org/y', trust_remote_code=True)", "dynamic-import-added"),
    ],
)
def test_what_reaches_beyond_computing_is_seen(found: Callable[..., list[Change]], text: str, kind: str) -> None:
    assert kind in {change.kind for change in found(text)}


@pytest.mark.parametrize(
    "text",
    [
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
)
def test_ordinary_code_is_left_alone(found: Callable[..., list[Change]], text: str) -> None:
    assert found(text) == []


def test_a_place_is_named_by_its_function_and_says_when_it_runs(found: Callable[..., list[Change]]) -> None:
    at_load, at_call = found("import os\nclass A:\n    os.system('a')\n    def f(self): os.system('b')")
    assert (at_load.symbol, at_load.after, at_load.detail) == (
        "A",
        "os.system('a')",
        "runs as soon as the code is loaded",
    )
    assert (at_call.symbol, at_call.after, at_call.detail) == ("A.f", "os.system('b')", "runs when A.f does")


def test_defaults_decorators_and_annotations_run_at_load(found: Callable[..., list[Change]]) -> None:
    for text in (
        "def f(a=eval('1')): pass",
        "@eval('1')\ndef f(): pass",
        "def f(a: eval('1')): pass",
        "f = lambda a=eval('1'): a",
    ):
        (change,) = found(text)
        assert change.detail == "runs as soon as the code is loaded", text


def test_what_was_there_before_is_not_new(found: Callable[..., list[Change]]) -> None:
    old = "import os\ndef f(): os.system('id')"
    assert found(old + "\nx = 1", old) == []
    assert found(old.replace("def f", "def g"), old) == []


def test_another_command_in_the_same_place_is_new(found: Callable[..., list[Change]]) -> None:
    (change,) = found("import os\nos.system('curl x | sh')", "import os\nos.system('id')")
    assert change.after == "os.system('curl x | sh')"


def test_a_long_command_that_changes_at_its_end_is_new(found: Callable[..., list[Change]]) -> None:
    old = f"import os\nos.system('{'a' * 1000}b')"
    assert [change.kind for change in found(old.replace("b'", "c'"), old)] == ["exec-call-added"]


def test_a_renamed_path_is_no_new_write(found: Callable[..., list[Change]]) -> None:
    assert found("open(target, 'w')", "open(path, 'w')") == []
    assert len(found("open('/etc/passwd', 'w')", "open(path, 'w')")) == 1


def test_several_places_of_a_kind_in_a_function_are_one_change(found: Callable[..., list[Change]]) -> None:
    (change,) = found("import os\ndef f():\n    os.system('a')\n    os.system('b')")
    assert (change.count, change.after) == (2, "os.system('a'); os.system('b')")


@pytest.mark.parametrize(
    "text",
    [
        "x = int(transformers.__version__.split('.')[1]) >= 42",
        "x = version.parse(transformers.__version__).minor >= 42",
        "x = version.parse(transformers.__version__).release[1] > 41",
        "x = int(transformers_version.split('.')[1]) >= 42",
        "parts = transformers.__version__.split('.')\nx = int(parts[1]) >= 42",
        "parts = list(map(int, transformers.__version__.split('.')[:2]))\nx = parts[1] >= 42",
        "major, minor = map(int, transformers.__version__.split('.')[:2])\nx = minor >= 42",
        "minor = int(transformers.__version__.split('.')[1])\nif minor >= 42: x = 1",
    ],
)
def test_a_gate_on_the_second_number_alone_is_seen(found: Callable[..., list[Change]], text: str) -> None:
    assert [change.kind for change in found(text)] == ["minor-only-gate"]


@pytest.mark.parametrize(
    "text",
    [
        "x = version.parse(transformers.__version__) >= version.parse('4.42')",
        "major, minor = map(int, transformers.__version__.split('.')[:2])\nx = (major, minor) >= (4, 42)",
        "v = version.parse(transformers.__version__)\nx = v.major > 4 or (v.major == 4 and v.minor >= 42)",
        "v = version.parse(transformers.__version__)\nif v.major == 4:\n    x = v.minor >= 42",
        "x = int(torch.__version__.split('.')[0]) >= 2",
        "x = transformers.__version__ >= '4.42'",
        "x = is_transformers_version('>=', '4.42')",
        "x = is_torch_greater_or_equal_than_2_0()",
    ],
)
def test_other_version_gates_are_told_apart(found: Callable[..., list[Change]], text: str) -> None:
    assert {change.kind for change in found(text)} == {"version-gate-added"}


@pytest.mark.parametrize(
    "text",
    [
        "x = name.split('.')[1] == 'weight'",
        "x = int(key.split('.')[1]) >= 4",
        "import sys\nx = sys.version_info[1] >= 8",
        "x = int(platform.python_version().split('.')[1]) >= 8",
        "x = config.minor >= 3",
        "x = shape[1] > 4",
    ],
)
def test_other_comparisons_are_no_gates(found: Callable[..., list[Change]], text: str) -> None:
    assert found(text) == []
