"""Fixes: only those that help and break nothing are offered, with a command for the user's installer."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from known import judged, keyed

from envdoctor.facts import Fact, Records
from envdoctor.install import install_commands
from envdoctor.install.commands import Place, for_place, uninstall_commands
from envdoctor.judge import Policy

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
COMPANIONS = {"package": [{"name": "torchvision"}, {"name": "torchaudio", "newer_since": "2.11.0"}]}


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
RELEASES = {
    "releases": {"torch": ["2.4.0", "2.4.1", "2.5.0", "2.5.1", "2.8.0"], "peft": ["0.1.0", "0.2.0", "0.3.0"]},
}
LEDGER = {
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
"""
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
TABLES = {
    "packages": PACKAGES,
    "torch_builds": BUILDS,
    "releases": RELEASES,
    "torch_archs": ARCHS,
    "torch_companions": COMPANIONS,
    "ledger": LEDGER,
}
NOW = {"pkg.torch": "2.5.0+cu118", "python.version": "3.11.9"}


def fix(**what):
    return {"safety": "review", "summary": {"en": "do it"}, **what}


TO_2_4_1 = fix(constraints=["torch==2.4.1"])


@pytest.fixture
def offered(matrix_of):
    """The fixes of the rule ``r`` after a judgement of facts."""

    def run(facts, fixes, rules=None, **parts):
        matrix = matrix_of({"r": {"fix": fixes, **parts}, **(rules or {})}, **TABLES)
        judgement = judged(facts, matrix)
        return next(finding for finding in judgement.findings if finding.id == "r").fixes

    return run


def environment(facts, values, **own):
    """Facts observed in an environment of this machine."""
    given = facts(values)
    for key, value in own.items():
        given.add(Fact(key.replace("__", "."), value, "--python", "environment"))
    return given


# --- what is offered -----------------------------------------------------------------------------------------------


def test_a_fix_that_helps_comes_with_a_command_that_keeps_the_cuda(offered, facts):
    (one,) = offered(facts(NOW), [TO_2_4_1])
    assert one.withheld is None and one.constraints == ("torch==2.4.1",)
    assert one.commands == (
        "python -m pip install torch==2.4.1+cu118 --extra-index-url https://download.pytorch.org/whl/cu118",
    )


def test_the_build_that_pypi_gives_by_default_needs_no_index(offered, facts):
    (one,) = offered(facts({**NOW, "pkg.torch": "2.5.0+cu121"}), [TO_2_4_1])
    assert one.commands == ("python -m pip install torch==2.4.1",)


def test_a_cpu_build_stays_one(offered, facts):
    (one,) = offered(facts({**NOW, "pkg.torch": "2.5.0+cpu"}), [TO_2_4_1])
    assert one.commands == (
        "python -m pip install torch==2.4.1+cpu --extra-index-url https://download.pytorch.org/whl/cpu",
    )


def test_on_windows_pypi_gives_a_cpu_build_so_that_cuda_needs_the_index(offered, facts):
    (one,) = offered(facts({**NOW, "pkg.torch": "2.5.0+cu121", "os.platform": "windows"}), [TO_2_4_1])
    assert one.commands == (
        "python -m pip install torch==2.4.1+cu121 --extra-index-url https://download.pytorch.org/whl/cu121",
    )


@pytest.mark.parametrize("platform", [{"os.platform": "darwin"}, {"os.platform": "linux", "os.arch": "aarch64"}])
def test_where_pypi_gives_a_cpu_build_a_cpu_build_needs_no_index(offered, facts, platform):
    (one,) = offered(
        facts({**NOW, "pkg.torch": "2.5.0", "torch.cuda": None, "torch.hip": None, **platform}), [TO_2_4_1]
    )
    assert one.commands == ("python -m pip install torch==2.4.1",)


def test_without_knowing_the_cuda_nothing_is_said_about_it(offered, facts):
    (one,) = offered(facts({"pkg.torch": "2.5.0"}), [TO_2_4_1])
    assert one.commands == ("python -m pip install torch==2.4.1",)


OTHER_BUILD = fix(constraints=["torch>=2.4"], cuda=["12.8", "12.6", "12.1", "11.8"])
#: The CUDA 12.8 build, which begins at 7.5 in these tables.
NO_KERNELS = {"affects": [{"torch.cuda": ">=12.8"}], "message": {"en": "no kernels"}}
OLD_DRIVER = {"affects": [{"driver.fits": "no"}], "message": {"en": "old driver"}}
LINUX = {"python.version": "3.11.9", "os.platform": "linux", "os.arch": "x86_64"}


def test_another_build_is_the_nearest_release_that_every_gpu_can_use_by_its_tag(offered, facts):
    pascal = {**LINUX, "pkg.torch": "2.8.0+cu128", "pkg.torchvision": "0.23.0", "gpu": [{"cc": "5.2"}]}
    (one,) = offered(facts(pascal), [OTHER_BUILD], **NO_KERNELS)
    assert one.withheld is None
    assert one.commands[0].startswith(
        "python -m pip install torch==2.8.0+cu126 torchvision==0.23.0+cu126 --extra-index-url "
    )


def test_another_build_of_the_installed_release_is_named_by_its_tag_though_pypi_gives_it(offered, facts):
    volta = {**LINUX, "pkg.torch": "2.4.1+cu118", "gpu": [{"cc": "7.0"}], "driver.version": "400.0"}
    only = [fix(constraints=["torch>=2.4"], cuda=["12.1"])]
    (one,) = offered(facts(volta), only, affects=[{"torch.cuda": "<12"}], message={"en": "x"})
    assert one.commands[0].startswith("python -m pip install torch==2.4.1+cu121 --extra-index-url ")


def test_another_build_is_not_offered_for_a_python_that_has_none(offered, facts):
    old = {**LINUX, "python.version": "3.9.1", "pkg.torch": "2.8.0+cu128", "gpu": [{"cc": "5.2"}]}
    (one,) = offered(facts(old), [fix(constraints=["torch>=2.8"], cuda=["12.6"])], **NO_KERNELS)
    assert one.commands == () and "no build for Python" in str(one.withheld)


def test_another_build_that_leaves_an_error_of_gpu_or_driver_is_not_offered(offered, facts):
    both = {**LINUX, "pkg.torch": "2.8.0+cu128", "gpu": [{"cc": "5.2"}], "driver.fits": "no"}
    (one,) = offered(facts(both), [OTHER_BUILD], rules={"old-driver": OLD_DRIVER}, **NO_KERNELS)
    assert one.commands == () and "it would leave old-driver" in str(one.withheld)


def test_conda_gets_the_words_but_no_command_for_another_build(offered, facts):
    values = {**LINUX, "pkg.torch": "2.8.0+cu128", "gpu": [{"cc": "5.2"}], "environment.installer": "conda"}
    (one,) = offered(facts(values), [OTHER_BUILD], **NO_KERNELS)
    assert one.withheld is None and one.commands == ()


def test_torchvision_and_torchaudio_follow_torch_when_they_are_installed(offered, facts):
    installed = {**NOW, "pkg.torchvision": "0.20.0+cu118", "pkg.torchaudio": None}
    (one,) = offered(facts(installed), [TO_2_4_1])
    assert one.commands[0].startswith(
        "python -m pip install torch==2.4.1+cu118 torchvision==0.19.1+cu118 --extra-index-url "
    )


def test_a_companion_that_the_fix_names_is_not_named_twice(offered, facts):
    both = fix(constraints=["torch==2.4.1", "torchvision==0.19.0"])
    (one,) = offered(facts({**NOW, "pkg.torchvision": "0.20.0"}), [both])
    assert one.commands[0].count("torchvision") == 1 and "torchvision==0.19.0" in one.commands[0]


@pytest.mark.parametrize(
    ("specifier", "installed", "expected"),
    [
        (">=2.5.1", "2.5.0+cu118", "2.5.1"),
        ("<2.5", "2.5.0+cu118", "2.4.1"),
        ("!=2.5.0", "2.5.0+cu118", "2.4.1"),
        ("~=2.4.0", "2.5.0+cu118", "2.4.1"),
        (">=2.4,!=2.4.1,<2.5", "2.5.0+cu118", "2.4.0"),
        (">=2.5.1", "2.5.0a0+872d972e41.nv24.08", "2.5.1"),
    ],
)
def test_of_a_range_the_nearest_release_is_taken(offered, facts, specifier, installed, expected):
    (one,) = offered(facts({"pkg.torch": installed}), [fix(constraints=[f"torch{specifier}"])])
    assert f"torch=={expected}" in one.commands[0]


def test_a_range_of_a_package_whose_releases_are_not_known_is_left_to_the_installer(offered, facts):
    parts = {"affects": [{"pkg.unlisted": "==3.0"}], "message": {"en": "m"}}
    (one,) = offered(facts({"pkg.unlisted": "3.0"}), [fix(constraints=["unlisted>=3.2,<4"])], **parts)
    assert one.commands == ("python -m pip install 'unlisted>=3.2,<4'",)


def test_a_change_of_recipe_is_tried_like_any_other(offered, facts):
    parts = {"affects": [{"pkg.torch": "==2.5.0", "recipe.packing": False}]}
    good, bad = offered(
        facts({**NOW, "recipe.packing": False}),
        [fix(set={"recipe.packing": True}), fix(set={"recipe.packing": False})],
        **parts,
    )
    assert good.withheld is None and dict(good.set) == {"recipe.packing": "true"}
    assert "not be enough" in bad.withheld


def test_a_variable_is_exported_quoted_or_unset(offered, facts):
    parts = {"affects": [{"env.NCCL_NVLS_ENABLE": "absent"}], "message": {"en": "m"}}
    one, number = offered(
        facts({"env.NCCL_NVLS_ENABLE": None}),
        [fix(env={"NCCL_NVLS_ENABLE": "a b; rm -rf ~"}), fix(env={"NCCL_NVLS_ENABLE": 0})],
        **parts,
    )
    assert shlex.split(one.commands[0]) == ["export", "NCCL_NVLS_ENABLE=a b; rm -rf ~"]
    assert number.commands == ("export NCCL_NVLS_ENABLE=0",)
    assert number.withheld is None


def test_a_variable_is_unset(offered, facts):
    parts = {"affects": [{"env.LD_PRELOAD": "present"}], "message": {"en": "m"}}
    (one,) = offered(facts({"env.LD_PRELOAD": "x.so"}), [fix(env={"LD_PRELOAD": "absent"})], **parts)
    assert one.commands == ("unset LD_PRELOAD",)


def test_a_name_that_is_no_variable_gets_no_command(offered, facts):
    (one,) = offered(facts(NOW), [fix(env={"A; rm -rf ~ #": "1"})], affects=[{"pkg.torch": "==2.5.0"}])
    assert one.commands == ()


def test_advice_and_commands_are_shown_as_they_stand(offered, facts):
    advice, command = offered(facts(NOW), [fix(), fix(command="huggingface-cli scan-cache")])
    assert advice.kind == "advice" and advice.withheld is None and advice.commands == ()
    assert command.commands == ("huggingface-cli scan-cache",)


def test_a_command_of_pip_names_the_interpreter(offered, facts):
    command = fix(command="pip install flash-attn==2.8.3 --no-build-isolation")
    here = environment(facts, NOW, python__executable="/srv/env/bin/python")
    (one,) = offered(here, [command])
    assert one.commands == ("/srv/env/bin/python -m pip install flash-attn==2.8.3 --no-build-isolation",)
    assert for_place("pip install apex", Place("uv")) == "uv pip install --python python apex"


def test_a_package_is_uninstalled_from_the_environment_that_was_judged(offered, facts):
    parts = {"affects": [{"pkg.apex": "present"}], "message": {"en": "m"}}
    here = environment(facts, {"pkg.apex": "0.1"}, python__executable="/srv/env/bin/python")
    (one,) = offered(here, [fix(uninstall=["apex"])], **parts)
    assert one.kind == "uninstall" and one.uninstall == ("apex",)
    assert one.commands == ("/srv/env/bin/python -m pip uninstall -y apex",)


# --- what is withheld ----------------------------------------------------------------------------------------------


def test_a_fix_that_is_not_enough_is_withheld(offered, facts):
    stays, helps = offered(facts(NOW), [fix(constraints=["torch==2.5.0"]), TO_2_4_1])
    assert "not be enough" in stays.withheld and stays.commands == ()
    assert helps.withheld is None


def test_a_fix_of_a_preview_rule_is_tried_too(offered, facts):
    (one,) = offered(facts(NOW), [fix(constraints=["torch==2.5.0"])], rule={"status": "preview"})
    assert "not be enough" in one.withheld


def test_a_fix_that_brings_a_new_error_is_withheld_with_that_error(offered, facts):
    other = {"affects": [{"pkg.torch": "==2.4.1"}], "message": {"en": "torch {pkg.torch} cannot be loaded"}}
    (one,) = offered(facts(NOW), [TO_2_4_1], {"other": other})
    assert "other" in one.withheld and "torch 2.4.1 cannot be loaded" in one.withheld


def test_of_a_range_a_release_that_brings_an_error_is_passed_over(offered, facts):
    other = {"affects": [{"pkg.torch": "==2.4.1"}]}
    (one,) = offered(facts(NOW), [fix(constraints=["torch<2.5"])], {"other": other})
    assert "torch==2.4.0" in one.commands[0]


@pytest.mark.parametrize("weak", [{"severity": "warning"}, {"status": "preview"}, {"status": "withdrawn"}])
def test_only_errors_of_active_rules_withhold_a_fix(offered, facts, weak):
    (one,) = offered(facts(NOW), [TO_2_4_1], {"other": {"affects": [{"pkg.torch": "==2.4.1"}], "rule": weak}})
    assert one.withheld is None


def test_an_error_that_stands_already_does_not_withhold_a_fix(matrix_of, facts):
    other = {"affects": [{"pkg.torch": "<2.6"}]}
    matrix = matrix_of({"r": {"fix": [TO_2_4_1]}, "other": other}, **TABLES)
    for policy in (Policy(), Policy(severities={"other": "warning"})):
        found = judged(facts(NOW), matrix, policy).findings
        assert next(f for f in found if f.id == "r").fixes[0].withheld is None


def test_no_build_for_this_python_withholds(offered, facts):
    (one,) = offered(facts({**NOW, "python.version": "3.13.1"}), [TO_2_4_1])
    assert one.withheld == "torch 2.4.1 has no build for Python 3.13.1 (>=3.9,<3.13)"


def test_a_python_release_candidate_counts_as_its_release(offered, facts):
    (one,) = offered(facts({**NOW, "python.version": "3.9.0rc1"}), [TO_2_4_1])
    assert one.withheld is None


def of_peft(offered, facts, constraint, **values):
    parts = {"affects": [{"pkg.peft": "==0.1.0"}], "message": {"en": "m"}}
    (one,) = offered(facts({"pkg.peft": "0.1.0", **keyed(**values)}), [fix(constraints=[constraint])], **parts)
    return one.withheld or one.commands


def test_the_python_that_a_release_asks_for_is_kept(offered, facts):
    found = of_peft(offered, facts, "peft>=0.2", python__version="3.11.9")
    assert found == ("python -m pip install peft==0.2.0",)


def test_a_release_for_another_python_is_not_offered(offered, facts):
    found = of_peft(offered, facts, "peft==0.3.0", python__version="3.11.9")
    assert found == "peft 0.3.0 has no build for Python 3.11.9 (>=3.12)"


@pytest.mark.parametrize(
    ("values", "lacks"),
    [
        ({"python__version": "3.13.1"}, "Python 3.13"),
        ({"os__platform": "linux", "os__libc": "glibc", "os__libc_version": "2.17"}, "glibc 2.17"),
        ({"os__platform": "windows"}, "Windows"),
    ],
)
def test_a_release_without_a_wheel_for_this_environment_is_not_offered(offered, facts, values, lacks):
    assert of_peft(offered, facts, "peft==0.2.0", **values) == f"peft 0.2.0 has no wheel for {lacks}"


def test_no_build_for_this_cuda_withholds(offered, facts):
    (one,) = offered(facts({**NOW, "driver.max_cuda": "11.4"}), [fix(constraints=["torch==2.8.0"])])
    assert one.withheld == "torch 2.8.0 has no build for CUDA 11.8"


def test_without_a_known_driver_no_newer_cuda_major_is_offered(offered, facts):
    (one,) = offered(facts(NOW), [fix(constraints=["torch==2.8.0"])])
    assert "no build for CUDA 11.8" in one.withheld


def test_the_newest_cuda_that_the_driver_takes_is_offered_when_the_present_one_is_gone(offered, facts):
    given = facts({**NOW, "driver.max_cuda": "12.4"})
    (one,) = offered(given, [fix(constraints=["torch==2.8.0"])])
    assert one.commands == ("python -m pip install torch==2.8.0",)  # CUDA 12.8 is what PyPI gives


def test_a_build_without_kernels_for_the_gpu_is_passed_over(offered, facts):
    given = facts({**NOW, "driver.max_cuda": "12.8", "gpu": [{"cc": "5.2"}, {"cc": "9.0"}]})
    (one,) = offered(given, [fix(constraints=["torch==2.8.0"])])
    assert one.commands == (
        "python -m pip install torch==2.8.0+cu126 --extra-index-url https://download.pytorch.org/whl/cu126",
    )


def test_no_kernels_for_the_gpu_in_any_build_withholds(offered, facts):
    (one,) = offered(facts({**NOW, "gpu": [{"name": "RTX 5090", "cc": "12.0"}]}), [TO_2_4_1])
    assert "no kernels for compute capability 12.0" in one.withheld


def test_ptx_runs_on_every_later_gpu(offered, facts):
    given = facts({"pkg.torch": "2.5.0+cu124", "driver.max_cuda": "12.8", "gpu": [{"cc": "12.1"}]})
    (one,) = offered(given, [fix(constraints=["torch==2.8.0"])])
    assert one.commands == ("python -m pip install torch==2.8.0",)


def test_constraints_that_cannot_be_read_are_withheld_whole(offered, facts):
    (one,) = offered(facts(NOW), [fix(constraints=["torch==2.4.1", "x[all]==1"])])
    assert one.withheld and one.commands == ()


def test_a_fix_without_a_known_release_is_withheld(offered, facts):
    (one,) = offered(facts(NOW), [fix(constraints=["torch>2.8.0"])])
    assert one.withheld


def test_an_installed_version_that_is_none_does_not_stop_the_run(offered, facts):
    given = facts({"model.family": "glm"})
    given.add(Fact("pkg.torch", "not a version", "", "environment"))
    (one,) = offered(given, [fix(constraints=["torch>=2.4"])], affects=[{"model.family": "glm"}])
    assert one.withheld  # the change is not what the rule is about


# --- commands ------------------------------------------------------------------------------------------------------


def commands(pins, cuda_tag=None, **place):
    return install_commands(pins, Place(**place), cuda_tag, PACKAGES["package"])


def removal(names, **place):
    return uninstall_commands(names, Place(**place), PACKAGES["package"])


def test_uv_and_conda_have_their_own_commands():
    pins = [("torch", "==2.4.1"), ("flash-attn", "==2.6.3")]
    assert commands(pins, installer="uv", cuda_tag="cu118") == (
        "uv pip install --python python torch==2.4.1 flash-attn==2.6.3 --torch-backend=cu118",
    )
    assert commands(pins, installer="conda", cuda_tag="cu118") == (
        "conda install -c conda-forge pytorch==2.4.1 flash-attn==2.6.3",
    )


def test_what_conda_forge_does_not_have_is_installed_with_pip():
    assert commands([("only-pip", "==1.0")], installer="conda") == ("python -m pip install only-pip==1.0",)


def test_every_command_names_the_environment_that_it_changes():
    place = {"interpreter": "/srv/my env/bin/python", "folder": "/srv/my env"}
    pins = [("torch", "==2.4.1")]
    assert commands(pins, **place) == ("'/srv/my env/bin/python' -m pip install torch==2.4.1",)
    assert commands(pins, installer="uv", **place) == ("uv pip install --python '/srv/my env/bin/python' torch==2.4.1",)
    assert commands(pins, installer="conda", **place) == (
        "conda install -p '/srv/my env' -c conda-forge pytorch==2.4.1",
    )


def test_uninstalling_names_the_environment_too():
    place = {"interpreter": "/srv/env/bin/python", "folder": "/srv/env"}
    assert removal(["torch"], **place) == ("/srv/env/bin/python -m pip uninstall -y torch",)
    assert removal(["torch"], installer="uv", **place) == ("uv pip uninstall --python /srv/env/bin/python torch",)
    assert removal(["torch"], installer="conda", **place) == ("conda remove -p /srv/env pytorch",)
    assert removal(["torch"], installer="uv", folder="/srv/libs", target=True) == (
        "uv pip uninstall --target /srv/libs torch",
    )
    assert removal(["torch"], folder="/srv/libs", target=True) == ()  # pip cannot
    assert removal(["torch; rm -rf ~"], **place) == ()


def test_a_bare_folder_is_the_target():
    found = commands([("torch", "==2.4.1")], folder="/srv/libs", target=True)
    assert found == ("python -m pip install --target /srv/libs --upgrade torch==2.4.1",)


def test_ranges_are_quoted():
    assert shlex.split(commands([("peft", ">=0.2,<0.3")])[0])[3:] == ["install", "peft>=0.2,<0.3"]


HOSTILE = [
    "x; rm -rf ~",
    "-r/etc/passwd",
    "--index-url=http://evil",
    "a b",
    "$(id)",
    "Torch",
    "torch_x",
    "",
    "\u202etorch",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_gets_no_command(name):
    assert commands([(name, "==1.0")]) == ()


@pytest.mark.parametrize("specifier", ["1.0", "==1.0; rm", "==1.0 --pre", "== 1.0", "==$(id)", "==1.0\n", "@ http://x"])
def test_a_hostile_specifier_gets_no_command(specifier):
    assert commands([("torch", specifier)]) == ()


@given(st.text(max_size=12), st.text(max_size=12), st.sampled_from(["pip", "uv", "conda"]))
def test_a_command_holds_nothing_but_its_words(name, specifier, installer):
    for command in commands([(name, specifier)], installer=installer):
        assert shlex.split(command)[-1].endswith(specifier)
        assert not set(command) & set(";&|$`\n\\")


@pytest.mark.parametrize("active", ["/srv/env", "/other", None])
def test_the_interpreter_is_named_whatever_environment_is_active(offered, facts, active):
    given = environment(
        facts,
        {**NOW, "env.VIRTUAL_ENV": active},
        python__executable="/srv/env/bin/python",
        environment__path="/srv/env",
    )
    (one,) = offered(given, [TO_2_4_1])
    assert one.commands[0].startswith("/srv/env/bin/python -m pip install ")


def test_the_interpreter_of_another_machine_is_not_named(offered, facts):
    (one,) = offered(facts({**NOW, "python.executable": "/their/python"}), [TO_2_4_1])
    assert one.commands[0].startswith("python -m pip install ")


def test_the_installer_is_the_one_of_most_distributions(offered, facts):
    given = facts(NOW)
    dists = tuple({"name": f"p{number}", "installer": "uv" if number else "pip"} for number in range(3))
    given.add(Fact("dist", Records(dists), "", "environment"))
    (one,) = offered(given, [TO_2_4_1])
    assert one.commands[0].startswith("uv pip install")
