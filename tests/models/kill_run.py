"""Run as a process of its own by test_journal.py, and killed by it: kill_run.py JOURNAL URL SAMPLES."""

import sys
from pathlib import Path

from models.agents import Call, ask
from models.drivers import run
from models.journal import Journal
from models.openai_server import OpenAIServer
from models.requests import user


def episode(name):
    found = []
    for step in range(3):
        found += yield from ask([Call("agent", "stage", user(f"{name}/{step}/{k}"), str) for k in range(2)])
    return " ".join(found)


if __name__ == "__main__":
    path, url, samples = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    with Journal(path) as journal:
        episodes = ((f"s{i}", episode(f"s{i}")) for i in range(samples))
        got = run(episodes, {"agent": OpenAIServer([url], "tiny", identity="stub", slots=8)}, journal)
    print(sum(o.ok for o in got.values()), len({o.value for o in got.values()}))
