"""The package as it is installed."""

import importlib.metadata
import pathlib
import struct

import tautline
from tautline import _native


def test_the_distribution_has_a_name_of_its_own():
    # The name `tautline` on PyPI is another project's.
    files = importlib.metadata.files("tautline-ws")
    assert any(file.name == "callbacks.py" and file.parts[0] == "tautline" for file in files)
    assert tautline.__version__ == importlib.metadata.version("tautline-ws")


def test_the_library_has_neither_symbols_nor_debug_information():
    library = pathlib.Path(_native.__file__).read_bytes()
    assert library[:6] == b"\x7fELF\x02\x01"
    (sections,) = struct.unpack_from("<Q", library, 40)
    size, count, names_at = struct.unpack_from("<HHH", library, 58)
    headers = [struct.unpack_from("<IIQQQQ", library, sections + index * size) for index in range(count)]
    text = headers[names_at][4]
    names = {library[text + header[0] : library.index(b"\0", text + header[0])].decode() for header in headers}
    assert ".text" in names
    assert not {name for name in names if name == ".symtab" or name.startswith(".debug")}
