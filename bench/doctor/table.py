"""The checks as one table, in the order of the page. A check is a row; adding one is adding a row."""

from __future__ import annotations

from bench.doctor import graphics, holdings, machine, media, network, packages
from bench.doctor.rows import Check

CHECKS: tuple[Check, ...] = (
    Check("python", "machine", machine.interpreter),
    Check("processor", "machine", machine.processor),
    Check("memory", "machine", machine.memory),
    Check("disk", "machine", machine.disk),
    Check("limits", "machine", machine.limits),
    Check("locale", "machine", machine.language),
    Check("clock", "machine", machine.clock),
    Check("tools", "machine", network.tools),
    Check("packages", "software", packages.locked),
    Check("imports", "software", packages.importable, 600.0),
    Check("gpus", "graphics", graphics.cards, 60.0),
    Check("driver", "graphics", graphics.driver, 180.0),
    Check("loopback", "network", network.loopback),
    Check("ports", "network", network.ports),
    Check("variables", "network", network.variables),
    Check("proof", "network", network.proof, 90.0),
    Check("codecs", "media", media.codecs, 300.0),
    Check("fonts", "media", media.fonts),
    Check("models", "holdings", holdings.models, 24 * 3600.0),
    Check("data", "holdings", holdings.data, 24 * 3600.0),
    Check("collections", "holdings", holdings.collections, 24 * 3600.0),
    Check("encoders", "holdings", holdings.encoders, 240.0),
)
