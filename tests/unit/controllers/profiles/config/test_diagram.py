"""Profiles as state diagrams and as text."""

from haulout.controllers.profiles.config import description, loader
from support.builders.profile_plugins import REGISTRIES

CONFIGURATION = loader.load(
    b"""
intervals: {requeue: 30s}
instances:
  check:
  - {name: ready, type: hasLabel, config: {key: ready}}
  - {name: urgent, type: hasLabel, config: {key: urgent}}
  notify:
  - {name: chat, type: slack, config: {message: x}, schedule: {type: periodic, config: {}}}
  trigger:
  - {name: mark, type: alterLabel, config: {key: mark}}
  - {name: cordon, type: alterLabel, config: {key: mark}}
profiles:
- name: flatcar
  selector: os=flatcar
  operational:
    transitions: [{check: "ready && !urgent", next: maintenance-required, trigger: mark && cordon}]
  maintenance-required:
    notify: chat
    transitions: [{check: ready, next: operational}]
  in-maintenance:
    enter: mark
""",
    REGISTRIES,
    {},
).configuration


def test_profile_is_rendered_as_a_state_diagram() -> None:
    assert description.mermaid(CONFIGURATION.profiles["flatcar"]) == (
        "stateDiagram-v2\n"
        '    state "operational" as operational\n'
        '    state "maintenance-required" as required\n'
        '    state "in-maintenance" as maintenance\n'
        "    [*] --> operational\n"
        "    operational --> required : ready #amp;#amp; !urgent<br/>then mark, cordon\n"
        "    required --> operational : ready\n"
        "    note right of required\n"
        "        notifies: chat\n"
        "    end note\n"
        "    note right of maintenance\n"
        "        on entering: mark\n"
        "    end note\n"
    )


def test_configuration_is_explained_as_text() -> None:
    assert list(description.explain(CONFIGURATION)) == [
        "profile default",
        "  nothing happens: nodes stay operational",
        "",
        "profile flatcar (for nodes with os=flatcar)",
        "  operational",
        "    to maintenance-required when ready && !urgent, then mark, cordon",
        "  maintenance-required",
        "    notifies: chat",
        "    to operational when ready",
        "  in-maintenance   (no transition leads here)",
        "    on entering: mark",
        "    stays here",
    ]
