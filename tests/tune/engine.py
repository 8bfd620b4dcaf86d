"""A program that is started as an engine is: `engine.py --port N [options]` answers /health, and has its whims.

--fails WORDS: says so and ends with status 3. --stubborn: ignores SIGINT and SIGTERM. --child: has a child of its own.
--never: does not answer. --note FILE: writes its process ids there.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path


class Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--fails")
    parser.add_argument("--note", type=Path)
    for flag in ("--stubborn", "--child", "--never"):
        parser.add_argument(flag, action="store_true")
    options = parser.parse_args()
    if options.fails:
        print(f"INFO starting\nValueError: {options.fails}\nINFO the end", flush=True)
        sys.exit(3)
    if options.stubborn:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
    pids = [os.getpid()]
    if options.child:
        pids.append(subprocess.Popen(("sleep", "300")).pid)
    if options.note:
        options.note.write_text(" ".join(map(str, pids)))
    if options.never:
        time.sleep(300)
    HTTPServer(("127.0.0.1", options.port), Health).serve_forever()


if __name__ == "__main__":
    main()
