"""Backgrounds of the sample world: an arena for the graph's pictures, the wild for the questions' (MH-MMKG, sections 7.1 and 7.2).

One wild scene in three lies in bad weather, so that a picture does not always show what a human note of it says (Table 2: the
unaided settings are harder than the perceptive one). Knows nothing of creatures.
All measures are units of a 160 × 90 canvas; colours are muted, so that elements stand out.

    python -c "from bench.world.scene import make_scene, background; background(make_scene('wild', 7), (640, 360)).show()"
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Final, Literal

from PIL import Image, ImageDraw, ImageEnhance

Family = Literal["arena", "wild"]
Colour = tuple[int, int, int]
WIDTH, HEIGHT = 160.0, 90.0

ARENA_WALLS: Final[tuple[Colour, ...]] = ((176, 160, 140), (150, 146, 150), (138, 124, 118), (186, 176, 160))
ARENA_FLOORS: Final[tuple[Colour, ...]] = ((206, 188, 152), (176, 164, 148), (160, 140, 112))
WILD_SKIES: Final[tuple[Colour, ...]] = ((168, 192, 206), (198, 178, 172), (104, 112, 132), (176, 190, 170), (138, 148, 160))
WILD_GROUNDS: Final[tuple[Colour, ...]] = ((92, 112, 70), (112, 98, 70), (78, 92, 84), (124, 118, 88))
ROUGH: Final = 0.34  # share of wild scenes in bad weather
WEATHERS: Final = ("mist", "dusk", "thicket")


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that a seed decides about a picture apart from the creature.

    `ground`: height of the floor in units. `shift`: where the creature starts, `hunter`: where the hunter stands, in units.
    `jitter`: numbers of [-1, 1] for whatever needs a little disorder. `weather`: one of WEATHERS, or "" for a clear day.
    """

    family: Family
    seed: int
    back: Colour
    floor: Colour
    ground: float
    shift: float
    hunter: float
    jitter: tuple[float, ...]
    weather: str = ""


def make_scene(family: Family, seed: int) -> Scene:
    """The scene of a family and a seed."""
    rng = Random(seed * 2 + (family == "wild"))
    back, floor = (rng.choice(p) for p in ((ARENA_WALLS, ARENA_FLOORS) if family == "arena" else (WILD_SKIES, WILD_GROUNDS)))
    return Scene(
        family,
        seed,
        _vary(rng, back, 12),
        _vary(rng, floor, 10),
        rng.uniform(74, 79),
        rng.uniform(-5, 5),
        rng.uniform(136, 150),
        tuple(rng.uniform(-1, 1) for _ in range(24)),
        _weather(seed) if family == "wild" else "",
    )


def _weather(seed: int) -> str:
    rng = Random(f"weather/{seed}")  # its own draws: a clear scene looks the same whatever the weather elsewhere
    return rng.choice(WEATHERS) if rng.random() < ROUGH else ""


def weathered(image: Image.Image, scene: Scene) -> Image.Image:
    """The finished frame as the scene's weather lets it through: veiled, darkened, or partly behind trunks."""
    if not scene.weather:
        return image
    amount = abs(scene.jitter[20])  # 0 to 1, the same in all frames of a clip
    if scene.weather == "mist":
        return Image.blend(image, Image.new("RGB", image.size, (196, 200, 204)), 0.5 + 0.35 * amount)
    if scene.weather == "dusk":
        dark = ImageEnhance.Brightness(image).enhance(0.5 - 0.28 * amount)
        return Image.blend(dark, Image.new("RGB", image.size, (14, 16, 40)), 0.45)
    kx, ky = image.width / WIDTH, image.height / HEIGHT
    d = ImageDraw.Draw(image)
    bark = shade(scene.floor, 0.45)
    for n in range(4 + round(3 * amount)):
        x = 18 + 20 * n + 8 * scene.jitter[n + 12]
        width = 4 + 3 * amount + 2 * scene.jitter[n]
        d.rectangle(((x - width) * kx, 0, (x + width) * kx, HEIGHT * ky), fill=bark)
    return image


def shade(colour: Colour, factor: float) -> Colour:
    """The colour made darker (below 1) or lighter (above 1)."""
    r, g, b = (min(255, int(v * factor)) for v in colour)
    return r, g, b


def _vary(rng: Random, colour: Colour, amount: int) -> Colour:
    r, g, b = (max(0, min(255, v + rng.randint(-amount, amount))) for v in colour)
    return r, g, b


@lru_cache(maxsize=4)
def background(scene: Scene, size: tuple[int, int]) -> Image.Image:
    """The empty scene in `size` (width, height) pixels; shared between frames: copy before drawing on it."""
    kx, ky = size[0] / WIDTH, size[1] / HEIGHT
    image = Image.new("RGB", size, scene.back)
    d = ImageDraw.Draw(image)

    def box(x0: float, y0: float, x1: float, y1: float, colour: Colour) -> None:
        d.rectangle((x0 * kx, y0 * ky, x1 * kx, y1 * ky), fill=colour)

    g, j = scene.ground, scene.jitter
    if scene.family == "arena":  # a stone wall with pillars and a rail, a sandy floor
        box(0, 0, WIDTH, 9, shade(scene.back, 0.72))
        for n in range(6):
            x = 32 * n - 6 + 6 * j[0]
            box(x, 9, x + 9, g, shade(scene.back, 0.86))
            box(x - 2, 9, x + 11, 13, shade(scene.back, 0.78))
        box(0, g - 7, WIDTH, g - 4, shade(scene.back, 0.7))
        box(0, g, WIDTH, HEIGHT, scene.floor)
        box(0, g, WIDTH, g + 1.2, shade(scene.floor, 0.8))
    else:  # hills, trees, grass
        for n in range(3):
            x, w, h = 60 * n + 18 * j[n], 62 + 14 * j[n + 3], 26 + 12 * j[n + 6]
            d.polygon([((x - w) * kx, g * ky), (x * kx, (g - h) * ky), ((x + w) * kx, g * ky)], fill=shade(scene.back, 0.86 - 0.05 * n))
        box(0, g, WIDTH, HEIGHT, scene.floor)
        for n in range(5):
            x, h = 36 * n + 9 * j[n + 9], 24 + 8 * j[n + 12]
            box(x - 1.2, g - h * 0.5, x + 1.2, g, shade(scene.floor, 0.6))
            crown = [((x - 7) * kx, (g - h * 0.35) * ky), (x * kx, (g - h) * ky), ((x + 7) * kx, (g - h * 0.35) * ky)]
            d.polygon(crown, fill=shade(scene.floor, 0.75))
        for n in range(12):
            x, y = 14 * n + 6 * j[n], g + 5 + 3 * j[n + 12]
            box(x, y, x + 2.5, y + 1.4, shade(scene.floor, 0.8))
    return image
