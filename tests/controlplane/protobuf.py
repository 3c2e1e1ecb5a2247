"""Writes the sandbox's `protobuf.json`: the fields of the built-in kinds in JSON, and their wire format.

    cd tests && python -m controlplane.protobuf > ../sandbox/src/haulout_sandbox/apiserver/serializer/protobuf.json

The `generated.proto` files of the Go modules map numbers to fields; the tags in the Go sources beside them have the
JSON names and `omitempty`. Only these facts are kept, for types that some kind uses; the docstring of
`haulout_sandbox.apiserver.serializer.protobuf` describes the notation.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

VERSION = "v0.36.3"
_MODULES = ("k8s.io/api", "k8s.io/apimachinery", "k8s.io/apiextensions-apiserver")
_FOLDERS = (
    "k8s.io/api/core/v1",
    "k8s.io/api/apps/v1",
    "k8s.io/api/batch/v1",
    "k8s.io/api/policy/v1",
    "k8s.io/api/coordination/v1",
    "k8s.io/api/events/v1",
    "k8s.io/api/rbac/v1",
    "k8s.io/api/scheduling/v1",
    "k8s.io/api/storage/v1",
    "k8s.io/api/authorization/v1",
    "k8s.io/api/authentication/v1",
    "k8s.io/api/admissionregistration/v1",
    "k8s.io/api/discovery/v1",
    "k8s.io/api/networking/v1",
    "k8s.io/api/autoscaling/v1",
    "k8s.io/api/autoscaling/v2",
    "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1",
    "k8s.io/apimachinery/pkg/apis/meta/v1",
    "k8s.io/apimachinery/pkg/api/resource",
    "k8s.io/apimachinery/pkg/runtime",
    "k8s.io/apimachinery/pkg/util/intstr",
)
_SCALARS = {"string", "bytes", "bool", "int32", "int64", "double"}
_VERSION = r"v\d+"
_MESSAGE = re.compile(r"^message (\w+) \{(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^ +(?:(optional|repeated) ([\w.]+)|map<string, ([\w.]+)>) (\w+) = (\d+);", re.MULTILINE)
_STRUCT = re.compile(r"^type (\w+) struct \{(.*?)^\}", re.MULTILINE | re.DOTALL)
_TAGGED = re.compile(r"^\t(?:\w+ +)?(\*?)[^`/\n]*`(.*)`", re.MULTILINE)
_GROUP = re.compile(r'^const GroupName = "(.*)"', re.MULTILINE)


class Tag(NamedTuple):
    """What Go says about a field."""

    name: str
    omits_zero: bool


_UNTAGGED = Tag("-", omits_zero=False)
_SAME_NAME = Tag("*", omits_zero=False)


class Package(NamedTuple):
    """One folder: its messages on the wire, its tags by struct and number, its kinds."""

    messages: dict[str, str]
    tags: dict[str, dict[str, Tag]]
    kinds: dict[str, str]


def main() -> None:
    """Print the facts."""
    packages = {path: _package(path, folder) for path, folder in folders()}
    kinds = {kind: name for package in packages.values() for kind, name in package.kinds.items()}
    messages: dict[str, dict[str, str]] = {}
    missing = ["runtime.Unknown", *kinds.values()]
    while missing:
        name = missing.pop()
        messages[name] = _fields(packages, name)
        used = {field.rpartition(" ")[2].lstrip("[]{}") for field in messages[name].values()}
        missing += sorted(each for each in used if "." in each and each not in messages and each not in missing)
    lines = (f"  {json.dumps(name)}: {json.dumps(messages[name])}" for name in sorted(messages))
    sys.stdout.write(f'{{\n"kinds": {json.dumps(kinds, sort_keys=True, indent=1)},\n"messages": {{\n')
    sys.stdout.write(",\n".join(lines) + "\n}\n}\n")


def folders() -> Iterator[tuple[str, Path]]:
    """Yield the packages that have kinds, or what kinds are made of, and where their sources lie."""
    with TemporaryDirectory() as scratch:
        wanted = "".join(f"require {module} {VERSION}\n" for module in _MODULES)
        Path(scratch, "go.mod").write_text(f"module scratch\ngo 1.26.0\n{wanted}")
        found = subprocess.run(
            ("go", "list", "-mod=mod", "-m", "-f", "{{.Path}} {{.Dir}}", *_MODULES),
            cwd=scratch,
            check=True,
            capture_output=True,
            text=True,
        )
    for line in found.stdout.splitlines():
        module, _, folder = line.partition(" ")
        for path in _FOLDERS:
            if path.startswith(f"{module}/"):
                yield path, Path(folder, path.removeprefix(f"{module}/"))


def _package(path: str, folder: Path) -> Package:
    files = [file for file in sorted(folder.glob("*.go")) if not file.name.endswith(("_test.go", "generated.pb.go"))]
    sources = [file.read_text() for file in files]
    messages = {found[1]: found[2] for found in _MESSAGE.finditer(Path(folder, "generated.proto").read_text())}
    group = next((found[1] for source in sources if (found := _GROUP.search(source))), "")
    version = path.rpartition("/")[2]
    tags: dict[str, dict[str, Tag]] = {}
    kinds = {}
    for name, body in (found.groups() for source in sources for found in _STRUCT.finditer(source)):
        tags[name] = _field_tags(body)
        is_kind = "TypeMeta `" in body and name in messages and not name.endswith("List")
        if is_kind and re.fullmatch(_VERSION, version):
            kinds[f"{group}/{version} {name}" if group else f"{version} {name}"] = f"{short(path)}.{name}"
    return Package(messages, tags, kinds)


def _field_tags(struct: str) -> dict[str, Tag]:
    found = {}
    for pointer, text in (tagged.groups() for tagged in _TAGGED.finditer(struct)):
        tag_values = dict(re.findall(r'(\w+):"([^"]*)"', text))
        _, _, wire_type = tag_values.get("protobuf", "").partition(",")
        if wire_type:
            name, *options = tag_values.get("json", "-").split(",")
            omits_zero = "omitempty" in options and not pointer
            found[wire_type.partition(",")[0]] = Tag("" if "inline" in options else name, omits_zero)
    return found


def short(path: str) -> str:
    """Return `core.v1` for `k8s.io/api/core/v1`; libraries that have no version keep their last name."""
    *_, group, last = path.split("/")
    return f"{group}.{last}" if re.fullmatch(_VERSION, last) else last


def _fields(packages: Mapping[str, Package], name: str) -> dict[str, str]:
    package, _, message = name.rpartition(".")
    path = next(path for path in packages if short(path) == package)
    tags = packages[path].tags.get(message)
    fields = {}
    for encoding, single, mapped, own, number in (
        match_.groups() for match_ in _FIELD.finditer(packages[path].messages[message])
    ):
        kind = _type(path, single or mapped)
        kind = f"[]{kind}" if encoding == "repeated" else f"{{}}{kind}" if mapped else kind
        tag = tags.get(number, _UNTAGGED) if tags is not None else _SAME_NAME
        omits = "?" if tag.omits_zero and kind in _SCALARS else ""
        fields[number] = f"{own if tag.name == '-' else tag.name}{omits} {kind}"
    return fields


def _type(path: str, name: str) -> str:
    if name in _SCALARS:
        return name
    if not name.startswith("."):
        return f"{short(path)}.{name}"
    package, _, message = name.removeprefix(".k8s.io.").rpartition(".")
    return f"{short(package.replace('.', '/'))}.{message}"


if __name__ == "__main__":
    main()
