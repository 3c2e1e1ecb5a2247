"""Writes the sandbox's `gotypes.json`: the Go types that the built-in kinds are decoded into and validated as.

    cd tests && python -m controlplane.gotypes > ../sandbox/src/haulout_sandbox/apiserver/gotypes.json

The real server names Go types where a value does not fit its field, and prints its internal types where a value is
wrong; both are seen by users. Only names and types of fields are kept, of types that some kind uses; the docstring of
`haulout_sandbox.apiserver.gotypes` tells how they are noted.
"""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, TypeVar

from controlplane.build import KUBERNETES
from controlplane.protobuf import folders, short

_KUBERNETES = "k8s.io/kubernetes"
_MORE_FOLDERS = ("k8s.io/api/node/v1",)  # of a kind that nobody sends as protobuf
_MORE_KINDS = {"node.k8s.io/v1 RuntimeClass": "node.v1.RuntimeClass"}
_INTERNAL = ("core", "apps", "batch", "policy", "rbac")
_SHOWN = (  # the internal types that errors print
    "core.PodSpec",
    "core.PodTemplateSpec",
    "core.PodAffinityTerm",
    "core.Taint",
    "core.NodeAddress",
    "core.ServicePort",
    "core.ObjectReference",
    "core.EventSource",
    "core.PersistentVolumeClaimSpec",
    "core.PersistentVolumeSource",
    "core.PodIP",
    "core.HostIP",
    "apps.DeploymentStrategy",
    "apps.DaemonSetUpdateStrategy",
    "apps.StatefulSetUpdateStrategy",
    "batch.PodFailurePolicy",
    "batch.SuccessPolicy",
    "batch.UncountedTerminatedPods",
    "policy.PodDisruptionBudgetSpec",
    "rbac.RoleRef",
)
_HAVE_JSON = ("meta", "resource", "intstr", "types", "runtime")  # packages whose types say themselves how they print
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_STRUCT = re.compile(r"^type (\w+) struct \{(.*?)^\}", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"^type (\w+) (string|int|int32|int64|\[\]\S+|map\[\S+)$", re.MULTILINE)
_IMPORT = re.compile(r'^\s*(?:(\w+) )?"(k8s\.io[^"]*)"', re.MULTILINE)
_FIELD = re.compile(r"^\t(?:(\w+)\s+)?(\*?(?:\[\]|map\[[\w.]+\])*\*?[\w.]+)(?:\s+`(.*)`)?\s*$", re.MULTILINE)
_JSON = re.compile(r'json:"([^"]*)"')
_TYPE = re.compile(r"[\w.]+")
_WORDS = {"map", "string", "bool", "int", "int32", "int64", "uint8", "float64", "byte", "interface"}


Facts = TypeVar("Facts", dict[str, str] | str, list[str] | str)


class Field(NamedTuple):
    """A field as Go has it; `name` is empty for what is embedded."""

    name: str
    type: str
    tag: str


class Package(NamedTuple):
    """What one folder declares."""

    structs: dict[str, list[Field]]
    named: dict[str, str]


def main() -> None:
    """Print the facts."""
    packages = {short(path): _package(short(path), folder) for path, folder in folders(*_MORE_FOLDERS)}
    kinds = json.loads(
        Path(__file__, "../../../sandbox/src/haulout_sandbox/apiserver/protobuf.json").resolve().read_text()
    )
    kinds["kinds"] |= _MORE_KINDS
    external: dict[str, dict[str, str] | str] = {}
    _collect(sorted(kinds["kinds"].values()), lambda name: _external(packages, name), external)
    internal_packages = packages | {name: _package(name, _internal_folder(name)) for name in _INTERNAL}
    internal: dict[str, list[str] | str] = {}
    _collect(list(_SHOWN), lambda name: _internal(internal_packages, name), internal)
    parts = (("kinds", kinds["kinds"]), ("types", external), ("internal", internal))
    sys.stdout.write("{\n" + ",\n".join(_written(name, facts) for name, facts in parts) + "\n}\n")


def _written(name: str, facts: Mapping[str, object]) -> str:
    lines = (f"  {json.dumps(each)}: {json.dumps(facts[each])}" for each in sorted(facts))
    return f"{json.dumps(name)}: {{\n" + ",\n".join(lines) + "\n}"


def _internal_folder(name: str) -> Path:
    command = ("go", "mod", "download", "-json", f"{_KUBERNETES}@{KUBERNETES}")
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return Path(json.loads(told)["Dir"], "pkg", "apis", name)


def _package(name: str, folder: Path) -> Package:
    structs: dict[str, list[Field]] = {}
    named: dict[str, str] = {}
    for file in sorted(folder.glob("*.go")):
        if file.name.endswith(("_test.go", "generated.pb.go")):
            continue
        source = _COMMENTS.sub("", file.read_text())
        imports = {alias or path.rpartition("/")[2]: short(path) for alias, path in _IMPORT.findall(source)}
        for struct, body in _STRUCT.findall(source):
            structs[struct] = [
                Field(field, _qualified(kind, name, imports), tag) for field, kind, tag in _FIELD.findall(body)
            ]
        named |= {each: _qualified(kind, name, imports) for each, kind in _NAMED.findall(source)}
    return Package(structs, named)


def _qualified(kind: str, package: str, imports: Mapping[str, str]) -> str:
    """Return a type with the full names of those it is made of: `[]core.v1.Container`."""

    def full(found: re.Match[str]) -> str:
        word = found[0]
        if word in _WORDS:
            return "uint8" if word == "byte" else word
        alias, dot, own = word.rpartition(".")
        return f"{imports.get(alias, alias)}.{own}" if dot else f"{package}.{own}"

    return _TYPE.sub(full, kind)


def _collect(missing: list[str], read: Callable[[str], Facts | None], into: dict[str, Facts]) -> None:
    while missing:
        name = missing.pop()
        facts = read(name)
        if facts is None:
            continue
        into[name] = facts
        told = facts if isinstance(facts, str) else " ".join(facts.values() if isinstance(facts, dict) else facts)
        used = {each for each in _TYPE.findall(told) if "." in each}
        missing += sorted(each for each in used if each not in into and each not in missing)


def _external(packages: Mapping[str, Package], name: str) -> dict[str, str] | str | None:
    package, _, own = name.rpartition(".")
    if package not in packages:
        return "string" if name == "types.UID" else None
    if own in packages[package].named:
        return packages[package].named[own]
    fields: dict[str, str] = {}
    for field in packages[package].structs.get(own, ()):
        json_name, *options = (found[1] if (found := _JSON.search(field.tag)) else "").split(",")
        kind = field.type.lstrip("*")
        if "inline" in options or (not field.name and not json_name):
            inner = _external(packages, kind)
            held = kind.rpartition(".")[2]
            fields |= (
                {name: f"{held}.{told}" if " " in told else f"{held} {told}" for name, told in inner.items()}
                if isinstance(inner, dict)
                else {}
            )
        elif json_name and json_name != "-":
            fields[json_name] = kind
    return fields


def _internal(packages: Mapping[str, Package], name: str) -> list[str] | str | None:
    package, _, own = name.rpartition(".")
    if package not in packages or package.partition(".")[0] in _HAVE_JSON:
        return None
    if own in packages[package].named:
        return packages[package].named[own]
    names = _json_names(packages, package, own)
    fields: list[str] = []
    for field in packages[package].structs.get(own, ()):
        if field.name:
            fields.append(f"{field.name} {names.get(field.name.lower(), _lowered(field.name))} {field.type}")
        elif field.type.startswith(f"{package}."):
            inner = _internal(packages, field.type)
            fields += inner if isinstance(inner, list) else []
        else:
            fields.append(f"* metadata {field.type}")
    return fields


def _json_names(packages: Mapping[str, Package], package: str, own: str) -> dict[str, str]:
    public = f"{package}.v1.{own}"
    found = _external(packages, public) if f"{package}.v1" in packages else {}
    return {name.lower(): name for name in found} if isinstance(found, dict) else {}


def _lowered(name: str) -> str:
    return name[:1].lower() + name[1:]


if __name__ == "__main__":
    main()
