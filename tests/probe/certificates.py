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
