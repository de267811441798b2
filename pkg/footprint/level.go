package footprint

import (
	"fmt"
	"slices"

	"substrate/pkg/doc"
)

// RecordBytes is the size of the record of op in encoding e, in RAM and, as
// records are stored raw, on disk. A residual of an op whose tensors are all
// dense has none: 0.
func RecordBytes(op *doc.Op, e *doc.Encoding) (int64, error) {
	l, err := Layout(op, e)
	return l.Bytes, err
}

// LevelBytes is the size of all records of op at a level, as resident and as
// stored. The encodings of the level are looked up in encodings.
func LevelBytes(op *doc.Op, level *doc.Level, encodings []doc.Encoding) (ram, disk int64, err error) {
	for _, id := range level.Encodings {
		i := slices.IndexFunc(encodings, func(e doc.Encoding) bool { return e.ID == id })
		if i < 0 {
			return 0, 0, fmt.Errorf("level %q: encoding %q is not known", level.ID, id)
		}
		n, err := RecordBytes(op, &encodings[i])
		if err != nil {
			return 0, 0, err
		}
		ram += n
		disk += n
	}
	return ram, disk, nil
}
