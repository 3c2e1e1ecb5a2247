"""From what was typed, and from where it runs, to the operator's settings."""

from typing import Any

import pytest

from haulout.cli import main
from haulout.cli.run import cluster_mode, management_mode
from haulout.cli.run.cluster_mode import OperatorOptions
from haulout.kube.transports.config import IN_CLUSTER, Connection
from haulout.kube.transports.credentials import ANONYMOUS


@pytest.mark.parametrize(
    ("typed", "context", "called"),
    [("prod", "admin@prod", "prod"), (None, "admin@prod", "admin@prod"), (None, IN_CLUSTER, "")],
)
def test_the_cluster_is_called_what_was_typed_or_as_its_context(typed: str | None, context: str, called: str) -> None:
    connection = Connection(server="https://there", context=context, source="", user="", credentials=ANONYMOUS)
    wishes = OperatorOptions(
        namespace=None, webhook="off", health_port=None, metrics=None, guards_quorum=True, cluster=typed
    )

    assert wishes.settings(connection).cluster == called


@pytest.mark.parametrize(("typed", "used"), [((), "of-the-environment"), (("--context", "typed"), "typed")])
@pytest.mark.parametrize("mode", ["cluster", "management"])
def test_the_context_is_that_which_was_typed_or_that_of_the_environment(
    mode: str, typed: tuple[str, ...], used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[dict[str, Any]] = []
    monkeypatch.setenv("KUBECONTEXT", "of-the-environment")
    monkeypatch.setattr(cluster_mode, "run_operator_process", lambda _, **how: started.append(how))
    monkeypatch.setattr(management_mode, "run_hub_process", lambda _, **how: started.append(how))
    with pytest.raises(SystemExit):
        main(["run", "--mode", mode, *typed])
    assert [it["context"] for it in started] == [used]
