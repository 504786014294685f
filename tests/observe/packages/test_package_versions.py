"""Which version a package has when several files have something to say."""

from pathlib import Path

import pytest
from observing import installed, write
from tables import cases

from envdoctor.facts import FactSet, Unknown

CASES = cases("package-versions.toml")


def problems(facts: FactSet) -> list[tuple[object, ...]]:
    return [tuple(item[column] for column in ("name", "kind", "versions")) for item in facts.value("metadata_problem")]


@pytest.mark.parametrize(
    ("name", "metadata", "said", "version", "dists", "wrong"),
    [
        # the version file brings the local tag; one that only metadata has is kept
        ("torch", ["2.5.1"], "2.5.1+cu124", "2.5.1+cu124", ["2.5.1+cu124"], []),
        ("torchvision", ["2.5.1"], "2.5.1+cu124", "2.5.1+cu124", ["2.5.1+cu124"], []),
        ("torchaudio", ["2.5.1"], "2.5.1+cu124", "2.5.1+cu124", ["2.5.1+cu124"], []),
        ("torchaudio", ["2.5.1+cu118"], "2.5.1", "2.5.1+cu118", ["2.5.1+cu118"], []),
        # a spelling by the same rules is no mismatch; another release wins, and is one
        ("torch", ["2.6.0.a0"], "2.6.0a0+git123", "2.6.0a0+git123", ["2.6.0a0+git123"], []),
        ("torch", ["2.6.0"], "2.5.1+cu124", "2.5.1+cu124", ["2.6.0"], [("mismatch", "2.6.0, 2.5.1+cu124")]),
        (
            "torch",
            ["1.12.1", "1.13.1"],
            "1.13.1+cu117",
            "1.13.1+cu117",
            ["1.12.1", "1.13.1+cu117"],
            [("duplicate", "1.12.1, 1.13.1")],
        ),
        ("torch", [], "2.5.1+cu124", "2.5.1+cu124", [], [("no-metadata", "2.5.1+cu124")]),
        (
            "numpy",
            ["1.26.4", "2.4.6"],
            None,
            Unknown("two metadata directories in one folder say 1.26.4 and 2.4.6"),
            ["1.26.4", "2.4.6"],
            [("duplicate", "1.26.4, 2.4.6")],
        ),
        ("cryptography", ["38.0.4"] * 2, None, "38.0.4", ["38.0.4"] * 2, [("duplicate", "38.0.4")]),
    ],
)
def test_the_version_is_that_of_the_code(bare: Path, make_dist, name, metadata, said, version, dists, wrong) -> None:
    for place, listed in enumerate(metadata):
        make_dist(bare, name, listed, kind="egg-info" if listed in metadata[:place] else "dist-info")
    if said is not None:
        write(bare, {f"{name}/version.py": f"__version__ = '{said}'\n"})
    facts = installed(bare)
    assert facts.value(f"pkg.{name}") == version
    assert [item["version"] for item in facts.value("dist")] == dists
    assert problems(facts) == [(name, *problem) for problem in wrong]
    assert said != version or facts.get(f"pkg.{name}").origin == f"{name}/version.py"


def test_the_first_folder_of_the_path_wins_without_a_duplicate(tmp_path: Path, make_dist) -> None:
    make_dist(tmp_path / "first", "numpy", "1.26.4")
    make_dist(tmp_path / "site", "numpy", "2.4.6")
    facts = installed(tmp_path / "first", tmp_path / "site")
    assert (facts.value("pkg.numpy"), problems(facts), len(facts.value("dist"))) == ("1.26.4", [], 2)


@pytest.mark.parametrize("text", CASES["version_file_says"])
def test_a_version_file_that_says_nothing_plain_leaves_metadata_alone(bare: Path, make_dist, text: str) -> None:
    make_dist(bare, "torch", "2.5.1")
    write(bare, {"torch/version.py": text})
    assert installed(bare).value("pkg.torch") == "2.5.1"


def test_a_version_file_is_never_run(bare: Path, make_dist, tmp_path: Path) -> None:
    make_dist(bare, "torch", "2.5.1")
    text = f"open({str(tmp_path / 'ran')!r}, 'w')\n__version__ = '2.5.1+cpu'\n"
    write(bare, {"torch/version.py": text})
    assert installed(bare).value("pkg.torch") == "2.5.1+cpu"
    assert not (tmp_path / "ran").exists()


def test_a_conda_package_is_listed_only_when_it_is_no_distribution(tmp_path: Path, make_dist, read) -> None:
    prefix = tmp_path / "conda"
    site = prefix / "lib" / "python3.11" / "site-packages"
    make_dist(site, "torch", "2.5.1", INSTALLER="conda\n")
    make_dist(site, "numpy", "2.1.3", INSTALLER="conda\n")
    names = (
        "python-3.11.9-h955ad1f_0.json pytorch-2.5.1-py3.11_cuda12.4_cudnn9.1.0_0.json history "
        "numpy-2.1.3-py311h71ddf71_0.json cuda-nvcc-12.4.131-0.json _openmp_mutex-5.1-1_gnu.json"
    )
    write(prefix / "conda-meta", dict.fromkeys(names.split(), "{}"))
    _, _, facts = read(python=prefix)
    assert (facts["environment.kind"], facts["python.version"]) == ("conda", "3.11.9")
    assert (facts["pkg.pytorch"], facts["pkg.cuda-nvcc"]) == ("2.5.1", "12.4.131")
    conda = [(item["name"], item["installer"]) for item in facts["dist"] if item["kind"] == "conda"]
    assert conda == [("cuda-nvcc", "conda"), ("python", "conda"), ("pytorch", "conda")]
