package calib

import (
	"bytes"
	"io"
	"os"

	"substrate/internal/jsonio"
)

// FileJournal is a Journal in a file of JSON lines: a head that names the
// measurement, then a line for every variant that was scored. A line that was
// cut off is forgotten.
type FileJournal struct {
	file  *os.File
	end   int64
	found map[string]VariantScore
}

const journalFormat = "sb.measuring/1"

// journalHead is the first line.
type journalHead struct {
	Format string `json:"format"`
	Key    string `json:"key"` // digest of everything that decides the scores
}

type journalLine struct {
	Variant string       `json:"variant"`
	Score   VariantScore `json:"score"`
}

// maxJournalBytes bounds what is read: 10,000 variants of a thousand experts.
const maxJournalBytes = 256 << 20

// OpenJournal opens the journal of a measurement, or begins it where there is
// none or that of another.
func OpenJournal(path, key string) (j *FileJournal, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	text, err := io.ReadAll(io.LimitReader(f, maxJournalBytes))
	if err != nil {
		return nil, err
	}
	head, err := jsonio.MarshalLine(journalHead{journalFormat, key})
	if err != nil {
		return nil, err
	}
	j = &FileJournal{file: f, end: int64(len(head))}
	if bytes.HasPrefix(text, head) {
		var n int
		j.found, n = parseJournal(text[len(head):])
		j.end += int64(n)
	} else if _, err := f.WriteAt(head, 0); err != nil {
		return nil, err
	}
	return j, f.Truncate(j.end)
}

// parseJournal reads lines up to the first that is cut off or broken, and
// returns how many bytes the whole ones take.
func parseJournal(text []byte) (found map[string]VariantScore, end int) {
	found = make(map[string]VariantScore)
	for {
		n := bytes.IndexByte(text[end:], '\n')
		if n < 0 {
			return found, end
		}
		var l journalLine
		if err := jsonio.Unmarshal("", text[end:end+n], &l); err != nil {
			return found, end
		}
		found[l.Variant] = l.Score
		end += n + 1
	}
}

// Found is how many variants were scored before.
func (j *FileJournal) Found() int { return len(j.found) }

// Find implements Journal.
func (j *FileJournal) Find(name string, score *VariantScore) (bool, error) {
	s, ok := j.found[name]
	*score = s
	return ok, nil
}

// Note implements Journal.
func (j *FileJournal) Note(name string, score *VariantScore) error {
	line, err := jsonio.MarshalLine(journalLine{name, *score})
	if err != nil {
		return err
	}
	if _, err := j.file.WriteAt(line, j.end); err != nil {
		return err
	}
	j.end += int64(len(line))
	return j.file.Sync()
}

// Close keeps the journal for the next time.
func (j *FileJournal) Close() error { return j.file.Close() }

// Remove forgets the journal of a measurement that is whole.
func (j *FileJournal) Remove() error { return os.Remove(j.file.Name()) }
