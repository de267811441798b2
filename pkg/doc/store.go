package doc

// Manifest is STORE/manifest.json. It is written last: its presence means
// that the store is complete.
type Manifest struct {
	Format      string         `json:"format"`
	Synthetic   bool           `json:"synthetic,omitzero"`
	ModelID     string         `json:"model_id"`
	Profile     Profile        `json:"profile"`
	Align       int64          `json:"align_bytes"` // of every record in its file
	ScaleType   string         `json:"scale_type"`
	Plans       []StoredPlan   `json:"plans"`
	Encodings   []Encoding     `json:"encodings"`
	Layouts     []RecordLayout `json:"layouts"`
	Files       []StoreFile    `json:"files"`
	Records     []Record       `json:"records"` // sorted by (file, offset)
	Annotations Annotations    `json:"annotations,omitempty"`
}

// StoredPlan names a plan in the store.
type StoredPlan struct {
	Name   string `json:"name"` // "default"
	File   string `json:"file"` // "plans/default.json"
	SHA256 string `json:"sha256"`
	// Records holds for each entry of the plan's tensor_catalog, in its order,
	// the index of the record into records: two plans may mean different
	// records by one id.
	Records []int `json:"records"`
}

// StoreFile is one file of the store beside the manifest.
type StoreFile struct {
	File   string `json:"file"` // relative, slash-separated
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// RecordLayout places the tensors inside a record. Records of equal shapes
// and encodings share one.
type RecordLayout struct {
	Bytes   int64          `json:"bytes"` // raw length of a record
	Tensors []TensorLayout `json:"tensors"`
}

// TensorLayout places one tensor. Dense tensors have only data; coded ones
// have codes at Data, then scales and biases [rows][cols/group].
type TensorLayout struct {
	Role   string `json:"role"`
	Rows   int    `json:"rows"`
	Cols   int    `json:"cols"`
	DType  string `json:"dtype"` // "codes", "bf16", "f16", "f32"
	Bits   int    `json:"bits,omitzero"`
	Group  int    `json:"group,omitzero"`
	Scale  string `json:"scale,omitempty"` // type of scales and biases
	Data   int64  `json:"data_offset"`
	Scales int64  `json:"scales_offset,omitzero"`
	Biases int64  `json:"biases_offset,omitzero"`
}

// Record is one contiguous byte range of the store: an op or expert at one
// level, all roles together.
type Record struct {
	ID       string `json:"id"`
	Identity string `json:"identity"` // hex digest of source tensors, encoding, statistics and what it adds to
	Op       string `json:"op"`
	Encoding string `json:"encoding"`
	Layout   int    `json:"layout"` // index into layouts
	File     int    `json:"file"`   // index into files
	Offset   int64  `json:"offset"`
	Bytes    int64  `json:"stored_bytes"`  // in the file
	Zstd     bool   `json:"zstd,omitzero"` // one frame; raw otherwise
	CRC32C   uint32 `json:"crc32c"`        // of the raw bytes
}

// Packed is the line that sb-pack prints and sb-run reads.
type Packed struct {
	Format      string `json:"format"`
	Synthetic   bool   `json:"synthetic,omitzero"`
	Store       string `json:"store"` // absolute path
	Manifest    string `json:"manifest_sha256"`
	Plan        string `json:"plan"` // name of the first plan
	Records     int    `json:"records"`
	Bytes       int64  `json:"bytes"`
	ReusedBytes int64  `json:"reused_bytes"`
}
