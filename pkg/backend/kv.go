package backend

// KVWidth is the size in bytes of one value of a cache of a type.
func KVWidth(kvType string) int64 {
	if kvType == "f16" {
		return 2
	}
	return 4
}
