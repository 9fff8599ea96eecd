"""The cost of scraping `/metrics` once a second: scrape.py TAUT [ROUNDS [SECONDS [RATE]]].

A server echoes as fast as it can, or RATE messages a second, with and without a scraper, round by round in turn. The
share of the admin listener is the CPU time of its own thread over that of the whole server. The second figure is the CPU
time of a message with scrapes over that without, which a busy machine blurs.
"""

import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

TAUT = sys.argv[1]
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 7
SECONDS = int(sys.argv[3]) if len(sys.argv) > 3 else 8
RATE = sys.argv[4:5]
CONNECTIONS = "1000"


def cpu(pid):
    """CPU seconds of each thread, by its name and number."""
    found = {}
    for task in os.listdir(f"/proc/{pid}/task"):
        folder = f"/proc/{pid}/task/{task}"
        name = open(f"{folder}/comm").read().strip()
        found[name, task] = int(open(f"{folder}/schedstat").read().split()[0]) / 1e9
    return found


def scrape(path):
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(path)
    stream.sendall(b"GET /metrics HTTP/1.1\r\nHost: taut\r\nConnection: close\r\n\r\n")
    text = stream.makefile("r").read()
    assert text.endswith("# EOF\n"), text[:200]
    return text


def messages(path):
    prefix = 'tautline_messages_total{direction="received"} '
    return next(int(line[len(prefix) :]) for line in scrape(path).splitlines() if line.startswith(prefix))


def during(path, over, scrapes):
    while not over.wait(1):
        scrapes.append(scrape(path))


def main():
    with tempfile.TemporaryDirectory() as home:
        env = dict(os.environ, XDG_DATA_HOME=home)
        admin = f"{home}/admin.sock"
        command = [TAUT, "serve", "--listen", "127.0.0.1:0", "--admin", f"unix:{admin}"]
        server = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
        try:
            url = server.stdout.readline().split()[-1]
            measure(url, admin, server.pid, env)
        finally:
            server.terminate()
            server.wait()


def measure(url, admin, pid, env):
    load = [TAUT, "load", url, "--connections", CONNECTIONS, *(["--rate", *RATE] if RATE else [])]
    load += ["--duration", str((ROUNDS * 2 + 2) * SECONDS)]
    client = subprocess.Popen(load, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while messages(admin) < 10000:
            time.sleep(0.2)
        shares, costs = [], {True: [], False: []}
        for turn in range(ROUNDS * 2):
            scraped = turn % 2 == 1
            over, scrapes = threading.Event(), []
            count = messages(admin)
            before = cpu(pid)
            thread = threading.Thread(target=during, args=(admin, over, scrapes))
            if scraped:
                thread.start()
            time.sleep(SECONDS)
            over.set()
            if scraped:
                thread.join()
            used = {key: now - before.get(key, 0) for key, now in cpu(pid).items()}
            total = sum(used.values())
            costs[scraped].append(total / (messages(admin) - count))
            if scraped:
                own = sum(t for (name, _), t in used.items() if name.startswith("tautline-admin"))
                shares.append(own / total)
                print(f"{len(scrapes)} scrapes: {own * 1e3:.2f} of {total * 1e3:.0f} ms of CPU", flush=True)
    finally:
        client.terminate()
        client.wait()
    ratios = [a / b for a, b in zip(costs[True], costs[False])]
    result = {
        "share of the admin listener, median": round(statistics.median(shares), 6),
        "most": round(max(shares), 6),
        "CPU of a message with scrapes over without, median": round(statistics.median(ratios), 4),
        "from": round(min(ratios), 4),
        "to": round(max(ratios), 4),
        "load average": os.getloadavg()[0],
    }
    print(json.dumps(result, indent=2))


main()
