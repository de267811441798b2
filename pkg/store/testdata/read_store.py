#!/usr/bin/env python3
"""Read a store: written from FORMAT.md alone, with nothing but Python's standard library.

    read_store.py STORE [PLAN]

For every op and tier of a plan it prints one line of JSON: op, tier, role, shape, and sha256 of the float32 values of
the tensor at that tier. It checks every digest and checksum on the way. zstd frames are beyond the standard library:
compressed records are an error.
"""
import array
import hashlib
import json
import os
import struct
import sys


def fail(text):
    raise SystemExit("read_store: " + text)


def need(condition, text):
    if not condition:
        fail(text)


def unique(pairs):
    members = dict(pairs)
    need(len(members) == len(pairs), "a member occurs twice")
    return members


def crc32c_table():
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        table.append(n)
    return table


TABLE = crc32c_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def float32(x):
    """Round a Python float, which is a double, to float32."""
    return struct.unpack("<f", struct.pack("<f", x))[0]


def floats16(data, kind):
    if kind == "f16":
        return list(struct.unpack("<%de" % (len(data) // 2), data))
    halves = struct.unpack("<%dH" % (len(data) // 2), data)
    return list(struct.unpack("<%df" % len(halves), struct.pack("<%dI" % len(halves), *(h << 16 for h in halves))))


def codes(data, bits, count):
    stream = int.from_bytes(data, "little")
    mask = (1 << bits) - 1
    return [stream >> (i * bits) & mask for i in range(count)]


class Store:
    def __init__(self, path):
        self.path = path
        need(not path.rstrip("/").endswith(".partial"), "not finished")
        with open(os.path.join(path, "manifest.json"), "rb") as f:
            text = f.read()
        with open(os.path.join(path, "manifest.sha256"), "rb") as f:
            need(f.read() == b"%s  manifest.json\n" % hashlib.sha256(text).hexdigest().encode(), "the manifest's sha256 does not match")
        self.manifest = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
        m = self.manifest
        need(m["format"] == "sb.store/1", "format " + m["format"])
        align = m["align_bytes"]
        need(align >= 4096 and align & (align - 1) == 0, "align_bytes")
        for f in m["files"]:
            parts = f["file"].split("/")
            need(all(p not in ("", ".", "..") and "\\" not in p for p in parts), "path " + f["file"])
            need(os.path.getsize(self.name(f)) == f["bytes"], "size of " + f["file"])
        end = (-1, 0)
        for r in m["records"]:
            start = (r["file"], r["offset"])
            need(start[0] > end[0] or start >= end, "order of " + r["id"])
            end = (r["file"], r["offset"] + r["stored_bytes"])
            need(r["offset"] % align == 0 and end[1] <= m["files"][r["file"]]["bytes"], "place of " + r["id"])

    def name(self, f):
        return os.path.join(self.path, *f["file"].split("/"))

    def text(self, name):
        for f in self.manifest["files"]:
            if f["file"] == name:
                with open(self.name(f), "rb") as file:
                    data = file.read()
                need(hashlib.sha256(data).hexdigest() == f["sha256"], "sha256 of " + name)
                return data
        fail("no file " + name)

    def plan(self, name=None):
        """A plan, and its records by id."""
        for p in self.manifest["plans"]:
            if name in (None, p["name"]):
                plan = json.loads(self.text(p["file"]).decode("utf-8"), object_pairs_hook=unique)
                catalog = plan["tensor_catalog"]
                need(len(catalog) == len(p["records"]), "catalog of " + p["name"])
                return plan, {c["id"]: self.manifest["records"][r] for c, r in zip(catalog, p["records"])}
        fail("no plan %s" % name)

    def record(self, r):
        layout = self.manifest["layouts"][r["layout"]]
        need(not r.get("zstd"), "record %s is compressed" % r["id"])
        need(r["stored_bytes"] == layout["bytes"], "size of record " + r["id"])
        with open(self.name(self.manifest["files"][r["file"]]), "rb") as f:
            f.seek(r["offset"])
            data = f.read(r["stored_bytes"])
        need(crc32c(data) == r["crc32c"], "crc32c of record " + r["id"])
        return {t["role"]: (t, tensor(data, t)) for t in layout["tensors"]}


def tensor(data, t):
    """The values of a tensor, row by row."""
    count = t["rows"] * t["cols"]
    begin = t["data_offset"]
    if t["dtype"] == "f32":
        return list(struct.unpack("<%df" % count, data[begin:begin + 4 * count]))
    if t["dtype"] != "codes":
        return floats16(data[begin:begin + 2 * count], t["dtype"])
    bits, group = t["bits"], t["group"]
    groups = count // group
    scales = floats16(data[t["scales_offset"]:t["scales_offset"] + 2 * groups], t["scale"])
    biases = floats16(data[t["biases_offset"]:t["biases_offset"] + 2 * groups], t["scale"])
    values = []
    row_bytes = t["cols"] * bits // 8
    for row in range(t["rows"]):
        at = begin + row * row_bytes
        for col, q in enumerate(codes(data[at:at + row_bytes], bits, t["cols"])):
            g = (row * t["cols"] + col) // group
            values.append(float32(float32(scales[g] * q) + biases[g]))
    return values


def main(path, name=None):
    store = Store(path)
    plan, records = store.plan(name)
    held = {key: store.record(r) for key, r in records.items()}
    for bundle in plan["op_bundles"]:
        for tier in bundle["tiers"]:
            sums = {}
            for key in tier["requires"]:
                for role, (t, values) in held[key].items():
                    if role in sums:
                        sums[role][1] = [float32(a + b) for a, b in zip(sums[role][1], values)]
                    else:
                        sums[role] = [t, values]
            for role, (t, values) in sums.items():
                floats = array.array("f", values)
                if sys.byteorder == "big":
                    floats.byteswap()
                print(json.dumps({
                    "op": bundle["op"], "tier": tier["tier_index"], "role": role, "rows": t["rows"], "cols": t["cols"],
                    "sha256": hashlib.sha256(floats.tobytes()).hexdigest(),
                }))


if __name__ == "__main__":
    main(*sys.argv[1:])
