#!/usr/bin/env python3
"""What plans lose, and how well that is predicted.

    planning_experiment.py --model MODEL --work DIR [--text DIR] [--bin DIR] [--tokens N] [--fit NAME] [--table FILE --stats FILE]

Needs numpy. Measures a table (or takes one), holds the embedding at 8 bits in all that follows, and

  1. at 2.75, 3, 3.5, 4 and 4.5 bits per weight of the linear layers has sb-plan make plans of each strategy, measures their KL
     with `sb-calibrate verify --activations f32` and compares it with uniform encodings at equal bytes (interpolated in log KL);
  2. at three of these sizes takes the plan of least KL and eight neighbours of about equal size, which some ops' levels moved
     away from, and compares measured with predicted KL: the largest error, and Spearman's rank correlation.

The result is WORK/planning.md.
"""

import argparse
import json
import pathlib
import random

import numpy as np

from streaming_experiment import Choice, Experiment, Table, hull, write_plan

BITS = (2.75, 3.0, 3.5, 4.0, 4.5)
STRATEGIES = ("static", "layers-only", "random", "inverted")
NEIGHBOURS = 8
RANKED = (3.0, 3.5, 4.0)


class Planning(Experiment):
    levels = "2,3,4,5,6,8"

    def plan(self, *args, ok=(0,)):
        return self.tool("sb-plan", "--context", 512, "--kv", "f32", *args, self.work / "fixed.json", ok=ok)

    def verify(self, path):
        out = path.with_suffix(".verify.json")
        self.tool("sb-calibrate", "verify", "--model", self.o.model, path, "--kv", "f32", "--stats", self.stats(), *self.text("test"),
                  "--tokens", self.o.tokens, "--sequence", 256, "--activations", "f32", "-o", out, ok=(0, 1))
        return json.loads(out.read_text())["quality"]

    def stats(self):
        return self.o.stats or self.work / "stats.st"


def fix_embedding(path, to):
    """A table in which the embedding has one level: the one of 8 bits."""
    doc = json.loads(path.read_text())
    for item in doc["items"]:
        if item["op"] == "embedding":
            item["levels"] = [l for l in item["levels"] if l["level"].startswith("q8")]
    to.write_text(json.dumps(doc))


def weights(plan):
    return next(l["bytes"] for l in plan["memory"] if l["name"] == "weights")


class Static:
    """Plans of dedicated levels, by op."""

    def __init__(self, t, fixed):
        self.t, self.fixed = t, fixed

    def document(self, levels, name):
        choices = [Choice(0, 0, 0, 0, {"levels": {op: levels[op]}}) for op in self.t.dense]
        choices += [Choice(0, 0, 0, 0, {"levels": {op: levels[op] for op in ops}}) for ops in self.t.experts.values()]
        found = {"kl": self.predicted(levels), "seconds": 1.0, "choices": choices}
        return write_plan(self.t, self.fixed, name, found)

    def predicted(self, levels):
        link = self.t.doc["link"]
        total = sum(max(0.0, self.t.items[op][l]["kl"]) for op, l in levels.items())
        return link["scale"] * total ** link["exponent"]

    def size(self, levels):
        return sum(self.t.items[op][l]["ram_bytes"] for op, l in levels.items())

    def uniform(self, level):
        return {op: level if level in rows else next(iter(rows)) for op, rows in self.t.items.items()}

    def best(self, room, weight=lambda op: 1.0):
        """Greedy along the items' hulls."""
        single = self.t.single()
        hulls = {op: hull([(rows[l]["ram_bytes"], rows[l]["kl"] * weight(op), l) for l in single if l in rows]) for op, rows in self.t.items.items()}
        levels = {op: h[0][2] for op, h in hulls.items()}
        steps = sorted(((a[1] - b[1]) / (b[0] - a[0]), op, b[2], b[0] - a[0]) for op, h in hulls.items() for a, b in zip(h, h[1:]))
        used = self.size(levels)
        stuck = set()
        for _, op, level, more in reversed(steps):
            if op in stuck or used + more > room:
                stuck.add(op)
                continue
            levels[op] = level
            used += more
        return levels


def sized(x, strategy, room, rest, low):
    """sb-plan's plan whose weights come nearest to room from below."""
    ram, best = rest + room, None
    for _ in range(6):
        done = x.plan("--strategy", strategy, "--max-ram", int(ram), ok=(0, 1, 2))
        if done.returncode == 2:
            return None
        if done.returncode == 1:
            ram += (room - low) / 8
            continue
        plan = json.loads(done.stdout)
        if weights(plan) <= room and (best is None or weights(plan) > weights(best)):
            best = plan
        if abs(room - weights(plan)) < 0.002 * room:
            break
        ram += room - weights(plan)
    return best


def spearman(a, b):
    rank = lambda v: np.argsort(np.argsort(v))
    return float(np.corrcoef(rank(a), rank(b))[0, 1])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", required=True)
    p.add_argument("--work", required=True)
    p.add_argument("--text")
    p.add_argument("--bin", default="bin")
    p.add_argument("--fit", default="lsq")
    p.add_argument("--table", help="take this table instead of measuring one")
    p.add_argument("--stats", help="its statistics")
    p.add_argument("--tokens", type=int, default=4096)
    o = p.parse_args()
    x = Planning(o)
    if o.table:
        (x.work / "table.json").write_text(pathlib.Path(o.table).read_text())
    x.table()
    fix_embedding(x.work / "table.json", x.work / "fixed.json")
    t = Table(x.work / "fixed.json")
    fixed = x.fixed()
    rest = sum(l["bytes"] for l in fixed if l["name"] not in ("weights", "slots", "ring", "escalation_pool"))
    s = Static(t, fixed)
    linear = sum(t.ops[op]["parameters"] for op, rows in t.items.items() if len(rows) > 1)
    kept = sum(next(iter(rows.values()))["ram_bytes"] for rows in t.items.values() if len(rows) == 1)

    def measure(levels, name):
        path = x.work / f"{name}.json"
        path.write_text(json.dumps(s.document(levels, "experiment")))
        return x.verify(path)

    uniform = []
    for level in sorted(t.single(), key=lambda l: t.bits(l)):
        if t.bits(level)[0] <= 6:
            levels = s.uniform(level)
            uniform.append((s.size(levels), measure(levels, f"uniform-{level}")["kl"]))
    low = uniform[0][0]
    sizes, kls = zip(*uniform)
    out = ["| bits per weight | uniform | " + " | ".join(STRATEGIES) + " |", "|---" * (len(STRATEGIES) + 2) + "|"]
    for bits in BITS:
        room = int(kept + linear * bits / 8)
        row = [f"{bits}"]
        base = float(np.exp(np.interp(room, sizes, np.log(kls))))
        row.append(f"{base:.4f}")
        for strategy in STRATEGIES:
            plan = sized(x, strategy, room, rest, low)
            if plan is None:
                row.append("none")
                continue
            path = x.work / f"{strategy}-{bits}.json"
            path.write_text(json.dumps(plan))
            q = x.verify(path)
            at = float(np.exp(np.interp(weights(plan), sizes, np.log(kls))))
            row.append(f"{q['kl']:.4f} ({q['kl'] / at:.2f} x)")
        out.append("| " + " | ".join(row) + " |")
        print(out[-1], flush=True)
    link = t.doc["link"]
    out += ["", f"Link: {link['source']}, scale {link['scale']:.3f}, exponent {link['exponent']:.3f}, error {link['relative_error']:.3f}, {link['plans']} plans.", "",
            "| bits per weight | largest error | Spearman | measured KL, least to most |", "|---|---|---|---|"]
    for bits in RANKED:
        room = int(kept + linear * bits / 8)
        rng = random.Random(int(bits * 100))
        plans = [s.best(room)]
        for n in range(NEIGHBOURS):
            spread = 0.15 * (n + 1)
            noise = {op: float(np.exp(rng.gauss(0, spread))) for op in t.items}
            plans.append(s.best(room, lambda op: noise[op]))
        predicted = [s.predicted(l) for l in plans]
        got = [measure(l, f"neighbour-{bits}-{i}")["kl"] for i, l in enumerate(plans)]
        worst = max(abs(p / g - 1) for p, g in zip(predicted, got))
        out.append(f"| {bits} | {100 * worst:.0f} % | {spearman(predicted, got):.2f} | {min(got):.4f} to {max(got):.4f} |")
        print(out[-1], flush=True)
        (x.work / f"rank-{bits}.json").write_text(json.dumps({"predicted": predicted, "measured": got}))
    (x.work / "planning.md").write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
