package doc

// Machine is what sb-calibrate measures of a computer. It is the one document
// besides traces that holds timings.
type Machine struct {
	Format      string       `json:"format"`
	Source      string       `json:"source"` // "measured" or "default"
	Reads       []ReadPoint  `json:"reads"`  // ascending by (bytes, depth)
	Kernels     []KernelRate `json:"kernels"`
	Memory      MemoryLimits `json:"memory"`
	Threads     int          `json:"threads"`
	CPUPath     string       `json:"cpu_path"` // "avx512vnni", "scalar"
	Annotations Annotations  `json:"annotations,omitempty"`
}

// ReadPoint is the disk's rate at one size and queue depth, cache defeated.
type ReadPoint struct {
	Bytes       int64 `json:"bytes"`
	Depth       int   `json:"depth"`
	BytesPerSec int64 `json:"bytes_per_sec"`
	Direct      bool  `json:"direct"`
}

// KernelRate is the time of a matrix product of one kind.
type KernelRate struct {
	Backend     string `json:"backend"`     // "cpu", "mlx", "ref"
	Activations string `json:"activations"` // "int8", "f32"
	Bits        int    `json:"bits"`
	Group       int    `json:"group"`
	Rows        int    `json:"rows"`
	Cols        int    `json:"cols"`
	Tokens      int    `json:"tokens"` // batch
	TimeNs      int64  `json:"time_ns"`
}

// MemoryLimits are the bytes a run may count on.
type MemoryLimits struct {
	TotalBytes       int64 `json:"total_bytes"`
	AvailableBytes   int64 `json:"available_bytes"`
	ProcessBaseBytes int64 `json:"process_base_bytes"` // sb-run without model: code, runtime, stacks
	DispatchNs       int64 `json:"dispatch_ns"`        // fixed cost of one op
}
