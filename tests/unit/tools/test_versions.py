"""`haulout.__version__` is the only version: of the built image, in packages and in the documentation."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import haulout
from haulout.api.objects import RawObject
from support.packaging.helm import CHART, DEPLOY, REPOSITORY, only_object, render_chart
from tools.packages.helm.settings import IMAGE
from tools.packages.helm.values import Value
from tools.packages.semver import to_semver
from tools.reference.versions import files, with_version

TAG = haulout.__version__
OPERATOR = f"haulout:{TAG}"
REGISTRY = "registry.example.com"
SDKS = ("aws", "oci", "openstack", "vsphere")
NAMED = re.compile(r"(?:registry\.example(?:\.com)?/|[ `])haulout:([0-9A-Za-z.-]*[0-9A-Za-z])")
PLACEHOLDERS = re.compile(r"TAG(-(aws|oci))?")


def image_tag(target: str) -> str:
    """Return the name that `make image` gives to an image."""
    command = ["make", "--no-print-directory", "--dry-run", "image", f"TARGET={target}", f"REGISTRY={REGISTRY}"]
    environment = {"PATH": "/usr/bin:/bin:/usr/local/bin"}  # without the variables of an enclosing `make`
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=True)
    (build_line,) = (candidate for candidate in done.stdout.splitlines() if " build " in candidate)
    arguments = build_line.split()
    assert arguments[arguments.index("--target") + 1] == target
    return arguments[arguments.index("--tag") + 1]


def images(found: object) -> Iterator[str]:
    """Yield all images in objects."""
    if isinstance(found, dict):
        yield from (item for key, item in found.items() if key in ("image", "containerImage"))
        yield from (name for item in found.values() for name in images(item))
    elif isinstance(found, list):
        yield from (name for item in found for name in images(item))


def loaded(path: Path) -> list[RawObject]:
    return [item for item in yaml.safe_load_all(path.read_text()) if item]


@pytest.mark.real_time
@pytest.mark.parametrize("target", ["base", *SDKS])
def test_chart_pulls_the_image_that_make_builds(target: str) -> None:
    variant = "" if target == "base" else target
    objects = render_chart({"image": {"registry": REGISTRY, "variant": variant}, "agent": {"enabled": True}})
    pulled = {name for obj in objects if obj["kind"] in ("Deployment", "DaemonSet") for name in images(obj)}
    wanted = f"{REGISTRY}/{OPERATOR}-{variant}" if variant else f"{REGISTRY}/{OPERATOR}"
    assert (pulled, image_tag(target)) == ({wanted}, wanted)


def test_dockerfile_has_a_target_for_each_variant_of_the_chart() -> None:
    targets = re.findall(r"^FROM runtime AS (\w+)$", (REPOSITORY / "Dockerfile").read_text(), re.MULTILINE)
    variant = IMAGE.values["variant"]
    assert isinstance(variant, Value)
    assert set(targets) - {"base"} == set(variant.schema["enum"]) - {""} == set(SDKS)


def test_chart_has_the_current_version() -> None:
    (chart,) = loaded(CHART / "Chart.yaml")
    assert (chart["appVersion"], chart["version"]) == (TAG, to_semver(TAG))


@pytest.mark.parametrize("folder", ["manifests", "kustomize", "olm"])
def test_other_packages_refer_to_the_image_that_make_builds(folder: str) -> None:
    found = {name for path in (DEPLOY / folder).rglob("*.yaml") for item in loaded(path) for name in images(item)}
    assert {f"{REGISTRY}/{item}" for item in found} == {image_tag("base")}


def test_kustomize_base_sets_the_current_image_version() -> None:
    (base,) = loaded(DEPLOY / "kustomize" / "base" / "kustomization.yaml")
    assert [f"{image['newName']}:{image['newTag']}" for image in base["images"]] == [OPERATOR]


def test_bundle_has_the_current_version() -> None:
    paths = sorted((DEPLOY / "olm" / "manifests").glob("*.yaml"))
    csv = only_object("ClusterServiceVersion", [item for path in paths for item in loaded(path)])
    assert (csv["metadata"]["name"], csv["spec"]["version"]) == (f"haulout.v{to_semver(TAG)}", to_semver(TAG))


def test_python_package_has_the_current_version() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert REPOSITORY / project["tool"]["hatch"]["version"]["path"] == Path(haulout.__file__)


@pytest.mark.parametrize(
    ("page", "pattern"), [pytest.param(*it, id=it[0].relative_to(REPOSITORY).as_posix()) for it in files(REPOSITORY)]
)
def test_files_refer_to_the_current_version(page: Path, pattern: re.Pattern[str]) -> None:
    """`make reference` writes the version into them."""
    there = {TAG, *(f"{TAG}-{item}" for item in SDKS)}
    named = (found for found in NAMED.findall(page.read_text()) if not PLACEHOLDERS.fullmatch(found))
    assert [item for item in named if item not in there] == []
    assert with_version(page.read_text(), TAG, pattern) == page.read_text(), "run `make reference`"


@pytest.mark.parametrize("name", ["container", "install"])
def test_image_pages_refer_to_the_built_image(name: str) -> None:
    page = (REPOSITORY / "docs" / "operations" / f"{name}.md").read_text()
    assert {image_tag("base"), image_tag("oci")} <= set(re.findall(rf"{REGISTRY}/haulout:[\w.-]+\w", page))


def test_with_version_replaces_only_versions() -> None:
    page = 'x/haulout:0.1.0.dev0-oci, x/haulout:1. newTag: "1"} R/haulout:TAG haulout:8080 haulout: 1.2\n'
    assert with_version(page, "2.0.0rc1") == (
        'x/haulout:2.0.0rc1-oci, x/haulout:2.0.0rc1. newTag: "2.0.0rc1"} R/haulout:TAG haulout:8080 haulout: 1.2\n'
    )
