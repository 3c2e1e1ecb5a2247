"""`haulout doctor`: output, repairs and exit codes."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from haulout.cli import connect
from haulout.cli.doctor import leftovers
from haulout.cli.doctor.leftovers import Examination, Finding
from haulout.errors import KubeError
from support.cli.command_runner import RunCommand, command_runner

SINCE = datetime(2026, 1, 5, 9, tzinfo=UTC)


class Cluster:
    """The leftovers of a cluster, and the repaired ones."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.repaired: list[str] = []

    def leave(self, name: str, *, error: str = "", since: datetime | None = None) -> None:
        """Add a leftover; its repair fails with `error`."""

        async def repair() -> None:
            if error:
                raise KubeError(error)
            self.repaired.append(name)

        finding = Finding(
            object_name=f"node {name}", problem="held for nobody", remedy="frees it", since=since, repair=repair
        )
        self.findings.append(finding)

    async def examine(self, _: object, *, namespace: str | None) -> Examination:
        """Stand in for the examination of a cluster."""
        assert namespace is None
        return Examination(tuple(self.findings), tuple(self.notes))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Connect all commands to a cluster without leftovers."""

    @asynccontextmanager
    async def connected(**_: Any) -> AsyncIterator[SimpleNamespace]:
        yield SimpleNamespace(client=None)

    found = Cluster()
    monkeypatch.setattr(connect, "connect", connected)
    monkeypatch.setattr(leftovers, "examine", found.examine)
    return found


@pytest.fixture
def haulout(capsys: pytest.CaptureFixture[str]) -> RunCommand:
    return command_runner(capsys)


def test_doctor_reports_when_there_are_no_leftovers(cluster: Cluster, haulout: RunCommand) -> None:
    assert haulout("doctor") == (0, "No leftovers found.\n", "")
    assert haulout("doctor", "--repair", "--yes") == (0, "No leftovers found.\n", "")
    assert cluster.repaired == []


def test_doctor_lists_leftovers_without_changing_anything(cluster: Cluster, haulout: RunCommand) -> None:
    cluster.leave("n1", since=SINCE)
    cluster.leave("n2\x1b[2J")
    code, out, err = haulout("doctor")
    assert (code, err, cluster.repaired) == (1, "", [])
    head, *rows = (it.split("  ") for it in out.splitlines())
    assert head[0] == "OBJECT"
    assert [[cell.strip() for cell in row if cell] for row in rows] == [
        ["node n1", "held for nobody", "2026-01-05 09:00:00 UTC", "frees it"],
        ["node n2\\x1b[2J", "held for nobody", "unknown", "frees it"],
    ]


def test_repair_continues_after_a_failure(cluster: Cluster, haulout: RunCommand) -> None:
    for name, error in (("n1", ""), ("n2", "nodes n2 is forbidden"), ("n3", "")):
        cluster.leave(name, error=error)
    code, out, err = haulout("doctor", "--repair", "--yes")
    assert (code, cluster.repaired) == (1, ["n1", "n3"])
    assert out.splitlines()[-2:] == ["node n1 repaired", "node n3 repaired"]
    assert err == "error: node n2: nodes n2 is forbidden\n"


def test_repair_of_all_leftovers_exits_zero(cluster: Cluster, haulout: RunCommand) -> None:
    cluster.leave("n1")
    assert haulout("doctor", "--repair", "--yes").code == 0


def test_unchecked_parts_are_reported_and_exit_one(cluster: Cluster, haulout: RunCommand) -> None:
    cluster.notes.append("budget slots were not checked: forbidden")
    assert haulout("doctor") == (
        1,
        "No leftovers found.\n",
        "not checked: budget slots were not checked: forbidden\n",
    )


@pytest.mark.parametrize(
    ("options", "repaired"), [((), [None, None]), (("--repair", "--yes"), [True, False])], ids=["shown", "repaired"]
)
def test_json_lists_findings_and_repairs(
    cluster: Cluster, haulout: RunCommand, options: tuple[str, ...], repaired: list[bool | None]
) -> None:
    cluster.leave("n1", since=SINCE)
    cluster.leave("n2", error="no")
    cluster.notes.append("leases")
    code, out, err = haulout("doctor", "-o", "json", *options)
    document = json.loads(out)
    assert (code, err, document["notChecked"]) == (1, "", ["leases"])
    assert document["findings"][0] == {
        "object": "node n1",
        "problem": "held for nobody",
        "since": "2026-01-05T09:00:00+00:00",
        "remedy": "frees it",
        "repaired": repaired[0],
        "error": "",
    }
    assert [it["repaired"] for it in document["findings"]] == repaired
    assert document["findings"][1]["error"] == ("no" if options else "")


@pytest.mark.parametrize("options", [("--yes",), ("--repair",), ("--repair", "-o", "json")])
def test_repair_without_confirmation_is_refused_when_there_is_no_terminal(
    cluster: Cluster, haulout: RunCommand, options: tuple[str, ...]
) -> None:
    cluster.leave("n1")
    code, out, _ = haulout("doctor", *options)
    assert (code, out, cluster.repaired) == (2, "", [])


@pytest.mark.parametrize(("answer", "code", "repaired"), [("y", 0, ["n1"]), ("n", 130, []), ("", 130, [])])
def test_repair_on_a_terminal_requires_confirmation(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, haulout: RunCommand, answer: str, code: int, repaired: list[str]
) -> None:
    cluster.leave("n1")
    with CliRunner().isolation(input=f"{answer}\n"):
        monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
        outcome = haulout("doctor", "--repair")
    assert (outcome.code, cluster.repaired) == (code, repaired)
