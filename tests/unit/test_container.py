"""The image, as far as can be told without a container engine: hadolint says the rest."""

import importlib.util
import json
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from haulout.notices.sources import extras
from haulout.web import guarded, health, info, registration

ROOT = Path(__file__).parents[2]
SDKS = ("aws", "oci", "openstack", "vsphere")
TARGETS = {it: f"{it}-packages" for it in ("base", *SDKS)}
PIN = re.compile(r"^([a-z0-9.-]+)==(\S+)", re.MULTILINE)


def instructions() -> list[tuple[str, str, str]]:
    """Return stage, instruction and arguments of each line."""
    text = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
    found, stage = [], ""
    for line in filter(None, (it.partition("#")[0].strip() for it in text.splitlines())):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            stage = rest.rpartition(" AS ")[2]
        found.append((stage, word, rest))
    return found


def stages() -> dict[str, str]:
    """Return what each stage begins with."""
    return {stage: rest.partition(" ")[0] for stage, word, rest in instructions() if word == "FROM"}


def pins(lock: str) -> dict[str, str]:
    return dict(PIN.findall((ROOT / "requirements" / f"{lock}.txt").read_text()))


def is_sent_to_the_engine(path: str) -> bool:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    return any(fnmatch(path, line[1:]) or path.startswith(f"{line[1:]}/") for line in lines if line.startswith("!"))


def test_each_image_is_the_runtime_with_its_own_packages() -> None:
    for target, packages in TARGETS.items():
        assert stages()[target] == "runtime"
        copied = [rest for stage, word, rest in instructions() if (stage, word) == (target, "COPY")]
        assert copied == [f"--from={packages} /opt/haulout /opt/haulout"]
    assert instructions()[-1][0] == "base", "what is made when nobody names a target"


def test_it_runs_as_nobody_in_particular() -> None:
    [(stage, _, user)] = [it for it in instructions() if it[1] == "USER"]
    assert stage == "runtime"
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", user), "a number, so that a cluster can tell that it is not root"


def test_all_that_is_copied_is_there_and_is_sent() -> None:
    for _, word, rest in instructions():
        if word == "COPY" and not rest.startswith("--from="):
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists()
                assert is_sent_to_the_engine(source), f"{source}: .dockerignore keeps it back"
    assert not is_sent_to_the_engine(".git/config")
    assert not is_sent_to_the_engine(".venv/bin/python")


def test_packages_are_wheels_with_hashes() -> None:
    installs = [rest for _, word, rest in instructions() if word == "RUN" and " install " in rest]
    assert len(installs) == len(TARGETS) + 2
    for install in installs:
        is_ours = "--no-index" in install and "/wheel/" in install
        assert is_ours or ("--require-hashes" in install and "--only-binary :all:" in install)


@pytest.mark.parametrize(
    ("lock", "package"), [("aws", "boto3"), ("oci", "oci"), ("openstack", "openstacksdk"), ("vsphere", "pyvmomi")]
)
def test_an_sdk_comes_with_the_versions_that_are_tested(lock: str, package: str) -> None:
    tested, base, found = pins("clouds"), pins("run"), pins(lock)
    assert package in found
    assert package not in base
    for name, version in found.items():
        assert version == base.get(name, version)
        assert version == tested.get(name, version)


@pytest.mark.parametrize("extra", [extras.AWS, extras.OCI])
def test_the_error_of_a_source_without_its_sdk_names_an_image_that_there_is(extra: extras.Extra) -> None:
    assert extra.name in TARGETS
    assert f"-{extra.name}" in str(extra.lacking("gone"))


def test_the_ports_are_those_that_are_served() -> None:
    [(_, _, ports)] = [it for it in instructions() if it[1] == "EXPOSE"]
    assert set(map(int, ports.split())) == {info.PORT, health.PORT, guarded.PORT, registration.PORT}


def bill() -> dict[str, Any]:
    made = subprocess.run([sys.executable, ROOT / "deploy/container/sbom.py"], check=True, capture_output=True)
    found: dict[str, Any] = json.loads(made.stdout)
    return found


def test_the_bill_of_materials_names_what_is_installed_and_what_needs_what() -> None:
    found = bill()
    assert found["metadata"]["component"]["name"] == "haulout"
    names = [it["purl"] for it in found["components"]]
    for name, version in pins("run").items():
        if name != "uvloop" or importlib.util.find_spec("uvloop"):
            assert f"pkg:pypi/{name}@{version}" in names
    needs = {it["ref"].partition("@")[0]: it["dependsOn"] for it in found["dependencies"]}
    assert any(it.startswith("pkg:pypi/msgspec@") for it in needs["pkg:pypi/haulout"])
    assert any(it.startswith("pkg:pypi/yarl@") for it in needs["pkg:pypi/aiohttp"])
    assert {it["name"]: it for it in found["components"]}["aiohttp"]["licenses"]


def test_the_bill_of_the_same_packages_is_the_same() -> None:
    assert bill() == bill()
