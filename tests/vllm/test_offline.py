"""`vllm.LLM` as a batch engine, in the environment of scripts/make_vllm_venv.sh (this one has no vllm)."""

import json
import subprocess
from pathlib import Path

from PIL import Image

SCRIPT = """
import json, sys
from pathlib import Path

if __name__ == "__main__":
    from models.errors import CallFailed
    from models.planner import Need, plan_cpu
    from models.requests import Decoding, Picture, user
    from models.shape import read_shape
    from models.vllm_offline import VllmOffline

    folder, frames, out = map(Path, sys.argv[1:])
    shape, _ = read_shape(folder)
    engine = VllmOffline(folder, plan_cpu(shape, Need(2048)))
    pictures = [Picture.of(path) for path in sorted(frames.glob("*.png"))]
    short = Decoding(max_tokens=6)
    requests = [
        user("hello", decoding=short),
        user(*pictures[:3], "What is it?", decoding=short),
        user("Is it so?", decoding=Decoding(max_tokens=4, choices=("Yes", "No"))),
        user("A number:", decoding=Decoding(max_tokens=8, pattern="[0-9]{3}")),
        user("Is it so?", decoding=Decoding(max_tokens=1, probe=("Yes", "No"))),
        user(Picture.of(frames / "broken.jpg"), "What?"),
        user("word " * 5000),
        user("hello", decoding=short),
    ]
    found = {}
    for i, reply in engine.complete_batch(requests):
        assert i not in found
        if isinstance(reply, CallFailed):
            found[i] = {"failed": reply.reason, "detail": reply.detail}
        else:
            found[i] = {"text": reply.text, "prompt": reply.prompt_tokens, "output": reply.output_tokens, "probs": dict(reply.probs)}
    out.write_text(json.dumps([found[i] for i in range(len(requests))]))
"""


def test_a_batch_with_everything_in_it(vllm: Path, no_server: None, tmp_path: Path) -> None:
    frames, root = tmp_path / "frames", Path(__file__).parents[2]
    checkpoint = root / "models" / "tiny-qwen2.5-vl"
    frames.mkdir()
    for i in range(3):
        Image.new("RGB", (112, 112), (60 * i, 90, 120)).save(frames / f"{i}.png")
    (frames / "broken.jpg").write_bytes(b"no picture")
    script = tmp_path / "offline.py"
    script.write_text(f"import sys; sys.path.insert(0, {str(root)!r})\n{SCRIPT}")
    log = (tmp_path / "log").open("w+")
    command = [vllm.with_name("python"), script, checkpoint, frames, tmp_path / "out.json"]
    done = subprocess.run(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False, timeout=1500)
    log.seek(0)
    assert done.returncode == 0, log.read()[-4000:]
    log.close()
    plain, pictures, choice, number, probed, broken, long, again = json.loads((tmp_path / "out.json").read_text())
    assert plain["text"] == again["text"] and 1 <= plain["output"] <= 6
    assert pictures["prompt"] > plain["prompt"]
    # Without white space: the mask knows the vocabulary's own spelling, and the prototype's tokenizer joins its words with spaces.
    assert choice["text"].strip() in ("Yes", "No")
    assert len("".join(number["text"].split())) == 3 and "".join(number["text"].split()).isdigit()
    assert set(probed["probs"]) == {"Yes", "No"} and 0 < sum(probed["probs"].values()) <= 1.001
    assert broken["failed"] == "bad-image"
    assert long["failed"] == "too-long", long
