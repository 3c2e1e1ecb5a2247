"""`haulout oci send-event`: the notice that it predicts, and the delivery to the stream."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from haulout.core.clock import Clock
from haulout_sandbox.clouds.oci import OciCloud
from haulout_sandbox.clouds.oci.cloud import STREAM
from haulout_sandbox.clouds.oci.server import serve
from support.cli.command_runner import RunCommand, command_runner
from support.clouds.oci_config_file import a_config_file
from support.clouds.oci_events import EVENT, INSTANCE, STARTED, envelope

NOTICE_SUMMARY = f"""\
The operator will create or update notice oci-{EVENT} with:
  instance  {INSTANCE}
  stage     Scheduled
  kind      Reboot (HARDWARE_REPLACEMENT)
  start     2026-04-16 02:00:00 UTC, not before
  deadline  2026-04-17 02:00:00 UTC
  end       2026-04-17 04:00:00 UTC, expected
"""


@pytest.fixture
def haulout(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> RunCommand:
    """Return a way to run a command line, in an empty folder and without a stream."""
    monkeypatch.chdir(tmp_path)
    for name in ("WD_STREAM_OCID", "WD_STREAM_ID", "WD_STREAM_ENDPOINT", "HAULOUT_OCI_COMPARTMENTS"):
        monkeypatch.delenv(name, raising=False)
    return command_runner(capsys)


def write(document: object) -> str:
    Path("event.json").write_text(json.dumps(document))
    return "event.json"


def test_send_event_prints_the_notice_that_the_operator_would_write(haulout: RunCommand) -> None:
    assert haulout("oci", "send-event", "--dry-run", write(envelope())) == (0, NOTICE_SUMMARY, "")
    code, output, _ = haulout("oci", "send-event", "--dry-run", write(envelope(STARTED, timeWindowStart=None)))
    assert (code, output.splitlines()[2:]) == (0, ["  stage     Started", "  start     now"])


def test_send_event_reports_an_event_that_is_not_about_maintenance(haulout: RunCommand) -> None:
    code, output, _ = haulout("oci", "send-event", "--dry-run", write({"eventType": "other"}))
    assert (code, output.startswith("This event is not about maintenance")) == (0, True)


def test_invalid_event_is_not_sent(haulout: RunCommand) -> None:
    code, _, error = haulout("oci", "send-event", write(envelope(instanceId="")))
    assert code == 2
    assert error == "haulout: event.json: data.additionalDetails.instanceId: expected an OCID, found ''\n"


def test_missing_stream_configuration_is_reported_with_a_remedy(haulout: RunCommand) -> None:
    code, _, error = haulout("oci", "send-event", write(envelope()))
    assert code == 2
    assert "set WD_STREAM_OCID and WD_STREAM_ENDPOINT" in error


@pytest.mark.real_time
async def test_send_event_publishes_the_event_to_the_stream(clock: Clock, tmp_path: Path) -> None:
    pytest.importorskip("oci")
    cloud = OciCloud(clock)
    event = tmp_path / "event.json"
    event.write_text(json.dumps(envelope()))
    async with serve(cloud, host="127.0.0.1") as port:
        environment = {
            "PYTHONPATH": ":".join(sys.path),
            "WD_STREAM_ID": STREAM,
            "WD_STREAM_ENDPOINT": f"http://127.0.0.1:{port}",
            "HAULOUT_OCI_AUTH": "config-file",
            "HAULOUT_OCI_CONFIG_FILE": str(a_config_file(tmp_path)),
        }
        command = [sys.executable, "-m", "haulout", "oci", "send-event", str(event)]
        done = await asyncio.to_thread(
            subprocess.run, command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{NOTICE_SUMMARY}Sent to {STREAM}: partition 0, offset 0.\n"
    found, _ = cloud.stream.get_messages(
        cloud.stream.create_group_cursor({"type": "TRIM_HORIZON", "groupName": "g", "instanceName": "i"}), 10
    )
    assert len(found) == 1
