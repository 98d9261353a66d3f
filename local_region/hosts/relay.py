"""Lets hosts reach the region's endpoint under the URL that it has outside.

A host listens on 127.0.0.1 of its own network namespace and hands that socket out; connections accepted on it
here are carried to the same port of the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Coroutine
from typing import Any

_CHUNK_BYTES = 256 * 1024


class Relay:
    def __init__(self, port: int) -> None:
        self._port = port
        self._servers: dict[str, asyncio.Server] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="relay", daemon=True)
        self._thread.start()

    def open(self, host: str, listener: socket.socket) -> None:
        self._do(self._open(host, listener))

    def shut(self, host: str) -> None:
        self._do(self._shut(host))

    def close(self) -> None:
        for host in list(self._servers):
            self.shut(host)
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self, host: str, listener: socket.socket) -> None:
        self._servers[host] = await asyncio.start_server(self._carry, sock=listener)

    async def _shut(self, host: str) -> None:
        if server := self._servers.pop(host, None):
            server.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
            with contextlib.closing(back):
                await asyncio.gather(_pump(reader, back), _pump(there, writer))

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry one direction to its end; the other may go on after it."""
    while data := await reader.read(_CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
    if writer.can_write_eof():
        writer.write_eof()
