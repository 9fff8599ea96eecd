"""Every snippet of docs/python.md in Python runs."""

import pathlib
import re
import subprocess
import sys

import pytest

PAGE = pathlib.Path(__file__).parents[3] / "docs/python.md"
SNIPPETS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippet(number):
    ran = subprocess.run([sys.executable, "-W", "error", "-c", SNIPPETS[number]], capture_output=True, timeout=100)
    assert ran.returncode == 0, ran.stderr.decode()
