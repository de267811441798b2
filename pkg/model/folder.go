package model

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"substrate/internal/jsonio"
	"substrate/pkg/doc"
)

// Files of a Hugging Face folder.
const (
	configFile     = "config.json"
	generationFile = "generation_config.json"
	weightsFile    = "model.safetensors"
	indexFile      = "model.safetensors.index.json"
)

const maxIndexBytes = 64 << 20

// ProfileFromConfig describes a model from its config.json alone, before the
// weights are there: path is the file or its folder. The profile has no
// digests, and its tensors have the type that the configuration names.
func ProfileFromConfig(path string) (*doc.Profile, error) {
	folder := path
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.IsDir() {
		folder = filepath.Dir(path)
	} else {
		path = filepath.Join(path, configFile)
	}
	mc, _, err := readConfig(path)
	if err != nil {
		return nil, err
	}
	p, err := NewProfile(modelID(folder), mc.family, mc.arch, mc.dtype.String())
	if err != nil {
		return nil, err
	}
	p.Synthetic = mc.synthetic
	if mc.quantization != nil {
		p.Reference = mc.quantization.reference()
	}
	return p, nil
}

// readConfig reads a config.json and the generation_config.json beside it, and
// returns their bytes too.
func readConfig(path string) (*modelConfig, [][]byte, error) {
	text, err := readSmall(path, maxConfigBytes)
	if err != nil {
		return nil, nil, err
	}
	generation, err := readOptional(filepath.Join(filepath.Dir(path), generationFile), maxConfigBytes)
	if err != nil {
		return nil, nil, err
	}
	mc, err := parseConfig(configFile, text, generation)
	return mc, [][]byte{text, generation}, err
}

func (m *Model) openFolder() error {
	mc, texts, err := readConfig(filepath.Join(m.path, configFile))
	if errors.Is(err, fs.ErrNotExist) {
		return &Error{File: m.path, Offset: -1, Reason: "no config.json: want a Hugging Face folder or a .gguf file"}
	}
	if err != nil {
		return err
	}
	digest := sha256.New()
	for _, text := range texts {
		digestPart(digest, "", text)
	}
	names, index, err := m.weightFiles()
	if err != nil {
		return err
	}
	m.tensors = table{}
	for i, name := range names {
		f, err := m.openFile(filepath.Join(m.path, filepath.FromSlash(name)))
		if err != nil {
			return err
		}
		t, header, err := safetensorsHeader(f, i)
		if err != nil {
			return err
		}
		digestPart(digest, name, header)
		for tensor, info := range t {
			if other, ok := m.tensors[tensor]; ok {
				return &Error{File: f.name, Offset: -1, Key: "tensor " + tensor, Reason: "is in " + m.files[other.file].name + " too"}
			}
			m.tensors[tensor] = info
		}
	}
	if err := index.check(m); err != nil {
		return err
	}
	if mc.quantization != nil {
		if err := mc.quantization.join(m); err != nil {
			return err
		}
	}
	m.profile = newProfile(modelID(m.path), mc.family, &mc.arch, mc.names(m.tensors))
	m.profile.Synthetic = mc.synthetic
	m.profile.HeaderSHA256 = hex.EncodeToString(digest.Sum(nil))
	if m.profile.Tokenizer, err = fileDigest(filepath.Join(m.path, tokenizerFile)); err != nil {
		return err
	}
	if err := bind(m.path, m.profile, m.tensors, m.ignored); err != nil {
		return err
	}
	if err := validate(m.path, m.profile); err != nil {
		return err
	}
	return m.checkTied()
}

// digestPart adds a named text to a digest, so that no two lists of parts
// give the same bytes.
func digestPart(h hash.Hash, name string, text []byte) {
	fmt.Fprintf(h, "%s\x00%d\x00", name, len(text))
	h.Write(text)
}

// ignored reports whether a tensor beside those of the ops may be there: the
// inverse frequencies that old versions of transformers saved, and a copy of a
// tied embedding, which checkTied compares.
func (m *Model) ignored(name string) bool {
	return strings.HasSuffix(name, ".rotary_emb.inv_freq") ||
		name == "lm_head.weight" && m.profile.Architecture.TiedEmbedding
}

// shardIndex is what model.safetensors.index.json says: the file of every
// tensor. nil: there is no such file.
type shardIndex map[string]string

// weightFiles returns the names of the files with weights, as transformers
// finds them: model.safetensors, else the shards of the index.
func (m *Model) weightFiles() ([]string, shardIndex, error) {
	if _, err := os.Stat(filepath.Join(m.path, weightsFile)); err == nil {
		return []string{weightsFile}, nil, nil
	}
	text, err := readSmall(filepath.Join(m.path, indexFile), maxIndexBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, &Error{File: m.path, Offset: -1, Reason: "no model.safetensors and no model.safetensors.index.json: weights of other kinds (.bin, .pth) must be converted to safetensors"}
	}
	if err != nil {
		return nil, nil, err
	}
	index, err := parseIndex(text)
	if err != nil {
		return nil, nil, err
	}
	shards := map[string]bool{}
	for _, shard := range index {
		shards[shard] = true
	}
	return slices.Sorted(maps.Keys(shards)), index, nil
}

func parseIndex(text []byte) (shardIndex, error) {
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := jsonio.UnmarshalLoose(indexFile, text, &index); err != nil {
		return nil, err
	}
	if len(index.WeightMap) == 0 {
		return nil, &Error{File: indexFile, Offset: -1, Key: "/weight_map", Reason: "missing or empty"}
	}
	for _, tensor := range slices.Sorted(maps.Keys(index.WeightMap)) {
		shard := index.WeightMap[tensor]
		if !filepath.IsLocal(filepath.FromSlash(shard)) || !strings.HasSuffix(shard, ".safetensors") {
			return nil, &Error{File: indexFile, Offset: -1, Key: "/weight_map/" + tensor, Reason: fmt.Sprintf("%q is not a .safetensors file inside the folder", shard)}
		}
	}
	return index.WeightMap, nil
}

// check compares the index with the headers of the shards.
func (index shardIndex) check(m *Model) error {
	if index == nil {
		return nil
	}
	for _, tensor := range slices.Sorted(maps.Keys(index)) {
		info, ok := m.tensors[tensor]
		if !ok || m.files[info.file].name != filepath.Base(filepath.FromSlash(index[tensor])) {
			return &Error{File: indexFile, Offset: -1, Key: "tensor " + tensor, Reason: "is not in " + index[tensor] + ", where the index says it is"}
		}
	}
	return nil
}
