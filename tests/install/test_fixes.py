"""Fixes: only those that help and break nothing are offered, with a command for the user's installer."""

import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from known import judged
from ledgers import ledger

from envdoctor.facts import ABSENT, Fact, FactSet
from envdoctor.judge import Policy
from envdoctor.remedy import install_commands, place_of
from envdoctor.remedy.commands import uninstall_commands

INDEX = "https://download.pytorch.org/whl/{tag}"
PACKAGES = {
    "package": [
        {"name": "torch", "conda": "pytorch", "wheel_index": INDEX},
        {"name": "torchvision", "conda": "torchvision", "wheel_index": INDEX},
        {"name": "torchaudio", "wheel_index": INDEX},
        {"name": "flash-attn", "conda": "flash-attn"},
        {"name": "only-pip", "conda_forge": False},
    ]
}
COMPANIONS = {
    "package": [{"name": "torchvision"}, {"name": "torchaudio", "newer_since": "2.11.0"}],
    "plugin": [{"name": "torch-npu", "accelerator": "ascend"}],
}


def build(version, cuda, pypi, python=">=3.9,<3.13", **more):
    row = {"key": version, "python": python, "cuda": cuda, "pypi_cuda": pypi, "pypi_cuda_aarch64": "absent"}
    return {**row, "torchvision": "0.19.1", "torchaudio": version, **more}


BUILDS = {
    "row": [
        build("2.4.0", ["11.8", "12.1", "12.4"], "12.1"),
        build("2.4.1", ["11.8", "12.1", "12.4"], "12.1"),
        build("2.5.0", ["11.8", "12.1", "12.4"], "12.4", torchvision="0.20.0"),
        build("2.5.1", ["11.8", "12.1", "12.4"], "12.4", torchvision="0.20.1"),
        build("2.8.0", ["12.6", "12.8", "13.0"], "12.8", python=">=3.10,<3.15", torchvision="0.23.0"),
    ]
}
LEDGER = {
    "torch": ledger("torch", " ".join(row["key"] for row in BUILDS["row"]), depth="metadata"),
    "peft": """envdoctor-ledger\t1
package\tpeft
modules\tpeft
depth\tmetadata
[releases]
0.1.0\t2023-02-10\t>=3.8
0.2.0\t2023-03-10\t>=3.8
0.3.0\t2023-05-10\t>=3.12
[requires]
[wheels]
*\t0.1.0..\tcp311-cp311-manylinux_2_28_x86_64\tcp312-cp312-manylinux_2_28_x86_64\tsdist
*\t0.1.0..0.1.0\tcp311-cp311-win_amd64
""",
}
ARCHS = {
    "row": [
        {"key": ">=2.4,<2.6", "cuda": cuda, "machine": "x86_64", "archs": ["sm_70", "sm_80", "sm_90"]}
        for cuda in ("11.8", "12.1", "12.4")
    ]
    + [
        {"key": "2.8.0", "cuda": "12.6", "machine": "x86_64", "archs": ["sm_50", "sm_80", "sm_90"]},
        {"key": "2.8.0", "cuda": "12.8", "machine": "x86_64", "archs": ["sm_75", "sm_80", "sm_90", "compute_120"]},
    ]
}
TABLES = {"packages": PACKAGES, "torch_builds": BUILDS, "torch_archs": ARCHS, "ledger": LEDGER}
TABLES |= {"torch_companions": COMPANIONS}
NOW = {"pkg.torch": "2.5.0+cu118", "python.version": "3.11.9"}
PIP, NO, ENV, UV = "python -m pip install ", "not offered: ", "/srv/env/bin/python -m pip ", "uv pip "
BY_TAG, BACKEND = " --extra-index-url https://download.pytorch.org/whl/", "--torch-backend=cu118"
NVLS, PRELOAD = "env.NCCL_NVLS_ENABLE", "env.LD_PRELOAD"
LINUX = {"python.version": "3.11.9", "os.platform": "linux", "os.arch": "x86_64"}
OLD_LIBC = {"os.platform": "linux", "os.libc": "glibc", "os.libc_version": "2.17"}
LIBS = {"environment.path": "/srv/libs", "environment.kind": "path", "python.executable": None}
CU121 = {**NOW, "pkg.torch": "2.5.0+cu121"}
CPU = {**NOW, "pkg.torch": "2.5.0", "torch.cuda": None, "torch.hip": None}
PASCAL = {**LINUX, "pkg.torch": "2.8.0+cu128", "gpu": [{"cc": "5.2"}]}
OLD_PASCAL = {**PASCAL, "python.version": "3.9.1"}
VOLTA = {**LINUX, "pkg.torch": "2.4.1+cu118", "gpu": [{"cc": "7.0"}], "driver.version": "400.0"}
VISION, BOTH = {"pkg.torchvision": "0.23.0"}, {"pkg.torchvision": "0.20.0+cu118", "pkg.torchaudio": None}
TWICE = "2.4.1+cu118 torchvision==0.19.0+cu118"
WEAK = [{"severity": "warning"}, {"status": "preview"}, {"status": "withdrawn"}]


def fix(**what):
    return {"safety": "review", "summary": {"en": "do it"}, **what}


def to(*constraints, **more):
    return fix(constraints=list(constraints), **more)


def about(key, value, message="m"):
    return {"affects": [{key: value}], "message": {"en": message}}


def beside(**rules):
    return {"rules": rules}


def peft(python, **values):
    return {"pkg.peft": "0.1.0", **({"python.version": python} if python else {}), **values}


def gpus(torch, *capabilities):
    return {**NOW, "pkg.torch": torch, "driver.max_cuda": "12.8", "gpu": [{"cc": cc} for cc in capabilities]}


def placed(values, installer="pip"):
    """Facts observed in an environment of this machine, with its interpreter where there is one."""
    own = {"environment.path": "/srv/env", "python.executable": "/srv/env/bin/python"}
    own |= {"environment.installer": installer, **values}
    return FactSet(
        Fact(key, ABSENT if value is None else value, "--python", "environment") for key, value in own.items()
    )


PEFT, PACKING = about("pkg.peft", "==0.1.0"), {"affects": [{"pkg.torch": "==2.5.0", "recipe.packing": False}]}
TO_2_4_1, TO_2_8 = to("torch==2.4.1"), to("torch==2.8.0")
OTHER_BUILD = to("torch>=2.4", cuda=["12.8", "12.6", "12.1", "11.8"])
#: The CUDA 12.8 build, which begins at 7.5 in these tables.
NO_KERNELS, OLD_CUDA = about("torch.cuda", ">=12.8"), about("torch.cuda", "<12")
OLD_DRIVER = beside(**{"old-driver": about("driver.fits", "no")})
FORBIDDEN = about("pkg.torch", "==2.4.1", "torch {pkg.torch} cannot be loaded")


@pytest.fixture
def offered(matrix_of):
    """The fixes of the rule ``r`` after a judgement of facts."""

    def run(facts, fixes, rules=None, **parts):
        matrix = matrix_of({"r": {"fix": fixes, **parts}, **(rules or {})}, **TABLES)
        judgement = judged(facts, matrix)
        return next(finding for finding in judgement.findings if finding.id == "r").fixes

    return run


# --- what is offered -----------------------------------------------------------------------------------------------

#: The facts, the fix, other parts of the rule, and its commands or why it is withheld (... stands for anything).
OFFERED = [
    # the command keeps the CUDA; the build that PyPI gives by default needs no index
    (NOW, TO_2_4_1, {}, f"{PIP}torch==2.4.1+cu118{BY_TAG}cu118"),
    (CU121, TO_2_4_1, {}, f"{PIP}torch==2.4.1"),
    ({**NOW, "pkg.torch": "2.5.0+cpu"}, TO_2_4_1, {}, f"{PIP}torch==2.4.1+cpu{BY_TAG}cpu"),
    # on Windows PyPI gives a CPU build, so that CUDA needs the index
    ({**CU121, "os.platform": "windows"}, TO_2_4_1, {}, f"{PIP}torch==2.4.1+cu121{BY_TAG}cu121"),
    ({**CPU, "os.platform": "darwin"}, TO_2_4_1, {}, f"{PIP}torch==2.4.1"),
    ({**CPU, "os.platform": "linux", "os.arch": "aarch64"}, TO_2_4_1, {}, f"{PIP}torch==2.4.1"),
    ({"pkg.torch": "2.5.0"}, TO_2_4_1, {}, f"{PIP}torch==2.4.1"),
    # another build is the nearest release that every GPU can use, by its tag even where PyPI gives it
    ({**PASCAL, **VISION}, OTHER_BUILD, NO_KERNELS, f"{PIP}torch==2.8.0+cu126 torchvision==0.23.0+cu126{BY_TAG}..."),
    (VOLTA, to("torch>=2.4", cuda=["12.1"]), OLD_CUDA, f"{PIP}torch==2.4.1+cu121{BY_TAG}..."),
    (OLD_PASCAL, to("torch>=2.8", cuda=["12.6"]), NO_KERNELS, f"{NO}...no build for Python..."),
    ({**PASCAL, "environment.installer": "conda"}, OTHER_BUILD, NO_KERNELS, ""),  # it gets the words
    # torchvision and torchaudio follow torch when they are installed, and are not named twice
    ({**NOW, **BOTH}, TO_2_4_1, {}, f"{PIP}torch==2.4.1+cu118 torchvision==0.19.1+cu118{BY_TAG}..."),
    ({**NOW, **BOTH}, to("torch==2.4.1", "torchvision==0.19.0"), {}, f"{PIP}torch=={TWICE}{BY_TAG}cu118"),
    # what brings torch to another accelerator goes with one release of it
    ({"pkg.torch": "2.5.0", "pkg.torch-npu": "2.5.0.post1"}, TO_2_4_1, {}, f"{NO}torch-npu 2.5.0.post1 is made for..."),
    ({"pkg.torch": "2.5.0", "pkg.torch-npu": "2.4.1"}, to("torch<2.5.1"), {}, f"{PIP}torch==2.4.1"),
    # of a range the nearest release is taken, or it is left to the installer
    *(
        ({"pkg.torch": installed}, to(f"torch{wanted}"), {}, f"{PIP}torch=={nearest}...")
        for wanted, installed, nearest in (
            (">=2.5.1", "2.5.0+cu118", "2.5.1"),
            ("<2.5", "2.5.0+cu118", "2.4.1"),
            ("!=2.5.0", "2.5.0+cu118", "2.4.1"),
            ("~=2.4.0", "2.5.0+cu118", "2.4.1"),
            (">=2.4,!=2.4.1,<2.5", "2.5.0+cu118", "2.4.0"),
            (">=2.5.1", "2.5.0a0+872d972e41.nv24.08", "2.5.1"),
        )
    ),
    ({"pkg.unlisted": "3.0"}, to("unlisted>=3.2,<4"), about("pkg.unlisted", "==3.0"), f"{PIP}'unlisted>=3.2,<4'"),
    # recipe and variables
    ({**NOW, "recipe.packing": False}, fix(set={"recipe.packing": True}), PACKING, ""),
    ({**NOW, "recipe.packing": False}, fix(set={"recipe.packing": False}), PACKING, f"{NO}...not be enough..."),
    ({NVLS: None}, fix(env={"NCCL_NVLS_ENABLE": 0}), about(NVLS, "absent"), "export NCCL_NVLS_ENABLE=0"),
    ({PRELOAD: "x.so"}, fix(env={"LD_PRELOAD": "absent"}), about(PRELOAD, "present"), "unset LD_PRELOAD"),
    (
        {NVLS: None},
        fix(env={"NCCL_NVLS_ENABLE": 1, "A; rm -rf ~ #": "1"}),
        about(NVLS, "absent"),
        "export NCCL_NVLS_ENABLE=1",
    ),
    # advice and commands are shown as they stand, and pip with its interpreter
    (NOW, fix(), {}, ""),
    (NOW, fix(command="huggingface-cli scan-cache"), {}, "huggingface-cli scan-cache"),
    (placed(NOW), fix(command="pip install a==2 --no-build-isolation"), {}, f"{ENV}install a==2 --no-build-isolation"),
    ({**NOW, "environment.installer": "uv"}, fix(command="pip install apex"), {}, f"{UV}install --python python apex"),
    # a fix that is not enough
    (NOW, to("torch==2.5.0"), {}, f"{NO}...not be enough..."),
    (NOW, to("torch==2.5.0"), {"rule": {"status": "preview"}}, f"{NO}...not be enough..."),
    # the Python that a release asks for; a release candidate counts as its release
    (
        {**NOW, "python.version": "3.13.1"},
        TO_2_4_1,
        {},
        f"{NO}torch 2.4.1 has no build for Python 3.13.1 (>=3.9,<3.13)",
    ),
    ({**NOW, "python.version": "3.9.0rc1"}, TO_2_4_1, {}, f"{PIP}..."),
    (peft("3.11.9"), to("peft>=0.2"), PEFT, f"{PIP}peft==0.2.0"),
    (peft("3.11.9"), to("peft==0.3.0"), PEFT, f"{NO}peft 0.3.0 has no build for Python 3.11.9 (>=3.12)"),
    (peft("", **{"python.minor": "3.11"}), to("peft==0.3.0"), PEFT, f"{NO}peft 0.3.0 has no build for Python 3.11..."),
    # a wheel for this environment
    (peft("3.13.1"), to("peft==0.2.0"), PEFT, f"{NO}peft 0.2.0 has no wheel for Python 3.13"),
    (peft(None, **OLD_LIBC), to("peft==0.2.0"), PEFT, f"{NO}peft 0.2.0 has no wheel for glibc 2.17"),
    (peft(None, **{"os.platform": "windows"}), to("peft==0.2.0"), PEFT, f"{NO}peft 0.2.0 has no wheel for Windows"),
    # a build for this CUDA: the newest that the driver takes when the present one is gone
    ({**NOW, "driver.max_cuda": "11.4"}, TO_2_8, {}, f"{NO}torch 2.8.0 has no build for CUDA 11.8"),
    (NOW, TO_2_8, {}, f"{NO}...no build for CUDA 11.8..."),
    ({**NOW, "driver.max_cuda": "12.4"}, TO_2_8, {}, f"{PIP}torch==2.8.0"),  # CUDA 12.8 is what PyPI gives
    # a build with kernels for every GPU; PTX runs on every later one
    (gpus("2.5.0+cu118", "5.2", "9.0"), TO_2_8, {}, f"{PIP}torch==2.8.0+cu126{BY_TAG}cu126"),
    (gpus("2.5.0+cu118", "12.0"), TO_2_4_1, {}, f"{NO}...no kernels for compute capability 12.0..."),
    (gpus("2.5.0+cu124", "12.1"), TO_2_8, {}, f"{PIP}torch==2.8.0"),
    # constraints that cannot be read are withheld whole, like those without a known release
    (NOW, to("torch==2.4.1", "x[all]==1"), {}, f"{NO}..."),
    (NOW, to("torch>2.8.0"), {}, f"{NO}..."),
    # only new errors of active rules withhold a fix, and of a range a release without them is taken
    (NOW, TO_2_4_1, beside(other=FORBIDDEN), f"{NO}...other...torch 2.4.1 cannot be loaded..."),
    (NOW, to("torch<2.5"), beside(other=FORBIDDEN), f"{PIP}torch==2.4.0..."),
    *((NOW, TO_2_4_1, beside(other={**FORBIDDEN, "rule": weak}), f"{PIP}...") for weak in WEAK),
    (
        {**PASCAL, "driver.fits": "no"},
        OTHER_BUILD,
        {**NO_KERNELS, **OLD_DRIVER},
        f"{NO}...it would leave old-driver...",
    ),
    # the interpreter is named, whatever environment is active, but not that of another machine
    *(
        (placed({**NOW, "env.VIRTUAL_ENV": active}), TO_2_4_1, {}, f"{ENV}install ...")
        for active in ("/srv/env", "/other", None)
    ),
    ({**NOW, "python.executable": "/their/python"}, TO_2_4_1, {}, f"{PIP}..."),
    # uninstalling names the environment too
    (placed({"pkg.apex": "0.1"}), fix(uninstall=["apex"]), about("pkg.apex", "present"), f"{ENV}uninstall -y apex"),
    (placed(NOW), fix(uninstall=["torch"]), {}, f"{ENV}uninstall -y torch"),
    (placed(NOW, "uv"), fix(uninstall=["torch"]), {}, f"{UV}uninstall --python /srv/env/bin/python torch"),
    (placed(NOW, "conda"), fix(uninstall=["torch"]), {}, "conda remove -p /srv/env pytorch"),
    (placed({**NOW, **LIBS}, "uv"), fix(uninstall=["torch"]), {}, f"{UV}uninstall --target /srv/libs torch"),
    (placed({**NOW, **LIBS}), fix(uninstall=["torch"]), {}, ""),  # pip cannot
    (placed(NOW), fix(uninstall=["torch", "torch; rm -rf ~"]), {}, ""),
]


@pytest.mark.parametrize(("values", "what", "parts", "told"), OFFERED)
def test_a_fix_is_a_command_or_withheld_with_the_reason(offered, facts, values, what, parts, told):
    (one,) = offered(values if isinstance(values, FactSet) else facts(values), [what], **parts)
    said = "; ".join(one.commands) if one.withheld is None else NO + one.withheld
    assert re.fullmatch(".*".join(map(re.escape, told.split("..."))), said), said
    assert one.withheld is None or one.commands == ()


@pytest.mark.parametrize(
    ("what", "told"),
    [
        (TO_2_4_1, {"kind": "constraint", "constraints": ("torch==2.4.1",)}),
        (fix(), {"kind": "advice"}),
        (fix(uninstall=["torch"]), {"kind": "uninstall", "uninstall": ("torch",)}),
        (fix(set={"recipe.packing": True}), {"kind": "set", "set": {"recipe.packing": "true"}}),
    ],
)
def test_what_a_fix_changes_is_told(offered, facts, what, told):
    (one,) = offered(facts(NOW), [what])
    assert {name: getattr(one, name) for name in told} == told


def test_a_variable_is_exported_quoted(offered, facts):
    (one,) = offered(facts({NVLS: None}), [fix(env={"NCCL_NVLS_ENABLE": "a b; rm -rf ~"})], **about(NVLS, "absent"))
    assert shlex.split(one.commands[0]) == ["export", "NCCL_NVLS_ENABLE=a b; rm -rf ~"]


def test_an_error_that_stands_already_does_not_withhold_a_fix(matrix_of, facts):
    other = {"affects": [{"pkg.torch": "<2.6"}]}
    matrix = matrix_of({"r": {"fix": [TO_2_4_1]}, "other": other}, **TABLES)
    for policy in (Policy(), Policy(severities={"other": "warning"})):
        found = judged(facts(NOW), matrix, policy).findings
        assert next(f for f in found if f.id == "r").fixes[0].withheld is None


def test_an_installed_version_that_is_none_does_not_stop_the_run(offered, facts):
    given = facts({"model.family": "glm"})
    given.add(Fact("pkg.torch", "not a version", "", "environment"))
    (one,) = offered(given, [to("torch>=2.4")], affects=[{"model.family": "glm"}])
    assert one.withheld  # the change is not what the rule is about


# --- commands ------------------------------------------------------------------------------------------------------


def commands(pins, place=None, cuda_tag=None):
    facts = FactSet(Fact(key, value, "", "environment") for key, value in (place or {}).items())
    return install_commands(pins, place_of(facts), cuda_tag, PACKAGES["package"])


@pytest.mark.parametrize("folder", ["/srv/a\nb", "/srv/a\u202eb", "/srv/a\x1b[2Jb"])
@pytest.mark.parametrize("installer", ["pip", "uv", "conda"])
def test_no_command_names_a_folder_that_would_be_shown_as_another(folder, installer):
    place = {"python.executable": f"{folder}/bin/python", "environment.path": folder}
    place["environment.installer"] = installer
    assert commands([TORCH], place) == ()
    facts = FactSet(Fact(key, value, "", "environment") for key, value in place.items())
    assert uninstall_commands(["torch"], place_of(facts), PACKAGES["package"]) == ()


TORCH, FLASH = ("torch", "==2.4.1"), ("flash-attn", "==2.6.3")
WITH_UV, CONDA = ({"environment.installer": name} for name in ("uv", "conda"))
OURS = {"python.executable": "/srv/my env/bin/python", "environment.path": "/srv/my env"}


@pytest.mark.parametrize(
    ("pins", "place", "tag", "command"),
    [
        ([TORCH, FLASH], WITH_UV, "cu118", f"{UV}install --python python torch==2.4.1 flash-attn==2.6.3 {BACKEND}"),
        ([TORCH, FLASH], CONDA, "cu118", "conda install -c conda-forge pytorch==2.4.1 flash-attn==2.6.3"),
        ([("only-pip", "==1.0")], CONDA, None, f"{PIP}only-pip==1.0"),  # conda-forge does not have it
        # every command names the environment that it changes
        ([TORCH], OURS, None, "'/srv/my env/bin/python' -m pip install torch==2.4.1"),
        ([TORCH], {**OURS, **WITH_UV}, None, f"{UV}install --python '/srv/my env/bin/python' torch==2.4.1"),
        ([TORCH], {**OURS, **CONDA}, None, "conda install -p '/srv/my env' -c conda-forge pytorch==2.4.1"),
        ([TORCH], LIBS, None, f"{PIP}--target /srv/libs --upgrade torch==2.4.1"),  # a bare folder
        ([("peft", ">=0.2,<0.3")], {}, None, f"{PIP}'peft>=0.2,<0.3'"),
    ],
)
def test_each_installer_has_its_own_commands(pins, place, tag, command):
    place = {key: value for key, value in place.items() if value is not None}
    assert commands(pins, place, tag) == (command,)


NAMES = (
    "x; rm -rf ~",
    "-r/etc/passwd",
    "--index-url=http://evil",
    "a b",
    "$(id)",
    "Torch",
    "torch_x",
    "",
    "\u202etorch",
)
SPECIFIERS = ("1.0", "==1.0; rm", "==1.0 --pre", "== 1.0", "==$(id)", "==1.0\n", "@ http://x")


@pytest.mark.parametrize("pin", [*((name, "==1.0") for name in NAMES), *(("torch", one) for one in SPECIFIERS)])
def test_a_hostile_name_or_specifier_gets_no_command(pin):
    assert commands([pin]) == ()


@given(st.text(max_size=12), st.text(max_size=12), st.sampled_from(["pip", "uv", "conda"]))
def test_a_command_holds_nothing_but_its_words(name, specifier, installer):
    for command in commands([(name, specifier)], {"environment.installer": installer}):
        assert shlex.split(command)[-1].endswith(specifier)
        assert not set(command) & set(";&|$`\n\\")
