"""Runs every configuration of nginx and HAProxy in our documents, in front of `taut serve`.

A page's WebSocket must pass, at a public name and a port of its own, and one of another page must not.
"""

import getpass
import re
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The places that a configuration names, and where the test has them.
SOCKET = "/run/app/app.sock"


def documented(language):
    """The blocks of a language in the documents, each with the place where it stands.

    Pages of migration are left out: `taut proxy` takes the place of the configurations that they show.
    """
    found = []
    pages = [path for path in sorted(ROOT.glob("docs/**/*.md")) if path.parent.name != "migration"]
    for path in [ROOT / "README.md", *pages, *sorted(ROOT.glob("packaging/**/*.md"))]:
        text = path.read_text()
        for block in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            place = f"{path.relative_to(ROOT)}:{text[:block.start()].count(chr(10)) + 1}"
            is_proxy = re.search(r"proxy_pass|^(frontend|backend|listen) \w", block[2], re.MULTILINE)
            if is_proxy and block[1] not in ("nginx", "haproxy"):
                raise SystemExit(f"{place}: a proxy's configuration is not marked as ```nginx or ```haproxy")
            if block[1] == language:
                found.append((place, block[2]))
    if not found:
        raise SystemExit(f"the documents have no block of {language}")
    return found


class Snippet:
    """A configuration that serves `url`, and which `taut connect` tries as browsers and programs do."""

    verdict = None

    def __init__(self, name, taut, url, options=()):
        self.name, self.taut, self.url, self.options = name, taut, url, list(options)

    def connect(self, *headers):
        options = [option for header in headers for option in ("-H", header)]
        command = [str(self.taut), "connect", "--wait", "0.1", *self.options, *options, self.url]
        return subprocess.run(command, input="hello\n", capture_output=True, text=True, timeout=60)

    def run(self):
        begin = time.monotonic()
        wrong = self.judge()
        return self, time.monotonic() - begin, wrong

    def judge(self):
        scheme, authority = re.match(r"ws(s?)://([^/]+)", self.url).groups()
        port = authority.rsplit(":")[-1]
        for host in (authority, f"app.example:{port}", "app.example"):
            said = self.connect(f"Host: {host}", f"Origin: http{scheme}://{host}")
            if (said.returncode, said.stdout) != (0, "hello\n"):
                return f"a page of {host} cannot connect: {said.stderr.strip()}"
        said = self.connect()
        if said.returncode != 0:
            return f"a program cannot connect: {said.stderr.strip()}"
        said = self.connect(f"Host: app.example:{port}", "Origin: https://evil.example")
        if said.returncode == 0 or "403" not in said.stderr:
            return f"a page of another site is not refused: {said.stderr.strip()!r}"
        return None


def backends(taut, folder, start, number):
    """Starts a server at a Unix socket and on loopback. Returns what stands for `SOCKET`."""
    unix = folder / "app.sock"
    start("taut-unix", taut, "serve", "--plain", "--unix", unix, ready=unix.exists)
    log = folder / "taut-loopback.log"
    start("taut-loopback", taut, "serve", "--plain", "--listen", f"127.0.0.1:{number}",
          ready=lambda: "listening" in log.read_text())
    return {"unix": unix, "loopback": number}


def nginx(taut, folder, start, port, release, accepts, places):
    cases, servers, ports = [], [], []
    for place, block in documented("nginx"):
        path = re.search(r"location (?:[=^~*]+ )?(\S+)", block)[1]
        for kind, backend in places.items():
            to = f"http://unix:{backend}" if kind == "unix" else f"http://127.0.0.1:{backend}"
            ports.append(port())
            servers.append(f"server {{ listen 127.0.0.1:{ports[-1]};\n{block.replace(f'http://unix:{SOCKET}', to)}}}")
            cases.append(Snippet(f"{place} nginx {kind}", taut, f"ws://127.0.0.1:{ports[-1]}{path}"))
    config = folder / "documented-nginx.conf"
    config.write_text(f"daemon off; user {getpass.getuser()}; pid {folder}/documented-nginx.pid; error_log {folder}/documented-nginx-error.log;\n"
                      "events {}\nhttp { access_log off;\n" + "\n".join(servers) + "\n}\n")
    release()
    start("documented-nginx", "nginx", "-c", config, ready=lambda: all(accepts(number)() for number in ports))
    return cases


def haproxy(taut, folder, start, port, release, accepts, places):
    cases = []
    for index, (place, block) in enumerate(documented("haproxy")):
        path = re.search(r"path_beg (\S+)", block)[1]
        for kind, backend in places.items():
            number = port()
            text = re.sub(r"bind :443\b", f"bind 127.0.0.1:{number}", block)
            text = re.sub(r"crt \S+", f"crt {folder}/good.both", text)
            text = text.replace(f"unix@{SOCKET}", str(backend) if kind == "unix" else f"127.0.0.1:{backend}")
            config = folder / f"documented-haproxy-{index}-{kind}.cfg"
            config.write_text(text)
            release()
            start(config.stem, "haproxy", "-db", "-f", config, ready=accepts(number))
            url = f"wss://127.0.0.1:{number}{path}"
            cases.append(Snippet(f"{place} HAProxy {kind}", taut, url, ["--ca", folder / "root.crt"]))
    return cases
