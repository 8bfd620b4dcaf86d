"""A server of a test in; it ended, with all that it served."""

import asyncio

TURNS = 10  # of the loop; who was accepted is served after four


async def close(server: asyncio.Server) -> None:
    """Take no more connections and end those that there are."""
    for listening in server.sockets:
        asyncio.get_running_loop().remove_reader(listening)
    for _ in range(TURNS):  # a task that is cancelled before its first step closes no stream
        await asyncio.sleep(0)
    server.close()
    served = asyncio.all_tasks() - {asyncio.current_task()}
    for task in served:
        task.cancel()
    await asyncio.gather(*served, return_exceptions=True)
    await asyncio.sleep(0)  # transports that were aborted close their sockets now
