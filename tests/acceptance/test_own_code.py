"""``--code``: what the user's own scripts and notebooks use, against installed releases, before anything runs."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from venv import EnvBuilder

import pytest
from dists import install

SCRIPT = """import numpy as np
from datasets import load_dataset, load_metric

def main():
    metric = load_metric("accuracy")
    labels = np.array([1, 2], dtype=np.float)

if __name__ == "__main__":
    main()
"""

DATASETS = {"datasets": "3.0.0"}


def notebook(*cells: str) -> str:
    return json.dumps({"cells": [{"cell_type": "code", "source": cell} for cell in cells], "nbformat": 4})


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], None]:
    """Write a file; an empty folder ``none`` is there, too."""
    (tmp_path / "none").mkdir()

    def write(name: str, content: str) -> None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)

    return write


@pytest.fixture
def check(run: Any, facts_file: Any) -> Callable[..., Any]:
    """``check`` with these words and packages of these versions: datasets 3.0.0, unless others are given."""

    def check(*words: str, packages: Mapping[str, str] = DATASETS, **options: Any) -> Any:
        given = facts_file({f"pkg.{package}": version for package, version in packages.items()})
        return run("check", "--facts", given, *words, **options)

    return check


@pytest.fixture
def judged(check: Any, write: Any) -> Callable[..., tuple[int, list[dict[str, Any]]]]:
    """The exit code and the findings about the code ``content`` with packages of these versions."""

    def judge(content: str, name: str = "train.py", **packages: str) -> tuple[int, list[dict[str, Any]]]:
        write(name, content)
        result = check("--code", name, "--format", "json", packages=packages)
        return result.code, [finding for finding in result.json["findings"] if finding["id"].startswith("use-")]

    return judge


@pytest.mark.parametrize("release", ["5.3.0", "5.7.0", "6.2.0"])
def test_what_a_package_serves_by_a_finder_is_not_missing(judged, release):
    """sentence-transformers serves its old modules by a finder from 5.4 on."""
    script = (
        "from sentence_transformers.losses import MatryoshkaLoss\nfrom sentence_transformers.models import Pooling\n"
    )
    assert judged(script, **{"sentence-transformers": release, "transformers": "4.51.3"}) == (0, [])


def test_names_that_went_are_named_with_their_lines_and_new_places(judged):
    code, findings = judged(SCRIPT, datasets="3.0.0", numpy="1.26.4")
    assert code == 1
    said = {finding["message"]: [place["line"] for place in finding["locations"]] for finding in findings}
    metric = next(message for message in said if "load_metric" in message)
    number = next(message for message in said if "numpy.float" in message)
    assert "datasets 3.0.0" in metric and "evaluate.load" in metric and said[metric] == [2]
    assert "numpy 1.26.4" in number and said[number] == [6]
    assert all(finding["severity"] == "error" and finding["gate"] for finding in findings)


def test_a_script_that_the_recipe_starts_is_judged_as_code(check, write):
    write("launch/run.sh", "torchrun --nproc_per_node 2 launch/train.py --learning_rate 1e-4\n")
    write("launch/train.py", "from transformers import Trainer\nTrainer(None, tokenizer=1).train()\n")
    write(
        "launch/again.py",
        "from transformers import Trainer, TrainingArguments\nTrainer(TrainingArguments(), tokenizer=1)\n",
    )
    typed = [("launch/run.sh",), ("--recipe", "launch/run.sh"), ("--recipe", "launch/again.py")]
    for words in typed:
        result = check(*words, "--format", "json", packages={"transformers": "5.23.0"})
        (finding,) = (one for one in result.json["findings"] if one["id"] == "use-keyword-renamed")
        assert result.code == 1 and finding["locations"][0]["path"].endswith(("train.py", "again.py"))
    write("launch/train.py", "print 1\n")  # a Python that nobody told may run it, and no other
    unread = check("launch/run.sh", packages={"transformers": "5.23.0"})
    assert unread.code == 3 and "launch/train.py: it is not Python" in " ".join(unread.out.split())
    write("launch/train.py", "#" * (3 << 20))  # nobody asked about it
    large = check("launch/run.sh", packages={"transformers": "5.23.0"})
    assert large.code == 0 and "launch/train.py: it is larger than 2 MiB" in " ".join(large.out.split())
    assert check("launch/run.sh", "--code", "launch/train.py", packages={"transformers": "5.23.0"}).code == 3
    elsewhere = check("launch/run.sh", "--code", "none", "--format", "json", packages={"transformers": "5.23.0"})
    assert "use-keyword-renamed" not in elsewhere.out


TRAIN, OLD = (f"python {name}.py --model_name_or_path a/b --bf16 True --output_dir o\n" for name in ("train", "old"))


@pytest.mark.parametrize(
    ("script", "name", "judged"),
    [
        (OLD + TRAIN, "run.sh", True),
        (OLD + TRAIN, "run.sh:2", False),
        ("python2 old.py\n" + TRAIN, "run.sh", False),
        ("srun /usr/bin/python2.7 old.py\n" + TRAIN, "run.sh", False),
        (f"{TRAIN}exit 0\n{OLD}", "run.sh", False),
        (f"{TRAIN}exit $? # done\n{OLD}", "run.sh", False),
        (f"{TRAIN}exit 0\n{OLD}", "run.sh:3", True),
        (f"usage() {{\nexit 1\n}}\n{OLD}{TRAIN}", "run.sh", True),
        (f"function usage {{\n  exit 1\n}}\n{OLD}{TRAIN}", "run.sh", True),
        (f'if [ -z "$1" ]; then\nexit 1\nfi\n{OLD}{TRAIN}', "run.sh", True),
        (f"cd / || exit 1\n{OLD}{TRAIN}", "run.sh", True),
        (f"cat > job.sh <<EOF\nexit 0\nEOF\n{OLD}{TRAIN}", "run.sh", True),
        (f"bash prepare.sh\n{TRAIN}", "run.sh", False),
    ],
)
def test_a_script_that_the_judged_run_does_not_start_is_not_judged(check, write, script, name, judged):
    write("train.py", "from transformers import Trainer\nTrainer(None).train()\n")
    write("old.py", "from transformers import Trainer\nprint 1\n")
    write("prepare.sh", f"echo ready\nexit 0\n{OLD}")
    write("run.sh", script)
    told = check("--recipe", name, packages={"transformers": "5.23.0"})
    assert ("old.py: it is not Python" in " ".join(told.out.split())) == judged
    assert told.code == (3 if judged else 0)


def test_where_a_started_script_describes_no_run_its_code_is_judged(check, write):
    write("run.sh", "python $(dirname $0)/own.py --lr 1e-4\n")
    write("own.py", "from transformers import AdamW\nAdamW([])\n")
    told = check("run.sh", packages={"transformers": "5.23.0"})
    assert told.code == 1 and "run.sh describes no run: only its code is judged" in told.out
    assert "transformers 5.23.0 has no transformers.AdamW" in told.out
    write("run.sh", "python own.py\npython gone.py\n")
    assert "run.sh:2 names gone.py, which is not there" in check("run.sh", packages={"transformers": "4.46.3"}).out
    write("own.py", "def (:\n")
    unread = check("run.sh", packages={"transformers": "5.23.0"})
    assert unread.code == 3 and "Not judged: own.py: it is not Python" in unread.out
    write("own.py", "from transformers import AutoModel\n")
    given = check("--recipe", "python own.py --lr 1", "--code", "own.py", packages={"transformers": "5.23.0"})
    assert (given.code, "only its code is judged, not what the run needs" in " ".join(given.out.split())) == (0, True)
    write("own.py", "from transformers import AdamW\nAdamW([])\n")
    write("other.py", "import transformers\n")
    beside = check("--recipe", "python own.py", "--code", "other.py", packages={"transformers": "5.23.0"})
    assert beside.code == 1 and "transformers 5.23.0 has no transformers.AdamW" in beside.out


@pytest.mark.parametrize(
    ("script", "place", "start", "trains"),
    [
        ("from pkg.main import run\nrun()\n", "pkg", "train.py", True),
        ("import pkg.main as own\nown.run()\n", "pkg", "run.sh", True),
        ("def main():\n    from pkg import main\n    main.run()\nmain()\n", "src/pkg", "python train.py --lr 1", True),
        ("try:\n    from pkg.main import run\nexcept ImportError:\n    raise\nrun()\n", "pkg", "train.py", True),
        ("from pkg import run\nrun()\n", "pkg", "run.sh", True),
        # Nothing is known to train: the code alone is judged.
        ("from pkg.main import run\nrun()\n", "pkg", "train.py", False),
        ("import pkg.main as own\nown.run()\n", "pkg", "run.sh", False),
        ("def main():\n    from pkg import main\n    main.run()\nmain()\n", "src/pkg", "run.sh", False),
        ("try:\n    from pkg.main import run\nexcept ImportError:\n    raise\nrun()\n", "pkg", "run.sh", False),
        ("from pkg import run\nrun()\n", "pkg", "python train.py --lr 1", False),
    ],
)
def test_modules_that_a_script_of_the_recipe_imports_are_judged_at_their_own_lines(
    check, write, script, place, start, trains
):
    write("train.py", script)
    write("run.sh", "torchrun --nproc_per_node 2 train.py --lr 1\n")
    write(f"{place}/__init__.py", "from .main import run\n" if "pkg import run" in script else "")
    run = "def run():\n    args = TrainingArguments(output_dir='x', evaluation_strategy='no')\n"
    run += "    Trainer(None, args).train()\n" * trains
    write(f"{place}/main.py", f"from transformers import AdamW, TrainingArguments, Trainer\n{run}")
    write(f"{place}/other.py", "from transformers import AutoModelWithLMHead\n")  # nothing imports it
    told = check("--recipe", start, packages={"transformers": "5.23.0"})
    assert told.code == 1 and "has no transformers.AdamW" in told.out and "AutoModelWithLMHead" not in told.out
    assert f"--> {place}/main.py:1" in told.out and f"--> {place}/main.py:3" in told.out
    assert "train.py:1" not in told.out


def test_beside_a_recipe_that_describes_no_run_the_rest_is_judged(check, write):
    write("own.py", "from transformers import AdamW\nAdamW([])\n")
    words = ["--recipe", "uv run train-sft --config sft.yaml"]
    told = check(*words, "--code", "own.py", packages={"transformers": "5.23.0"})
    assert told.code == 3 and "error: --recipe command: describes no run of a framework that is known" in told.out
    assert "transformers 5.23.0 has no transformers.AdamW" in told.out
    write("own.yaml", "lr: 1\n")
    lone = check("--recipe", "own.yaml", "--code", "own.py", packages={"transformers": "5.23.0"})
    assert lone.code == 3 and "say in its place what it does" in " ".join(lone.out.split())
    for more in (("--recipe", "own.yaml"), ()):
        refused = check("--recipe", "own.yaml", *more, packages={"transformers": "5.23.0"})
        assert refused.code == 2 and "or give the script that reads it: --code FILE" in refused.err
    write("run.sh", "trl sft --model_name_or_path a/b --learning_rate 1e-4\n")
    beside = check("--recipe", "run.sh", "--recipe", "own.yaml", packages={"transformers": "5.23.0"})
    assert beside.code == 0 and "note: --recipe own.yaml: describes no run" in beside.out
    absent = check("--recipe", "my recipe.yaml", "--code", "own.py", packages={"transformers": "5.23.0"})
    assert absent.code == 3 and "--recipe my recipe.yaml: there is no file of this name" in absent.out


GUARDED = (
    "try:\n    from datasets import load_metric\nexcept ImportError:\n    from evaluate import load as load_metric"
)


@pytest.mark.parametrize(("content", "datasets"), [(SCRIPT, "2.14.0"), (GUARDED, "3.0.0")])
def test_what_is_still_there_or_provided_for_is_not_told(judged, content, datasets):
    assert judged(content, datasets=datasets, numpy="1.23.5") == (0, [])


def test_a_function_that_nothing_calls_only_warns(judged):
    code, findings = judged("def f():\n    from datasets import load_metric\n", datasets="3.0.0")
    assert code == 0 and [finding["severity"] for finding in findings] == ["warning"]


def test_a_release_that_ends_one_error_alone_says_which_stays(judged):
    _, findings = judged("from trl import DPOTrainer, GRPOConfig\nDPOTrainer(None, beta=0.1)\n", trl="0.13.0")
    said = {fix["constraints"][0]: fix["predicted"] for one in findings for fix in one["fixes"] if fix["constraints"]}
    assert [*said] == ["trl==0.14.0"]  # a fix that goes the other way (0.12.2) is not offered beside it
    assert said["trl==0.14.0"].startswith("alone it is not enough: trl 0.14.0 does not take trl.DPOTrainer(beta=)")


def test_a_notebook_names_the_cell(judged):
    cells = ("!pip install datasets", "x = 1\nfrom datasets import load_metric")
    _, (finding,) = judged(notebook(*cells), "train.ipynb", datasets="3.0.0")
    assert finding["locations"] == [{"path": "train.ipynb", "line": 2, "cell": 2}]


def test_a_person_reads_where_and_what(check, write):
    write("train.py", SCRIPT)
    out = check("--code", "train.py", packages={"datasets": "3.0.0", "numpy": "1.23.5"}).out
    assert {"Code         train.py", "error[use-name-moved]", "  --> train.py:2"} <= set(out.splitlines())
    assert "datasets 3.0.0 has no datasets.load_metric; instead: evaluate.load" in out


def test_a_facts_file_carries_the_uses_to_another_machine(run, write, facts_file):
    write("train.py", SCRIPT)
    carried = run("facts", "--path", "none", "--code", "train.py", "--format", "json").json
    given = facts_file({**{key: carried["facts"][key] for key in ("use", "code.files")}, "pkg.datasets": "3.0.0"})
    found = run("check", "--facts", given, "--format", "json").found
    assert found["use-name-moved"]["locations"] == [{"path": "train.py", "line": 2}]


def test_for_others_the_facts_name_no_file(run, write):
    write("secret_project/train.py", SCRIPT)
    out = run("facts", "--path", "none", "--code", "secret_project/train.py", "--format", "json", "--public").out
    assert "secret_project" not in out and "load_metric" in out


def test_the_configuration_names_the_code_once_for_all(check, write, tmp_path):
    write("project/src/train.py", SCRIPT)
    write("project/pyproject.toml", '[tool.envdoctor]\ncode = ["src"]\n')
    result = check("--format", "json", cwd=tmp_path / "project")
    places = [place["path"] for finding in result.json["findings"] for place in finding["locations"]]
    assert places == [str(Path("src", "train.py"))]


def test_code_that_was_not_read_is_said_and_fails_the_run_when_it_was_named(check, write):
    write("src/good.py", "import datasets")
    write("src/bad.py", "print 'x'")
    folder = check("--code", "src")
    assert folder.code == 0 and "Not judged: src/bad.py: it is not Python" in folder.out
    assert check("--code", "src/bad.py").code == 3


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ('python -c "import x" bad.py', 0),
        ("python3.11 -u -c 'import x' bad.py", 0),
        ("srun -c 8 python bad.py", 3),
        ("python -m bad -c bad.py", 3),
    ],
)
def test_behind_code_on_the_command_line_no_file_is_the_script(check, write, command, code):
    write("train.py", "from transformers import Trainer\nTrainer(None).train()\n")
    write("bad.py", "from transformers import Trainer\nprint 1\n")
    write("run.sh", f"{command}\npython train.py --model_name_or_path a/b --output_dir o\n")
    told = check("--recipe", "run.sh", packages={"transformers": "5.23.0"})
    assert told.code == code and ("bad.py: it is not Python" in " ".join(told.out.split())) == (code == 3)


@pytest.mark.parametrize("path", ["gone.py", "notes.txt", "none"])
def test_a_path_without_code_is_a_wrong_use(check, write, path):
    write("notes.txt", "")
    result = check("--code", path)
    assert result.code == 2 and path in result.err and "Traceback" not in result.err


def test_a_folder_with_training_code_gets_one_hint(run, write):
    hint = "--code train.py checks what your own code uses"
    assert hint not in run("check", "--path", "none").out
    write("train.py", "import os\nfrom trl import SFTTrainer\n")
    assert run("check", "--path", "none").out.count(hint) == 1
    assert hint not in run("check", "--path", "none", "--code", "train.py").out
    write("chat.py", "import peft\n")  # it trains nothing
    assert run("check", "--path", "none").out.count(hint) == 1
    write("more.py", "import peft\nloss.backward()\n")
    assert "--code ." in run("check", "--path", "none").out
    write("run.yaml", "stage: sft\nfinetuning_type: lora\nmodel_name_or_path: x\ntemplate: y\n")
    assert "--code ." not in run("check", "--path", "none", "--recipe", "run.yaml").out


def test_installed_files_are_asked_where_no_release_is_known(run, write, tmp_path):
    init = "class Handle:\n    def __init__(self, length): ...\n"
    install(tmp_path / "site", "spade", "2.0", files={"spade/__init__.py": init, "spade/deep.py": "def dig(): ..."})
    uses = ("from spade.deep import dig", "Handle(length=1)", "Handle(width=2)", "import nowhere")
    write("train.py", "\n".join(("from spade import Handle, Blade", *uses)))
    result = run("check", "--path", "site", "--code", "train.py", "--format", "json", "--no-gpu")
    findings = {one["item"]["what"]: one for one in result.json["findings"] if one["id"].startswith("use-")}
    lines = {what: [place["line"] for place in finding["locations"]] for what, finding in findings.items()}
    assert lines == {"spade.Blade": [1], "spade.Handle(width=)": [4], "nowhere": [5]}
    assert {finding["severity"] for finding in findings.values()} == {"warning"}


def test_nothing_of_the_code_is_run(run, write, tmp_path):
    install(tmp_path / "site", "spade", "2.0", files={"spade/__init__.py": "open('ran', 'w')"})
    write("train.py", f"import spade\nopen({str(tmp_path / 'ran')!r}, 'w')\n")
    assert run("check", "--path", "site", "--code", ".").code in (0, 1)
    assert not (tmp_path / "ran").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="named pipes")
def test_hostile_code_is_named_and_costs_nothing_else(check, write, tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    write("deep.py", "x = " + "(" * 3000)
    write("null.py", "x = 1\0")
    write("odd.py", "# coding: rot13\nimport os")
    write("escape\x1b[31m.py", "from datasets import load_metric")
    write("names.py", "import datasets as d\n" + "".join(f"d.x{n}\n" for n in range(100_000)))
    result = check("--code", ".")
    assert result.code == 1 and "\x1b" not in result.out and "Traceback" not in result.err
    assert "escape\\x1b[31m.py:1" in result.out
    for name in ("deep.py", "null.py", "names.py"):
        assert f"Not judged: {name}: " in result.out


def test_where_there_is_no_torch_a_whole_set_is_what_comes_next(run, tmp_path, write):
    EnvBuilder(symlinks=os.name != "nt").create(tmp_path / "alone")
    write("train.py", "import torch\nfrom peft import LoraConfig\nfrom trl import SFTTrainer\nSFTTrainer(model)\n")
    said = run("check", "--python", str(tmp_path / "alone"), "--recipe", "train.py", "--code", "train.py").out
    assert "use-package-missing" in said and "\nPlan: " not in said
    python = f"--target-python 3.{sys.version_info[1]}"
    assert f"\nNext         envdoctor plan {python} --recipe train.py --code train.py\n" in said


@pytest.mark.parametrize(("datasets", "is_told"), [("4.0.0", True), ("3.6.0", False)])
def test_a_loading_script_is_asked_about_where_datasets_runs_none(check, write, datasets, is_told):
    write("train.py", "from datasets import load_dataset\nload_dataset('c4', trust_remote_code=True)\n")
    result = check("--code", "train.py", "--format", "json", packages={"datasets": datasets})
    assert ("datasets-4-runs-no-loading-script" in result.found) is is_told and result.code == 0


@pytest.mark.parametrize(
    ("python", "way", "code", "told"),
    [
        ("3.9", ("--recipe", "run.sh"), 1, "train.py has a syntax error in line 2: the run stops there"),
        ("3.9", ("--code", "train.py"), 1, "train.py has a syntax error in line 2: the run stops there"),
        ("3.99", ("--recipe", "run.sh"), 3, "Not judged: train.py: it is not Python that this interpreter can parse"),
        ("3.99", ("--code", "train.py"), 3, "Not judged: train.py: it is not Python that this interpreter can parse"),
    ],
)
def test_a_script_with_a_syntax_error_is_no_clean_report(run, write, facts_file, tmp_path, python, way, code, told):
    write("train.py", "epochs: num_epochs\ntoken = ''g\n")
    write("run.sh", "python train.py --num_epochs 3 --learning_rate 2e-4\n")
    facts = facts_file({"pkg.transformers": "4.57.3", "pkg.torch": "2.9.1+cu128", "python.minor": python})
    answer = run("check", "--facts", facts, *way, cwd=tmp_path)
    assert answer.code == code and told in answer.out
    assert "num_epochs is not known" not in answer.out
