"""The memory limit of a container, as either version of control groups writes it."""

from pathlib import Path

import pytest

from haulout.core.memory import memory_limit

MIB = 1 << 20


def limit_of(folder: Path, groups: str, files: dict[str, str]) -> int | None:
    (folder / "cgroup").write_text(groups)
    for name, content in files.items():
        file = folder / "fs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    return memory_limit(proc=folder / "cgroup", root=folder / "fs")


V1 = "5:devices:/\n4:memory:/kubepods/pod1\n0::/\n"


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        pytest.param("0::/\n", {"memory.max": f"{400 * MIB}\n"}, 400 * MIB, id="v2, in a container"),
        pytest.param("0::/\n", {"memory.max": "max\n"}, None, id="v2, without a limit"),
        pytest.param(
            "0::/pods/a\n", {"pods/a/memory.max": "max", "pods/memory.max": "900"}, 900, id="v2, of an ancestor"
        ),
        pytest.param(
            "0::/pods/a\n", {"pods/a/memory.max": "500", "pods/memory.max": "900"}, 500, id="v2, the smallest"
        ),
        pytest.param(V1, {"memory/kubepods/pod1/memory.limit_in_bytes": "700\n"}, 700, id="v1"),
        pytest.param(V1, {"memory/memory.limit_in_bytes": "700\n"}, 700, id="v1, in a container"),
        pytest.param(V1, {"memory/memory.limit_in_bytes": "9223372036854771712"}, None, id="v1, without a limit"),
        pytest.param("0::/\n", {}, None, id="no files"),
        pytest.param("nonsense\n", {"memory.max": "x"}, None, id="nonsense"),
    ],
)
def test_memory_limit_is_the_smallest_limit_of_all_ancestors(
    groups: str, files: dict[str, str], expected: int | None, tmp_path: Path
) -> None:
    assert limit_of(tmp_path, groups, files) == expected


def test_memory_limit_without_control_groups_is_none(tmp_path: Path) -> None:
    assert memory_limit(proc=tmp_path / "none", root=tmp_path) is None
