// Package captest proves the memory cap from outside: it runs sb-run in a real
// cgroup whose limit is the cap, without swap, and judges by what the kernel
// says. Its tests have the build tag captest and need root:
//
//	make test-cap
package captest
