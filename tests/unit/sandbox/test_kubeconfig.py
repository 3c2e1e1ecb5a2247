"""The kubeconfig of a sandbox: whole, private, one at a time, and gone in the end."""

import os
import stat
from pathlib import Path

import pytest
import yaml

from haulout.errors import UsageError
from haulout_sandbox.kubeconfig import KubeContext, context_name, default_path, reserved, write


def write_kubeconfig(path: Path) -> None:
    write(path, KubeContext(server="https://127.0.0.1:6443", token="secret"), ca_pem=b"pem")


def test_it_has_one_context_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    with reserved(path):
        assert not path.exists()
        write_kubeconfig(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        config = yaml.safe_load(path.read_bytes())
        assert config["current-context"] == "sandbox"
        assert config["contexts"] == [{"name": "sandbox", "context": {"cluster": "sandbox", "user": "sandbox"}}]
        assert config["users"] == [{"name": "sandbox", "user": {"token": "secret"}}]
        assert config["clusters"][0]["cluster"]["certificate-authority-data"] == "cGVt"
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_left_behind_when_it_ends_badly(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "kubeconfig"

    def fails() -> None:
        with reserved(path, may_make_folder=True):
            write_kubeconfig(path)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert list(tmp_path.iterdir()) == []


def test_folders_that_others_use_stay(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "kubeconfig"
    with reserved(path, may_make_folder=True):
        (tmp_path / "a" / "other").touch()
    assert [item.name for item in (tmp_path / "a").iterdir()] == ["other"]


def test_a_second_sandbox_names_the_first(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    message = (
        rf"a sandbox is running already \(process {os.getpid()}\), with the kubeconfig {path}; .*--write-kubeconfig"
    )
    with reserved(path):
        write_kubeconfig(path)
        with pytest.raises(UsageError, match=message), reserved(path):
            pass
        assert path.exists()
    with reserved(path):
        pass


def test_one_that_was_left_behind_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path)
    (tmp_path / ".kubeconfig.lock").write_text("1\n")
    with reserved(path):
        write_kubeconfig(path)
    assert list(tmp_path.iterdir()) == []


def test_it_has_a_context_for_each_cluster_and_is_ours_with_all_of_them(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    others = [
        KubeContext(server=f"https://127.0.0.1:{item}", token=f"t{item}", name=context_name("a", f"c{item}"))
        for item in (1, 2)
    ]
    write(path, KubeContext(server="https://127.0.0.1:6443", token="secret"), *others, ca_pem=b"pem")
    config = yaml.safe_load(path.read_bytes())
    assert config["current-context"] == "sandbox"
    assert [item["name"] for item in config["contexts"]] == ["sandbox", "sandbox-a-c1", "sandbox-a-c2"]
    assert config["users"][1] == {"name": "sandbox-a-c1", "user": {"token": "t1"}}
    with reserved(path):
        pass
    assert not path.exists()


@pytest.mark.parametrize("others", [["prod"], ["sandbox", "prod"], ["sandbox-a"], []])
def test_one_with_other_contexts_is_not_ours(tmp_path: Path, others: list[str]) -> None:
    path = tmp_path / "kubeconfig"
    write_kubeconfig(path)
    config = yaml.safe_load(path.read_bytes())
    config["contexts"] = [{"name": item, "context": {"cluster": item}} for item in others]
    config["clusters"] = []
    path.write_text(yaml.safe_dump(config))
    with pytest.raises(UsageError, match="is no kubeconfig of a sandbox"), reserved(path):
        pass


def test_one_that_kubectl_wrote_to_is_still_ours(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    with reserved(path):
        write_kubeconfig(path)
        config = yaml.safe_load(path.read_bytes())
        config["contexts"][0]["context"]["namespace"] = "shop"
        path.write_text(yaml.safe_dump(config))
    assert not path.exists()


def test_an_empty_file_may_be_used(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.touch()
    with reserved(path):
        write_kubeconfig(path)


@pytest.mark.parametrize("content", ["contexts: [{name: prod}]\nclusters: [{name: prod}]\n", "hello", "[", "a: 1"])
def test_a_file_that_is_not_a_sandboxs_is_not_touched(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(UsageError, match="is there already and is no kubeconfig of a sandbox"), reserved(path):
        pass
    assert path.read_text() == content
    assert [item.name for item in tmp_path.iterdir()] == ["config"]


def test_an_unwritable_path_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"there is no folder .*/none; make it, or name another"):
        reserved(tmp_path / "none" / "kubeconfig").__enter__()
    with pytest.raises(UsageError, match=r"cannot write the kubeconfig .*: is a directory; name another"):
        reserved(tmp_path).__enter__()

    def refused(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(UsageError, match=r"cannot write the kubeconfig .*: permission denied; name another file with"):
        reserved(tmp_path / "kubeconfig").__enter__()


def test_its_default_place_is_the_users_cache() -> None:
    assert default_path({"HOME": "/home/ada"}) == Path("/home/ada/.cache/haulout/sandbox.kubeconfig")
    assert default_path({"HOME": "/home/ada", "XDG_CACHE_HOME": "/c"}) == Path("/c/haulout/sandbox.kubeconfig")
