"""kubernikus.yaml is read as by the SAP maintenance-controller, and all errors are reported with their line."""

import asyncio
import json
from datetime import timedelta
from pathlib import Path

import pytest

from haulout.controllers.kubernikus.settings import KubernikusSettings, SecretKey
from haulout.controllers.kubernikus.settings_file import KubernikusFile, read
from haulout.core.clock import Clock
from haulout.drain.policy import DrainPolicy
from haulout.errors import ConfigErrors
from support.cli.command_runner import RunCommand, command_runner

FILE = """\
intervals:
  requeue: 30s
  podDeletion:
    period: 5s
    timeout: 2m
  podEviction:
    period: 20s
    timeout: 5m
    force: true
cloudProviderSecret:
  name: ${SECRET}
  namespace: kube-system
"""
GENTLE = "intervals: {requeue: 60, podDeletion: {period: 5, timeout: 2m}, podEviction: {period: 20s, timeout: 5m}}\n"


@pytest.fixture
def haulout(capsys: pytest.CaptureFixture[str]) -> RunCommand:
    return command_runner(capsys)


def settings(text: str, **environ: str) -> KubernikusSettings:
    return read(text, file="kubernikus.yaml", environ=environ).configuration


def test_kubernikus_settings_have_interval_drain_policy_and_secret() -> None:
    assert settings(FILE, SECRET="cloud") == KubernikusSettings(
        interval=timedelta(seconds=30),
        policy=DrainPolicy.like_smc(eviction_timeout=timedelta(minutes=5), deletion_timeout=timedelta(minutes=2)),
        secret=SecretKey(namespace="kube-system", name="cloud"),
    )


def test_timeouts_are_ignored_without_force_and_numbers_are_seconds() -> None:
    assert settings(GENTLE) == KubernikusSettings(
        interval=timedelta(minutes=1), policy=DrainPolicy.like_smc(), secret=None
    )


@pytest.mark.parametrize("missing", ["requeue", "podDeletion", "podEviction"])
def test_fields_required_by_the_sap_controller_are_required(missing: str) -> None:
    given = {"requeue": "30s", "podDeletion": {"period": "1s", "timeout": "1s"}}
    given["podEviction"] = given["podDeletion"]
    del given[missing]
    with pytest.raises(ConfigErrors, match=f"intervals.{missing}"):
        settings(json.dumps({"intervals": given}))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "intervals.requeue: expected a duration such as 90s, 5m or 1h30m, found nothing"),
        (GENTLE.replace("60", "soon"), "kubernikus.yaml:1: intervals.requeue: expected a duration"),
        (GENTLE.replace("60", "0"), "kubernikus.yaml:1: intervals.requeue: expected a duration .* other than zero"),
        (FILE, "kubernikus.yaml:11: cloudProviderSecret.name: .*SECRET"),
        (
            FILE.replace("force: true", "force: 'yes'"),
            "kubernikus.yaml:9: intervals.podEviction.force: expected true or",
        ),
        ("intervals: [", "kubernikus.yaml:2: expected YAML"),
    ],
)
def test_invalid_kubernikus_settings_are_reported_with_line_and_key(text: str, problem: str) -> None:
    with pytest.raises(ConfigErrors, match=problem):
        settings(text)


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        (GENTLE + "cloudProviderSecret: {name: a}\n", "cloudProviderSecret.namespace: expected both"),
        (GENTLE + "cloudProviderSecrets: {}\n", "did you mean cloudProviderSecret?"),
        (GENTLE.replace("60", "10ms"), "shorter than the minimum of 1s"),
    ],
)
def test_probable_mistakes_cause_warnings(text: str, warning: str) -> None:
    loaded = read(text, file="kubernikus.yaml", environ={})
    assert [it for it in map(str, loaded.warnings) if warning in it]
    assert loaded.configuration.secret is None
    assert loaded.configuration.interval >= timedelta(seconds=1)


async def test_valid_edits_are_applied_and_invalid_ones_keep_the_settings(
    clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "kubernikus.yaml"
    path.write_text(GENTLE)
    file, used = KubernikusFile(path, environ={}, clock=clock), list[KubernikusSettings]()
    async with asyncio.TaskGroup() as group:
        following = group.create_task(file.watch(used.append))
        await edited(path, GENTLE.replace("60", "soon"), clock)
        assert (used, file.settings.interval) == ([], timedelta(minutes=1))
        assert "intervals.requeue" in str(file.problem)
        assert "the last valid version stays in force" in caplog.text
        await edited(path, GENTLE.replace("60", "90"), clock)
        following.cancel()
    assert [it.interval for it in used] == [timedelta(seconds=90)]
    assert file.problem is None


async def edited(path: Path, text: str, clock: Clock) -> None:
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").replace(path)
    await clock.sleep(timedelta(seconds=3))


def test_haulout_check_explains_kubernikus_settings(haulout: RunCommand, tmp_path: Path) -> None:
    path = tmp_path / "kubernikus.yaml"
    path.write_text(FILE)
    found = haulout("check", str(path), "--env", "SECRET=cloud")
    assert found.code == 0
    assert "cloudprovider.conf of Secret kube-system/cloud" in found.out
    assert "could not be evicted for 5m0s is deleted" in found.out
    path.write_text(GENTLE)
    assert "PodDisruptionBudgets are respected" in haulout("check", str(path)).out
    path.write_text("intervals: {requeue: soon}\n")
    broken = haulout("check", "-o", "json", str(path))
    assert broken.code == 2
    assert {it["key"] for it in json.loads(broken.out)["errors"]} >= {"intervals.requeue"}


def test_missing_kubernikus_file_is_an_error_at_the_start(haulout: RunCommand, tmp_path: Path) -> None:
    found = haulout("run", "--kubernikus", str(tmp_path / "none.yaml"))
    assert found.code == 2
    assert "none.yaml: cannot read the file: no such file" in found.err
