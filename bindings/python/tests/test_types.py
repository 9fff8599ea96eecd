"""The package's own types, and those that its users see."""

import pathlib
import subprocess
import sys

import test_documents

HERE = pathlib.Path(__file__).parent


def mypy(tmp_path, *arguments):
    command = [sys.executable, "-m", "mypy", "--cache-dir", tmp_path / "cache", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_package_is_typed_strictly(tmp_path):
    mypy(tmp_path, "--strict", "-p", "tautline")


def test_a_typed_program_gets_the_types_of_messages_and_connections(tmp_path):
    mypy(tmp_path, "--strict", HERE / "typed_program.py")


def test_messages_that_cannot_be_sent_are_errors_of_their_types(tmp_path):
    program = tmp_path / "wrong.py"
    program.write_text(
        "import tautline, tautline.sync\n"
        "from tautline.callbacks import WSTransport\n"
        "async def asynchronous(ws: tautline.ServerConnection, transport: WSTransport) -> None:\n"
        "    await ws.send(7)\n"
        "    await ws.send(None)\n"
        "    await ws.send([7])\n"
        "    transport.send(1, 7)\n"
        "    tautline.broadcast([ws], 7)\n"
        "def blocking(ws: tautline.sync.ClientConnection) -> None:\n"
        "    ws.send(7)\n"
        "    ws.send(['no', 'fragments'])\n"
    )
    command = [sys.executable, "-m", "mypy", "--cache-dir", tmp_path / "cache", program]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    lines = {int(line.split(":")[1]) for line in ran.stdout.splitlines() if ": error: " in line}
    assert lines == {4, 5, 6, 7, 8, 10, 11}, ran.stdout + ran.stderr


def test_the_snippets_of_the_documents_use_the_package_as_it_is_typed(tmp_path):
    for number, snippet in enumerate(test_documents.SNIPPETS):
        (tmp_path / f"snippet_{number}.py").write_text(snippet)
    mypy(tmp_path, "--check-untyped-defs", *sorted(tmp_path.glob("snippet_*.py")))
