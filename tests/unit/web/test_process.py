"""What a process takes, as Prometheus' own library would tell it."""

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.parser import text_string_to_metric_families

from haulout.web import process
from haulout.web.metrics import Exposition


def test_it_is_told_as_any_process_tells_it() -> None:
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    told = {it.name: it for it in text_string_to_metric_families(Exposition(tuple).text().decode())}

    for expected in registry.collect():
        found = told[expected.name]
        assert found.type == expected.type
        assert [it[:2] for it in found.samples] == [it[:2] for it in expected.samples]
    (started,) = told["process_start_time_seconds"].samples
    assert started.value == registry.get_sample_value("process_start_time_seconds")


def test_what_it_takes_is_more_than_nothing() -> None:
    taken = process.taken()
    assert taken.memory_bytes > 1_000_000
    assert taken.cpu_seconds > 0
