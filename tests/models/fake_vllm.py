"""Behaves like `vllm serve` as far as its process goes. behaviour.json in the model folder says how it misbehaves."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

folder = Path(sys.argv[2])
flags = sys.argv[3:]


def value(flag):
    return flags[flags.index(flag) + 1]


do = json.loads((folder / "behaviour.json").read_text())
starts = folder / "starts"
starts.write_text(starts.read_text() + "x" if starts.exists() else "x")
(folder / "argv.json").write_text(json.dumps(sys.argv[1:]))
(folder / "env.json").write_text(json.dumps(dict(os.environ)))
print("INFO Starting to load model", folder, flush=True)
if do.get("ignore_term"):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
sleeper = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
# A worker in the same group, and one that left for a session of its own; both deaf to SIGTERM.
workers = [subprocess.Popen([sys.executable, "-c", sleeper], start_new_session=own) for own in (False, True)]
(folder / "pids").write_text(" ".join(str(pid) for pid in [os.getpid(), *[w.pid for w in workers]]))
time.sleep(do.get("delay", 0))
if "die" in do:
    print(do["die"], file=sys.stderr, flush=True)
    os._exit(1)


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        if (folder / "hang").exists():
            time.sleep(600)
        key = os.environ["VLLM_API_KEY"]
        fine = self.path == "/health" or self.headers.get("Authorization") == "Bearer " + key
        body = json.dumps({"data": [{"id": do.get("name") or value("--served-model-name")}]}).encode()
        self.send_response(200 if fine else 401)
        self.end_headers()
        self.wfile.write(body if fine else b"")

    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    daemon_threads = True


def crash():
    while not (folder / "crash").exists():
        time.sleep(0.02)
    (folder / "crash").unlink()
    print("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


threading.Thread(target=crash, daemon=True).start()
if do.get("steal"):  # the first start finds its port taken
    do["steal"] = False
    (folder / "behaviour.json").write_text(json.dumps(do))
    print("ERROR: [Errno 98] error while attempting to bind on address: Address already in use", flush=True)
    os._exit(1)
Server((value("--host"), int(value("--port"))), Handler).serve_forever()
