// Decodes given tokens with llama.cpp, one at a time, and prints what that took
// as one JSON object: the peer of scripts/bench-cap. Weights are memory-mapped.
//
//     llama_decode MODEL.gguf TOKENS PROMPT THREADS REPACK < ids
//
// ids are numbers; the first PROMPT of them are computed as one batch, then
// TOKENS more, each with its own time. REPACK 1 lets llama.cpp lay weights out
// anew in memory of its own, which is faster where it fits.
//
//     llama_decode --quantize MODEL.gguf OUT.gguf TYPE
//
// writes the model in another type (a number of enum llama_ftype).
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "llama.h"

namespace {

void fail(const char* what) {
  std::fprintf(stderr, "llama_decode: %s\n", what);
  std::exit(1);
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// read_bytes is what the process has had read from disk, faults of the mapping
// included.
long long read_bytes() {
  std::FILE* f = std::fopen("/proc/self/io", "r");
  char line[128];
  long long n = -1;
  while (f && std::fgets(line, sizeof line, f)) {
    std::sscanf(line, "read_bytes: %lld", &n);
  }
  if (f) {
    std::fclose(f);
  }
  return n;
}

int quantize(char** argv) {
  auto params = llama_model_quantize_default_params();
  params.nthread = 2;
  params.allow_requantize = true;
  params.ftype = static_cast<llama_ftype>(std::atoi(argv[4]));
  params.pure = true;
  return llama_model_quantize(argv[2], argv[3], &params) == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  llama_log_set([](ggml_log_level level, const char* text, void*) {
    if (level >= GGML_LOG_LEVEL_WARN) {
      std::fputs(text, stderr);
    }
  }, nullptr);
  llama_backend_init();
  if (argc == 5 && std::strcmp(argv[1], "--quantize") == 0) {
    return quantize(argv);
  }
  if (argc != 6) {
    fail("usage: llama_decode MODEL.gguf TOKENS PROMPT THREADS REPACK < ids");
  }
  int tokens = std::atoi(argv[2]), prompt = std::atoi(argv[3]), threads = std::atoi(argv[4]);
  std::vector<llama_token> ids;
  for (int id; std::scanf("%d", &id) == 1;) {
    ids.push_back(id);
  }
  if (prompt < 1 || static_cast<int>(ids.size()) < prompt + tokens) {
    fail("too few ids");
  }

  auto mp = llama_model_default_params();
  mp.n_gpu_layers = 0;
  mp.load_mode = LLAMA_LOAD_MODE_MMAP;
  mp.use_extra_bufts = std::atoi(argv[5]) != 0;
  auto* model = llama_model_load_from_file(argv[1], mp);
  if (!model) {
    fail("the model does not load");
  }
  auto cp = llama_context_default_params();
  cp.n_ctx = 512;
  cp.n_batch = cp.n_ubatch = 64;
  cp.n_threads = cp.n_threads_batch = threads;
  auto* context = llama_init_from_model(model, cp);
  if (!context) {
    fail("no context");
  }
  double start = now();
  if (llama_decode(context, llama_batch_get_one(ids.data(), prompt)) != 0) {
    fail("prefill fails");
  }
  double prefill = now() - start;
  long long before = read_bytes();
  start = now();
  for (int i = 0; i < tokens; i++) {
    if (llama_decode(context, llama_batch_get_one(&ids[prompt + i], 1)) != 0) {
      fail("decode fails");
    }
  }
  double decode = now() - start;
  std::printf("{\"tokens\":%d,\"prefill_s\":%.3f,\"decode_s\":%.3f,\"tokens_per_second\":%.3f,\"read_bytes_per_token\":%.0f}\n",
              tokens, prefill, decode, tokens / decode, static_cast<double>(read_bytes() - before) / tokens);
  llama_free(context);
  llama_model_free(model);
}
