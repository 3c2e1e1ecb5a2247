"""From flags and environment to the operator's settings."""

from typing import Any

import pytest

from haulout.cli import main
from haulout.cli.run import cluster_mode, management_mode
from haulout.cli.run.cluster_mode import OperatorOptions
from haulout.kube.transports.config import IN_CLUSTER, Connection
from haulout.kube.transports.credentials import ANONYMOUS


@pytest.mark.parametrize(
    ("flag", "context", "expected"),
    [("prod", "admin@prod", "prod"), (None, "admin@prod", "admin@prod"), (None, IN_CLUSTER, "")],
)
def test_cluster_name_defaults_to_the_context(flag: str | None, context: str, expected: str) -> None:
    connection = Connection(server="https://there", context=context, source="", user="", credentials=ANONYMOUS)
    options = OperatorOptions(
        namespace=None, webhook="off", health_port=None, metrics=None, guards_quorum=True, cluster=flag
    )

    assert options.settings(connection).cluster == expected


@pytest.mark.parametrize(("typed", "used"), [((), "of-the-environment"), (("--context", "typed"), "typed")])
@pytest.mark.parametrize("mode", ["cluster", "management"])
def test_context_flag_overrides_the_environment(
    mode: str, typed: tuple[str, ...], used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[dict[str, Any]] = []
    monkeypatch.setenv("KUBECONTEXT", "of-the-environment")
    monkeypatch.setattr(cluster_mode, "run_operator_process", lambda _, **arguments: started.append(arguments))
    monkeypatch.setattr(management_mode, "run_hub_process", lambda _, **arguments: started.append(arguments))
    with pytest.raises(SystemExit):
        main(["run", "--mode", mode, *typed])
    assert [it["context"] for it in started] == [used]
