# SPDX-License-Identifier: Apache-2.0
"""Recorded values and items in words: hexadecimal floating point, distances in units in the last place, one line an
item. Touches no file."""

from __future__ import annotations

import math
import struct

from . import recording as r
from .text import clean, integer

_SPECIAL = {r.ANY: "any", r.PROC_NULL: "MPI_PROC_NULL", r.ROOT_SELF: "MPI_ROOT"}
_OBJECT = {r.DOUBLE: ("<d", "<Q"), r.FLOAT: ("<f", "<I")}
CALL_FLAGS = ((r.CALL_FAILED, "failed"), (r.CALL_NESTED, "in a callback"), (r.CALL_UNREAD, "data not read"),
              (r.CALL_UNFORCED, "outcome not recorded"))
COMPLETION_FLAGS = ((r.COMPLETION_CANCELLED, "cancelled"), (r.COMPLETION_FAILED, "failed"),
                    (r.COMPLETION_FREED, "freed"), (r.COMPLETION_UNREAD, "data not read"))


def number(type_: int, bits: int):
    """The float or int that the bits are; None for digests and bytes."""
    if type_ in _OBJECT:
        real, word = _OBJECT[type_]
        return struct.unpack(real, struct.pack(word, bits & (2 ** (8 * struct.calcsize(word)) - 1)))[0]
    if type_ == r.SIGNED:
        return bits - 2**64 if bits >= 2**63 else bits
    return bits if type_ == r.UNSIGNED else None


def value(type_: int, bits: int) -> str:
    """"0x1.8p+1 (3.0)", "17", "digest 0123456789abcdef"."""
    if type_ == r.NONE:
        return "nothing"
    found = number(type_, bits)
    if isinstance(found, float):
        if math.isnan(found):
            return "NaN (bits %#x)" % bits
        return "%s (%r)" % (_hex(found), found) if math.isfinite(found) else repr(found)
    if found is not None:
        return "%d" % found
    return "%s %016x" % ("digest" if type_ == r.DIGEST else "bytes", bits)


def _hex(found: float) -> str:
    """As printf's %a: without the zeros that say nothing."""
    text = found.hex()
    head, dot, rest = text.partition(".")
    mantissa, exponent, tail = rest.partition("p")
    mantissa = mantissa.rstrip("0")
    return head + (dot + mantissa if mantissa else "") + exponent + tail if dot else text


def ulps(type_: int, a: int, b: int):
    """How many representable numbers lie between two floats, else how far integers are apart; None: no such thing."""
    if type_ in (r.SIGNED, r.UNSIGNED):
        return abs(number(type_, a) - number(type_, b))
    if type_ not in _OBJECT or not all(math.isfinite(number(type_, bits)) for bits in (a, b)):
        return None
    sign = 1 << (63 if type_ == r.DOUBLE else 31)
    places = [-(bits ^ sign) if bits & sign else bits for bits in (a, b)]
    return abs(places[0] - places[1])


def distance(type_: int, a: int, b: int) -> str:
    """"3 ulp apart", or ""."""
    apart = ulps(type_, a, b)
    if apart is None:
        return ""
    if type_ in (r.SIGNED, r.UNSIGNED):
        return "%s apart" % integer(apart)
    return "%s ulp apart" % integer(apart) if apart else "signs of zero differ"


def peer(rank: int) -> str:
    return _SPECIAL.get(rank, "%d" % rank)


def tag(number_: int) -> str:
    return "any" if number_ == r.ANY else "%d" % number_


def envelope(shape) -> str:
    """"peer 3, tag 7, 8 bytes on communicator 00..1f"; empty parts are left out."""
    parts = []
    if shape.peer != r.NO_PEER:
        parts.append("peer %s" % peer(shape.peer))
    if shape.tag != r.NO_PEER:
        parts.append("tag %s" % tag(shape.tag))
    if shape.bytes:
        parts.append("%s bytes" % integer(shape.bytes))
    if shape.comm:
        parts.append("comm %016x" % shape.comm)
    return ", ".join(parts)


def flags(bits: int, names) -> list[str]:
    return [name for bit, name in names if bits & bit]


def site(place: tuple[str, int], known: dict) -> str:
    """"solve at step.cpp:88", "app+0x1234", or ""."""
    if not place[0]:
        return ""
    return known.get(place) or "%s+%#x" % (clean(place[0].rsplit("/", 1)[-1], 60), place[1])


def line(item, known: dict) -> str:
    """One item as one line; `known` as symbols.lookup() returns it."""
    if item.kind == r.CALL:
        shape = item.shape
        parts = ["%8d  %-22s" % (item.number, clean(shape.call, 40))]
        if shape.flags & r.CALL_POLLS:
            parts.append("found nothing %s times" % integer(item.count) if item.count != 1 else "found nothing")
        parts.append(envelope(shape))
        if item.ordinal:
            parts.append("request %d" % item.ordinal if item.count == 1 else
                         "requests %d-%d" % (item.ordinal, item.ordinal + item.count - 1))
        if shape.in_type:
            parts.append("in " + value(shape.in_type, item.in_))
        if shape.out_type:
            parts.append("out " + value(shape.out_type, item.out))
        parts += flags(shape.flags, CALL_FLAGS)
        if item.step:
            parts.append("step %d" % item.step)
        parts.append(site(shape.site, known))
        return "  ".join(part for part in parts if part)
    return " " * 12 + _detail(item)


def _detail(item) -> str:
    if item.kind == r.COMPLETION:
        parts = ["completes request %d%s" % (item.ordinal, " of stream %d" % item.stream if item.stream else "")]
        if item.flags & r.COMPLETION_MATCH:
            parts.append("from %s, tag %s" % (peer(item.source), tag(item.tag)))
        if item.flags & r.COMPLETION_BYTES:
            parts.append("%s bytes" % integer(item.bytes))
        if item.type:
            parts.append(value(item.type, item.digest))
        return "  ".join(parts + flags(item.flags, COMPLETION_FLAGS))
    if item.kind == r.OUTCOME:
        parts = [] if item.flag is None else ["flag %s" % ("true" if item.flag else "false")]
        if item.index is not None:
            parts.append("index %d" % item.index)
        if item.source is not None:
            parts.append("from %s, tag %s" % (peer(item.source), tag(item.tag)))
        if item.bytes is not None:
            parts.append("%s bytes" % integer(item.bytes))
        return "found " + ", ".join(parts)
    if item.kind == r.INDICES:
        return "indices " + (" ".join("%d" % index for index in item.list) or "none")
    if item.kind == r.VALUE:
        return "%s \"%s\"  %s" % (item.logged, clean(item.name, 64), value(item.type, item.bits))
    return "# " + clean(item.text, 1024)


def as_object(item) -> dict:
    """For JSON. Integers beyond 2^53 as hexadecimal text."""
    if item.kind == r.CALL:
        shape = item.shape
        found = {"kind": item.kind, "number": item.number, "call": shape.call, "communicator": "%016x" % shape.comm,
                 "peer": None if shape.peer == r.NO_PEER else shape.peer,
                 "tag": None if shape.tag == r.NO_PEER else shape.tag, "bytes": shape.bytes, "step": item.step,
                 "count": item.count, "flags": shape.flags,
                 "site": "%s+%#x" % shape.site if shape.site[0] else None}
        if item.ordinal:
            found["request"] = item.ordinal
        for name, type_, bits in (("in", shape.in_type, item.in_), ("out", shape.out_type, item.out)):
            if type_:
                found[name] = _value_object(type_, bits)
        return found
    found = {name: getattr(item, name) for name in item._fields}
    if item.kind == r.COMPLETION:
        found["value"] = _value_object(found.pop("type"), found.pop("digest")) if item.type else None
        if not item.flags & r.COMPLETION_MATCH:
            del found["source"], found["tag"]
        if not item.flags & r.COMPLETION_BYTES:
            del found["bytes"]
        if not item.stream:
            del found["stream"]
    elif item.kind == r.VALUE:
        found["value"] = _value_object(found.pop("type"), found.pop("bits"))
    return found


def _value_object(type_: int, bits: int) -> dict:
    found = number(type_, bits)
    plain = found if isinstance(found, int) and abs(found) < 2**53 or isinstance(found, float) and math.isfinite(found) \
        else None
    return {"type": r.TYPE_NAMES[type_], "bits": "%016x" % bits, "number": plain,
            "hex": _hex(found) if isinstance(found, float) and math.isfinite(found) else None}
