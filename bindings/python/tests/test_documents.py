"""Every snippet in Python of docs/python.md and docs/languages.md runs."""

import pathlib
import re
import subprocess
import sys

import pytest

DOCS = pathlib.Path(__file__).parents[3] / "docs"
TEXT = "".join((DOCS / name).read_text() for name in ("python.md", "languages.md"))
SNIPPETS = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippet(number):
    ran = subprocess.run([sys.executable, "-W", "error", "-c", SNIPPETS[number]], capture_output=True, timeout=100)
    assert ran.returncode == 0, ran.stderr.decode()
