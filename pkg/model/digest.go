package model

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// WeightsSHA256 is the digest of the tensors: their names in order, types,
// shapes and bytes. How they are split into files does not matter. It reads
// all the weights.
func (m *Model) WeightsSHA256(ctx context.Context) (string, error) {
	h := sha256.New()
	for _, name := range m.tensors.names() {
		info := m.tensors[name]
		fmt.Fprintf(h, "%s\x00%s\x00%v\x00", name, info.typeName, info.shape)
		err := m.bytes(ctx, info, func(b []byte) error {
			h.Write(b)
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// bytes hands the data of a tensor to sink, a chunk at a time.
func (m *Model) bytes(ctx context.Context, info tensorInfo, sink func([]byte) error) error {
	buf := m.buffers.Get().(*[]byte)
	defer m.buffers.Put(buf)
	for at := int64(0); at < info.bytes; at += chunkBytes {
		if err := ctx.Err(); err != nil {
			return err
		}
		b := (*buf)[:min(chunkBytes, info.bytes-at)]
		if err := m.files[info.file].readAt(b, info.offset+at); err != nil {
			return err
		}
		if err := sink(b); err != nil {
			return err
		}
	}
	return nil
}

// checkTied compares lm_head.weight with the embedding where the configuration
// ties them and the file nevertheless has both, as some old ones do.
func (m *Model) checkTied() error {
	const head, embedding = "lm_head.weight", "model.embed_tokens.weight"
	copied, ok := m.tensors[head]
	if !ok || !m.profile.Architecture.TiedEmbedding {
		return nil
	}
	original := m.tensors[embedding]
	differ := &Error{File: m.path, Offset: -1, Key: "tensor " + head, Reason: "differs from " + embedding + " although tie_word_embeddings is true"}
	if copied.dtype != original.dtype || copied.bytes != original.bytes {
		return differ
	}
	other := make([]byte, chunkBytes)
	at := original.offset
	return m.bytes(context.Background(), copied, func(b []byte) error {
		if err := m.files[original.file].readAt(other[:len(b)], at); err != nil {
			return err
		}
		at += int64(len(b))
		if !bytes.Equal(b, other[:len(b)]) {
			return differ
		}
		return nil
	})
}
