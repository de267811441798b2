#!/usr/bin/env python3
"""Does streaming pay? Measures a mixture's KL at equal memory: static mix, upgrades in slots, streamed-only.

    streaming_experiment.py --model DIR --work DIR [--text DIR] [--machine FILE] [--bin DIR] [--tokens N]

Run it through scripts/streaming-experiment, which builds the tools. It measures a table, and for every cap and target of
speed looks for the plan of least predicted KL in each style, by dynamic programming over bytes with a price on time. It
writes those plans as documents and has `sb-calibrate verify --mode scheduled` measure them, token by token. Beside them
stands what sb-plan chooses. The result is WORK/result.md.

The speed of a plan is that of a model with the shape SHAPE on this disk: see Speed.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import numpy as np

CAPS = (0.4, 0.55, 0.7, 0.85)  # of the bytes that the model takes in 4-bit codes of group 64
TARGETS = (0.9, 0.5, 0.25)  # of the speed of the static mix
LEVELS = "2,3,4,5,6,8,2+2,2+3,2+4,3+2,3+3"
CONTEXT = 512  # tokens of a sequence
BAND = 1.25  # sb-plan holds a target of speed with the low end of its band
PAGE = 4096  # records are aligned to it
STYLES = ("static", "upgrades", "streamed", "mixed")  # mixed: any of the three, layer by layer, at the first target only

# The 5 B synthetic mixture of the benchmarks: weights that one token touches, by kind.
SHAPE = {"layers": 16, "experts_per_token": 8, "expert": 3 * 2048 * 768, "dense": 16 * (2 * 2048 * 2048 + 2 * 2048 * 512) + 32000 * 2048}


class Speed:
    """Seconds per token of a model of SHAPE whose bits and misses are those of a plan of the small one.

    Compute is weights times the kernels' time per weight at their width; a miss reads one expert's record at the
    disk's rate for its size and is waited for; upgrades are read ahead while other ops compute."""

    def __init__(self, machine):
        rates = [k for k in machine["kernels"] if k["tokens"] == 1 and k["backend"] == "cpu" and k["activations"] == "int8"]
        self.per_weight = {}
        for k in rates:
            if k["rows"] * k["cols"] == 768 * 2048:  # an expert's matrices
                self.per_weight[k["bits"]] = k["time_ns"] * 1e-9 / (k["rows"] * k["cols"])
        self.reads = sorted((r["bytes"], r["bytes_per_sec"]) for r in machine["reads"] if r["depth"] == 4)

    def width(self, bits):
        return sum(self.per_weight[b] for b in bits) if bits else 0.0

    def read(self, bits):
        size = SHAPE["expert"] * sum(b + 0.5 for b in bits) / 8
        sizes, rates = zip(*self.reads)
        return size / float(np.interp(np.log(size), np.log(sizes), rates))

    def token(self, dense, expert, missed):
        """dense, expert: seconds per weight; missed: seconds of reads per requested expert."""
        calls = SHAPE["layers"] * SHAPE["experts_per_token"]
        return SHAPE["dense"] * dense + calls * (SHAPE["expert"] * expert + missed)


def small_machine(t, speed, machine):
    """A machine on which the planner's own model gives the small mixture the times that Speed gives: kernels by the size of
    its matrices, reads by the size of its records, as many times slower as its token touches fewer weights."""
    experts = [t.ops[op] for ops in t.experts.values() for op in ops]
    rows, cols = experts[0]["tensors"][0]["rows"], experts[0]["tensors"][0]["cols"]
    calls = len(t.experts) * t.top_k
    slower = SHAPE["layers"] * SHAPE["experts_per_token"] / calls
    dense = sum(t.ops[op]["parameters"] for op in t.dense)
    kernels = []
    for bits, ns in sorted(speed.per_weight.items()):
        for r, c, weight in ((rows, cols, slower * SHAPE["expert"] / experts[0]["parameters"]), (2 * rows, 2 * cols, SHAPE["dense"] / dense)):
            kernels.append({"backend": "cpu", "activations": "int8", "bits": bits, "group": 64 if bits < 16 else 0, "rows": r, "cols": c, "tokens": 1,
                            "time_ns": max(1, round(ns * 1e9 * r * c * weight))})
    reads = []
    for level in t.single():
        size = t.items[experts[0]["id"]][level]["ram_bytes"]
        reads.append({"bytes": size, "depth": 4, "bytes_per_sec": round(size / (slower * speed.read(t.bits(level)))), "direct": True})
    reads.sort(key=lambda r: r["bytes"])
    return machine | {"kernels": kernels, "reads": reads, "memory": machine["memory"] | {"dispatch_ns": 1}}


class Table:
    """What sb-calibrate measured, by op."""

    def __init__(self, path):
        self.doc = json.loads(path.read_text())
        self.encodings = {e["id"]: e for e in self.doc["encodings"]}
        self.levels = {l["id"]: l["encodings"] for l in self.doc["levels"]}
        self.ops = {o["id"]: o for o in self.doc["profile"]["ops"]}
        self.items = {i["op"]: {l["level"]: l for l in i["levels"]} for i in self.doc["items"]}
        self.row = {i["op"]: i for i in self.doc["items"]}
        self.curves = {c["layer"]: c for c in self.doc["reuse_curves"]}
        self.experts, self.dense = {}, []
        for i in self.doc["items"]:
            op = self.ops[i["op"]]
            if op["kind"] == "moe_expert":
                self.experts.setdefault(op["layer"], []).append(op["id"])
            else:
                self.dense.append(op["id"])
        a = self.doc["profile"]["architecture"]
        self.top_k = a["experts_per_token"]

    def bits(self, level):
        return [self.encodings[e]["bits"] for e in self.levels[level]]

    def record(self, op, level):
        """Bytes of each record of a level, skeleton first; residuals are what a level has more than the one below."""
        parts, below = [], 0
        ids = self.levels[level]
        for n in range(1, len(ids) + 1):
            whole = self.items[op]["+".join(ids[:n])]["ram_bytes"]
            parts.append(whole - below)
            below = whole
        return [p for p in parts if p]

    def single(self):
        return [l for l, e in self.levels.items() if len(e) == 1]


class Choice:
    """One way to hold a layer's experts, or one dense op: bytes, KL, seconds, and how to write it down."""

    def __init__(self, size, kl, compute, missed, how):
        self.size, self.kl, self.compute, self.missed, self.how = size, kl, compute, missed, how


def hull(options):
    """The lower convex hull of (bytes, cost, level), ascending by bytes."""
    out = []
    for o in sorted(options):
        if out and o[1] >= out[-1][1]:
            continue
        while len(out) > 1 and (out[-2][1] - out[-1][1]) * (o[0] - out[-1][0]) <= (out[-1][1] - o[1]) * (out[-1][0] - out[-2][0]):
            out.pop()
        out.append(o)
    return out


def static_choices(t, speed, layer):
    """The mixes of dedicated levels along the hull, all experts resident."""
    ops = t.experts[layer]
    at = {op: min((t.items[op][l]["ram_bytes"], l) for l in t.single())[1] for op in ops}
    steps = []
    for op in ops:
        h = hull([(t.items[op][l]["ram_bytes"], t.items[op][l]["kl"], l) for l in t.single()])
        for a, b in zip(h, h[1:]):
            steps.append(((a[1] - b[1]) / (b[0] - a[0]), op, b[2]))
    steps.sort(key=lambda s: -s[0])

    def choice():
        hits = sum(t.row[op]["hit_share"] for op in ops)
        compute = sum(t.row[op]["hit_share"] * speed.width(t.bits(at[op])) for op in ops) / hits
        return Choice(sum(t.items[op][at[op]]["ram_bytes"] for op in ops), sum(t.items[op][at[op]]["kl"] for op in ops), compute, 0.0,
                      {"levels": dict(at)})

    out = [choice()]
    for _, op, level in steps:
        at[op] = level
        out.append(choice())
    return out


def streamed_choices(t, speed, layer):
    """All experts at one level, none resident, LRU over some slots."""
    ops, out = t.experts[layer], []
    for level in t.single():
        size = t.items[ops[0]][level]["ram_bytes"]
        kl = sum(t.items[op][level]["kl"] for op in ops)
        for slots in range(t.top_k, len(ops)):
            miss = 1 - t.curves[layer]["hit_rate"][slots]
            out.append(Choice(slots * size, kl, speed.width(t.bits(level)), miss * speed.read(t.bits(level)), {"level": level, "slots": slots}))
    return out


def upgrade_choices(t, speed, layer):
    """All experts resident at a skeleton, upgrades of those used last in slots: stacked residuals or replacements."""
    ops, out = t.experts[layer], []
    for low in t.single():
        for high in t.levels:
            stacked = len(t.levels[high]) == 2 and t.levels[high][0] == low
            if not stacked and not (len(t.levels[high]) == 1 and sum(t.bits(high)) > sum(t.bits(low))):
                continue
            base = sum(t.items[op][low]["ram_bytes"] for op in ops)
            delta = sum(t.record(ops[0], high)[1:] if stacked else t.record(ops[0], high))
            kl_low, kl_high = (sum(t.items[op][l]["kl"] for op in ops) for l in (low, high))
            if kl_high >= kl_low:
                continue
            for slots in range(1, len(ops)):
                rate = t.curves[layer]["upgrade_rate"][slots]
                compute = (1 - rate) * speed.width(t.bits(low)) + rate * speed.width(t.bits(high))
                out.append(Choice(base + slots * delta, kl_low - rate * (kl_low - kl_high), compute, 0.0,
                                  {"level": low, "upgrade": high, "slots": slots}))
    return out


def dense_choices(t, speed, op):
    part = t.ops[op]["parameters"]
    total = sum(t.ops[o]["parameters"] for o in t.dense)
    return [Choice(t.items[op][l]["ram_bytes"], t.items[op][l]["kl"], part / total * speed.width(t.bits(l)), 0.0, {"levels": {op: l}})
            for l in t.single() if l in t.items[op]]


def solve(t, speed, style, room, seconds):
    """The plan of a style with the least predicted KL in room bytes and seconds per token; None if there is none.

    An exact search over pages for every price of time of a grid; the best that holds the limit."""
    calls = SHAPE["layers"] * SHAPE["experts_per_token"]
    kinds = [static_choices, upgrade_choices, streamed_choices]
    if style != "mixed":
        kinds = [kinds[STYLES.index(style)]]
    groups = [[(c, SHAPE["dense"] * c.compute) for c in dense_choices(t, speed, op)] for op in t.dense]
    layers = len(t.experts)
    for layer in t.experts:
        groups.append([(c, calls / layers * (SHAPE["expert"] * c.compute + c.missed)) for kind in kinds for c in kind(t, speed, layer)])
    pages = room // PAGE
    best = None
    for price in [0.0] + list(np.geomspace(1e-4, 1e4, 41)):
        cost = np.zeros(pages + 1)
        picks = []
        for g in groups:
            new, pick = np.full(pages + 1, np.inf), np.full(pages + 1, -1)
            for n, (c, s) in enumerate(g):
                need = -(-c.size // PAGE)
                if need > pages:
                    continue
                v = np.full(pages + 1, np.inf)
                v[need:] = cost[:pages + 1 - need] + c.kl + price * s
                pick[v < new] = n
                new = np.minimum(new, v)
            cost = new
            picks.append(pick)
        if not np.isfinite(cost[pages]):
            return None
        at, chosen = pages, []
        for g, pick in zip(reversed(groups), reversed(picks)):
            c, s = g[pick[at]]
            chosen.append((c, s))
            at -= -(-c.size // PAGE)
        chosen.reverse()
        kl, used = sum(c.kl for c, _ in chosen), sum(s for _, s in chosen)
        if (seconds is None or used <= seconds) and (best is None or kl < best["kl"]):
            best = {"style": style, "kl": kl, "seconds": used, "bytes": sum(c.size for c, _ in chosen), "choices": [c for c, _ in chosen]}
    return best


def write_plan(t, fixed, style, found):
    """A plan document, in which no op can escalate and both modes have the same residency."""
    level_of, slots_of = {}, {}
    for c, key in zip(found["choices"], t.dense + list(t.experts)):
        if "levels" in c.how:
            level_of.update({op: (l, None) for op, l in c.how["levels"].items()})
        else:
            for op in t.experts[key]:
                level_of[op] = (c.how["level"], c.how.get("upgrade"))
            slots_of[key] = c.how
    catalog, bundles, resident, slots, used = [], [], [], [], set()
    bytes_of = {}

    def record(op, name, encoding, size, below=""):
        rid = f"{op}.{name}"
        bytes_of[rid] = size
        used.add(encoding)
        entry = {"id": rid, "op": op, "encoding": encoding}
        if below:
            entry["below"] = below
        catalog.append(entry | {"ram_bytes": size, "ssd_bytes": size})
        return rid

    for item in t.doc["items"]:
        op = item["op"]
        low, high = level_of[op]
        how = slots_of.get(t.ops[op]["layer"]) if t.ops[op]["kind"] == "moe_expert" else None
        streamed = how is not None and "upgrade" not in how

        def tier(index, level, requires, delta):
            return {"tier_index": index, "level": level, "requires": requires, "prefetch": [], "evict_after": [], "fallback": "stall",
                    "peak_ram_delta_bytes": delta, "estimated_quality_risk": t.items[op][level]["kl"], "compute_ns": 0}

        first = record(op, "skeleton", t.levels[low][0], t.record(op, low)[0])
        if not streamed:
            resident.append(first)
        tiers = [tier(0, low, [first], 0)]
        if high:
            ids = t.levels[high]
            if ids[0] == low:
                more = record(op, "residual_1", ids[1], t.record(op, high)[1], first)
                requires = [first, more]
            else:
                more = record(op, "level_1", ids[0], t.record(op, high)[0])
                requires = [more]
            tiers.append(tier(1, high, requires, bytes_of[more]))
            if tiers[1]["estimated_quality_risk"] > tiers[0]["estimated_quality_risk"]:
                tiers[1]["estimated_quality_risk"] = tiers[0]["estimated_quality_risk"]
        bundles.append({"op": op, "kind": t.ops[op]["kind"], "tiers": tiers})

    def residency(exact):
        out, keep = [], list(resident)
        for layer, how in slots_of.items():
            ops = t.experts[layer]
            if "upgrade" in how:
                size = max(sum(bytes_of[r] for r in b["tiers"][1]["requires"] if r not in b["tiers"][0]["requires"]) for b in bundles if b["op"] in ops)
            else:
                size = max(bytes_of[b["tiers"][0]["requires"][0]] for b in bundles if b["op"] in ops)
            out.append({"layer": layer, "tier": 1 if "upgrade" in how and not exact else 0, "slots": how["slots"], "slot_bytes": size})
        lines = {"weights": sum(bytes_of[r] for r in keep), "slots": sum(s["slots"] * s["slot_bytes"] for s in out), "ring": 0, "escalation_pool": 0}
        ledger = [{"name": l["name"], "bytes": lines.get(l["name"], l["bytes"])} for l in fixed]
        return {"resident": keep, "slots": out, "ring_bytes": 0, "ledger": ledger}

    scheduled = residency(False)
    peak = sum(l["bytes"] for l in scheduled["ledger"])
    rate = 1 / found["seconds"]
    kl = found["kl"]
    return {
        "format": "sb.plan/1", "model_id": t.doc["profile"]["model_id"], "header_sha256": t.doc["profile"]["header_sha256"],
        "statistics_sha256": t.doc["statistics_sha256"], "strategy": style, "objective": "kl",
        "budget": {"max_ram_bytes": peak, "max_ssd_cache_bytes": 0, "sustained_ssd_bw_bytes_per_sec": 0, "quality_loss_cap": 0,
                   "target_tokens_per_second": 0, "context_tokens": CONTEXT},
        "kv_cache_type": "f32", "prefill_chunk_tokens": 32, "encodings": [e for e in t.doc["encodings"] if e["id"] in used],
        "tensor_catalog": catalog, "op_bundles": bundles,
        "escalation_policy": {"disagreement_threshold": 0.15, "persistence_tokens": 32, "max_concurrent_escalations": 0},
        "fallback_policy": {"latency_warn_factor": 1.5, "latency_critical_factor": 3, "ssd_bw_critical_factor": 0.5},
        "escalation_ram_pool_bytes": 0, "scheduled": scheduled, "exact": residency(True), "slot_period_tokens": 16, "slot_lead_tokens": 4,
        "memory": scheduled["ledger"], "predicted_peak_resident_bytes": peak,
        "predicted": {"kl": kl, "kl_low": kl / 2, "kl_high": 2 * kl, "kl_source": "sum of the table", "tokens_per_second": rate,
                      "tokens_per_second_low": rate, "tokens_per_second_high": rate, "speed_source": "formula of the experiment",
                      "read_bytes_per_token": 0, "bits_per_weight": 0},
    }


class Experiment:
    levels = LEVELS

    def __init__(self, o):
        self.o, self.work = o, pathlib.Path(o.work)
        self.work.mkdir(parents=True, exist_ok=True)
        self.measured = {}

    def tool(self, name, *args, ok=(0,)):
        done = subprocess.run([str(pathlib.Path(self.o.bin) / name), *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        if done.returncode not in ok:
            sys.exit(f"{name} {' '.join(map(str, args))}: exit {done.returncode}\n{done.stderr}")
        return done

    def text(self, part):
        return ("--text", f"{self.o.text}/{part}.jsonl") if self.o.text else ()

    def table(self):
        path = self.work / "table.json"
        if not path.exists():
            link = ("--link-text", f"{self.o.text}/link.jsonl") if self.o.text else ()
            self.tool("sb-calibrate", "measure", "--model", self.o.model, *self.text("fit"), *link, "--tokens", self.o.tokens, "--sequence", CONTEXT,
                      "--levels", self.levels, "--fit", self.o.fit, "--stats", self.work / "stats.st", "-o", path)
        return Table(path)

    def fixed(self):
        """The ledger's lines beside records, of a plan that has room for anything."""
        return json.loads(self.plan("--strategy", "uniform", "--max-ram", "4G").stdout)["memory"]

    def plan(self, *args, ok=(0,)):
        return self.tool("sb-plan", "--machine", self.work / "machine.json", "--context", CONTEXT, "--kv", "f32", *args, self.work / "table.json", ok=ok)

    def measure(self, plan, name):
        path = self.work / f"{name}.json"
        path.write_text(json.dumps(plan, indent=1) + "\n")
        return self.verify(path)

    def verify(self, path):
        key = json.dumps([json.loads(path.read_text())[k] for k in ("op_bundles", "scheduled")])
        if key not in self.measured:
            out = path.with_suffix(".verify.json")
            self.tool("sb-calibrate", "verify", "--model", self.o.model, path, "--mode", "scheduled", "--kv", "f32", "--stats", self.work / "stats.st",
                      *self.text("test"), "--tokens", self.o.tokens, "--sequence", CONTEXT, "--activations", "f32", "-o", out, ok=(0, 1))
            self.measured[key] = json.loads(out.read_text())
        return self.measured[key]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True)
    p.add_argument("--work", required=True)
    p.add_argument("--text", help="folder with fit.jsonl, link.jsonl and test.jsonl (default: the built-in text)")
    p.add_argument("--machine", required=True, help="what sb-calibrate machine measured")
    p.add_argument("--bin", default="bin")
    p.add_argument("--fit", default="lsq")
    p.add_argument("--tokens", type=int, default=8192)
    o = p.parse_args()
    x = Experiment(o)
    machine = json.loads(pathlib.Path(o.machine).read_text())
    t, speed = x.table(), Speed(machine)
    (x.work / "machine.json").write_text(json.dumps(small_machine(t, speed, machine)))
    fixed = x.fixed()
    rest = sum(l["bytes"] for l in fixed if l["name"] not in ("weights", "slots", "ring", "escalation_pool"))
    four = min((l for l in t.single() if t.bits(l) == [4]), key=len)
    whole = sum(i[four]["ram_bytes"] if four in i else min(l["ram_bytes"] for l in i.values()) for i in t.items.values())
    print(f"4-bit bytes {whole}; smallest static mix", min_static(t), file=sys.stderr)
    rows = []
    static_at = {}
    for cap in CAPS:
        static_at[cap] = solve(t, speed, "static", int(cap * whole), None)
    smallest = solve(t, speed, "static", min_static(t) + PAGE * 2 * len(t.items), None)
    for cap in CAPS:
        room = int(cap * whole)
        reference = static_at[cap] or smallest
        for target in TARGETS:
            row = {"cap": cap, "target": target, "room": room}
            for style in STYLES if target == TARGETS[0] else STYLES[:3]:
                found = static_at[cap] if style == "static" else solve(t, speed, style, room, reference["seconds"] / target)
                if found is None:
                    continue
                plan = write_plan(t, fixed, style, found)
                v = x.measure(plan, f"{style}-{cap}-{target}")
                row[style] = {"predicted": found["kl"], "kl": v["quality"]["kl"], "error": v["quality"]["kl_error"], "bytes": found["bytes"],
                              "resident": v["run"]["resident_bytes"], "reads": v["run"]["read_bytes_per_token"], "bits": v["run"]["bits_served"],
                              "speed": reference["seconds"] / found["seconds"],
                              "how": [c.how for c in found["choices"] if "slots" in c.how]}
            chosen = x.work / f"planner-{cap}-{target}.json"
            done = x.plan("--max-ram", rest + room, "--tps", target / reference["seconds"] / BAND, "-o", chosen, ok=(0, 1))
            if done.returncode == 0:
                v, made = x.verify(chosen), json.loads(chosen.read_text())
                row["planner"] = {"predicted": made["predicted"]["kl"], "kl": v["quality"]["kl"], "error": v["quality"]["kl_error"],
                                  "resident": v["run"]["resident_bytes"], "reads": v["run"]["read_bytes_per_token"], "bits": v["run"]["bits_served"],
                                  "pool": made["escalation_ram_pool_bytes"], "speed": reference["seconds"] * made["predicted"]["tokens_per_second"],
                                  "how": made["scheduled"]["slots"]}
            print(json.dumps(row), flush=True)
            rows.append(row)
    (x.work / "result.json").write_text(json.dumps(rows, indent=1) + "\n")
    (x.work / "result.md").write_text(report(rows))
    print(report(rows))


def min_static(t):
    return sum(min(l["ram_bytes"] for l in i.values()) for i in t.items.values())


def report(rows):
    columns = STYLES + ("planner",)
    out = ["| cap | speed | " + " | ".join(columns) + " | best of three |", "|---" * (len(columns) + 3) + "|"]
    for r in rows:
        cells = [f"{r[s]['kl']:.4f} ± {r[s]['error']:.4f}" if s in r else "none" for s in columns]
        have = [s for s in STYLES[:3] if s in r]
        best = min(have, key=lambda s: r[s]["kl"]) if have else "none"
        out.append(f"| {r['cap']} | {r['target']} | {' | '.join(cells)} | {best} |")
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    main()
