"""Draws a creature and its attack at any time and size: the same picture at 140 × 84 and at 3840 × 2160.

Knows looks, motions and scenes; writes no file. Measures are units of a 160 × 90 canvas, scaled to the size asked for.

    python -c "from bench.world.render import *; from bench.world.creatures import make_world
    draw(make_world(7).creatures[0].look, 'breath', 'fire', .9, make_scene('wild', 1)).show()"
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import cos, pi, radians, sin
from typing import Final

from PIL import Image, ImageDraw

from bench.world.creatures import Look
from bench.world.poses import Pose, between, phase_of, pose
from bench.world.scene import HEIGHT, WIDTH, Colour, Scene, background, make_scene, shade, weathered

__all__ = ["BODY_RGB", "ELEMENT_RGB", "GLOW_RGB", "draw", "make_scene", "portrait"]

Point = tuple[float, float]
ELEMENT_RGB: Final[dict[str, Colour]] = {
    "fire": (255, 84, 0), "ice": (140, 250, 255), "lightning": (255, 240, 20), "water": (20, 60, 255), "poison": (190, 20, 215),
}  # fmt: skip
BODY_RGB: Final[tuple[Colour, ...]] = (
    (120, 84, 56), (74, 104, 66), (146, 146, 146), (62, 62, 72), (170, 138, 98),
    (128, 66, 62), (92, 118, 126), (214, 204, 186), (108, 92, 124), (150, 112, 108),
)  # fmt: skip
GLOW_RGB: Final[tuple[Colour, ...]] = ((255, 255, 255), (255, 170, 200), (170, 255, 170))
WHITE: Final[Colour] = (250, 250, 250)
SIZE = 1.3  # a creature's own unit in canvas units


class _Pen:
    """Canvas units → pixels, on one picture."""

    def __init__(self, image: Image.Image) -> None:
        self.d = ImageDraw.Draw(image)
        self.kx, self.ky = image.width / WIDTH, image.height / HEIGHT
        self.k = min(self.kx, self.ky)

    def _xy(self, points: Sequence[Point]) -> list[Point]:
        return [(x * self.kx, y * self.ky) for x, y in points]

    def width(self, width: float) -> int:
        return max(1, round(width * self.k))

    def poly(self, points: Sequence[Point], fill: Colour, outline: Colour | None = None) -> None:
        self.d.polygon(self._xy(points), fill=fill, outline=outline, width=self.width(0.9) if outline else 1)

    def line(self, points: Sequence[Point], fill: Colour, width: float) -> None:
        self.d.line(self._xy(points), fill=fill, width=self.width(width), joint="curve")

    def disc(self, x: float, y: float, rx: float, ry: float, fill: Colour | None, outline: Colour | None = None, width: float = 1) -> None:
        box = (*self._xy([(x - rx, y - ry)])[0], *self._xy([(x + rx, y + ry)])[0])
        self.d.ellipse(box, fill=fill, outline=outline, width=self.width(width) if outline else 1)

    def arc(self, x: float, y: float, rx: float, ry: float, start: float, end: float, fill: Colour, width: float) -> None:
        box = (*self._xy([(x - rx, y - ry)])[0], *self._xy([(x + rx, y + ry)])[0])
        self.d.arc(box, start, end, fill=fill, width=self.width(width))


def draw(
    look: Look, motion: str, element: str | None, t: float, scene: Scene, size: tuple[int, int] = (640, 360), glow: int | None = None,
) -> Image.Image:  # fmt: skip
    """One RGB frame of `size` (width, height) pixels at time t of [0, 1]; times of one `phase_of` give one picture.

    `glow` (0-2) is the ring of an attack phase. Small pictures are drawn twice as large and averaged, so that they look
    like large ones made small.
    """
    factor = 2 if size[0] <= 320 else 1
    large = (size[0] * factor, size[1] * factor)
    image = background(scene, large).copy()
    pen = _Pen(image)
    p = pose(motion, t)
    _hunter(pen, scene.hunter, scene.ground)
    figure = _Figure(look, p, 58 + scene.shift, scene.ground)
    if glow is not None:
        pen.disc(figure.x, figure.y, 34 * look.size, 23 * look.size, None, GLOW_RGB[glow % len(GLOW_RGB)], 1.8)
    u = phase_of(t)
    _creature(pen, figure, look, motion, u)
    if motion == "dig":  # the floor hides what is below it
        top = round(scene.ground * pen.ky)
        image.paste(background(scene, large).crop((0, top, *large)), (0, top))
    _traces(pen, figure, scene, motion, element, u)
    if element is not None and motion not in ("breath", "ball"):
        _aura(pen, figure, look, scene, element, u)
    image = weathered(image, scene)
    return image.reduce(factor) if factor > 1 else image


def portrait(look: Look, scene: Scene, size: tuple[int, int] = (640, 360)) -> Image.Image:
    """The creature at rest, for the graph's root."""
    image = background(scene, size).copy()
    rest = Pose(14, 0, 0, 165, 3, 0, 1, 2, 1)
    _creature(_Pen(image), _Figure(look, rest, 64, scene.ground), look, "rest", 0.0)
    return image


# ---- the creature ----------------------------------------------------------------------------------------------------
class _Figure:
    """Where the parts of a posed creature lie; `at` maps its own units to the canvas."""

    def __init__(self, look: Look, p: Pose, x: float, ground: float) -> None:
        self.s = s = look.size * SIZE
        self.pose, self.ground = p, ground
        self.x, self.y = x + p.dx * SIZE, ground - 20 * s + p.dy * SIZE
        self._cos, self._sin = cos(radians(p.rotation)), sin(radians(p.rotation))
        self.head = self.at(19 + p.reach, -8 - p.lift)
        self.mouth = (self.head[0] + p.turn * 9 * s, self.head[1] - (4 if p.lift > 8 else 0) * s)

    def at(self, x: float, y: float) -> Point:
        c, n, s = self._cos, self._sin, self.s
        return self.x + self.pose.turn * (x * c - y * n) * s, self.y + (x * n + y * c) * s


def _oval(rx: float, ry: float) -> tuple[Point, ...]:
    return tuple((rx * cos(2 * pi * i / 18), ry * sin(2 * pi * i / 18)) for i in range(18))


_BODIES: Final[dict[str, tuple[Point, ...]]] = {
    "ellipse": _oval(16, 10),
    "long": _oval(19, 7.5),
    "box": ((-15, -9), (14, -9), (15, 8), (-14, 9)),
    "tri": ((-17, 9), (-2, -13), (16, 9)),
}


def _creature(pen: _Pen, f: _Figure, look: Look, motion: str, u: float) -> None:
    p, s, at = f.pose, f.s, f.at
    body = BODY_RGB[look.colour % len(BODY_RGB)]
    dark, light = shade(body, 0.6), shade(body, 1.3)
    length, angle = 22 * look.tail, radians(p.tail)
    root = (-13.0, -2.0) if p.tail > 60 else (-9.0, -8.0)
    tip = (root[0] + length * cos(angle) * (1.0 if p.tail > 60 else 1.4), root[1] - length * sin(angle))
    pen.line([at(*root), at((root[0] + tip[0]) / 2 - 1, (root[1] + tip[1]) / 2 - 2), at(*tip)], dark, 5 * s)
    pen.disc(*at(*tip), 2.5 * s, 2.5 * s, dark)
    if motion != "dive":
        step = 3 * sin(4 + u * 16) if motion in ("charge", "leap", "back") else 0.0
        for i in range(look.legs):
            x = -10 + 20 * i / (look.legs - 1)
            foot = at(x + (step if i % 2 else -step), 20 if p.dy > -8 else 16)
            pen.line([at(x, 5), foot], dark, 4 * s)
    if look.wings or motion == "dive":
        pen.poly([at(-8, -6), at(5, -6), at(-4, -20 - p.wing), at(-17, -14 - p.wing)], light, dark)
    pen.poly([at(*q) for q in _BODIES[look.shape]], body, dark)
    pen.line([at(10, -3), f.head], body, 8 * s)
    _head(pen, f, look, body, dark)


def _head(pen: _Pen, f: _Figure, look: Look, body: Colour, dark: Colour) -> None:
    p, s = f.pose, f.s
    (x, y), (mx, my), r = f.head, f.mouth, 6.5 * s
    for i in range(look.horns):
        pen.line([(x - (1 + 4 * i) * s * p.turn, y - r + s), (x - (4 + 4 * i) * s * p.turn, y - r - 6 * s)], (236, 226, 196), 2.2 * s)
    pen.line([(x, y + 2 * s), (mx, my + (2 + p.mouth * 0.7) * s)], dark, 3 * s)
    pen.line([(x, y), (mx, my - p.mouth * 0.6 * s)], body, 3.6 * s)
    if p.mouth > 8:  # teeth
        for k in (0.55, 0.75, 0.95):
            tx, ty = x + (mx - x) * k, y - p.mouth * 0.5 * s * k
            pen.poly([(tx - s, ty), (tx + s, ty), (tx, ty + 3 * s)], WHITE)
    pen.disc(x, y, r, r, body)
    pen.disc(x + 1.5 * s * p.turn, y - 2.5 * s, 1.7 * s, 1.7 * s, WHITE)
    pen.disc(x + 2 * s * p.turn, y - 2.5 * s, 0.8 * s, 0.8 * s, (20, 20, 20))


def _hunter(pen: _Pen, x: float, ground: float) -> None:
    dark = (34, 34, 40)
    pen.line([(x - 4, ground), (x, ground - 9), (x + 4, ground)], dark, 2.4)
    pen.line([(x, ground - 9), (x, ground - 18)], dark, 3.4)
    pen.line([(x, ground - 15), (x - 5, ground - 13), (x - 8, ground - 22)], (206, 206, 214), 1.6)
    pen.disc(x, ground - 21.5, 3.4, 3.4, (238, 200, 170))


# ---- what an attack leaves in the air and on the ground --------------------------------------------------------------
def _tail_trace(pen: _Pen, f: _Figure, scene: Scene, element: str | None, u: float, left: bool) -> None:
    if u < 0.4:
        return
    x, y = f.at(-13, -2)
    r = 29 * f.s
    start, end = (260 - 95 * (u - 0.4) / 1.6, 268) if left else (215, 225 + 105 * (u - 0.4) / 1.6)
    pen.arc(x, y, r, r, start, end, WHITE, 2.2)
    a = radians(start if left else end)
    tip = (x + r * cos(a), y + r * sin(a))
    side = 1.0 if left else -1.0
    for turn in (0.5, -0.5):
        b = a + side * (pi / 2 + turn)
        pen.line([tip, (tip[0] + 7 * cos(b), tip[1] + 7 * sin(b))], WHITE, 2.2)


def _breath(pen: _Pen, f: _Figure, scene: Scene, element: str | None, u: float) -> None:
    (mx, my), n = f.mouth, between(u, 10, 36, 58)
    assert element is not None
    pen.poly([(mx, my - 1), (mx + n, my - n * 0.26), (mx + n, my + n * 0.26), (mx, my + 2)], ELEMENT_RGB[element])
    for i in range(int(u * 4)):
        a, b = scene.jitter[2 * i], scene.jitter[2 * i + 1]
        _glyph(pen, element, mx + n * (0.85 + 0.2 * a), my + n * 0.3 * b, 3.6, edge=True)


def _ball(pen: _Pen, f: _Figure, scene: Scene, element: str | None, u: float) -> None:
    (mx, my), n = f.mouth, between(u, 6, 30, 58)
    assert element is not None
    for k in (1, 2):
        if n > 12 * k:
            _glyph(pen, element, mx + n - 7 - 6 * k, my + 2 * scene.jitter[k], 3.4)
    pen.disc(mx + n, my, 8, 8, ELEMENT_RGB[element], WHITE, 1.4)
    _glyph(pen, element, mx + n, my, 3.4, edge=True)


def _slam(pen: _Pen, f: _Figure, scene: Scene, element: str | None, u: float) -> None:
    if u > 1.4:
        n = (u - 1.4) / 0.6
        for k in (-40, -27, 27, 40):
            points = [(f.x + k * 0.6, f.ground), (f.x + k, f.ground - 13 * n), (f.x + k * 1.2, f.ground)]
            pen.poly(points, (96, 74, 56), (50, 36, 28))


def _spin(pen: _Pen, f: _Figure, scene: Scene, element: str | None, u: float) -> None:
    for k, ry in ((0, 15), (180, 15)):
        pen.arc(f.x, f.y + 6, 42, ry, u * 110 + k, u * 110 + k + 115, WHITE, 2.4)


def _roar(pen: _Pen, f: _Figure, scene: Scene, element: str | None, u: float) -> None:
    mx, my = f.mouth
    for k in range(1, 1 + round(u * 2)):
        pen.arc(mx, my - 4, 5 + 6 * k, 5 + 6 * k, 285, 375, WHITE, 2.4)


def _rock(pen: _Pen, f: _Figure, scene: Scene, element: str | None, u: float) -> None:
    hx, hy = f.head
    x, y = hx + between(u, -2, 30, 60), hy + between(u, -16, -18, 6)
    points = [(x - 9, y + 4), (x - 4, y - 8), (x + 6, y - 7), (x + 9, y + 4), (x, y + 9)]
    pen.poly(points, (112, 106, 100), (46, 44, 42))


def _dig(pen: _Pen, f: _Figure, scene: Scene, element: str | None, u: float) -> None:
    for k in range(-2, 3):
        pen.disc(f.x + 12 * k, f.ground + 1, 8, 4 + 3 * u, shade(scene.floor, 0.62))


def _dust(pen: _Pen, f: _Figure, scene: Scene, element: str | None, u: float) -> None:
    for k in range(3):
        pen.disc(f.x - 36 - 9 * k, f.ground - 4 - k, 6 - k, 5 - k, (236, 230, 216), (190, 182, 166), 0.8)


_TRACES: Final[dict[str, Callable[[_Pen, _Figure, Scene, str | None, float], None]]] = {
    "tail_left": lambda pen, f, scene, e, u: _tail_trace(pen, f, scene, e, u, True),
    "tail_right": lambda pen, f, scene, e, u: _tail_trace(pen, f, scene, e, u, False),
    "breath": _breath, "ball": _ball, "slam": _slam, "spin": _spin, "roar": _roar, "rock": _rock, "dig": _dig, "charge": _dust,
}  # fmt: skip


def _traces(pen: _Pen, f: _Figure, scene: Scene, motion: str, element: str | None, u: float) -> None:
    trace = _TRACES.get(motion)
    if trace is not None:
        trace(pen, f, scene, element, u)


def _aura(pen: _Pen, f: _Figure, look: Look, scene: Scene, element: str, u: float) -> None:
    for i in range(10):
        a = i * 2 * pi / 10 + 0.2 * scene.jitter[i] + 0.5 * u
        y = min(f.y + 24 * look.size * sin(a), f.ground - 4)
        _glyph(pen, element, f.x + 36 * look.size * cos(a), y, 3.8 + 0.6 * scene.jitter[i + 10])


def _glyph(pen: _Pen, element: str, x: float, y: float, s: float, edge: bool = False) -> None:
    """A small mark of an element: flame, crystal, bolt, drop or vial."""
    c = ELEMENT_RGB[element]
    o = shade(c, 0.55) if edge else None
    if element == "fire":
        pen.poly([(x - s, y + s), (x - 0.7 * s, y - 0.4 * s), (x, y - 1.7 * s), (x + 0.7 * s, y - 0.4 * s), (x + s, y + s)], c, o)
    elif element == "ice":
        pen.poly([(x - s, y), (x, y - 1.5 * s), (x + s, y), (x, y + 1.5 * s)], c, o)
    elif element == "lightning":
        pen.line([(x + s, y - 1.6 * s), (x - 0.6 * s, y), (x + 0.7 * s, y), (x - s, y + 1.6 * s)], o or c, 2.4)
    elif element == "water":
        pen.disc(x, y, s * 0.95, s * 1.15, c, o)
    else:
        pen.poly([(x - s, y - s), (x + s, y - s), (x + 0.7 * s, y + s), (x - 0.7 * s, y + s)], c, o)
