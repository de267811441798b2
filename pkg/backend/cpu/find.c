// Which code paths this machine can run.
#include "cpu.h"

#include <string.h>

#ifdef SB_AVX512
#include <cpuid.h>

extern const sb_kernels sb_avx512vnni;

// The operating system must save the registers too: XCR0 says so for SSE, AVX
// and the three AVX-512 states.
static int has_avx512vnni(void) {
	unsigned a, b, c, d;
	if (!__get_cpuid(1, &a, &b, &c, &d)) return 0;
	if (!(c >> 27 & 1) || !(c >> 29 & 1) || !(c >> 12 & 1)) return 0; // OSXSAVE, F16C, FMA
	unsigned low, high;
	__asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
	if ((low & 0xe6) != 0xe6) return 0;
	if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
	unsigned f = b >> 16 & 1, dq = b >> 17 & 1, bw = b >> 30 & 1, vl = b >> 31 & 1;
	unsigned vbmi = c >> 1 & 1, vnni = c >> 11 & 1;
	return f && dq && bw && vl && vbmi && vnni;
}
#endif

const sb_kernels *sb_find(const char *path) {
#ifdef SB_AVX512
	if ((path[0] == 0 || strcmp(path, sb_avx512vnni.name) == 0) && has_avx512vnni()) return &sb_avx512vnni;
#endif
	if (path[0] == 0 || strcmp(path, sb_scalar.name) == 0) return &sb_scalar;
	return NULL;
}
