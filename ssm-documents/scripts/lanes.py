"""Carry one stream over two network links: pieces go by turns over one connection a link, and are joined in order.

``lanes.py split SOCKET PORT OWN1,PEER1 OWN2,PEER2`` listens at a unix socket and connects to the peer's addresses;
``lanes.py join SOCKET PORT OWN1 OWN2`` listens at its own addresses and connects to a unix socket.
"""

import contextlib
import socket
import sys
import threading

# Half of the largest request of common workloads, so that both links carry a part of it.
PIECE_BYTES = 32 * 1024
LENGTH_BYTES = 4


def cut(whole: socket.socket, lanes: list[socket.socket]) -> None:
    turn = 0
    while piece := whole.recv(PIECE_BYTES):
        lanes[turn].sendall(len(piece).to_bytes(LENGTH_BYTES, "big") + piece)
        turn = (turn + 1) % len(lanes)


def join(lanes: list[socket.socket], whole: socket.socket) -> None:
    readers = [lane.makefile("rb") for lane in lanes]
    turn = 0
    while length := readers[turn].read(LENGTH_BYTES):
        whole.sendall(readers[turn].read(int.from_bytes(length, "big")))
        turn = (turn + 1) % len(lanes)


def carry(whole: socket.socket, lanes: list[socket.socket]) -> None:
    """Both ways, until either end or any lane closes; then all of it closes."""
    for lane in lanes:
        lane.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    ends = [whole, *lanes]

    def one_way(work, *arguments) -> None:  # type: ignore[no-untyped-def]
        with contextlib.suppress(OSError):
            work(*arguments)
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    there = threading.Thread(target=one_way, args=(cut, whole, lanes))
    there.start()
    one_way(join, lanes, whole)
    there.join()
    for end in ends:
        end.close()


def split_end(path: str, port: int, pairs: list[str]) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        while True:
            whole, _ = listener.accept()
            lanes = []
            for pair in pairs:
                own, peer = pair.split(",")
                lanes.append(socket.create_connection((peer, port), timeout=10, source_address=(own, 0)))
                lanes[-1].settimeout(None)
            carry(whole, lanes)


def join_end(path: str, port: int, addresses: list[str]) -> None:
    listeners = [socket.create_server((address, port)) for address in addresses]
    while True:
        lanes = [listener.accept()[0] for listener in listeners]
        whole = socket.socket(socket.AF_UNIX)
        whole.connect(path)
        carry(whole, lanes)


if __name__ == "__main__":
    {"split": split_end, "join": join_end}[sys.argv[1]](sys.argv[2], int(sys.argv[3]), sys.argv[4:])
