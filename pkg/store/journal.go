package store

import (
	"bytes"
	"io"

	"substrate/internal/jsonio"
	"substrate/internal/vfs"
)

// The journal of a folder that is being built is JSONL: a head that says what
// is built, then a line for every record that is whole in its file. It is not
// synced: after a power cut lines may be missing or tell of bytes that were
// lost. So a line is only a hint where to look; the checksum decides.

// journalHead is the first line.
type journalHead struct {
	Format string `json:"format"`
	Build  string `json:"build"` // digest of everything that decides the bytes
}

const journalFormat = "sb.journal/1"

// journalLine tells of one record.
type journalLine struct {
	Item  int    `json:"item"`
	Bytes int64  `json:"stored_bytes"`
	Zstd  bool   `json:"zstd,omitempty"`
	CRC   uint32 `json:"crc32c"`
}

// maxJournalBytes bounds what is read of one: 100 bytes for each of the most
// records that a store may hold.
const maxJournalBytes = 1 << 30

// journal is the open journal of this build.
type journal struct {
	file vfs.File
	end  int64
}

// openJournal opens or begins the journal of a build and returns the lines
// that it has. same is false if the journal, or what is left of one, belongs
// to another build: then nothing was changed.
func openJournal(fs vfs.FS, name, build string) (j *journal, lines []journalLine, same bool, err error) {
	f, err := fs.Edit(name)
	if err != nil {
		return nil, nil, false, err
	}
	defer func() {
		if j == nil {
			f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, nil, false, err
	}
	if info.Size() > maxJournalBytes {
		return nil, nil, false, nil
	}
	text := make([]byte, info.Size())
	if _, err := f.ReadAt(text, 0); err != nil && err != io.EOF {
		return nil, nil, false, err
	}
	head, err := jsonio.MarshalLine(journalHead{journalFormat, build})
	if err != nil {
		return nil, nil, false, err
	}
	if len(text) > 0 && !bytes.HasPrefix(text, head) {
		return nil, nil, false, nil
	}
	end := int64(len(head))
	if len(text) == 0 {
		if _, err := f.WriteAt(head, 0); err != nil {
			return nil, nil, false, err
		}
	} else {
		lines, end = parseJournal(text, len(head))
	}
	if err := f.Truncate(end); err != nil {
		return nil, nil, false, err
	}
	return &journal{f, end}, lines, true, nil
}

// parseJournal reads the lines from offset at up to the first that is cut off
// or broken, and returns the offset behind the last whole one.
func parseJournal(text []byte, at int) (lines []journalLine, end int64) {
	for {
		n := bytes.IndexByte(text[at:], '\n')
		if n < 0 {
			return lines, int64(at)
		}
		var l journalLine
		if err := jsonio.Unmarshal("", text[at:at+n], &l); err != nil {
			return lines, int64(at)
		}
		lines = append(lines, l)
		at += n + 1
	}
}

// add appends a line.
func (j *journal) add(l journalLine) error {
	text, err := jsonio.MarshalLine(l)
	if err != nil {
		return err
	}
	if _, err := j.file.WriteAt(text, j.end); err != nil {
		return err
	}
	j.end += int64(len(text))
	return nil
}
