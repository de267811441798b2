package faultfs

import (
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
)

// blockBytes is what a disk writes at once: of a file that was not synced,
// each block may be old or new.
const blockBytes = 4096

// volatile is what a power cut may undo.
type volatile struct {
	synced  map[string][]byte // contents of edited files at their last sync, by path; nil: no file
	names   map[string]bool   // files and folders whose names are new in their folder
	renames [][2]string       // from, to
}

func newVolatile() volatile {
	return volatile{synced: map[string][]byte{}, names: map[string]bool{}}
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}

// within reports whether name is folder or below it.
func within(folder, name string) (rel string, ok bool) {
	rel, err := filepath.Rel(folder, name)
	return rel, err == nil && filepath.IsLocal(rel)
}

// edited notes a file that is about to be opened for writing.
func (v *volatile) edited(name string) {
	if _, ok := v.synced[name]; ok {
		return
	}
	if !exists(name) {
		v.created(name)
	}
	v.synced[name], _ = os.ReadFile(name)
}

func (v *volatile) created(name string) { v.names[name] = true }

func (v *volatile) removed(name string) {
	for n := range v.synced {
		if _, ok := within(name, n); ok {
			delete(v.synced, n)
		}
	}
	for n := range v.names {
		if _, ok := within(name, n); ok {
			delete(v.names, n)
		}
	}
}

func (v *volatile) renamed(from, to string) {
	v.move(from, to)
	v.renames = append(v.renames, [2]string{from, to})
}

func (v *volatile) move(from, to string) {
	for name, content := range v.synced {
		if rel, ok := within(from, name); ok {
			delete(v.synced, name)
			v.synced[filepath.Join(to, rel)] = content
		}
	}
	for name := range v.names {
		if rel, ok := within(from, name); ok {
			delete(v.names, name)
			v.names[filepath.Join(to, rel)] = true
		}
	}
}

// syncedDir notes that the names in a folder are durable.
func (v *volatile) syncedDir(folder string) {
	for name := range v.names {
		if filepath.Dir(name) == folder {
			delete(v.names, name)
		}
	}
	left := v.renames[:0]
	for _, r := range v.renames {
		if filepath.Dir(r[1]) != folder {
			left = append(left, r)
		}
	}
	v.renames = left
}

// PowerCut leaves of everything that was not synced a part that rng chooses:
// each block of a file may be as it was last synced or as it was last written,
// new names may be missing, renames undone.
func (f *FS) PowerCut(rng *rand.Rand) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.renames) > 0 {
		last := f.renames[len(f.renames)-1]
		f.renames = f.renames[:len(f.renames)-1]
		if rng.IntN(2) == 0 {
			continue
		}
		if err := os.Rename(last[1], last[0]); err != nil {
			return err
		}
		f.move(last[1], last[0])
	}
	for _, name := range slices.Sorted(maps.Keys(f.synced)) {
		old := f.synced[name]
		now, err := os.ReadFile(name)
		if err != nil {
			continue // removed
		}
		if err := os.WriteFile(name, mix(rng, old, now), 0o666); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.names)) {
		if rng.IntN(2) == 0 {
			if err := os.RemoveAll(name); err != nil {
				return err
			}
		}
	}
	f.volatile = newVolatile()
	return nil
}

// mix chooses each block, and the length, from old or new contents.
func mix(rng *rand.Rand, old, now []byte) []byte {
	size := len(old)
	if rng.IntN(2) == 0 {
		size = len(now)
	}
	out := make([]byte, size) // zeros where neither has anything
	for at := 0; at < size; at += blockBytes {
		from := old
		if rng.IntN(2) == 0 {
			from = now
		}
		if at < len(from) {
			copy(out[at:min(at+blockBytes, size)], from[at:])
		}
	}
	return out
}
