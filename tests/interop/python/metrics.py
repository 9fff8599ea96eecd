"""Reads the metrics of `taut serve --admin` with the parser of Prometheus' client library: metrics.py URL.

The server has answered the case `echo` of client.py before.
"""

import sys
import time
import urllib.request

from prometheus_client.openmetrics.parser import text_string_to_metric_families

COUNTERS_ABOVE_ZERO = [
    ("tautline_connections_accepted", {}),
    ("tautline_websockets_opened", {}),
    ("tautline_messages", {"direction": "received"}),
    ("tautline_messages", {"direction": "sent"}),
    ("tautline_bytes", {"direction": "received"}),
    ("tautline_websockets_closed", {"code": "other"}),
    ("tautline_websockets_ended", {"cause": "peer"}),
    ("process_cpu_seconds", {}),
]


def read(url):
    with urllib.request.urlopen(url, timeout=20) as answer:
        kind = answer.headers["Content-Type"]
        text = answer.read().decode()
    assert kind.startswith("application/openmetrics-text; version=1.0.0"), kind
    families = {family.name: family for family in text_string_to_metric_families(text)}
    return families


def value(families, name, suffix, **labels):
    found = [s.value for s in families[name].samples if s.name == name + suffix and s.labels == labels]
    assert len(found) == 1, (name, labels, families[name].samples)
    return found[0]


def main():
    url = sys.argv[1]
    before = read(url)
    print("ok parsed", len(before), "families")
    for name, labels in COUNTERS_ABOVE_ZERO:
        assert before[name].type == "counter", before[name]
        assert value(before, name, "_total", **labels) > 0, name
    print("ok counters count")
    handshakes = before["tautline_tls_handshake_seconds"]
    assert handshakes.type == "histogram" and handshakes.unit == "seconds", handshakes
    full = value(before, handshakes.name, "_count", kind="full")
    resumed = value(before, handshakes.name, "_count", kind="resumed")
    assert full + resumed >= value(before, "tautline_websockets_opened", "_total"), (full, resumed)
    print("ok handshakes are full or resumed")
    expiry = before["tautline_certificate_expiry_timestamp_seconds"].samples
    assert len(expiry) == 1 and expiry[0].labels["name"] == "localhost", expiry
    assert expiry[0].value > time.time() + 86400, expiry
    print("ok the certificate expires")
    stages = before["tautline_stage_seconds"].samples
    assert {sample.labels["stage"] for sample in stages} >= {"tls", "parse", "app"}, stages
    print("ok stages")
    after = read(url)
    for name, family in before.items():
        for old, new in zip(family.samples, after[name].samples):
            assert (old.name, old.labels) == (new.name, new.labels)
            if family.type in ("counter", "histogram"):
                assert new.value >= old.value, (old, new)
    print("ok no counter goes back")


main()
