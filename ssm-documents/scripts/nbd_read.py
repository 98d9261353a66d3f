"""Prints the first bytes of what a server speaks NBD about: python3 nbd_read.py SOCKET BYTES > OUTPUT"""

import socket
import struct
import sys

CHUNK = 1 << 20
EXPORT_NAME = 1
READ = 0


def received(server: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = server.recv(count)
        if not part:
            raise EOFError("the server closed the connection")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def open_export(server: socket.socket) -> None:
    """Fixed newstyle negotiation of the export without a name, without structured replies."""
    (offered,) = struct.unpack(">16xH", received(server, 18))
    # The same bits ask for what they offer: fixed newstyle, no padding after the answer.
    server.sendall(struct.pack(">I8sII", offered & 3, b"IHAVEOPT", EXPORT_NAME, 0))
    received(server, 10 if offered & 2 else 134)


def read(server: socket.socket, offset: int, count: int) -> bytes:
    server.sendall(struct.pack(">IHHQQI", 0x25609513, 0, READ, offset, offset, count))
    _, error, _ = struct.unpack(">IIQ", received(server, 16))
    if error:
        raise OSError(error, "the server cannot read")
    return received(server, count)


def main(path: str, size: int) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        open_export(server)
        for offset in range(0, size, CHUNK):
            sys.stdout.buffer.write(read(server, offset, min(CHUNK, size - offset)))


main(sys.argv[1], int(sys.argv[2]))
