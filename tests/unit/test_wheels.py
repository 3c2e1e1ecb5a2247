"""The contents of the wheels: the operator's wheel has no sandbox, tools or tests, and works without them."""

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from haulout.cli.entry import haulout

pytestmark = pytest.mark.real_time

ROOT = Path(__file__).parents[2]
OURS = ("haulout", "_haulout", "__editable__")
EVERY_MODULE = """
import importlib, pkgutil, sys
import haulout
found = [it.name for it in pkgutil.walk_packages(haulout.__path__, "haulout.") if not it.name.endswith("__main__")]
for name in found:
    importlib.import_module(name)
print(len(found), *sorted({it.partition(".")[0] for it in sys.modules} & {"haulout_sandbox", "tools", "support"}))
"""


def build_wheel(folder: Path, into: Path) -> Path:
    """Build the wheel of a project as the Dockerfile does, from a copy of what is needed for it."""
    copy = into / "source"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(folder / "src", copy / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        if (folder / name).is_file():
            shutil.copy(folder / name, copy)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into / "wheel")]
    subprocess.run(command, cwd=copy, check=True, capture_output=True)
    (wheel,) = (into / "wheel").iterdir()
    return wheel


def names_in(wheel: Path) -> set[str]:
    """Return the packages in a wheel."""
    tops = {path.partition("/")[0] for path in zipfile.ZipFile(wheel).namelist()}
    return {path for path in tops if not path.endswith(".dist-info")}


class Environment:
    """An environment with nothing in it but the dependencies of Haulout."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False)
        paths = sysconfig.get_paths(vars={"base": str(folder), "platbase": str(folder)})
        self._packages, self._programs = Path(paths["purelib"]), Path(paths["scripts"])
        for path in Path(sysconfig.get_paths()["purelib"]).iterdir():
            if not path.name.startswith(OURS):
                (self._packages / path.name).symlink_to(path)

    def install(self, wheel: Path) -> None:
        """Install a wheel by itself."""
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        python = str(self._programs / "python")
        subprocess.run([*pip, "--python", python, "install", "--no-deps", "--no-index", str(wheel)], check=True)

    def run(self, program: str, *args: str) -> subprocess.CompletedProcess[str]:
        """Run one of its programs, outside of the repository."""
        command = [str(self._programs / program), *args]
        return subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def isolated(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    folder = tmp_path_factory.mktemp("alone")
    environment = Environment(folder / "venv")
    environment.install(build_wheel(ROOT, folder))
    return environment


@pytest.mark.parametrize(("folder", "package"), [(ROOT, "haulout"), (ROOT / "sandbox", "haulout_sandbox")])
def test_each_wheel_contains_one_package(folder: Path, package: str, tmp_path: Path) -> None:
    assert names_in(build_wheel(folder, tmp_path)) == {package}


def test_each_product_module_is_importable_without_sandbox_tools_and_tests(isolated: Environment) -> None:
    done = isolated.run("python", "-c", EVERY_MODULE)
    assert done.stderr == ""
    count, *foreign = done.stdout.split()
    assert (int(count) > 100, foreign) == (True, [])


@pytest.mark.parametrize("command", sorted(haulout.commands))
def test_each_command_is_available_without_the_sandbox(isolated: Environment, command: str) -> None:
    done = isolated.run("haulout", command, "--help")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("args", "output"),
    [
        (["manifests", "--image", "registry.example.com/haulout:1"], "kind: Deployment"),
        (["check", str(ROOT / "examples" / "cookbook" / "approval.yaml"), "--ignore-env"], ""),
        (["version"], "haulout"),
    ],
)
def test_commands_work_without_the_sandbox(isolated: Environment, args: Sequence[str], output: str) -> None:
    done = isolated.run("haulout", *args)
    assert done.returncode == 0, done.stderr
    assert output in done.stdout


def test_run_sandbox_without_the_package_is_an_error_with_what_to_install(isolated: Environment) -> None:
    done = isolated.run("haulout", "run", "--sandbox")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "haulout: --sandbox needs the package haulout-sandbox; install it: pip install 'haulout[sandbox]'"
    ]
