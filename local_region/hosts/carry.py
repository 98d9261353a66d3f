"""python -I -S carry.py PORT: joins standard input, a socket, to a TCP port of this machine.

QEMU starts it for each connection of a guest to the region's endpoint: the one way out of a guest that is not
its network.
"""

import socket
import sys
import threading
from contextlib import suppress

CHUNK_BYTES = 256 * 1024


def pump(source: socket.socket, target: socket.socket) -> None:
    """Carry one direction to its end; the other may go on after it."""
    with suppress(OSError):
        while data := source.recv(CHUNK_BYTES):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def main() -> None:
    guest = socket.socket(fileno=0)
    with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as endpoint:
        thread = threading.Thread(target=pump, args=(guest, endpoint), daemon=True)
        thread.start()
        pump(endpoint, guest)
        thread.join()


if __name__ == "__main__":
    main()
