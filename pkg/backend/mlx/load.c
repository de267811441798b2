#include "load.h"

#include <dlfcn.h>
#include <stdio.h>

const sbmlx_api *sb_mlx_load(const char *path, sbmlx_message *message) {
	// The library stays open: MLX's threads run its code until the end.
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (library == NULL) {
		snprintf(message->text, sizeof message->text, "%s", dlerror());
		return NULL;
	}
	const sbmlx_api *(*get)(void);
	*(void **)&get = dlsym(library, SBMLX_SYMBOL);
	if (get == NULL) {
		snprintf(message->text, sizeof message->text, "%s", dlerror());
		return NULL;
	}
	const sbmlx_api *api = get();
	if (api->abi != SBMLX_ABI) {
		snprintf(message->text, sizeof message->text, "%s has interface %d, this program wants %d", path, api->abi, SBMLX_ABI);
		return NULL;
	}
	return api;
}
