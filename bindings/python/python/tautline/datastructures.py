"""HTTP headers."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Iterator, Mapping, MutableMapping

__all__ = ["Headers", "HeadersLike", "MultipleValuesError"]


class MultipleValuesError(LookupError):
    """A header occurs more than once: ``Headers.get_all`` has all values."""

    def __str__(self) -> str:
        return repr(self.args[0]) if len(self.args) == 1 else super().__str__()


class Headers(MutableMapping[str, str]):
    """HTTP headers: names without regard to case, in order, each with one or more values.

    Assigning to a name adds a value, as in the package ``websockets``; delete the name first to replace its values.
    """

    def __init__(self, *args: HeadersLike, **kwargs: str) -> None:
        self._items: list[tuple[str, str]] = []
        self.update(*args, **kwargs)

    def __str__(self) -> str:
        return "".join(f"{name}: {value}\r\n" for name, value in self._items) + "\r\n"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._items!r})"

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(self.get_all(name))

    def __iter__(self) -> Iterator[str]:
        return iter({name.lower(): None for name, _ in self._items})

    def __len__(self) -> int:
        return len({name.lower() for name, _ in self._items})

    def __getitem__(self, name: str) -> str:
        values = self.get_all(name)
        if not values:
            raise KeyError(name)
        if len(values) > 1:
            raise MultipleValuesError(name)
        return values[0]

    def __setitem__(self, name: str, value: str) -> None:
        if "\r" in value or "\n" in value:
            raise ValueError(f"invalid HTTP header {name}: {value!r} has a line break")
        self._items.append((name, value))

    def __delitem__(self, name: str) -> None:
        lower = name.lower()
        rest = [item for item in self._items if item[0].lower() != lower]
        if len(rest) == len(self._items):
            raise KeyError(name)
        self._items = rest

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Headers):
            return NotImplemented
        own, others = ([(name.lower(), value) for name, value in one._items] for one in (self, other))
        return sorted(own) == sorted(others)

    def copy(self) -> Headers:
        """A copy."""
        return Headers(self._items)

    def clear(self) -> None:
        """Removes all headers."""
        self._items.clear()

    def update(self, *args: HeadersLike, **kwargs: str) -> None:  # type: ignore[override]
        """Adds headers of ``Headers``, mappings or pairs. A name that they have loses its earlier values."""
        for source in (*args, kwargs):
            if isinstance(source, Headers):
                pairs = list(source.raw_items())
            elif isinstance(source, Mapping):
                pairs = list(source.items())
            else:
                pairs = list(source)
            for name in {name.lower() for name, _ in pairs}:
                self.pop(name, None)
            for name, value in pairs:
                self[name] = value

    def pop(self, name: str, *default: typing.Any) -> typing.Any:
        """Removes a header, and returns its last value."""
        values = self.get_all(name)
        if values:
            del self[name]
            return values[-1]
        if default:
            return default[0]
        raise KeyError(name)

    def get_all(self, name: str) -> list[str]:
        """All values of a header."""
        lower = name.lower()
        return [value for other, value in self._items if other.lower() == lower]

    def raw_items(self) -> Iterator[tuple[str, str]]:
        """All names and values, in order."""
        return iter(list(self._items))


HeadersLike = typing.Union[Headers, Mapping[str, str], Iterable[tuple[str, str]]]
