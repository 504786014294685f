"""Requirements of installed packages that are not met, judged by the shipped rules."""

import re
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from dists import install

from envdoctor import check
from envdoctor.app import Sources, collect_facts
from envdoctor.facts import Records
from envdoctor.judge import Finding, Ignore, Policy, judge
from envdoctor.matrix import load_matrix

RULES = ("requirement-missing", "requirement-conflict", "requires-other-python")


@pytest.fixture
def packages(tmp_path: Path) -> Callable[..., str]:
    """A folder of packages: name-version → its further header lines."""

    def build(**dists: list[str]) -> str:
        for entry, lines in dists.items():
            name, version = entry.split("__")
            files = {f"{name}/__init__.py": ""}
            install(tmp_path / "packages", name, version.replace("_", "."), *lines, files=files)
        return str(tmp_path / "packages")

    return build


def judged(folder: str, policy: Policy | None = None, *assignments: str):
    sources = Sources(path=folder, gpu=False, assignments=assignments, environ={})
    report = check(sources, policy=policy)
    return report, [finding for finding in report.findings if finding.id in RULES]


def test_a_missing_package_is_one_finding_that_does_not_fail_the_run(packages):
    folder = packages(a__1_0=["Requires-Dist: onnxruntime>=1.17"], b__1_0=["Requires-Dist: onnxruntime"])
    report, (finding,) = judged(folder)
    assert (finding.id, finding.severity, finding.gate) == ("requirement-missing", "warning", False)
    assert finding.message.en == "onnxruntime is not installed, and is required by a (>=1.17), b"
    assert report.exit_code == 0
    assert judged(folder, Policy(fail_on="warning"))[0].exit_code == 1


def test_a_missing_torch_is_one_finding_whoever_asks(packages):
    folder = packages(
        accelerate__1_15_0=["Requires-Dist: torch>=2.0.0"],
        peft__0_21_2=["Requires-Dist: torch>=1.13.0", "Requires-Dist: accelerate>=0.21.0"],
        timm__1_0_31=["Requires-Dist: torch"],
    )
    report, told = judged(folder)
    assert told == []
    assert [finding.id for finding in report.findings if "torch" in finding.message.en] == ["torch-not-installed"]


def test_a_requirement_without_which_an_import_stops_is_an_error_with_its_command(packages):
    folder = packages(
        transformers__5_23_0=["Requires-Dist: regex>=2025.10.22", "Requires-Dist: tqdm>=4.60", "Requires-Dist: typer"],
        datasets__5_2_0=["Requires-Dist: tqdm<5"],
        regex__2024_11_6=[],
    )
    report, _ = judged(folder)
    told = {finding.item["package"]: finding for finding in report.shown() if "package" in finding.item}
    assert {name: (finding.id, finding.severity) for name, finding in told.items()} == {
        "regex": ("requirement-conflict-stops-import", "error"),
        "tqdm": ("requirement-missing-stops-import", "error"),
        "typer": ("requirement-missing", "warning"),
    }
    needs = "transformers 5.23.0 cannot be imported: it needs regex>=2025.10.22"
    assert told["regex"].message.en == f"regex 2024.11.6 is installed, and {needs}"
    (command,) = told["tqdm"].fixes[0].commands
    start = f"python -m pip install --target {folder} --upgrade tqdm=="
    assert re.fullmatch(re.escape(start) + r"4\.\d+\.\d+", command)
    assert report.plan is not None
    assert set(report.plan.constraints) == {"regex==2025.10.22", command.rpartition(" ")[2], "typer"}


def test_what_no_version_can_satisfy_gets_no_command_and_a_version_that_is_none_does_not_stop_the_run(packages):
    folder = packages(a__1_0=["Requires-Dist: c<2"], b__1_0=["Requires-Dist: c>=2"], c__1_5=[])
    (finding,) = judged(folder)[1]
    assert finding.fixes[0].withheld == "no release that satisfies it is known"
    judged(packages(transformers__x=["Requires-Dist: regex>=2025"], regex__y=[]))


def test_one_conflict_can_be_accepted_and_the_other_stays(packages):
    asked = ["Requires-Dist: protobuf<7", "Requires-Dist: click>=99"]
    folder = packages(a__1_0=asked, protobuf__7_35_1=[], click__8_5_1=[])
    accepted = Ignore("requirement-conflict", "works here", where={"conflict.package": "protobuf"})
    _, told = judged(folder, Policy(ignores=(accepted,)))
    assert {finding.item["package"]: finding.ignored for finding in told} == {"click": None, "protobuf": "works here"}
    said = {finding.message.en for finding in told}
    assert "protobuf 7.35.1 is installed, and another version is required by a (<7)" in said


def test_the_fingerprint_of_a_conflict_is_that_of_its_package(packages):
    folder = packages(a__1_0=["Requires-Dist: c<2"], c__2_0=[])
    before = judged(folder)[1][0].fingerprint
    packages(b__1_0=["Requires-Dist: c<1.5"])
    (after,) = judged(folder)[1]
    assert "b (<1.5)" in after.message.en
    assert after.fingerprint == before


def test_a_release_for_another_python_names_both(tmp_path):
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    (site,) = (tmp_path / "env").glob("lib/python3*/site-packages")
    install(site, "numpy", "9.0", "Requires-Python: >=3.99")
    sources = Sources(python=str(tmp_path / "env"), gpu=False, environ={})
    (finding,) = [one for one in check(sources).findings if one.id in RULES]
    assert finding.message.en.startswith("numpy 9.0 is for Python >=3.99, and this is Python 3.")


def test_a_given_version_leaves_open_what_depends_on_it(packages):
    asked = ["Requires-Dist: b<2", "Requires-Dist: c<2"]
    folder = packages(a__1_0=asked, b__2_0=["Requires-Dist: d"], c__2_0=[], e__1=["Requires-Dist: d"])
    sources = Sources(path=folder, gpu=False, assignments=["pkg.b=1.5"], environ={})
    records = collect_facts(sources, load_matrix()).facts.value("conflict")
    assert isinstance(records, Records)
    assert [item["package"] for item in records] == ["c", "d"]
    assert "pkg.b was changed" in str(records.incomplete)


def test_giving_what_is_there_leaves_nothing_open(packages):
    """A machine that is described with the same values as it has changes no answer."""
    folder = packages(a__1_0=["Requires-Dist: b<2"], b__2_0=[])
    report, told = judged(folder, None, "pkg.b=2.0")
    assert [finding.item["package"] for finding in told] == ["b"]
    records = report.facts.value("conflict")
    assert isinstance(records, Records) and records.incomplete is None


def test_what_no_metadata_asks_for_and_an_import_needs_is_told_too(packages):
    """pyarrow asks for no numpy, and refuses to be imported with one before 2.0."""
    (finding,) = judged_all(packages(pyarrow__26_0_1=[], numpy__1_26_4=[]))
    assert finding.id == "requirement-conflict-stops-import"
    assert finding.message.en.endswith("is installed, and pyarrow 26.0.1 cannot be imported: it needs numpy>=2.0.0")
    assert [fix.constraints for fix in finding.fixes] == [("numpy==2.0.0",), ("pyarrow==25.0.1",)]


@pytest.mark.parametrize(
    ("asker", "needed", "errors"),
    [
        ("datasets__4_7_0", "pyarrow__18_1_0", 1),
        ("datasets__4_7_0", "pyarrow__19_0_0", 0),
        ("datasets__4_8_0", "fsspec__2022_1_0", 1),
        ("datasets__4_8_0", "fsspec__2022_2_0", 0),
        ("huggingface_hub__0_22_0", "fsspec__2022_2_0", 1),
        ("huggingface_hub__0_22_0", "fsspec__2022_3_0", 0),
    ],
)
def test_a_release_without_the_names_that_are_imported_of_it_is_an_error(packages, asker, needed, errors):
    told = [one for one in judged_all(packages(**{asker: [], needed: []})) if one.severity == "error"]
    assert [one.id for one in told] == ["requirement-conflict-stops-import"] * errors


@pytest.mark.parametrize(
    ("datasets", "lacks"), [("4_1_1", ["requests"]), ("4_2_0", ["httpx", "requests"]), ("5_1_0", [])]
)
def test_what_a_release_imports_is_an_error_when_it_is_missing(packages, datasets, lacks):
    told = judged_all(packages(**{f"datasets__{datasets}": ["Requires-Dist: requests", "Requires-Dist: httpx<1"]}))
    assert sorted(one.item["package"] for one in told if one.severity == "error") == lacks


def test_a_fix_does_not_break_what_no_metadata_asks_for(packages):
    """numpy before 2.0 would suit an old pandas, and no longer pyarrow: pandas is raised."""
    folder = packages(pandas__2_1_0=[], pyarrow__26_0_1=[], numpy__2_4_6=[])
    (finding,) = (one for one in judged_all(folder) if one.item.get("package") == "pandas")
    lower = next(fix for fix in finding.fixes if fix.constraints == ("numpy==1.26.4",))
    assert lower.withheld is not None and "pyarrow 26.0.1 cannot be imported: it needs numpy>=2.0.0" in lower.withheld
    higher = next(fix for fix in finding.fixes if fix.withheld is None and fix.commands)
    assert higher.constraints == ("pandas==2.2.2",)


NUMPY_1 = {"pandas__2_1_0": [], "numpy__2_0_0": []}


def test_a_plan_meets_requirements_of_the_stack_on_the_way(packages):
    """Whether datasets fails for want of it was not tried; whoever mends the error need not find out."""
    folder = packages(**NUMPY_1, datasets__4_8_0=["Requires-Dist: some-client<1"])
    report = check(Sources(path=folder, gpu=False, environ={}))
    assert report.plan is not None and report.plan.constraints == ("numpy==1.26.4", "some-client<1")
    clears = {finding.id for finding in report.findings if finding.fingerprint in report.plan.clears}
    assert clears == {"training-package-compiled-for-numpy-1-on-numpy-2", "requirement-missing"}


@pytest.mark.parametrize(
    ("asker", "requirement", "more"),
    [
        ("unrelated", "some-client<1", ()),
        ("datasets", "numpy>=2.5", ()),
        ("datasets", "torch==2.5.1", ("datasets==4.1.0",)),
    ],
    ids=["of another package", "that would bring an error", "of torch: who asks is moved"],
)
def test_a_plan_meets_no_other_requirements(packages, asker, requirement, more):
    folder = packages(**NUMPY_1, torch__2_13_0=[], **{f"{asker}__4_0_0": [f"Requires-Dist: {requirement}"]})
    report = check(Sources(path=folder, gpu=False, environ={}))
    assert report.plan is not None and report.plan.constraints == ("numpy==1.26.4", *more)


def judged_all(folder: str):
    return check(Sources(path=folder, gpu=False, environ={})).shown()


def found_in(sources: Sources) -> tuple[Finding, ...]:
    """What a list and the code beside it have, without the fixes and the plan that most of a check's time goes into."""
    matrix = load_matrix()
    facts = collect_facts(sources, matrix, links=True).facts
    return judge(facts, matrix.of_scopes("environment"), Policy()).findings


def test_of_a_list_nothing_is_said_to_be_installed(tmp_path):
    (tmp_path / "requirements.txt").write_text("transformers==4.57.0\ntokenizers==0.20.0\n")
    target = {"python": "3.11", "platform": "linux-x86_64"}
    sources = Sources(lock="requirements.txt[whole]", cwd=tmp_path, target=target, gpu=False, environ={})
    told = [finding.message for finding in check(sources).findings if finding.id.startswith("requirement-")]
    assert told[0].en == (
        "tokenizers 0.20.0 would be installed, and transformers 4.57.0 cannot be imported: "
        "it needs tokenizers<=0.23.0,>=0.22.0"
    )
    assert told[0].zh is not None and told[0].zh.startswith("将安装 tokenizers 0.20.0，而 transformers 4.57.0 要求")
    assert not any("is installed" in one.en or "安装的是" in (one.zh or "") for one in told)


def test_what_fails_with_every_release_that_an_image_may_have_is_told(tmp_path):
    image = "FROM pytorch/pytorch:2.7.0-cuda12.8-cudnn9-devel\n"
    (tmp_path / "Dockerfile").write_text(f"{image}RUN pip install datasets==2.16.1 scikit-learn==1.3.2\n")
    target = {"python": "3.11", "platform": "linux-x86_64"}
    sources = Sources(lock="Dockerfile", cwd=tmp_path, target=target, gpu=False, environ={})
    (finding,) = check(sources).shown()
    told = "numpy >=1.26.4,<2.0 would be installed, and pyarrow 26.0.1 cannot be imported: it needs numpy>=2.0.0"
    assert finding.message.en == told
    assert ("pyarrow==25.0.1",) in [fix.constraints for fix in finding.fixes if fix.withheld is None]


def test_a_listed_package_whose_requirements_nobody_knows_counts_for_require_known_alone(tmp_path):
    (tmp_path / "requirements.txt").write_text("torch==2.7.0\nllamagym-of-nobody==0.1.1\n")
    sources = Sources(lock="requirements.txt", cwd=str(tmp_path), assignments=("python.minor=3.11",), environ={})
    assert check(sources).exit_code == 0
    report = check(sources, require=["known"])
    assert report.exit_code == 3
    assert "llamagym-of-nobody 0.1.1, so" in report.notices[-1].text


_HERE = ("python.minor=3.11", "os.platform=linux")
_TRL = "transformers==5.17.0\ntrl==0.19.1\n"
_LIGER = "transformers==4.57.1\nliger-kernel==0.3.1\n"
_GPTQ = "transformers==5.17.0\nauto-gptq==0.7.1\n"
_TRY = "try:\n    import auto_gptq\nexcept ImportError:\n    auto_gptq = None\n"
_PART, _PACKAGE = "import-of-a-part-fails", "import-of-an-unneeded-package-fails"
_ERROR = "import-takes-what-is-not-there"


@pytest.mark.parametrize(
    ("lines", "code", "stage", "found"),
    [
        (_TRL, "", "", {_PART}),
        (_TRL, "", "sft", {_PART}),
        (_TRL, "", "dpo", {_ERROR}),
        (_TRL, "from trl import SFTTrainer", "", {_PART}),
        (_TRL, "--code\nfrom trl import SFTTrainer", "", set()),
        (_TRL, "--code\nfrom trl import SFTTrainer, DPOTrainer", "", {_ERROR}),
        (_TRL, "--code\nimport transformers", "", {_PART}),
        (_TRL, "import trl\nprint(trl.DPOTrainer)", "", {_ERROR}),
        (_TRL, "from trl.trainer.dpo_trainer import DPOTrainer", "", {_ERROR}),
        (_TRL, "try:\n    from trl import DPOTrainer\nexcept ImportError:\n    pass", "", {_PART}),
        (_TRL, "(" * 5000 + "trl", "", {_PART}),
        ("transformers==4.38.2\npeft==0.21.2\n", "import transformers", "", {_ERROR}),  # the stack takes peft itself
        ("transformers==4.38.2\npeft==0.21.2\n", "--code\nfrom transformers import AutoModel", "", {_PACKAGE}),
        ("transformers==4.38.2\npeft==0.21.2\n", "--code\nfrom transformers import Seq2SeqTrainer", "", {_ERROR}),
        ("transformers==4.38.2\npeft==0.21.2\n", "--code\nfrom peft import LoraConfig", "", {_ERROR}),
        (_LIGER, "--code\nfrom liger_kernel.ops.rope import LigerRopeFunction", "", {_PART}),  # may take others
        (_LIGER, "--code\nfrom liger_kernel.transformers.rope import liger_rotary_pos_emb", "", {_ERROR}),
        (_LIGER, "--code\nfrom liger_kernel import transformers", "", {_ERROR}),
        (_GPTQ, "", "", {_PACKAGE}),
        (_GPTQ, "import transformers", "", {_PACKAGE}),
        (_GPTQ, f"import transformers\n{_TRY}", "", {_PACKAGE}),
        (_GPTQ, "from auto_gptq import AutoGPTQForCausalLM", "", {_ERROR}),
    ],
)
def test_what_the_code_of_a_list_does_without_is_a_warning(tmp_path, lines, code, stage, found):
    (tmp_path / "requirements.txt").write_text(lines)
    if code:
        (tmp_path / "scripts").mkdir()
        (tmp_path / "scripts" / "train.py").write_text(code.removeprefix("--code"))
    given = (*_HERE, *[f"recipe.stage={stage}"] * bool(stage))
    judged = ("scripts",) if code.startswith("--code") else ()
    told = found_in(Sources(lock="requirements.txt", cwd=tmp_path, code=judged, assignments=given, environ={}))
    assert {one.id for one in told if one.id in (_PART, _PACKAGE, _ERROR)} == found
    assert any(one.gate for one in told) == (_ERROR in found)


_TRAINER, _DIFFUSERS = "accelerate-too-new-for-transformers-trainer", "diffusers-before-0-37-fails-with-torchao-0-16"
_OLD = "transformers==4.38.2\naccelerate==1.13.0\n"


@pytest.mark.parametrize(
    ("lines", "code", "rule", "told"),
    [
        (_OLD, "from transformers import AutoModel", _TRAINER, False),
        (_OLD, "from transformers import AutoModel, Trainer", _TRAINER, True),
        (_OLD, "", _TRAINER, True),
        (f"{_OLD}trl==0.8.6\n", "from trl import SFTTrainer", _TRAINER, True),
        ("unsloth==2026.2.1\n", "import unsloth", _DIFFUSERS, False),
        ("unsloth==2026.2.1\n", "", _DIFFUSERS, False),
        ("unsloth==2026.2.1\n", "import diffusers", _DIFFUSERS, True),
        ("unsloth==2026.2.1\ndiffusers\n", "", _DIFFUSERS, True),
    ],
)
def test_an_import_that_nothing_takes_does_not_fail(tmp_path, lines, code, rule, told):
    (tmp_path / "list.txt").write_text(lines)
    (tmp_path / "train.py").write_text(code)
    judged = ("train.py",) if code else ()
    sources = Sources(lock="list.txt", as_of="2026-03-02", cwd=tmp_path, code=judged, assignments=_HERE, environ={})
    assert (rule in {one.id for one in found_in(sources)}) == told


@pytest.mark.parametrize(
    ("lines", "base", "method", "rule"),
    [
        (
            "transformers==4.51.3\n",
            "transformers",
            "Trainer.compute_loss(self, model, inputs, return_outputs=False)",
            "use-override-outdated",
        ),
        (
            *("transformers==4.45.2\ntrl==0.9.6\n", "trl"),
            *("DPOTrainer.compute_reference_log_probs(self, model, batch)", "use-override-outdated-sometimes"),
        ),
    ],
)
def test_a_method_that_not_every_run_calls_is_a_warning(tmp_path, lines, base, method, rule):
    above, _, line = method.partition(".")
    (tmp_path / "list.txt").write_text(lines)
    (tmp_path / "train.py").write_text(
        f"from {base} import {above}\nclass Own({above}):\n    def {line}:\n        pass\nOwn()\n"
    )
    sources = Sources(lock="list.txt", cwd=tmp_path, code=("train.py",), assignments=_HERE, environ={})
    assert [one.id for one in found_in(sources) if "override" in one.id] == [rule]


@pytest.mark.parametrize(
    ("version", "call", "told"),
    [
        ("4.57.6", "AutoConfig", None),
        ("4.57.6", "AutoTokenizer", None),
        ("4.57.6", "AutoModelForCausalLM", "use-keyword-renamed"),
        ("4.29.2", "AutoModelForCausalLM", "use-keyword-refused"),  # attn_implementation came with 4.36
    ],
)
def test_models_alone_refuse_a_keyword_and_what_replaces_it_is_there(tmp_path, version, call, told):
    (tmp_path / "list.txt").write_text(f"transformers=={version}\n")
    (tmp_path / "train.py").write_text(
        f"from transformers import {call}\n{call}.from_pretrained('x/y', use_flash_attention_2=True)\n"
    )
    sources = Sources(lock="list.txt", cwd=tmp_path, code=("train.py",), assignments=_HERE, environ={})
    assert [one.id for one in found_in(sources) if "keyword" in one.id] == [told] * bool(told)


def test_one_cause_is_one_finding_whose_fix_holds_for_all_that_is_imported(tmp_path):
    """peft 0.15.2 takes a name that transformers 4.37.2 lacks and one that accelerate 0.27.2 lacks; 0.13.2 takes
    neither, 0.14.0 one."""
    (tmp_path / "list.txt").write_text(
        "torch==2.1.2\ntransformers==4.37.2\npeft==0.15.2\naccelerate==0.27.2\nnumpy<2\n"
    )
    (tmp_path / "train.py").write_text("import peft\n")
    sources = Sources(lock="list.txt", cwd=tmp_path, assignments=_HERE, environ={})
    accepted = Policy(ignores=(Ignore("peft-too-new-for-transformers", "patched"),))
    for policy in (None, accepted):
        report = check(sources, policy=policy)
        errors = [one for one in report.findings if one.severity == "error" and one.superseded_by is None]
        assert [one.id for one in errors] == ["peft-too-new-for-transformers"]
        offers = {pin for one in report.findings for fix in one.fixes if not fix.withheld for pin in fix.constraints}
        assert {pin for pin in offers if pin.startswith("peft")} == {"peft==0.13.2"}
        assert report.exit_code == (policy is None)


def test_what_an_extra_adds_bounds_what_is_taken(tmp_path):
    """transformers[torch] asks for torch>=2 from 4.48 on: an install takes an older one, or is refused."""
    given = Sources(lock="list.txt", cwd=tmp_path, assignments=_HERE, environ={})
    (tmp_path / "list.txt").write_text("transformers[torch]>=4.28.1,<5\ntorch>=1.13.1,<2\n")
    assert check(given).facts.value("pkg.transformers") == "4.47.1"
    (tmp_path / "list.txt").write_text("transformers[torch]>=4.48\ntorch==1.13.1\n")
    assert "list-contradicts-itself" in {one.id for one in check(given).findings}


def test_a_list_is_taken_beside_the_releases_that_are_given(tmp_path):
    (tmp_path / "list.txt").write_text("torch==2.6.0\npeft==0.13.2\n")
    given = (*_HERE, "os.arch=x86_64", "pkg.torch=2.1.2+cu118")
    facts = check(Sources(lock="list.txt", cwd=tmp_path, assignments=given, environ={})).facts
    assert [facts.value(f"pkg.{name}") for name in ("torch", "triton")] == ["2.1.2+cu118", "2.1.0"]


def test_what_a_step_finds_installed_stays_where_pip_leaves_it(tmp_path):
    """optimum asks for transformers with a bound and for datasets with none: pip 26.3 looks for another datasets."""
    steps = "FROM python:3.11\nRUN pip install transformers==4.36.0\nRUN pip install optimum==1.14.0\n"
    (tmp_path / "Dockerfile").write_text(steps)
    facts = check(Sources(lock="Dockerfile", cwd=tmp_path, assignments=_HERE, environ={})).facts
    found = [facts.value(f"pkg.{name}") for name in ("transformers", "huggingface-hub", "datasets")]
    assert found == ["4.36.0", "0.36.2", "5.0.1"]


_ARGUMENTS = "from transformers import TrainingArguments\nTrainingArguments('out', learning_rate=1)\n"


@pytest.mark.parametrize(
    ("lines", "code", "needed"),
    [
        ("transformers\ntorch\n", _ARGUMENTS, ["accelerate-needed-and-not-installed"]),
        ("transformers\ntorch\nsome-package-of-nobody\n", _ARGUMENTS, ["accelerate-needed-and-not-in-the-list"]),
        ("transformers\ntorch\n", "from transformers import pipeline\n", []),
        ("transformers[torch]\n", _ARGUMENTS, []),
        ("transformers\npeft\n", _ARGUMENTS, []),
        ("transformers\naccelerate @ git+https://example.org/accelerate\n", _ARGUMENTS, []),
        ("transformers\n-r gone.txt\n", _ARGUMENTS, []),
    ],
)
def test_what_the_code_beside_a_list_needs_and_no_line_brings(tmp_path, lines, code, needed):
    (tmp_path / "requirements.txt").write_text(lines)
    (tmp_path / "train.py").write_text(code)
    told = found_in(Sources(lock="requirements.txt", cwd=tmp_path, assignments=_HERE, environ={}))
    assert [one.id for one in told if "accelerate" in one.id and not one.superseded_by] == needed


_QLORA = """import datasets
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained(
    "Qwen/Qwen2.5-7B",
    attn_implementation="flash_attention_2",
    quantization_config=BitsAndBytesConfig(load_in_4bit=True),
)
model = get_peft_model(model, LoraConfig())
Trainer(model, args=TrainingArguments("out", deepspeed="ds.json", learning_rate=1)).train()
"""
_ALL = {"flash-attn", "bitsandbytes", "deepspeed", "peft", "datasets"}
_STACK = "torch==2.6.0\ntransformers==4.51.3\naccelerate==1.6.0\n"


@pytest.mark.parametrize(
    ("lines", "beside", "told"),
    [
        (_STACK, {}, _ALL),
        (f"{_STACK}trl\n", {}, _ALL - {"datasets"}),
        (f"{_STACK}deepspeed==0.16.5\npeft==0.15.2\n", {}, {"flash-attn", "bitsandbytes", "datasets"}),
        (_STACK, {"README.md": "pip install flash-attn --no-build-isolation"}, _ALL - {"flash-attn"}),
        (_STACK, {"README.md": "pip install unsloth"}, {"flash-attn", "deepspeed"}),
        (_STACK, {"requirements-gpu.txt": "flash_attn==2.7.4\nbitsandbytes\n"}, {"deepspeed", "peft", "datasets"}),
        (f"{_STACK}# deepspeed\n", {}, _ALL - {"deepspeed"}),
        (f"{_STACK}some-package-of-nobody\n", {}, _ALL - {"datasets"}),
        (f"{_STACK}some-package-of-nobody\n", {"README.md": "pip install unsloth"}, {"flash-attn", "deepspeed"}),
        (f"--extra-index-url https://pypi.example.org/simple\n{_STACK}some-package-of-nobody\n", {}, set()),
        (f"--index-url https://pypi.example.org/simple\n{_STACK}", {}, _ALL),
        (f"{_STACK}some-package @ git+https://example.org/some-package\n", {}, set()),
        (f"{_STACK}-e .\n", {}, set()),
        (_STACK, {"notes.md": "flash_attention_2 and no flash-attn: see deepspeed"}, _ALL),
        ("torch==2.6.0\n", {}, set()),
        ("unsloth\ntorch==2.6.0\n", {}, {"flash-attn", "deepspeed"}),
    ],
)
def test_what_a_run_needs_and_a_list_does_not_bring_is_told(tmp_path, lines, beside, told):
    files = {"requirements.txt": lines, "train.py": _QLORA, "ds.json": '{"zero_optimization": {"stage": 2}}', **beside}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    sources = Sources(lock="requirements.txt", cwd=tmp_path, assignments=_HERE, environ={}, recipe=("train.py",))
    findings = found_in(sources._replace(code=("train.py",)))
    names = "flash-attn|bitsandbytes|deepspeed|peft|datasets"
    texts = (str(one.message) for one in findings if re.search("not-in|-needed-|use-package", one.id))
    assert {found[0] for text in texts if (found := re.search(names, text))} == told
    assert all((one.severity == "warning") == ("not-in-the-list" in one.id) for one in findings)
    assert "nobody" not in lines or not any(one.gate for one in findings)


def test_a_pin_that_does_not_exist_is_not_judged_as_if_it_were_there(tmp_path):
    (tmp_path / "requirements.txt").write_text("torch==2.5.1\nxformers==0.0.28.post\nvllm==0.6.4.post1\n")
    target = {"python": "3.10", "platform": "linux-x86_64"}
    report = check(Sources(lock="requirements.txt", cwd=tmp_path, target=target, gpu=False, environ={}))
    assert [finding.id for finding in report.shown()] == ["list-pins-a-release-that-does-not-exist"]


def test_no_release_from_long_before_is_planned(tmp_path):
    (tmp_path / "train.py").write_text(
        "import numpy\nfrom datasets import load_dataset\nload_dataset('a', use_auth_token=True)\n"
    )
    (tmp_path / "facts.json").write_text('{"schema": "envdoctor.facts/1", "facts": {}}')
    here = {"torch": "2.7.1", "huggingface-hub": "2.4.0", "fsspec": "2026.9.0", "datasets": "absent", "numpy": "absent"}
    given = [f"pkg.{name}={value}" for name, value in here.items()]
    given += ["python.version=3.11.7", "os.platform=linux", "os.arch=x86_64"]
    report = check(
        Sources(facts="facts.json", cwd=tmp_path, code=("train.py",), assignments=given, gpu=False, environ={})
    )
    assert "datasets" in str([finding.message for finding in report.findings])
    assert "datasets" not in str(report.plan and report.plan.constraints)
