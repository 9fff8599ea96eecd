"""Certificates with faults, made by the program openssl."""

import subprocess
from datetime import datetime, timedelta, timezone
from pathlib import Path

CONFIG = """
[ca]
default_ca = here
[here]
dir = {dir}
database = {dir}/index.txt
new_certs_dir = {dir}
rand_serial = yes
default_md = sha256
policy = any
unique_subject = no
copy_extensions = none
[any]
commonName = supplied
[req]
distinguished_name = name
[name]
[authority]
basicConstraints = critical, CA:true
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
[leaf]
basicConstraints = CA:false
subjectAltName = {names}
{more}
"""


class Maker:
    """Makes files below one folder."""

    def __init__(self, folder: Path):
        self.folder = folder

    def run(self, *arguments):
        done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True, text=True, cwd=self.folder)
        if done.returncode:
            raise SystemExit(f"openssl {' '.join(map(str, arguments))}: {done.stderr}")
        return done.stdout

    def config(self, names="DNS:localhost", more=""):
        text = CONFIG.format(dir=self.folder, names=names, more=more)
        (self.folder / "openssl.cnf").write_text(text)
        (self.folder / "index.txt").touch()

    def request(self, name, subject, kind):
        algorithm = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"] if kind == "ec" else ["-newkey", kind]
        files = ["-keyout", f"{name}.key", "-out", f"{name}.csr"]
        self.run("req", "-new", "-nodes", *algorithm, *files, "-subj", f"/CN={subject}", "-config", "openssl.cnf")

    def sign(self, name, issuer, section, begin=-1, end=90, md="sha256"):
        now = datetime.now(timezone.utc)
        dates = [(now + timedelta(days=days)).strftime("%Y%m%d%H%M%SZ") for days in (begin, end)]
        by = ["-selfsign", "-keyfile", f"{name}.key"] if issuer is None else [
            "-cert", f"{issuer}.crt", "-keyfile", f"{issuer}.key"]
        self.run("ca", "-batch", "-notext", "-config", "openssl.cnf", "-extensions", section, "-md", md, *by,
                 "-startdate", dates[0], "-enddate", dates[1], "-in", f"{name}.csr", "-out", f"{name}.crt")

    def authority(self, name, subject, issuer=None):
        self.config()
        self.request(name, subject, "ec")
        self.sign(name, issuer, "authority", begin=-900, end=900)

    def leaf(self, name, issuer, chain=(), names="DNS:localhost,IP:127.0.0.1,IP:127.0.0.2", more="", kind="ec", **dates):
        """A certificate. NAME.pem has it with the chain behind it, NAME.both its key, too."""
        self.config(names, more)
        self.request(name, "localhost", kind)
        self.sign(name, issuer, "leaf", **dates)
        text = "".join((self.folder / f"{one}.crt").read_text() for one in (name, *chain))
        (self.folder / f"{name}.pem").write_text(text)
        (self.folder / f"{name}.both").write_text(text + (self.folder / f"{name}.key").read_text())


    def response(self, name, file, issuer="middle", status="V", about=None):
        """An OCSP response FILE about a certificate, or about the serial number `about`."""
        serial = about or self.run("x509", "-in", f"{name}.crt", "-noout", "-serial").strip().removeprefix("serial=")
        revoked = "200101000000Z,keyCompromise" if status == "R" else ""
        (self.folder / "ocsp.txt").write_text(f"{status}\t991231235959Z\t{revoked}\t{serial}\tunknown\t/CN=localhost\n")
        by = ["-index", "ocsp.txt", "-CA", f"{issuer}.crt", "-rsigner", f"{issuer}.crt", "-rkey", f"{issuer}.key"]
        self.run("ocsp", *by, "-issuer", f"{issuer}.crt", "-cert", f"{name}.crt", "-respout", file, "-nmin", 60,
                 "-noverify")

    def age(self, file, issuer="middle"):
        """Moves the dates of a response into the past, and signs it again: the program gives only current ones."""
        path = self.folder / file
        old = path.read_bytes()

        def inside(at, skip=0):
            """The place of the element behind `skip` others in the one at `at`."""
            at += 2 + (old[at + 1] & 0x7F if old[at + 1] > 0x7F else 0)
            for _ in range(skip):
                at = end(at)
            return at

        def end(at):
            first = inside(at)
            long = first - at - 2
            return first + (int.from_bytes(old[at + 2:first], "big") if long else old[at + 1])

        # OCSPResponse, [0], ResponseBytes, the OCTET STRING behind its type, BasicOCSPResponse.
        basic = inside(inside(inside(inside(0, 1)), 1))
        begin = inside(basic)
        message = old[begin:end(begin)]
        year = message[message.index(b"\x18\x0f") + 2:][:4]
        message = message.replace(b"\x18\x0f" + year, b"\x18\x0f" + b"2020")
        (self.folder / "tbs").write_bytes(message)
        place = inside(basic, 2)
        place, last = place + 3, end(place)
        # The length of a signature varies by a few bytes, and this one has to fit.
        for _ in range(1000):
            self.run("dgst", "-sha256", "-sign", f"{issuer}.key", "-out", "signature", "tbs")
            signature = (self.folder / "signature").read_bytes()
            if len(signature) == last - place:
                path.write_bytes(old[:begin] + message + old[begin + len(message):place] + signature + old[last:])
                return
        raise SystemExit(f"{file} cannot be signed again")


def make(folder: Path):
    """All certificates. `root.crt` is the authority to trust."""
    maker = Maker(folder)
    maker.authority("root", "Test Root")
    maker.authority("middle", "Test Intermediate", "root")
    maker.authority("other", "Other Root")
    whole = ("middle",)
    maker.leaf("good", "middle", whole)
    maker.leaf("good-rsa", "middle", whole, kind="rsa:2048")
    maker.leaf("incomplete", "middle", more="authorityInfoAccess = caIssuers;URI:http://ca.test/middle.der")
    maker.leaf("no-issuer", "middle")
    maker.leaf("name", "middle", whole, names="DNS:other.test")
    maker.leaf("expired", "middle", whole, begin=-40, end=-10)
    maker.leaf("early", "middle", whole, begin=10, end=40)
    maker.leaf("soon", "middle", whole, end=5)
    maker.leaf("untrusted", "other", ("other",))
    maker.leaf("self", None)
    maker.leaf("sha1", "middle", whole, md="sha1")
    maker.leaf("weak", "middle", whole, kind="rsa:1024")
    maker.leaf("staple", "middle", whole, more="tlsfeature = status_request")
    maker.response("good", "good.ocsp")
    maker.response("good", "revoked.ocsp", status="R")
    maker.response("good", "unknown.ocsp", about="77")
    maker.response("staple", "staple.ocsp")
    maker.response("good", "ended.ocsp")
    maker.age("ended.ocsp")
    maker.response("good", "stranger.ocsp", issuer="other")
    (folder / "later.ocsp").write_bytes(bytes([0x30, 3, 10, 1, 3]))
