// Package schema holds the JSON Schemas of the documents, made from the types
// of pkg/doc: plan.schema.json and so on. They describe the form; that
// references resolve and budgets hold is checked by the documents' Validate.
package schema

import "embed"

// Files are the schemas, by name.
//
//go:generate go test . -run TestSchemas -update
//go:embed *.schema.json
var Files embed.FS
