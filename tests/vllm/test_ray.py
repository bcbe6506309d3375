"""A Ray cluster of two nodes on this machine: a managed vLLM on each, asked by the ordinary client. Runs in vllm's own environment."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from models import processes

ROOT = Path(__file__).parents[2]
SCRIPT = """
import asyncio, json, os, signal, sys, time
from pathlib import Path

if __name__ == "__main__":
    from ray.cluster_utils import Cluster
    from models import environment
    from models.errors import ModelError
    from models.placement import Placement
    from models.ray_fleet import RayFleet
    from models.requests import Decoding, user
    from models.vllm_flags import ServeOptions

    environment.apply()
    out, logs, model, vllm = map(Path, sys.argv[1:])
    small = {"num_cpus": 1, "object_store_memory": 80 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**small, "include_dashboard": False})
    cluster.add_node(**small)
    found = {}
    where, options = Placement(device="cpu", context=2048), ServeOptions("tiny", sequences=16)
    try:
        RayFleet(Path("/nowhere/at/all"), where, options, address=cluster.address, log_folder=logs).__enter__()
    except ModelError as error:
        found["absent"] = str(error)

    async def all_of(engine):
        await engine.open()
        try:
            calls = [user(f"hello {i} " + "x" * 300, decoding=Decoding(max_tokens=3)) for i in range(24)]
            return await asyncio.gather(*map(engine.complete, calls))
        finally:
            await engine.close()

    with RayFleet(model, where, options, address=cluster.address, log_folder=logs, vllm=str(vllm)) as fleet:
        replies = asyncio.run(all_of(fleet.engine()))
        found["urls"], found["replies"] = fleet.urls, sum(reply.output_tokens > 0 for reply in replies)
        found["digest"] = fleet.engine().digest
        import ray
        ray.kill(fleet._actors[1])
        for _ in range(300):
            try:
                fleet.check()
            except ModelError as error:
                found["lost"] = str(error)
                break
            time.sleep(0.1)
    cluster.shutdown()
    out.write_text(json.dumps(found))
"""


def test_two_nodes_serve_and_a_lost_one_is_told(
    vllm: Path, vllm_python: Callable[[Path], list[Any]], no_server: None, tmp_path: Path
) -> None:
    before = {pid for one in processes.servers() for pid in one.pids}
    script = tmp_path / "cluster.py"
    script.write_text(SCRIPT)
    arguments = [tmp_path / "out.json", tmp_path / "logs", ROOT / "models" / "tiny-qwen2.5-vl", vllm]
    with (tmp_path / "said").open("w+") as said:
        done = subprocess.run([*vllm_python(script), *arguments], cwd=ROOT, stdout=said, stderr=subprocess.STDOUT, timeout=900, check=False)
        said.seek(0)
        assert done.returncode == 0, said.read()[-4000:]
    found = json.loads((tmp_path / "out.json").read_text())
    assert "node 1 of 2" in found["absent"] and "node 2 of 2" in found["absent"] and "config.json" in found["absent"]
    assert len(set(found["urls"])) == 2 and found["replies"] == 24
    assert found["digest"].startswith("openai:tiny@") and "http" not in found["digest"]
    assert "node 2 of 2" in found["lost"] and "goes on from here" in found["lost"]
    assert {pid for one in processes.servers() for pid in one.pids} <= before


OWNER = """
import sys, time
from pathlib import Path

if __name__ == "__main__":
    from models.placement import Placement
    from models.ray_fleet import RayFleet
    from models.vllm_flags import ServeOptions

    model, logs, vllm = map(Path, sys.argv[1:])
    where = Placement(device="cpu", context=2048)
    with RayFleet(model, where, ServeOptions("tiny"), address="local", log_folder=logs, vllm=str(vllm)) as fleet:
        print("ready", *fleet.urls, flush=True)
        time.sleep(600)
"""


def test_kill_9_of_the_run_ends_the_servers_of_its_actors(
    vllm_python: Callable[[Path], list[Any]], no_server: None, tmp_path: Path
) -> None:
    """On a stand-in whose workers are deaf to SIGTERM: Ray would end an actor's watchdog with the actor, and leave them."""
    fake, script = tmp_path / "vllm", tmp_path / "owner.py"
    fake.write_text(f"#!{sys.executable}\n{(ROOT / 'tests' / 'models' / 'fake_vllm.py').read_text()}")
    fake.chmod(0o755)
    model = tmp_path / "model"
    shutil.copytree(ROOT / "models" / "tiny-qwen2.5-vl", model)
    (model / "behaviour.json").write_text("{}")
    script.write_text(OWNER)
    command = [*vllm_python(script), model, tmp_path / "logs", fake]
    owner = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert owner.stdout is not None
    try:
        line = next((line for line in owner.stdout if line.startswith("ready")), "")
        assert "http://127.0.0.1:" in line
        pids = [int(pid) for pid in (model / "pids").read_text().split()]
        assert all(processes.started(pid) for pid in pids)
        ours = os.getpriority(os.PRIO_PROCESS, owner.pid)
        assert [os.getpriority(os.PRIO_PROCESS, pid) for pid in pids] == [ours] * len(pids), "Ray's workers run at niceness 15"
    finally:
        owner.kill()
        owner.wait()
        owner.stdout.close()
    deadline = time.monotonic() + 60
    while any(processes.started(pid) for pid in pids):
        assert time.monotonic() < deadline, "the servers outlived the run"
        time.sleep(0.2)
