"""Process metrics, as in the client library of Prometheus."""

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.parser import text_string_to_metric_families

from haulout.httpserver import metrics
from haulout.httpserver.metrics import Exposition


def test_process_metrics_equal_those_of_prometheus_client() -> None:
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    families = {item.name: item for item in text_string_to_metric_families(Exposition(tuple).text().decode())}

    for expected in registry.collect():
        family = families[expected.name]
        assert family.type == expected.type
        assert [item[:2] for item in family.samples] == [item[:2] for item in expected.samples]
    (started,) = families["process_start_time_seconds"].samples
    assert started.value == registry.get_sample_value("process_start_time_seconds")


def test_resource_usage_is_positive() -> None:
    taken = metrics.resource_usage()
    assert taken.memory_bytes > 1_000_000
    assert taken.cpu_seconds > 0
