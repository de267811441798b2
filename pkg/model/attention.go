package model

import (
	"slices"

	"substrate/pkg/doc"
)

// layerTypes takes the list of attention kinds, of which the given are known;
// nil if there is none.
func (c *config) layerTypes(layers int, known ...string) []string {
	var types []string
	if !c.take("layer_types", &types) {
		return nil
	}
	if len(types) != layers {
		c.fail("layer_types", "%d entries for %d layers", len(types), layers)
		return nil
	}
	for i, t := range types {
		if !slices.Contains(known, t) {
			c.fail("layer_types", "layer %d is %q, only %s is supported", i, t, list(known))
		}
	}
	return types
}

const fullAttention, slidingAttention = "full_attention", "sliding_attention"

// onlyFull takes a list of attention kinds that must all be full.
func (c *config) onlyFull(layers int) { c.layerTypes(layers, fullAttention) }

// windows gives a sliding window, unless it is 0, to the layers that
// layer_types names, without which they are those that slides picks.
func (c *config) windows(a *doc.Architecture, window int, slides func(layer int) bool) {
	types := c.layerTypes(a.Layers, fullAttention, slidingAttention)
	var layers []int
	for l := range a.Layers {
		if types == nil && slides(l) || types != nil && types[l] == slidingAttention {
			layers = append(layers, l)
		}
	}
	switch {
	case len(layers) == 0:
		return
	case window == 0 && types != nil:
		c.fail("layer_types", "layer %d is %q, but there is no sliding_window", layers[0], slidingAttention)
	case window > 0:
		a.SlidingWindow = window
		if len(layers) < a.Layers {
			a.WindowLayers = layers
		}
	}
}

// qwenWindow reads the sliding window of the Qwen families.
func (c *config) qwenWindow(a *doc.Architecture) {
	window := c.optional("sliding_window", 4096, 0, doc.MaxContextTokens)
	from := c.integer("max_window_layers", 28, 0, doc.MaxLayers)
	if !c.boolean("use_sliding_window", false) {
		window = 0
	}
	c.windows(a, window, func(layer int) bool { return layer >= from })
}
