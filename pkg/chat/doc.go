// Package chat turns messages into the prompt that a model was trained on, by the Jinja template that comes with the model.
//
// What a template gives must be what Python's Jinja2 gives, byte for byte, set up as transformers does it: other text is
// other tokens, and a model that was trained on the one answers worse to the other. The engine, github.com/ardanlabs/jinja,
// reads most templates as Python does, but not all. So a template is translated before the engine sees it: literal text with
// its white space, printing, filters, tests, methods and the scope of loops become calls of functions of this package, which
// do what Python does or refuse. What is left to the engine are the expressions between them. A template that uses what is
// not known to be equal is an [UnsupportedError], when it is compiled or at the latest when it is rendered.
//
// A template comes with a model from anywhere, so its size, nesting, loop rounds and recursion are bounded.
package chat
