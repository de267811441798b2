// A thread pool for many short jobs: a worker that ran out of work spins for a
// while, since the next op follows within microseconds, and then sleeps.
#define _POSIX_C_SOURCE 200809L
#include "cpu.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { STACK_BYTES = 128 << 10, SPIN_NS = 50000 };

struct sb_pool {
	int threads;
	sb_scratch *scratch;
	pthread_t *ids;

	// The job at hand, written while nobody is inside.
	sb_work work;
	void *arg;
	int n, grain;

	_Alignas(64) atomic_int next;   // first item that nobody took
	_Alignas(64) atomic_uint epoch; // changes with every job
	// OPEN while a job may be joined, plus the number of workers inside. A
	// worker that wakes late finds the job closed and leaves it alone, so the
	// caller never waits for a sleeper.
	_Alignas(64) atomic_uint state;
	atomic_int sleepers, stop;
	pthread_mutex_t mutex;
	pthread_cond_t wake;
};

static const unsigned OPEN = 1u << 31;

typedef struct {
	sb_pool *pool;
	int index;
} worker_arg;

static void relax(void) {
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

static int64_t now_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void run(sb_pool *p, sb_scratch *scratch) {
	for (;;) {
		int lo = atomic_fetch_add_explicit(&p->next, p->grain, memory_order_relaxed);
		if (lo >= p->n) return;
		int hi = lo + p->grain < p->n ? lo + p->grain : p->n;
		p->work(p->arg, scratch, lo, hi);
	}
}

// join enters the open job, if there is one, and works on it.
static void join(sb_pool *p, sb_scratch *scratch) {
	unsigned state = atomic_load(&p->state);
	do {
		if (!(state & OPEN)) return;
	} while (!atomic_compare_exchange_weak(&p->state, &state, state + 1));
	run(p, scratch);
	atomic_fetch_sub(&p->state, 1);
}

// await returns when the epoch is no longer seen.
static void await(sb_pool *p, unsigned seen) {
	int64_t start = 0;
	for (int i = 1;; i++) {
		if (atomic_load_explicit(&p->epoch, memory_order_acquire) != seen) return;
		relax();
		if (i % 64 == 0) {
			int64_t now = now_ns();
			if (start == 0) start = now;
			if (now - start > SPIN_NS) break;
		}
	}
	pthread_mutex_lock(&p->mutex);
	atomic_fetch_add(&p->sleepers, 1);
	while (atomic_load(&p->epoch) == seen) pthread_cond_wait(&p->wake, &p->mutex);
	atomic_fetch_sub(&p->sleepers, 1);
	pthread_mutex_unlock(&p->mutex);
}

static void *worker(void *v) {
	worker_arg arg = *(worker_arg *)v;
	free(v);
	sb_pool *p = arg.pool;
	unsigned seen = 0;
	while (!atomic_load(&p->stop)) {
		join(p, &p->scratch[arg.index]);
		await(p, seen);
		seen = atomic_load(&p->epoch);
	}
	return NULL;
}

static void advance(sb_pool *p) {
	atomic_fetch_add(&p->epoch, 1);
	if (atomic_load(&p->sleepers) > 0) {
		pthread_mutex_lock(&p->mutex);
		pthread_cond_broadcast(&p->wake);
		pthread_mutex_unlock(&p->mutex);
	}
}

void sb_parallel(sb_pool *p, int n, int grain, sb_work work, void *arg) {
	if (p->threads == 1 || n <= grain) {
		work(arg, &p->scratch[0], 0, n);
		return;
	}
	p->work = work, p->arg = arg, p->n = n, p->grain = grain;
	atomic_store(&p->next, 0);
	atomic_store(&p->state, OPEN);
	advance(p);
	run(p, &p->scratch[0]);
	// Every item is taken; wait for those who still work on theirs.
	atomic_fetch_and(&p->state, ~OPEN);
	for (int i = 0; atomic_load(&p->state) != 0; i++) {
		if (i < 4096) relax();
		else sched_yield();
	}
}

sb_pool *sb_pool_open(int threads, sb_scratch *scratch) {
	sb_pool *p;
	if (posix_memalign((void **)&p, 64, sizeof *p) != 0) return NULL;
	*p = (sb_pool){.threads = 1, .scratch = scratch};
	pthread_mutex_init(&p->mutex, NULL);
	pthread_cond_init(&p->wake, NULL);
	p->ids = calloc(threads, sizeof *p->ids);
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	// Signals are the Go runtime's business: its own threads take them.
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int failed = p->ids == NULL;
	for (int i = 1; i < threads && !failed; i++) {
		worker_arg *arg = malloc(sizeof *arg);
		if (arg == NULL) {
			failed = 1;
			break;
		}
		*arg = (worker_arg){p, i};
		if (pthread_create(&p->ids[i], &attr, worker, arg) != 0) {
			free(arg);
			failed = 1;
			break;
		}
		p->threads++;
	}
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&attr);
	if (failed) {
		sb_pool_close(p);
		return NULL;
	}
	return p;
}

void sb_pool_close(sb_pool *p) {
	atomic_store(&p->stop, 1);
	advance(p);
	for (int i = 1; i < p->threads; i++) pthread_join(p->ids[i], NULL);
	pthread_cond_destroy(&p->wake);
	pthread_mutex_destroy(&p->mutex);
	free(p->ids);
	free(p);
}

int64_t sb_pool_bytes(int threads) {
	return sizeof(sb_pool) + (int64_t)(threads - 1) * STACK_BYTES;
}
