"""Plants faults in endpoints made by other software, and has `taut probe` find them. Proxies that are configured as our
documents say have none.

Called as: faults.py TAUT FOLDER [--go SERVER] [--uwebsockets SERVER]. The Python that runs it has `websockets`; NODE_PATH
leads to `ws`.
Prints a line per endpoint, SKIP lines for software that is missing, and exits with 1 if anything was not found.
"""

import asyncio
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import certificates
import proxies

TAUT, FOLDER = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
SERVERS = dict(zip(sys.argv[3::2], sys.argv[4::2]))
running = []
# Servers live where only root looks by default.
os.environ["PATH"] += ":/usr/sbin"

# Ports that were handed out are kept bound until all are known, so that none is given twice.
held = []


def port():
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    held.append(bound)
    return bound.getsockname()[1]


def start(name, *command, ready=None):
    log = open(FOLDER / f"{name}.log", "w+")
    process = subprocess.Popen([str(part) for part in command], stdout=log, stderr=subprocess.STDOUT, cwd=FOLDER)
    running.append(process)
    deadline = time.monotonic() + 60
    while ready and not ready():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"{name} does not start:\n" + (FOLDER / f"{name}.log").read_text())
        time.sleep(0.02)


def accepts(number):
    def check():
        try:
            socket.create_connection(("127.0.0.1", number)).close()
            return True
        except OSError:
            return False

    return check


def installed(program):
    if shutil.which(program):
        return True
    print(f"SKIP {program}: it is not installed (cargo xtask setup)", flush=True)
    return False


class Case:
    """An endpoint, the verdict that must be found (none in a good one), and a part of its remedy."""

    def __init__(self, name, url, verdict=None, remedy="", options=(), exit=None, only=True):
        self.name, self.url, self.verdict, self.remedy = name, url, verdict, remedy
        self.options, self.only = options, only
        self.exit = exit if exit is not None else (0 if verdict is None else 3)

    def run(self):
        command = [str(TAUT), "probe", "--json", "--ca", str(FOLDER / "root.crt"), *self.options, self.url]
        begin = time.monotonic()
        said = subprocess.run(command, capture_output=True, text=True, timeout=120)
        seconds = time.monotonic() - begin
        wrong = self.judge(said)
        if wrong:
            (FOLDER / f"{self.name}.json").write_text(said.stdout)
        return self, seconds, wrong

    def judge(self, said):
        try:
            verdicts = json.loads(said.stdout)["verdicts"]
        except ValueError:
            return f"no JSON: {said.stderr}"
        ids = [verdict["id"] for verdict in verdicts]
        wanted = [] if self.verdict is None else [self.verdict]
        if (ids != wanted) if self.only else (not set(wanted) <= set(ids)):
            return f"found {[(v['id'], v['title']) for v in verdicts]}, expected {wanted}"
        remedies = [verdict["remedy"] for verdict in verdicts if verdict["id"] == self.verdict]
        if remedies and self.remedy not in remedies[0]:
            return f"the remedy is {remedies[0]!r}"
        if said.returncode != self.exit:
            return f"exit code {said.returncode}, expected {self.exit}"
        return None


def local(number, path="/", scheme="wss"):
    return f"{scheme}://127.0.0.1:{number}{path}"


def nginx(plain):
    """nginx: certificates, versions, sessions, answers, and the ways to configure a proxy wrongly."""
    if not installed("nginx"):
        return []
    upgrade = ("proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade; "
               "proxy_set_header Connection upgrade; proxy_set_header Host $host;")
    backend = f"location / {{ proxy_pass http://127.0.0.1:{plain}; {upgrade} }}"
    names = ["good", "incomplete", "no-issuer", "name", "tls12", "broken", "http", "short", "answers", "forgot", "soon",
             "staple", "lowered", "expects", "expects-plain"]
    ports = {name: port() for name in names}
    # A server that refuses upgrades in HTTP/1.0.
    strict = port()

    def server(name, certificate="good", more="", body=backend, listen="ssl"):
        return f"""server {{ listen 127.0.0.1:{ports[name]} {listen}; ssl_certificate {FOLDER}/{certificate}.pem;
            ssl_certificate_key {FOLDER}/{certificate}.key; {more} {body} }}"""

    answers = " ".join(f"location = /{status} {{ return {status} 'no'; }}" for status in (200, 401, 403, 404, 426, 503))
    answers += f" location = /old {{ return 301 https://127.0.0.1:{ports['good']}/; }}"
    answers += f" location = /dead {{ proxy_pass http://127.0.0.1:{port()}; }}"
    servers = [
        server("good"), server("incomplete", "incomplete"), server("no-issuer", "no-issuer"), server("name", "name"),
        server("soon", "soon"), server("staple", "staple"),
        server("tls12", more="ssl_protocols TLSv1.2;"),
        server("broken", more="ssl_session_tickets off; ssl_session_cache off;"),
        f"server {{ listen 127.0.0.1:{ports['http']}; {backend} }}",
        server("short", body=f"location / {{ proxy_pass http://127.0.0.1:{plain}; {upgrade} proxy_read_timeout 1s; }}"),
        server("answers", body=answers),
        server("forgot", body=f"location / {{ proxy_pass http://127.0.0.1:{plain}; }}"),
        server("lowered", body=backend.replace(f":{plain};", f":{strict};").replace("proxy_http_version 1.1;", "")),
        server("expects", listen="ssl proxy_protocol"), server("expects-plain", listen="proxy_protocol"),
    ]
    paths = " ".join(f"{kind}_temp_path {FOLDER}/{kind};"
                     for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (FOLDER / "nginx.conf").write_text(f"""daemon off; pid {FOLDER}/nginx.pid; error_log {FOLDER}/nginx-error.log;
        events {{}} http {{ access_log off; {paths} ssl_protocols TLSv1.2 TLSv1.3;
        ssl_session_cache shared:all:1m; {' '.join(servers)} }}""")
    release()
    log = FOLDER / "taut-strict.log"
    start("taut-strict", TAUT, "serve", "--plain", "--listen", f"127.0.0.1:{strict}",
          ready=lambda: "listening" in log.read_text())
    start("nginx", "nginx", "-c", FOLDER / "nginx.conf", ready=accepts(ports["good"]))
    at = {name: local(number) for name, number in ports.items()}
    page = local(ports["answers"])
    return [
        Case("nginx good", at["good"]),
        Case("nginx https", at["good"].replace("wss", "https"), "http.status", "path", exit=1),
        Case("nginx incomplete chain", at["incomplete"], "chain.incomplete", "http://ca.test/middle.der"),
        Case("nginx unknown issuer", at["no-issuer"], "chain.unknown-issuer", "fullchain"),
        Case("nginx wrong name", at["name"], "certificate.name", "127.0.0.1 among its names"),
        Case("nginx expires soon", at["soon"], "certificate.expires-soon", "renew", exit=0),
        Case("nginx must staple", at["staple"], "certificate.must-staple", "ssl_stapling", exit=1),
        Case("nginx TLS 1.2 only", at["tls12"], "tls.no-1.3", "ssl_protocols", exit=0),
        Case("nginx strict", at["tls12"], "tls.no-1.3", "ssl_protocols", ["--strict"], exit=1),
        Case("nginx dead tickets", at["broken"], "resumption.broken", "ssl_session_ticket_key", exit=0),
        Case("nginx plain HTTP", at["http"], "tls.plain-http", "ssl"),
        Case("nginx ws on a TLS port", local(ports["good"], scheme="ws"), "http.tls-port", "wss://"),
        Case("nginx short silence", at["short"], "idle.closed", "proxy_read_timeout", ["--idle", "4s"], exit=1),
        Case("nginx without upgrade", at["forgot"], "upgrade.required", "proxy_set_header"),
        Case("nginx HTTP/1.0", at["lowered"], "upgrade.version", "proxy_http_version 1.1"),
        Case("nginx expects PROXY", at["expects"], "tls.closed", "listen … proxy_protocol"),
        Case("nginx expects PROXY without TLS", at["expects-plain"].replace("wss", "ws"), "http.closed",
             "listen … proxy_protocol"),
        Case("nginx 200", page + "200", "upgrade.page", "proxy_set_header"),
        Case("nginx 401", page + "401", "upgrade.forbidden", "Authorization"),
        Case("nginx 403", page + "403", "upgrade.forbidden", "--origin"),
        Case("nginx 404", page + "404", "upgrade.not-found", "path"),
        Case("nginx 426", page + "426", "upgrade.required", "proxy_set_header"),
        Case("nginx 503", page + "503", "upgrade.server-error", "log"),
        Case("nginx 502", page + "dead", "upgrade.backend", "behind it"),
        Case("nginx redirect", page + "old", "upgrade.redirected", "--follow"),
        Case("nginx redirect followed", page + "old", None, options=["--follow"]),
        Case("nginx dead address", f"wss://localhost:{ports['good']}/", "address.dead", "out of DNS",
             ["--address", f"127.0.0.1:{ports['good']}", "--address", f"127.0.0.2:{ports['good']}"], exit=1),
    ]


def haproxy(plain):
    """HAProxy: dates, client certificates, tunnels."""
    if not installed("haproxy"):
        return []
    ports = {name: port() for name in ("good", "expired", "early", "client", "tunnel", "expects")}
    binds = {"good": "good", "expired": "expired", "early": "early", "client": "good", "tunnel": "good",
             "expects": "good"}
    text = f"""global
  ssl-default-bind-options ssl-min-ver TLSv1.2
defaults
  mode http
  timeout connect 5s
  timeout client 30s
  timeout server 30s
  timeout tunnel 1h
backend node
  server node 127.0.0.1:{plain}
backend node-short
  timeout tunnel 1s
  server node 127.0.0.1:{plain}
"""
    for name, certificate in binds.items():
        more = {"client": f" ca-file {FOLDER}/root.crt verify required", "expects": " accept-proxy"}.get(name, "")
        text += f"frontend {name}\n  bind 127.0.0.1:{ports[name]} ssl crt {FOLDER}/{certificate}.both alpn http/1.1{more}\n"
        text += f"  default_backend node{'-short' if name == 'tunnel' else ''}\n"
    (FOLDER / "haproxy.cfg").write_text(text)
    release()
    start("haproxy", "haproxy", "-db", "-f", FOLDER / "haproxy.cfg", ready=accepts(ports["good"]))
    at = {name: local(number) for name, number in ports.items()}
    return [
        Case("HAProxy good", at["good"]),
        Case("HAProxy expired", at["expired"], "certificate.expired", "renew"),
        Case("HAProxy not yet valid", at["early"], "certificate.not-yet-valid", "clocks"),
        Case("HAProxy client certificate", at["client"], "tls.client-certificate", "--cert", only=False),
        Case("HAProxy short tunnel", at["tunnel"], "idle.closed", "timeout tunnel", ["--idle", "4s"], exit=1),
        Case("HAProxy expects PROXY", at["expects"], "tls.closed", "accept-proxy"),
    ]


def node():
    """`ws`: the upgrade, pings, the end, sizes."""
    names = ["good", "self", "plain", "no-deflate", "no-subprotocol", "no-pong", "small", "slow", "no-close", "kicked",
             "accept"]
    ports = {name: port() for name in names}
    release()
    script = Path(__file__).with_name("faults.js")
    arguments = [f"{name}={number}" for name, number in ports.items()]
    ready = lambda: "ready" in (FOLDER / "node.log").read_text()
    start("node", "node", script, FOLDER, *arguments, ready=ready)
    at = {name: local(number) for name, number in ports.items()}
    return ports["plain"], [
        Case("ws good", at["good"], options=["--deflate", "--idle", "500ms"]),
        Case("ws plain", local(ports["plain"], scheme="ws")),
        Case("ws self-signed", at["self"], "certificate.self-signed", "--ca"),
        Case("ws no compression", at["no-deflate"], "upgrade.compression", "perMessageDeflate", ["--deflate"], exit=0),
        Case("ws no subprotocol", at["no-subprotocol"], "upgrade.subprotocol", "--subprotocol",
             ["--subprotocol", "chat"], exit=1),
        Case("ws no pong", at["no-pong"], "session.no-pong", "5.5.2", exit=1),
        Case("ws small messages", at["small"], "session.message-limit", "maxPayload", exit=0),
        Case("ws message threshold", at["small"], "threshold", "raise the limit", ["--slo", "message=1MiB"], exit=1,
             only=False),
        Case("ws slow first message", at["slow"], "threshold", "snapshot", ["--slo", "first=150ms"], exit=1),
        Case("ws no close frame", at["no-close"], "session.no-close-frame", "1006", exit=0),
        Case("ws closes at once", at["kicked"], "session.lost", "log-in", exit=1),
        Case("ws wrong accept", at["accept"], "upgrade.accept", "4.2.2"),
    ]


def python():
    """`websockets` and Python's ssl: no tickets, an unknown authority."""
    import logging

    import websockets

    # Many connections end in ways that it reports.
    logging.disable()

    ports = {name: port() for name in ("good", "none", "untrusted", "ssh")}
    release()

    async def echo(connection, *_path):
        async for message in connection:
            await connection.send(message)

    async def banner(_reader, writer):
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        await writer.drain()

    async def serve(ready):
        for name, certificate in (("good", "good-rsa"), ("none", "good"), ("untrusted", "untrusted")):
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(FOLDER / f"{certificate}.pem", FOLDER / f"{certificate}.key")
            if name == "none":
                context.num_tickets = 0
            await websockets.serve(echo, "127.0.0.1", ports[name], ssl=context)
        await asyncio.start_server(banner, "127.0.0.1", ports["ssh"])
        ready.set()
        await asyncio.Future()

    ready = threading.Event()
    threading.Thread(target=lambda: asyncio.run(serve(ready)), daemon=True).start()
    if not ready.wait(60):
        raise SystemExit("the servers in Python do not start")
    at = {name: local(number) for name, number in ports.items()}
    return [
        Case("websockets good", at["good"]),
        Case("websockets no tickets", at["none"], "resumption.none", "tickets on", exit=0),
        Case("websockets untrusted", at["untrusted"], "chain.untrusted", "--ca"),
        Case("another protocol", at["ssh"], "tls.not-tls", "port"),
        Case("nobody listens", local(1), "tcp.refused", "listen at port 1"),
    ]


def openssl():
    """`openssl s_server`: what other servers refuse to do."""
    weak = ["-cipher", "ALL:@SECLEVEL=0"]
    kinds = {
        "sha1": ("sha1", weak),
        "weak": ("weak", weak),
        "old": ("good-rsa", [*weak, "-min_protocol", "TLSv1"]),
        "stapled": ("staple", ["-status_file", "staple.ocsp"]),
        "other": ("good", ["-status_file", "staple.ocsp"]),
    }
    for response in ("good", "revoked", "unknown", "ended", "stranger", "later"):
        kinds[response] = ("good", ["-status_file", f"{response}.ocsp"])
    ports = {name: port() for name in kinds}
    release()
    for name, (certificate, more) in kinds.items():
        files = ["-cert", f"{certificate}.crt", "-cert_chain", "middle.crt", "-key", f"{certificate}.key"]
        start(f"s_server-{name}", "openssl", "s_server", "-accept", f"127.0.0.1:{ports[name]}", "-www", *files, *more,
              ready=accepts(ports[name]))
    at = {name: local(number, scheme="https") for name, number in ports.items()}
    return [
        Case("OpenSSL SHA-1", at["sha1"], "certificate.weak-signature", "SHA-256", only=False),
        Case("OpenSSL RSA 1024", at["weak"], "certificate.weak-key", "P-256", only=False),
        Case("OpenSSL TLS 1.0", at["old"], "tls.old-version", "RFC 8996", exit=0),
        Case("OpenSSL stapled", at["good"]),
        Case("OpenSSL stapled as demanded", at["stapled"]),
        Case("OpenSSL revoked", at["revoked"], "certificate.revoked", "new key", exit=1),
        Case("OpenSSL unknown to the responder", at["unknown"], "ocsp.unknown", "issuer", exit=1),
        Case("OpenSSL old response", at["ended"], "ocsp.expired", "renew the file", exit=1),
        Case("OpenSSL response of a stranger", at["stranger"], "ocsp.signature", "OCSP URL", exit=1),
        Case("OpenSSL response about another", at["other"], "ocsp.other-certificate", "together", exit=1),
        Case("OpenSSL try later", at["later"], "ocsp.refused", "last good", exit=0),
    ]


def go():
    if "--go" not in SERVERS:
        print("SKIP go: its server is not built", flush=True)
        return []
    number = port()
    release()
    start("go", SERVERS["--go"], number, FOLDER / "good.pem", FOLDER / "good.key", ready=accepts(number))
    return [Case("Go good", local(number))]


def uwebsockets():
    """uWebSockets, which chooses its port itself."""
    if "--uwebsockets" not in SERVERS:
        print("SKIP uwebsockets: its server is not built", flush=True)
        return []
    cases = []
    for name, certificate, *expected in [
        ("good", "good"),
        ("expired", "expired", "certificate.expired", "renew"),
        ("incomplete chain", "no-issuer", "chain.unknown-issuer", "fullchain"),
        ("no compression", "good", "upgrade.compression", "perMessageDeflate", ["--deflate"], 0),
    ]:
        log = f"uwebsockets-{len(cases)}"
        begin = "listening on wss://127.0.0.1:"
        files = [FOLDER / f"{certificate}.pem", FOLDER / f"{certificate}.key"]
        listens = lambda: begin in (FOLDER / f"{log}.log").read_text()
        start(log, SERVERS["--uwebsockets"], "echo", *files, ready=listens)
        number = (FOLDER / f"{log}.log").read_text().split(begin)[1].split()[0]
        cases.append(Case(f"uWebSockets {name}", local(number), *expected))
    return cases


def documented():
    """The configurations of proxies in our documents, which have no fault."""
    programs = [(name, make) for name, make in (("nginx", proxies.nginx), ("haproxy", proxies.haproxy)) if installed(name)]
    if not programs:
        return []
    number = port()
    release()
    places = proxies.backends(TAUT, FOLDER, start, number)
    return [case for _, make in programs for case in make(TAUT, FOLDER, start, port, release, accepts, places)]


def release():
    while held:
        held.pop().close()


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    certificates.make(FOLDER)
    plain, cases = node()
    for endpoints in (lambda: nginx(plain), lambda: haproxy(plain), python, openssl, go, uwebsockets, documented):
        cases += endpoints()
    failed = 0
    with ThreadPoolExecutor(3) as pool:
        for case, seconds, wrong in pool.map(lambda case: case.run(), cases):
            failed += wrong is not None
            print(f"{'FAILED' if wrong else 'ok'} {case.name}: {wrong or case.verdict or 'nothing'} ({seconds:.1f} s)",
                  flush=True)
    good, seconds, _ = next(case for case in cases if case.verdict is None).run()
    print(f"{good.name} alone takes {seconds:.2f} s")
    planted = len({case.verdict for case in cases if case.verdict})
    print(f"{len(cases)} endpoints, {planted} kinds of faults, {failed} failed")
    return failed > 0


try:
    code = main()
finally:
    for process in running:
        process.kill()
sys.stdout.flush()
raise SystemExit(code)
