"""Messages over a Unix socket: length-prefixed msgpack, never pickle."""

import contextlib
import socket
import struct
import threading
from typing import Any, cast

import msgpack

_LENGTH = struct.Struct(">I")
_MAX_MESSAGE_BYTES = 1 << 30

# A message is a tuple: its kind, then its fields.
Message = tuple[Any, ...]


def pack(*message: object) -> bytes:
    """A message as it goes over the socket.

    Raises:
        ValueError, OverflowError, TypeError: it holds something that msgpack cannot express.
    """
    body = cast("bytes", msgpack.packb(message))
    return _LENGTH.pack(len(body)) + body


class Channel:
    """One end of a connected stream socket; owned.

    `send` may be called from several threads; `receive` from one.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._reader = connection.makefile("rb")
        self._send_lock = threading.Lock()

    def send(self, *message: object) -> None:
        """Pack and send one message; waits while the peer's buffer is full.

        Raises:
            OSError: the peer is gone.
            ValueError, OverflowError, TypeError: the message cannot be expressed.
        """
        self.send_packed(pack(*message))

    def send_packed(self, packed: bytes) -> None:
        """Send what `pack` returned; waits while the peer's buffer is full.

        Raises:
            OSError: the peer is gone.
        """
        with self._send_lock:
            self._connection.sendall(packed)

    def receive(self) -> Message | None:
        """Wait for the next message; None when the peer is gone. Lists arrive as tuples."""
        header = self._read(_LENGTH.size)
        if header is None:
            return None
        (length,) = _LENGTH.unpack(header)
        if length > _MAX_MESSAGE_BYTES:
            return None
        body = self._read(length)
        if body is None:
            return None
        return msgpack.unpackb(body, use_list=False, strict_map_key=False)

    def close(self) -> None:
        """Close the connection; a `receive` under way on another thread returns None."""
        with contextlib.suppress(OSError):  # the peer may have been faster
            self._connection.shutdown(socket.SHUT_RDWR)
        self._reader.close()
        self._connection.close()

    def _read(self, size_bytes: int) -> bytes | None:
        try:
            data = self._reader.read(size_bytes)
        except (OSError, ValueError):  # ValueError: closed meanwhile
            return None
        return data if len(data) == size_bytes else None
