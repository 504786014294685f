"""The environment inside an image's root folder."""

import errno
import os
from pathlib import Path

import pytest
from observing import program, write

from envdoctor.facts import Unknown
from envdoctor.observe import EnvironmentNotFound
from envdoctor.system import Files


@pytest.fixture
def image(tmp_path: Path) -> Path:
    folder = tmp_path / "image"
    folder.mkdir()
    return folder


def test_python_of_a_slim_image_is_found(image: Path, make_dist, read) -> None:
    site = image / "usr/local/lib/python3.11/site-packages"
    make_dist(site, "torch", "2.5.1")
    write(image, {"usr/local/include/python3.11/patchlevel.h": '#define PY_VERSION "3.11.10"\n'})
    layout, observed, facts = read(root=image)
    assert (layout.kind, layout.live, layout.executable) == ("root", False, None)
    assert (layout.because, layout.site_packages) == ("--root, /usr/local inside it", (str(site),))
    assert (facts["python.version"], facts["pkg.torch"], observed.notes) == ("3.11.10", "2.5.1", ())
    assert isinstance(facts["python.executable"], Unknown)


def test_debian_packages_and_their_version_are_found(image: Path, make_dist, read) -> None:
    make_dist(image / "usr/local/lib/python3.12/dist-packages", "torch", "2.6.0")
    make_dist(image / "usr/lib/python3/dist-packages", "six", "1.16.0")
    status = (
        "Package: python3.12\nStatus: deinstall ok config-files\nVersion: 3.12.1-1\n\n"
        "Package: python3.12-minimal\nStatus: install ok installed\nVersion: 3.12.3-1ubuntu0.5\n\n"
    )
    write(image, {"usr/lib/python3.12/os.py": "", "var/lib/dpkg/status": status})
    layout, _, facts = read(root=image)
    assert layout.prefix == str(image / "usr")
    assert [Path(folder).name for folder in layout.site_packages] == ["dist-packages", "dist-packages"]
    assert (facts["python.version"], layout.version_origin) == ("3.12.3", "var/lib/dpkg/status")
    assert (facts["pkg.torch"], facts["pkg.six"]) == ("2.6.0", "1.16.0")


def test_fedora_adds_usr_local_to_its_own_python(image: Path, make_dist, read) -> None:
    folders = [f"usr/{place}/python3.12/site-packages" for place in ("local/lib64", "local/lib", "lib64", "lib")]
    for number, folder in enumerate(folders):
        make_dist(image / folder, "torch", f"2.{number}.0")
    make_dist(image / folders[2], "numpy", "2.4.6")
    (image / "usr/lib64/python3.12/os.py").touch()
    layout, observed, facts = read(root=image)
    assert layout.site_packages == tuple(str(image / folder) for folder in folders)
    assert (layout.prefix, facts["pkg.torch"], observed.notes) == (str(image / "usr"), "2.0.0", ())


def test_a_version_that_files_do_not_give_is_unknown_and_nothing_is_started(image: Path, make_dist, read) -> None:
    make_dist(image / "usr/local/lib/python3.11/site-packages", "torch", "2.5.1")
    program(image / "usr/local/bin/python3", f"touch {image}/ran")
    version = read(root=image)[2]["python.version"]
    assert version == Unknown("the image's files say python3.11, but not which patch release")
    assert not (image / "ran").exists()


def test_what_the_image_adds_comes_before_its_distribution(image: Path, make_dist, read) -> None:
    make_dist(image / "usr/local/lib/python3.11/site-packages", "pip", "24.0")
    (image / "usr/local/lib/python3.11/os.py").touch()
    make_dist(image / "opt/venv/lib/python3.11/site-packages", "torch", "2.5.1")
    own = "include-system-site-packages = false"
    (image / "opt/venv/pyvenv.cfg").write_text(f"home = /usr/local/bin\nversion = 3.11.9\n{own}\n")
    layout, observed, facts = read(root=image)
    assert layout.because == "--root, /opt/venv inside it"
    assert observed.notes == ("the image has more environments, which are not judged: /usr/local",)
    assert (facts["pkg.torch"], facts["python.version"]) == ("2.5.1", "3.11.9")


def test_an_environment_of_conda_is_found(image: Path, make_dist, read) -> None:
    make_dist(image / "opt/conda/lib/python3.12/site-packages", "conda", "24.1")
    (image / "opt/conda/conda-meta").mkdir()
    make_dist(image / "opt/conda/envs/train/lib/python3.11/site-packages", "torch", "2.5.1")
    write(image / "opt/conda/envs/train/conda-meta", {"python-3.11.9-h955ad1f_0.json": ""})
    layout, _, facts = read(root=image)
    assert (layout.prefix, facts["python.version"]) == (str(image / "opt/conda/envs/train"), "3.11.9")


def test_links_lead_to_places_inside_the_root_only(image: Path, tmp_path: Path, make_dist, read) -> None:
    secret = tmp_path / "secret"
    secret.write_text("Metadata-Version: 2.1\nName: leaked\nVersion: 6.6.6\n\n")
    make_dist(tmp_path / "outside", "leaked", "6.6.6")
    site = image / "usr/local/lib/python3.11/site-packages"
    make_dist(site, "numpy", "2.4.6")
    (site / "a-1.0.dist-info").mkdir()
    (site / "a-1.0.dist-info/METADATA").symlink_to(secret)
    (site / "b-1.0.dist-info").symlink_to(tmp_path / "outside/leaked-6.6.6.dist-info")
    (site / "c-1.0.dist-info").symlink_to("../" * 20 + str(tmp_path / "outside/leaked-6.6.6.dist-info"))
    (site / "out.pth").write_text(f"{tmp_path / 'outside'}\n../../../../../../outside\n")
    layout, _, facts = read(root=image)
    assert layout.site_packages == (str(site),)
    assert "pkg.leaked" not in facts
    assert [str(facts[f"pkg.{name}"]) == "6.6.6" for name in "abc"] == [False] * 3


def test_absolute_links_of_the_image_start_at_its_root(image: Path, make_dist, read) -> None:
    make_dist(image / "data/site", "torch", "2.5.1")
    (image / "usr/local/lib/python3.11").mkdir(parents=True)
    (image / "usr/local/lib/python3.11/site-packages").symlink_to("/data/site")
    make_dist(image / "editable", "mine", "0.1")
    (image / "data/site/mine.pth").write_text("/editable\n")
    layout, _, facts = read(root=image)
    assert layout.site_packages == (str(image / "data/site"), str(image / "editable"))
    assert (facts["pkg.torch"], facts["pkg.mine"]) == ("2.5.1", "0.1")


def test_the_callers_path_and_user_site_do_not_count(image: Path, tmp_path: Path, make_dist, read) -> None:
    make_dist(image / "usr/local/lib/python3.11/site-packages", "torch", "2.5.1")
    make_dist(tmp_path / "mine", "numpy", "1.0")
    make_dist(tmp_path / "home/.local/lib/python3.11/site-packages", "numpy", "1.0")
    _, _, facts = read(root=image, environ={"PYTHONPATH": str(tmp_path / "mine"), "HOME": str(tmp_path / "home")})
    assert "pkg.numpy" not in facts


def test_an_image_without_python_is_said(image: Path, read) -> None:
    with pytest.raises(EnvironmentNotFound, match="no installed Python package was found"):
        read(root=image)


def test_links_in_a_circle_end(image: Path) -> None:
    (image / "a").symlink_to("b")
    (image / "b").symlink_to("/a")
    with pytest.raises(OSError) as error:
        Files(str(image)).real(str(image / "a"))
    assert error.value.errno == errno.ELOOP
    assert not Files(str(image)).is_folder(str(image / "a"))


@pytest.mark.parametrize("path", ["..", "../outside", "a/../../outside", "/etc/passwd"])
def test_no_path_leads_outside(image: Path, path: str) -> None:
    files = Files(str(image))
    try:
        real = files.real(os.path.join(image, path))
    except OSError:
        return
    assert real == str(image) or real.startswith(str(image) + os.sep)


def test_the_root_of_this_machine_is_a_root_as_well() -> None:
    files = Files("/")
    assert files.real("/usr/../usr") in ("/usr", "/usr/")
    assert files.is_folder("/usr")
