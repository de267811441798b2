package mem

import "io/fs"

// ReadEnvironment looks around. root is the file system from "/".
func ReadEnvironment(root fs.FS) (Environment, error) {
	var e Environment
	err := e.readMeminfo(root)
	if err == nil {
		e.Cgroup, err = ReadCgroup(root)
	}
	return e, err
}
