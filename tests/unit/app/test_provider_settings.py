"""The clouds that environment variables enable."""

import sys
from collections.abc import Mapping

import pytest

from haulout.app.components import cloud_types
from haulout.app.provider_settings import read_environment
from haulout.cli import main
from haulout.errors import ConfigError

STREAM = "ocid1.stream.oc1.eu-frankfurt-1.examplestream"
ENDPOINT = "https://cell-1.streaming.eu-frankfurt-1.oci.oraclecloud.com"
HANDLERS = {"WD_STREAM_ID": STREAM, "WD_STREAM_ENDPOINT": ENDPOINT, "WD_NODEPOOL": "pool1", "WD_NAMESPACE": "wd"}
QUEUE = "https://sqs.eu-west-1.amazonaws.com/123456789012/nth"


@pytest.fixture(autouse=True)
def _with_both_sdks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make both SDKs appear installed; none is imported here."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name in ("oci", "boto3") else None)


def test_no_cloud_is_enabled_by_default() -> None:
    found = read_environment({"PATH": "/bin", "AWS_REGION": "eu-west-1"})
    assert (found.sources, found.ignored, list(found.describe())) == ((), (), [])


def test_config_map_of_the_oci_handler_is_sufficient_and_ignored_keys_are_named() -> None:
    found = read_environment(HANDLERS)
    assert list(found.describe()) == [
        f"OCI events come from stream {STREAM}; authentication: instance-principal",
        "OCI: maintenance that the handler planned in namespace wd is adopted",
    ]
    assert [it.partition(" ")[0] for it in found.ignored] == ["WD_NODEPOOL"]


def test_variables_of_nth_are_sufficient_and_ignored_ones_are_named() -> None:
    found = read_environment({"QUEUE_URL": QUEUE, "CORDON_ONLY": "true"})
    assert list(found.describe()) == [
        f"AWS events come from EC2, and queue {QUEUE}; credentials: the default chain of boto3"
    ]
    assert found.ignored == ("CORDON_ONLY has no effect: the profile sets what is done for a notice, and when",)


def test_google_cloud_needs_no_sdk_and_its_configuration_is_described() -> None:
    assert list(read_environment({"HAULOUT_GCP": "true"}).describe()) == [
        "Google Cloud events come from Compute Engine of the projects of the nodes; credentials: the metadata server"
    ]
    found = read_environment({"HAULOUT_GCP_PROJECTS": "my-project", "HAULOUT_GCP_START": "after-drain"})
    (line,) = found.describe()
    assert "Compute Engine of my-project;" in line
    assert line.endswith("; maintenance begins once its node is empty")
    assert found.ignored == ()


def test_gke_label_events_are_enabled_by_a_variable() -> None:
    assert list(read_environment({"HAULOUT_GKE": "true"}).describe()) == ["GKE events come from labels of nodes"]
    found = read_environment({"HAULOUT_GKE": "true", "HAULOUT_GKE_START": "after-drain"})
    assert list(found.describe()) == ["GKE events come from labels of nodes; maintenance begins once its node is empty"]
    (useless,) = read_environment({"HAULOUT_GKE_START": "after-drain"}).ignored
    assert useless == "HAULOUT_GKE_START has no effect: GKE events are only received with HAULOUT_GKE"
    with pytest.raises(ConfigError, match="HAULOUT_GKE_START: expected after-drain or never, found 'now'"):
        read_environment({"HAULOUT_GKE": "true", "HAULOUT_GKE_START": "now"})


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        pytest.param(
            {"HAULOUT_OCI_COMPARTMENT": "ocid1.compartment.oc1..a"},
            "HAULOUT_OCI_COMPARTMENT has no effect: there is no such variable; did you mean HAULOUT_OCI_COMPARTMENTS?",
            id="spelled wrong",
        ),
        pytest.param(
            {"WD_STREAM_ENDPOINT": ENDPOINT, "HAULOUT_OCI_AUTH": "config-file"},
            "WD_STREAM_ENDPOINT, HAULOUT_OCI_AUTH has no effect: "
            "OCI events are only received with WD_STREAM_OCID or HAULOUT_OCI_COMPARTMENTS",
            id="no stream",
        ),
        pytest.param(
            {"HAULOUT_AWS_LOOK_EVERY": "1m"},
            "HAULOUT_AWS_LOOK_EVERY has no effect: "
            "AWS events are only received with QUEUE_URL, HAULOUT_AWS_SECRET or HAULOUT_AWS",
            id="AWS is off",
        ),
        pytest.param(
            {"HAULOUT_GCP_LOOK_EVERY": "1m"},
            "HAULOUT_GCP_LOOK_EVERY has no effect: "
            "Google Cloud events are only received with HAULOUT_GCP or HAULOUT_GCP_PROJECTS",
            id="Google Cloud is off",
        ),
        pytest.param(
            {"HAULOUT_GCP": "true", "HAULOUT_GCP_PROJECT": "my-project"},
            "HAULOUT_GCP_PROJECT has no effect: there is no such variable; did you mean HAULOUT_GCP_PROJECTS?",
            id="one project",
        ),
    ],
)
def test_variables_that_enable_no_cloud_are_reported(environ: Mapping[str, str], message: str) -> None:
    assert read_environment(environ).ignored == (message,)


def test_explicitly_disabled_clouds_cause_no_report() -> None:
    assert read_environment({"HAULOUT_AWS": "false", "HAULOUT_GCP": "false"}).ignored == ()


@pytest.mark.parametrize(
    ("environ", "key"),
    [
        pytest.param({"WD_STREAM_OCID": "mine", "WD_STREAM_ENDPOINT": ENDPOINT}, "WD_STREAM_OCID", id="no OCID"),
        pytest.param({"WD_STREAM_OCID": STREAM}, "WD_STREAM_ENDPOINT", id="no endpoint"),
        pytest.param(
            {"WD_STREAM_OCID": STREAM, "WD_STREAM_ENDPOINT": "http://["}, "WD_STREAM_ENDPOINT", id="no address"
        ),
        pytest.param({**HANDLERS, "WD_NAMESPACE": "a b"}, "WD_NAMESPACE", id="no name"),
        pytest.param({"QUEUE_URL": "my queue"}, "QUEUE_URL", id="no queue"),
        pytest.param({"QUEUE_URL": "https://[::1/q"}, "QUEUE_URL", id="a bracket"),
        pytest.param({"HAULOUT_AWS": "1", "AWS_ENDPOINT": "http://x:y"}, "AWS_ENDPOINT", id="no port"),
        pytest.param({"HAULOUT_AWS": "perhaps"}, "HAULOUT_AWS", id="no answer"),
        pytest.param({"HAULOUT_GCP_PROJECTS": "My Project"}, "HAULOUT_GCP_PROJECTS", id="no project"),
        pytest.param(
            {"HAULOUT_GCP": "1", "GOOGLE_APPLICATION_CREDENTIALS": "/none"},
            "GOOGLE_APPLICATION_CREDENTIALS",
            id="no file",
        ),
        pytest.param({"HAULOUT_AWS_SECRET": "keys"}, "HAULOUT_AWS_SECRET", id="no namespace"),
    ],
)
def test_invalid_provider_variable_ends_the_operator_at_the_start(
    environ: Mapping[str, str], key: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ConfigError) as error:
        read_environment(environ)
    assert error.value.key == key
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as exited:
        main(["run", "--kubeconfig", "/dev/null"])
    assert exited.value.code == 2
    assert f"environment: {key}: expected" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("environ", "extra"),
    [pytest.param(HANDLERS, "oci", id="OCI"), pytest.param({"HAULOUT_AWS": "true"}, "aws", id="AWS")],
)
def test_missing_sdk_is_an_error_with_the_package_to_install(
    environ: Mapping[str, str], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigError, match=rf"pip install 'haulout\[{extra}\]', or the image with the tag -{extra} "):
        read_environment(environ)


def test_no_sdk_is_imported_before_an_event_source_is_created() -> None:
    before = set(sys.modules)
    found = read_environment({**HANDLERS, "HAULOUT_AWS": "true", "HAULOUT_GCP": "true"})
    assert [it.source_name for it in found.sources] == ["oci", "aws", "gcp"]
    assert not {"oci", "boto3", "haulout.providers.gcp.compute_event_source"} & (set(sys.modules) - before)


def test_help_names_the_variables_that_enable_a_cloud(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    lines = [line for line in capsys.readouterr().out.splitlines() if "read maintenance events of" in line]
    assert len(lines) == len(cloud_types())
    for line, kind in zip(lines, cloud_types(), strict=True):
        assert line.startswith(f"    {', '.join(kind.enabling_variables)}, and others ")
        assert line.endswith(kind.cloud)
