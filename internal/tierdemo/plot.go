package main

import (
	"fmt"
	"slices"
	"strings"
)

// The plot's frame, in pixels.
const (
	width, height = 900, 480
	left, right   = 70, 20
	top, split    = 40, 330 // the KL is above, the pool below
	bottom        = 440
)

// svg draws the KL of each token, smoothed, and the bytes of the pool in use.
func (r *report) svg() string {
	var b strings.Builder
	n := len(r.scripted)
	x := func(token int) float64 { return left + float64(width-left-right)*float64(token)/float64(n-1) }
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	during := r.spans()[1]
	fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="#fff3d6"/>`+"\n", x(during.from), top, x(during.to)-x(during.from), bottom-top)
	fmt.Fprintf(&b, `<text x="%d" y="24">KL to the top level, mean of 8 tokens: default tiers (grey), scripted disagreement (blue); below: escalation pool in use</text>`+"\n", left)
	plain, scripted := smooth(r.default_, 8), smooth(r.scripted, 8)
	most := max(slices.Max(plain), slices.Max(scripted), 1e-12)
	line := func(values []float64, color string) {
		var points []string
		for i, v := range values {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(i), float64(split)-float64(split-top)*v/most))
		}
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="%s"/>`+"\n", color, strings.Join(points, " "))
	}
	line(plain, "#888")
	line(scripted, "#06c")
	fmt.Fprintf(&b, `<text x="8" y="%d">%.3g</text><text x="8" y="%d">0 nats</text>`+"\n", top+10, most, split)

	// Steps of the pool.
	var points []string
	used := int64(0)
	y := func(bytes int64) float64 {
		return bottom - float64(bottom-split-20)*float64(bytes)/float64(max(1, r.plan.PoolBytes))
	}
	points = append(points, fmt.Sprintf("%.1f,%.1f", x(0), y(0)))
	for _, l := range r.series.tiers {
		at := x(int(l.Token))
		points = append(points, fmt.Sprintf("%.1f,%.1f", at, y(used)), fmt.Sprintf("%.1f,%.1f", at, y(l.PoolUsed)))
		used = l.PoolUsed
	}
	points = append(points, fmt.Sprintf("%.1f,%.1f", x(n-1), y(used)))
	fmt.Fprintf(&b, `<polyline fill="none" stroke="#c40" stroke-width="1.5" points="%s"/>`+"\n", strings.Join(points, " "))
	fmt.Fprintf(&b, `<text x="8" y="%d">%d B</text><text x="8" y="%d">pool</text>`+"\n", split+30, r.plan.PoolBytes, bottom)
	for token := 0; token < n; token += 20 {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n", x(token), bottom+20, token)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// smooth is the mean of each value and those before it, n together.
func smooth(values []float64, n int) []float64 {
	out := make([]float64, len(values))
	for i := range values {
		out[i] = mean(values[max(0, i+1-n) : i+1])
	}
	return out
}
