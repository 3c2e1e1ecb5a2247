"""The image, as far as it can be tested without a container engine; hadolint checks the rest."""

import importlib.metadata
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from haulout.core import cloud_sdk
from haulout.dashboard import server
from haulout.httpserver import healthz, secure_metrics
from haulout.webhook import registration
from support.packaging import dockerfile
from support.packaging.dockerfile import Build, Instruction

ROOT = Path(__file__).parents[2]
SDKS = ("aws", "oci", "openstack", "vsphere")
TARGETS = {it: f"{it}-packages" for it in ("base", *SDKS)}
PIN = re.compile(r"^([a-z0-9.-]+)==(\S+)", re.MULTILINE)


def instructions() -> list[Instruction]:
    return dockerfile.instructions(ROOT / "Dockerfile")


def stages() -> dict[str, str]:
    """Return the base of each stage."""
    return {stage: rest.partition(" ")[0] for stage, word, rest in instructions() if word == "FROM"}


def pins(lock: str) -> dict[str, str]:
    return dict(PIN.findall((ROOT / "requirements" / f"{lock}.txt").read_text()))


def is_in_build_context(path: str) -> bool:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    return any(fnmatch(path, line[1:]) or path.startswith(f"{line[1:]}/") for line in lines if line.startswith("!"))


def test_each_image_target_is_the_runtime_with_its_packages() -> None:
    for target, packages in TARGETS.items():
        assert stages()[target] == "runtime"
        copied = [rest for stage, word, rest in instructions() if (stage, word) == (target, "COPY")]
        assert copied == [f"--from={packages} /opt/haulout /opt/haulout"]
    assert instructions()[-1][0] == "base", "the default target"


def test_image_runs_as_a_numeric_non_root_user() -> None:
    [(stage, _, user)] = [instruction for instruction in instructions() if instruction[1] == "USER"]
    assert stage == "runtime"
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user), "a number, so that a cluster can tell that it is not root"


def test_copied_files_exist_and_are_in_the_build_context() -> None:
    for _, word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from="):
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists()
                assert is_in_build_context(source), f"{source}: .dockerignore keeps it back"
    assert not is_in_build_context(".git/config")
    assert not is_in_build_context(".venv/bin/python")


def test_packages_are_installed_as_wheels_with_hashes() -> None:
    installs = [rest for _, word, rest in instructions() if word == "RUN" and " install " in rest]
    assert len(installs) == len(TARGETS) + 2
    for install in installs:
        is_ours = "--no-index" in install and "/wheel/" in install
        assert is_ours or ("--require-hashes" in install and "--only-binary :all:" in install)


@pytest.mark.parametrize(
    ("lock", "package"), [("aws", "boto3"), ("oci", "oci"), ("openstack", "openstacksdk"), ("vsphere", "pyvmomi")]
)
def test_sdk_images_have_the_tested_versions(lock: str, package: str) -> None:
    tested, base, found = pins("clouds"), pins("run"), pins(lock)
    assert package in found
    assert package not in base
    for name, version in found.items():
        assert version == base.get(name, version)
        assert version == tested.get(name, version)


@pytest.mark.parametrize("extra", [cloud_sdk.AWS, cloud_sdk.OCI])
def test_missing_sdk_error_refers_to_an_existing_image(extra: cloud_sdk.OptionalSdk) -> None:
    assert extra.extra_name in TARGETS
    assert f"-{extra.extra_name}" in str(extra.missing_error("gone"))


def test_exposed_ports_are_those_that_are_served() -> None:
    [(_, _, ports)] = [instruction for instruction in instructions() if instruction[1] == "EXPOSE"]
    assert set(map(int, ports.split())) == {server.PORT, healthz.PORT, secure_metrics.PORT, registration.PORT}


def sbom() -> dict[str, Any]:
    made = subprocess.run([sys.executable, ROOT / "tools/sbom.py"], check=True, capture_output=True)
    found: dict[str, Any] = json.loads(made.stdout)
    return found


def test_sbom_lists_installed_packages_and_dependencies() -> None:
    found = sbom()
    assert found["metadata"]["component"]["name"] == "haulout"
    names = [item["purl"] for item in found["components"]]
    for name, version in pins("run").items():
        if name != "uvloop" or importlib.util.find_spec("uvloop"):
            assert f"pkg:pypi/{name}@{version}" in names
    needs = {item["ref"].partition("@")[0]: item["dependsOn"] for item in found["dependencies"]}
    assert any(item.startswith("pkg:pypi/msgspec@") for item in needs["pkg:pypi/haulout"])
    assert any(item.startswith("pkg:pypi/yarl@") for item in needs["pkg:pypi/aiohttp"])
    assert {item["name"]: item for item in found["components"]}["aiohttp"]["licenses"]


def test_sbom_is_deterministic() -> None:
    assert sbom() == sbom()


# With a plugin


EXAMPLE = ROOT / "examples" / "plugin-moonphase"
PAGE = ROOT / "docs" / "operations" / "container.md"


def put_locked_packages(build: Build) -> None:
    """Put the locked packages of an image in place without an index: as links to the installed ones."""
    (packages,) = build.path_in_root("/opt/haulout").glob("lib/python*/site-packages")
    for name in pins("run"):
        if name == "uvloop" and not importlib.util.find_spec("uvloop"):
            continue
        files = importlib.metadata.distribution(name).files or []
        for top in {file.parts[0] for file in files} - {"..", "__pycache__"}:
            source = Path(str(importlib.metadata.distribution(name).locate_file(top)))
            if not (packages / top).exists():
                (packages / top).symlink_to(source)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Return the results of the stages of the image, built without an engine and an index."""
    build = Build(tmp_path_factory.mktemp("image"))
    build.stage(ROOT / "Dockerfile", "wheel", context=ROOT, without="requirements/build.txt")
    build.workdir = "/"
    build.stage(ROOT / "Dockerfile", "packages", context=ROOT)
    put_locked_packages(build)
    build.stage(ROOT / "Dockerfile", "base-packages", context=ROOT, without="/requirements/run.txt")
    return build


@pytest.mark.real_time
def test_documented_plugin_image_is_built_and_haulout_finds_the_plugin(image: Build) -> None:
    environment = image.path_in_root("/opt/haulout")
    assert not list(environment.rglob("pip")), "its own pip could install nothing"
    schema = "/opt/haulout/bin/haulout check --schema"
    assert "moonPhase" not in image.run(schema)
    shutil.rmtree(image.path_in_root("/wheel"))
    image.stage(EXAMPLE / "Dockerfile", "packages", context=EXAMPLE)
    assert "moonPhase" in image.run(schema)
    config = (EXAMPLE / "README.md").read_text().split("```yaml\n")[1].split("```")[0]
    image.path_in_root("/plugin/maintenance.yaml").write_text(config)
    image.run("/opt/haulout/bin/haulout check /plugin/maintenance.yaml")
    components = json.loads((environment / "sbom.cdx.json").read_text())["components"]
    assert "pkg:pypi/haulout-moonphase@1.0.0" in [item["purl"] for item in components]
    installed = {item.name for item in environment.glob("lib/python*/site-packages/*")}
    assert {"haulout", "haulout_moonphase"} <= installed, "not links to what is installed here"


def test_plugin_image_is_the_haulout_image_with_other_packages() -> None:
    found = dockerfile.instructions(EXAMPLE / "Dockerfile")
    assert found[-2:] == [
        ("${HAULOUT}", "FROM", "${HAULOUT}"),
        ("${HAULOUT}", "COPY", "--from=packages /opt/haulout /opt/haulout"),
    ]
    defaults = [dict([item.arguments.split("=")]) for item in (*instructions(), *found) if item.keyword == "ARG"]
    assert [item["PYTHON"] for item in defaults if "PYTHON" in item] == ["3.13-slim"] * 2, "the same Python"


def test_container_page_shows_the_tested_dockerfile() -> None:
    recipe = (EXAMPLE / "Dockerfile").read_text()
    assert f"```dockerfile\n{recipe[recipe.index('ARG HAULOUT') :]}```" in PAGE.read_text()
