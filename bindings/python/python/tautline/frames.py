"""Close codes and close frames."""

from __future__ import annotations

import dataclasses
import enum

__all__ = ["Close", "CloseCode"]


class CloseCode(enum.IntEnum):
    """Close codes (RFC 6455, section 7.4)."""

    NORMAL_CLOSURE = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    UNSUPPORTED_DATA = 1003
    NO_STATUS_RCVD = 1005
    ABNORMAL_CLOSURE = 1006
    INVALID_DATA = 1007
    POLICY_VIOLATION = 1008
    MESSAGE_TOO_BIG = 1009
    MANDATORY_EXTENSION = 1010
    INTERNAL_ERROR = 1011
    SERVICE_RESTART = 1012
    TRY_AGAIN_LATER = 1013
    BAD_GATEWAY = 1014
    TLS_HANDSHAKE = 1015


EXPLANATIONS = {
    1000: "OK",
    1001: "going away",
    1002: "protocol error",
    1003: "unsupported data",
    1005: "no status received [internal]",
    1006: "abnormal closure [internal]",
    1007: "invalid frame payload data",
    1008: "policy violation",
    1009: "message too big",
    1010: "mandatory extension",
    1011: "internal error",
    1012: "service restart",
    1013: "try again later",
    1014: "bad gateway",
    1015: "TLS handshake failure [internal]",
}

OK_CODES = (1000, 1001, 1005)


@dataclasses.dataclass
class Close:
    """The content of a close frame."""

    code: int
    reason: str

    def __str__(self) -> str:
        if 3000 <= self.code < 4000:
            explanation = "registered"
        elif 4000 <= self.code < 5000:
            explanation = "private use"
        else:
            explanation = EXPLANATIONS.get(self.code, "unknown")
        text = f"{int(self.code)} ({explanation})"
        return f"{text} {self.reason}" if self.reason else text


def close_frame(code: int, reason: str) -> Close:
    """The close frame that an application asks for."""
    if not (3000 <= code < 5000 or (1000 <= code <= 1014 and code not in (1004, 1005, 1006))):
        raise ValueError(f"{code} must not be in a close frame; give 1000 to 1014 or 3000 to 4999")
    if len(reason.encode()) > 123:
        raise ValueError("the reason of a close frame has at most 123 bytes in UTF-8: shorten it")
    return Close(int(code), reason)
