"""Time of collectives: latency and bandwidth, over two levels of links.

A group of ``n`` devices places ``local`` members in each scale-up domain. A ring passes every byte through each
domain once, and the members of a group in one domain share the load over as many network ports as they own, so
the bandwidth of the slow level is ``local`` ports. Thakur, Rabenseifner and Gropp (2005) for the volumes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Links:
    """Achieved rates of the two levels; bytes per second and device, one direction."""

    scaleup_bytes_per_s: float
    scaleup_latency_s: float
    scaleout_bytes_per_s: float
    scaleout_latency_s: float
    domain: int
    """Devices that reach each other over scale-up links."""
    half_message_bytes: float = 0.0
    """Message at which a collective reaches half of the bandwidth, beyond what the latency explains."""


def local_members(group: Floats, stride: Floats, domain: int) -> Floats:
    """Members of a group that lie in one domain, for groups whose neighbours are ``stride`` devices apart."""
    return np.minimum(group, np.maximum(np.floor(domain / stride), 1.0))


def _bandwidth_s(size_bytes: Floats, local: Floats, domains: Floats, links: Links) -> Floats:
    moved = size_bytes + links.half_message_bytes * (local * domains > 1)
    inside = moved * (local - 1.0) / local / links.scaleup_bytes_per_s
    across = moved * (domains - 1.0) / domains / (links.scaleout_bytes_per_s * local)
    return np.maximum(inside, across)


def gather_s(
    size_bytes: Floats, group: Floats, stride: Floats, links: Links, messages: Floats | float = 1.0
) -> Floats:
    """All-gather or reduce-scatter to or from ``size_bytes`` on every device (the full, gathered size), by rings.

    Args:
        size_bytes: bytes of the whole buffer.
        group: devices in the group.
        stride: distance of neighbours in device ranks.
        messages: collectives the buffer is cut into; each pays the latency of a whole ring.
    """
    local = local_members(group, stride, links.domain)
    domains = group / local
    hops = (local - 1.0) * domains * links.scaleup_latency_s + (domains - 1.0) * links.scaleout_latency_s
    return _bandwidth_s(size_bytes, local, domains, links) + hops * messages


def all_reduce_s(
    size_bytes: Floats, group: Floats, stride: Floats, links: Links, messages: Floats | float = 1.0
) -> Floats:
    """All-reduce of ``size_bytes``: the traffic of a reduce-scatter and an all-gather, the latency of trees."""
    local = local_members(group, stride, links.domain)
    domains = group / local
    hops = (local > 1) * links.scaleup_latency_s + np.log2(
        np.maximum(domains, 1.0)
    ) * links.scaleout_latency_s
    return 2.0 * (_bandwidth_s(size_bytes, local, domains, links) + hops * messages)


def all_to_all_s(size_bytes: Floats, group: Floats, stride: Floats, links: Links) -> Floats:
    """All-to-all in which every device sends ``size_bytes`` in all, evenly to the members of the group."""
    local = local_members(group, stride, links.domain)
    remote = (group - local) / group
    inside = size_bytes * (local - 1.0) / group / links.scaleup_bytes_per_s
    across = size_bytes * remote / links.scaleout_bytes_per_s
    latency = links.scaleup_latency_s * (group > 1) + links.scaleout_latency_s * (remote > 0)
    return np.maximum(inside, across) + latency


def send_s(size_bytes: Floats, distance: Floats, links: Links) -> Floats:
    """One device sends to the device ``distance`` ranks away."""
    near = distance < links.domain
    rate = np.where(near, links.scaleup_bytes_per_s, links.scaleout_bytes_per_s)
    return size_bytes / rate + np.where(near, links.scaleup_latency_s, links.scaleout_latency_s)
