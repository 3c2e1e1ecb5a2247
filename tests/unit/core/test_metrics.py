"""Metrics: bounded in size, exact, and in the format of Prometheus."""

from prometheus_client.parser import text_string_to_metric_families

from haulout.core.metrics import OVERFLOW_LABEL, Histogram, MetricVec, counter, histogram
from haulout.httpserver.metrics import Exposition

COUNT = counter("a_total", "How many.", "x", max_series=2)
TIME = histogram("b_seconds", "How long.", "x", buckets=(0, 1, 10.5), max_series=2)


def test_series_beyond_max_series_are_counted_under_the_overflow_label() -> None:
    counts, times = MetricVec(COUNT), Histogram(TIME)
    for name in ("a", "b", "c", "d", "a"):
        counts.add(name)
        times.observe(1, name)
    assert counts.values == {("a",): 2, ("b",): 1, (OVERFLOW_LABEL,): 2}
    assert {labels: sum(it.counts) for labels, it in times.values.items()} == {
        ("a",): 2,
        ("b",): 1,
        (OVERFLOW_LABEL,): 2,
    }
    counts.set("e", to=7)
    assert counts.values[(OVERFLOW_LABEL,)] == 7


def test_histogram_buckets_are_cumulative() -> None:
    times = Histogram(TIME)
    for number in (0, 1, 1.5, 99):
        times.observe(number, 'q"\n')
    text = Exposition(lambda: [times]).text().decode()
    [family] = [it for it in text_string_to_metric_families(text) if it.name == TIME.name]
    assert [(it.labels["le"], it.value) for it in family.samples if it.name == "b_seconds_bucket"] == [
        *(("0", 1), ("1", 2), ("10.5", 3), ("+Inf", 4)),
    ]
    assert [it.value for it in family.samples if it.name in ("b_seconds_sum", "b_seconds_count")] == [101.5, 4]
    assert {it.labels["x"] for it in family.samples} == {'q"\n'}


def test_initialize_creates_a_series_with_zeros() -> None:
    times = Histogram(TIME)
    times.initialize("a")
    assert [it.number for it in times.samples()] == [0] * 6
    times.observe(1, "a")
    times.initialize("a")
    assert times.values["a",].total == 1


def test_metric_without_series_is_not_exposed() -> None:
    assert "a_total" not in Exposition(lambda: [MetricVec(COUNT)]).text().decode()
