"""Settings of the Compute API as an event source."""

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

from haulout.errors import ConfigError
from haulout.providers.gcp.settings import GcpSettings, GoogleEarlyStart, read


def test_gcp_is_disabled_by_default() -> None:
    assert read({}) is None
    assert read({"HAULOUT_GCP": "false", "GOOGLE_APPLICATION_CREDENTIALS": "/none"}) is None


def test_gcp_is_enabled_by_one_variable() -> None:
    assert read({"HAULOUT_GCP": "true"}) == GcpSettings()
    assert read({"HAULOUT_GCP_PROJECTS": "my-project"}) == GcpSettings(projects=("my-project",))


def test_all_gcp_settings_are_read(tmp_path: Path) -> None:
    path = tmp_path / "key.json"
    path.write_text('{"type": "service_account", "client_email": "a@b", "private_key": "k"}')
    found = read(
        {
            "HAULOUT_GCP_PROJECTS": "my-project, example.com:other-1",
            "HAULOUT_GCP_FILTER": "labels.goog-k8s-cluster-name=prod",
            "HAULOUT_GCP_LOOK_EVERY": "2m",
            "HAULOUT_GCP_START": "After-Drain",
            "HAULOUT_GCP_ENDPOINT": "compute.internal.example",
            "GOOGLE_APPLICATION_CREDENTIALS": str(path),
            "GCE_METADATA_HOST": "127.0.0.1:8070",
        }
    )
    assert found == GcpSettings(
        projects=("my-project", "example.com:other-1"),
        filter="labels.goog-k8s-cluster-name=prod",
        poll_interval=timedelta(minutes=2),
        early_start=GoogleEarlyStart.AFTER_DRAIN,
        endpoint="https://compute.internal.example",
        credentials=path,
        metadata="http://127.0.0.1:8070",
    )


def test_oauth_scope_is_read_only_unless_early_start_is_enabled() -> None:
    assert GcpSettings().scope.endswith("/auth/compute.readonly")
    assert GcpSettings(early_start=GoogleEarlyStart.AFTER_DRAIN).scope.endswith("/auth/compute")


@pytest.mark.parametrize(
    ("variables", "key", "message"),
    [
        ({"HAULOUT_GCP": "perhaps"}, "HAULOUT_GCP", "expected true or false"),
        ({"HAULOUT_GCP_PROJECTS": "My Project"}, "HAULOUT_GCP_PROJECTS", "expected ids of projects"),
        ({"HAULOUT_GCP": "1", "HAULOUT_GCP_LOOK_EVERY": "5"}, "HAULOUT_GCP_LOOK_EVERY", "missing unit"),
        ({"HAULOUT_GCP": "1", "HAULOUT_GCP_LOOK_EVERY": "5s"}, "HAULOUT_GCP_LOOK_EVERY", "expected at least 30s"),
        ({"HAULOUT_GCP": "1", "HAULOUT_GCP_START": "now"}, "HAULOUT_GCP_START", "expected after-drain or never"),
        ({"HAULOUT_GCP": "1", "HAULOUT_GCP_ENDPOINT": "a b"}, "HAULOUT_GCP_ENDPOINT", "expected an address"),
        ({"HAULOUT_GCP": "1", "GCE_METADATA_HOST": "a b"}, "GCE_METADATA_HOST", "expected an address"),
        ({"HAULOUT_GCP": "1", "HAULOUT_GCP_FILTER": "a\nb"}, "HAULOUT_GCP_FILTER", "expected an expression"),
        (
            {"HAULOUT_GCP": "1", "GOOGLE_APPLICATION_CREDENTIALS": "/none.json"},
            "GOOGLE_APPLICATION_CREDENTIALS",
            "expected a readable file, found '/none.json'",
        ),
    ],
)
def test_invalid_gcp_settings_are_rejected_with_their_variable(
    variables: Mapping[str, str], key: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        read(variables)
    assert error.value.key == key
