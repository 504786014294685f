"""Which version a package has when several files have something to say."""

from __future__ import annotations

from pathlib import Path

import pytest

from envdoctor.facts import Records, Unknown


def write_package(folder: Path, name: str, text: str) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "version.py").write_text(text, encoding="utf-8")


def kinds(facts) -> list[tuple[object, object, object]]:
    records = facts["metadata_problem"]
    assert isinstance(records, Records)
    return [(item["name"], item["kind"], item["versions"]) for item in records]


@pytest.mark.parametrize("name", ["torch", "torchvision", "torchaudio"])
def test_the_version_file_brings_the_local_tag(bare: Path, make_dist, read, name: str) -> None:
    make_dist(bare, name, "2.5.1")
    write_package(bare, name, "__version__ = '2.5.1+cu124'\n")
    _, observed, facts = read(path=bare)
    assert facts[f"pkg.{name}"] == "2.5.1+cu124"
    assert next(fact.origin for fact in observed.facts if fact.key == f"pkg.{name}") == f"{name}/version.py"
    assert facts["dist"].items[0]["version"] == "2.5.1+cu124"
    assert kinds(facts) == []


def test_a_local_tag_that_only_metadata_has_is_kept(bare: Path, make_dist, read) -> None:
    make_dist(bare, "torchaudio", "2.5.1+cu118")
    write_package(bare, "torchaudio", "__version__ = '2.5.1'\n")
    assert read(path=bare)[2]["pkg.torchaudio"] == "2.5.1+cu118"


def test_a_spelling_by_the_same_rules_is_no_mismatch(bare: Path, make_dist, read) -> None:
    make_dist(bare, "torch", "2.6.0.a0")
    write_package(bare, "torch", "__version__ = '2.6.0a0+git123'\n")
    _, _, facts = read(path=bare)
    assert facts["pkg.torch"] == "2.6.0a0+git123"
    assert kinds(facts) == []


def test_a_version_file_of_another_release_wins_and_is_a_mismatch(bare: Path, make_dist, read) -> None:
    make_dist(bare, "torch", "2.6.0")
    write_package(bare, "torch", "__version__ = '2.5.1+cu124'\n")
    _, _, facts = read(path=bare)
    assert facts["pkg.torch"] == "2.5.1+cu124"
    assert kinds(facts) == [("torch", "mismatch", "2.6.0, 2.5.1+cu124")]


def test_two_versions_in_one_folder_leave_the_version_unknown(bare: Path, make_dist, read) -> None:
    make_dist(bare, "numpy", "1.26.4")
    make_dist(bare, "numpy", "2.4.6")
    _, _, facts = read(path=bare)
    assert facts["pkg.numpy"] == Unknown("two metadata directories in one folder say 1.26.4 and 2.4.6")
    assert len(facts["dist"]) == 2


def test_the_version_file_settles_which_of_two_it_is(bare: Path, make_dist, read) -> None:
    make_dist(bare, "torch", "1.12.1")
    make_dist(bare, "torch", "1.13.1")
    write_package(bare, "torch", "__version__ = '1.13.1+cu117'\n")
    _, _, facts = read(path=bare)
    assert facts["pkg.torch"] == "1.13.1+cu117"
    assert kinds(facts) == [("torch", "duplicate", "1.12.1, 1.13.1")]
    assert [item["version"] for item in facts["dist"]] == ["1.12.1", "1.13.1+cu117"]


def test_a_duplicate_of_the_same_version_leaves_it_known(bare: Path, make_dist, read) -> None:
    make_dist(bare, "cryptography", "38.0.4")
    make_dist(bare, "cryptography", "38.0.4", kind="egg-info")
    assert read(path=bare)[2]["pkg.cryptography"] == "38.0.4"


def test_the_first_folder_of_the_path_wins_without_a_duplicate(
    venv: Path, site: Path, tmp_path, make_dist, read
) -> None:
    first = tmp_path / "first"
    make_dist(first, "numpy", "1.26.4")
    make_dist(site, "numpy", "2.4.6")
    _, _, facts = read(python=venv, environ={"PYTHONPATH": str(first)})
    assert facts["pkg.numpy"] == "1.26.4"
    assert kinds(facts) == []
    assert len(facts["dist"]) == 2


def test_a_package_without_metadata_is_seen_by_its_version_file(bare: Path, read) -> None:
    write_package(bare, "torch", "__version__ = '2.5.1+cu124'\n")
    _, _, facts = read(path=bare)
    assert facts["pkg.torch"] == "2.5.1+cu124"
    assert kinds(facts) == [("torch", "no-metadata", "2.5.1+cu124")]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "import os\n__version__ = os.environ['V']\n",
        "__version__ = '2.5.1' + '+cu124'\n",
        "__version__ = f'{x}'\n",
        "__version__ = 'not a version!'\n",
        "__version__ = None\n",
        "    __version__ = '9.9'\n",
        "__version__ = '2.5.1\\x2b'\n",
    ],
)
def test_a_version_file_that_says_nothing_plain_leaves_metadata_alone(bare: Path, make_dist, read, text: str) -> None:
    make_dist(bare, "torch", "2.5.1")
    write_package(bare, "torch", text)
    assert read(path=bare)[2]["pkg.torch"] == "2.5.1"


def test_a_version_file_is_never_run(bare: Path, make_dist, read, tmp_path: Path) -> None:
    make_dist(bare, "torch", "2.5.1")
    write_package(bare, "torch", f"open({str(tmp_path / 'ran')!r}, 'w')\n__version__ = '2.5.1+cpu'\n")
    assert read(path=bare)[2]["pkg.torch"] == "2.5.1+cpu"
    assert not (tmp_path / "ran").exists()


def test_a_conda_package_is_listed_only_when_it_is_no_distribution(tmp_path: Path, make_dist, read) -> None:
    prefix = tmp_path / "conda"
    site = prefix / "lib" / "python3.11" / "site-packages"
    make_dist(site, "torch", "2.5.1", INSTALLER="conda\n")
    make_dist(site, "numpy", "2.1.3", INSTALLER="conda\n")
    meta = prefix / "conda-meta"
    meta.mkdir()
    for name in (
        "python-3.11.9-h955ad1f_0.json",
        "pytorch-2.5.1-py3.11_cuda12.4_cudnn9.1.0_0.json",
        "numpy-2.1.3-py311h71ddf71_0.json",
        "cuda-nvcc-12.4.131-0.json",
        "_openmp_mutex-5.1-1_gnu.json",
    ):
        (meta / name).write_text("{}")
    (meta / "history").write_text("")
    _, _, facts = read(python=prefix)
    assert facts["environment.kind"] == "conda"
    assert facts["python.version"] == "3.11.9"
    assert facts["pkg.pytorch"] == "2.5.1"
    assert facts["pkg.cuda-nvcc"] == "12.4.131"
    conda = [(item["name"], item["installer"]) for item in facts["dist"] if item["kind"] == "conda"]
    assert conda == [("cuda-nvcc", "conda"), ("python", "conda"), ("pytorch", "conda")]
